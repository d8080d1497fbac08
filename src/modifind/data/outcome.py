"""The outcome: its scale, its values in each arm, and columns that define it, derive from it or are its baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, skew

from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind.data.balance import feature_bins
from modifind.data.column_types import MAX_DISCRETE_VALUES
from modifind.data.features import FeatureTable
from modifind.data.guards import MIN_LEAD, is_time, lead
from modifind.data.words import is_baseline_name, is_event_name, is_time_name, named

STRONG_SKEW = 2.0
MANY_ZEROS = 0.2
MIN_SUMMED_ROWS = 20


def warn_of_scale(y: Array) -> None:
    """Warn of outcomes for which the effect scale decides the answer."""
    if is_count(y):
        share = float((y == 0).mean())
        zeros = f", zeros in {share:.0%} of the rows" if share else ""
        what = f"looks like a count (mean {y.mean():.2g}, variance {y.var():.2g}{zeros})"
        remedy = "outcome='count' with effect_scale='ratio'"
    elif has_many_zeros(y):
        what = f"has zeros in {float((y == 0).mean()):.0%} of the rows"
        remedy = "outcome='amount' with effect_scale='ratio', which looks at whether there is any and at how much"
    elif (skewness := _skewness(y)) is not None:
        what = f"is never negative and strongly skewed (skewness {skewness:.1f})"
        remedy = "effect_scale='ratio'"
        remedy += ", or outcome_transform='log' for geometric means" if y.min() > 0 else ""
    else:
        return
    warn(
        f"the outcome {what}. A treatment that multiplies such an outcome has a larger additive effect where the level "
        "is higher, so that features which raise the level modify it. If effects are thought of as ratios, compare the "
        f"arms by ratios: {remedy}",
    )


def warn_of_one_row(y: Array) -> None:
    """Warn if one row makes up most of a non-negative outcome: a misplaced decimal point, a code for "unknown"."""
    most, total = float(y.max()), float(y.sum())
    if y.min() >= 0 and np.unique(y).size > 2 and most > total / 2 and y.size >= MIN_SUMMED_ROWS:
        warn(
            f"one row has more than half of the sum of the outcome ({most:g} of {total:g}): averages and their ratios "
            "are dominated by this row, to which tests give little weight. Check the value, or leave the row out",
        )


def has_many_zeros(y: Array) -> bool:
    """Whether a non-negative outcome is often zero, and skewed to the right."""
    return bool(y.min() == 0) and np.unique(y).size > 2 and float((y == 0).mean()) > MANY_ZEROS and float(skew(y)) > 0


def _skewness(y: Array) -> float | None:
    """Skewness of a non-negative outcome if it is large and smaller on the log scale; otherwise None."""
    low = float(y.min())
    if low < 0 or np.unique(y).size <= (MAX_DISCRETE_VALUES if low > 0 else 2):
        return None
    skewness = float(skew(y))
    less = low == 0 or abs(float(skew(np.log(y)))) < skewness / 2
    return skewness if skewness > STRONG_SKEW and less else None


def is_count(y: Array) -> bool:
    """Whether an outcome looks like a count, with or without zeros or a long tail.

    Counts are whole numbers of more than two values, none negative, skewed to the right (skewness above 0.2), that vary
    nearly as much as a Poisson variable of their mean (variance above 0.7 means) and come close to zero: the smallest
    is at most 0.7 standard deviations, and the mean below four.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> is_count(rng.poisson(3.0, 500)), is_count(1 + rng.poisson(3.0, 500)), is_count(rng.integers(0, 11, 500))
    (True, True, False)
    """
    low = float(y.min())
    if low < 0 or not (y == np.rint(y)).all() or np.unique(y).size <= 2:
        return False
    mean, variance = float(y.mean()), float(y.var())
    spread = variance**0.5
    close = low <= 0.7 * spread and mean < 4.0 * spread
    return close and variance > 0.7 * mean and float(skew(y)) > 0.2


MIN_EVENTS = 10  # rows of an arm that differ from its most frequent outcome


def refuse_treatment_as_outcome(y: Array, arms: Ints, outcome: str = "the outcome y") -> None:
    """Refuse an outcome that is constant in each arm: the treatment determines it.

    Examples
    --------
    >>> arms = np.arange(60) % 2
    >>> refuse_treatment_as_outcome(3.0 - arms, arms)
    Traceback (most recent call last):
    ...
    ValueError: the outcome y has one value in each arm (3 in control rows and 2 in treated rows): it is the treatment \
under another name; name a column measured after the treatment
    """
    control, treated = y[arms == 0], y[arms == 1]
    if control[0] != treated[0] and not (np.ptp(control) or np.ptp(treated)):
        raise ValueError(
            f"{outcome} has one value in each arm ({control[0]:g} in control rows and {treated[0]:g} in treated rows): "
            "it is the treatment under another name; name a column measured after the treatment"
        )


def few_events(y: Array, arms: Ints) -> dict[str, dict[str, Any]]:
    """Arms in which few rows differ from the most frequent outcome, for the record of a result.

    Each entry has the arm's rows, the rows that differ, the most frequent outcome, and whether the outcome is binary.
    For a longer table only the rows that models are fitted to are counted.

    Examples
    --------
    >>> few_events(np.repeat([0.0, 1.0], [57, 3]), np.arange(60) % 2)["treated"]
    {'rows': 30, 'events': 2, 'usual': 0.0, 'binary': True}
    """
    binary, counted = np.unique(y).size == 2, {}
    for arm, name in enumerate(("control", "treated")):
        values, rows = np.unique(y[arms == arm], return_counts=True)
        events = int(rows.sum() - rows.max())
        if events < MIN_EVENTS:
            usual = float(values[rows.argmax()])
            counted[name] = {"rows": int(rows.sum()), "events": events, "usual": usual, "binary": binary}
    return counted


MIN_SHARE = 0.99  # of the variance of the outcome, which columns measured before do not reach
MIN_RANK_SHARE = 0.98  # the same of its ranks: a few extreme rows are no evidence
MAX_ROUNDING_SHARE = 1e-6  # share of the variance that rounding may leave
MAX_PAIRED, MAX_TRIPLED = 300, 40  # columns of which all pairs, and all triples, are looked at
MAX_ROWS = 5000
MIN_LEFT_SHARE = 1e-8  # share of a column's variance that another leaves, below which the two are one
OFFSETS = (0.0, 1.0, 100.0)  # a change by so many per cent is a ratio less 100


@dataclass(frozen=True)
class OutcomeParts:
    """Two or three columns that together give the outcome.

    Attributes
    ----------
    names : tuple of str
        The columns.
    share : float
        Share of the variance of the outcome that they explain together.
    how : str
        How they are put together, in words.
    """

    names: tuple[str, ...]
    share: float
    how: str

    @property
    def exact(self) -> bool:
        """Whether they give the outcome up to rounding."""
        return 1.0 - self.share < MAX_ROUNDING_SHARE

    @property
    def recorded(self) -> dict[str, Any]:
        """Entries for the record of a result."""
        return {"columns": list(self.names), "share": self.share, "how": self.how}

    def refuse_exact(self) -> None:
        """Refuse columns that give the outcome to full precision."""
        if self.exact:
            raise ValueError(
                f"{named(self.names)}: the outcome is computed from these columns (by {self.how}); exclude those that "
                "were measured after the treatment"
            )


def outcome_parts(table: FeatureTable, y: Array) -> OutcomeParts | None:
    """Two or three columns that give the outcome by sums and differences, or by products and ratios.

    All pairs of columns are tried, and all triples of the 40 most related to the outcome, on at most 5,000 rows. A
    single column that gives the outcome is found by `OutcomeRanks`.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> before, after, age = np.random.default_rng(0).normal(50, 9, (3, 60))
    >>> table = read_features({"before": before, "age": age, "after": after})
    >>> outcome_parts(table, after - before).names
    ('before', 'after')
    >>> outcome_parts(table, 100 * after / before - 100).how
    'products and ratios'
    """
    rows = np.unique(np.linspace(0, y.size - 1, min(y.size, MAX_ROWS)).astype(np.intp))
    columns = {name: numbers for m, name in enumerate(table.names) if (numbers := _numbers(table, m, rows)) is not None}
    for how, outcome, parts in _scales(y[rows], columns):
        if (largest := _largest(outcome, parts)) is not None:
            return OutcomeParts(*largest, how)
    return None


def _numbers(table: FeatureTable, feature: int, rows: NDArray[np.intp]) -> Array | None:
    """Some rows of a numeric or two-level column without gaps; None for others."""
    column = table.numbers(feature)
    if column is None and table.n_levels(feature) == 2:
        column = table.values[:, feature]
    if column is None:
        return None
    column = column[rows]
    return column if np.ptp(column) > 0 else None  # NaN is no spread either


def _scales(y: Array, columns: dict[str, Array]) -> Iterator[tuple[str, Array, dict[str, Array]]]:
    yield "sums and differences", y, columns
    positive = {name: np.log(column) for name, column in columns.items() if column.min() > 0}
    for offset in OFFSETS:
        if y.min() + offset > 0 and len(positive) > 1:
            yield "products and ratios", np.log(y + offset), positive


def _largest(y: Array, columns: dict[str, Array]) -> tuple[tuple[str, ...], float] | None:
    """The columns that explain most of the outcome, and the share explained."""
    names = list(columns)
    if len(names) < 2 or not np.ptp(y) > 0:
        return None
    values = np.column_stack([_standardised(column) for column in columns.values()])
    outcome = _standardised(y)
    related = values.T @ outcome
    if (related**2).max() >= MIN_SHARE:
        return None
    order = np.argsort(-np.abs(related), kind="stable")
    for chosen, search in ((order[:MAX_PAIRED], _best_pair), (order[:MAX_TRIPLED], _best_triple)):
        picked = [int(chosen[k]) for k in search(values[:, chosen].T @ values[:, chosen], related[chosen])]
        share = _explained(values[:, picked], outcome)
        if share >= MIN_SHARE:
            return tuple(names[k] for k in sorted(picked)), share
    return None


def _standardised(column: Array) -> Array:
    centred = column - column.mean()
    return centred / max(np.sqrt(centred @ centred), 1e-300)


def _pair_shares(products: Array, related: Array, size: Array) -> Array:
    """Share explained by every pair of columns, from cross-products, those with the outcome, and squares."""
    left = np.outer(size, size) - products**2
    gained = size[:, None] * related**2 + size * related[:, None] ** 2 - 2 * np.outer(related, related) * products
    return np.where(left > MIN_LEFT_SHARE * np.outer(size, size), gained / np.maximum(left, 1e-300), 0.0)


def _best_pair(products: Array, related: Array) -> tuple[int, ...]:
    shares = _pair_shares(products, related, np.ones(related.size))
    return tuple(map(int, np.unravel_index(np.argmax(shares), shares.shape)))


def _best_triple(products: Array, related: Array) -> tuple[int, ...]:
    """The best triple, by the best pair of the residuals on each column."""
    best: tuple[float, tuple[int, ...]] = (0.0, (0,))
    for k in range(related.size):
        size = 1.0 - products[k] ** 2
        size = np.where(size > MIN_LEFT_SHARE, size, 0.0)
        rest = products - np.outer(products[k], products[k])
        shares = _pair_shares(rest, related - products[k] * related[k], size) + related[k] ** 2
        i, j = np.unravel_index(np.argmax(shares), shares.shape)
        best = max(best, (float(shares[i, j]), (k, int(i), int(j))))
    return best[1]


def _explained(columns: Array, y: Array) -> float:
    """Share of a standardised outcome that columns explain; 0 if they explain a few extreme rows only."""
    fitted = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    share = 1.0 - float((y - fitted) @ (y - fitted))
    ranks = float(_standardised(rankdata(np.round(fitted, 9))) @ _standardised(rankdata(y)))
    return share if ranks**2 >= MIN_RANK_SHARE else 0.0


FORWARD_BINS, BACKWARD_BINS = 30, 100
ROWS_PER_BIN = 10
MAX_OUTCOME_LEVELS = 12
MAX_SHARED = 0.95  # of the order of a column and the outcome; one measured before shares less
MAX_FOLLOWED = 0.975  # the same by neighbouring rows, which chance moves further in small tables
UNNAMED_LEAD = 0.25  # of a column whose name does not say that it flags an event


@dataclass(frozen=True)
class OutcomeRanks:
    """The outcome as ranks, with its name."""

    ranks: Array
    arms: Ints
    time: bool
    named_time: bool

    @classmethod
    def of(cls, y: Array, arms: Ints, name: str | None = None, *, positive: bool = False) -> OutcomeRanks:
        """Rank an outcome; `positive` says whether it was positive before being transformed."""
        time = is_time(y - y.min() if positive else y)
        return cls((rankdata(y) - 0.5) / y.size, arms, time, time and is_time_name(name or ""))

    def shared(self, table: FeatureTable, feature: int) -> float:
        """How nearly a column determines the outcome within arms, or the reverse, from 0 to 1.

        Measured by the share of the variance of the outcome's ranks that lies between bins of the column, and for a
        column with few levels also by how few levels occur at the same outcome. For numeric columns, neighbours in
        either are also compared in the other, which counts if hardly any variance is left: one is then a function of
        the other, monotone or not.
        """
        n_rows = self.ranks.size
        bins, _ = feature_bins(table, feature, int(np.clip(n_rows // (2 * ROWS_PER_BIN), 2, FORWARD_BINS)))
        forward = self._between(bins)
        n_levels = table.n_levels(feature)
        if n_levels == 0:
            nearby = self._nearby(table.values[:, feature])
            return nearby if nearby > MAX_FOLLOWED else forward
        if not 2 <= n_levels <= MAX_OUTCOME_LEVELS:
            return forward
        n_bins = int(np.clip(n_rows // ROWS_PER_BIN, 2, BACKWARD_BINS))
        outcome_bins = np.minimum((self.ranks * n_bins).astype(np.intp), n_bins - 1)
        counts = np.bincount(outcome_bins * n_levels + bins, minlength=n_bins * n_levels).reshape(n_bins, n_levels)
        size = counts.sum(axis=1)
        mixed = size.sum() - (counts**2 / np.maximum(size, 1)[:, None]).sum()
        alone = n_rows - (counts.sum(axis=0) ** 2).sum() / n_rows
        if alone <= 0 or np.sort(counts.sum(axis=0))[-2] < ROWS_PER_BIN:
            return forward
        used = int((size > 0).sum())
        backward = 1.0 - mixed / max(n_rows - used, 1) / (alone / max(n_rows - 1, 1))
        return float(np.clip(max(forward, backward), 0.0, 1.0))

    def _nearby(self, column: Array) -> float:
        """How nearly a numeric column is a function of the outcome or the reverse, by neighbouring rows."""
        shuffled = np.random.default_rng(0).permutation(column.size)  # an order of rows that tell nothing apart
        rows = shuffled[~np.isnan(column[shuffled])]
        if rows.size <= 2 * ROWS_PER_BIN:
            return 0.0
        outcome, values, arms = self.ranks[rows], rankdata(column[rows]) / rows.size, self.arms[rows]
        return max(_neighbour_share(outcome, values, arms), _neighbour_share(values, outcome, arms))

    def _between(self, bins: NDArray[np.intp]) -> float:
        cell = 2 * bins + self.arms
        size, sums = np.bincount(cell), np.bincount(cell, self.ranks)
        by_arm, arm_sums = np.bincount(self.arms), np.bincount(self.arms, self.ranks)
        square = float(self.ranks @ self.ranks)
        within = square - float((sums[size > 0] ** 2 / size[size > 0]).sum())
        whole = square - float((arm_sums**2 / by_arm).sum())
        left = self.ranks.size - int((size > 0).sum())
        if left <= 0 or whole <= 1e-12 * square:
            return 0.0
        return float(np.clip(1.0 - within / left / (whole / (self.ranks.size - 2)), 0.0, 1.0))

    def flags_event(self, table: FeatureTable, feature: int) -> bool:
        """Whether a binary column looks like the event indicator of the time that is the outcome."""
        if not self.time or table.n_levels(feature) != 2:
            return False
        ahead = abs(lead(self.ranks, table.values[:, feature] == 1))
        if is_event_name(table.names[feature]):
            return ahead > 0 and (self.named_time or ahead >= MIN_LEAD)
        return self.named_time and ahead >= UNNAMED_LEAD


def _neighbour_share(first: Array, second: Array, arms: Ints) -> float:
    """Share of the second column's variance that disappears between neighbours in the first, within arms.

    It is 1 if the second is a function of the first, of any form.
    """
    apart = spread = 0.0
    for arm in (0, 1):
        values = second[arms == arm][np.argsort(first[arms == arm], kind="stable")]
        if values.size > 2:
            apart += float((np.diff(values) ** 2).mean() / 2) * values.size
            spread += float(values.var()) * values.size
    return 1.0 - apart / spread if spread > 0 else 0.0


def baseline_names(table: FeatureTable, outcome: str) -> list[str]:
    """Numeric features named like the outcome before treatment.

    Such as ``weight_0``, ``weight_bl`` or ``pre_weight`` beside ``weight`` or ``weight_6m``. Numbers alone do not show
    this, because any strong predictor is related to the outcome as its baseline is.

    Parameters
    ----------
    table : FeatureTable
        Features that were measured before the treatment.
    outcome : str
        What the outcome is called.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.schema import read_features
    >>> table = read_features({"weight_bl": np.linspace(60, 90, 40), "age": np.linspace(20, 80, 40)})
    >>> baseline_names(table, "weight")
    ['weight_bl']
    """
    numeric = (name for m, name in enumerate(table.names) if table.kind(m) == "continuous")
    return [name for name in numeric if is_baseline_name(name, outcome)]

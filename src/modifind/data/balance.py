"""Imbalance between the arms: columns apparently affected by the treatment, and ranges where only one arm has rows.

Pre-treatment columns differ between randomised arms by chance alone. If the design is not declared, randomisation is
assumed here only if the other columns show no difference between the arms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, rankdata
from scipy.stats import t as student_t

from modifind._typing import Array, Bools, Ints
from modifind.data.clusters import Clusters, treated_as_one
from modifind.data.features import FeatureTable
from modifind.data.sources import Block
from modifind.data.weights import Weights
from modifind.data.words import counted, named

MAX_CHANCE = 1e-4  # p-value of a difference between the arms, over all columns
MIN_OTHERS = 3  # columns, with fewer of which nothing is known of how the treatment was given
MIN_ALIKE = 0.005  # p-value below which a column may be another that the treatment has changed
MIN_BALANCE = 0.001  # p-value below which other columns tell the arms apart, where relations between columns say more,
ALONE_BALANCE = 0.02  # and where they say nothing,
ALONE_ROWS, ALONE_OTHERS = 200, 5  # which takes so many rows and other columns, because few differ among fewer
INFORMATIVE = 2.0  # expected score of other columns, from which on these relations tell something
MIN_EVIDENCE = 2.0  # log-likelihood ratio of an effect of the treatment against a cause
MAX_COMPARED_LEVELS = 50  # of a column that is looked at
RIDGE = 1e-3


@dataclass(frozen=True)
class ArmSums:
    """Sums over rows of treatment minus its probability, times columns: near zero for pre-treatment columns of a trial.

    Attributes
    ----------
    table : FeatureTable
        Features.
    treatment : array of shape (n,)
        0 or 1.
    chances : array of shape (n,)
        Chance of every row to be treated, if the treatment was randomised; NaN where it is not known.
    weights : Weights
        How much each row counts.
    clusters : Clusters
        Which rows belong together.
    """

    table: FeatureTable
    treatment: Ints
    chances: Array
    weights: Weights
    clusters: Clusters

    def columns(self, feature: int) -> Array:
        """Mean-zero transforms of a column to compare: ranks and their distance from the middle, gaps, or levels."""
        return np.column_stack([self._standardised(part, seen) for part, seen in compared_parts(self.table, feature)])

    def columns_of(self, features: Sequence[int]) -> Array:
        """The transforms of several columns, without those that are constant."""
        columns = np.column_stack([self.columns(m) for m in features])
        return columns[:, columns.any(axis=0)]

    def _standardised(self, part: Array, seen: Bools) -> Array:
        even = self._even * seen
        centred = np.where(seen, part - even @ part / max(even.sum(), 1e-300), 0.0)
        spread = float(np.sqrt(even @ centred**2 / max(self._even.sum(), 1e-300)))
        return np.zeros(part.size) if spread <= 1e-9 else centred / spread

    @property
    def _even(self) -> Array:
        return self.weights.values * self.chances * (1.0 - self.chances)

    def of_units(self, columns: Array) -> Array:
        """The sums over each cluster, shape (units, k)."""
        terms = self.weights.values * (self.treatment - self.chances)
        return self.clusters.sums(terms[:, None] * columns)

    def difference(self, feature: int) -> tuple[float, float]:
        """Difference of the arms in a column, in standard deviations, and its p-value.

        Both are those of the most significant transform, the p-value times the number of transforms; NaN if the
        treatment probability is unknown.
        """
        columns = self.columns(feature)
        changing = np.flatnonzero(columns.any(axis=0))
        if not changing.size:
            return 0.0, 1.0
        sums = self.of_units(columns[:, changing])
        reached = sums.sum(axis=0) / np.maximum(np.sqrt((sums**2).sum(axis=0)), 1e-300)
        p_values = self._p_values_of(reached)
        best = int(np.argmin(p_values))
        seen = compared_parts(self.table, feature)[changing[best]][1]
        size = sums[:, best].sum() / np.sqrt(self._even @ seen * self._even.sum())
        return float(size), min(float(p_values[best]) * p_values.size, 1.0)

    def scores(self, columns: Array) -> Array:
        """Standardised sums, by the larger of the observed and the theoretical variance."""
        sums = self.of_units(columns)
        drawn = treated_as_one(self.treatment, self.clusters)
        chance = self.weights.values * np.sqrt(self.chances * (1.0 - self.chances))
        implied = drawn.sums(chance[:, None] * columns)
        variance = np.maximum((sums**2).sum(axis=0), (implied**2).sum(axis=0))
        return np.asarray(sums.sum(axis=0) / np.sqrt(np.maximum(variance, 1e-300)))

    def p_values(self, columns: Array) -> Array:
        """P-values of the sums, one for each column."""
        return self._p_values_of(self.scores(columns))

    def _p_values_of(self, scores: Array) -> Array:
        return np.asarray(2.0 * student_t.sf(np.abs(scores), max(self.clusters.freedom, 1.0)))

    def p_value(self, feature: int) -> float:
        """P-value of no difference between the arms in a column, by its most significant transform."""
        p_values = self.p_values(self.columns(feature))
        return min(float(p_values.min()) * p_values.size, 1.0)

    def p_value_of_all(self, columns: Array) -> float:
        """P-value of no difference between the arms in any of several columns, by the smallest p-value and jointly."""
        alone = self.p_values(columns)
        return min(float(alone.min()) * alone.size, self._p_value_together(columns), 1.0)

    def _p_value_together(self, columns: Array) -> float:
        """Joint p-value of the sum of squared scores, by a chi-squared distribution scaled to its mean and variance."""
        sums, scores = self.of_units(columns), self.scores(columns)
        spread = np.sqrt((sums**2).sum(axis=0))
        sums = sums / np.where(spread > 0, spread, 1.0)
        squared = float(((sums.T @ sums) ** 2).sum())
        scale = squared / scores.size
        return float(chi2.sf(scores @ scores / scale, scores.size / scale))

    def as_cause(self, others: Array, differing: Array) -> tuple[float, float]:
        """Scores of the other columns along a differing one: expected if it causes treatment, and observed.

        What is related to a cause of the treatment differs between the arms as well, in proportion; what is related to
        an effect of a randomised treatment does not.
        """
        weights, within = self.weights.values, self._within_arms(differing)
        gram = others.T @ (weights[:, None] * others)
        penalty = RIDGE * np.trace(gram) / len(gram)
        said = others @ np.linalg.solve(gram + penalty * np.eye(len(gram)), others.T @ (weights * within))
        unexplained = 1.0 - np.corrcoef(said, within)[0, 1] ** 2
        shared = 1.0 - unexplained * (said.size - 1) / max(said.size - others.shape[1] - 1, 1)
        score, other = self.scores(np.column_stack([differing, said]))
        return float(np.sqrt(max(shared, 0.0)) * abs(score)), float(other * np.sign(score))

    def _within_arms(self, column: Array) -> Array:
        within = column.copy()
        for rows in (self.treatment == 0, self.treatment == 1):
            within[rows] -= self.weights[rows].mean(column[rows])
        return within


def compared_parts(table: FeatureTable, feature: int) -> list[tuple[Array, Bools]]:
    """Numbers to compare between the arms, and the rows that have them."""
    column, n_levels = table.values[:, feature], table.n_levels(feature)
    every = np.ones(column.size, dtype=bool)
    if n_levels:
        levels = range(1, n_levels) if n_levels == 2 else range(n_levels)
        return [((column == level).astype(np.float64), every) for level in levels]
    seen = ~np.isnan(column)
    ranks = np.zeros(column.size)
    if seen.any():
        ranks[seen] = (rankdata(column[seen]) - 0.5) / seen.sum() - 0.5
    parts = [(ranks, seen), (np.abs(ranks), seen)]
    return parts if seen.all() else [*parts, ((~seen).astype(np.float64), every)]


def refuse_after_treatment(
    block: Block, features: Collection[str], known: Collection[str], chances: Array | None, *, declared: bool
) -> None:
    """Refuse columns in which the arms of a randomised treatment differ by more than chance.

    For a table in pieces only the rows of the sample are examined.

    Parameters
    ----------
    block : Block
        Rows.
    features : collection of str
        Columns that may have been measured after the treatment.
    known : collection of str
        Those of them that the user has named as features or for adjustment, and that are therefore not refused.
    chances : array of shape (n,), optional
        Chance of every row to be treated; by default the share of treated rows.
    declared : bool
        Whether the treatment is known to be randomised. Otherwise it is taken as randomised where other columns, at
        least three and twice as many as differ, do not tell the arms apart, although some of them are related to those
        that differ. Without such relations a cause of the treatment looks the same as what it has changed, and a single
        column beside five others is refused.

    Raises
    ------
    ValueError
        Names the columns, and how to say what they are.
    """
    if chances is None:
        chances = np.full(block.y.size, block.weights.mean(block.treatment.astype(np.float64)))
    table = block.table
    sums = ArmSums(table, block.treatment, chances, block.weights, block.clusters)
    seen = [m for m, name in enumerate(table.names) if name in features and _can_differ(table, m)]
    p_values = {m: sums.p_value(m) for m in seen}
    differing = [m for m in seen if p_values[m] < MAX_CHANCE / len(seen)]
    refused = [m for m in differing if table.names[m] not in known]
    if not refused:
        return
    others = [m for m in seen if m not in differing]
    if not declared and not _show_randomisation(sums, others, differing):
        return
    columns, p_value = named([table.names[m] for m in refused]), min(p_values[m] for m in refused)
    verb = "differ" if len(refused) > 1 else "differs"
    raise ValueError(f"{columns}: {verb} {_reason(p_value, len(others), declared)}")


def _can_differ(table: FeatureTable, feature: int) -> bool:
    return not table.is_constant(feature) and table.n_levels(feature) <= MAX_COMPARED_LEVELS


def _show_randomisation(sums: ArmSums, others: Sequence[int], differing: Sequence[int]) -> bool:
    """Whether the balanced columns indicate that the treatment was randomised."""
    alike = [m for m in others if sums.p_value(m) >= MIN_ALIKE]
    if len(alike) < max(MIN_OTHERS, 2 * len(differing)) or len(others) > len(alike) + len(differing):
        return False
    columns = sums.columns_of(alike)
    expected, score = max(sums.as_cause(columns, sums.columns(m)[:, 0]) for m in differing)
    if expected < INFORMATIVE:
        enough = len(alike) == len(others) >= ALONE_OTHERS and sums.treatment.size >= ALONE_ROWS
        return enough and len(differing) == 1 and sums.p_value_of_all(columns) >= ALONE_BALANCE
    return sums.p_value_of_all(columns) >= MIN_BALANCE and expected * (expected / 2 - score) >= MIN_EVIDENCE


def _reason(p_value: float, n_others: int, declared: bool) -> str:
    """Message that says why columns are refused, and what to do."""
    apart = f"between the arms (p = {p_value:.1g})"
    remedy = (
        "Adjusting for columns that the treatment has changed hides its effect: leave out of X columns measured after "
        "it, and name those measured before in adjust_for=[...], or in features=[...] to test them"
    )
    if declared:
        return f"{apart}, which is implausible for columns measured before a randomised treatment. {remedy}"
    return (
        f"{apart} and {counted(n_others, 'other column')} do not, as if the treatment were randomised and these "
        f"measured after it. {remedy}; if the treatment was not randomised, say design='observational'"
    )


MAX_BINS = 20
# A stretch is without a counterpart where the other arm has at most this share of the rows that it would have if the
# arms were mixed there as they are in the whole table,
MIN_MIXED_SHARE = 0.05
# and chance is no reason: it would have at least so many rows.
MIN_EXPECTED_ROWS = 12.0
MAX_SHOWN_BINS = 3


@dataclass(frozen=True)
class Outside:
    """Rows of each arm, control first, in regions where the other arm has hardly any.

    Attributes
    ----------
    share : float
        The larger share of an arm that these rows are, counted by their weights.
    where : str
        Which rows they are; empty where there are none.
    """

    share: float
    where: str


def rows_without_counterpart(rows: Array) -> Bools:
    """Bins of each arm whose rows lack a counterpart, from control and treated rows by bin, shape (2, k).

    Examples
    --------
    >>> rows_without_counterpart(np.array([[50.0, 40.0, 0.0], [50.0, 0.0, 3.0]]))
    array([[False,  True, False],
           [False, False, False]])
    """
    totals = np.maximum(rows.sum(axis=1, keepdims=True), 1.0)
    expected = rows * totals[::-1] / totals
    return np.asarray((expected >= MIN_EXPECTED_ROWS) & (rows[::-1] <= MIN_MIXED_SHARE * expected))


def count_by_arm(bins: NDArray[np.intp], arms: Ints, n_bins: int, clusters: Clusters | None = None) -> Array:
    """Control and treated rows by bin, shape (2, k); numbers of clusters if whole clusters were treated.

    Examples
    --------
    >>> bins, arms = np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0])
    >>> count_by_arm(bins, arms, 2).tolist(), count_by_arm(bins, arms, 2, Clusters.of([4, 4, 7, 7])).tolist()
    ([[1.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    clusters = Clusters.of(clusters, arms.size)
    if not clusters.of_rows:
        first = np.unique(np.column_stack((bins, clusters.codes)), axis=0, return_index=True)[1]
        bins, arms = bins[first], arms[first]
    return np.stack([np.bincount(bins[arms == arm], minlength=n_bins) for arm in (0, 1)]).astype(np.float64)


def outside_along(
    table: FeatureTable,
    feature: int,
    arms: Ints,
    weights: Array,
    clusters: Clusters | None = None,
) -> Outside:
    """Rows without a counterpart along one feature.

    Parameters
    ----------
    table : FeatureTable
        Features.
    feature : int
        Position of the feature.
    arms : array of shape (n,)
        0 or 1.
    weights : array of shape (n,)
        How much a row counts in the share.
    clusters : Clusters, optional
        Rows that were treated as one: they are in one arm by a single chance.
    """
    bins, edges = feature_bins(table, feature)
    n_bins = int(bins.max()) + 1
    rows = count_by_arm(bins, arms, n_bins)
    alone = rows_without_counterpart(count_by_arm(bins, arms, n_bins, clusters))
    if not alone.any():
        return Outside(0.0, "")
    mass = np.stack([np.bincount(bins[arms == arm], weights[arms == arm], minlength=n_bins) for arm in (0, 1)])
    shares = (mass * alone).sum(axis=1) / mass.sum(axis=1)
    sentences = []
    for arm in np.argsort(-shares, kind="stable"):
        if alone[arm].any():
            count, total = (rows[arm] * alone[arm]).sum(), rows[arm].sum()
            name = ("control", "treated")[arm]
            sentences.append(f"{count:,.0f} of {total:,.0f} {name} rows ({_place(table, feature, alone[arm], edges)})")
    return Outside(float(shares.max()), " and ".join(sentences))


def outside_levels(table: FeatureTable, arms: Ints, clusters: Clusters) -> dict[str, Outside]:
    """Rows without a counterpart in categorical columns, by column name, where there are any.

    Call this before rare levels are pooled: a level that one arm lacks is rare, however many rows the other arm has.
    """
    levels = [m for m in range(table.n_features) if table.n_levels(m)]
    outside_of = {table.names[m]: outside_along(table, m, arms, np.ones(arms.size), clusters) for m in levels}
    return {name: outside for name, outside in outside_of.items() if outside.share > 0}


def feature_bins(table: FeatureTable, feature: int, most: int = MAX_BINS) -> tuple[NDArray[np.intp], Array]:
    """Bin of each row: its level, or one of several bins of about equal size; missing values come last.

    Returns
    -------
    bins : int array of shape (n,)
    edges : array
        Upper ends of all bins of a continuous feature but the last; empty for levels.
    """
    column = table.values[:, feature]
    if table.n_levels(feature):
        return column.astype(np.intp), np.empty(0)
    seen = ~np.isnan(column)
    edges = np.unique(np.quantile(column[seen], np.linspace(0.0, 1.0, most + 1)[1:-1])) if seen.any() else np.empty(0)
    bins = np.full(column.size, edges.size + 1)
    bins[seen] = np.searchsorted(edges, column[seen], side="left")
    return bins, edges


def _place(table: FeatureTable, feature: int, alone: Bools, edges: Array) -> str:
    """Description of the bins in words."""
    name, labels, alone_bins = table.names[feature], table.categories[feature], np.flatnonzero(alone)
    if labels is not None:
        shown = ", ".join(str(labels[k]) for k in alone_bins[:MAX_SHOWN_BINS])
        more = alone_bins.size - MAX_SHOWN_BINS
        return f"{name} is {shown}" + f" or {more} more" * (more > 0)
    stretches = []
    top = int(np.searchsorted(edges, np.nanmax(table.values[:, feature]), side="left"))
    apart = (np.diff(alone_bins) > 1) | (
        alone_bins[1:] > edges.size
    )  # missing values have a bin of their own, the last
    for run in np.split(alone_bins, np.flatnonzero(apart) + 1):
        first, last = int(run[0]), int(run[-1])
        if first > edges.size:
            stretches.append(f"{name} is missing")
        elif first == 0:
            stretches.append(f"{name} up to {edges[min(last, edges.size - 1)]:.4g}")
        elif last == top:
            stretches.append(f"{name} above {edges[first - 1]:.4g}")
        else:
            stretches.append(f"{name} between {edges[first - 1]:.4g} and {edges[last]:.4g}")
    return ", ".join(stretches[:MAX_SHOWN_BINS])

"""Features determined by others or by clusters, and features that determine the treatment or the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr
from scipy.stats import binom, rankdata

from modifind._typing import Array, Ints
from modifind.data.clusters import MIN_CLUSTERS, Clusters, first_seen, is_within, numbered
from modifind.data.features import FeatureTable
from modifind.data.words import MAX_SHOWN, refuse_any, warn_of_any

SAME_RANKS = 0.999
ROWS_PER_VALUE = 5  # with fewer rows per distinct value a relabelling says nothing
EXACT = 1e-6  # share of a column's spread that others leave; float32 columns are not exact beyond
MAX_NUMERIC_COLUMNS = 1000
BLOCK_ROWS = 16_384
PROBE_ROWS = 1000


@dataclass(frozen=True)
class DeterminedFeatures:
    """Features that the data cannot distinguish from others.

    Attributes
    ----------
    twins : tuple of tuples of int
        Features that say the same as each other.
    combinations : tuple of tuples of int
        A feature, then those that it is a linear combination of.
    """

    names: tuple[str, ...]
    twins: tuple[tuple[int, ...], ...]
    combinations: tuple[tuple[int, ...], ...]

    @property
    def features(self) -> frozenset[int]:
        """All features in these sets; each is determined by the others in its set."""
        return frozenset(m for some in (*self.twins, *self.combinations) for m in some)

    @property
    def followers(self) -> frozenset[int]:
        """Redundant features: all but one of each set of copies, and linear combinations of others."""
        return frozenset(m for some in self.twins for m in some[1:]) | {combined for combined, *_ in self.combinations}

    def apart(self, groups: Sequence[tuple[int, ...]]) -> DeterminedFeatures:
        """The same without sets inside one group, whose columns need not be distinguished."""
        sets = [frozenset(group) for group in groups]

        def kept(some: tuple[int, ...]) -> bool:
            return not any(frozenset(some) <= group for group in sets)

        return replace(self, twins=tuple(filter(kept, self.twins)), combinations=tuple(filter(kept, self.combinations)))

    def warn(self) -> None:
        """Issue one warning for copies and one for linear combinations."""
        advice = (
            "{}. The data cannot tell these features apart, so their p-values are set to 1; leave out one of each set"
        )
        twins = [self._named(some, " = ") for some in self.twins]
        warn_of_any(twins, f"identical, or nearly so, up to relabelling or units: {advice}", between="; ")
        combinations = [f"{self.names[combined]} of {self._named(others)}" for combined, *others in self.combinations]
        warn_of_any(combinations, f"exact linear combinations: {advice}", between="; ")

    def _named(self, features: Sequence[int], between: str = ", ") -> str:
        more = [f"{len(features) - MAX_SHOWN} more"] * (len(features) > MAX_SHOWN)
        return between.join([*(self.names[m] for m in features[:MAX_SHOWN]), *more])


def find_determined(table: FeatureTable) -> DeterminedFeatures:
    """Find features that are copies or exact linear combinations of others.

    Continuous features are copies if their ranks agree (Spearman correlation above 0.999): the same quantity in other
    units, or its logarithm. A discrete feature, or one with few distinct values, is a copy if it is a relabelling of
    the other. Two continuous ones are not: they may be measured once for all rows of a cluster. In linear combinations
    discrete features enter by their numbers, those with two levels as 0 and 1.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> columns = {"a": x[:, 0], "b": x[:, 1], "exp_a": np.exp(x[:, 0]), "c": x[:, 2], "mean": x[:, 1:].mean(axis=1)}
    >>> found = find_determined(read_features(columns))
    >>> found.twins, found.combinations
    (((0, 2),), ((4, 1, 3),))
    """
    changing = [m for m in range(table.n_features) if not table.is_constant(m)]
    twins = _copies(table, changing)
    repeated = {m for some in twins for m in some[1:]}
    columns = {m: _numeric(table, m) for m in changing if m not in repeated}
    numeric = {m: column for m, column in columns.items() if column is not None}
    combinations = _combinations(numeric) if len(numeric) < min(table.n_rows - 1, MAX_NUMERIC_COLUMNS) else ()
    return DeterminedFeatures(table.names, twins, combinations)


def _copies(table: FeatureTable, changing: list[int]) -> tuple[tuple[int, ...], ...]:
    """Sets of features that are copies of each other."""
    leader = {m: m for m in changing}

    def join(first: int, second: int) -> None:
        one, other = sorted((leader[first], leader[second]))
        for m in leader:
            leader[m] = one if leader[m] == other else leader[m]

    for first, second in (*_relabelled(table, changing), *_same_ranks(table, changing)):
        join(first, second)
    sets: dict[int, list[int]] = {}
    for m, first in leader.items():
        sets.setdefault(first, []).append(m)
    return tuple(tuple(some) for some in sets.values() if len(some) > 1)


def _relabelled(table: FeatureTable, changing: list[int]) -> Iterator[tuple[int, int]]:
    """Sets of features, at least one discrete, with the same values up to relabelling."""
    seen: dict[bytes, int] = {}
    for m in sorted(changing, key=lambda m: not table.n_levels(m)):
        if (codes := repeated_values(table, m)) is not None:
            other = seen.setdefault(codes.tobytes(), m)
            if table.n_levels(other):
                yield other, m


def _same_ranks(table: FeatureTable, changing: list[int]) -> Iterator[tuple[int, int]]:
    """Sets of continuous features whose ranks agree."""
    plain = [m for m in changing if not table.n_levels(m)]
    ranks = rankdata(np.nan_to_num(table.values[:, plain], nan=-np.inf), axis=0)
    ranks -= ranks.mean(axis=0)
    ranks /= np.sqrt((ranks**2).sum(axis=0))
    for one, other in np.argwhere(np.triu(np.abs(ranks.T @ ranks) > SAME_RANKS, 1)):
        if _agree_outside_ties(table.values[:, plain[one]], table.values[:, plain[other]]):
            yield plain[one], plain[other]


def _agree_outside_ties(first: Array, second: Array) -> bool:
    """Whether ranks also agree outside the rows where both columns are missing or at their most frequent value."""
    usual = np.ones(first.size, dtype=bool)
    for column in (first, second):
        distinct, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
        usual &= codes.reshape(-1) == (distinct.size - 1 if np.isnan(distinct[-1]) else int(counts.argmax()))
    ranks = rankdata(np.nan_to_num(np.column_stack((first, second))[~usual], nan=-np.inf), axis=0)
    if not usual.any() or (ranks == ranks[0]).all(axis=0).any():
        return True
    return bool(np.abs(np.corrcoef(ranks.T)[0, 1]) > SAME_RANKS)


def repeated_values(table: FeatureTable, feature: int) -> NDArray[np.int32] | None:
    """The values of a feature coded by `first_seen`; None if few rows share a value."""
    if np.unique(table.values[:PROBE_ROWS, feature]).size * ROWS_PER_VALUE > min(table.n_rows, PROBE_ROWS):
        return None
    codes = first_seen(table.values[:, feature])
    counts = np.bincount(codes)
    others = codes.size - counts.max()  # rows beside the most frequent value, or beside missing values
    return codes if counts.size == 2 or (counts.size - 1) * ROWS_PER_VALUE <= others else None


def _numeric(table: FeatureTable, feature: int) -> Array | None:
    """A standardised numeric column; None if a feature has no numbers."""
    labels = table.categories[feature]
    column = table.values[:, feature]
    if labels is not None and len(labels) > 2:
        if not all(isinstance(label, int | float) for label in labels):
            return None
        column = np.array(labels, dtype=np.float64)[column.astype(np.int64)]
    if np.isnan(column).any():
        return None
    spread = column.std()
    return None if spread == 0 else (column - column.mean()) / spread


def _combinations(columns: dict[int, Array]) -> tuple[tuple[int, ...], ...]:
    """Columns that are linear combinations of earlier ones, with the columns involved."""
    if len(columns) < 3:
        return ()
    features, triangle = list(columns), _triangular_factor(list(columns.values()))
    size = np.sqrt((triangle**2).sum(axis=0))
    if (np.abs(np.diag(triangle)) > EXACT * size).all():
        return ()
    kept: list[int] = []
    combinations = []
    room = np.empty(triangle.shape)
    for k in range(len(features)):
        column, basis = triangle[:, k], room[:, : len(kept)]
        left = column - basis @ (basis.T @ column)
        left -= basis @ (basis.T @ left)
        length = float(np.sqrt(left @ left))
        if length > EXACT * size[k]:
            room[:, len(kept)] = left / length
            kept.append(k)
            continue
        shares = lstsq(triangle[:, kept], column)[0]
        parts = [features[j] for j, share in zip(kept, shares, strict=True) if abs(share) > 100 * EXACT]
        combinations.append((features[k], *parts))
    return tuple(combinations)


def _triangular_factor(columns: list[Array]) -> Array:
    """Triangular (QR) factor of the matrix of these columns, computed in blocks of rows."""
    triangle = np.empty((0, len(columns)))
    for start in range(0, columns[0].size, BLOCK_ROWS):
        block = np.column_stack([column[start : start + BLOCK_ROWS] for column in columns])
        triangle = qr(np.concatenate((triangle, block)), mode="r")[0][: len(columns)]
    return triangle


MAX_ARM_CHANGES = 4  # of the arm from one value to the next, so few that chance
MAX_LEAK_CHANCE = 1e-4  # gives them no more often than this


def refuse_leaks(table: FeatureTable, y: Array, arms: Ints, clusters: Clusters | None = None) -> None:
    """Refuse features that determine the treatment or are the outcome in another form.

    Parameters
    ----------
    table : FeatureTable
        Features, before rare levels are pooled.
    y : array of shape (n,)
        Outcome.
    arms : array of shape (n,)
        0 or 1 for every row.
    clusters : Clusters, optional
        Which rows belong together. Where whole clusters are treated, what all rows of a cluster share counts once.

    Raises
    ------
    ValueError
        Names every such feature.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> arms = np.arange(60) % 2
    >>> refuse_leaks(read_features({"dose": [0.0, 5.5] * 30, "age": range(60)}), np.sin(np.arange(60)), arms)
    Traceback (most recent call last):
    ...
    ValueError: dose: determines the treatment, ...
    """
    outcome, together = numbered(y), Clusters.of(clusters, arms.size)
    treatment, copies = [], []
    for m, name in enumerate(table.names):
        ranks = numbered(table.values[:, m])
        if ranks.max() == 0:
            continue
        if _determines(*_once_per_cluster(ranks, arms, together)):
            treatment.append(name)
        elif _is_copy(ranks, outcome):
            copies.append(name)
    refuse_any(
        treatment,
        "{}: determines the treatment, so that no value of it occurs in both arms and the arms cannot be compared (no "
        "positivity); exclude it, unless it is meant to be the treatment"
        + ". Where whole clusters of rows were treated, say so with clusters="
        * together.of_rows,
    )
    refuse_any(
        copies,
        "{}: the outcome itself in other units or with other labels; exclude columns measured after the treatment",
    )


def _once_per_cluster(ranks: Ints, arms: Ints, clusters: Clusters) -> tuple[Ints, Ints]:
    """Both columns with one row per cluster, if both are constant within clusters."""
    if clusters.of_rows or not (is_within(ranks, clusters.codes) and is_within(arms, clusters.codes)):
        return ranks, arms
    first = np.unique(clusters.codes, return_index=True)[1]
    return numbered(ranks[first]), arms[first]


def _determines(ranks: Ints, arms: Ints) -> bool:
    """Whether no value occurs in both arms, for few distinct values or when the arms occupy a few intervals."""
    n_values = int(ranks.max()) + 1
    rows = np.bincount(ranks)
    treated = np.bincount(ranks, weights=arms, minlength=n_values)
    if ((treated > 0) & (treated < rows)).any():
        return False
    if n_values * ROWS_PER_VALUE <= ranks.size:
        return True
    changes, share = int((np.diff(treated > 0) != 0).sum()), float((treated > 0).mean())
    return changes <= MAX_ARM_CHANGES and binom.cdf(changes, n_values - 1, 2 * share * (1 - share)) < MAX_LEAK_CHANCE


def _is_copy(ranks: Ints, outcome: Ints) -> bool:
    """Whether a feature is a strictly monotone function of the outcome, or a relabelling with few values."""
    n_values = int(outcome.max()) + 1
    if int(ranks.max()) + 1 != n_values:
        return False
    if (ranks == outcome).all() or (ranks == n_values - 1 - outcome).all():
        return True
    few = n_values * ROWS_PER_VALUE <= ranks.size
    return few and np.unique(ranks * n_values + outcome).size == n_values


MIN_LEVEL_CLUSTERS = 5  # of each level of a discrete feature
# Two columns tell of the same sets of rows where their pairs of values are hardly more than the values of either.
MAX_JOINT_RATIO = 1.25
MIN_VALUE_RATIO = 0.6
MAX_PAIRED_COLUMNS = 40  # whose pairs are looked at


def cluster_features(
    table: FeatureTable, clusters: Ints | None, determined: frozenset[int]
) -> tuple[dict[int, Ints], Ints | None]:
    """Features that are constant within clusters, with these clusters, and the clusters assumed for the rows.

    Two continuous columns whose values change together also reveal sets of rows: schools, for instance, each have a
    size and a share of girls. Such sets are used if no `clusters` are given, or if they consist of whole clusters: a
    feature of districts is observed once per district, not per village. Every feature is assigned to the largest sets,
    a warning names those that were not declared, and rows are taken to belong to the largest of all, because models
    that have seen a district know its effect. Columns in `determined`, which others determine, reveal nothing;
    categories with many levels and few clusters each are left out.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> schools, rng = np.repeat(np.arange(30), 8), np.random.default_rng(0)
    >>> size, girls = (rng.normal(size=30)[schools] for _ in range(2))
    >>> table = read_features({"size": size, "girls": girls, "age": rng.normal(size=240)})
    >>> sorted(cluster_features(table, schools, frozenset())[0])
    [0, 1]
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     sets, clusters = cluster_features(table, None, frozenset())
    >>> sorted(sets), int(clusters.max()) + 1, str(warned[0].message)[:58]
    ([0, 1], 30, 'size, girls: constant within the same 30 sets of rows. Eit')
    """
    partitions = [sets for sets in _shared_sets(table, determined) if sets.max() + 1 >= MIN_CLUSTERS]
    if clusters is not None:
        known = numbered(clusters)
        partitions = [known, *(sets for sets in partitions if sets.max() < known.max() and is_within(sets, known))]
    largest_last = sorted(partitions, key=lambda sets: -int(sets.max()))
    sets_of = {m: sets for sets in largest_last for m in _within(table, sets)}
    for sets in partitions[clusters is not None :]:
        warn_of_any(
            [table.names[m] for m, taken in sets_of.items() if taken is sets],
            f"{{}}: constant within the same {sets.max() + 1} sets of rows. Either these rows belong together (to a "
            "school, a village), or one column is derived from another. The sets are used as clusters. If they are "
            "real, pass them as clusters=; if a column is derived from another, leave it out",
            most=table.n_features,
        )
    return sets_of, largest_last[-1] if partitions else None


def _shared_sets(table: FeatureTable, determined: frozenset[int]) -> list[Ints]:
    """Sets of rows revealed by two or more continuous columns."""
    codes: dict[int, Ints] = {}
    for m in range(table.n_features):
        if not table.n_levels(m) and m not in determined and m not in table.incomplete and not table.is_constant(m):
            values_of = repeated_values(table, m)
            if values_of is not None and len(codes) < MAX_PAIRED_COLUMNS:
                codes[m] = values_of.astype(np.int64)
    joined: list[tuple[set[int], Ints]] = []
    for one, other in combinations(codes, 2):
        values = sorted(int(codes[m].max()) + 1 for m in (one, other))
        if values[0] < MIN_VALUE_RATIO * values[1]:
            continue
        both = _joint_codes(codes[one], codes[other])
        if both.max() + 1 > MAX_JOINT_RATIO * values[1]:
            continue
        for k, (members, sets) in enumerate(joined):
            if members & {one, other} and _joint_codes(sets, both).max() + 1 <= MAX_JOINT_RATIO * (sets.max() + 1):
                joined[k] = (members | {one, other}, _joint_codes(sets, both))
                break
        else:
            joined.append(({one, other}, both))
    return [sets for _, sets in joined]


def _joint_codes(one: Ints, other: Ints) -> Ints:
    """Codes of rows that agree in both columns."""
    return first_seen(one * (int(other.max()) + 1) + other).astype(np.int64)


def _within(table: FeatureTable, clusters: Ints) -> list[int]:
    """Features that are constant within each cluster."""
    first = np.unique(clusters, return_index=True)[1]
    constant = []
    for m in range(table.n_features):
        column = table.values[:, m]
        left_out = m in table.level_columns or m in table.incomplete or table.is_constant(m)
        if left_out or not is_within(column, clusters):
            continue
        counts = np.bincount(column[first].astype(np.intp)) if table.n_levels(m) else np.array([first.size])
        if counts[counts > 0].min() >= MIN_LEVEL_CLUSTERS:
            constant.append(m)
    return constant

"""Features that others determine exactly: the same column twice, or a linear combination of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr
from scipy.stats import rankdata

from modifind._typing import Array
from modifind.data.clusters import first_seen
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import MAX_SHOWN, warn_of_any

SAME_RANKS = 0.999
ROWS_PER_VALUE = 5  # with fewer rows per distinct value a relabelling says nothing
EXACT = 1e-6  # share of a column's spread that others leave; float32 columns are not exact beyond
MAX_NUMERIC_COLUMNS = 1000
BLOCK_ROWS = 16_384
PROBE_ROWS = 1000


@dataclass(frozen=True)
class DeterminedFeatures:
    """Features that the data cannot tell from others.

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
        """All features in these sets; each follows from the others of its set."""
        return frozenset(m for some in (*self.twins, *self.combinations) for m in some)

    @property
    def followers(self) -> frozenset[int]:
        """Redundant features: all of a set of copies but one, and linear combinations of others."""
        return frozenset(m for some in self.twins for m in some[1:]) | {combined for combined, *_ in self.combinations}

    def apart(self, groups: Sequence[tuple[int, ...]]) -> DeterminedFeatures:
        """The same without sets that lie within one group, whose columns need not be told apart."""
        sets = [frozenset(group) for group in groups]

        def kept(some: tuple[int, ...]) -> bool:
            return not any(frozenset(some) <= group for group in sets)

        return replace(self, twins=tuple(filter(kept, self.twins)), combinations=tuple(filter(kept, self.combinations)))

    def warn(self) -> None:
        """One warning for columns that say the same, one for linear combinations."""
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

    Continuous features are copies where their ranks agree (Spearman correlation above 0.999): the same thing in other
    units, or its logarithm. A discrete feature and one with few distinct values are copies where one is a relabelling
    of the other. Two continuous ones are not: they may be measured once for all rows of a cluster. For linear
    combinations discrete features count by their numbers, those with two levels as 0 and 1.

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
    twins = _twins(table, changing)
    repeated = {m for some in twins for m in some[1:]}
    columns = {m: _numeric(table, m) for m in changing if m not in repeated}
    numeric = {m: column for m, column in columns.items() if column is not None}
    combinations = _combinations(numeric) if len(numeric) < min(table.n_rows - 1, MAX_NUMERIC_COLUMNS) else ()
    return DeterminedFeatures(table.names, twins, combinations)


def _twins(table: FeatureTable, changing: list[int]) -> tuple[tuple[int, ...], ...]:
    """Sets of features that say the same."""
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
    """Discrete features and others that have the same values but for their labels."""
    seen: dict[bytes, int] = {}
    for m in sorted(changing, key=lambda m: not table.n_levels(m)):
        if (codes := repeated_values(table, m)) is not None:
            other = seen.setdefault(codes.tobytes(), m)
            if table.n_levels(other):
                yield other, m


def _same_ranks(table: FeatureTable, changing: list[int]) -> Iterator[tuple[int, int]]:
    """Continuous features whose ranks agree."""
    plain = [m for m in changing if not table.n_levels(m)]
    ranks = rankdata(np.nan_to_num(table.values[:, plain], nan=-np.inf), axis=0)
    ranks -= ranks.mean(axis=0)
    ranks /= np.sqrt((ranks**2).sum(axis=0))
    for one, other in np.argwhere(np.triu(np.abs(ranks.T @ ranks) > SAME_RANKS, 1)):
        if _agree_elsewhere(table.values[:, plain[one]], table.values[:, plain[other]]):
            yield plain[one], plain[other]


def _agree_elsewhere(first: Array, second: Array) -> bool:
    """Whether ranks agree beside the rows in which both columns are missing, or have their most frequent value."""
    usual = np.ones(first.size, dtype=bool)
    for column in (first, second):
        distinct, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
        usual &= codes.reshape(-1) == (distinct.size - 1 if np.isnan(distinct[-1]) else int(counts.argmax()))
    ranks = rankdata(np.nan_to_num(np.column_stack((first, second))[~usual], nan=-np.inf), axis=0)
    if not usual.any() or (ranks == ranks[0]).all(axis=0).any():
        return True
    return bool(np.abs(np.corrcoef(ranks.T)[0, 1]) > SAME_RANKS)


def repeated_values(table: FeatureTable, feature: int) -> NDArray[np.int32] | None:
    """The values of a feature numbered by `first_seen`, None where few rows share one."""
    if np.unique(table.values[:PROBE_ROWS, feature]).size * ROWS_PER_VALUE > min(table.n_rows, PROBE_ROWS):
        return None
    codes = first_seen(table.values[:, feature])
    counts = np.bincount(codes)
    others = codes.size - counts.max()  # rows beside the most frequent value, or beside missing values
    return codes if counts.size == 2 or (counts.size - 1) * ROWS_PER_VALUE <= others else None


def _numeric(table: FeatureTable, feature: int) -> Array | None:
    """A standardised column of numbers, None where a feature has no numbers."""
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
    """Columns that follow linearly from those before them, with the columns that have a part in it."""
    if len(columns) < 3:
        return ()
    features, triangle = list(columns), _triangle(list(columns.values()))
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


def _triangle(columns: list[Array]) -> Array:
    """The triangular factor of the matrix of these columns, from blocks of rows."""
    triangle = np.empty((0, len(columns)))
    for start in range(0, columns[0].size, BLOCK_ROWS):
        block = np.column_stack([column[start : start + BLOCK_ROWS] for column in columns])
        triangle = qr(np.concatenate((triangle, block)), mode="r")[0][: len(columns)]
    return triangle

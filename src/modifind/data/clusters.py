"""Clusters and strata of rows, and the assignment of rows to sample and folds.

For a long table, sample and folds are a function of the seed and the row number: they need not be stored or sent, and
are the same in every process and however the table is divided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array, Bools, Ints
from modifind._warned import warn
from modifind.data.features import FeatureTable
from modifind.data.levels import MIN_LEVEL_ROWS
from modifind.data.words import counted, gaps, shortened

MIN_CLUSTERS = 10
FEW_CLUSTERS = 40
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)  # without exponents: 12e45 is more often part of a hash


@dataclass(frozen=True, eq=False)
class Clusters:
    """Cluster membership as one code per row; if rows are independent, each is its own cluster.

    Attributes
    ----------
    codes : int array of shape (n,)
        Cluster of each row, 0, 1, ... without gaps.
    of_rows : bool
        Whether each row is its own cluster.

    Examples
    --------
    >>> clusters = Clusters.of(np.array([4, 7, 4]))
    >>> clusters.codes, clusters.count, clusters[1:].codes
    (array([0, 1, 0]), 2, array([1, 0]))
    """

    codes: Ints
    of_rows: bool

    @classmethod
    def rows(cls, n_rows: int) -> Clusters:
        """Clusters of one row each."""
        return cls(np.arange(n_rows), of_rows=True)

    @classmethod
    def of(cls, codes: Clusters | Ints | None, n_rows: int = 0) -> Clusters:
        """Make clusters from one code per row, or from None for `n_rows` independent rows."""
        if isinstance(codes, Clusters):
            return codes
        if codes is None:
            return cls.rows(n_rows)
        return cls(numbered(np.asarray(codes)), of_rows=False)

    def __getitem__(self, rows: Any) -> Clusters:
        """Clusters of a subset of the rows."""
        chosen = self.codes[rows]
        return Clusters.rows(chosen.size) if self.of_rows else Clusters.of(chosen)

    @cached_property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.codes.max(initial=-1)) + 1

    @property
    def freedom(self) -> float:
        """Degrees of freedom of a variance between clusters; infinite for rows."""
        return np.inf if self.of_rows else self.count - 1.0

    @property
    def given(self) -> Ints | None:
        """The codes, or None if rows are independent."""
        return None if self.of_rows else self.codes

    def sums(self, terms: Array) -> Array:
        """Sum terms of rows, shape (n, k), within clusters, shape (count, k)."""
        return terms if self.of_rows else unit_sums(terms, self.codes)


def numbered(values: NDArray[Any]) -> Ints:
    """Rank of each value among the distinct ones.

    Examples
    --------
    >>> numbered(np.array([7.5, 2.0, 7.5]))
    array([1, 0, 1])
    """
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def first_seen(column: NDArray[Any]) -> NDArray[np.int32]:
    """Values coded by first appearance, so that relabelled columns become equal."""
    _, first, codes = np.unique(column, return_index=True, return_inverse=True)
    ranks = np.empty(first.size, dtype=np.int32)
    ranks[np.argsort(first)] = np.arange(first.size)
    return ranks[codes.reshape(-1)]


def joint_codes(first: Ints, second: Ints) -> Ints:
    """Codes of the distinct pairs of two columns of codes."""
    return numbered(first * (int(second.max()) + 1) + second)


def tied_pairs(codes: Ints) -> float:
    """Pairs of rows that share a code, codes being 0, 1, ..."""
    counts = np.bincount(codes).astype(np.float64)
    return float((counts * (counts - 1.0)).sum() / 2.0)


def unit_sums(terms: Array, codes: Ints, n_units: int = 0) -> Array:
    """Sum terms of rows, shape (n, k), within units, shape (units, k)."""
    return np.stack([np.bincount(codes, column, minlength=n_units) for column in terms.T], axis=1)


def refuse_unlabelled(column: pd.Series[Any]) -> None:
    """Refuse rows without a cluster label."""
    if missing := int(column.isna().sum()):
        labels = counted(missing, "missing label")
        raise ValueError(f"clusters has {labels}; drop such rows or give each a cluster of its own")


def label_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Labels as text, independent of how a number is stored; None where missing.

    In a text file, 001 is read as a number by pieces in which all labels are numbers, and as text by the others.

    Examples
    --------
    >>> label_texts(pd.Series([3, 3.0, "3", "003", 2**60 + 1, 9.5, "9.50", "1e999", None], dtype=object)).tolist()
    ['3', '3', '3', '3', '1152921504606846977', '9.5', '9.5', '1e999', None]
    """
    try:
        codes, labels = pd.factorize(column)
    except TypeError:  # lists and the like
        codes, labels = pd.factorize(column.map(str, na_action="ignore"))
    texts = [*map(_label_text, labels), None]
    return pd.Series(np.array(texts, dtype=object)[codes], index=column.index, dtype=object)


def _label_text(label: Any) -> str:
    if isinstance(label, str) and NUMBER.fullmatch(label):
        label = int(label) if label.lstrip("+-").isdigit() else float(label)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)


def cluster_keys(column: pd.Series[Any]) -> NDArray[np.uint64]:
    """Integer key of every label, the same in all pieces of a table."""
    refuse_unlabelled(column)
    codes, texts = pd.factorize(label_texts(column))
    return pd.util.hash_array(np.asarray(texts, dtype=object), categorize=False)[codes]


def check_clusters(count: int) -> None:
    """Refuse too few clusters and warn of few: their number is the sample size of a cluster-robust variance."""
    if count < MIN_CLUSTERS:
        raise ValueError(
            f"clusters has {counted(count, 'label')}; variances between clusters need at least {MIN_CLUSTERS}. With "
            "so few, make the cluster a feature and leave clusters out"
        )
    if count < FEW_CLUSTERS:
        warn(
            f"clusters has only {counted(count, 'label')}: p-values rest on the variance between few clusters, and "
            f"power is low; {FEW_CLUSTERS} or more are better",
        )


def is_within(column: NDArray[Any], clusters: Ints) -> bool:
    """Whether a column is constant within every cluster.

    Examples
    --------
    >>> is_within(np.array([5.0, 5.0, 7.0]), np.array([0, 0, 1])), is_within(np.arange(3.0), np.array([0, 0, 1]))
    (True, False)
    """
    values = np.empty(int(clusters.max(initial=-1)) + 1, dtype=column.dtype)
    values[clusters] = column
    return bool((values[clusters] == column).all())


def treated_as_one(arms: Ints, clusters: Clusters) -> Clusters:
    """The clusters if each was treated as a whole; otherwise independent rows."""
    return clusters if clusters.of_rows or is_within(arms, clusters.codes) else Clusters.rows(arms.size)


def cluster_folds(treatment: Ints, clusters: Ints, n_folds: int, seed: int) -> Ints:
    """Fold of each row; clusters stay whole, every fold holds both arms, and folds have about equal size.

    Clusters are taken in descending size, in random order among equals, and each goes to the fold that keeps the arms
    most balanced. There are fewer folds if few clusters have rows of one arm.

    Examples
    --------
    >>> import numpy as np
    >>> clusters = np.repeat(np.arange(20), 5)
    >>> folds = cluster_folds(clusters % 2, clusters, 4, 0)  # whole clusters are treated
    >>> np.sort(np.bincount(folds[clusters % 2 == 1]))
    array([10, 10, 15, 15])
    """
    counts = np.bincount(2 * clusters + treatment, minlength=2 * (int(clusters.max()) + 1)).reshape(-1, 2)
    present = np.flatnonzero(counts.sum(axis=1))
    shares = counts / counts.sum(axis=0)
    order = np.random.default_rng(seed).permutation(present)
    order = order[np.argsort(-shares[order].max(axis=1), kind="stable")]
    max_folds = int((counts > 0).sum(axis=0).min())
    for n in range(min(n_folds, max_folds), 1, -1):
        fold_of = np.zeros(counts.shape[0], dtype=np.int64)
        held: Array = np.zeros((n, 2))
        for cluster in order:
            # The rise of the sum of squares that the cluster would cause in each fold; of equal folds the emptiest.
            fold = fold_of[cluster] = int(np.argmin(held @ (shares[cluster] + 1e-6)))
            held[fold] += shares[cluster]
        if (held > 0).all():
            return fold_of[clusters]
    raise ValueError(
        "clusters: the rows of an arm lie in too few clusters to be cross-fitted; each arm needs rows in two or more"
    )


def assign_cluster_folds(
    sampler: Any,
    treatment: Ints,
    clusters: Ints,
    n_folds: int,
    seed: np.random.SeedSequence,
) -> None:
    """Make a sampler cross-fit its distributions by folds of whole clusters."""
    if not hasattr(sampler, "assign_folds"):
        raise ValueError(
            f"clusters: the sampler {type(sampler).__name__} has no assign_folds(folds), so that its fit is judged "
            "on rows of clusters that it has seen; choose one of 'auto', 'gaussian' and 'boosting'"
        )
    folds = cluster_folds(treatment, clusters, n_folds, int(seed.generate_state(1)[0]))
    sampler.assign_folds(folds, whole_clusters=True)


SHOWN = 3


def refuse_unstratified(missing: int) -> None:
    """Refuse rows with a missing stratum."""
    raise ValueError(f"strata has {gaps(missing, 0)}; drop such rows or give them a stratum of their own")


def refuse_repeated(codes: NDArray[Any], table: FeatureTable) -> None:
    """Refuse strata that repeat one of the features."""
    strata = first_seen(codes)
    for m, name in enumerate(table.names):
        if np.array_equal(strata, first_seen(table.values[:, m])):
            raise ValueError(f"strata has the same content as the feature {name!r}; leave one of the two out")


def check_strata(labels: tuple[Any, ...], control: NDArray[Any], treated: NDArray[Any]) -> None:
    """Refuse a single stratum, and strata with too few rows of an arm."""
    if len(labels) < 2:
        raise ValueError(f"strata has one value only ({labels[0]!r}); leave it out")
    small = np.flatnonzero(np.minimum(treated, control) < MIN_LEVEL_ROWS)
    if small.size:
        shown = shortened([f"{labels[k]!r} ({treated[k]} treated, {control[k]} control)" for k in small], SHOWN)
        raise ValueError(
            f"every stratum needs at least {MIN_LEVEL_ROWS} rows of each arm; too few in {shown}. Merge small "
            "strata or drop their rows."
        )


def stratum_name(names: Iterable[Any]) -> str:
    """Column name of the strata: "stratum", in brackets while a feature has that name."""
    name = "stratum"
    while name in names:
        name = f"({name})"
    return name


def stratum_folds(arms: Ints, strata: Ints, n_folds: int, seed: int) -> Ints:
    """Fold of each row, balanced by arm and by stratum within arm.

    Examples
    --------
    >>> arms, strata = np.tile([0, 1], 20), np.repeat([0, 1], 20)
    >>> folds = stratum_folds(arms, strata, 5, seed=0)
    >>> np.unique(folds * 4 + strata * 2 + arms, return_counts=True)[1]
    array([2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    n_folds = min(n_folds, int(np.bincount(arms).min()))
    folds = np.empty(arms.size, dtype=np.int64)
    shuffled = np.random.default_rng(seed).permutation(arms.size)
    for arm in (0, 1):
        rows = shuffled[arms[shuffled] == arm]
        rows = rows[np.argsort(strata[rows], kind="stable")]
        folds[rows] = np.arange(rows.size) % n_folds
    return folds


Words = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LAST_WORD = 2**64 - 1


@dataclass(frozen=True)
class RowPlan:
    """Sample and folds as functions of the row number.

    Attributes
    ----------
    keys : tuple of int
        Key of the sample, then one for the folds of each repeat of the cross-fitting.
    n_folds : int
        Number of folds.
    limit : int
        Rows whose random word is at most this are in the sample.
    """

    keys: tuple[int, ...]
    n_folds: int
    limit: int = LAST_WORD

    @classmethod
    def of(cls, seed: np.random.SeedSequence, n_folds: int, n_repeats: int) -> RowPlan:
        """Make a plan with keys derived from a seed; the sample is not limited yet."""
        return cls(tuple(int(word) for word in seed.generate_state(1 + n_repeats, np.uint64)), n_folds)

    def words(self, rows: Ints, key: int = 0) -> Words:
        """Random words of numbered rows; the sample consists of the smallest words of key 0."""
        return row_words(rows, self.keys[key])

    def sampled(self, rows: Ints) -> Bools:
        """Whether each row is in the sample."""
        return self.words(rows) <= np.uint64(self.limit)

    def folds(self, rows: Ints) -> list[Ints]:
        """Fold of each row, for every repeat."""
        repeats = range(1, len(self.keys))
        return [(self.words(rows, k) % np.uint64(self.n_folds)).astype(np.int64) for k in repeats]

    def limited(self, limit: int) -> RowPlan:
        """The same plan with a limit on the sample."""
        return replace(self, limit=limit)


def row_words(rows: Ints, key: int) -> Words:
    """A pseudo-random word for every row, determined by its number and the key."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is meant
        word = (rows.astype(np.uint64) + np.uint64(1)) * _GOLDEN + np.uint64(key)
        word = (word ^ (word >> np.uint64(30))) * _FIRST
        word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


def row_uniforms(rows: Ints, keys: tuple[int, ...]) -> NDArray[np.float64]:
    """Pseudo-random numbers between 0 and 1 for every row and key, shape (n, keys).

    Examples
    --------
    >>> whole = row_uniforms(np.arange(1000), (1, 2))
    >>> bool((whole[500:] == row_uniforms(np.arange(500, 1000), (1, 2))).all()), whole.mean(axis=0).round(1).tolist()
    (True, [0.5, 0.5])
    """
    words = np.array([row_words(rows, key) for key in keys], dtype=np.uint64).reshape(len(keys), rows.size)
    return (words.T >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generous_limit(n_rows: int, n_sample: int) -> int:
    """A limit below which almost certainly at least `n_sample` of `n_rows` rows fall, and not many more."""
    share = (n_sample + 6.0 * np.sqrt(n_sample) + 10.0) / n_rows
    return LAST_WORD if share >= 1 else int(share * 2.0**64)

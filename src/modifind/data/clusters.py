"""Rows that count differently, and rows that belong together: sample weights, clusters and folds of whole clusters."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from modifind._typing import Array
from modifind.data.column_types import unfit_kind
from modifind.data.containers import as_column
from modifind.data.feature_matrix import check_length
from modifind.data.wording import counted, gaps

LEAST_CLUSTERS = 10
FEW_CLUSTERS = 40
LARGEST_WEIGHT = 1e100  # squares must not overflow
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)  # without exponents: 12e45 is more often part of a hash


def read_weights(sample_weight: Any, n_rows: int) -> Array:
    """One weight per row as numbers: finite, none negative, not all zero.

    Examples
    --------
    >>> read_weights([1, 2, 0], 3)
    array([1., 2., 0.])
    """
    column = as_column(sample_weight, "sample_weight")
    check_length("sample_weight", len(column), n_rows)
    weights = weight_numbers(column)
    WeightSums.of(weights).check()
    return weights


def weight_numbers(column: pd.Series[Any]) -> Array:
    """Weights as numbers, NaN where missing."""
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)
    if not numeric and not pd.api.types.is_string_dtype(column) and column.dtype != object:
        raise ValueError(f"sample_weight must be numeric; found {unfit_kind(column) or column.dtype}")
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must be numeric; found text") from None


@dataclass(frozen=True)
class WeightSums:
    """What the weights of some rows add up to, and how many are none; sums of pieces add up."""

    n_missing: int
    n_infinite: int
    n_negative: int
    n_zero: int
    largest: float
    total: float
    squares: float

    @classmethod
    def of(cls, weights: Array) -> WeightSums:
        """Of some rows."""
        known = weights[np.isfinite(weights)]
        missing = int(np.isnan(weights).sum())
        infinite = weights.size - known.size - missing
        counts = (missing, infinite, int((known < 0).sum()), int((known == 0).sum()))
        largest = float(known.max(initial=0.0))
        with np.errstate(over="ignore"):
            return cls(*counts, largest, float(known.sum()), float((known**2).sum()))

    def __add__(self, other: WeightSums) -> WeightSums:
        """The sums of both sets of rows."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return WeightSums(**(added | {"largest": max(self.largest, other.largest)}))

    def check(self) -> None:
        """Refuse weights that are none."""
        if self.n_missing or self.n_infinite:
            found = gaps(self.n_missing, self.n_infinite)
            raise ValueError(f"sample_weight has {found}; drop such rows or give them weight 0")
        if self.n_negative:
            found = counted(self.n_negative, "negative value")
            raise ValueError(f"sample_weight has {found}; a row that should not count has weight 0")
        if not self.largest > 0:
            raise ValueError("sample_weight is zero in every row; at least some rows must count")
        if self.largest > LARGEST_WEIGHT:
            raise ValueError(f"sample_weight has values beyond {LARGEST_WEIGHT:g}; rescale it, only ratios matter")

    @property
    def effective_size(self) -> float:
        """Kish's effective number of rows."""
        return self.total**2 / self.squares


def read_clusters(clusters: Any, n_rows: int) -> NDArray[np.int64]:
    """One label per row as numbers 0, 1, ...; labels may be anything but missing.

    Examples
    --------
    >>> read_clusters(["b", "a", "b"], 3)
    array([0, 1, 0])
    """
    column = as_column(clusters, "clusters")
    check_length("clusters", len(column), n_rows)
    refuse_unlabelled(column)
    return np.asarray(pd.factorize(label_texts(column))[0], dtype=np.int64)


def refuse_unlabelled(column: pd.Series[Any]) -> None:
    """Refuse rows that are in no cluster."""
    missing = int(column.isna().sum())
    if missing:
        found = counted(missing, "missing label")
        raise ValueError(f"clusters has {found}; drop such rows or give each a cluster of its own")


def label_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Labels as text, the same for a number in whichever way it is written; None where there is none.

    A file of text has 001 as a number in rows where all labels are numbers, and as it stands where one is not.

    Examples
    --------
    >>> label_texts(pd.Series([3, 3.0, "3", "003", 2**60 + 1, 9.5, "9.50", "1e999", None], dtype=object)).tolist()
    ['3', '3', '3', '3', '1152921504606846977', '9.5', '9.5', '1e999', None]
    """
    codes, labels = pd.factorize(column)
    texts = [_label_text(own) for own in labels]
    return pd.Series(np.array([*texts, None], dtype=object)[codes], index=column.index, dtype=object)


def _label_text(label: Any) -> str:
    if isinstance(label, str) and NUMBER.fullmatch(label):
        label = int(label) if label.lstrip("+-").isdigit() else float(label)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)


def cluster_keys(column: pd.Series[Any]) -> NDArray[np.uint64]:
    """A number for every label that is the same wherever the label occurs, in whichever piece of a table."""
    refuse_unlabelled(column)
    codes, texts = pd.factorize(label_texts(column))
    return pd.util.hash_array(np.asarray(texts, dtype=object), categorize=False)[codes]


def check_clusters(count: int) -> None:
    """Refuse too few clusters, and warn of few: their number is the sample size of a cluster-robust variance."""
    if count < LEAST_CLUSTERS:
        raise ValueError(
            f"clusters has {counted(count, 'label')}; variances between clusters need at least {LEAST_CLUSTERS}. With "
            "so few, make the cluster a feature and leave clusters out"
        )
    if count < FEW_CLUSTERS:
        warnings.warn(
            f"clusters has only {counted(count, 'label')}: p-values rest on the variance between few clusters, and "
            f"power is low; {FEW_CLUSTERS} or more are better",
            UserWarning,
            stacklevel=3,
        )


def is_within(column: NDArray[Any], clusters: NDArray[np.int64]) -> bool:
    """Whether a column has one value in every cluster.

    Examples
    --------
    >>> is_within(np.array([5.0, 5.0, 7.0]), np.array([0, 0, 1])), is_within(np.arange(3.0), np.array([0, 0, 1]))
    (True, False)
    """
    _, first, codes = np.unique(clusters, return_index=True, return_inverse=True)
    return bool((column == column[first][codes.reshape(-1)]).all())


def treated_as_one(arms: NDArray[np.int64], clusters: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """The clusters where all rows of each are in one arm, otherwise None."""
    return clusters if clusters is not None and is_within(arms, clusters) else None


def check_takes_weights(part: Any, what: str) -> None:
    """Refuse a user's object whose `fit` knows no weights."""
    if not has_fit_parameter(part, "sample_weight"):
        raise ValueError(
            f"{what} {type(part).__name__} takes no sample_weight in fit; choose one that does, or leave sample_weight "
            "out"
        )


def cluster_folds(
    treatment: NDArray[np.int64], clusters: NDArray[np.int64], n_folds: int, seed: int
) -> NDArray[np.int64]:
    """Fold of each row; a cluster's rows share one, every fold holds both arms, and folds are about equal in size.

    Clusters are taken in random order, the largest first, and each goes where the arms are then most even. There are
    fewer folds where few clusters have rows of one of the arms.

    Examples
    --------
    >>> import numpy as np
    >>> clusters = np.repeat(np.arange(20), 5)
    >>> folds = cluster_folds(clusters % 2, clusters, 4, 0)  # whole clusters are treated
    >>> np.sort(np.bincount(folds[clusters % 2 == 1]))
    array([10, 10, 15, 15])
    """
    counts = np.zeros((int(clusters.max()) + 1, 2))
    np.add.at(counts, (clusters, treatment), 1.0)
    present = np.flatnonzero(counts.sum(axis=1))
    shares = counts / counts.sum(axis=0)
    order = np.random.default_rng(seed).permutation(present)
    order = order[np.argsort(-shares[order].max(axis=1), kind="stable")]
    most = int((counts > 0).sum(axis=0).min())
    for n in range(min(n_folds, most), 1, -1):
        fold_of = np.zeros(counts.shape[0], dtype=np.int64)
        held: Array = np.zeros((n, 2))
        for cluster in order:
            # The rise of the sum of squares that the cluster would cause in each fold; of equal folds the emptiest.
            fold = int(np.argmin(held @ (shares[cluster] + 1e-6)))
            fold_of[cluster] = fold
            held[fold] += shares[cluster]
        if (held > 0).all():
            return fold_of[clusters]
    raise ValueError(
        "clusters: the rows of an arm lie in too few clusters to be cross-fitted; each arm needs rows in two or more"
    )


def assign_cluster_folds(
    sampler: Any,
    treatment: NDArray[np.int64],
    clusters: NDArray[np.int64],
    n_folds: int,
    seed: np.random.SeedSequence,
) -> None:
    """Have a sampler cross-fit its distributions by folds of whole clusters."""
    if not hasattr(sampler, "assign_folds"):
        raise ValueError(
            f"clusters: the sampler {type(sampler).__name__} has no assign_folds(folds), so that its fit is judged "
            "on rows of clusters that it has seen; choose one of 'auto', 'gaussian' and 'boosting'"
        )
    folds = cluster_folds(treatment, clusters, n_folds, int(seed.generate_state(1)[0]))
    sampler.assign_folds(folds, whole_clusters=True)


def check_sampler_weights(sampler: Any) -> None:
    """Refuse a user's sampler whose `fit` knows no weights."""
    if not has_fit_parameter(sampler, "weights"):
        raise ValueError(
            f"sampler {type(sampler).__name__} takes no weights in fit, which sample_weight needs; choose one that "
            "does, or leave sample_weight out"
        )


def warn_resampled_weights() -> None:
    """Say when resampled features go with weights."""
    warnings.warn(
        "'wcmmd' with sample weights: p-values are valid only if the weights do not depend on the tested feature given "
        "the others; effect_likelihood does not need that",
        UserWarning,
        stacklevel=4,
    )

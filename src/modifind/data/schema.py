"""Schema of a table: validated once from a summary of all rows, then applied to every piece alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, check_clusters, check_strata, cluster_keys, refuse_unstratified
from modifind.data.column_types import feature_column, numbers_as_text, plain_column, plain_label, refuse_identifiers
from modifind.data.containers import as_frame
from modifind.data.features import MIN_ARM_ROWS, FeatureTable, check_scale, outcome_values
from modifind.data.levels import Pooling, pool_each, warn_pooled
from modifind.data.missing import missing_label, refuse_few, refuse_gaps, refuse_missing, refuse_outcome_gaps
from modifind.data.sources import Block, Piece
from modifind.data.summary import ColumnSummary, Summary, feature_summaries
from modifind.data.treatment import MAX_ARMS, first_treated, refuse_doses
from modifind.data.weights import Weights, weight_numbers
from modifind.data.words import counted

MIN_ROWS = 50
MAX_CLUSTERS = 4096  # sums of clusters that are kept for every feature


@dataclass(frozen=True)
class Schema:
    """How the pieces of a table are read.

    Attributes
    ----------
    n_rows, n_treated : int
        Rows of the whole table, and those treated.
    names : tuple of str
        Features.
    labels : tuple
        For each feature its category labels in code order, or None when continuous.
    arms, arm_labels : tuple
        Label of the control and of the treated as it comes, and as it is shown.
    treated_share : float
        Share of the rows, or of their weight, that is treated.
    transform : {None, "log"}
        Scale of the outcome.
    binary : bool
        Whether the outcome has two values.
    constant : tuple of bool
        Features of one value.
    counts : tuple
        For each feature the rows of each level in each arm, shape (k, 2), those of missing values last; None when
        continuous.
    gaps : tuple of bool
        Features with missing values.
    limits : tuple of pairs of floats
        Smallest and largest value of each feature, where it is a number.
    outcome_limits : pair of floats
        The same of the outcome, on the scale of `transform`.
    places : tuple of int
        Where they are in a piece.
    poolings : dict
        Features whose rare levels are pooled.
    reference : tuple of two arrays, optional
        What columns are standardised by.
    level_columns : dict
        Model columns of categories of many levels.
    weight_units : pair of floats
        What weights of rows are divided by, one after the other.
    cluster_keys : array, optional
        Keys of the clusters in the order of their codes.
    stratum_shares : array, optional
        Share of treated rows in each stratum; strata are then the last column.
    max_clusters : float
        Most clusters that are told apart; a table in memory has no limit.
    """

    n_rows: int
    names: tuple[str, ...]
    labels: tuple[tuple[Any, ...] | None, ...]
    arms: tuple[Any, ...]
    arm_labels: tuple[Any, ...]
    n_treated: int
    treated_share: float
    transform: str | None
    binary: bool
    constant: tuple[bool, ...]
    counts: tuple[Ints | None, ...]
    gaps: tuple[bool, ...]
    limits: tuple[tuple[float, float], ...]
    outcome_limits: tuple[float, float]
    places: tuple[int, ...]
    poolings: dict[int, Pooling] = field(default_factory=dict)
    reference: tuple[Array, Array] | None = None
    level_columns: Mapping[int, Array] = field(default_factory=dict)
    weight_units: tuple[float, float] = (1.0, 1.0)
    cluster_keys: NDArray[np.uint64] | None = None
    stratum_shares: Array | None = None
    max_clusters: float = MAX_CLUSTERS

    @classmethod
    def of(
        cls,
        summary: Summary,
        treated: Any,
        transform: str | None,
        missing: str = "error",
        treatment: str = "treatment",
        outcome: str = "the outcome y",
    ) -> Schema:
        """Validate a table's summary and fix how its pieces are read.

        `treatment` and `outcome` are the names used in messages.
        """
        if summary.weights is not None:
            summary.weights.check()
        _check_features(summary, missing)
        labels = feature_labels(summary.names, summary.limits, summary.columns, summary.n_rows, summary.max_levels)
        _check_rows(summary, transform, outcome)
        refuse_gaps(treatment, summary.treatment.n_missing, summary.treatment.n_infinite)
        if summary.treatment.levels is None and summary.treatment.kind == "number":
            refuse_doses((), MAX_ARMS + 1, treatment)
        arms = summary.treatment.labels("treatment")
        shown = tuple(plain_label(label) for label in arms)
        if first_treated(shown, treated, treatment):
            arms, shown = arms[::-1], shown[::-1]
        levels = summary.treatment.levels or {}
        sizes = {arm: levels[arm] for arm in arms}
        if (smaller := min(sizes.values())) < MIN_ARM_ROWS:
            raise ValueError(f"each arm of treatment needs at least {MIN_ARM_ROWS} rows; the smaller has {smaller}")
        if summary.clusters is not None:
            check_clusters(summary.clusters.size)
        by_level = tuple(c.rows_by_arm(own, sizes) for own, c in zip(labels, summary.columns, strict=True))
        y, whole = summary.y, math.isinf(summary.max_levels)
        clusters = summary.clusters if whole or summary.clusters is None else np.sort(summary.clusters)
        return cls(
            n_rows=summary.n_rows,
            names=summary.names,
            labels=labels,
            arms=arms,
            arm_labels=shown,
            n_treated=sizes[arms[1]],
            treated_share=_treated_share(summary.arms or sizes, arms),
            transform=transform,
            binary=y.levels is not None,
            constant=tuple(c.n_distinct + (c.n_missing > 0) == 1 for c in summary.columns),
            counts=by_level,
            gaps=tuple(c.n_missing > 0 for c in summary.columns),
            limits=tuple((c.low, c.high) for c in summary.columns),
            outcome_limits=(math.log(y.low), math.log(y.high)) if transform else (y.low, y.high),
            cluster_keys=clusters,  # in an order that does not depend on how a longer table is cut
            stratum_shares=_stratum_shares(summary, labels[-1], by_level[-1], arms),
            places=summary.places or tuple(range(len(summary.names))),
            max_clusters=math.inf if whole else MAX_CLUSTERS,
        )

    @property
    def n_clusters(self) -> int:
        """Number of clusters that count as independent, 0 for independent rows; capped by merging clusters."""
        return 0 if self.cluster_keys is None else int(min(self.cluster_keys.size, self.max_clusters))

    @cached_property
    def categories(self) -> tuple[tuple[Any, ...] | None, ...]:
        """Displayed labels of each category, the missing level last."""
        shown = (_shown(labels, gaps) for labels, gaps in zip(self.labels, self.gaps, strict=True))
        return tuple(self.poolings[m].labels if m in self.poolings else labels for m, labels in enumerate(shown))

    @cached_property
    def incomplete(self) -> frozenset[int]:
        """Continuous features with missing values."""
        return frozenset(m for m, gaps in enumerate(self.gaps) if gaps and self.labels[m] is None)

    @property
    def left_out(self) -> frozenset[int]:
        """Features that pooling has left with one level."""
        return frozenset(m for m, pooling in self.poolings.items() if pooling.left_out)

    def pooled(self) -> Schema:
        """The same schema with rare levels pooled, and a warning that names them."""
        counts = {m: rows for m, rows in enumerate(self.counts) if rows is not None}
        poolings = pool_each(self.categories, counts)
        warn_pooled({self.names[m]: pooling for m, pooling in poolings.items()})
        pooled = replace(self, poolings=poolings)
        return replace(pooled, constant=tuple(same or m in pooled.left_out for m, same in enumerate(self.constant)))

    def read(self, piece: Piece) -> Block:
        """Encode a piece as numbers and codes."""
        values = self._values(piece.conditioned)
        y = outcome_values(piece.y)
        scores = None if piece.propensity is None else piece.propensity.to_numpy(dtype=np.float64)
        if scores is None and self.stratum_shares is not None:
            scores = self.stratum_shares[values[:, -1].astype(np.intp)]
        weights, clusters = Weights.alike(y.size), Clusters.rows(y.size)
        if piece.sample_weight is not None:
            weights = Weights.of(weight_numbers(piece.sample_weight) / self.weight_units[0] / self.weight_units[1])
        if piece.clusters is not None and self.cluster_keys is not None:
            codes = pd.Index(self.cluster_keys).get_indexer(pd.Index(cluster_keys(piece.clusters)))
            clusters = Clusters(codes % self.n_clusters, of_rows=False)
        return Block(
            piece.start,
            FeatureTable(self.names, values, self.categories, self.reference, self.incomplete, self.level_columns),
            np.log(y) if self.transform == "log" else y,
            _codes(plain_column(piece.treatment), self.arms, "treatment"),
            scores,
            weights,
            clusters,
        )

    def _values(self, frame: pd.DataFrame) -> Array:
        columns = (frame.iloc[:, place] for place in self.places)
        values = feature_values(columns, frame.shape, self.names, self.labels, self.gaps)
        for m, pooling in self.poolings.items():
            values[:, m] = pooling.codes[values[:, m].astype(np.intp)]
        return values


def read_features(X: Any, discrete_features: Any = "auto", missing: str = "error") -> FeatureTable:
    """Encode a DataFrame or array as a `FeatureTable`, without an outcome or a treatment.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d) or what `as_frame` takes
        Features. Array columns are called x0, x1, ...
    discrete_features : "auto", names, positions, a mask, or AdditionalDiscrete
        "auto" takes boolean, categorical and text columns and numbers with at most 10 distinct values as discrete. A
        list names the numeric columns to be taken as discrete; the other numeric columns are then continuous. Text
        and categories are discrete in any case.
    missing : {"error", "category"}, default="error"
        "category" gives missing values of a discrete feature a level of their own, and leaves those of a continuous
        one NaN.

    Raises
    ------
    ValueError
        Names every column that has missing or infinite values, or a type that is no feature.

    Examples
    --------
    >>> import pandas as pd
    >>> table = read_features(pd.DataFrame({"age": range(20, 40), "sex": ["f", "m"] * 10}))
    >>> table.kind(0), table.kind(1), table.categories[1]
    ('continuous', 'discrete', ('f', 'm'))
    """
    frame = as_frame(X)
    refuse_empty(frame)
    names, limits, columns = feature_summaries(frame, discrete_features, math.inf)
    _refuse_gaps_of(names, columns, missing)
    labels = feature_labels(names, limits, columns, len(frame), math.inf)
    gaps = tuple(column.n_missing > 0 for column in columns)
    values = feature_values((frame.iloc[:, m] for m in range(len(names))), frame.shape, names, labels, gaps)
    categories = tuple(_shown(own, missing) for own, missing in zip(labels, gaps, strict=True))
    incomplete = frozenset(m for m, missing in enumerate(gaps) if missing and labels[m] is None)
    return FeatureTable(names, values, categories, incomplete=incomplete)


def refuse_empty(frame: pd.DataFrame) -> None:
    """Refuse a table without rows or columns."""
    if frame.empty:
        raise ValueError(f"X must have rows and columns; found shape {frame.shape}")


def feature_values(
    columns: Iterable[pd.Series[Any]],
    shape: tuple[int, int],
    names: Sequence[str],
    labels: Sequence[tuple[Any, ...] | None],
    gaps: Sequence[bool],
) -> Array:
    """Encode features: values of continuous columns, and codes of levels."""
    values = np.empty(shape)
    for m, column in enumerate(columns):
        known = labels[m]
        if known and all(isinstance(label, str) for label in known):
            column = numbers_as_text(column)
        column, _ = feature_column(column, names[m], check=False)
        if known is None:
            values[:, m] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values[:, m] = _codes(column, known, names[m], gaps=gaps[m])
    return values


def feature_labels(
    names: Sequence[str],
    limits: Sequence[float],
    columns: Sequence[ColumnSummary],
    n_rows: int,
    max_levels: float,
) -> tuple[tuple[Any, ...] | None, ...]:
    """Category labels of each feature in code order, or None if continuous."""
    labels: list[tuple[Any, ...] | None] = []
    observed: dict[str, int] = {}
    for name, column, limit in zip(names, columns, limits, strict=True):
        if column.kind == "number" and column.levels is None and column.n_missing and column.low == column.high:
            labels.append((column.low,))
        elif column.kind == "number" and column.levels is None and limit < max_levels:
            if column.lossy:
                refuse_identifiers(name)
            check_scale(f"column {name!r}", np.array([column.low, column.high]))
            labels.append(None)
            if column.n_missing:
                observed[name] = n_rows - column.n_missing
        else:
            labels.append(column.labels(name))
    refuse_few(observed)
    return tuple(labels)


def _check_features(summary: Summary, missing: str) -> None:
    if summary.strata is not None and summary.columns[-1].n_missing:
        refuse_unstratified(summary.columns[-1].n_missing)
    _refuse_gaps_of(summary.names, summary.columns, missing)


def _refuse_gaps_of(names: Sequence[str], columns: Sequence[ColumnSummary], missing: str) -> None:
    counts = {name: (column.n_missing, column.n_infinite) for name, column in zip(names, columns, strict=True)}
    refuse_missing(counts, allowed=missing == "category")


def _check_rows(summary: Summary, transform: str | None, outcome: str) -> None:
    """Refuse too few rows, a constant or unusable outcome, and invalid known scores."""
    if summary.n_rows < MIN_ROWS:
        raise ValueError(f"X has {counted(summary.n_rows, 'row')}; at least {MIN_ROWS} are needed")
    y, known = summary.y, summary.scores
    refuse_outcome_gaps(outcome, summary.n_rows, y.n_missing, y.n_infinite)
    if y.low == y.high:
        raise ValueError(f"y is constant ({y.low:g}); there is no effect to find")
    if transform == "log" and y.n_not_positive:
        count = counted(y.n_not_positive, "value of y is", "values of y are")
        raise ValueError(f"outcome_transform='log' needs a positive outcome; {count} not")
    check_scale("y", np.array([y.low, y.high]))
    if known is not None and known.kind != "number":
        raise ValueError(f"propensity must lie strictly between 0 and 1; it holds {known.kind}")
    inside = known is None or (not known.n_missing + known.n_infinite and 0 < known.low <= known.high < 1)
    if known is not None and not inside and not math.isinf(summary.max_levels):  # rows at hand are counted later
        raise ValueError(
            f"propensity must lie strictly between 0 and 1; found {known.n_missing} missing values and a range "
            f"from {known.low:g} to {known.high:g}"
        )


def _treated_share(sizes: Mapping[Any, float], arms: Sequence[Any]) -> float:
    control, treated = (sizes[arm] for arm in arms)
    return float(treated / (control + treated))


def _stratum_shares(
    summary: Summary, labels: tuple[Any, ...] | None, counts: Ints | None, arms: tuple[Any, ...]
) -> Array | None:
    """Treated share of each stratum if there are strata, which are then the last column."""
    if summary.strata is None or labels is None or counts is None:
        return None
    check_strata(tuple(plain_label(label) for label in labels), *counts.T)
    sums = np.array([[summary.strata.get((label, arm), 0.0) for arm in arms] for label in labels])
    return sums[:, 1] / sums.sum(axis=1)


def _shown(labels: tuple[Any, ...] | None, missing: bool) -> tuple[Any, ...] | None:
    """Labels as displayed, the missing level last."""
    shown = None if labels is None else tuple(plain_label(label) for label in labels)
    return (*shown, missing_label(shown)) if shown is not None and missing else shown


def _codes(column: pd.Series[Any], labels: tuple[Any, ...], name: str, *, gaps: bool = False) -> Ints:
    """Code of each row; the first pass has seen every label, unless the table has changed since.

    With `gaps`, missing values get the code after the last label.
    """
    if gaps:
        missing = column.isna().to_numpy()
        codes = np.full(missing.size, len(labels), dtype=np.int64)
        if not missing.all():
            codes[~missing] = _codes(column[~missing], labels, name)
        return codes
    index = pd.Index(labels)
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = index.get_indexer(pd.Index(column.cat.categories))[column.cat.codes.to_numpy()]
    else:
        codes = index.get_indexer(pd.Index(column))
    if (codes < 0).any():
        raise ValueError(f"column {name!r} has values that it did not have when first read; the table must not change")
    return codes.astype(np.int64)

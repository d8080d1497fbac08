"""A feature, the points to look at and its rows, as a caller gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.clusters import Clusters
from modifind.data.feature_matrix import check_scale
from modifind.data.population import check_population
from modifind.data.weights import Weights
from modifind.explain.pseudo import ArmRows


@dataclass(frozen=True)
class GivenFeature:
    """A feature as numbers.

    Attributes
    ----------
    column : array of shape (n,)
        Codes of the categories, or values; NaN where a value is missing.
    labels : tuple, optional
        Names of the codes.
    points : array, optional
        Where to look, in the same numbers; None where the caller leaves that open.
    """

    column: Array
    labels: tuple[Any, ...] | None = None
    points: Array | None = None

    @property
    def n_levels(self) -> int:
        """Number of categories, 0 for a continuous feature."""
        return 0 if self.labels is None else len(self.labels)

    def named(self, points: Array) -> NDArray[Any]:
        """Points as they are shown: values, or labels of codes."""
        if self.labels is None:
            return points
        return np.array(self.labels, dtype=object)[points.astype(np.intp)]

    @classmethod
    def read(cls, x: Any, points: Any, discrete: bool, *, gaps: bool) -> GivenFeature:
        """Check and translate; values of a continuous feature may be missing where `gaps` are allowed."""
        given = x if isinstance(x, pd.Series) else pd.Series(np.asarray(x))
        missing = given.isna().to_numpy()
        if missing.all() or (missing.any() and (discrete or not gaps)):
            of_its_own = " or give them a category of their own" if discrete else ""
            raise ValueError(f"x must have rows and no missing values; drop the rows where it is missing{of_its_own}")
        return cls._read_labels(given, points) if discrete else cls._read_values(given, points)

    @classmethod
    def _read_values(cls, given: pd.Series[Any], points: Any) -> GivenFeature:
        try:
            column = given.to_numpy(dtype=np.float64, na_value=np.nan)
            at = None if points is None else np.asarray(points, dtype=np.float64).ravel()
        except (TypeError, ValueError):
            raise ValueError("x and points must be numeric; pass discrete=True for a feature of labels") from None
        if np.isinf(column).any():
            raise ValueError("x has infinite values; drop those rows")
        if at is not None and (at.size == 0 or not np.isfinite(at).all()):
            raise ValueError("points must be finite numbers, at least one")
        return cls(column, None, at)

    @classmethod
    def _read_labels(cls, given: pd.Series[Any], points: Any) -> GivenFeature:
        codes, labels = pd.factorize(given, sort=True)
        places = None
        if points is not None:
            wanted = np.asarray(points).ravel()
            places = pd.Index(labels).get_indexer(wanted).astype(np.float64)
            if wanted.size == 0 or (places < 0).any():
                absent = ", ".join(map(repr, wanted[places < 0].tolist()[:5])) or "none given"
                raise ValueError(f"points must be values of x; these are not: {absent}")
        return cls(codes.astype(np.float64), tuple(labels), places)


@dataclass(frozen=True)
class GivenRows:
    """A feature with the outcomes and arms of its rows, and where to look; `effect_curve` describes the fields."""

    x: Any
    y: Any
    treatment: Any
    propensity: Any
    discrete: bool = False
    points: Any = None
    bandwidth: float | None = None
    weights: Any = None
    clusters: Any = None
    population: str = "all"

    def feature(self, *, gaps: bool) -> GivenFeature:
        """The feature, checked."""
        check_bandwidth(self.bandwidth)
        return GivenFeature.read(self.x, self.points, self.discrete, gaps=gaps)

    def arm_rows(self) -> ArmRows:
        """Outcomes and arms, checked."""
        check_population(self.population)
        n_rows = np.asarray(self.x).shape[0]
        outcome = _numbers(self.y, "y", n_rows)
        check_scale("y", outcome)
        arms = _numbers(self.treatment, "treatment", n_rows)
        if not np.array_equal(np.unique(arms), (0.0, 1.0)):
            raise ValueError("treatment must be 0 (control) or 1 (treated), and both must occur")
        scores = _numbers(self.propensity, "propensity", n_rows, one_for_all=True)
        if np.any((scores <= 0) | (scores >= 1)):
            raise ValueError("propensity must lie above 0 and below 1; clip it first")
        weights = Weights.of(None if self.weights is None else _numbers(self.weights, "weights", n_rows), n_rows)
        if np.any(weights.values < 0) or not np.any(weights.values > 0):
            raise ValueError("weights must not be negative, and some must be positive")
        clusters = _clusters(self.clusters, n_rows)
        return ArmRows(outcome, arms.astype(np.int64), scores, weights, clusters, self.population)


def _clusters(labels: Any, n_rows: int) -> Clusters:
    if labels is None:
        return Clusters.rows(n_rows)
    codes = pd.factorize(np.asarray(labels))[0]
    if codes.shape != (n_rows,) or (codes < 0).any():
        raise ValueError(f"clusters must have a label for each of the {n_rows} rows")
    return Clusters.of(codes)


def _numbers(values: Any, name: str, n_rows: int, *, one_for_all: bool = False) -> Array:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numeric") from None
    if one_for_all and column.ndim == 0:
        column = np.full(n_rows, float(column))
    if column.shape != (n_rows,):
        raise ValueError(f"{name} must have one value for each of the {n_rows} rows of x; its shape is {column.shape}")
    if not np.all(np.isfinite(column)):
        raise ValueError(f"{name} has missing or infinite values; drop those rows")
    return column


def check_bandwidth(given: float | None) -> None:
    """Refuse a bandwidth that is no positive number."""
    if given is not None and not 0 < given < np.inf:
        raise ValueError(f"bandwidth must be a positive number, not {given!r}")


def check_draws(n_bootstrap: int = 20, level: float = 0.95) -> None:
    """Refuse too few draws and a level that is none."""
    if n_bootstrap < 20:
        raise ValueError(f"n_bootstrap must be at least 20, not {n_bootstrap}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")

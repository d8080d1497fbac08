"""Input rows, and pseudo-outcomes of both arms for every row.

For a function g of the outcome, such as the outcome itself or an indicator that it is below a threshold, the doubly
robust average of g under arm a is that of ``m_a(x) + w_a (g(y) - m_a(x))``: the prediction of a cross-fitted model plus
its error, estimated from rows of the arm weighted by the inverse probability of being in it. It is consistent if either
the model or the scores are. Without a model m_a is the weighted mean of the arm, and the result is an average of
weighted outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters
from modifind.data.features import check_scale
from modifind.data.weights import Weights, check_population, row_weights
from modifind.statistics.kernels import gaussian_gram

if TYPE_CHECKING:
    from modifind.statistics.families import Family
    from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood


MAX_EXPLAINED_ROWS = 30_000  # bands of so many rows are narrow, and all their pseudo-outcomes fit into memory
MAX_OUTCOME_LEVELS = 12  # an outcome of no more distinct values is shown by their shares
N_QUANTILES, N_STEPS = 36, 12
MIN_STEP_SHARE = (
    0.02  # share of the outcomes from which a value that several rows have is a step of the distribution function
)
MIN_EIGENVALUE = 1e-10  # of the largest
EDGE = 0.005  # share of the outcomes beyond either end of a drawn scale
# Functions of the outcome before the indicators: the outcome and its square.
N_MOMENTS = 2


@dataclass(frozen=True)
class ArmRows:
    """Outcome, arm and weight of every row.

    Attributes
    ----------
    y, arms, scores : arrays of shape (n,)
        Outcome, treatment (0 or 1) and propensity scores.
    weights : Weights, optional
        How much each row counts; by default rows count alike.
    clusters : Clusters, optional
        Which rows belong together; by default none do.
    population : {"all", "overlap"}
        Whom averages are about: of "overlap" a row counts with e (1 - e), so that in the averages of errors treated
        rows count with 1 - e and control rows with e, and no row counts much.
    effect_scale : {"difference", "ratio", "odds_ratio"}
        How the arms' averages are compared.
    two_parts : bool
        Whether effects on the chance of any outcome above the lowest, and on how much there is, are told apart.
    """

    y: Array
    arms: Ints
    scores: Array
    weights: Weights = None  # type: ignore[assignment]
    clusters: Clusters = None  # type: ignore[assignment]
    population: str = "all"
    effect_scale: str = "difference"
    two_parts: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", Weights.of(self.weights, self.y.size))
        object.__setattr__(self, "clusters", Clusters.of(self.clusters, self.y.size))

    def part(self, rows: Ints) -> ArmRows:
        """A subset of the rows."""
        columns = ("y", "arms", "scores", "weights", "clusters")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


@dataclass(frozen=True)
class OutcomeModel:
    """Predictions for every row in both arms, from models that have not seen it.

    Attributes
    ----------
    location, scale : array of shape (n, 2)
        Of control and treated outcomes; for a binary outcome the location is a probability.
    shapes : tuple of two floats
        Of the arms.
    family : Family
        That of the outcome.
    """

    location: Array
    scale: Array
    shapes: tuple[float, float]
    family: Family

    @classmethod
    def of(cls, prepared: PreparedEffectLikelihood) -> tuple[OutcomeModel, ...]:
        """The models of an effect-likelihood test, one for every repeat of its cross-fitting."""
        return tuple(
            cls(fit.cross.location, fit.cross.scale, fit.traits.shapes, prepared.family) for fit in prepared.fits
        )

    def expected(
        self, arm: int, rows: NDArray[np.intp], y: Array, marks: Array, own: Array, origin: tuple[float, float]
    ) -> Array:
        """Expectation of the outcome, of its square and of being at most each of the `marks`, shape (rows, 2 + marks).

        `y` are the outcomes of the rows relative to `origin`, and `own` are their weights in the arm.
        """
        location, scale = self.location[rows, arm], self.scale[rows, arm]
        return self.family.expected(location, scale, self.shapes[arm], marks, y, own, origin)


@dataclass(frozen=True)
class PseudoOutcomes:
    """Functions of the outcome for every row: predictions for both arms, and the prediction error in the observed arm.

    Attributes
    ----------
    rows : int array
        The rows of the table that are used: all, or a random part of many.
    expected : array of shape (rows, 2, k)
        Of control and treated. The k functions are the outcome, its square and the indicators of being at most a mark.
    errors : array of shape (rows, k)
        Observed less expected, in the row's own arm.
    arms : int array
        0 or 1.
    weights : array
        How much each row counts, in the population that averages are about.
    arm_weights : array
        The same times the inverse probability of the row's own arm.
    clusters : Clusters
        Which rows belong together.
    marks : array
        Values of the outcome, ascending; the last is the largest.
    levels : bool
        Whether the marks are all values that the outcome has.
    steps : bool array
        Whether all outcomes above the mark before and up to a mark are the mark itself.
    centre, unit : float
        The outcome is ``centre + unit * y`` of the y that functions are taken of.
    population, effect_scale : str
        Whom averages are about, and how those of the arms are compared.
    two_parts : bool
        Whether effects on the chance of any and on how much there is are told apart.
    """

    rows: NDArray[np.intp]
    expected: Array
    errors: Array
    arms: Ints
    weights: Array
    arm_weights: Array
    clusters: Clusters
    marks: Array
    levels: bool
    steps: NDArray[np.bool_]
    centre: float
    unit: float
    population: str = "all"
    effect_scale: str = "difference"
    two_parts: bool = False

    @property
    def atoms(self) -> Array:
        """Assumed location of the probability mass between one mark and the next."""
        return np.where(self.steps, self.marks, (self.marks + np.append(self.marks[0], self.marks[:-1])) / 2)

    def kernel_root(self, bandwidth: float) -> Array:
        """Feature map of a Gaussian kernel at the atoms, shape (marks, r), of low rank r."""
        values, vectors = np.linalg.eigh(gaussian_gram(self.atoms, self.atoms, bandwidth))
        kept = values > MIN_EIGENVALUE * values[-1]
        return vectors[:, kept] * np.sqrt(values[kept])

    @classmethod
    def of(
        cls,
        given: ArmRows,
        models: tuple[OutcomeModel, ...] = (),
        *,
        seed: np.random.SeedSequence | None = None,
        max_rows: int = MAX_EXPLAINED_ROWS,
    ) -> PseudoOutcomes:
        """Compute the pseudo-outcomes of a table.

        Parameters
        ----------
        given : ArmRows
            Its rows.
        models : tuple of OutcomeModel, optional
            Cross-fitted models, whose pseudo-outcomes are averaged. Without any, the mean of each arm is expected.
        seed : SeedSequence, optional
            For the choice of `max_rows` rows of a larger table.
        """
        rows = np.arange(given.y.size)
        if rows.size > max_rows:
            rows = np.sort(np.random.default_rng(seed).choice(rows.size, max_rows, replace=False))
        given = given.part(rows)
        y, arms, scores = given.y, given.arms, given.scores
        weights = given.weights.times(row_weights(scores, given.population))
        arm_weights = weights / np.where(arms == 1, scores, 1.0 - scores)
        counted = Weights.of(weights)
        centre, unit = float(counted.mean(y)), float(np.sqrt(counted.mean((y - counted.mean(y)) ** 2))) or 1.0
        scaled = (y - centre) / unit
        marks, steps, levels = outcome_marks(scaled, arm_weights)
        observed: Array = np.column_stack((scaled, scaled**2, (scaled[:, None] <= marks).astype(np.float64)))
        expected = np.empty((rows.size, 2, observed.shape[1]))
        for arm in (0, 1):
            in_arm = arm_weights * (arms == arm)
            if models:
                each = [model.expected(arm, rows, scaled, marks, in_arm, (centre, unit)) for model in models]
                expected[:, arm] = np.mean(each, axis=0)
            else:
                expected[:, arm] = in_arm @ observed / in_arm.sum()
        errors = observed - expected[np.arange(rows.size), arms]
        weighted = (arms, weights, arm_weights, given.clusters)
        how = given.population, given.effect_scale, given.two_parts
        return cls(rows, expected, errors, *weighted, marks, levels, steps, centre, unit, *how)


def outcome_marks(y: Array, weights: Array) -> tuple[Array, NDArray[np.bool_], bool]:
    """Marks of distribution functions, which of them are steps, and whether they are all values of y.

    About fifty quantiles, where most rows are, and evenly spaced values. A value shared by many rows and the value
    before it are both marks with none between, because the distribution function jumps there.

    Examples
    --------
    >>> outcome_marks(np.array([2.0, 0.0, 1.0, 1.0]), np.ones(4))
    (array([0., 1., 2.]), array([ True,  True,  True]), True)
    """
    distinct, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    if distinct.size <= MAX_OUTCOME_LEVELS:
        return distinct, np.ones(distinct.size, dtype=bool), True
    counted = Weights.of(weights)
    inner = counted.quantiles(y, (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)
    low, high = counted.quantiles(y, np.array([EDGE, 1 - EDGE]))
    mass = np.bincount(place.reshape(-1), weights)
    heavy = np.flatnonzero((mass >= MIN_STEP_SHARE * mass.sum()) & (counts > 1))
    before = distinct[np.maximum(heavy - 1, 0)]
    spread = np.concatenate((inner, np.linspace(low, high, N_STEPS)))
    between = np.searchsorted(distinct, spread, side="right")  # the next value above each
    jumps = np.isin(between, heavy) & (spread > distinct[np.maximum(between - 1, 0)])
    marks = np.unique(np.concatenate((spread[~jumps], before, distinct[heavy], distinct[[0, -1]])))
    steps = np.isin(marks, distinct[heavy])
    steps[0] = True
    return marks, steps, False


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
        """Points as displayed: values, or labels of codes."""
        if self.labels is None:
            return points
        return np.array(self.labels, dtype=object)[points.astype(np.intp)]

    @classmethod
    def read(cls, x: Any, points: Any, discrete: bool, *, gaps: bool) -> GivenFeature:
        """Validate and encode; values of a continuous feature may be missing if `gaps` are allowed."""
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
    """A feature with outcomes and arms of its rows, and the points to evaluate; see `effect_curve` for the fields."""

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
        """The validated feature."""
        check_bandwidth(self.bandwidth)
        return GivenFeature.read(self.x, self.points, self.discrete, gaps=gaps)

    def arm_rows(self) -> ArmRows:
        """Validated outcomes and arms."""
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
    """Refuse a bandwidth that is not a positive number."""
    if given is not None and not 0 < given < np.inf:
        raise ValueError(f"bandwidth must be a positive number, not {given!r}")


def check_draws(n_bootstrap: int = 20, level: float = 0.95) -> None:
    """Refuse too few draws or an invalid level."""
    if n_bootstrap < 20:
        raise ValueError(f"n_bootstrap must be at least 20, not {n_bootstrap}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")

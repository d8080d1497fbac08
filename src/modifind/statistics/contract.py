"""Contract of a statistic: what the engine needs to test features with it.

A statistic measures how strongly a feature seems to modify the effect, and declares its tail. One with an *analytic*
tail is a sum over rows: it gives the contribution of every row at the observed value of a feature and at the points of
its distribution (`PreparedTerms.terms`), which the engine adds and compares. One that is *resampled* measures a column
of values (`PreparedStatistic.value`), which may be any function of it, and is compared with its values on resampled
copies of the feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters
from modifind.data.features import Feature, FeatureTable
from modifind.data.weights import Weights
from modifind.data.words import check_part, named

if TYPE_CHECKING:
    from modifind.nuisance.conditional.contract import RowGrid
    from modifind.statistics.direct import DirectTerms
    from modifind.statistics.families import Family
    from modifind.statistics.row_terms import Reuse


@dataclass(frozen=True)
class Nuisances:
    """Data and fitted models for which a statistic is prepared.

    Attributes
    ----------
    table : FeatureTable
        Features.
    outcome : array of shape (n,)
        Outcome, on the scale on which effects are measured.
    arms : int array of shape (n,)
        1 for treated rows, 0 for control rows.
    scores : array of shape (n,)
        Propensity scores.
    seed : SeedSequence
        For whatever is random in the statistic itself.
    folds : tuple of int arrays
        Fold of each row, once for every cross-fit that the statistic asks for (`Statistic.cv_repeats`).
    weights : Weights, optional
        How much each row counts, with mean 1; by default rows count alike.
    clusters : Clusters, optional
        Which rows belong together; by default none do.
    n_jobs : int, optional
        Processes.
    in_pieces : bool
        Whether these are a sample of the rows of a table in pieces, which models are fitted to; sums are over all
        rows.
    outcome_limits : tuple of two floats, optional
        Range of the outcome over all rows of a table in pieces.
    family : Family, optional
        Family of the outcome, with the scale on which effects are compared; by default that of `families.family_of`.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.features import FeatureTable
    >>> from modifind.statistics import Nuisances
    >>> table = FeatureTable(("age",), np.array([[40.0], [50.0], [60.0], [70.0]]), (None,))
    >>> outcome, arms, scores = np.array([1.0, 2.0, 2.0, 4.0]), np.array([0, 1, 0, 1]), np.full(4, 0.5)
    >>> given = Nuisances(table, outcome, arms, scores, seed=np.random.SeedSequence(0))
    >>> given.weights.uniform, given.in_pieces
    (True, False)
    """

    table: FeatureTable
    outcome: Array
    arms: Ints
    scores: Array
    seed: np.random.SeedSequence
    folds: tuple[Ints, ...] = ()
    weights: Weights = None  # type: ignore[assignment]
    clusters: Clusters = None  # type: ignore[assignment]
    n_jobs: int | None = None
    in_pieces: bool = False
    outcome_limits: tuple[float, float] | None = None
    family: Family | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", Weights.of(self.weights, self.outcome.size))
        object.__setattr__(self, "clusters", Clusters.of(self.clusters, self.outcome.size))


@dataclass(frozen=True)
class Column:
    """One column of values to measure: the feature as observed, or a resampled copy of it.

    Attributes
    ----------
    feature : int
        Position of the feature in the table.
    values : array of shape (n,)
        Its values; codes of a discrete feature.
    scores : array of shape (n,)
        Propensity scores of the rows with these values.
    n_levels : int
        Number of levels of a discrete feature; 0 for a continuous one.
    bandwidth : float
        Median distance between observed values of a continuous feature.
    limits : tuple of two floats, optional
        Range of the values of all rows, if these are some rows of a table in pieces.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.statistics import Column
    >>> column = Column(feature=0, values=np.array([40.0, 50.0]), scores=np.full(2, 0.5), n_levels=0, bandwidth=10.0)
    >>> float(column.values.mean())
    45.0
    """

    feature: int
    values: Array
    scores: Array
    n_levels: int
    bandwidth: float
    limits: tuple[float, float] | None = None


class PreparedStatistic(Protocol):
    """A statistic prepared for one outcome and treatment."""

    def value(self, column: Column) -> float:
        """Value of a column; larger values suggest a stronger modification of the effect."""


class SummedStatistic(PreparedStatistic, Protocol):
    """A statistic computed from sums over rows in one or more passes, as tables in pieces require."""

    def at(self, rows: Nuisances) -> SummedStatistic:
        """The same statistic for other rows."""

    def sums(self, column: Column, known: tuple[Any, ...] = ()) -> Any:
        """Sums over these rows for the next pass, which are combined with ``+``.

        `known` holds the sums over all rows of each earlier pass.
        """

    def value_of(self, known: tuple[Any, ...]) -> float | None:
        """Value of a column from the sums over all rows; None if another pass is needed."""


@dataclass(frozen=True)
class Terms:
    """Contribution of every row to a sum, observed and under the null hypothesis.

    Attributes
    ----------
    observed : array of shape (n,)
        At the observed value of the feature.
    values, weights : array of shape (n, g)
        At the points of its distribution, and the weights of these.
    parts : mapping
        Observed and values of further sums tested by the same points, by name: "outcome" (does the outcome follow the
        feature?), and what the feature changes, "mean" and "spread".
    directions : mapping
        What rows add to sums that are tested two-sided and jointly, shape (n, k): those named "test" join the test,
        and others the part with their name, which they make if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import analytic_test
    >>> from modifind.statistics import Terms
    >>> coins = Terms(np.repeat([1.0, 0.0], [60, 40]), np.tile([0.0, 1.0], (100, 1)), np.full((100, 2), 0.5))
    >>> round(analytic_test(coins.observed, coins.values, coins.weights).p_value, 2)
    0.02
    """

    observed: Array
    values: Array
    weights: Array
    parts: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    directions: Mapping[str, Array | DirectTerms] = field(default_factory=dict)


class PreparedTerms(ABC):
    """A statistic with an analytic tail, prepared for some rows. Subclasses implement `at` and `terms`.

    Attributes
    ----------
    tests_changes : bool
        Whether ``terms(..., parts=True)`` also gives what rows add to the tests of what a feature changes.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind import ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> from modifind.statistics import PreparedTerms, Statistic, Terms
    >>> class Score(PreparedTerms):  # treatment less score, outcome and feature, multiplied
    ...     def __init__(self, rows):
    ...         self.rows = rows
    ...     def at(self, rows):
    ...         return Score(rows)
    ...     def terms(self, feature, distribution):
    ...         rows = self.rows
    ...         lead = (rows.arms - rows.scores) * (rows.outcome - rows.outcome.mean())
    ...         points, weights = distribution.at(np.arange(lead.size))
    ...         return Terms(lead * rows.table.values[:, feature], lead[:, None] * points, weights)
    >>> class Covariance(Statistic):
    ...     name, tail, two_sided = "covariance", "analytic", True
    ...     def prepare(self, nuisances):
    ...         return Score(nuisances)
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> selector = ModifierSelector(Covariance(), "gaussian", explain=False, random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).result_.table["p_value"].idxmin()
    'X5'
    """

    tests_changes: ClassVar[bool] = False

    @abstractmethod
    def at(self, rows: Nuisances) -> Self:
        """The same statistic for other rows, with the models fitted in `prepare`."""

    @abstractmethod
    def terms(self, feature: Feature, distribution: RowGrid) -> Terms:
        """Terms of these rows for a feature, or a group of them, over the points of its distribution."""

    @property
    def description(self) -> dict[str, Any] | None:
        """Description of the fitted models for the record."""
        return None

    def looks_at(self, feature: Feature) -> bool:
        """Whether the sum can depend on a feature."""
        return True

    def first_look(self, feature: Feature) -> DirectTerms | None:
        """Directions that do not need the feature's distribution; None if there are none.

        Distributions take time to fit: a feature without any signal along these directions gets p-value 1.
        """
        return None

    def reuse(self, feature: Feature, distribution: RowGrid, *parts: str) -> Mapping[str, Reuse]:
        """Variance added to the sum and its parts by models that share rows; empty without cross-fitting."""
        return {}

    def conditional_test(self, feature: Feature, distribution: RowGrid) -> float:
        """P-value for the feature's distribution being correct where it matters; NaN if not tested."""
        return float("nan")

    def with_directions(self, features: Sequence[Feature]) -> Self:
        """The same statistic, storing for other rows what depends on these rows for some features."""
        return self


class Statistic(BaseEstimator, ABC):
    """Base class of statistics. Subclasses implement `prepare`, and declare what else they support.

    Attributes
    ----------
    name : str
        Name in messages and results.
    null_hypothesis : str
        The null hypothesis, as it reads before "given the other features".
    tail : {"resampled", "analytic"}
        Where p-values come from: resampled copies of the feature, or the tail of a sum over rows. What is prepared is
        then a `PreparedStatistic` or a `PreparedTerms`.
    two_sided : bool
        Whether a sum far below its null mean counts like one far above it.
    measures_importance : bool
        Whether the prepared statistic also has `curve` and `importance`, as `WCMMD` has; if not, those of `WCMMD` with
        its defaults are reported.
    takes_weights, takes_missing : bool
        Whether it supports weighted rows, and columns with NaN for missing values. Otherwise these are refused.
    in_pieces : bool
        The same for tables in pieces. What is prepared is then a `SummedStatistic`, or has an analytic tail.
    takes_clusters, takes_feature_groups : bool
        The same for clusters of rows and for groups of columns, which need an analytic tail.
    needs_treatment : bool
        Whether the distribution of a feature must be that given the treatment.
    cv_repeats : int
        Number of cross-fits that it needs folds for.

    Examples
    --------
    >>> from modifind import ModifierSelector
    >>> from modifind.statistics import Statistic
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> class Covariance(Statistic):  # squared covariance of feature, treatment less score, and outcome
    ...     name = "covariance"
    ...     def prepare(self, nuisances):
    ...         self.outcome_, self.arms_ = nuisances.outcome, nuisances.arms
    ...         return self
    ...     def value(self, column):
    ...         return float(((self.arms_ - column.scores) * column.values * self.outcome_).mean() ** 2)
    >>> selector = ModifierSelector(Covariance(), "gaussian", n_resamples=199, explain=False, random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).result_.table["p_value"].idxmin()
    'X1'
    """

    name: ClassVar[str] = ""
    null_hypothesis: ClassVar[str] = "the outcome is independent of the feature"
    tail: ClassVar[Literal["resampled", "analytic"]] = "resampled"
    two_sided: ClassVar[bool] = False
    measures_importance: ClassVar[bool] = False
    in_pieces: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    takes_clusters: ClassVar[bool] = False
    takes_feature_groups: ClassVar[bool] = False
    needs_treatment: ClassVar[bool] = False
    cv_repeats: int = 0
    device: str = "cpu"

    @property
    def resamples(self) -> bool:
        """Whether p-values come from resampled copies of the feature."""
        return self.tail == "resampled"

    @property
    def follows_scores(self) -> bool:
        """Whether propensity scores are re-evaluated at resampled values or kept."""
        return True

    def check(self) -> None:
        """Refuse settings that are invalid for any table."""

    def check_in_pieces(self) -> None:
        """Refuse settings that need all rows at once."""

    def validate(self, family: Family, *, weighted: bool = False) -> None:
        """Refuse settings that are invalid for outcomes of a family, or for rows with weights."""
        if family.link.scale != "difference":
            raise ValueError(
                f"effect_scale={family.link.scale!r} needs statistic='effect_likelihood'; {called(self)} compares "
                "outcomes as they are"
            )
        if weighted and not self.takes_weights:
            raise ValueError(
                f"{called(self)} does not support sample weights; leave sample_weight out, and use "
                "missing_outcome='drop' where outcomes are missing"
            )

    def repeated(self, prepared: Any, nuisances: Nuisances) -> Any:
        """`prepared` averaged with cross-fits by the folds of `nuisances`; None if folds have no influence."""
        return None

    def check_prepared(self, prepared: Any) -> None:
        """Refuse a prepared statistic that does not match the declared tail."""
        if self.tail == "analytic" and not isinstance(prepared, PreparedTerms):
            raise ValueError(
                f"{called(self)} has tail = 'analytic', but what it prepares, {type(prepared).__name__}, is not "
                "derived from modifind.statistics.PreparedTerms"
            )

    @abstractmethod
    def prepare(self, nuisances: Nuisances) -> Any:
        """Prepare the statistic for an outcome and a treatment: a `PreparedStatistic`, or a `PreparedTerms`."""


def called(statistic: Statistic) -> str:
    """Name of a statistic in messages."""
    return repr(statistic.name) if statistic.name else type(statistic).__name__


def refuse_clusters(statistic: Statistic) -> None:
    """Refuse clusters for a statistic that does not support them."""
    if not statistic.takes_clusters and statistic.tail == "analytic":
        raise ValueError(
            f"{called(statistic)} assumes independent rows; set takes_clusters = True, or leave clusters out"
        )
    if not statistic.takes_clusters:
        raise ValueError(
            "clusters needs statistic='effect_likelihood'; "
            f"resampled features of {called(statistic)} assume independent rows"
        )


def refuse_gaps(statistic: Statistic, incomplete: Sequence[str]) -> None:
    """Refuse columns with missing values for a statistic that does not support them."""
    if incomplete and not statistic.takes_missing:
        raise ValueError(
            f"{called(statistic)} does not support missing values (found in {named(incomplete)}); fill them, use "
            "missing='drop', or set takes_missing = True if it handles NaN"
        )


def check_statistic(given: Any, names: tuple[str, ...]) -> None:
    """Refuse an object that is not a statistic, naming what it lacks."""
    if isinstance(given, Statistic):
        if given.tail not in ("resampled", "analytic"):
            raise ValueError(f"{called(given)}: tail must be 'resampled' or 'analytic', not {given.tail!r}")
        if given.tail == "resampled" and (given.takes_clusters or given.takes_feature_groups):
            raise ValueError(
                f"{called(given)} is tested by resamples, which need one column and independent rows: "
                "takes_clusters and takes_feature_groups must be False, or tail = 'analytic'"
            )
        return
    known = ", ".join(map(repr, names))
    if isinstance(given, str):
        raise ValueError(f"statistic must be one of {known} or a statistic, not {given!r}")
    check_part("statistic", given)
    lacks = "" if callable(getattr(given, "prepare", None)) else ", which has no method prepare"
    raise ValueError(
        f"statistic must be one of {known}, or an object of a class derived from modifind.statistics.Statistic, "
        f"not {type(given).__name__}{lacks}"
    )

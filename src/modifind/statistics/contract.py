"""What a statistic must have, so that the engine can test features with it.

A statistic measures one column of feature values against the outcome and the treatment. It is either compared with its
own values on resampled copies of the feature (`Statistic.resamples`), which any function of a column can be, or it is a
sum over rows with an analytic tail. Statistics of users are of the first kind: a class with `prepare`, whose result has
`value`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import check_part, named

if TYPE_CHECKING:
    from modifind.statistics.families import Family


@dataclass(frozen=True)
class Nuisances:
    """What a statistic is prepared from.

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
    weights : array of shape (n,), optional
        Weight of each row, with mean 1.
    clusters : int array of shape (n,), optional
        Which rows belong together.
    n_jobs : int, optional
        Processes.
    in_pieces : bool
        Whether these are rows of a table in pieces: nuisances are fitted to them, and sums are those of all rows.
    outcome_limits : tuple of two floats, optional
        Range of the outcome over all of its rows; None where these rows have every value of it.
    family : Family, optional
        What the outcome is, and the scale on which effects on it are compared; by default as `families.family_of` sees
        it.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.feature_matrix import FeatureTable
    >>> from modifind.statistics import Nuisances
    >>> table = FeatureTable(("age",), np.array([[40.0], [50.0], [60.0], [70.0]]), (None,))
    >>> outcome, arms, scores = np.array([1.0, 2.0, 2.0, 4.0]), np.array([0, 1, 0, 1]), np.full(4, 0.5)
    >>> given = Nuisances(table, outcome, arms, scores, seed=np.random.SeedSequence(0))
    >>> given.weights is None, given.in_pieces
    (True, False)
    """

    table: FeatureTable
    outcome: Array
    arms: Ints
    scores: Array
    seed: np.random.SeedSequence
    folds: tuple[Ints, ...] = ()
    weights: Array | None = None
    clusters: Ints | None = None
    n_jobs: int | None = None
    in_pieces: bool = False
    outcome_limits: tuple[float, float] | None = None
    family: Family | None = None


@dataclass(frozen=True)
class Column:
    """One column of values to be measured: the feature as observed, or a resampled copy of it.

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
        Of a table in pieces, whose rows these are some of: what values of all rows lie between.

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
    """A statistic that knows the outcome and the treatment."""

    def value(self, column: Column) -> float:
        """The larger, the more the feature seems to modify the effect."""


class SummedStatistic(PreparedStatistic, Protocol):
    """One whose value follows from sums over rows, in one or more passes; that is what a table in pieces needs."""

    def at(self, outcome: Array, arms: Ints, weights: Array | None = None) -> SummedStatistic:
        """The same for other rows."""

    def sums(self, column: Column, known: tuple[Any, ...] = ()) -> Any:
        """What these rows add in the next pass; sums of sets of rows are added up by ``+``.

        `known` has the sums of all rows of each pass before.
        """

    def value_of(self, known: tuple[Any, ...]) -> float | None:
        """The value of a column from the sums of all rows; None where another pass is needed."""


class Statistic(BaseEstimator, ABC):
    """Base of the statistics. Subclasses implement `prepare`, and set what they can do beyond that.

    Attributes
    ----------
    name : str
        Its name in messages and results.
    null_hypothesis : str
        What its p-values are valid under, before "given the other features".
    resamples : bool
        Whether p-values come from resampled copies of the feature.
    measures_importance : bool
        Whether the prepared statistic also has `curve` and `importance`, as `WCMMD` has; if not, those of `WCMMD` with
        its defaults are reported.
    takes_weights, takes_missing : bool
        Whether it can be evaluated on weighted rows, and on columns with NaN for missing values. What it cannot is
        refused.
    in_pieces : bool
        The same for tables in pieces: what is prepared is then a `SummedStatistic`.
    takes_clusters, takes_feature_groups : bool
        The same for rows that belong together and for several columns at once, which need an analytic tail.
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
    >>> selector = ModifierSelector(Covariance(), "gaussian", 0.5, n_resamples=199, explain=False, random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).result_.table["p_value"].idxmin()
    'X1'
    """

    name: ClassVar[str] = ""
    null_hypothesis: ClassVar[str] = "the outcome is independent of the feature"
    resamples: ClassVar[bool] = True
    measures_importance: ClassVar[bool] = False
    in_pieces: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    takes_clusters: ClassVar[bool] = False
    takes_feature_groups: ClassVar[bool] = False
    cv_repeats: int = 0
    device: str = "cpu"

    @property
    def follows_scores(self) -> bool:
        """Whether propensity scores are those of the resampled values, or stay as they are."""
        return True

    def check(self) -> None:
        """Refuse settings that have no meaning for any table."""

    def check_in_pieces(self) -> None:
        """Refuse settings that need all rows at once."""

    def validate(self, family: Family, *, weighted: bool = False) -> None:
        """Refuse settings that have no meaning for outcomes of a family, or for rows with weights."""
        if family.link.scale != "difference":
            raise ValueError(
                f"effect_scale={family.link.scale!r} needs statistic='effect_likelihood'; {called(self)} compares "
                "outcomes as they are"
            )
        if weighted and not self.takes_weights:
            raise ValueError(
                f"{called(self)} takes no weights of rows; leave sample_weight out, and use missing_outcome='drop' "
                "where outcomes are missing"
            )

    @abstractmethod
    def prepare(self, nuisances: Nuisances) -> Any:
        """The statistic for an outcome and a treatment: an object with `value`, see `PreparedStatistic`."""


def called(statistic: Statistic) -> str:
    """How messages call a statistic."""
    return repr(statistic.name) if statistic.name else type(statistic).__name__


def refuse_clusters(statistic: Statistic) -> None:
    """Refuse clusters for a statistic that takes none."""
    if not statistic.takes_clusters:
        raise ValueError(
            "clusters needs statistic='effect_likelihood'; "
            f"resampled features of {called(statistic)} take rows as independent"
        )


def refuse_gaps(statistic: Statistic, incomplete: Sequence[str]) -> None:
    """Refuse columns with missing values for a statistic that takes none."""
    if incomplete and not statistic.takes_missing:
        raise ValueError(
            f"{called(statistic)} takes no missing values, which there are in {named(incomplete)}; fill them, use "
            "missing='drop', or set takes_missing = True if NaN is dealt with"
        )


def check_statistic(given: Any, names: tuple[str, ...]) -> None:
    """Refuse what is no statistic, and say what it lacks."""
    if isinstance(given, Statistic):
        if not given.resamples and not hasattr(given, "with_stack"):
            raise ValueError(f"{called(given)} must have resamples = True: it has no sums over rows to be tested by")
        if given.resamples and (given.takes_clusters or given.takes_feature_groups):
            raise ValueError(
                f"{called(given)} is tested by resamples, which need one column and independent rows: "
                "takes_clusters and takes_feature_groups must be False"
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

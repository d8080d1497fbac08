"""The contract of samplers: rules, conditional distributions and their calibration.

A *rule* is what a sampler has learned about one feature. Given rows of a table, it returns their distribution. Tables
in memory, blocks of long ones, groups of features and features with missing values all get theirs from rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable


@dataclass(frozen=True)
class Calibration:
    """How well a distribution predicts rows it was not fitted on.

    Attributes
    ----------
    sampler : str
        The sampler that made the distribution.
    pit_distance : float
        Kolmogorov-Smirnov distance of the held-out probability integral transform from uniform (continuous features;
        NaN for discrete ones). A value that several rows share is spread over the probability that it stands for.
    pit_p_value : float
        P-value of that distance.
    log_score_gain : float
        Held-out log-score of the binned value minus that of the marginal distribution, in nats per row. At or below
        zero the other features tell nothing about this one.
    explained_share : float
        That gain as a share of what perfect prediction would gain. Near one the feature is a function of the others.
    pit_histogram : tuple of float
        Shares of the rows by tenths of that transform; empty where there is none.
    n_clusters : int
        Number of clusters that the distribution was fitted to; 0 for a distribution of rows.

    Examples
    --------
    >>> from modifind.nuisance.conditional import Calibration
    >>> Calibration("known", pit_distance=0.02, pit_p_value=0.7, log_score_gain=0.1).explained_share
    0.0
    """

    sampler: str
    pit_distance: float
    pit_p_value: float
    log_score_gain: float
    explained_share: float = 0.0
    pit_histogram: tuple[float, ...] = ()
    n_clusters: int = 0


class Conditional(Protocol):
    """The estimated distribution of one feature given all else, row by row.

    A distribution may also have `grid(rows)`, its points and weights, each of shape (rows, g), every row's weights
    adding up to 1; one that has not is summarised by some of its draws. One that has `quantiles(levels)`, values at
    levels between 0 and 1 of shape (k, n), is resampled by it where a table is in pieces; any other by its weighted
    points.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.conditional import ConditionalGrid
    >>> class Coin:  # a feature that a coin decided, in three rows
    ...     def draw(self, rng, n_draws):
    ...         return rng.integers(0, 2, (n_draws, 3)).astype(float)
    >>> points, weights = ConditionalGrid.of(Coin(), n_rows=3, n_levels=2).at(slice(0, 3))
    >>> points.shape, weights.sum(axis=1).round(6).tolist()
    ((3, 2), [1.0, 1.0, 1.0])
    """

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """`n_draws` resampled columns, shape (n_draws, n); codes for a discrete feature."""


Rows: TypeAlias = slice | Ints


class RowGrid(Protocol):
    """The distribution of a feature, or of several together, given all else, as weighted points for any rows."""

    def at(self, rows: Ints) -> tuple[Array, Array]:
        """Points and weights, each of shape (rows, g); points of several features have one more axis for these."""


class ConditionalRule(Protocol):
    """The distribution of one feature given all else, for any rows.

    A rule may also have `fitted`, the distribution of the rows that it was learned from, where more is known about
    these: the fold of a row, the residuals near its own. Rules are sent to every worker, without such rows.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.conditional import Calibration
    >>> from modifind.nuisance.conditional.base import NormalConditional
    >>> class Standard:  # a feature that is a standard normal variable, whatever the others are
    ...     calibration = Calibration("known", float("nan"), float("nan"), 0.0)
    ...     def conditional(self, table, treatment, parts):
    ...         return NormalConditional(np.zeros(table.n_rows), 1.0, self.calibration)
    >>> Standard().calibration.sampler
    'known'
    """

    @property
    def calibration(self) -> Calibration:
        """How well the rule predicts rows it was not fitted on."""

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> Any:
        """The distribution of some rows; `parts` are numbers that say which of several models scores a row."""


Rule = TypeVar("Rule")


def fitted_conditional(rule: Any, table: FeatureTable, treatment: Ints) -> Any:
    """The distribution of the rows that a rule was learned from."""
    fitted = getattr(rule, "fitted", None)
    if fitted is None:
        fitted = rule.conditional(table, treatment, np.zeros(table.n_rows, dtype=np.int64))
    return fitted


def without_rows(rule: Rule) -> Rule:
    """The rule alone, which is small."""
    return rule if getattr(rule, "fitted", None) is None else replace(rule, fitted=None)  # type: ignore[type-var]


def for_draws(rule: Rule) -> Rule:
    """The rule without its rows, but with the quantile functions that numbers are drawn from, where it has any."""
    windows = getattr(getattr(rule, "fitted", None), "windows", None)
    if windows is None or windows.discrete:
        return without_rows(rule)
    return replace(rule, fitted=None, windows=windows.drawable)  # type: ignore[type-var]


def check_rule(rule: Any, sampler: Any) -> None:
    """Refuse what a sampler returns for a rule if it lacks something."""
    _refuse_lack(rule, f"{type(sampler).__name__}.rule", "calibration", "conditional")


def check_conditional(conditional: Any, rule: Any, needed: str) -> None:
    """Refuse what a rule returns for a conditional distribution if it lacks the method that is needed."""
    _refuse_lack(conditional, f"{type(rule).__name__}.conditional", needed)


def _refuse_lack(value: Any, source: str, *needed: str) -> None:
    lacks = [name for name in needed if not hasattr(value, name)]
    if lacks:
        raise ValueError(f"what {source} returns, {type(value).__name__}, has no {' and no '.join(lacks)}")

"""What samplers share: the interface, the distributions that they fit and how their calibration is measured.

A *sampler* estimates, for each feature m, the distribution of X_m given the other features (and the treatment), as a
rule for any rows (module `rules`). A *distribution*, which is a rule applied to some rows, draws new columns from it,
and may also write itself as a few weighted points per row (module `grid`).
Draws come one resample after the other from one random stream, so that the number of resamples asked for at a time
never changes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import GivenWeights, Weights
from modifind.nuisance.conditional.contract import Calibration, ConditionalRule, Rows, fitted_conditional
from modifind.nuisance.conditional.grid import (
    NORMAL_POINTS,
    NORMAL_WEIGHTS,
    code_grid,
    window_grid,
)
from modifind.nuisance.conditional.level_shares import level_shares
from modifind.nuisance.conditional.pit import pit_shares, tie_cells, uniformity
from modifind.nuisance.conditional.window_quantiles import WindowQuantiles

N_BINS = 20
MANY_COLUMNS = 100
N_NEIGHBOURS = 60  # columns that are looked at where there are more than that
MIXTURE = 1e-3


class BaseSampler(BaseEstimator, ABC):
    """Base of the samplers. Subclasses implement `rule`, and `_prepare` if features share work.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables. The null hypothesis that ignorability gives is
        "Y independent of X_m given the other features and the treatment", so it should be; the paper leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.feature_matrix import FeatureTable
    >>> from modifind.nuisance.conditional import BaseSampler, Calibration
    >>> from modifind.nuisance.conditional.base import NormalConditional
    >>> class Standard:
    ...     calibration = Calibration("known", float("nan"), float("nan"), 0.0)
    ...     def conditional(self, table, treatment, parts):
    ...         return NormalConditional(np.zeros(table.n_rows), 1.0, self.calibration)
    >>> class StandardNormal(BaseSampler):  # features that are standard normal variables, whatever the others are
    ...     def rule(self, feature):
    ...         return Standard()
    >>> table = FeatureTable(("x",), np.zeros((5, 1)), (None,))
    >>> sampler = StandardNormal().fit(table, np.array([0, 1, 0, 1, 0]), np.random.SeedSequence(0))
    >>> sampler.conditional(0).draw(np.random.default_rng(0), 2).shape
    (2, 5)
    """

    name: str
    condition_on_treatment = True
    learns = False  # what it knows of a feature comes from the table alone, so that any columns will do

    def __init__(self, *, condition_on_treatment: bool = True) -> None:
        self.condition_on_treatment = condition_on_treatment

    def fit(
        self, table: FeatureTable, treatment: Ints, seed: np.random.SeedSequence, weights: GivenWeights = None
    ) -> BaseSampler:
        """Take the data; the work per feature is done by `rule`.

        With `weights`, one number per row of mean 1, distributions are those of the population that the weighted rows
        stand for.
        """
        self.table_ = self._read(table)
        self.weights_ = Weights.of(weights, table.n_rows)
        self.treatment_ = treatment
        self.seeds_ = seed.spawn(table.n_features)
        arms = treatment if self.condition_on_treatment else None
        self.level_shares_ = level_shares(self.table_, arms, self.weights_)
        self._prepare(seed)
        return self

    def _read(self, table: FeatureTable) -> FeatureTable:
        """The table as the sampler needs it."""
        return table

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """What is done once for all features."""

    @abstractmethod
    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature, for any rows.

        Parameters
        ----------
        feature : int
            Position of the feature.
        """

    def conditional(self, feature: int) -> Any:
        """The distribution of the rows that the sampler was fitted to: the rule of a feature, applied to them."""
        return fitted_conditional(self.rule(feature), self.table_, self.treatment_)

    def assign_folds(self, folds: Ints, *, whole_clusters: bool = False) -> None:
        """Cross-fit distributions by these folds at the next `fit`, so that a rule scores no row by what has seen it.

        With `whole_clusters` they keep together what belongs together, and a sample of the rows must do so too.
        """
        self.assigned_folds_ = folds
        self.whole_clusters_ = whole_clusters

    def _folds(self, n_folds: int, rng: np.random.Generator) -> Ints:
        """Fold of each row: drawn, or as assigned for these rows unless all of them lie in one."""
        drawn = row_folds(self.table_.n_rows, n_folds, rng)
        assigned = getattr(self, "assigned_folds_", drawn)
        if assigned.size != drawn.size:
            return drawn
        folds = assigned % n_folds
        return folds if (folds != folds[0]).any() else drawn

    def _inputs(self, feature: int) -> Array:
        extra = self.treatment_ - self.treatment_.mean() if self.condition_on_treatment else None
        return self.table_.design_without(feature, extra, self.level_shares_)

    def _with_treatment(self, chosen: NDArray[np.intp], inputs: Array) -> NDArray[np.intp]:
        """Positions of chosen inputs in ascending order, with the treatment, which is last, where it is among them."""
        given = [inputs.shape[1] - 1] if self.condition_on_treatment else []
        return np.union1d(chosen, given).astype(np.intp)


@dataclass(frozen=True)
class NormalConditional:
    """Normal with a mean per row and one standard deviation."""

    mean: Array
    scale: float
    calibration: Calibration

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns."""
        return self.quantiles(rng.random((n_draws, self.mean.size)))

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n)."""
        return self.mean + self.scale * ndtri(np.maximum(levels, 2.0**-54))

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Equally spaced normal scores."""
        points = self.mean[rows, None] + self.scale * NORMAL_POINTS
        return points, np.broadcast_to(NORMAL_WEIGHTS, points.shape)


@dataclass(frozen=True)
class CategoricalConditional:
    """Category probabilities per row, stored cumulatively and without the last column."""

    cumulative: Array
    calibration: Calibration

    @classmethod
    def of(cls, probabilities: Array, calibration: Calibration) -> CategoricalConditional:
        """From probabilities of shape (n, k)."""
        return cls(np.cumsum(probabilities, axis=1)[:, :-1], calibration)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled codes."""
        return self.quantiles(rng.random((n_draws, self.cumulative.shape[0])))

    def quantiles(self, levels: Array) -> Array:
        """Codes at levels between 0 and 1, shape (k, n)."""
        codes = np.zeros(levels.shape)
        for edge in self.cumulative.T:
            codes += levels > edge
        return codes

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """The codes and their probabilities."""
        probabilities = np.diff(self.cumulative[rows], axis=1, prepend=0.0, append=1.0)
        return code_grid(np.maximum(probabilities, 0.0))  # rounding may carry a cumulative sum beyond 1


@dataclass(frozen=True)
class PoolConditional:
    """Draws from a window of a pool of values, the window being each row's own, times `scale` plus `shift`.

    A pool of codes says by `n_levels` how many there are. Values are drawn in proportion to `weights`.
    """

    pool: Array
    start: Ints
    size: Ints
    calibration: Calibration
    shift: Array
    scale: Array
    weights: Weights
    n_levels: int = 0

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns; of numbers, values between neighbours of a window too."""
        uniform = rng.random((n_draws, self.start.size))
        quantiles = self.window_quantiles
        if quantiles is not None:
            return self.shift + self.scale * quantiles(self._windows[1], uniform)
        if self.weights.uniform:
            return self.pool[self.start + (uniform * self.size).astype(np.int64)]
        steps = np.concatenate(([0.0], np.cumsum(self.weights.values)))
        low, last = steps[self.start], self.start + self.size - 1
        place = np.searchsorted(steps, low + uniform * (steps[last + 1] - low), side="right") - 1
        return self.pool[np.clip(place, self.start, last)]

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Atoms and cell means of each row's window, or the codes and their frequencies in it."""
        points, weights, window = self.window_grids
        window = window[rows]
        return self.shift[rows, None] + self.scale[rows, None] * points[window], weights[window]

    @cached_property
    def _windows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first row of each distinct window, and the window of each row."""
        key = self.start * (self.pool.size + 1) + self.size
        _, first, window = np.unique(key, return_index=True, return_inverse=True)
        return first, window

    @cached_property
    def window_quantiles(self) -> WindowQuantiles | None:
        """Quantile functions of the distinct windows; None for codes, whose frequencies tell all."""
        first = self._windows[0]
        if self.n_levels:
            return None
        return WindowQuantiles.of(self.pool, self.start[first], self.size[first], self.weights)

    @cached_property
    def window_grids(self) -> tuple[Array, Array, NDArray[np.intp]]:
        """Points and weights of the distinct windows, and the window of each row: many rows share one."""
        first, window = self._windows
        parts = [slice(self.start[row], self.start[row] + self.size[row]) for row in first]
        pools = [(self.pool[part], self.weights[part]) for part in parts]
        if self.n_levels:
            counts = [own.shares(pool, self.n_levels) for pool, own in pools]
            return *code_grid(np.stack(counts)), window
        points, weights = zip(*(window_grid(*pool) for pool in pools), strict=True)
        return np.stack(points), np.stack(weights), window


def row_folds(n_rows: int, n_folds: int, rng: np.random.Generator) -> Ints:
    """Fold number of each row; folds differ by at most one row."""
    return rng.permutation(np.arange(n_rows) % n_folds)


def column_atoms(values: Array) -> Array:
    """Values that a continuous column piles up on, such as zero cigarettes; ordinary rounding is no atom."""
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[(counts >= values.size / N_BINS) & (counts >= 5 * np.median(counts))]


def value_bins(values: Array) -> Array:
    """Inner bin edges at quantiles of a column; atoms keep a bin of their own."""
    edges = np.quantile(values, np.arange(1, N_BINS) / N_BINS)
    atoms = column_atoms(values)
    return np.unique(np.concatenate((edges, atoms, np.nextafter(atoms, -np.inf))))


def binned_log_score(values: Array, edges: Array, cumulative: Array) -> Array:
    """Log-probability, row by row, of the bin that holds the value.

    `cumulative` has the distribution's distribution function at each edge, shape (rows, edges). A little of the uniform
    distribution over bins is mixed in, so that an empty bin costs much but not infinity.
    """
    padded = np.concatenate((np.zeros((values.size, 1)), cumulative, np.ones((values.size, 1))), axis=1)
    place = np.searchsorted(edges, values, side="left")
    rows = np.arange(values.size)
    probability = padded[rows, place + 1] - padded[rows, place]
    return np.log((1 - MIXTURE) * np.maximum(probability, 0.0) + MIXTURE / (edges.size + 1))


def marginal_log_score(values: Array, edges: Array, weights: Weights) -> Array:
    """Log-score of the column's own bin frequencies."""
    place = np.searchsorted(edges, values, side="left")
    return np.log(weights.shares(place, edges.size + 1)[place])


def normal_scores(values: Array, mean: Array, scale: Array | float, edges: Array) -> tuple[Array, Array]:
    """PIT, shape (n, 2) as in `uniformity`, and binned log-scores of normal predictions."""
    scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), values.shape)
    pit = ndtr((tie_cells(values) - mean[:, None]) / scale[:, None])
    cumulative = ndtr((edges - mean[:, None]) / scale[:, None])
    return pit, binned_log_score(values, edges, cumulative)


def continuous_calibration(
    sampler: str,
    pit: Array,
    score: Array,
    column: Array,
    edges: Array,
    weights: Weights,
    rows: Rows = slice(None),
) -> Calibration:
    """Calibration from PIT values, shape (n, 2) as in `uniformity`, and log-scores of held-out `rows` of a column."""
    own = weights[rows]
    gain, share = _gain(score, marginal_log_score(column, edges, weights)[rows], own)
    return Calibration(sampler, *uniformity(pit, own), gain, share, pit_shares(pit, own))


def category_score(codes: Array, probabilities: Array) -> Array:
    """Log-probability of each row's category, with the same small mixture as for bins."""
    n, k = probabilities.shape
    chosen = probabilities[np.arange(n), codes.astype(np.intp)]
    return np.log((1 - MIXTURE) * chosen + MIXTURE / k)


def discrete_calibration(sampler: str, codes: Array, score: Array, weights: Weights) -> Calibration:
    """Calibration from held-out log-scores of categories."""
    place = codes.astype(np.intp)
    marginal = np.log(weights.shares(place, 0)[place])
    gain, share = _gain(score, marginal, weights)
    return Calibration(sampler, float("nan"), float("nan"), gain, share)


def _gain(score: Array, marginal: Array, weights: Weights) -> tuple[float, float]:
    """Mean gain over the marginal log-score, and its share of what perfect prediction gains."""
    gain, ceiling = float(weights.mean(score - marginal)), -float(weights.mean(marginal))
    return gain, gain / ceiling if ceiling > 0 else 0.0

"""What every conditional sampler shares: the interface, the laws it fits and how their calibration is measured.

A *sampler* estimates, for each feature m, the law of X_m given the other features (and the treatment). A *law* draws
new columns from it. Draws come one resample after the other from one random stream, so that the number of resamples
asked for at a time never changes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import kstest
from sklearn.base import BaseEstimator

from modifind.features import FeatureTable
from modifind.kernels import Array

N_BINS = 20
MIXTURE = 1e-3


@dataclass(frozen=True)
class Calibration:
    """How well a law predicts rows it was not fitted on.

    Attributes
    ----------
    sampler : str
        The sampler that made the law.
    pit_distance : float
        Kolmogorov-Smirnov distance of the held-out probability integral transform from uniform (continuous features;
        NaN for discrete ones).
    pit_p_value : float
        P-value of that distance.
    log_score_gain : float
        Held-out log-score of the binned value minus that of the marginal law, in nats per row. At or below zero the
        other features tell nothing about this one.
    explained_share : float
        That gain as a share of what perfect prediction would gain. Near one the feature is a function of the others.
    """

    sampler: str
    pit_distance: float
    pit_p_value: float
    log_score_gain: float
    explained_share: float = 0.0


class FeatureLaw(Protocol):
    """The estimated law of one feature given all else, row by row."""

    @property
    def calibration(self) -> Calibration:
        """How well the law predicts rows it was not fitted on."""

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """`n_draws` resampled columns, shape (n_draws, n); codes for a discrete feature."""


class BaseSampler(BaseEstimator, ABC):
    """Base of the samplers. Subclasses implement `law`; those with joint work to do also extend `fit`.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables. The null hypothesis that ignorability gives is
        "Y independent of X_m given the other features and the treatment", so it should be; the paper leaves it out.
    """

    name: str

    def __init__(self, *, condition_on_treatment: bool = True) -> None:
        self.condition_on_treatment = condition_on_treatment

    def fit(self, table: FeatureTable, treatment: NDArray[np.int64], seed: np.random.SeedSequence) -> BaseSampler:
        """Take the data; the work per feature is done by `law`."""
        self.table_ = table
        self.treatment_ = treatment
        self.seeds_ = seed.spawn(table.n_features)
        return self

    @abstractmethod
    def law(self, feature: int) -> FeatureLaw:
        """Fit the law of one feature."""

    def _inputs(self, feature: int) -> Array:
        extra = self.treatment_ - self.treatment_.mean() if self.condition_on_treatment else None
        return self.table_.design_without(feature, extra)


@dataclass(frozen=True)
class NormalLaw:
    """Normal with a mean per row and one standard deviation."""

    mean: Array
    scale: float
    calibration: Calibration

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns."""
        return self.mean + self.scale * ndtri(open_uniform(rng, n_draws, self.mean.size))


@dataclass(frozen=True)
class CategoricalLaw:
    """Category probabilities per row, stored cumulatively and without the last column."""

    cumulative: Array
    calibration: Calibration

    @classmethod
    def of(cls, probabilities: Array, calibration: Calibration) -> CategoricalLaw:
        """From probabilities of shape (n, k)."""
        return cls(np.cumsum(probabilities, axis=1)[:, :-1], calibration)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled codes."""
        uniform = rng.random((n_draws, self.cumulative.shape[0]))
        codes = np.zeros(uniform.shape)
        for edge in self.cumulative.T:
            codes += uniform > edge
        return codes


@dataclass(frozen=True)
class PoolLaw:
    """Draws from a window of a pool of values, the window being each row's own, times `scale` plus `shift`."""

    pool: Array
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    calibration: Calibration
    shift: Array
    scale: Array

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns."""
        uniform = rng.random((n_draws, self.start.size))
        return self.shift + self.scale * self.pool[self.start + (uniform * self.size).astype(np.int64)]


def open_uniform(rng: np.random.Generator, n_draws: int, n_rows: int) -> Array:
    """Uniform numbers inside (0, 1), one 64-bit word each, so that streams do not depend on how they are cut."""
    return np.maximum(rng.random((n_draws, n_rows)), 2.0**-54)


def row_folds(n_rows: int, n_folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
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

    `cumulative` has the law's distribution function at each edge, shape (rows, edges). A little of the uniform law
    over bins is mixed in, so that an empty bin costs much but not infinity.
    """
    padded = np.concatenate((np.zeros((values.size, 1)), cumulative, np.ones((values.size, 1))), axis=1)
    place = np.searchsorted(edges, values, side="left")
    rows = np.arange(values.size)
    probability = padded[rows, place + 1] - padded[rows, place]
    return np.log((1 - MIXTURE) * np.maximum(probability, 0.0) + MIXTURE / (edges.size + 1))


def marginal_log_score(values: Array, edges: Array) -> Array:
    """Log-score of the column's own bin frequencies."""
    place = np.searchsorted(edges, values, side="left")
    counts = np.bincount(place, minlength=edges.size + 1)
    return np.log(counts[place] / values.size)


def normal_scores(values: Array, mean: Array, scale: Array | float, edges: Array) -> tuple[Array, Array]:
    """PIT values and binned log-scores of normal predictions."""
    scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), values.shape)
    pit = ndtr((values - mean) / scale)
    cumulative = ndtr((edges - mean[:, None]) / scale[:, None])
    return pit, binned_log_score(values, edges, cumulative)


def continuous_calibration(sampler: str, pit: Array, score: Array, marginal: Array) -> Calibration:
    """Calibration from held-out PIT values and log-scores."""
    test = kstest(pit, "uniform")
    gain, share = _gain(score, marginal)
    return Calibration(sampler, float(test.statistic), float(test.pvalue), gain, share)


def category_score(codes: Array, probabilities: Array) -> Array:
    """Log-probability of each row's category, with the same small mixture as for bins."""
    n, k = probabilities.shape
    chosen = probabilities[np.arange(n), codes.astype(np.intp)]
    return np.log((1 - MIXTURE) * chosen + MIXTURE / k)


def discrete_calibration(sampler: str, codes: Array, score: Array) -> Calibration:
    """Calibration from held-out log-scores of categories."""
    place = codes.astype(np.intp)
    marginal = np.log(np.bincount(place)[place] / codes.size)
    gain, share = _gain(score, marginal)
    return Calibration(sampler, float("nan"), float("nan"), gain, share)


def _gain(score: Array, marginal: Array) -> tuple[float, float]:
    """Mean gain over the marginal log-score, and its share of what perfect prediction gains."""
    gain, ceiling = float((score - marginal).mean()), -float(marginal.mean())
    return gain, gain / ceiling if ceiling > 0 else 0.0

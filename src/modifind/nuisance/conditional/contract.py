"""Contract of samplers: rules, conditional distributions, and their calibration on held-out rows.

A *rule* is what a sampler has learned about one feature. Given rows of a table, it returns their distribution. Tables
in memory, blocks of long ones, groups of features and features with missing values all get theirs from rules.

Under a correct distribution the probability integral transform of a value is uniform if only one row has it. A value
shared by k rows, through rounding or because the distribution has an atom there, represents an interval of probability,
every part of which is equally likely. Such rows are spread evenly over their interval (Czado, Gneiting and Held,
Biometrics 2009), which needs no random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import kstwo

from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights


@dataclass(frozen=True)
class Calibration:
    """How well a distribution predicts rows to which it was not fitted.

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
    """Estimated distribution of one feature given all others, row by row.

    A distribution may also have `grid(rows)`, its points and weights, each of shape (rows, g), with the weights of
    every row adding up to 1; otherwise it is summarised by draws. With `quantiles(levels)`, values at levels between 0
    and 1 of shape (k, n), it is resampled by these for tables in pieces; otherwise by its weighted points.

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
    """Distribution of a feature, or jointly of several, given all others, as weighted points for any rows."""

    def at(self, rows: Ints) -> tuple[Array, Array]:
        """Points and weights, each of shape (rows, g); with several features the points have an additional axis."""


class ConditionalRule(Protocol):
    """Distribution of one feature given all others, for any rows.

    A rule may also have `fitted`, the distribution of its training rows, about which more is known: the fold of a row,
    the residuals near its own. Rules are sent to every worker, without these rows.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.conditional import Calibration
    >>> from modifind.nuisance.conditional.distributions import NormalConditional
    >>> class Standard:  # a feature that is a standard normal variable, whatever the others are
    ...     calibration = Calibration("known", float("nan"), float("nan"), 0.0)
    ...     def conditional(self, table, treatment, parts):
    ...         return NormalConditional(np.zeros(table.n_rows), 1.0, self.calibration)
    >>> Standard().calibration.sampler
    'known'
    """

    @property
    def calibration(self) -> Calibration:
        """How well the rule predicts rows to which it was not fitted."""

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> Any:
        """Distribution of some rows; `parts` are numbers that determine which of several models scores a row."""


Rule = TypeVar("Rule")


def fitted_conditional(rule: Any, table: FeatureTable, treatment: Ints) -> Any:
    """Distribution of the rows from which a rule was learned."""
    fitted = getattr(rule, "fitted", None)
    if fitted is None:
        fitted = rule.conditional(table, treatment, np.zeros(table.n_rows, dtype=np.int64))
    return fitted


def without_rows(rule: Rule) -> Rule:
    """The rule without its training rows, which is small."""
    return rule if getattr(rule, "fitted", None) is None else replace(rule, fitted=None)  # type: ignore[type-var]


def for_draws(rule: Rule) -> Rule:
    """The rule without its training rows, but with the quantile functions from which numbers are drawn, if any."""
    windows = getattr(getattr(rule, "fitted", None), "windows", None)
    if windows is None or windows.discrete:
        return without_rows(rule)
    return replace(rule, fitted=None, windows=windows.drawable)  # type: ignore[type-var]


def check_rule(rule: Any, sampler: Any) -> None:
    """Refuse a rule returned by a sampler if it is incomplete."""
    _refuse_lack(rule, f"{type(sampler).__name__}.rule", "calibration", "conditional")


def check_conditional(conditional: Any, rule: Any, needed: str) -> None:
    """Refuse a distribution returned by a rule if it lacks the required method."""
    _refuse_lack(conditional, f"{type(rule).__name__}.conditional", needed)


def _refuse_lack(value: Any, source: str, *needed: str) -> None:
    lacks = [name for name in needed if not hasattr(value, name)]
    if lacks:
        raise ValueError(f"what {source} returns, {type(value).__name__}, has no {' and no '.join(lacks)}")


NARROW = 1e-6  # probability below which an interval is a point
N_TENTHS = 10
CALIBRATION_DRAWS = 64
N_BINS = 20
MIXTURE = 1e-3  # of the even distribution, so that what has no chance costs much but not infinity


def tie_cells(column: Array) -> Array:
    """Interval represented by each value under a distribution without atoms, shape (n, 2).

    A unique value represents itself. A shared one has been rounded: it represents everything nearer to it than to the
    adjacent values of the column.

    Examples
    --------
    >>> import numpy as np
    >>> tie_cells(np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0])).tolist()
    [[1.0, 1.0], [1.5, 2.5], [1.5, 2.5], [3.0, 3.0], [4.0, 6.0], [4.0, 6.0]]
    """
    distinct, place, counts = np.unique(column, return_inverse=True, return_counts=True)
    if distinct.size == column.size or distinct.size == 1:
        return np.column_stack((column, column))
    half = np.diff(distinct) / 2
    below, above = np.concatenate((half[:1], half)), np.concatenate((half, half[-1:]))
    shared = counts > 1
    return np.column_stack((distinct - shared * below, distinct + shared * above))[place]


def uniformity(pit: Array, weights: Weights | None = None) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance from uniform, and its p-value.

    Parameters
    ----------
    pit : array of shape (n, 2)
        Lower and upper end of each row's interval of probability; the same number where the value is no tie.
    weights : Weights, optional
        How much each row counts.

    Returns
    -------
    distance, p_value : float
        The p-value is that of n single numbers, n being the effective number of rows where there are weights. Spread
        rows vary less, so it is on the safe side of an alarm.

    Examples
    --------
    >>> import numpy as np
    >>> zeros = np.tile([0.0, 0.6], (60, 1))
    >>> others = np.repeat(np.linspace(0.61, 0.99, 40), 2).reshape(40, 2)
    >>> distance, p_value = uniformity(np.concatenate((zeros, others)))
    >>> round(distance, 2), round(p_value, 2)
    (0.01, 1.0)
    """
    low, high = pit[:, 0], pit[:, 1]
    wide = high - low > NARROW
    weights = Weights.of(weights, low.size)
    counts, n_rows = weights.values, max(round(weights.effective_size), 1)
    points = (low[~wide] + high[~wide]) / 2
    order = np.argsort(points, kind="stable")
    points, reached = points[order], np.concatenate(([0.0], np.cumsum(counts[~wide][order])))
    slopes = counts[wide] / (high[wide] - low[wide])
    kinks = np.concatenate((low[wide], high[wide], points))
    order = np.argsort(kinks, kind="stable")
    kinks = kinks[order]
    turns = np.concatenate((slopes, -slopes, np.zeros(points.size)))[order]
    rise = np.concatenate(([0.0], np.cumsum(np.cumsum(turns)[:-1] * np.diff(kinks))))
    steps = [reached[np.searchsorted(points, kinks, side=side)] for side in ("left", "right")]
    distance = max(float(np.abs((rise + step) / counts.sum() - kinks).max()) for step in steps)
    return distance, float(np.clip(kstwo.sf(distance, n_rows), 0.0, 1.0))


def pit_shares(pit: Array, weights: Weights | None = None) -> tuple[float, ...]:
    """Shares of the rows by tenths of the probability integral transform; a row counts in every tenth of its interval.

    Parameters are those of `uniformity`.

    Examples
    --------
    >>> import numpy as np
    >>> pit_shares(np.array([[0.0, 0.2], [0.95, 0.95]]))
    (0.25, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5)
    """
    low, high = np.clip(pit[:, 0], 0.0, 1.0), np.clip(pit[:, 1], 0.0, 1.0)
    wide = high - low > NARROW
    counts = Weights.of(weights, low.size).values
    edges = np.linspace(0.0, 1.0, N_TENTHS + 1)
    points = (low[~wide] + high[~wide]) / 2
    shares = np.histogram(points, edges, weights=counts[~wide])[0].astype(np.float64)
    density = counts[wide] / (high[wide] - low[wide])
    for k in range(N_TENTHS):
        inside = np.minimum(high[wide], edges[k + 1]) - np.maximum(low[wide], edges[k])
        shares[k] += density @ np.maximum(inside, 0.0)
    return tuple((shares / counts.sum()).tolist())


def column_atoms(values: Array) -> Array:
    """Values on which a continuous column piles up, such as zero cigarettes; ordinary rounding is not an atom."""
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[(counts >= values.size / N_BINS) & (counts >= 5 * np.median(counts))]


def value_bins(values: Array) -> Array:
    """Inner bin edges at quantiles of a column; atoms get bins of their own."""
    edges = np.quantile(values, np.arange(1, N_BINS) / N_BINS)
    atoms = column_atoms(values)
    return np.unique(np.concatenate((edges, atoms, np.nextafter(atoms, -np.inf))))


def binned_log_score(values: Array, edges: Array, cumulative: Array) -> Array:
    """Log-probability of the bin that contains the value, by row.

    `cumulative` has the distribution function at each edge, shape (rows, edges). A small share of the uniform
    distribution over bins is mixed in, so that an empty bin is costly but not infinitely so.
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
    held = weights[rows]
    gain, share = _gain(score, marginal_log_score(column, edges, weights)[rows], held)
    return Calibration(sampler, *uniformity(pit, held), gain, share, pit_shares(pit, held))


def category_score(codes: NDArray[Any], probabilities: Array) -> Array:
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
    """Mean gain over the marginal log-score, and its share of the gain of perfect prediction."""
    gain, ceiling = float(weights.mean(score - marginal)), -float(weights.mean(marginal))
    return gain, gain / ceiling if ceiling > 0 else 0.0


def decoder_calibration(
    name: str, decoder: Any, column: Array, rows: Ints, rng: np.random.Generator, weights: Weights
) -> Calibration:
    """Calibration of a decoder of latent draws on held-out rows; `weights` are those of all rows."""
    held, values = decoder.at(rows), column[rows]
    latents = (held.latent(rng) for _ in range(CALIBRATION_DRAWS))
    if decoder.n_levels:
        score = category_score(values, np.mean([held.probabilities(latent) for latent in latents], axis=0))
        return discrete_calibration(name, values, score, weights[rows])
    # Normal distribution functions averaged over latent draws: far less noise than counts of drawn values.
    edges, cells = value_bins(column), tie_cells(column)[rows]
    pit, cumulative = np.zeros((rows.size, 2)), np.zeros((rows.size, edges.size))
    for mean, scale in map(held.moments, latents):
        scale = np.maximum(scale, np.finfo(float).tiny)
        pit += ndtr((cells - mean[:, None]) / scale[:, None]) / CALIBRATION_DRAWS
        cumulative += ndtr((edges - mean[:, None]) / scale[:, None]) / CALIBRATION_DRAWS
    score = binned_log_score(values, edges, cumulative)
    return continuous_calibration(name, pit, score, column, edges, weights, rows)

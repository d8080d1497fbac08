r"""The direct component of the test: functions of a feature that are known beforehand, times scores of the rows.

The likelihood of `effect_likelihood` follows a feature as models have learned it from other rows, and learning a
direction on some rows to test it on others loses power. Here nothing about the feature is learned. With e a row's
propensity score and V drawn from the distribution of the feature given the other features and the treatment, a
direction of the test is

    sum_i (a_i - e_i) g_i (h(x_im) - E h(V_i))

for a few scores g of the row and a few functions h of the feature: a line, a ramp about the median and a bend, or
indicators of levels.

*The score of the location* is that of the arms' contrast at its null value, and E h(V) is weighted by the information
on the contrast, so that an error that all rows share drops out. A line, a threshold in the middle or a level is found
with the power of the interaction test that one would do by hand. Amounts also have the score of their scale.

*Numbers* have a scale and a shape, and the likelihood weighs down the very rows that rare severe events make. Their
further scores are functions of the standardised residual u at the contrasts' null values: that of the scale; u^2, cut
off far out, for tails; the cubic Hermite polynomial of the normal score of u for skewness; and a cosine, the part of a
kernel that sees two modes where there was one. Each is taken less the mean of the row's arm, over rows weighted by the
chance to be in the other arm. Tails or skewness weigh more where the arms differ in them as a whole: a table in which
the treatment changes the shape of the outcome is one in which a feature may change that. Whether they differ is
uncorrelated with whether the difference follows a feature, unless the feature changes tails or skewness of both arms;
that costs at most a hundredth at the level of 0.05. The cosine never weighs more. Where the arms differ in it, errors
of the location and scale that they share move its mean in one arm and not in the other, and errors follow features.

*The null hypothesis* is that of the main test. Where the treatment does nothing, residuals of both arms have one
distribution given x and ``a - e`` has mean zero: what changes alike in both arms is not found. Where the outcome is
independent of X_m given the rest, h(x) - E h(V) has mean zero. The variance is that of the rows themselves, or of
clusters of rows, about the effect that would make the sum, as in a Wald test with HC3 errors; so no noise is too heavy
for the level. Indicators of levels are judged together, by the sum of their squared standardised sums. All p-values are
combined with that of the likelihood by their weighted Cauchy combination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from modifind._typing import Array, Ints
from modifind.data.features import Feature, FeatureTable, members_of
from modifind.nuisance.conditional.contract import RowGrid

MAX_SQUARE = 100.0
FREQUENCY = 2.5  # of the cosine, per unit of residuals
# Weight of all directions beside the likelihood, where numbers or ordered levels are among them and where none are; of
# scores among the directions; and of functions of a number that the score of the location is multiplied by.
NUMBER_WEIGHT, LEVELS_WEIGHT = 0.83, 0.85
CONTRAST_SCORES = {"location": 0.7, "scale": 0.3}
SHAPE_SCORES = {"location": 0.8, "scale": 0.08, "tails": 0.035, "skewness": 0.06, "modes": 0.025}
LEVELS_SHAPE_SCORES = {"location": 0.86, "scale": 0.06, "tails": 0.03, "skewness": 0.03, "modes": 0.02}
CHANGED_SCORE = 0.3  # in place of the weight above, for such a score of shape in which the arms differ as a whole:
# not for the cosine, whose mean moves with errors of the common location and scale at a rate that differs between arms
# of different shape, nor for the scale, as arms are measured by scales that make that of residuals equal.
RAISED_SCORES = ("tails", "skewness")
LOCATION_FUNCTIONS = {"line": 0.645, "ramp": 0.225, "bend": 0.05, "top": 0.04, "bottom": 0.04}
OTHER_FUNCTIONS = {"scale": "line", "tails": "ramp", "skewness": "ramp", "modes": "ramp"}
MISSING_SHARE = 0.3
MAX_LEVELS = 20
MIN_LEVEL_ROWS = 10  # in either arm
FLAT_SHARE = 0.02  # of values that a line may be flat for,
MAX_LINE = 3.0  # robust standard deviations from the median, beyond which it is flat,
MAX_BEND = 2.0  # and its square
RAMP = 4.0  # times the rank
RAMP_SHARE = 0.1  # share of the rows over which a ramp goes up and stays
MAX_RANKS = 1001  # values whose ranks are kept
BLOCK_ROWS = 4096
NORMAL_IQR = 1.349


@dataclass(frozen=True)
class Ranks:
    """Empirical distribution function of a sample, with values between 0 and 1.

    Attributes
    ----------
    values, ranks : array
        Distinct values, at most 1,001 of them, and the share of values below, ties counted half.
    """

    values: Array
    ranks: Array

    @classmethod
    def of(cls, values: Array) -> Ranks:
        """Take a sample."""
        distinct, counts = np.unique(values, return_counts=True)
        ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
        kept = np.unique(np.linspace(0, distinct.size - 1, MAX_RANKS).astype(np.int64))
        return cls(distinct[kept], ranks[kept])

    def __call__(self, values: Array) -> Array:
        """Ranks of values in the sample, interpolated linearly."""
        return np.interp(values, self.values, self.ranks)


def residual_scores(residual: Array, ranks: Ranks, by_scale: Array) -> Array:
    """Scores of standardised residuals for scale, tails, skewness and modes, on a last axis.

    `by_scale` is the derivative of their log-density by the log-scale.
    """
    normal = ndtri(ranks(residual))
    tails, modes = np.minimum(residual**2, MAX_SQUARE), np.cos(FREQUENCY * residual)
    return np.stack((by_scale, tails, normal**3 - 3 * normal, modes), axis=-1)


@dataclass(frozen=True)
class _Number:
    """A line that flattens far from the median, a ramp about it, the line's square, and a ramp at either end.

    Ramps detect thresholds. Steps would suit the data, but their means under a distribution represented by 25 points
    jump. All functions are 0 where the value is missing.
    """

    ranks: Ranks
    median: float
    spread: float
    blocks = (("line", 1), ("ramp", 1), ("bend", 1), ("top", 1), ("bottom", 1))

    @classmethod
    def of(cls, values: Array) -> _Number:
        return cls(Ranks.of(values), *_median_and_spread(values))

    def __call__(self, values: Array) -> Array:
        line = np.clip((values - self.median) / self.spread, -MAX_LINE, MAX_LINE)
        ranks = self.ranks(values)
        ramp, bend = np.clip(RAMP * (2 * ranks - 1), -1.0, 1.0), np.minimum(np.abs(line), MAX_BEND) ** 2
        top, bottom = (np.clip(2 * (share - 1 + RAMP_SHARE) / RAMP_SHARE, 0.0, 1.0) for share in (ranks, 1 - ranks))
        functions = np.stack((line, ramp, bend, top, bottom), axis=-1)
        functions[np.isnan(values)] = 0.0
        return functions


@dataclass(frozen=True)
class _Levels:
    """Indicators of some levels, judged jointly; NaN stands for a missing value.

    Numeric levels also have a line along these, flat far from the median.
    """

    levels: Array
    numbers: Array | None = None

    @property
    def blocks(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the jointly judged sets."""
        together = (("levels", self.levels.size),)
        return together if self.numbers is None else (*together, ("line", 1))

    def __call__(self, values: Array) -> Array:
        values = values[..., None]
        has_level = ((values == self.levels) | (np.isnan(values) & np.isnan(self.levels))).astype(np.float64)
        if self.numbers is None:
            return has_level
        return np.concatenate((has_level, self.numbers[values.astype(np.intp)]), axis=-1)


FeatureFunction: TypeAlias = _Number | _Levels


@dataclass(frozen=True)
class ValueFunctions:
    """The functions h of one feature, or of the columns of a group.

    Attributes
    ----------
    columns : tuple of int
        Places of the columns in the table.
    parts : tuple
        For each function or pair of functions the place of its column in `columns`, and the function.
    """

    columns: tuple[int, ...]
    parts: tuple[tuple[int, FeatureFunction], ...]

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints, feature: Feature) -> ValueFunctions:
        """Functions that the rows of a table can identify."""
        columns = members_of(feature)
        parts: list[tuple[int, FeatureFunction]] = []
        for place, member in enumerate(columns):
            column = table.values[:, member]
            if table.is_constant(member):
                continue
            labels = table.categories[member]
            if labels is not None:
                levels = _common_levels(column, treatment)
                if levels.size:
                    parts.append((place, _Levels(levels, _numbers(labels, column))))
                continue
            seen = ~np.isnan(column)
            parts.append((place, _Number.of(column[seen])))
            if _is_common(~seen, treatment):
                parts.append((place, _Levels(np.array([np.nan]))))
        return cls(columns, tuple(parts))

    @property
    def blocks(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the jointly judged sets of functions."""
        return tuple(block for _, function in self.parts for block in function.blocks)

    def __call__(self, values: Array) -> Array:
        """Evaluate the functions; the last axis of `values` has the columns."""
        return np.concatenate([own(values[..., place]) for place, own in self.parts], axis=-1)

    def excess(
        self, table: FeatureTable, grid: RowGrid | None, informed: Array | None = None, known: Array | None = None
    ) -> Array:
        """Functions at every row's own values minus their mean under the distribution, if there is one.

        A common error of the contrast enters each row in proportion to the information on it. It cancels if means are
        taken with weights of the points in that proportion.

        Parameters
        ----------
        table : FeatureTable
            The rows.
        grid : RowGrid, optional
            The distribution.
        informed : array of shape (1 or 2, n, g), optional
            Weights of the points for the score of the location, and for the other scores where they differ from those
            of the distribution.
        known : array of shape (n, g), optional
            Weights of the points, where they have been evaluated before.

        Returns
        -------
        array of shape (n, 1 or 2, h)
            For all scores, or for that of the location and for the others.
        """
        observed = self(table.values[:, list(self.columns)])[:, None]
        if grid is None:
            return observed
        observed = np.repeat(observed, 1 if informed is None else 2, axis=1)
        for start in range(0, table.n_rows, BLOCK_ROWS):
            rows = np.arange(start, min(start + BLOCK_ROWS, table.n_rows))
            points, weights = grid.at(rows)
            functions = self(points[..., None] if points.ndim == 2 else points)
            sets = [] if informed is None else [own[rows] for own in informed]
            if len(sets) < 2:
                sets.append(weights if known is None else known[rows])
            for k, own in enumerate(sets):
                observed[rows, k] -= np.einsum("ij,ijh->ih", own, functions)
        return observed


def _common_levels(codes: Array, treatment: Ints) -> Array:
    """The most common levels that both arms contain."""
    levels, counts = np.unique(codes, return_counts=True)
    ordered = levels[np.argsort(-counts, kind="stable")]
    return np.array([level for level in ordered if _is_common(codes == level, treatment)][:MAX_LEVELS])


def _numbers(labels: tuple[Any, ...], codes: Array) -> Array | None:
    """Numeric values of the levels by code, in robust standard deviations; None with two levels or without numbers."""
    try:
        numbers = np.array([np.nan if label is None else float(label) for label in labels])
    except (TypeError, ValueError):
        return None
    known = np.isfinite(numbers)
    if known.sum() <= 2:
        return None
    seen = numbers[codes.astype(np.intp)]
    if not np.isfinite(seen).any():
        return None
    median, spread = _median_and_spread(seen[np.isfinite(seen)])
    return np.clip(np.where(known, numbers - median, 0.0) / spread, -MAX_LINE, MAX_LINE)


def _median_and_spread(values: Array) -> tuple[float, float]:
    """Median and robust standard deviation, widened so that a line is flat for few values only."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    distance = np.abs(values - median)
    spread = max((high - low) / NORMAL_IQR, np.quantile(distance, 1.0 - FLAT_SHARE) / MAX_LINE)
    return float(median), float(spread or distance.max() or 1.0)


def _is_common(rows: NDArray[np.bool_], treatment: Ints) -> bool:
    return bool(min(np.count_nonzero(rows & (treatment == arm)) for arm in (0, 1)) >= MIN_LEVEL_ROWS)


@dataclass(frozen=True)
class Scores:
    """Scores of rows for the direct component.

    Attributes
    ----------
    values : array of shape (n, s)
        The scores.
    slopes : array of shape (n, s)
        How much of each an effect along a function h adds per unit of h, up to a factor that rows share.
    names : tuple of str
        What the scores are of: "location" first.
    changed : tuple of str
        Those in which the arms differ as a whole.
    """

    values: Array
    slopes: Array
    names: tuple[str, ...]
    changed: tuple[str, ...] = ()

    def only(self, *names: str) -> Scores:
        """A subset of the scores."""
        places = [self.names.index(name) for name in names]
        return Scores(self.values[:, places], self.slopes[:, places], names, self.changed)

    def weights(self, functions: Sequence[str]) -> Mapping[str, float]:
        """Weight of each score in the combination, when multiplied by these functions of the feature."""
        if "tails" not in self.names:
            return CONTRAST_SCORES
        usual = SHAPE_SCORES if "ramp" in functions else LEVELS_SHAPE_SCORES
        return {**usual, **dict.fromkeys(self.changed, CHANGED_SCORE)}


@dataclass(frozen=True)
class DirectTerms:
    """Contributions of rows to sums that are tested two-sided.

    Attributes
    ----------
    terms : array of shape (n, k)
        What each row adds to each direction.
    slopes : array of shape (n, k)
        How much of that an effect along the direction adds, up to a factor that rows share.
    blocks : tuple of int
        Sizes of the sets of successive directions that are judged together.
    weights : tuple of float
        Weight of each of these sets in the combination of their p-values.
    weight : float
        Of all of them beside the likelihood.
    """

    terms: Array
    slopes: Array
    blocks: tuple[int, ...]
    weights: tuple[float, ...]
    weight: float = NUMBER_WEIGHT

    @classmethod
    def of(cls, terms: Array | DirectTerms) -> DirectTerms:
        """Terms from an array whose columns are weighted equally and judged separately."""
        if isinstance(terms, DirectTerms):
            return terms
        size = terms.shape[1]
        return cls(terms, np.ones(terms.shape), (1,) * size, (1.0 / size,) * size)

    @classmethod
    def along(cls, scores: Scores, excess: Array, blocks: tuple[tuple[str, int], ...]) -> DirectTerms:
        """Products of scores with the result of `ValueFunctions.excess`, each score with its suitable functions."""
        ends = np.cumsum([size for _, size in blocks])
        terms, slopes, sizes, weights = [], [], [], []
        functions = [block for block, _ in blocks]
        weight_of = scores.weights(functions)
        for k, name in enumerate(scores.names):
            along = excess[:, min(k, excess.shape[1] - 1)]
            shares = function_shares(name, functions)
            for end, (_, size), share in zip(ends, blocks, shares, strict=True):
                if share:
                    h = along[:, end - size : end]
                    terms.append(scores.values[:, k, None] * h)
                    slopes.append(scores.slopes[:, k, None] * h**2)
                    sizes.append(size)
                    weights.append(weight_of[name] * share)
        ordered = any(name != "levels" for name in functions)
        sums = np.concatenate(terms, axis=1), np.concatenate(slopes, axis=1), tuple(sizes), tuple(weights)
        return cls(*sums, NUMBER_WEIGHT if ordered else LEVELS_WEIGHT)


def function_shares(score: str, functions: Sequence[str]) -> list[float]:
    """Shares of functions of a feature in the weight of a score; 0 for functions that it does not use."""
    wanted = LOCATION_FUNCTIONS if score == "location" else {OTHER_FUNCTIONS[score]: 1.0}
    levels = MISSING_SHARE if "ramp" in functions else 1.0  # of a number they say that it is missing
    shares = [levels if function == "levels" else wanted.get(function, 0.0) for function in functions]
    return [share / (sum(shares) or 1.0) for share in shares]

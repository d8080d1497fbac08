"""Common part of both arms, their contrasts, and the share of the contrasts that held-out rows support."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.contract import observed_arm
from modifind.nuisance.outcome.stacking import WEIGHED_ROWS, CrossFit, arm_shapes
from modifind.nuisance.regression.penalised import random_rows
from modifind.statistics.direct import RAISED_SCORES, SHAPE_SCORES, Ranks, residual_scores
from modifind.statistics.families import Family

MAX_LOG_SCALE = 30.0  # of residuals in units of their median scale
MAX_BEYOND = float(np.log(2.0))  # of the mean contrast of log-scales beyond zero, or beyond that of the models
PILE_SHARE = 0.05  # of the rows
MAX_PILE_WIDTH = 0.04  # of such a share over the interquartile range; 0.09 for normal outcomes
BY_CHANCE = 2.5  # standard deviations by which the narrowest of many such widths is below its mean
MIN_SHAPE_SCORE = (
    2.0  # standard errors, by which the arms' mean scores of shape differ where the treatment changes the shape
)
PILED_RESIDUAL = 1e-3  # of a scale: where half of the residuals are smaller, rows pile up


@dataclass(frozen=True)
class CommonPart:
    """Location and scale common to the arms at each row, held fixed while a feature moves.

    Attributes
    ----------
    share : array of shape (n,)
        The treated arm's share of the precision of a location: its weight in the common location.
    location, log_scale : array of shape (n,)
        Common location, on the family's scale of effects, and log-scale; the arms lie on either side of them.
    precision : array of shape (n,)
        Of the contrast of locations, per pair of a treated and a control row.
    """

    share: Array
    location: Array
    log_scale: Array
    precision: Array

    @classmethod
    def of(cls, family: Family, location: Array, scale: Array, scores: Array, level: float = 0.0) -> CommonPart:
        """Common part of predictions of shape (n, 2), at the contrast of the arms that all rows share."""
        share, common = _common(family, location, family.variance(location, scale), scores)
        precision = null_precision(family, location, scale, scores, level)
        return cls(share, common, np.log(scale).mean(axis=1), precision)

    def at(self, rows: Ints) -> CommonPart:
        """The common part of a subset of the rows."""
        return CommonPart(self.share[rows], self.location[rows], self.log_scale[rows], self.precision[rows])


def _common(family: Family, location: Array, variance: Array, scores: Array) -> tuple[Array, Array]:
    """The treated arm's share of the information on eta, and the arms' common eta; the arms are the last axis."""
    eta = family.eta(location)
    treated, control = scores / variance[..., 1], (1 - scores) / variance[..., 0]
    share = treated / (treated + control)
    return share, (1 - share) * eta[..., 0] + share * eta[..., 1]


def null_precision(family: Family, location: Array, scale: Array, scores: Array, level: float) -> Array:
    """Information on the contrast of locations, relative to that of the assignment; arms on the last axis.

    If the variance depends on the location, it is evaluated where the arms are `level` apart around their common part:
    at the models' own contrast, rows in which one arm hardly ever has the outcome would count for nothing, so that
    stronger modifications would be harder to detect.
    """
    variance = family.variance(location, scale)
    if not family.has_shape:
        share, common = _common(family, location, variance, scores)
        null = np.stack((common - share * level, common + (1 - share) * level), axis=-1)
        variance = family.variance(family.location(null), scale)
    return _contrast_precision(variance, scores)


def _contrast_precision(variance: Array, scores: Array) -> Array:
    return 1.0 / (scores * variance[..., 0] + (1 - scores) * variance[..., 1])


@dataclass(frozen=True)
class ArmTraits:
    """Properties of whole arms, estimated from out-of-fold rows.

    Attributes
    ----------
    family : Family
        That of the outcome.
    shapes : tuple of two floats
        Shape of each arm, such as degrees of freedom; infinite where a family has none.
    shape : float
        Those of both arms together. The test measures residuals of both arms by one density: two that differ by
        chance would find a difference between arms of the same distribution, wherever that distribution is not the
        density's.
    location, scale : tuple of two floats
        Shift and share: of the models' contrast c of locations, or of log-scales, ``shift + share * c`` is what
        held-out rows bear out. Where arms do not differ both are near zero, and residuals of both arms are measured
        alike.
    level : float
        The contrast of locations that all rows share: the models' own, averaged by the information on it.
    ranks : Ranks, optional
        Of residuals of both arms, where outcomes have a shape and do not pile up (`is_piled`).
    scores : array of shape (2, k)
        Mean of each arm's scores of residuals (`direct.residual_scores`), rows weighted by the chance to be in the
        other arm; empty where there are no ranks.
    changed : tuple of str
        The scores of shape in which the arms differ as a whole, of those that may weigh more then (tails, skewness).
    """

    family: Family
    shapes: tuple[float, float]
    shape: float
    location: tuple[float, float]
    scale: tuple[float, float]
    level: float
    ranks: Ranks | None = None
    scores: Array = field(default_factory=lambda: np.zeros((2, 0)))
    changed: tuple[str, ...] = ()

    @classmethod
    def of(cls, family: Family, cross: CrossFit, y: Array, a: Ints, scores: Array, weights: Weights) -> ArmTraits:
        """Estimate the traits from the rows of a cross-fit."""
        row_shapes = arm_shapes(y, a, cross.location, cross.scale, family=family, weights=weights)
        shapes = float(row_shapes[np.argmax(a == 0)]), float(row_shapes[np.argmax(a == 1)])
        shape = family.best_shape(
            family.residual(y, observed_arm(cross.location, a), observed_arm(cross.scale, a)), weights
        )
        rows = random_rows(y.size, WEIGHED_ROWS)
        location, scale = cross.location[rows], cross.scale[rows]
        common = CommonPart.of(family, location, scale, scores[rows])
        y, a, scores, weights = y[rows], a[rows], scores[rows], weights[rows]
        calibration = _calibration(family, location, scale, common, y, a, shape, weights)
        apart = contrasts(family, location, scale)
        precision = Weights.of(weights.times(_contrast_precision(family.variance(location, scale), scores)))
        traits = cls(family, shapes, shape, *calibration, float(precision.mean(apart[0])))
        if not family.has_shape or is_piled(y[weights.values > 0]):
            return traits
        residual, _, _ = traits.residuals(common, y, a, *apart)
        ranks = Ranks.of(residual[weights.values > 0])
        by_row = residual_scores(residual, ranks, family.scale_score(residual, shape))
        # Rows are weighted as in a comparison of the arms, so that in each arm their sum is zero.
        compared = Weights.of(weights.times(np.abs(a - scores)))
        arms = [_mean_and_variance(compared[a == arm], by_row[a == arm]) for arm in (0, 1)]
        means, variances = np.array(arms).swapaxes(0, 1)
        differs = np.abs(means[1] - means[0]) > MIN_SHAPE_SCORE * np.sqrt(variances.sum(axis=0))
        named = zip(SHAPE_SCORES, (False, *differs), strict=True)  # the location is none of them
        changed = tuple(name for name, differ in named if differ and name in RAISED_SCORES)
        return replace(traits, ranks=ranks, scores=means, changed=changed)

    def residuals(
        self, common: CommonPart, y: Array, arm: Ints, location_contrast: Array, scale_contrast: Array
    ) -> tuple[Array, Array, Array]:
        """Standardised residuals at given contrasts of the arms, the units, and eta.

        The contrasts are shrunk to what held-out rows support.
        """
        eta = self.eta(common, arm, location_contrast)
        unit = np.ones(y.size)
        if self.family.has_scale:
            unit = np.exp(common.log_scale + (arm - 0.5) * (self.scale[0] + self.scale[1] * scale_contrast))
        return self.family.residual(y, self.family.location(eta), unit), unit, eta

    def eta(self, common: CommonPart, arm: Ints | float, contrast: Array) -> Array:
        """Eta of an arm at a contrast of the arms, shrunk to what held-out rows support."""
        return common.location + (arm - common.share) * (self.location[0] + self.location[1] * contrast)


def _mean_and_variance(weights: Weights, scores: Array) -> tuple[Array, Array]:
    """Weighted mean of each column, and the variance of that mean."""
    mean = weights.mean(scores)
    return mean, np.square(weights.times(scores - mean)).sum(axis=0) / weights.values.sum() ** 2


def is_piled(y: Array) -> bool:
    """Whether a twentieth of the outcomes lie closer together than chance explains: at zero, or on a few values.

    There, a small error of the arms' contrast moves one arm's residuals beyond all of the other's, so that any
    curvature produces a difference.
    """
    ordered = np.sort(y)
    step = max(int(PILE_SHARE * y.size), 1)
    low, high = np.quantile(ordered, (0.25, 0.75))
    narrow = MAX_PILE_WIDTH * max(1.0 - BY_CHANCE / np.sqrt(step), 0.0)
    return float((ordered[step:] - ordered[:-step]).min()) <= narrow * float(high - low or ordered.std())


def contrasts(family: Family, location: Array, scale: Array) -> tuple[Array, Array]:
    """Difference of the arms' locations and of their log-scales; arms are the last axis."""
    eta = family.eta(location)
    return eta[..., 1] - eta[..., 0], np.log(scale[..., 1] / scale[..., 0])


def _calibration(
    family: Family,
    location: Array,
    scale: Array,
    common: CommonPart,
    y: Array,
    arm: Ints,
    shape: float,
    weights: Weights,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Maximum likelihood shift and shrinkage of both contrasts, with shrinkage factors between 0 and 1."""
    moved, eta, unit = family.rebased(y, common.location, observed_arm(scale, arm))
    apart = contrasts(family, location / unit, scale)
    middle = [float(weights.mean(contrast)) for contrast in apart]
    by_location = np.stack((np.ones(y.size), apart[0] - middle[0])) * (arm - common.share)
    by_scale = np.stack((np.ones(y.size), apart[1] - middle[1])) * (arm - 0.5)
    log_scale = common.log_scale - np.log(unit)
    start = [middle[0], 0.5]
    bounds: list[Any] = [(None, None), (0.0, 1.0)]
    if family.has_scale:
        # Rows that pile up on one value fit the better the smaller their arm's scale is taken to be; that says nothing
        # of how the arms differ.
        start += [middle[1], 0.5]
        bounds += [(min(middle[1], 0.0) - MAX_BEYOND, max(middle[1], 0.0) + MAX_BEYOND), (0.0, 1.0)]
        distance = np.abs(y - observed_arm(location, arm))
        if family.has_shape and np.median(distance) < PILED_RESIDUAL * np.median(observed_arm(scale, arm)):
            start[2:], bounds[2:] = [0.0, 0.0], [(0.0, 0.0), (0.0, 0.0)]

    def loss(free: Array) -> tuple[float, Array]:
        along = log_scale
        if family.has_scale:
            along = np.clip(log_scale + free[2:] @ by_scale, -MAX_LOG_SCALE, MAX_LOG_SCALE)
        likelihood, scores = family.log_density_and_scores(moved, eta + free[:2] @ by_location, along, shape)
        slope = np.concatenate([by * score for by, score in zip((by_location, by_scale), scores, strict=False)])
        return -float(weights.mean(likelihood)), -weights.mean(slope.T)

    settings = {"ftol": 1e-13, "gtol": 1e-8}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=settings).x.tolist()
    shifts, shares = (*best[::2], middle[1]), (*best[1::2], 1.0)  # the last where there is no scale
    first = unit * float(shifts[0] - shares[0] * middle[0]), float(shares[0])
    return first, (float(shifts[1] - shares[1] * middle[1]), float(shares[1]))

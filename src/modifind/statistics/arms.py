"""What out-of-fold residuals tell of the two arms, and how their precision is shared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind.kernels import Array
from modifind.learners.stacking import EDGE, CrossFit, arm_shapes, own_arm
from modifind.rows.weights import mean_of

MIN_CURVATURE = 0.1


@dataclass(frozen=True)
class ArmTraits:
    """What out-of-fold residuals tell of each arm as a whole.

    Attributes
    ----------
    shapes : tuple of two floats
        Degrees of freedom; infinite for a binary outcome.
    curvatures : tuple of two floats
        Expected curvature of the log-density, in units of the scale: outliers and skewness lower it.
    """

    shapes: tuple[float, float]
    curvatures: tuple[float, float]

    @classmethod
    def of(
        cls, cross: CrossFit, y: Array, a: NDArray[np.int64], binary: bool, weights: Array | None = None
    ) -> ArmTraits:
        """From the rows that the models were cross-fitted on."""
        shape = arm_shapes(y, a, cross.location, cross.scale, binary=binary, sample_weight=weights)
        first, second = (float(shape[np.argmax(a == arm)]) for arm in (0, 1))
        if binary:
            return cls((first, second), (1.0, 1.0))
        u = ((y - own_arm(cross.location, a)) / own_arm(cross.scale, a)) ** 2
        curvature = (shape + 1) * (shape - u) / (shape + u) ** 2
        per_arm = [None if weights is None else weights[a == arm] for arm in (0, 1)]
        low, high = (max(float(mean_of(curvature[a == arm], per_arm[arm])), MIN_CURVATURE) for arm in (0, 1))
        return cls((first, second), (low, high))


def treated_share(cross: CrossFit, traits: ArmTraits, scores: Array, binary: bool) -> Array:
    """Share of the precision at each row's features that the treated arm has: the weight of its errors."""
    if binary:
        probability = np.clip(cross.location, EDGE, 1 - EDGE)
        treated, control = (1.0 / (probability[:, arm] * (1 - probability[:, arm])) for arm in (1, 0))
    else:
        treated, control = (traits.curvatures[arm] / cross.scale[:, arm] ** 2 for arm in (1, 0))
    treated, control = scores * treated, (1 - scores) * control
    return treated / (treated + control)

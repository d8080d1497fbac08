"""The distribution of a feature where the arms overlap, by which a comparison of the arms must be centred."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.feature_groups import Feature, columns_of, encode, members_of
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.propensity.scores import FittedPropensity


@dataclass(frozen=True)
class OverlapConditional:
    r"""A feature's distribution given the others and the treatment, tilted by the chance to be in the other arm.

    A row counts with ``a - e(x)`` in a comparison of the arms, and e may follow the feature. With p the distribution of
    the feature given the others alone, its distribution in an arm is p times e or 1 - e, and tilted by the other of the
    two it is
    ``p e (1 - e)`` in both arms. A mean under it is the same for treated and control rows, so that what both arms have
    in common drops out of ``(a - e)(h(x) - mean of h)``; and given the arm, ``(a - e(V))(h(V) - mean of h)`` has mean
    zero, so that a feature on which the outcome does not depend is centred too. The untilted distribution does only the
    latter, and only for weights that do not follow the feature. Where e does not depend on the feature, nothing
    changes.

    Attributes
    ----------
    distribution : RowGrid
        The distribution.
    propensity : FittedPropensity
        Scores of the rows, also with other values of the feature.
    feature : int or tuple of int
        Place of the feature, or of the columns of a group.
    weights : array of shape (n, g), optional
        Weights of the points of all rows, where they are known.
    """

    conditional: RowGrid
    propensity: FittedPropensity
    feature: Feature
    weights: Array | None = None

    def at(self, rows: Ints) -> tuple[Array, Array]:
        """Points and weights of the tilted distribution."""
        points, weights = self.conditional.at(rows)
        if self.weights is not None:
            return points, self.weights[rows]
        if not self.propensity.models:
            return points, weights
        table = self.propensity.table
        tilted = self.propensity.along(rows, columns_of(table, self.feature), encode(table, self.feature, points))
        np.abs(np.subtract(tilted, self.propensity.treatment[rows, None], out=tilted), out=tilted)
        tilted *= weights
        tilted /= tilted.sum(axis=1, keepdims=True)
        return points, tilted

    def swept(self, weights: Array) -> OverlapConditional:
        """The same with weights that were computed for all rows, unless levels are combined."""
        gathered = any(m in self.propensity.table.level_columns for m in members_of(self.feature))
        return self if gathered else replace(self, weights=weights)

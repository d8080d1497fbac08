"""Smooth functions of one column: natural cubic splines in coordinates whose penalty is the identity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from modifind.kernels import Array

N_NODES = 129
MIN_DISTINCT = 11  # a column with fewer values is left to its indicators or to a straight line
TAIL = 0.002


@dataclass(frozen=True)
class ColumnBasis:
    """Functions of one design column: the column itself and, where it has enough values, deviations from a line.

    Attributes
    ----------
    centre, spread : float
        The linear function is ``(x - centre) / spread``.
    nodes : array of shape (n_nodes,)
        Where the nonlinear functions are tabulated, in units of the linear one. Between nodes they are interpolated,
        outside they are constant.
    table : array of shape (n_nodes, k)
        The nonlinear functions at the nodes, smoothest first and rougher ones smaller: a ridge penalty on their
        coefficients is the roughness penalty of a smoothing spline.
    """

    centre: float
    spread: float
    nodes: Array
    table: Array

    @property
    def width(self) -> int:
        """Number of functions."""
        return 1 + self.table.shape[1]

    @classmethod
    def of(cls, column: Array, n_knots: int) -> ColumnBasis:
        """Basis for a column; with fewer than four knots or eleven distinct values it is the straight line alone.

        Knots lie half way between the quantiles of the column and an even spacing. Quantiles alone leave the tails to
        one knot, and what a function does there would be taken for noise that grows in the tails.
        """
        centre, spread = float(column.mean()), float(column.std()) or 1.0
        line = cls(centre, spread, np.zeros(1), np.zeros((1, 0)))
        if n_knots < 4 or np.unique(column).size < MIN_DISTINCT:
            return line
        own = (column - centre) / spread
        steps = np.linspace(0.0, 1.0, n_knots)
        low, high = np.quantile(own, (TAIL, 1 - TAIL))
        knots = (np.quantile(own, steps) + low + (high - low) * steps) / 2
        knots[0], knots[-1] = own.min(), own.max()
        knots = np.unique(knots)
        if knots.size < 4 or np.diff(knots).min() < 1e-6:
            return line
        nodes = np.unique(np.concatenate((np.quantile(own, np.linspace(0.0, 1.0, N_NODES)), knots)))
        roughness, directions = np.linalg.eigh(_roughness(knots))
        cardinal = CubicSpline(knots, np.eye(knots.size), bc_type="natural")
        table = cardinal(nodes) @ (directions[:, 2:] / np.sqrt(roughness[2:]))
        # What a straight line can do is left to the linear function.
        ones = np.ones(own.size)
        at_rows = _interpolate(own, nodes, table)
        fit = np.linalg.lstsq(np.stack((ones, own), axis=1), at_rows, rcond=None)[0]
        table = table - fit[0] - nodes[:, None] * fit[1]
        size = float(np.sqrt(np.mean(np.sum(_interpolate(own, nodes, table) ** 2, axis=1))))
        return cls(centre, spread, nodes, table / size) if size > 0 else line

    def line(self, values: Array) -> Array:
        """The linear function alone."""
        return (values - self.centre) / self.spread

    def __call__(self, values: Array) -> Array:
        """The functions at values of any shape; their axis comes last."""
        own = self.line(values)
        if self.width == 1:
            return own[..., None]
        return np.concatenate((own[..., None], _interpolate(own, self.nodes, self.table)), axis=-1)

    def combine(self, values: Array, coefficients: Array) -> Array:
        """``self(values) @ coefficients``, without forming the functions at every value.

        Between nodes the sum is a straight line; the ends, where the nonlinear functions are constant, are two more.
        """
        own = self.line(values)
        if self.width == 1:
            return own[..., None] * coefficients[0]
        heights = self.table @ coefficients[1:]
        slopes = np.zeros((self.nodes.size + 1, heights.shape[1]))
        slopes[1:-1] = np.diff(heights, axis=0) / np.diff(self.nodes)[:, None]
        left = np.concatenate(([0], np.arange(self.nodes.size)))
        offsets = heights[left] - slopes * self.nodes[left, None]
        slopes += coefficients[0]
        place = np.searchsorted(self.nodes, own)
        total = slopes[place]
        total *= own[..., None]
        total += offsets[place]
        return total


def _roughness(knots: Array) -> Array:
    """Matrix K with ``f' K f`` the integrated squared second derivative of the natural spline through values f."""
    gap, n = np.diff(knots), knots.size
    second, band = np.zeros((n, n - 2)), np.zeros((n - 2, n - 2))
    for j in range(n - 2):
        second[j : j + 3, j] = 1 / gap[j], -1 / gap[j] - 1 / gap[j + 1], 1 / gap[j + 1]
        band[j, j] = (gap[j] + gap[j + 1]) / 3
        if j + 1 < n - 2:
            band[j, j + 1] = band[j + 1, j] = gap[j + 1] / 6
    return second @ np.linalg.solve(band, second.T)


def _interpolate(values: Array, nodes: Array, table: Array) -> Array:
    right = np.clip(np.searchsorted(nodes, values), 1, nodes.size - 1)
    left = right - 1
    share = np.clip((values - nodes[left]) / (nodes[right] - nodes[left]), 0.0, 1.0)[..., None]
    below = table[left]
    return below + share * (table[right] - below)

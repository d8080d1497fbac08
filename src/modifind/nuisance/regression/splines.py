"""Smooth functions of one column: natural cubic splines in coordinates whose penalty is the identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from modifind._typing import Array

N_NODES = 129
MIN_DISTINCT = 11  # a column with fewer values is left to its indicators or to a straight line
TAIL = 0.002


@dataclass(frozen=True)
class ColumnBasis:
    """Functions of one column: the column itself and, if it has enough distinct values, deviations from a line.

    Attributes
    ----------
    centre, spread : float
        The linear function is ``(x - centre) / spread``, as far as `reach`.
    nodes : array of shape (n_nodes,)
        Where the nonlinear functions are tabulated, in units of the linear one. Between nodes they are interpolated,
        outside they are constant.
    table : array of shape (n_nodes, k)
        The nonlinear functions at the nodes, smoothest first and rougher ones smaller: a ridge penalty on their
        coefficients is the roughness penalty of a smoothing spline.
    reach : pair of float
        Where the linear function ends: its range in the column, widened by its width on both sides. A line learned
        from the column says nothing of values a million standard deviations beyond it.
    """

    centre: float
    spread: float
    nodes: Array
    table: Array
    reach: tuple[float, float]

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
        low, high = ((float(end) - centre) / spread for end in (column.min(), column.max()))
        reach = 2 * low - high, 2 * high - low
        line = cls(centre, spread, np.zeros(1), np.zeros((1, 0)), reach)
        if n_knots < 4:
            return line
        ordered = np.sort((column - centre) / spread)
        if np.count_nonzero(np.diff(ordered)) + 1 < MIN_DISTINCT:
            return line
        steps = np.linspace(0.0, 1.0, n_knots)
        low, high = _quantiles(ordered, np.array([TAIL, 1 - TAIL]))
        knots = (_quantiles(ordered, steps) + low + (high - low) * steps) / 2
        knots[0], knots[-1] = ordered[0], ordered[-1]
        knots = np.unique(knots)
        if knots.size < 4 or np.diff(knots).min() < 1e-6:
            return line
        nodes = np.unique(np.concatenate((_quantiles(ordered, np.linspace(0.0, 1.0, N_NODES)), knots)))
        roughness, directions = np.linalg.eigh(_roughness(knots))
        cardinal = CubicSpline(knots, np.eye(knots.size), bc_type="natural")
        table = cardinal(nodes) @ (directions[:, 2:] / np.sqrt(roughness[2:]))
        # What a straight line can do is left to the linear function.
        inner = _inner_product(ordered, nodes)
        ones, at_nodes = np.ones((nodes.size, 1)), nodes[:, None]
        at_nodes = at_nodes - inner(ones, at_nodes)
        table = table - inner(ones, table)
        table = table - at_nodes * (inner(at_nodes, table) / inner(at_nodes, at_nodes))
        size = float(np.sqrt(inner(table, table).sum()))
        return cls(centre, spread, nodes, table / size, reach) if size > 0 else line

    def line(self, values: Array) -> Array:
        """The linear function alone."""
        return np.clip((values - self.centre) / self.spread, *self.reach)

    def __call__(self, values: Array) -> Array:
        """The functions at values of any shape; their axis comes last."""
        functions = np.empty((*values.shape, self.width))
        self.write(values, functions)
        return functions

    def write(self, values: Array, functions: Array) -> None:
        """The same, written to an existing array."""
        lines = functions[..., 0] = self.line(values)
        if self.width > 1:
            _interpolate(lines, self.nodes, self.table, functions[..., 1:])

    def combine(self, values: Array, coefficients: Array) -> Array:
        """``self(values) @ coefficients``, without forming the functions at every value.

        Between nodes the sum is a straight line; the ends, where the nonlinear functions are constant, are two more.
        In memory the outputs, which are on the last axis, come one after the other.
        """
        lines = self.line(values)
        if self.width == 1:
            return np.moveaxis(np.multiply.outer(coefficients[0], lines), 0, -1)
        heights = self.table @ coefficients[1:]
        slopes = np.zeros((self.nodes.size + 1, heights.shape[1]))
        slopes[1:-1] = np.diff(heights, axis=0) / np.diff(self.nodes)[:, None]
        left = np.concatenate(([0], np.arange(self.nodes.size)))
        offsets = heights[left] - slopes * self.nodes[left, None]
        slopes += coefficients[0]
        interval = np.searchsorted(self.nodes, lines)
        total = np.take(slopes.T, interval, axis=1)
        total *= lines
        total += np.take(offsets.T, interval, axis=1)
        return np.moveaxis(total, 0, -1)


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


def _quantiles(ordered: Array, shares: Array) -> Array:
    """Quantiles of values in ascending order."""
    position = shares * (ordered.size - 1)
    below = np.minimum(position.astype(np.int64), ordered.size - 2)
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])


def _inner_product(ordered: Array, nodes: Array) -> Callable[[Array, Array], Array]:
    """Mean over rows of the products of two sets of functions tabulated at nodes, column by column.

    Between two nodes functions are straight, so that three sums over the rows that lie there are all it takes.
    """
    count = np.diff(np.concatenate(([0], np.searchsorted(ordered, nodes[1:-1]), [ordered.size])))
    left = np.repeat(np.arange(nodes.size - 1), count)
    share = (ordered - nodes[left]) / np.diff(nodes)[left]
    first = np.bincount(left, share, minlength=nodes.size - 1)
    second = np.bincount(left, share**2, minlength=nodes.size - 1)

    def inner(one: Array, other: Array) -> Array:
        one_step, other_step = np.diff(one, axis=0), np.diff(other, axis=0)
        one, other = one[:-1], other[:-1]
        total = count @ (one * other) + first @ (one * other_step + one_step * other) + second @ (one_step * other_step)
        return total / ordered.size

    return inner


def _interpolate(values: Array, nodes: Array, table: Array, out: Array | None = None) -> Array:
    left = np.searchsorted(nodes[1:-1], values)
    below = nodes[left]
    share = np.clip((values - below) / (nodes[left + 1] - below), 0.0, 1.0)
    rise = np.take(np.diff(table, axis=0), left, axis=0)
    rise *= share[..., None]
    return np.add(np.take(table, left, axis=0), rise, out=out)

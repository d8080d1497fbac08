"""The terms of an additive model: lines, natural cubic splines of single columns, and products of two columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline

from modifind._typing import Array, Ints
from modifind.nuisance.regression.penalised import renumbered, row_blocks, scaled_gram

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
        """Basis for a column; with fewer than four knots or eleven distinct values only the straight line.

        Knots lie half way between the quantiles of the column and an even spacing. Quantiles alone leave the tails to
        one knot, so that the function's behaviour there would be mistaken for noise that grows in the tails.
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
        """Evaluate the functions at values of any shape; their axis comes last."""
        functions = np.empty((*values.shape, self.width))
        self.write(values, functions)
        return functions

    def write(self, values: Array, functions: Array) -> None:
        """Evaluate the functions into an existing array."""
        lines = functions[..., 0] = self.line(values)
        if self.width > 1:
            _interpolate(lines, self.nodes, self.table, functions[..., 1:])

    def combine(self, values: Array, coefficients: Array) -> Array:
        """``self(values) @ coefficients``, without evaluating the functions at every value.

        The sum is linear between nodes; it is extended linearly at both ends, where the nonlinear functions are
        constant. In memory each output, on the last axis, is contiguous.
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

    Functions are linear between nodes, so that three sums over the rows between them suffice.
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


MAX_PRODUCTS = 10


@dataclass(frozen=True)
class AdditiveTerms:
    """Maps rows to model terms: 1, then the functions of each column, then the products of pairs of columns.

    Attributes
    ----------
    bases : tuple of ColumnBasis
        Functions of each column.
    pairs : tuple of pairs of int
        Factors of each product: the line of a column, or, with the number of columns added, its bend, a hyperbola with
        its bottom at the column's mean.
    """

    bases: tuple[ColumnBasis, ...]
    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, X: Array, n_knots: int) -> AdditiveTerms:
        """Terms for the columns of a matrix; fewer than four knots give straight lines."""
        return cls(tuple(ColumnBasis.of(column, n_knots) for column in X.T))

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Terms of each column."""
        ends = 1 + np.cumsum([basis.width for basis in self.bases])
        return tuple(slice(int(end - b.width), int(end)) for end, b in zip(ends, self.bases, strict=True))

    @cached_property
    def degree(self) -> Ints:
        """0 for the intercept, lines and products; 1, 2, ... for the curves of a column, smoothest first."""
        curves = (np.arange(basis.width) for basis in self.bases)
        return np.concatenate([np.zeros(1), *curves, np.zeros(len(self.pairs))]).astype(np.int64)

    @cached_property
    def groups(self) -> Ints:
        """Penalty groups: 0 the intercept; one for each line, for each column's curves and for each product."""
        lines = np.cumsum(self.degree == 0) - 1
        curves = np.repeat(np.arange(len(self.bases)), [basis.width for basis in self.bases]) + 1 + lines[-1]
        groups = lines.copy()
        inner = slice(1, 1 + curves.size)
        groups[inner] = np.where(self.degree[inner] == 0, lines[inner], curves)
        return renumbered(groups)

    def __call__(self, X: Array) -> Array:
        """Terms of rows, shape (n, n_terms)."""
        terms = np.empty((X.shape[0], self.degree.size))
        for rows in row_blocks(X.shape[0]):
            block = terms[rows]
            block[:, 0] = 1.0
            for basis, terms_of, column in zip(self.bases, self.slices, X[rows].T.copy(), strict=True):
                basis.write(column, block[:, terms_of])
            for number, (j, k) in enumerate(self.pairs, start=self.degree.size - len(self.pairs)):
                block[:, number] = self._factor(j, X[rows]) * self._factor(k, X[rows])
        return terms

    def combine(self, X: Array, coefficients: Array) -> Array:
        """``self(X) @ coefficients``, shape (n, n_outputs), without forming the terms."""
        total = np.empty((X.shape[0], coefficients.shape[1]))
        products = coefficients[len(coefficients) - len(self.pairs) :]
        for rows in row_blocks(X.shape[0]):
            columns = X[rows].T.copy()
            block = np.repeat(coefficients[0][:, None], columns.shape[1], axis=1).T
            for basis, terms_of, column in zip(self.bases, self.slices, columns, strict=True):
                block += basis.combine(column, coefficients[terms_of])
            for weight, (j, k) in zip(products, self.pairs, strict=True):
                block += (self._factor(j, X[rows]) * self._factor(k, X[rows]))[:, None] * weight
            total[rows] = block
        return total

    def along(self, X: Array, columns: slice, points: Array, coefficients: Array, index: Array | None = None) -> Array:
        """``terms @ coefficients``, shape (n, g, n_outputs), when some columns take other values.

        Parameters
        ----------
        X : array of shape (n, p)
            Rows.
        columns : slice
            The columns that change.
        points : array of shape (n, g, width)
            Their values. Only the terms of these columns are evaluated anew.
        coefficients : array of shape (n_terms, n_outputs)
            Coefficients.
        index : array of shape (n, n_outputs), optional
            ``self(X) @ coefficients``, where it is known.
        """
        index = self.combine(X, coefficients) if index is None else index
        total = np.moveaxis(np.repeat(index.T[:, :, None], points.shape[1], axis=2), 0, -1)
        for j in range(columns.start, columns.stop):
            of_column = coefficients[self.slices[j]]
            total += self.bases[j].combine(points[..., j - columns.start], of_column)
            total -= self.bases[j].combine(X[:, j], of_column)[:, None, :]
        for weight, pair in zip(coefficients[len(coefficients) - len(self.pairs) :], self.pairs, strict=True):
            moving = [columns.start <= j % len(self.bases) < columns.stop for j in pair]
            if any(moving):
                before = after = np.ones((1, 1))
                for j, moves in zip(pair, moving, strict=True):
                    fixed = self._factor(j, X)[:, None]
                    before = before * fixed
                    after = after * (self._factor(j, points, columns.start) if moves else fixed)
                total += (after - before)[..., None] * weight
        return total

    def _factor(self, number: int, X: Array, first: int = 0) -> Array:
        """A factor of products, from arrays whose last axis has the columns from `first` on."""
        bent, column = divmod(number, len(self.bases))
        line = self.bases[column].line(X[..., column - first])
        return bend(line) if bent else line

    def with_products(self, X: Array, scores: list[list[Array]], rows: list[Ints]) -> AdditiveTerms:
        """The same terms plus the products suggested by scores.

        `scores` holds, for each kind of score (location, scale), one array per set of rows (the arms, or one set):
        derivatives of the log-likelihood row by row. Their correlations with all products of two columns cost one
        matrix product; a product, of two lines or of a line and a bend, is added if one arm, both together or their
        difference exceed what chance would give for the largest of so many.
        """
        n = len(self.bases)
        if n < 2:
            return self
        apart = np.nonzero(~np.eye(n, dtype=bool))
        first, second = np.concatenate((np.triu_indices(n, 1), (apart[0], n + apart[1])), axis=1)
        factors = [self._factors(X[r]) for r in rows]
        candidates: list[Array] = []
        for per_set in scores:
            z = [_product_scores(block, score)[first, second] for block, score in zip(factors, per_set, strict=True)]
            candidates += z if len(z) == 1 else [*z, (z[1] + z[0]) / np.sqrt(2), (z[1] - z[0]) / np.sqrt(2)]
        largest = np.abs(candidates).max(axis=0)
        limit = np.sqrt(2 * np.log(len(candidates) * first.size))
        order = np.argsort(-largest, kind="stable")[:MAX_PRODUCTS]
        return AdditiveTerms(self.bases, tuple((int(first[k]), int(second[k])) for k in order if largest[k] > limit))

    def _factors(self, X: Array) -> Array:
        """Lines of all columns, and their centred bends."""
        lines = np.column_stack([basis.line(column) for basis, column in zip(self.bases, X.T, strict=True)])
        return np.column_stack((lines, bend(lines) - bend(lines).mean(axis=0)))


def bend(line: Array) -> Array:
    """A hyperbola: like a parabola in the middle, but linear in the tails."""
    return np.sqrt(1.0 + line**2)


def _product_scores(lines: Array, score: Array) -> Array:
    """Standardised correlations of a score with all products of two columns."""
    score = score - score.mean()
    sums, variance = np.zeros((2, lines.shape[1], lines.shape[1]))
    for rows in row_blocks(lines.shape[0]):
        block = lines[rows]
        sums += block.T @ (block * score[rows, None])
        variance += scaled_gram(block**2, score[rows])
    return sums / np.sqrt(np.maximum(variance, 1e-12))

"""The terms of an additive model: lines and curves of single columns, and products of two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from modifind._typing import Array, Ints
from modifind.nuisance.regression.blocks import row_blocks, scaled_gram
from modifind.nuisance.regression.evidence import renumbered
from modifind.nuisance.regression.splines import ColumnBasis

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
        """The same with the products that scores call for.

        `scores` holds, for each kind of score (location, scale), one array per set of rows (the arms, or one set):
        derivatives of the log-likelihood row by row. Their correlations with all products of two columns cost one
        matrix product; a product, of two lines or of a line and a bend, enters when one arm, both together or their
        difference exceed what the largest of so many would be by chance.
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
        """Lines of all columns, and their bends about their means."""
        lines = np.column_stack([basis.line(column) for basis, column in zip(self.bases, X.T, strict=True)])
        return np.column_stack((lines, bend(lines) - bend(lines).mean(axis=0)))


def bend(line: Array) -> Array:
    """A hyperbola: a parabola in the middle, and straight where a parabola would run away."""
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

"""The variance that a sum has because rows are scored by models that share most of their own rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modifind._typing import Array


@dataclass(frozen=True)
class Reuse:
    """How far the folds' models agree about one feature.

    Attributes
    ----------
    products : tuple of arrays of shape (folds, folds)
        Inner products of the models' patterns, for every repeat.
    share : float, default=1.0
        Number of rows of the sum over that of the rows that models were fitted to. The smaller it is, the less two
        folds have taught each other's models.
    """

    products: tuple[Array, ...]
    share: float = 1.0

    def variance(self, per_fold: list[Array]) -> float:
        """Shared variance of the sum, given the variances of each fold's rows, averaged over repeats."""
        return self.share * float(np.mean(list(map(_shared, self.products, per_fold))))


def _shared(products: Array, per_fold: Array) -> float:
    """Shared variance of one repeat."""
    n_folds = per_fold.size
    size = np.sqrt(np.maximum(per_fold, 0.0))
    both = np.outer(size, size)
    np.fill_diagonal(both, 0.0)
    norms = np.sqrt(np.outer(np.diag(products), np.diag(products)))
    if not both.sum() > 0 or not (norms * both).sum() > 0:
        return 0.0
    agreement = float((products * both).sum() / (norms * both).sum())
    by_chance = (n_folds - 2) / (n_folds - 1)
    share = min((1 - agreement) / (1 - by_chance), agreement / by_chance if by_chance else 1.0)
    return max(share, 0.0) * float(both.sum()) / (n_folds - 1)

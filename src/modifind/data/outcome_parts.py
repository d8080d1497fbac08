"""Columns that together give the outcome: it was computed from them, or they were computed from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import named

MIN_SHARE = 0.99  # of the variance of the outcome, which columns measured before do not reach
MIN_RANK_SHARE = 0.98  # the same of its ranks: a few extreme rows are no evidence
MAX_ROUNDING_SHARE = 1e-6  # share of the variance that rounding may leave
MAX_PAIRED, MAX_TRIPLED = 300, 40  # columns of which all pairs, and all triples, are looked at
MAX_ROWS = 5000
MIN_LEFT_SHARE = 1e-8  # share of a column's variance that another leaves, below which the two are one
OFFSETS = (0.0, 1.0, 100.0)  # a change by so many per cent is a ratio less 100


@dataclass(frozen=True)
class OutcomeParts:
    """Two or three columns that give the outcome.

    Attributes
    ----------
    names : tuple of str
        The columns.
    share : float
        Share of the variance of the outcome that they explain together.
    how : str
        How they are put together, in words.
    """

    names: tuple[str, ...]
    share: float
    how: str

    @property
    def exact(self) -> bool:
        """Whether nothing but rounding is left of the outcome."""
        return 1.0 - self.share < MAX_ROUNDING_SHARE

    @property
    def recorded(self) -> dict[str, Any]:
        """What a result records of them."""
        return {"columns": list(self.names), "share": self.share, "how": self.how}

    def refuse_exact(self) -> None:
        """Refuse columns that are the outcome to all its digits."""
        if self.exact:
            raise ValueError(
                f"{named(self.names)}: the outcome is computed from these columns (by {self.how}); exclude those that "
                "were measured after the treatment"
            )


def outcome_parts(table: FeatureTable, y: Array) -> OutcomeParts | None:
    """The two or three columns that give the outcome by sums and differences, or by products and ratios.

    All pairs of columns are looked at, and all triples of the 40 most related to the outcome, in at most 5,000 rows.
    One column that gives the outcome alone is a matter of `suspicious.OutcomeRanks`.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> before, after, age = np.random.default_rng(0).normal(50, 9, (3, 60))
    >>> table = read_features({"before": before, "age": age, "after": after})
    >>> outcome_parts(table, after - before).names
    ('before', 'after')
    >>> outcome_parts(table, 100 * after / before - 100).how
    'products and ratios'
    """
    rows = np.unique(np.linspace(0, y.size - 1, min(y.size, MAX_ROWS)).astype(np.intp))
    columns = {name: numbers for m, name in enumerate(table.names) if (numbers := _numbers(table, m, rows)) is not None}
    for how, outcome, parts in _scales(y[rows], columns):
        if (largest := _largest(outcome, parts)) is not None:
            return OutcomeParts(*largest, how)
    return None


def _numbers(table: FeatureTable, feature: int, rows: NDArray[np.intp]) -> Array | None:
    """Some rows of a column of numbers or of two levels without gaps; None of others."""
    column = table.numbers(feature)
    if column is None and table.n_levels(feature) == 2:
        column = table.values[:, feature]
    if column is None:
        return None
    column = column[rows]
    return column if np.ptp(column) > 0 else None  # NaN is no spread either


def _scales(y: Array, columns: dict[str, Array]) -> Iterator[tuple[str, Array, dict[str, Array]]]:
    yield "sums and differences", y, columns
    positive = {name: np.log(column) for name, column in columns.items() if column.min() > 0}
    for offset in OFFSETS:
        if y.min() + offset > 0 and len(positive) > 1:
            yield "products and ratios", np.log(y + offset), positive


def _largest(y: Array, columns: dict[str, Array]) -> tuple[tuple[str, ...], float] | None:
    """The columns that explain the outcome, and the share that they explain."""
    names = list(columns)
    if len(names) < 2 or not np.ptp(y) > 0:
        return None
    values = np.column_stack([_standardised(column) for column in columns.values()])
    outcome = _standardised(y)
    related = values.T @ outcome
    if (related**2).max() >= MIN_SHARE:
        return None
    order = np.argsort(-np.abs(related), kind="stable")
    for chosen, search in ((order[:MAX_PAIRED], _best_pair), (order[:MAX_TRIPLED], _best_triple)):
        picked = [int(chosen[k]) for k in search(values[:, chosen].T @ values[:, chosen], related[chosen])]
        share = _explained(values[:, picked], outcome)
        if share >= MIN_SHARE:
            return tuple(names[k] for k in sorted(picked)), share
    return None


def _standardised(column: Array) -> Array:
    centred = column - column.mean()
    return centred / max(np.sqrt(centred @ centred), 1e-300)


def _pair_shares(products: Array, related: Array, size: Array) -> Array:
    """Share that every pair of columns explains, by their products, those with the outcome, and their squares."""
    left = np.outer(size, size) - products**2
    gained = size[:, None] * related**2 + size * related[:, None] ** 2 - 2 * np.outer(related, related) * products
    return np.where(left > MIN_LEFT_SHARE * np.outer(size, size), gained / np.maximum(left, 1e-300), 0.0)


def _best_pair(products: Array, related: Array) -> tuple[int, ...]:
    shares = _pair_shares(products, related, np.ones(related.size))
    return tuple(map(int, np.unravel_index(np.argmax(shares), shares.shape)))


def _best_triple(products: Array, related: Array) -> tuple[int, ...]:
    """The best pair of what each column leaves of the others, with that column."""
    best: tuple[float, tuple[int, ...]] = (0.0, (0,))
    for k in range(related.size):
        size = 1.0 - products[k] ** 2
        size = np.where(size > MIN_LEFT_SHARE, size, 0.0)
        rest = products - np.outer(products[k], products[k])
        shares = _pair_shares(rest, related - products[k] * related[k], size) + related[k] ** 2
        i, j = np.unravel_index(np.argmax(shares), shares.shape)
        best = max(best, (float(shares[i, j]), (k, int(i), int(j))))
    return best[1]


def _explained(columns: Array, y: Array) -> float:
    """Share of a standardised outcome that columns explain; 0 where a few extreme rows are all that they explain."""
    fitted = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    share = 1.0 - float((y - fitted) @ (y - fitted))
    ranks = float(_standardised(rankdata(np.round(fitted, 9))) @ _standardised(rankdata(y)))
    return share if ranks**2 >= MIN_RANK_SHARE else 0.0

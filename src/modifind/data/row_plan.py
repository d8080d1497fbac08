"""Which rows teach the nuisance models, and by which fold each row is scored: a function of seed and row number.

Nothing has to be stored or sent for it, and the answer is the same in every process and for every cut of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Bools, Ints

Words = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LAST_WORD = 2**64 - 1


@dataclass(frozen=True)
class RowPlan:
    """Sample and folds of numbered rows.

    Attributes
    ----------
    keys : tuple of int
        Key of the sample, then one for the folds of each repeat of the cross-fitting.
    n_folds : int
        Number of folds.
    limit : int
        Rows whose random word is at most this are in the sample.
    """

    keys: tuple[int, ...]
    n_folds: int
    limit: int = LAST_WORD

    @classmethod
    def of(cls, seed: np.random.SeedSequence, n_folds: int, n_repeats: int) -> RowPlan:
        """A plan with keys from a seed; the sample is not limited yet."""
        return cls(tuple(int(word) for word in seed.generate_state(1 + n_repeats, np.uint64)), n_folds)

    def words(self, rows: Ints, key: int = 0) -> Words:
        """Random words of numbered rows; the sample is that of the smallest words of key 0."""
        return row_words(rows, self.keys[key])

    def sampled(self, rows: Ints) -> Bools:
        """Whether each row is in the sample."""
        return self.words(rows) <= np.uint64(self.limit)

    def folds(self, rows: Ints) -> list[Ints]:
        """Fold of each row, for every repeat."""
        repeats = range(1, len(self.keys))
        return [(self.words(rows, k) % np.uint64(self.n_folds)).astype(np.int64) for k in repeats]

    def limited(self, limit: int) -> RowPlan:
        """The same with a limit to the sample."""
        return replace(self, limit=limit)


def row_words(rows: Ints, key: int) -> Words:
    """A random word for every row, which follows from its number and the key."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is meant
        word = (rows.astype(np.uint64) + np.uint64(1)) * _GOLDEN + np.uint64(key)
        word = (word ^ (word >> np.uint64(30))) * _FIRST
        word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


def row_uniforms(rows: Ints, keys: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers between 0 and 1, one for every row and key, shape (n, keys).

    Examples
    --------
    >>> whole = row_uniforms(np.arange(1000), (1, 2))
    >>> bool((whole[500:] == row_uniforms(np.arange(500, 1000), (1, 2))).all()), whole.mean(axis=0).round(1).tolist()
    (True, [0.5, 0.5])
    """
    words = np.array([row_words(rows, key) for key in keys], dtype=np.uint64).reshape(len(keys), rows.size)
    return (words.T >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generous_limit(n_rows: int, n_sample: int) -> int:
    """A limit that all but never leaves fewer than `n_sample` of `n_rows` rows below it, nor many more."""
    share = (n_sample + 6.0 * np.sqrt(n_sample) + 10.0) / n_rows
    return LAST_WORD if share >= 1 else int(share * 2.0**64)

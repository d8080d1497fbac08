"""Conditional randomisation test: compare the statistic with its values on resampled copies of one feature.

The null hypothesis is that Y is independent of X_m given the other features and the treatment. Under it the observed
column and the resampled ones are exchangeable given everything else, so the p-value is valid for any statistic,
provided the sampler knows the conditional distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

from sklearn.base import BaseEstimator

from modifind._typing import Array
from modifind.inference.adjust import smallest_factor

MIN_AUTO_RESAMPLES = 999
BLOCK_BYTES = 32 * 2**20
MAX_BLOCK = 32  # an early stop wastes at most one block of draws


@dataclass(frozen=True)
class CRTOutcome:
    """Result of the test of one feature.

    Examples
    --------
    >>> from modifind.inference import CRTOutcome
    >>> CRTOutcome(statistic=2.1, p_value=0.02, n_resamples=199, n_exceeding=3).p_value
    0.02
    """

    statistic: float
    p_value: float
    n_resamples: int
    n_exceeding: int


class ConditionalRandomizationTest(BaseEstimator):
    """How resampled statistics become a p-value.

    Parameters
    ----------
    p_value : {"valid", "count"}, default="valid"
        "valid" is ``(1 + #{T_b >= T}) / (1 + B)``. "count" is the paper's ``#{T_b >= T} / B``, which can be zero and
        does not control the error rate at small levels.
    stop_after : int or None, default=20
        Stop resampling once this many resampled statistics reached the observed one (Besag and Clifford, 1991). The
        p-value is then ``stop_after / number of resamples``, which stays valid. None draws all resamples. "count"
        always does.
    block_size : int or None, default=None
        Resamples drawn at a time; None takes 32, fewer when they would fill 32 MB. The result does not depend on it.

    References
    ----------
    Candes, Fan, Janson, Lv. Panning for gold: model-X knockoffs for high dimensional controlled variable selection.
    2018. Besag, Clifford. Sequential Monte Carlo p-values. Biometrika, 1991.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind import ConditionalRandomizationTest
    >>> rng = np.random.default_rng(0)
    >>> test = ConditionalRandomizationTest(stop_after=None)
    >>> test.run(3.0, lambda k: rng.normal(size=(k, 25)), lambda column: 5 * column.mean(), n_resamples=199).p_value
    0.005
    """

    def __init__(self, p_value: str = "valid", *, stop_after: int | None = 20, block_size: int | None = None) -> None:
        self.p_value = p_value
        self.stop_after = stop_after
        self.block_size = block_size

    def validate(self) -> None:
        """Refuse invalid settings."""
        if self.p_value not in ("valid", "count"):
            raise ValueError(f"p_value must be 'valid' or 'count', not {self.p_value!r}")
        for name in ("stop_after", "block_size"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer or None, not {value!r}")

    def resolve_resamples(self, n_resamples: int | str, n_features: int, alpha: float, adjust: str = "bh") -> int:
        """Number of resamples; "auto" is twice the number needed for a discovery, and at least 999."""
        if n_resamples == "auto":
            return max(MIN_AUTO_RESAMPLES, 2 * _needed(n_features, alpha, adjust) + 1)
        if not isinstance(n_resamples, Integral) or isinstance(n_resamples, bool) or n_resamples < 1:
            raise ValueError(f"n_resamples must be 'auto' or a positive integer, not {n_resamples!r}")
        return int(n_resamples)

    def needed_resamples(self, n_features: int, alpha: float, adjust: str = "bh") -> int:
        """Resamples that make a single discovery possible; 0 if p-values can be zero.

        After a Benjamini-Hochberg adjustment a single discovery needs ``p <= alpha / d``, and the smallest possible p
        is ``1 / (1 + B)``.
        """
        return _needed(n_features, alpha, adjust) if self.p_value == "valid" else 0

    def run(
        self,
        observed: float,
        draw: Callable[[int], Array],
        statistic: Callable[[Array], Any],
        n_resamples: int,
        *,
        batched: bool = False,
    ) -> CRTOutcome:
        """Resample until the answer is determined.

        Parameters
        ----------
        observed : float
            Statistic of the data.
        draw : callable
            ``draw(k)`` gives the next k resampled columns, shape (k, n).
        statistic : callable
            Statistic of one resampled column, or when `batched` those of all columns of a block, shape (k,).
        n_resamples : int
            Maximal number of resamples.
        batched : bool, default=False
            Whether `statistic` takes blocks. Values beyond an early stop are ignored.
        """
        values = self._blocks(draw, n_resamples, statistic if batched else partial(map, statistic))
        outcome, _ = self.looked_at(observed, values, n_resamples)
        assert outcome is not None
        return outcome

    def looked_at(
        self, observed: float, values: Iterable[float], n_resamples: int, before: tuple[int, int] = (0, 0)
    ) -> tuple[CRTOutcome | None, tuple[int, int]]:
        """Examine resampled statistics one by one until the answer is determined.

        Parameters
        ----------
        observed : float
            Statistic of the data.
        values : iterable of float
            The next resampled statistics; those beyond an early stop are ignored.
        n_resamples : int
            Maximal number of resamples.
        before : tuple of two ints
            Number of earlier resamples, and how many of these reached the observed statistic.

        Returns
        -------
        outcome : CRTOutcome or None
            None if more resamples are needed.
        state : tuple of two ints
            `before` of the next call.
        """
        stop_after = self.stop_after if self.p_value == "valid" else None
        done, exceeding = before
        for value in values:
            done += 1
            exceeding += not value < observed  # an undefined statistic counts against the feature
            if stop_after is not None and exceeding >= stop_after and done < n_resamples:
                return CRTOutcome(observed, stop_after / done, done, exceeding), (done, exceeding)
        if done < n_resamples:
            return None, (done, exceeding)
        p_value = exceeding / done if self.p_value == "count" else (1 + exceeding) / (1 + done)
        return CRTOutcome(observed, float(p_value), done, exceeding), (done, exceeding)

    def _blocks(
        self, draw: Callable[[int], Array], n_resamples: int, statistics: Callable[[Array], Iterable[Any]]
    ) -> Iterator[Any]:
        """Statistics of resampled columns, one block at a time."""
        done, block = 0, self.block_size
        while done < n_resamples:
            columns = draw(min(block or 1, n_resamples - done))
            if block is None:  # the first column tells how many fit
                block = max(1, min(MAX_BLOCK, BLOCK_BYTES // max(columns[0].nbytes, 1)))
            done += len(columns)
            yield from statistics(columns)


def _needed(n_features: int, alpha: float, adjust: str) -> int:
    return math.ceil(smallest_factor(n_features, adjust) / alpha - 1e-9) - 1

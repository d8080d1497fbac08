"""From numbers to places in a drawing, and the round numbers that are written at an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from modifind._typing import Array
from modifind.charts.labels import MINUS, number


@dataclass(frozen=True)
class Scale:
    """A straight line from values, or from their logarithms, to places in a drawing.

    Parameters
    ----------
    low, high : float
        Values at both ends.
    start, stop : float
        Their places.
    log : bool
        Whether logarithms are drawn.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value."""
        low, high, here = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (here - low) / (high - low) * (self.stop - self.start)

    def at(self, values: Array) -> Array:
        """Places of values."""
        return np.array([self(value) for value in values])

    def clipped(self, values: Array) -> Array:
        """Places of values, none beyond the ends."""
        return np.clip(self.at(values), min(self.start, self.stop), max(self.start, self.stop))

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values within the range, with their texts.

        Examples
        --------
        >>> Scale(-1.2, 3.1, 0, 100).ticks(4)
        [(0.0, '0'), (2.0, '2')]
        >>> [text for _, text in Scale(0.0, 0.12, 0, 100).ticks()]
        ['0', '0.05', '0.10']
        >>> [text for _, text in Scale(0.5, 9.3, 0, 100).ticks(4)]
        ['2', '4', '6', '8']
        """
        for count in range(max(most, 1), 2 * most + 3):  # one tick alone gives no scale
            step = _round_step((self.high - self.low) / count)
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            if last > first:
                break
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(k * step, _tick_text(k * step, digits)) for k in range(first, last + 1)]


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(factor * size for factor in (1.0, 2.0, 5.0, 10.0) if factor * size >= rough * 0.999)


def _tick_text(value: float, digits: int) -> str:
    if abs(value) >= 1e7 or (value and digits > 5):
        return number(value)
    return "0" if value == 0 else f"{value:,.{digits}f}".replace("-", MINUS)

"""Effect at the quantiles of the outcome along the values of one feature."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from modifind._typing import Array
from modifind.charts.base import AlongDisplay, SingleDisplay, caption_along
from modifind.charts.labels import with_limits
from modifind.charts.spec import Band, Figure, Key, Line, Mark, Panel, Rule, limits_of

QUANTILES = (10, 50, 90)
NOTE = (
    "Effect on low (10%), middle (50%) and high (90%) outcomes. Lines that run together mean a shift of the whole "
    "distribution, lines that fan out a change in spread or shape."
)


class QuantileDisplay(AlongDisplay, SingleDisplay):
    """Effects at the 10, 50 and 90% quantiles of the outcome along one feature: a fan where the spread changes.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        Output of `SelectionResult.curve`: `value`, `q10_effect`, ... and, where known, their 95% bands.
    discrete : bool
        Whether the feature has categories.
    words : Words, optional
        What arms and outcome are called.

    Examples
    --------
    >>> import pandas as pd
    >>> effects = {f"q{q}_effect": [0.0, q / 50 - 1] for q in (10, 50, 90)}
    >>> display = QuantileDisplay("age", pd.DataFrame({"value": [40.0, 60.0], **effects}), discrete=False).plot()
    >>> [round(float(line.get_ydata()[1]), 2) for line in display.ax_.lines[:3]]
    [-0.8, 0.0, 0.8]
    """

    what: ClassVar[str] = "quantile effects"

    def spec(self) -> Figure:
        """Three lines with their bands; of categories, three points beside each other."""
        known = {q: limits_of(self.curve, f"q{q}_effect") for q in QUANTILES if f"q{q}_effect" in self.curve}
        marks: list[Mark] = [Rule("neutral", 0.0)]
        for k, (q, (values, low, high)) in enumerate(known.items()):
            shift = 0.2 * (k - 1)
            if np.isfinite(low).any():
                marks.append(Band(f"q{q}", low, high, shift=shift))
            marks.append(Line(f"q{q}", values, f"{q}%", shift))
        texts = ["; ".join(parts) for parts in zip(*(_said(q, limits) for q, limits in known.items()), strict=True)]
        caption = caption_along(self.places, "Low, middle and high outcomes", NOTE, texts)
        lines = [Key(f"q{q}", f"{q}%", "point" if self.discrete else "line") for q in known]
        label, unit = f"quantile effect on {self.words.short.outcome}", self.words.short.difference
        keys = (Key("neutral", "no effect"), *lines)
        panel = Panel(self.places, tuple(marks), label, unit, keys=keys, caption=caption)
        return Figure((panel,), 1.3 * self.places.height(2.1))


def _said(q: int, limits: tuple[Array, ...]) -> list[str]:
    """What is said of a quantile at each place."""
    return [f"{q}%: {with_limits(*row)}" for row in zip(*limits, strict=True)]

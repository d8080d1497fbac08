"""Distance between the arms' outcome distributions along the values of one feature."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from modifind.charts.base import AlongDisplay, SingleDisplay, caption_along
from modifind.charts.labels import number, with_limits
from modifind.charts.spec import Band, Figure, Key, Line, Mark, Panel, limits_of


class D2Display(AlongDisplay, SingleDisplay):
    """Squared distance (MMD) between the outcome distributions of both arms along one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        Output of `SelectionResult.curve`: `value`, `d2` and, where known, its 95% band (`d2_low`, `d2_high`) and the
        null band (`d2_null_low`, `d2_null_high`), where the curve would lie if the feature modified nothing.
    discrete : bool
        Whether the feature has categories.
    words : Words, optional
        What the arms are called.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"value": [40.0, 50.0, 60.0], "d2": [0.02, 0.03, 0.09]})
    >>> D2Display("age", curve, discrete=False).plot().ax_.get_xlabel()
    'age'
    """

    what: ClassVar[str] = "distances"

    def spec(self) -> Figure:
        """The distance over the range where it would lie if the feature changed nothing."""
        places, marks, keys = self.places, list[Mark](), list[Key]()
        values, low, high = limits_of(self.curve, "d2")
        _, null_low, null_high = limits_of(self.curve, "d2_null")
        note = f"How far apart outcomes under {self.words.treated} and under {self.words.control} are in any respect"
        note += " (squared kernel distance)."
        if np.isfinite(null_low).any():
            marks.append(Band("null", null_low, null_high, box=0.6, marks_weak=False))
            keys.append(Key("null", "if it changed nothing", "box"))
            note += " A curve that leaves the hatched range suggests a change."
        if np.isfinite(low).any():
            marks.append(Band("distance", low, high))
            keys.append(Key("distance", "95% band", "band"))
        texts = [
            f"distance {with_limits(*known)}"
            + ("" if math.isnan(start) else f"; if it changed nothing {number(start)} to {number(stop)}")
            for *known, start, stop in zip(values, low, high, null_low, null_high, strict=True)
        ]
        caption = caption_along(places, "Distance between the arms", note, texts)
        marks.append(Line("distance", values))
        label, limits = "distance of the\narms' outcomes (D²)", (0.0, math.inf)
        panel = Panel(places, tuple(marks), label, keys=tuple(keys), holds=(0.0,), within=limits, caption=caption)
        return Figure((panel,), places.height(2.5))

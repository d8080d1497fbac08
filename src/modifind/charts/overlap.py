"""Propensity scores of both arms: how comparable they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import pandas as pd

from modifind.charts.base import SingleDisplay
from modifind.charts.labels import PLAIN_WORDS, Words, percent
from modifind.charts.spec import Bars, Caption, Figure, Key, Panel, Places, Rule, values_of
from modifind.result.selection_result import SelectionResult

ARMS = ("treated", "control")


@dataclass(eq=False, repr=False)
class OverlapDisplay(SingleDisplay):
    """Histograms of the propensity scores, one arm above and one below: where one is empty there is no overlap.

    Parameters
    ----------
    histogram : DataFrame
        Shares of each arm (`treated`, `control`) with a score between `low` and `high`.
    clip : pair of float, optional
        Limits that scores were clipped to, drawn as dotted lines.
    words : Words, optional
        What the arms are called.

    Examples
    --------
    >>> import pandas as pd
    >>> bins = {"low": [0.0, 0.5], "high": [0.5, 1.0], "treated": [0.4, 0.6], "control": [0.7, 0.3]}
    >>> display = OverlapDisplay(pd.DataFrame(bins)).plot()
    >>> [round(float(bar.get_height()), 1) for bar in display.ax_.patches]
    [0.4, 0.6, -0.7, -0.3]
    """

    histogram: pd.DataFrame
    _: KW_ONLY
    clip: Sequence[float] | None = None
    words: Words = PLAIN_WORDS

    @classmethod
    def from_result(cls, result: SelectionResult) -> OverlapDisplay:
        """The scores of a result."""
        if not len(result.score_histogram):
            raise ValueError("this result has no histogram of propensity scores; fit again to have one")
        return cls(result.score_histogram.copy(), clip=result.settings.get("propensity_clip"), words=Words.of(result))

    def spec(self) -> Figure:
        """The treated arm above zero, the control arm below."""
        words, short = self.words, self.words.short
        low, high, treated, control = (values_of(self.histogram, name) for name in ("low", "high", *ARMS))
        reach = 1.08 * float(np.nanmax([treated, control], initial=0.01))
        width = float(np.median(high - low)) if low.size else 1.0
        listed = ", ".join(
            f"{percent(t)} and {percent(c)} from {start:.2f}"
            for start, t, c in zip(low, treated, control, strict=True)
            if t + c > 0.05
        )
        about = f"Histogram of the probability of treatment: shares of {words.treated} and {words.control}: {listed}"
        places = Places.numbers(f"probability of {short.treated} given the features", (low + high) / 2, (0.0, 1.0))
        clips = [Rule("clip", limit, place=True) for limit in self.clip or ()]
        bars = (Bars("treated", treated, width=width), Bars("control", -control, width=width))
        keys = [Key(arm, getattr(short, arm), "box", getattr(words, arm)) for arm in ARMS]
        keys += [Key("clip", "clipped beyond")] if clips else []
        panel = Panel(places, (*bars, Rule("neutral", 0.0), *clips), "share of the arm", keys=tuple(keys))
        panel = replace(panel, span=(-reach, reach), percent=True, mirrored=True, caption=Caption(about=about))
        return Figure((panel,), 2.5)

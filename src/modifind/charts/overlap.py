"""Propensity scores of both arms: how comparable they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from modifind.charts.base import Display
from modifind.charts.labels import Words
from modifind.charts.style import CONTROL, INK, PLAIN_TEXT, TREATED, Look, stroke, swatch, trim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

CLIP = Look(INK, (0, (1, 1.5)), width=1.0)
HATCH = "....."


class OverlapDisplay(Display):
    """Histograms of the propensity scores, one arm above and one below: where one is empty there is no overlap.

    Parameters
    ----------
    histogram : DataFrame
        Shares of each arm (`treated`, `control`) with a score between `low` and `high`.
    clip : pair of float, optional
        Limits that scores were clipped to, drawn as dotted lines.
    words : Words, optional
        What the arms are called.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> bins = {"low": [0.0, 0.5], "high": [0.5, 1.0], "treated": [0.4, 0.6], "control": [0.7, 0.3]}
    >>> display = OverlapDisplay(pd.DataFrame(bins)).plot()
    >>> [round(float(bar.get_height()), 1) for bar in display.ax_.patches]
    [0.4, 0.6, -0.7, -0.3]
    """

    def __init__(
        self, histogram: pd.DataFrame, *, clip: Sequence[float] | None = None, words: Words | None = None
    ) -> None:
        self.histogram = histogram
        self.clip = clip
        self.words = words or Words()

    @classmethod
    def from_result(cls, result: SelectionResult) -> OverlapDisplay:
        """The scores of a result."""
        if not len(result.score_histogram):
            raise ValueError("this result has no histogram of propensity scores; fit again to have one")
        return cls(result.score_histogram.copy(), clip=result.settings.get("propensity_clip"), words=Words.of(result))

    def plot(self, ax: Axes | None = None) -> OverlapDisplay:
        """Draw on `ax`, or on a new figure."""
        from matplotlib.ticker import FuncFormatter

        (ax,) = self._axes(None if ax is None else [ax], 1, height=2.5)
        bins = self.histogram
        low, width = bins["low"].to_numpy(dtype=float), (bins["high"] - bins["low"]).to_numpy(dtype=float)
        ax.bar(low, bins["treated"], width, align="edge", color=TREATED, alpha=0.75, edgecolor="white", linewidth=0.5)
        down = -bins["control"].to_numpy(dtype=float)
        ax.bar(low, down, width, align="edge", facecolor="none", edgecolor=CONTROL, hatch=HATCH, linewidth=0.8)
        ax.axhline(0.0, color=INK, linewidth=0.8)
        entries = [(swatch(TREATED, 0.75), self.words.treated), (swatch(CONTROL, hatch=HATCH), self.words.control)]
        if self.clip is not None:
            for limit in self.clip:
                ax.axvline(limit, color=CLIP.colour, linestyle=CLIP.line, linewidth=CLIP.width)
            entries.append((stroke(CLIP), "clipped beyond"))
        trim(ax)
        ax.set_xlim(-0.01, 1.01)
        reach = 1.08 * float(np.nanmax(bins[["treated", "control"]].to_numpy(dtype=float), initial=0.01))
        ax.set_ylim(-reach, reach)
        ax.locator_params(axis="y", nbins=6)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * abs(share):g}%"))
        ax.set_xlabel(f"probability of {self.words.treated} given the features", **PLAIN_TEXT)
        ax.set_ylabel("share of the arm")
        self._legend(ax, entries)
        self.ax_ = ax
        return self

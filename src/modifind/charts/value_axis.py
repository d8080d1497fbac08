"""The axis along which the values of a feature lie, and what is drawn over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from modifind.charts.labels import MISSING, shown, tick_labels, wrap
from modifind.charts.style import FAINT, INK, PLAIN_TEXT, WEAK_HATCH, Look, stroke, swatch, trim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
MISSING_GAP = 0.14  # of the range of values
ROOM = 38  # letters that fit under axes of half a page
TALL = 28  # letters that fit beside them
MOST_UPRIGHT = 6
FEW_ROWS = "few rows"


@dataclass(frozen=True)
class ValueAxis:
    """Places of the values of a feature on an axis.

    Numbers run along the horizontal axis, with a tick of its own for rows without a value. Categories do too, in their
    order, where their names fit; otherwise they stand one below the other.

    Attributes
    ----------
    feature : str
        Name of the feature.
    places : array of shape (points,)
        Where each point is.
    labels : list of str
        Names of categories; empty for numbers.
    missing : array of bool
        The point of a continuous feature's rows without a value.
    weak : array of bool
        Points near which there are too few rows: drawn in grey, hatched or hollow.
    sideways : bool
        Whether categories stand one below the other.
    """

    feature: str
    places: Array
    labels: list[str]
    missing: NDArray[np.bool_]
    weak: NDArray[np.bool_]
    sideways: bool

    @classmethod
    def of(cls, feature: str, frame: pd.DataFrame, *, discrete: bool) -> ValueAxis:
        """Places of the column `value` of a frame; its column `low_support`, if there is one, says what is weak."""
        n = len(frame)
        weak = frame["low_support"].to_numpy(dtype=bool) if "low_support" in frame else np.zeros(n, dtype=bool)
        if discrete:
            upright = tick_labels(frame["value"], width=12)
            longest = max((len(line) for label in upright for line in label.split("\n")), default=0)
            sideways = n > MOST_UPRIGHT or n * (longest + 2) > ROOM
            labels = tick_labels(frame["value"], width=20) if sideways else upright
            return cls(feature, np.arange(n, dtype=float), labels, np.zeros(n, dtype=bool), weak, sideways)
        places = frame["value"].to_numpy(dtype=float).copy()
        missing = np.isnan(places)
        known = places[~missing]
        if missing.any():
            places[missing] = known.max() + MISSING_GAP * (np.ptp(known) or 1.0) if known.size else 0.0
        return cls(feature, places, [], missing, weak, False)

    @property
    def discrete(self) -> bool:
        """Whether the feature has categories."""
        return bool(self.labels)

    @property
    def longest(self) -> int:
        """Letters of the longest line of a category's name."""
        return max((len(line) for label in self.labels for line in label.split("\n")), default=0)

    @property
    def unit(self) -> float:
        """Room of a single point."""
        known = self.places[~self.missing]
        return 1.0 if self.discrete or not known.size else 1.5 * MISSING_GAP * (float(np.ptp(known)) or 1.0)

    def height(self, upright: float = 2.3) -> float:
        """Inches that axes need."""
        if not self.sideways:
            return upright
        return 0.95 + sum(0.12 + 0.115 * (1 + label.count("\n")) for label in self.labels)

    def draw(
        self,
        axes: Axes,
        y: ArrayLike,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        *,
        look: Look,
        shift: float = 0.0,
        hatch: bool = True,
    ) -> None:
        """A curve with its band: a line over numbers, points over categories. The first line added is that of `y`.

        `shift`, in rooms of a point, puts several points of a value side by side. Without `hatch` the band
        of a line ends where there are few rows.
        """
        middle = np.asarray(y, dtype=float)
        limits = None if low is None or high is None else (np.asarray(low, dtype=float), np.asarray(high, dtype=float))
        along = np.zeros(self.places.size, dtype=bool) if self.discrete else ~self.missing
        if along.any():
            self._draw_run(axes, middle, limits, look, along, hatch)
        if not along.all():
            self._draw_points(axes, middle, limits, look, ~along, shift)

    def _draw_run(
        self,
        axes: Axes,
        y: Array,
        limits: tuple[Array, Array] | None,
        look: Look,
        along: NDArray[np.bool_],
        hatch: bool,
    ) -> None:
        x, middle, weak = self.places[along], y[along], self.weak[along]
        alone = np.flatnonzero(_alone(~weak & np.isfinite(middle)))
        axes.plot(
            x,
            np.where(weak, np.nan, middle),
            color=look.colour,
            linestyle=look.line,
            linewidth=look.width,
            marker=look.marker if alone.size else "",
            markevery=alone.tolist(),
            markersize=4,
            zorder=3,
        )
        near = _beside(weak)
        if weak.any():
            axes.plot(x, np.where(near, middle, np.nan), color=FAINT, linestyle=":", linewidth=1.2, zorder=2.5)
        if limits is not None:
            low, high = limits[0][along], limits[1][along]
            axes.fill_between(
                x, low, high, where=(~weak).tolist(), color=look.colour, alpha=look.shade, linewidth=0, zorder=2
            )
            if hatch:
                self.hatch(axes, *limits)

    def hatch(self, axes: Axes, low: ArrayLike, high: ArrayLike) -> None:
        """Mark the stretches of numbers where there are few rows."""
        along = ~self.missing
        if self.discrete or not self.weak[along].any():
            return
        with self._out_of_limits(axes):
            axes.fill_between(
                self.places[along],
                np.asarray(low, dtype=float)[along],
                np.asarray(high, dtype=float)[along],
                where=_beside(self.weak[along]).tolist(),
                facecolor="none",
                edgecolor=FAINT,
                hatch=WEAK_HATCH,
                linewidth=0,
                alpha=0.55,
                zorder=1.5,
            )

    @contextmanager
    def _out_of_limits(self, axes: Axes) -> Iterator[None]:
        """Draw without moving the limits of the axes: bands of few rows are so wide that they would hide the rest."""
        side = "intervalx" if self.sideways else "intervaly"
        before = getattr(axes.dataLim.frozen(), side)
        yield
        if not self.weak.all() and np.isfinite(before).all():
            setattr(axes.dataLim, side, before)

    def _draw_points(
        self,
        axes: Axes,
        y: Array,
        limits: tuple[Array, Array] | None,
        look: Look,
        single: NDArray[np.bool_],
        shift: float,
    ) -> None:
        at, middle, weak = self.places[single] + shift * self.unit, y[single], self.weak[single]
        marks: dict[str, Any] = {"linestyle": "none", "marker": look.marker, "markersize": 4.5, "zorder": 3.0}
        axes.plot(*self._flip(at, np.where(weak, np.nan, middle)), color=look.colour, **marks)
        if weak.any():
            hollow = np.where(weak, middle, np.nan)
            axes.plot(*self._flip(at, hollow), markerfacecolor="white", markeredgecolor=FAINT, **marks)
        if limits is not None:
            bars = axes.hlines if self.sideways else axes.vlines
            low, high = limits[0][single], limits[1][single]
            if not weak.all():
                bars(at[~weak], low[~weak], high[~weak], color=look.colour, linewidth=1.5, zorder=2)
            if weak.any():
                with self._out_of_limits(axes):
                    bars(at[weak], low[weak], high[weak], color=FAINT, linestyle=":", linewidth=1.5, zorder=2)

    def _flip(self, at: Array, y: Array) -> tuple[Array, Array]:
        return (y, at) if self.sideways else (at, y)

    def between(
        self,
        axes: Axes,
        low: ArrayLike,
        high: ArrayLike,
        *,
        colour: str,
        shade: float,
        wide: float = 0.5,
        mark_weak: bool = True,
    ) -> None:
        """The area between two curves: a band over numbers, boxes over categories."""
        if not mark_weak:
            replace(self, weak=np.zeros_like(self.weak)).between(axes, low, high, colour=colour, shade=shade, wide=wide)
            return
        least, most = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        along = np.zeros(self.places.size, dtype=bool) if self.discrete else ~self.missing
        if along.any():
            x, weak = self.places[along], self.weak[along]
            strong = (~weak).tolist()
            axes.fill_between(
                x, least[along], most[along], where=strong, color=colour, alpha=shade, linewidth=0, zorder=1
            )
            self.hatch(axes, least, most)
        for part, weak_part in ((~along & ~self.weak, False), (~along & self.weak, True)):
            if not part.any():
                continue
            box = {"facecolor": "none", "edgecolor": FAINT, "hatch": WEAK_HATCH} if weak_part else {"color": colour}
            at, start, size = self.places[part], least[part], most[part] - least[part]
            drawn: dict[str, Any] = {"linewidth": 0, "alpha": 0.55 if weak_part else shade, "zorder": 1.0} | box
            if self.sideways:
                axes.barh(at, size, left=start, height=wide * self.unit, **drawn)
            else:
                axes.bar(at, size, bottom=start, width=wide * self.unit, **drawn)

    def reference(self, axes: Axes, value: float, *, look: Look | None = None) -> None:
        """A value that is the same everywhere, as a line across the axes."""
        across = axes.axvline if self.sideways else axes.axhline
        if look is None:
            across(value, color=INK, linewidth=0.7, zorder=0.5)
        else:
            across(value, color=look.colour, linestyle=look.line, linewidth=look.width, zorder=1.8)

    def finish(self, axes: Axes, label: str, *, letters: int = 30) -> None:
        """Ticks in the feature's units, its name, and what is drawn over it."""
        trim(axes)
        title = shown(self.feature, 22 if self.sideways else 38)
        if self.sideways:
            axes.set_xlabel(wrap(label.replace("\n", " "), letters), **PLAIN_TEXT)
            axes.set_ylabel(title, **PLAIN_TEXT)
            axes.set_yticks(self.places, self.labels, **PLAIN_TEXT)
            axes.set_ylim(len(self.labels) - 0.4, -0.6)
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=5 if letters > 20 else 3)
            return
        axes.set_ylabel("\n".join(wrap(line, TALL) for line in label.split("\n")), **PLAIN_TEXT)
        axes.set_xlabel(title, **PLAIN_TEXT)
        axes.locator_params(axis="y", nbins=6)
        if self.discrete:
            axes.set_xticks(self.places, self.labels, **PLAIN_TEXT)
            axes.set_xlim(-0.6, len(self.labels) - 0.4)
        else:
            self._number_ticks(axes)

    def _number_ticks(self, axes: Axes) -> None:
        """As many round numbers as there is room for, and "missing" after them."""
        from matplotlib.ticker import MaxNLocator

        known, gap = self.places[~self.missing], self.missing.any()
        ticks: list[Any] = []
        if known.size:
            low, high = float(known.min()), float(known.max())
            reach = high - low or 1.0
            if gap:
                axes.set_xlim(low - 0.04 * reach, self.places.max() + 0.45 * self.unit)
                # "missing" is as wide as two numbers: those that it would touch are left out.
                high = min(high, self.places.max() - 0.17 * reach)
            for bins in range(6, 0, -1):
                locator = MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10])
                ticks = [tick for tick in locator.tick_values(low, max(low, high)) if low <= tick <= high]
                if sum(len(f"{tick:g}") + 2 for tick in ticks) <= ROOM - 10 * gap:
                    break
            if not gap:
                axes.xaxis.set_major_locator(locator)
                return
            ticks = ticks or [low]
        axes.set_xticks([*ticks, self.places.max()], [*(f"{tick:g}" for tick in ticks), MISSING])

    def notes(self, *, hatched: bool = False) -> list[tuple[Any, str]]:
        """What the legend has to say of the places; `hatched` where categories have boxes."""
        if not self.weak.any():
            return []
        mark = stroke(Look(FAINT), marker=True, hollow=True)
        if hatched or not self.discrete:
            mark = swatch(FAINT, hatch=WEAK_HATCH)
        return [(mark, FEW_ROWS)]


def _beside(weak: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Weak points and those next to them: both ends of every piece of line that leads to a weak point."""
    near = weak.copy()
    near[1:] |= weak[:-1]
    near[:-1] |= weak[1:]
    return near


def _alone(drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Points without a neighbour that a line could lead to."""
    padded = np.concatenate(([False], drawn, [False]))
    return drawn & ~padded[:-2] & ~padded[2:]

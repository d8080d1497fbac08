"""A small writer of SVG: scales, ticks and marks.

Colours come from the style sheet by class, so that one drawing serves light, dark and printed pages. All text is
escaped here.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

MINUS = "\u2212"
LETTER = 6.2  # width of a letter of the labels


@dataclass(frozen=True)
class Scale:
    """A straight line from values to places in a drawing.

    Parameters
    ----------
    low, high : float
        Values at both ends.
    start, stop : float
        Their places.
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

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


def spanning(
    values: Iterable[float], start: float, stop: float, *, pad: float = 0.06, within: tuple[float, float] | None = None
) -> Scale:
    """A scale that holds all finite values, with a margin; `within` are limits that the margin does not cross."""
    finite = np.array([value for value in values if math.isfinite(value)])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    flat = high - low < 1e-12 * max(abs(low), abs(high), 1e-290)
    margin = (abs(low) / 2 or 1.0) if flat else pad * (high - low)
    bottom, top = within or (-math.inf, math.inf)
    return Scale(
        max(low - margin, bottom) if low >= bottom else low - margin,
        min(high + margin, top) if high <= top else high + margin,
        start,
        stop,
    )


def number(value: float) -> str:
    """A number as people read it: three digits, thousands apart, a true minus sign.

    Examples
    --------
    >>> number(-3.14159), number(12345.6), number(0.00001234), number(float("nan"))
    ('−3.14', '12,346', '1.23e−05', 'not known')
    """
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    return ("0" if text in ("-0", "0") else text).replace("-", MINUS)


def shortened(text: str, room: float, *, middle: bool = False) -> str:
    """Text that fits into so many pixels, with an ellipsis where something is left out: the end, or the middle.

    Examples
    --------
    >>> shortened("kidney function", 60), shortened("clinic of the north, ward 12", 95, middle=True)
    ('kidney f…', 'clinic…ward 12')
    """
    text = " ".join(str(text).split())
    if text_width(text) <= room:
        return text
    room -= LETTER
    end = _fitting(text[::-1], room / 2)[::-1] if middle else ""
    return f"{_fitting(text, room - text_width(end)).rstrip()}…{end.lstrip()}"


def _fitting(text: str, room: float) -> str:
    """As many letters from the beginning as there is room for."""
    kept = 0
    while kept < len(text) and text_width(text[: kept + 1]) <= room:
        kept += 1
    return text[:kept]


def text_width(text: str) -> float:
    """About how wide a text is in the labels of a drawing."""
    return sum(2 * LETTER if unicodedata.east_asian_width(letter) in "WF" else LETTER for letter in text)


class Drawing:
    """Marks of one picture, in the order of drawing."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._marks: list[str] = []

    def path(self, points: Iterable[tuple[float, float]], style: str, *, closed: bool = False) -> None:
        """A line through points, or the area that it encloses."""
        steps = _steps(points)
        if len(steps) > 1:
            (x, y), *others = steps
            way = " ".join(f"{_tenths(dx)} {_tenths(dy)}" for dx, dy in others).replace(" -", "-")
            end = "z" if closed else ""
            self._marks.append(f'<path class="{style}" d="M{_tenths(x)} {_tenths(y)}l{way}{end}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], style)

    def rect(self, x: float, y: float, width: float, height: float, style: str, *, radius: float = 0.0) -> None:
        """A box."""
        corner = f' rx="{_short(radius)}"' if radius else ""
        self._marks.append(
            f'<rect class="{style}" x="{_short(x)}" y="{_short(y)}" width="{_short(max(width, 0))}" '
            f'height="{_short(max(height, 0))}"{corner}/>'
        )

    def mark(self, x: float, y: float, style: str, shape: str = "dot") -> None:
        """A point: a dot, a small dot, or a triangle that points left or right."""
        if shape in ("dot", "small"):
            radius = "4" if shape == "dot" else "2.2"
            self._marks.append(f'<circle class="{style}" cx="{_short(x)}" cy="{_short(y)}" r="{radius}"/>')
            return
        side = 4.5 if shape == "right" else -4.5
        self.path([(x + side, y), (x - side, y - 4.5), (x - side, y + 4.5)], style, closed=True)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        style: str,
        *,
        anchor: str = "start",
        room: float | None = None,
        middle: bool = False,
    ) -> None:
        """A label; where it is cut to fit the room, the whole of it shows when pointed at."""
        shown = text if room is None else shortened(text, room, middle=middle)
        title = "" if shown == " ".join(str(text).split()) else f"<title>{escape(text)}</title>"
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
        self._marks.append(f'<text class="{style}" {place}>{title}{escape(shown)}</text>')

    def svg(self, label: str) -> Markup:
        """The picture, with a text that stands for it."""
        return Markup(
            f'<svg viewBox="0 0 {_short(self.width)} {_short(self.height)}" role="img" '
            f'aria-label="{escape(label)}">{"".join(self._marks)}</svg>'
        )


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places of labels moved as little as it takes to be `gap` apart, and between low and high where there is room.

    Examples
    --------
    >>> spread_apart([10.0, 12.0, 50.0], 10.0, 0.0, 100.0)
    [6.0, 16.0, 50.0]
    """
    order = np.argsort(places, kind="stable")
    groups: list[list[float]] = []  # middle and number of the labels that touch
    for place in np.asarray(places, dtype=float)[order]:
        groups.append([float(place), 1.0])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            middle, count = groups.pop()
            before, n_before = groups.pop()
            groups.append([(middle * count + before * n_before) / (count + n_before), count + n_before])
    moved = [middle + gap * (k - (count - 1) / 2) for middle, count in groups for k in range(int(count))]
    shift = max(low - moved[0], 0.0) + min(high - moved[-1], 0.0) if moved else 0.0
    found = [0.0] * len(moved)
    for place, k in zip(moved, order, strict=True):
        found[int(k)] = place + shift
    return found


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(factor * size for factor in (1.0, 2.0, 5.0, 10.0) if factor * size >= rough * 0.999)


def _tick_text(value: float, digits: int) -> str:
    if abs(value) >= 1e7 or (value and digits > 5):
        return number(value)
    return "0" if value == 0 else f"{value:,.{digits}f}".replace("-", MINUS)


def _steps(points: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    """Start and steps of a line in tenths; steps that go on in the same direction are one.

    Examples
    --------
    >>> _steps([(0.0, 1.0), (1.0, 1.0), (2.5, 1.0), (3.0, 2.0)])
    [(0, 10), (25, 0), (5, 10)]
    """
    steps: list[tuple[int, int]] = []
    last_x = last_y = 0
    for x, y in points:
        here_x, here_y = round(10 * x), round(10 * y)
        dx, dy = here_x - last_x, here_y - last_y
        last_x, last_y = here_x, here_y
        if len(steps) > 1:
            before_x, before_y = steps[-1]
            if before_x * dy == before_y * dx and before_x * dx + before_y * dy >= 0:
                steps[-1] = (before_x + dx, before_y + dy)
                continue
        steps.append((dx, dy))
    return steps


def _tenths(value: int) -> str:
    return _short(value / 10)


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

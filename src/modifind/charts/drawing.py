"""Lines, boxes, points and text as SVG; all text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from modifind.charts.labels import shortened


class Drawing:
    """Marks of one figure, in the order of drawing."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._marks: list[str] = []

    def path(self, points: Iterable[tuple[float, float]], style: str, *, closed: bool = False) -> None:
        """A line through points, or the area that it encloses."""
        steps = _steps(points)
        if len(steps) > 1:
            (x, y), *others = steps
            way = " ".join(f"{_short(dx / 10)} {_short(dy / 10)}" for dx, dy in others).replace(" -", "-")
            self._marks.append(f'<path class="{style}" d="M{_short(x / 10)} {_short(y / 10)}l{way}{"z" * closed}"/>')

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

    def mark(self, x: float, y: float, style: str, *, small: bool = False) -> None:
        """A point."""
        self._marks.append(f'<circle class="{style}" cx="{_short(x)}" cy="{_short(y)}" r="{4 - small}"/>')

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
        """The figure, with a text that stands for it."""
        return Markup(
            f'<svg viewBox="0 0 {_short(self.width)} {_short(self.height)}" role="img" '
            f'aria-label="{escape(label)}">{"".join(self._marks)}</svg>'
        )


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


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

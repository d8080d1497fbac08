"""What displays share: how a feature of a result is found, figures, and how notebooks show them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from modifind.charts.style import DPI, HALF_PAGE, legend, make_figure
from modifind.data.wording import named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

SCREEN = 120  # pixels that an inch of a figure takes in a notebook


class Display:
    """A picture of a part of a result.

    Attributes
    ----------
    figure_ : Figure
        What `plot` drew on.
    """

    figure_: Any = None
    _own_figure = False

    from_result: ClassVar[Callable[..., Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *feature: Any, **settings: Any) -> Self:
        """The same as `from_result`, for the result of a fitted `ModifierSelector`."""
        made: Self = cls.from_result(estimator.result_, *feature, **settings)
        return made

    def _axes(
        self, axes: Sequence[Axes] | None, n_axes: int, *, height: float, n_columns: int = 1, width: float = HALF_PAGE
    ) -> list[Axes]:
        """The axes that were passed, or those of a new figure that is as high as its rows."""
        self._own_figure = axes is None
        if axes is None:
            n_rows = -(-n_axes // n_columns)
            self.figure_, made = make_figure(n_columns, width=width, height=height, n_rows=n_rows, dpi=DPI)
            for spare in made[n_axes:]:
                spare.remove()
            return made[:n_axes]
        given = list(axes)
        if len(given) != n_axes:
            raise ValueError(f"{type(self).__name__} draws on {n_axes} axes, not {len(given)}")
        self.figure_ = given[0].get_figure()
        return given

    def _legend(self, axes: Axes, entries: Sequence[tuple[Any, str]], *, n_columns: int = 3) -> None:
        """A legend at the top of our own figure, or above axes that were passed."""
        legend(self.figure_ if self._own_figure else axes, entries, n_columns=n_columns)

    def _align(self, panels: Sequence[Axes]) -> None:
        """Put the labels of axes of our own that stand above each other in one line."""
        if self._own_figure:
            self.figure_.align_ylabels(panels)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        """The picture in a notebook; figures that the user made are shown by whoever made them."""
        if self.figure_ is None or not self._own_figure:
            return None
        buffer = io.BytesIO()
        self.figure_.savefig(buffer, format="png")
        width, height = self.figure_.get_size_inches()
        return buffer.getvalue(), {"width": round(width * SCREEN), "height": round(height * SCREEN)}


def column_of(result: SelectionResult, feature: Any, what: str) -> str:
    """The column of a feature, whose `what` are to be drawn; a group has several, and the error names them."""
    feature = str(feature)
    columns = result.groups.get(feature, [feature])
    if len(columns) > 1:
        raise ValueError(f"{feature!r} is a group; draw the {what} of its columns: {named(columns)}")
    if columns[0] not in result.curves:
        features = ", ".join(map(repr, result.table.index))
        raise ValueError(f"no feature {feature!r}; features are {features}")
    return str(columns[0])

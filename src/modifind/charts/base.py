"""What displays share: a figure of a part of a result, how it is drawn, and how notebooks show it."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pandas as pd

from modifind.charts.labels import PLAIN_WORDS, Words
from modifind.charts.spec import Caption, Figure, Places
from modifind.data.wording import named
from modifind.result.writing import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

FORMATS = ("svg", "png", "pdf")
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same figure is the same file
SCREEN = 120  # pixels that an inch of a figure takes in a notebook


class Display(ABC):
    """A figure of a part of a result: what all displays share.

    Attributes
    ----------
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on; displays of one panel have `ax_` as well.

    Examples
    --------
    >>> from modifind.charts import CalibrationDisplay
    >>> display = CalibrationDisplay(pd.Series({"age": 0.01, "bmi": 0.03})).plot()
    >>> display.figure_.axes == display.axes_
    True
    """

    figure_: Any = None
    axes_: list[Axes]
    _own_figure = False

    from_result: ClassVar[Callable[..., Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *feature: Any, **settings: Any) -> Self:
        """The same as `from_result`, for the result of a fitted `ModifierSelector`."""
        made: Self = cls.from_result(estimator.result_, *feature, **settings)
        return made

    @abstractmethod
    def spec(self) -> Figure:
        """What is drawn, as data that every renderer takes."""

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw on as many axes as there are panels, or on a new figure."""
        from modifind.charts.matplotlib import draw

        figure = self.spec()
        if axes is not None and len(axes) != len(figure.panels):
            raise ValueError(f"{type(self).__name__} draws on {len(figure.panels)} axes, not {len(axes)}")
        self._own_figure = axes is None
        self.figure_, self.axes_ = draw(figure, axes)
        return self

    def savefig(self, path: str | os.PathLike[str]) -> None:
        """Save the figure in the format that the name ends in, such as .svg, .png or .pdf; whole or not at all.

        Examples
        --------
        >>> result.plot.forest().savefig("forest.svg")  # doctest: +SKIP
        """
        if self.figure_ is None:
            self.plot()
        buffer, suffix = io.BytesIO(), Path(path).suffix.lower().lstrip(".")
        if suffix not in FORMATS:
            endings = f".{', .'.join(FORMATS[:-1])} or .{FORMATS[-1]}"
            raise ValueError(f"the name of a figure must end in {endings}; found {os.fspath(path)!r}")
        self.figure_.savefig(buffer, format=suffix, metadata=UNDATED.get(suffix))
        write_bytes(path, buffer.getvalue())

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        """The figure in a notebook; figures that the user made are shown by whoever made them."""
        if self.figure_ is None or not self._own_figure:
            return None
        buffer = io.BytesIO()
        self.figure_.savefig(buffer, format="png")
        width, height = self.figure_.get_size_inches()
        return buffer.getvalue(), {"width": round(width * SCREEN), "height": round(height * SCREEN)}


class SingleDisplay(Display):
    """A figure of one panel.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.
    """

    ax_: Axes

    def plot(self, ax: Axes | None = None) -> Self:  # type: ignore[override]
        """Draw on `ax`, or on a new figure."""
        super().plot(None if ax is None else [ax])
        (self.ax_,) = self.axes_
        return self


@dataclass(eq=False, repr=False)
class AlongDisplay(Display):
    """A figure of a curve along the values of one feature."""

    feature: str
    curve: pd.DataFrame
    _: KW_ONLY
    discrete: bool
    words: Words = PLAIN_WORDS

    what: ClassVar[str]  # that the curve gives

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> Self:
        """The figure of one feature of a result; of a group, of one of its columns."""
        column = column_of(result, feature, cls.what)
        return cls(feature, result.curve(column), discrete=result.kind(column) == "discrete", words=Words.of(result))

    @property
    def places(self) -> Places:
        """The values of the feature."""
        return Places.along(self.feature, self.curve, discrete=self.discrete)


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


def caption_along(places: Places, title: str, note: str, texts: Sequence[str]) -> Caption:
    """Words of a figure along a feature; what stands for it has the first and the last point, or all of a few."""
    shown = range(len(texts)) if len(texts) <= 4 else (0, len(texts) - 1)
    points = ". ".join(f"{places.labels[k]}: {texts[k]}" for k in shown) or "Nothing is known"
    return Caption(title, note, f"{title} along {places.name}. {points}.", tuple(texts))

"""Base classes of displays, and figures of the whole table: importance, changes, overlap and calibration."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.charts.labels import PLAIN_WORDS, Words, percent, shown
from modifind.charts.spec import Band, Bars, Caption, Figure, Key, Line, Mark, Panel, Places, Rule, Texts, values_of
from modifind.data.words import named
from modifind.result.files import write_bytes
from modifind.result.selection_result import PARTS, SelectionResult, p_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult


FORMATS = ("svg", "png", "pdf")
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same figure is the same file
SCREEN = 120  # pixels that an inch of a figure takes in a notebook


class Display(ABC):
    """Base class of displays: a figure of a part of a result.

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
        """Like `from_result`, for a fitted `ModifierSelector`."""
        made: Self = cls.from_result(estimator.result_, *feature, **settings)
        return made

    @abstractmethod
    def spec(self) -> Figure:
        """The figure as data that every renderer accepts."""

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw on given axes, one per panel, or on a new figure."""
        from modifind.charts.matplotlib import draw

        figure = self.spec()
        if axes is not None and len(axes) != len(figure.panels):
            raise ValueError(f"{type(self).__name__} draws on {len(figure.panels)} axes, not {len(axes)}")
        self._own_figure = axes is None
        self.figure_, self.axes_ = draw(figure, axes)
        return self

    def savefig(self, path: str | os.PathLike[str]) -> None:
        """Save the figure, atomically, in the format of the file name's suffix, such as .svg, .png or .pdf.

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
        """The figure for notebooks; figures created by the user are left for them to show."""
        if self.figure_ is None or not self._own_figure:
            return None
        buffer = io.BytesIO()
        self.figure_.savefig(buffer, format="png")
        width, height = self.figure_.get_size_inches()
        return buffer.getvalue(), {"width": round(width * SCREEN), "height": round(height * SCREEN)}


class SingleDisplay(Display):
    """Base class of figures with one panel.

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
    """Base class of figures along the values of one feature."""

    feature: str
    curve: pd.DataFrame
    _: KW_ONLY
    discrete: bool
    words: Words = PLAIN_WORDS

    what: ClassVar[str]  # that the curve gives

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> Self:
        """Figure of one feature of a result, or of one column of a group."""
        column = column_of(result, feature, cls.what)
        return cls(feature, result.curve(column), discrete=result.kind(column) == "discrete", words=Words.of(result))

    @property
    def places(self) -> Places:
        """The values of the feature."""
        return Places.along(self.feature, self.curve, discrete=self.discrete)


def column_of(result: SelectionResult, feature: Any, what: str) -> str:
    """Column to draw for a feature; a group has several, which the error names."""
    feature = str(feature)
    columns = result.groups.get(feature, [feature])
    if len(columns) > 1:
        raise ValueError(f"{feature!r} is a group; draw the {what} of its columns: {named(columns)}")
    if columns[0] not in result.curves:
        features = ", ".join(map(repr, result.table.index))
        raise ValueError(f"no feature {feature!r}; features are {features}")
    return str(columns[0])


def caption_along(places: Places, title: str, note: str, texts: Sequence[str]) -> Caption:
    """Caption of a figure along a feature; its text alternative has the first and last point, or all of a few."""
    shown = range(len(texts)) if len(texts) <= 4 else (0, len(texts) - 1)
    points = ". ".join(f"{places.labels[k]}: {texts[k]}" for k in shown) or "Nothing is known"
    return Caption(title, note, f"{title} along {places.name}. {points}.", tuple(texts))


@dataclass(eq=False, repr=False)
class ImportanceDisplay(SingleDisplay):
    """Bars of importance, most important first, selected features in colour.

    Parameters
    ----------
    names : list of str
        Features, in drawing order.
    importance, p_adjusted : array
        What is drawn and what is written beside it.
    selected : array of bool
        Which bars are coloured.

    Examples
    --------
    >>> import numpy as np
    >>> selected, p = np.array([True, False]), np.array([0.001, 0.4])
    >>> display = ImportanceDisplay(["age", "bmi"], np.array([0.3, 0.1]), p, selected).plot()
    >>> [float(bar.get_width()) for bar in display.ax_.patches[:2]]
    [0.3, 0.1]
    """

    names: list[str]
    importance: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    selected: NDArray[np.bool_]

    @classmethod
    def from_result(cls, result: SelectionResult, *, max_features: int = 30) -> ImportanceDisplay:
        """All selected features and the most important others, `max_features` in total; untested ones are omitted."""
        known = result.table[result.table["importance"].notna()]
        table = known.sort_values(["selected", "importance"], ascending=False).head(max_features)
        table = table.sort_values("importance", ascending=False)
        return cls(
            [str(name) for name in table.index],
            table["importance"].to_numpy(dtype=float),
            table["p_adjusted"].to_numpy(dtype=float),
            table["selected"].to_numpy(dtype=bool),
        )

    def spec(self) -> Figure:
        """Bars with p-values next to them."""
        places = Places.listed(self.names)
        roles = tuple("selected" if chosen else "plain" for chosen in self.selected)
        stars = ["★ " if chosen else "" for chosen in self.selected]
        texts = tuple(f"{star}{p_text(p)}" for star, p in zip(stars, self.p_adjusted, strict=True))
        marks = (Bars("plain", self.importance, width=0.7, roles=roles), Texts("note", self.importance, texts))
        span = (0.0, 1.38 * (float(self.importance.max(initial=0.0)) or 1.0))
        caption = Caption("Importance", about="Importance of each feature, with adjusted p-values")
        panel = Panel(places, marks, "importance (variance of D²)", span=span, caption=caption)
        return Figure((panel,), places.height())


ROLES = {"mean": "average", "spread": "spread", "shape": "shape"}
SMALLEST = 1e-6  # smaller p-values are drawn here


@dataclass(eq=False, repr=False)
class ChangesDisplay(SingleDisplay):
    """Adjusted p-values of what each feature changes, on a log scale: mean, spread, and shape beyond both.

    Parameters
    ----------
    changes : DataFrame
        `mean_adjusted`, `spread_adjusted` and `shape_adjusted` by feature, in drawing order.
    alpha : float, default=0.05
        Level, drawn as a dashed line.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"mean_adjusted": 0.001, "spread_adjusted": 0.4, "shape_adjusted": 1e-30}
    >>> display = ChangesDisplay(pd.DataFrame([row], index=["age"])).plot()
    >>> [float(line.get_xdata()[0]) for line in display.ax_.lines[:3]]
    [0.001, 0.4, 1e-06]
    """

    changes: pd.DataFrame
    _: KW_ONLY
    alpha: float = 0.05

    @classmethod
    def from_result(cls, result: SelectionResult, *, max_features: int = 30) -> ChangesDisplay:
        """The `max_features` features of a result that change most."""
        columns = [f"{part}_adjusted" for part in PARTS]
        known = result.changes[result.changes[columns].notna().any(axis=1)] if len(result.changes) else result.changes
        if not len(known):
            raise ValueError("this result does not say what features change; fit again to have it tested")
        order = known[columns].min(axis=1).sort_values(kind="stable").index[:max_features]
        return cls(known.loc[order, columns], alpha=float(result.settings.get("alpha", 0.05)))

    def spec(self) -> Figure:
        """Three points for every feature."""
        places = Places.listed(self.changes.index)
        lines = [
            Line(ROLES[part], np.maximum(values_of(self.changes, f"{part}_adjusted"), SMALLEST), shift=0.2 * (k - 1))
            for k, part in enumerate(PARTS)
        ]
        apart = [Rule("separator", k - 0.5, place=True) for k in places.at[1:]]
        keys = (*(Key(ROLES[part], part, "point") for part in PARTS), Key("level", f"level {self.alpha:g}"))
        ticks = ((1.0, "1"), (0.01, "0.01"), (1e-4, "0.0001"), (SMALLEST, "≤ 1e-6"))
        caption = Caption("What each feature changes", about="Adjusted p-values of what each feature changes")
        marks = (*lines, Rule("level", self.alpha), *apart)
        panel = Panel(places, marks, "adjusted p-value", keys=keys, ticks=ticks, log=True, caption=caption)
        return Figure((replace(panel, span=(1.6, 0.6 * SMALLEST)),), places.height(), legend_columns=4)


ARMS = ("treated", "control")


@dataclass(eq=False, repr=False)
class OverlapDisplay(SingleDisplay):
    """Histograms of the propensity scores, one arm above and one below; overlap is lacking where one is empty.

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


MAX_SIDE_BY_SIDE = 3
TWO_SIDED = 1.96


@dataclass(eq=False, repr=False)
class CalibrationDisplay(Display):
    """Distances between the features' distributions and held-out rows, or histograms for chosen features.

    The probability integral transform (PIT) of a feature is uniform if its estimated distribution given the other
    features is correct: the Kolmogorov-Smirnov distance is then near zero, and each tenth holds a tenth of the rows.

    Parameters
    ----------
    distances : Series
        Kolmogorov-Smirnov distance of each feature, in drawing order.
    histograms : DataFrame, optional
        Shares of the rows by tenths of the PIT, one row per feature. If given, they are drawn instead of the distances.
    limit : float, optional
        Distance above which a check may fail.
    n_rows : int, optional
        Rows that the histograms are of, for the band within which a right distribution lies 95% of the time.

    Examples
    --------
    >>> import pandas as pd
    >>> display = CalibrationDisplay(pd.Series({"age": 0.01, "bmi": 0.03})).plot()
    >>> display.axes_[0].lines[0].get_xdata().tolist()
    [0.01, 0.03]
    """

    distances: pd.Series[Any]
    histograms: pd.DataFrame | None = None
    _: KW_ONLY
    limit: float | None = None
    n_rows: int | None = None

    @classmethod
    def from_result(
        cls, result: SelectionResult, *, features: str | Sequence[str] | None = None, max_features: int = 30
    ) -> CalibrationDisplay:
        """Distances of the `max_features` worst fits of a result, or histograms of `features`."""
        distances = result.diagnostics.get("pit_distance", pd.Series(dtype=float)).dropna()
        limits = result.checks.loc[result.checks["name"] == "conditional_fit", "threshold"]
        limit = float(limits.iloc[0]) if len(limits) else None
        if features is not None:
            known, settings = _histograms(result, features), result.settings
            n_rows = min(int(settings["n_rows"]), int(settings.get("max_train_rows") or settings["n_rows"]))
            return cls(distances.reindex(known.index), known, limit=limit, n_rows=n_rows)
        if not len(distances):
            raise ValueError(
                "this result has no calibration of distributions: no feature is continuous, or none was tested"
            )
        return cls(distances.sort_values(ascending=False).head(max_features), limit=limit)

    def spec(self) -> Figure:
        """One panel of distances, or one for each histogram."""
        if self.histograms is None:
            return self._distances()
        shares = self.histograms.to_numpy(dtype=float)
        n, n_tenths = shares.shape
        reach = 1.1 * max(float(np.nanmax(shares, initial=0.0)), 1.5 / n_tenths)
        named = zip(map(str, self.histograms.index), shares, strict=True)
        panels = tuple(self._histogram(name, tenths, reach) for name, tenths in named)
        columns = min(n, MAX_SIDE_BY_SIDE)
        return Figure(panels, 0.5 + 1.35 * -(-n // columns), columns=columns)

    def _distances(self) -> Figure:
        places, distances = Places.listed(self.distances.index), self.distances.to_numpy(dtype=float)
        marks: list[Mark] = [Line("fit", distances), Band("fit", np.zeros_like(distances), distances)]
        keys: tuple[Key, ...] = ()
        if self.limit is not None:
            marks.append(Rule("limit", self.limit))
            keys = (Key("limit", "above: see the checks"),)
        about = "Distance of the conditional distribution of each feature from held-out rows"
        label, limits = "distance of the distribution\nfrom held-out rows (KS)", (0.0, np.inf)
        panel = Panel(places, tuple(marks), label, keys=keys, holds=(0.0,), within=limits)
        return Figure((replace(panel, caption=Caption("Distances", about=about)),), places.height())

    def _histogram(self, name: str, shares: Any, reach: float) -> Panel:
        tenths = shares.size
        marks: list[Mark] = [Bars("rank", shares, width=1 / tenths), Rule("neutral", 1 / tenths)]
        keys = [Key("rank", "held-out rows", "box")]
        if self.n_rows:
            marks.append(Rule("null", 1 / tenths, half=TWO_SIDED * np.sqrt((1 - 1 / tenths) / tenths / self.n_rows)))
            keys.append(Key("null", "95% range if the distribution is right", "box"))
        listed = ", ".join(map(percent, shares))
        about = f"Shares of {name} by tenths of its estimated distribution, 10% each if it is right: {listed}"
        ticks = ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))
        places = Places.numbers("PIT", (np.arange(tenths) + 0.5) / tenths, (0.0, 1.0), ticks)
        panel = Panel(places, tuple(marks), "share of rows", title=shown(name, 12), keys=tuple(keys))
        return replace(panel, span=(0.0, reach), caption=Caption(name, about=about))


def _histograms(result: SelectionResult, features: str | Sequence[str]) -> pd.DataFrame:
    """Shares by tenths of the requested features."""
    chosen = [features] if isinstance(features, str) else [str(name) for name in features]
    known = result.pit_histogram.dropna()
    absent = [name for name in chosen if name not in known.index]
    if absent or not chosen:
        there = ", ".join(map(repr, known.index)) or "none"
        raise ValueError(
            f"no calibration histograms of {', '.join(map(repr, absent)) or 'no features'}; available: "
            f"{there} (discrete features have none)"
        )
    return known.loc[chosen]

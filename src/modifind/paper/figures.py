"""Pictures of the studies: means with standard deviations as error bars, as in the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.charts.matplotlib import INK, make_figure, tidy
from modifind.paper.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "#7A828C"
# Colours that colour-blind readers tell apart, each with a marker of its own for grey print.
STYLES = {
    "default": ("#0072B2", "o"),
    "wcmmd": ("#56B4E9", "s"),
    "preset": ("#D55E00", "^"),
    "preset-sums": ("#E69F00", "v"),
    "si-em": ("#009E73", "D"),
    "naive": ("#CC79A7", "P"),
    "exact": ("#000000", "X"),
}


def _grid(n_rows: int, n_columns: int, width: float, height: float) -> tuple[Figure, Any]:
    figure = make_figure(width, height)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _look(method: str) -> dict[str, Any]:
    colour, marker = STYLES[method]
    return {"color": colour, "marker": marker, "label": METHODS[method].label}


def _draw(axes: Axes, method: str, x: Any, mean: Any, sd: Any) -> None:
    size: dict[str, Any] = {"markersize": 4.5, "linewidth": 1.3, "elinewidth": 0.9, "capsize": 2}
    axes.errorbar(x, mean, yerr=np.nan_to_num(sd), **size, **_look(method))


def _legend(figure: Figure, axes: Any, n_columns: int = 4) -> None:
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        handles.update(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    columns = min(len(handles), n_columns)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=9)


def rates_figure(table: pd.DataFrame, x: str, title: str) -> Figure:
    """True and false positive rates against `x`, one column of panels per kind of data."""
    kinds = list(dict.fromkeys(table["data"]))
    figure, axes = _grid(2, len(kinds), max(2.9 * len(kinds), 5.6), 5.6)
    for column, kind in enumerate(kinds):
        above, below = axes[:, column]
        _rates_panel(above, table, kind, x, "tpr")
        _rates_panel(below, table, kind, x, "fpr")
        above.set(title=kind, ylim=(-0.04, 1.04))
        below.set(ylim=(-0.02, max(0.3, 1.05 * _reach(table, "fpr"))))
        below.axhline(0.05, color=INK, linewidth=0.7, linestyle=":")
        if table[x].nunique() > 1:
            below.set_xlabel(x.replace("_", " "))
    axes[0][0].set_ylabel("TPR")
    axes[1][0].set_ylabel("FPR")
    for panel in axes.flat:
        tidy(panel)
    figure.suptitle(title, fontsize=11)
    _legend(figure, axes)
    return figure


def _rates_panel(panel: Axes, table: pd.DataFrame, kind: str, x: str, rate: str) -> None:
    """A rate of every method against `x`, beside that of the paper; methods beside each other where `x` is one."""
    methods = list(dict.fromkeys(table["method"]))
    here, shift = table[table["data"] == kind], 0.006 * float(np.ptp(table[x]))  # so that no error bar hides another
    for k, method in enumerate(methods):
        rows = here[here["method"] == method]
        places = rows[x] + shift * (k - (len(methods) - 1) / 2) if shift else [k] * len(rows)
        _draw(panel, method, places, rows[f"{rate}_mean"], rows[f"{rate}_sd"])
    published = here.drop_duplicates(x).dropna(subset=[f"paper_{rate}"])
    if len(published):
        means, spread = published[f"paper_{rate}"], published[f"paper_{rate}_sd"]
        look: dict[str, Any] = {"color": PAPER, "marker": "*", "ls": ":", "capsize": 2, "label": "paper"}
        panel.errorbar(published[x] if shift else [-1], means, spread, **look)
    if not shift:
        panel.set_xticks([])


def _reach(table: pd.DataFrame, rate: str) -> float:
    return float((table[f"{rate}_mean"] + table[f"{rate}_sd"].fillna(0.0)).max())


def time_figure(table: pd.DataFrame, title: str) -> Figure:
    """Seconds against rows, both on a log scale."""
    figure, axes = _grid(1, 1, 6.4, 4.6)
    panel = axes[0][0]
    for method, rows in table.groupby("method", sort=False):
        _draw(panel, str(method), rows["n"], rows["seconds_mean"], rows["seconds_sd"])
    published = table.dropna(subset=["paper_seconds"])
    for row in published.to_dict("records"):
        colour = STYLES[row["method"]][0]
        panel.plot(row["n"], row["paper_seconds"], "*", color=colour, markersize=11, markeredgecolor=INK, ls="none")
    if len(published):
        panel.plot([], [], "*", color=PAPER, markersize=11, markeredgecolor=INK, ls="none", label="paper's own machine")
    panel.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds on one core", title=title)
    sizes = sorted(set(table["n"]))
    panel.set_xticks(sizes, [str(n) for n in sizes])
    panel.minorticks_off()
    tidy(panel)
    _legend(figure, axes, 2)
    return figure


def nhanes_figure(table: pd.DataFrame, alpha: float, title: str) -> Figure:
    """Mean adjusted p-value of every feature, one panel per scale of the outcome."""
    scales = list(dict.fromkeys(table["data"]))
    features = list(dict.fromkeys(table["feature"]))
    figure, axes = _grid(1, len(scales), 3.9 * len(scales) + 1.2, 6.6)
    for panel, scale in zip(axes[0], scales, strict=True):
        here = table[table["data"] == scale]
        methods = list(dict.fromkeys(here["method"]))
        for k, method in enumerate(methods):
            rows = here[here["method"] == method].set_index("feature").loc[features]
            places = np.arange(len(features)) + 0.13 * (k - (len(methods) - 1) / 2)
            size: dict[str, Any] = {"markersize": 4, "elinewidth": 0.8, "ls": "none"}
            panel.errorbar(rows["p_mean"], places, xerr=np.nan_to_num(rows["p_sd"]), **size, **_look(method))
        panel.axvline(alpha, color=INK, linewidth=0.7, linestyle=":")
        for k in range(len(features) - 1):
            panel.axhline(k + 0.5, color="#E6E9EC", linewidth=0.6)
        shown = [feature.replace("_", " ") for feature in features] if scale == scales[0] else []
        panel.set_yticks(np.arange(len(features)), shown or [""] * len(features))
        panel.set(ylim=(len(features) - 0.5, -0.5), xlim=(-0.03, 1.06))
        panel.set(xlabel="adjusted p-value, mean and sd", title=scale)
        tidy(panel)
    figure.suptitle(title, fontsize=11)
    _legend(figure, axes)
    return figure

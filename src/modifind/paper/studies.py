"""Kinds of studies: the runs of each, and its table, figure and text.

Figures show means with standard deviations as error bars, as in the paper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.charts.matplotlib import INK, make_figure, tidy
from modifind.paper.runs import METHODS, NHANES, Order, Record, StudyRun

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
    """A rate of every method against `x`, next to that of the paper; methods side by side if `x` has one value."""
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


KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar")
SIZES = (500, 750, 1000, 1250, 1500, 1750, 2000)
DEFAULT_RUNS = 50
ALPHA = 0.05
TIMED_RUNS = 3  # of a method at a size, however many are asked for
STANDARD_ERRORS = 2.0  # within which two rates agree
PRINTED = 0.005  # the paper has two decimals
RATES = ("tpr", "fpr", "fdp", "null_share")
UNKNOWN = (np.nan,) * 4  # rates that the paper does not give


@dataclass(frozen=True)
class Study(ABC):
    """One table or figure of the paper."""

    name: str
    title: str
    methods: tuple[str, ...]
    full: Mapping[str, int] = field(default_factory=dict)  # runs by method where not DEFAULT_RUNS
    quick: Mapping[str, int] = field(default_factory=dict)

    def n_runs(self, method: str, order: Order) -> int:
        """Requested number of runs of a method."""
        counts = self.quick if order.quick else self.full
        standard = counts.get(method, counts.get("", DEFAULT_RUNS))
        return order.by_method.get(method, order.by_method.get("", standard))

    def chosen(self, order: Order) -> list[str]:
        """Methods of the study that are requested."""
        return [method for method in self.methods if order.methods is None or method in order.methods]

    def runs(self, order: Order) -> list[StudyRun]:
        """All runs, seed by seed, so that the first ones form a small version of the whole."""
        wanted = self.chosen(order)
        most = max((self.n_runs(method, order) for method in wanted), default=0)
        return [
            run
            for k in range(most)
            for method in wanted
            if k < self.n_runs(method, order)
            for run in self.cells(method, order.seed + k, order.quick)
        ]

    @abstractmethod
    def cells(self, method: str, seed: int, quick: bool) -> list[StudyRun]:
        """The runs of one method with one seed."""

    @abstractmethod
    def table(self, records: list[Record]) -> pd.DataFrame:
        """Table for the CSV file."""

    @abstractmethod
    def figure(self, table: pd.DataFrame) -> Figure:
        """Figure for the PNG file."""

    @abstractmethod
    def text(self, table: pd.DataFrame) -> str:
        """Tables for the Markdown file."""


@dataclass(frozen=True)
class RatesStudy(Study):
    """True and false positive rates on synthetic data, by kind of data and by size or by an option of the method."""

    kinds: tuple[str, ...] = KINDS
    sizes: tuple[int, ...] = (1000,)
    quick_sizes: tuple[int, ...] = (500,)
    option: str = ""
    values: tuple[int, ...] = ()
    usual: int = 0  # the value that a method has anyway
    published: Mapping[tuple[str, int], tuple[float, ...]] = field(default_factory=dict)

    def cells(self, method: str, seed: int, quick: bool) -> list[StudyRun]:
        """Runs for all kinds, sizes and values of the option."""
        choices: list[tuple[tuple[str, Any], ...]] = [()]
        if self.option:  # the usual value is the plain method, whose runs other studies share
            choices = [() if value == self.usual else ((self.option, value),) for value in self.values]
        return [
            StudyRun(kind, n, method, seed, options)
            for kind in self.kinds
            for n in (self.quick_sizes if quick else self.sizes)
            for options in choices
        ]

    def table(self, records: list[Record]) -> pd.DataFrame:
        """Mean and standard deviation of the rates over runs."""
        frame = pd.DataFrame([{**self._place(record.run), **record.rates} for record in records])
        keys = [*self._place(records[0].run)]
        ends = {f"{rate}_{end}": (rate, how) for rate in RATES for end, how in (("mean", "mean"), ("sd", "std"))}
        summary = frame.groupby(keys, sort=False).agg(runs=("tpr", "size"), **ends).reset_index()
        places = zip(summary["data"], summary[self.option or "n"], summary["n"], strict=True)
        # A quick version has other sizes, of which the paper says nothing.
        known = [self.published.get((kind, x), UNKNOWN) if n in self.sizes else UNKNOWN for kind, x, n in places]
        summary[["paper_tpr", "paper_tpr_sd", "paper_fpr", "paper_fpr_sd"]] = known
        summary["verdict"] = [_verdict(row) for row in summary.to_dict("records")]
        return _in_order(summary, keys, (*self.kinds, *self.methods))

    def _place(self, run: StudyRun) -> dict[str, Any]:
        place = {"data": run.data, "n": run.n, "method": run.method}
        return place | ({self.option: dict(run.options).get(self.option, self.usual)} if self.option else {})

    def figure(self, table: pd.DataFrame) -> Figure:
        """Rates against the size or the option, one panel per kind."""
        return rates_figure(table, self.option or "n", self.title + self._size(table))

    def text(self, table: pd.DataFrame) -> str:
        """One row per cell, one column per method."""
        x = self.option or "n"
        lines = []
        methods = list(dict.fromkeys(table["method"]))
        for (kind, value), cell in table.groupby(["data", x], sort=False):
            by_method = {row["method"]: row for row in cell.to_dict("records")}
            first = next(iter(by_method.values()))
            published = "" if np.isnan(first["paper_tpr"]) else _rates(first, "paper_tpr", "paper_fpr", "", "_sd")
            shown = [_rates(by_method[m], "tpr", "fpr", "_mean", "_sd") if m in by_method else "" for m in methods]
            verdict = by_method.get("preset", {"verdict": ""})["verdict"]
            lines.append([str(kind), str(value), *shown, published, verdict])
        counts = [f"{METHODS[m].label} ({_counts(table[table['method'] == m]['runs'])} runs)" for m in methods]
        head = ["data", x.replace("_", " "), *counts, "paper (50 runs)", "preset against paper"]
        note = f"inside: both rates within {STANDARD_ERRORS:g} standard errors of their difference"
        return f"TPR (sd) / FPR (sd){self._size(table)}; {note}\n\n" + markdown_table(head, lines)

    def _size(self, table: pd.DataFrame) -> str:
        """The sample size, if no column or axis shows it."""
        return f", n = {_counts(table['n'])}" if self.option else ""


@dataclass(frozen=True)
class TimeStudy(Study):
    """Processor time of whole runs on LinMean."""

    sizes: tuple[int, ...] = SIZES
    quick_sizes: tuple[int, ...] = (500, 1000)
    multiplied: tuple[str, ...] = ("preset-sums", "exact")
    published: Mapping[str, float] = field(default_factory=dict)

    def n_runs(self, method: str, order: Order) -> int:
        """Requested number, up to a few: times vary less than rates, and these runs are not parallel."""
        return min(super().n_runs(method, order), TIMED_RUNS)

    def cells(self, method: str, seed: int, quick: bool) -> list[StudyRun]:
        """All sizes."""
        measure = "multiplied" if method in self.multiplied else "time"
        sizes = self.quick_sizes if quick else self.sizes
        return [StudyRun("LinMean", n, method, seed, measure=measure) for n in sizes]

    def table(self, records: list[Record]) -> pd.DataFrame:
        """Mean and standard deviation of seconds over runs."""
        seconds = [(r.run.method, r.run.n, _MEASURES[r.run.measure], r.seconds) for r in records]
        frame = pd.DataFrame(seconds, columns=["method", "n", "measured", "seconds"])
        groups = frame.groupby(["method", "n", "measured"], sort=False)["seconds"]
        summary = groups.agg(runs="size", seconds_mean="mean", seconds_sd="std").reset_index()
        summary["paper_seconds"] = summary["method"].map(self.published).where(summary["n"] == SIZES[-1])
        return _in_order(summary, ["method", "n"], self.methods)

    def figure(self, table: pd.DataFrame) -> Figure:
        """Seconds against rows, both on a log scale."""
        return time_figure(table, self.title)

    def text(self, table: pd.DataFrame) -> str:
        """One row per method, one column per size."""
        sizes = sorted(set(table["n"]))
        lines = []
        for method, rows in table.groupby("method", sort=False):
            mean = rows.set_index("n")["seconds_mean"]
            shown = [_seconds(mean.get(n, np.nan)) for n in sizes]
            published = rows["paper_seconds"].dropna()
            said = f"{published.iloc[0]:,.0f}" if len(published) else ""
            mark = " *" if str(method) in self.multiplied else ""
            lines.append([METHODS[str(method)].label + mark, *shown, _counts(rows["runs"]), said])
        head = ["method", *(f"n = {n}" for n in sizes), "runs", f"paper, n = {SIZES[-1]}"]
        note = (
            "Processor seconds of one process on one thread. The paper's seconds are of another machine.\n\n"
            "\\* multiplied out: fitted with two resamples, one statistic timed, the other 98 resamples of 30 features "
            "added."
        )
        return markdown_table(head, lines) + "\n\n" + note


@dataclass(frozen=True)
class NhanesStudy(Study):
    """Adjusted p-values of every feature on the NHANES table."""

    permuted_too: tuple[str, ...] = ()  # methods that are also tried where nothing is to be found
    published: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    published_siem: tuple[str, ...] = ()

    def cells(self, method: str, seed: int, quick: bool) -> list[StudyRun]:
        """Runs on the outcome, its logarithm and, for some methods unless `quick`, a permuted outcome."""
        permuted = method in self.permuted_too and not quick
        return [StudyRun(data, 0, method, seed) for data in NHANES if permuted or data != "permuted CRP"]

    def table(self, records: list[Record]) -> pd.DataFrame:
        """Mean and standard deviation of the adjusted p-value, and share of runs that select, by feature."""
        columns = ("data", "method", "feature", "p", "chosen")
        runs = [(r.run.data, r.run.method, r.features, r.p_adjusted, r.selected) for r in records]
        frame = pd.concat(pd.DataFrame(dict(zip(columns, run, strict=True))) for run in runs)
        groups = frame.groupby(["data", "method", "feature"], sort=False)
        summary = groups["p"].agg(runs="size", p_mean="mean", p_sd="std").reset_index()
        summary["share_selected"] = groups["chosen"].mean().to_numpy()
        summary["selected_by_mean"] = summary["p_mean"] <= ALPHA
        preset = (summary["method"] == "preset") & (summary["data"] == "CRP")
        for k, column in enumerate(("paper_p_mean", "paper_p_sd")):
            published = {feature: value[k] for feature, value in self.published.items()}
            summary[column] = summary["feature"].map(published).where(preset)
        return _in_order(summary, ["data", "method"], (*NHANES, *self.methods))

    def figure(self, table: pd.DataFrame) -> Figure:
        """Mean adjusted p-values by feature, one panel per scale."""
        return nhanes_figure(table, ALPHA, self.title)

    def text(self, table: pd.DataFrame) -> str:
        """Selected features by method, then every mean p-value."""
        lines = [
            ["CRP", "paper, its method", "50", ", ".join(f"{f} {m:g} ({s:g})" for f, (m, s) in self.published.items())],
            ["CRP", "paper, SI-EM", "", ", ".join(self.published_siem)],
        ]
        for (data, method), rows in table.groupby(["data", "method"], sort=False):
            chosen = rows[rows["selected_by_mean"] | (rows["share_selected"] >= 0.5)].sort_values("p_mean")
            names = [
                f"{r['feature']} {r['p_mean']:.2g} ({_plain(r['p_sd'], '.2g')}) {r['share_selected']:.0%}"
                for r in chosen.to_dict("records")
            ]
            lines.append([str(data), METHODS[str(method)].label, _counts(rows["runs"]), ", ".join(names) or "none"])
        head = ["outcome", "method", "runs", "mean adjusted p (sd), share of runs that select"]
        rule = (
            f"Features whose mean adjusted p-value is at most {ALPHA:g} (the paper's rule), or that half of the runs "
            "select; SI-EM does not adjust:"
        )
        parts = [f"{rule}\n\n{markdown_table(head, lines)}"]
        for data, rows in table.groupby("data", sort=False):
            wide = rows.pivot(index="feature", columns="method", values="p_mean")
            methods = list(dict.fromkeys(rows["method"]))
            body = [[str(f), *(_plain(wide.loc[f, m], ".3f") for m in methods)] for f in dict.fromkeys(rows["feature"])]
            labels = [METHODS[m].label for m in methods]
            parts.append(f"Mean adjusted p-value, {data!s}:\n\n" + markdown_table(["feature", *labels], body))
        return "\n\n".join(parts)


def _verdict(row: Mapping[Any, Any]) -> str:
    """Whether the preset's rates agree with the paper's; empty without figures in the paper or without a deviation."""
    if row["method"] != "preset" or row["runs"] < 2 or np.isnan(row["paper_tpr"]):
        return ""
    words = []
    for rate in ("tpr", "fpr"):
        apart = row[f"{rate}_mean"] - row[f"paper_{rate}"]
        error = np.sqrt(row[f"{rate}_sd"] ** 2 / row["runs"] + row[f"paper_{rate}_sd"] ** 2 / DEFAULT_RUNS)
        if abs(apart) > STANDARD_ERRORS * error + PRINTED:
            words.append(f"{rate.upper()} {'higher' if apart > 0 else 'lower'}")
    return ", ".join(words) or "inside"


def _in_order(table: pd.DataFrame, by: list[str], names: Sequence[str]) -> pd.DataFrame:
    order = {name: k for k, name in enumerate(names)}
    return table.sort_values(by, key=lambda column: column.map(lambda value: order.get(value, value)), kind="stable")


_MEASURES = {"time": "whole run", "multiplied": "multiplied out"}


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rates(row: Mapping[Any, Any], first: str, second: str, mean: str, sd: str) -> str:
    return " / ".join(f"{row[rate + mean]:.2f} ({_plain(row[rate + sd], '.2f')})" for rate in (first, second))


def _plain(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def _seconds(value: float) -> str:
    return "" if np.isnan(value) else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _counts(numbers: Any) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low}-{high}"

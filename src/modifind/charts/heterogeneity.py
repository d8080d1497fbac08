"""Heterogeneity: average effects by subgroup, and bounds on how effects vary between individuals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from modifind.charts.displays import Display, SingleDisplay, caption_along, column_of
from modifind.charts.frame import Scale
from modifind.charts.labels import PLAIN_WORDS, Words, number, percent, typographic, with_limits
from modifind.charts.spec import (
    Band,
    Caption,
    Figure,
    Key,
    Line,
    Mark,
    Panel,
    Places,
    Rule,
    TextColumn,
    spanning,
    values_of,
)
from modifind.result.presentation import MIN_SUPPORT
from modifind.result.selection_result import SelectionResult, p_text, readable_p

MAX_FOREST_FEATURES = 8
MAX_FOREST_LEVELS = 8  # of a feature; those with the most rows
WIDTH = 7.0  # inches
MAX_DRAWN_RATIO = 100.0  # that is drawn
RATIO_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
MIN_RATIO_TICKS, MAX_RATIO_TICKS = 3, 6


@dataclass(eq=False, repr=False)
class ForestDisplay(SingleDisplay):
    """Average effect with limits in every subgroup, selected features first; the dashed line is the overall effect.

    Parameters
    ----------
    subgroups : DataFrame
        Rows of `SelectionResult.subgroups` in drawing order.
    p_adjusted : mapping
        Adjusted p-value of every feature, written beside its name.
    selected : tuple of str
        Features that are starred.
    overall : mapping, optional
        `mean_effect` of all rows together, and its limits.
    n_rows : pair of int, optional
        Rows of the treated and of the control arm.
    words : Words, optional
        What arms and outcome are called.
    simultaneous : bool, default=False
        Whether limits hold simultaneously (Bonferroni over the subgroups drawn) or separately.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"feature": "smoker", "column": "smoker", "level": ["no", "yes"], "n_treated": [90, 40]}
    >>> rows |= {"n_control": [80, 50], "effect": [-3.0, -1.8], "low": [-3.6, -3.9], "high": [-2.4, 0.2]}
    >>> display = ForestDisplay(pd.DataFrame(rows), p_adjusted={"smoker": 0.0004}, selected=("smoker",)).plot()
    >>> [row.get_text() for row in display.ax_.texts[:3]]
    ['★ smoker', 'no', 'yes']
    """

    subgroups: pd.DataFrame
    _: KW_ONLY
    p_adjusted: Mapping[str, float] = field(default_factory=dict)
    selected: tuple[str, ...] = ()
    overall: Mapping[str, float] = field(default_factory=dict)
    n_rows: tuple[int, int] | None = None
    words: Words = PLAIN_WORDS
    simultaneous: bool = False

    @classmethod
    def from_result(
        cls, result: SelectionResult, *, max_features: int = MAX_FOREST_FEATURES, simultaneous: bool = False
    ) -> ForestDisplay:
        """The selected features, most significant first, and others up to `max_features` in total."""
        if not len(result.subgroups):
            raise ValueError("this result has no effects by subgroup; fit again with explain=True to have them")
        table = result.table.sort_values(["selected", "p_value"], ascending=[False, True], kind="stable")
        known = set(result.subgroups["feature"])
        names = [str(name) for name in table.index if name in known][: max(max_features, len(result.selected))]
        shown = pd.concat([_largest(result.subgroups[result.subgroups["feature"] == name]) for name in names])
        return cls(
            shown.reset_index(drop=True),
            p_adjusted={name: float(result.table.loc[name, "p_adjusted"]) for name in names},  # type: ignore[arg-type]
            selected=tuple(name for name in names if name in set(result.selected)),
            overall=result.overall,
            n_rows=(int(result.settings["n_treated"]), int(result.settings["n_control"])),
            words=Words.of(result),
            simultaneous=simultaneous,
        )

    def limits(self) -> pd.DataFrame:
        """The subgroups with the displayed limits."""
        if not self.simultaneous:
            return self.subgroups
        tail = 0.025 / max(int(self.subgroups["effect"].notna().sum()), 1)
        reach = student_t.isf(tail, values_of(self.subgroups, "df")) * values_of(self.subgroups, "se")
        effect = values_of(self.subgroups, "effect")
        if self.words.is_ratio:
            return self.subgroups.assign(low=effect * np.exp(-reach), high=effect * np.exp(reach))
        return self.subgroups.assign(low=effect - reach, high=effect + reach)

    def spec(self) -> Figure:
        """A row for every feature, one below it for each of its subgroups, and columns of numbers."""
        rows, short = self._rows(), self.words.short
        effect, low, high = np.array([row.limits for row in rows]).reshape(-1, 3).T
        labels, heads = tuple(row.label for row in rows), tuple(row.head for row in rows)
        weak = np.array([row.few for row in rows], dtype=bool)
        places = Places("", np.arange(len(rows), dtype=float), labels, True, weak, rows=True, heads=heads)
        whole = float(self.overall.get("mean_effect", math.nan))
        rules = [Rule("neutral", self.words.neutral)] + [Rule("overall", whole)] * math.isfinite(whole)
        keys = [
            Key("neutral", "no effect"),
            Key("average", "95% limits" + ", simultaneous" * self.simultaneous, "band"),
        ]
        if math.isfinite(whole):
            keys.append(Key("overall", f"{self.words.whom}, {number(whole)}"))
        name = self.words.effect if self.words.is_ratio else "effect"
        columns = (
            TextColumn(f"n {short.treated} | {short.control}", [row.n for row in rows], before=True),
            TextColumn(f"{name} (95% limits)", [row.text for row in rows], narrow=True),
            TextColumn("p" if not self.p_adjusted else "adjusted p", [row.p for row in rows]),
        )
        texts = tuple(row.said for row in rows)
        caption = Caption(f"{self.words.effect.capitalize()} by subgroup", about=self._about(rows), texts=texts)
        marks = (*rules, Band("average", low, high), Line("average", effect))
        label, sides = self.words.effect_label, self.words.sides
        panel = Panel(places, marks, label, sides, keys=tuple(keys), caption=caption, columns=columns)
        if self.words.is_ratio:
            panel = replace(panel, log=True, **_ratio_axis(panel))
        return Figure((panel,), 0.9 + 0.2 * len(rows), width=WIDTH)

    def _rows(self) -> list[_Row]:
        """All rows, top to bottom."""
        rows, ratio = [], self.words.is_ratio
        whole = _three(self.overall, ("mean_effect", "mean_effect_low", "mean_effect_high"))
        if not math.isnan(whole[0]):
            counts, text = _counts(*self.n_rows) if self.n_rows else "", with_limits(*whole, ratio=ratio)
            rows.append(_Row(self.words.whom.capitalize(), whole, n=counts, text=text, said=text))
        for (feature, column), levels in self.limits().groupby(["feature", "column"], sort=False):
            name = f"{'★ ' * (feature in self.selected)}{feature if feature == column else f'{feature}: {column}'}"
            p_value = self.p_adjusted.get(str(feature), math.nan)
            rows.append(_Row(name, p="" if math.isnan(p_value) else readable_p(p_value)))
            rows += [self._level(row) for row in levels.to_dict("records")]
        return rows

    def _level(self, row: dict[Any, Any]) -> _Row:
        """The row of one subgroup."""
        arms, ratio = (int(row["n_treated"]), int(row["n_control"])), self.words.is_ratio
        counts, limits = _counts(*arms), _three(row, ("effect", "low", "high"))
        text = "" if math.isnan(limits[0]) else with_limits(*limits, ratio=ratio)
        nothing = "no ratio" if ratio and min(arms) else "too few rows"
        said, few = f"{text} ({counts} rows)", min(arms) < MIN_SUPPORT
        label = typographic(str(row["level"]))
        return _Row(label, limits, head=False, few=few, n=counts, text=text or nothing, said=said)

    def _about(self, rows: list[_Row]) -> str:
        """Text alternative of the figure."""
        texts = [f"{row.label}: {row.text}".strip() for row in rows if not row.head]
        return f"{self.words.effect.capitalize()} by subgroup, {self.words.outcome}. {'; '.join(texts)}."


@dataclass(frozen=True)
class _Row:
    """A row of the figure: a heading or a subgroup, with its effect and texts."""

    label: str
    limits: tuple[float, float, float] = (math.nan,) * 3  # around the effect, which is the first
    head: bool = True
    few: bool = False
    n: str = ""
    text: str = ""
    said: str = ""
    p: str = ""


def _ratio_axis(panel: Panel) -> dict[str, Any]:
    """Ends and ticks of a log axis of ratios; ratios of few rows do not extend it."""
    sure, weak = panel.values
    rules = [mark.at for mark in panel.marks if isinstance(mark, Rule)]
    inside = [min(max(value, 1 / MAX_DRAWN_RATIO), MAX_DRAWN_RATIO) for value in (sure or weak)]
    low, high = (10.0**end for end in spanning([math.log10(value) for value in (*inside, *rules) if value > 0]))
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    if len(ticks) < MIN_RATIO_TICKS:
        return {"span": (low, high), "ticks": tuple(Scale(low, high, 0.0, 1.0).ticks(4))}
    while len(ticks) > MAX_RATIO_TICKS:
        ticks = ticks[ticks.index(1.0) % 2 :: 2]
    return {"span": (low, high), "ticks": tuple((tick, f"{tick:g}") for tick in ticks)}


def _three(row: Mapping[Any, float], names: tuple[str, str, str]) -> tuple[float, float, float]:
    effect, low, high = (float(row.get(name, math.nan)) for name in names)
    return effect, low, high


def _counts(n_treated: int, n_control: int) -> str:
    return f"{n_treated:,} | {n_control:,}"


def _largest(rows: pd.DataFrame) -> pd.DataFrame:
    """The subgroups of a feature with the most rows, in order."""
    size = rows["n_treated"] + rows["n_control"]
    return rows.loc[sorted(size.sort_values(ascending=False, kind="stable").index[:MAX_FOREST_LEVELS])]


SD = (
    "How much effects differ between persons",
    "Standard deviation of the effect between persons with the same value.",
)
VARIANCE = ("Variance of effects between persons", "Variance of the effect between persons with the same value.")
CORRELATION = (
    "Do both outcomes of a person go together?",
    "Correlation between a person's outcomes under {treated} and under {control}.",
)
OTHERS = "Share of persons whose outcome is "
BENEFIT = ("Share with a {higher} outcome", f"{OTHERS}{{higher}} under {{treated}} than under {{control}}.")
NO_HARM = ("Share without a {lower} outcome", f"{OTHERS}not {{lower}} under {{treated}} than under {{control}}.")
# Name of the axis, its limits, heading and how to read it.
QUANTITIES = {
    "sd": ("sd of the effect\non {outcome}", (0.0, math.inf), *SD),
    "var": ("variance of the effect\non {outcome}", (0.0, math.inf), *VARIANCE),
    "corr": ("correlation of the\npotential outcomes", (-1.0, 1.0), *CORRELATION),
    "benefit": ("share with a {higher}\n{outcome} if treated", (0.0, 1.0), *BENEFIT),
    "no_harm": ("share without a {lower}\n{outcome} if treated", (0.0, 1.0), *NO_HARM),
}
BINARY = "Share of persons who have the outcome under {treated} and would not under {control}."
PARTS = {"midpoint": "middle of the range", "width": "width"}
SHORT = 12  # letters of categories that leave room for three axes beside each other
DEFAULT = ("sd", "corr", "benefit")


@dataclass(eq=False, repr=False)
class BoundsDisplay(Display):
    """Sharp bounds on the spread of the effect, the correlation of potential outcomes and the share who benefit.

    The truth lies anywhere between the lower and the upper bound, and no amount of data can say where; outer bars or
    lines are 95% limits of the bounds.

    Parameters
    ----------
    feature : str
        Name of the feature.
    bounds : DataFrame
        Output of `effect_bounds`.
    discrete : bool
        Whether the feature has categories.
    tests : DataFrame, optional
        Output of `bounds_test`; its p-values are written above the axes.
    quantities : sequence of {"sd", "var", "corr", "benefit", "no_harm"}
        What is drawn, one axes each.
    higher_is_better : bool, default=True
        Whether higher outcomes are a benefit; the bounds of a result always assume so.
    words : Words, optional
        What the outcome is called.

    Examples
    --------
    >>> from modifind.explain import effect_bounds
    >>> x, y, a = ["no", "yes"] * 40, [0, 1, 2, 5] * 20, [0, 0, 1, 1] * 20
    >>> bounds = effect_bounds(x, y, a, 0.5, discrete=True, random_state=0)
    >>> display = BoundsDisplay("smoker", bounds, discrete=True, quantities=["sd"]).plot()
    >>> [label.get_text() for label in display.axes_[0].get_xticklabels()]
    ['no', 'yes']
    """

    feature: str
    bounds: pd.DataFrame
    _: KW_ONLY
    discrete: bool
    tests: pd.DataFrame | None = None
    quantities: Sequence[str] = DEFAULT
    higher_is_better: bool = True
    words: Words = PLAIN_WORDS

    def __post_init__(self) -> None:
        unknown = [name for name in self.quantities if name not in QUANTITIES]
        if unknown or not self.quantities:
            raise ValueError(f"quantities must be some of {', '.join(QUANTITIES)}, not {unknown or 'none'}")

    @classmethod
    def from_result(
        cls, result: SelectionResult, feature: str, *, quantities: Sequence[str] = DEFAULT
    ) -> BoundsDisplay:
        """Bounds along one feature of a result, or along one column of a group."""
        column = column_of(result, feature, "bounds")
        if column not in result.bounds:
            there = ", ".join(map(repr, result.bounds)) or "none"
            raise ValueError(
                f"no bounds of {column!r}; available: {there}. A fit bounds the effects along features whose "
                "p-value is at most alpha; for others call modifind.explain.effect_bounds"
            )
        bounds, tests, words = result.bounds[column].copy(), result.bound_tests.get(column), Words.of(result)
        discrete = result.kind(column) == "discrete"
        return cls(feature, bounds, discrete=discrete, tests=tests, quantities=quantities, words=words)

    def spec(self) -> Figure:
        """A panel for each quantity, stacked; side by side if categories have short names."""
        places = Places.along(self.feature, self.bounds, discrete=self.discrete)
        longest = max((len(line) for label in places.ticked for line in label.split("\n")), default=0)
        stacked = 1 if places.sideways and longest <= SHORT else len(self.quantities)
        panels = tuple(self._panel(places, name) for name in self.quantities)
        return Figure(panels, stacked * places.height(1.75) + 0.3, columns=len(panels) // stacked)

    def _panel(self, places: Places, name: str) -> Panel:
        label, within, title, note = QUANTITIES[name]
        if self.words.binary and name == "benefit" and self.higher_is_better:
            note = BINARY
        higher, lower = ("higher", "lower") if self.higher_is_better else ("lower", "higher")
        words = {"higher": higher, "lower": lower, "treated": self.words.treated, "control": self.words.control}
        ends = ("low", "high", "low_ci_low", "high_ci_high")
        low, high, outer_low, outer_high = limits = [values_of(self.bounds, f"{name}_{end}") for end in ends]
        marks: list[Mark] = [Band("bounds", low, high, box=0.5)]
        marks += [Line("bounds", low, points=False), Line("bounds", high, points=False)]
        keys = [Key("bounds", "consistent with the data", "box")]
        if np.isfinite(outer_low).any():
            marks += [Band("limits", outer_low, low), Band("limits", high, outer_high)]
            keys.append(Key("limits", "with 95% limits", "box"))
        shares = within == (0.0, 1.0)
        texts = [self._text(ends, shares) for ends in zip(*limits, strict=True)]
        caption = caption_along(places, title.format(**words), f"{note.format(**words)}{self._varies(name)}", texts)
        axis = label.format(outcome=self.words.short.outcome, **words)
        panel = Panel(places, tuple(marks), axis, remark=self._remark(name), keys=tuple(keys), caption=caption)
        return replace(panel, holds=tuple(filter(math.isfinite, within)), within=within, percent=shares)

    @staticmethod
    def _text(limits: tuple[float, ...], shares: bool) -> str:
        low, high, outer_low, outer_high = (percent(end, 0) if shares else number(end) for end in limits)
        outer = "" if math.isnan(limits[2]) else f" (95% limits {outer_low} to {outer_high})"
        return f"between {low} and {high}{outer}"

    def _p_values(self, name: str) -> dict[str, float]:
        """P-values for a change of midpoint or width of the bounds along the feature."""
        if self.tests is None or "quantity" not in self.tests:
            return {}
        rows = self.tests[self.tests["quantity"] == ("var" if name == "sd" else name)]
        return {str(part): float(p) for part, p in zip(rows["part"], rows["p_value"], strict=True) if p == p}

    def _remark(self, name: str) -> str:
        texts = [f"{part} {p_text(p)}" for part, p in self._p_values(name).items()]
        return f"change: {', '.join(texts)}" if texts else ""

    def _varies(self, name: str) -> str:
        parts = [f"{PARTS.get(part, part)} {p_text(p)}" for part, p in self._p_values(name).items()]
        return f" Does it change along the feature? {', '.join(parts).capitalize()}." if parts else ""

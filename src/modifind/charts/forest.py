"""Average effects by subgroup, one below the other: the forest plot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from modifind.charts.base import SingleDisplay
from modifind.charts.labels import PLAIN_WORDS, Words, number, typographic, with_limits
from modifind.charts.scale import Scale
from modifind.charts.spec import Band, Caption, Figure, Key, Line, Panel, Places, Rule, TextColumn, spanning, values_of
from modifind.result.explained import MIN_SUPPORT
from modifind.result.selection_result import SelectionResult, readable_p

MAX_FOREST_FEATURES = 8
MAX_FOREST_LEVELS = 8  # of a feature; those with the most rows
WIDTH = 7.0  # inches
MAX_DRAWN_RATIO = 100.0  # that is drawn
RATIO_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
MIN_RATIO_TICKS, MAX_RATIO_TICKS = 3, 6


@dataclass(eq=False, repr=False)
class ForestDisplay(SingleDisplay):
    """Average effect in every subgroup with its limits, selected features first; the dashed line is the effect overall.

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
        """The selected features, most significant first, and others up to `max_features` in all."""
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
        """The subgroups with the limits that are drawn."""
        if not self.simultaneous:
            return self.subgroups
        tail = 0.025 / max(int(self.subgroups["effect"].notna().sum()), 1)
        reach = student_t.isf(tail, values_of(self.subgroups, "df")) * values_of(self.subgroups, "se")
        effect = values_of(self.subgroups, "effect")
        if self.words.is_ratio:
            return self.subgroups.assign(low=effect * np.exp(-reach), high=effect * np.exp(reach))
        return self.subgroups.assign(low=effect - reach, high=effect + reach)

    def spec(self) -> Figure:
        """A row for every feature, one for each of its subgroups below it, and columns of numbers beside them."""
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
        """All rows, from top to bottom."""
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
        """What stands for the figure where it is not seen."""
        texts = [f"{row.label}: {row.text}".strip() for row in rows if not row.head]
        return f"{self.words.effect.capitalize()} by subgroup, {self.words.outcome}. {'; '.join(texts)}."


@dataclass(frozen=True)
class _Row:
    """A row of the figure: a heading or a subgroup, with its effect and the texts beside it."""

    label: str
    limits: tuple[float, float, float] = (math.nan,) * 3  # around the effect, which is the first
    head: bool = True
    few: bool = False
    n: str = ""
    text: str = ""
    said: str = ""
    p: str = ""


def _ratio_axis(panel: Panel) -> dict[str, Any]:
    """Ends and ticks of an axis of ratios, which is a logarithm; a ratio of few rows is not drawn to its end."""
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
    """Of the subgroups of a feature those with the most rows, in their order."""
    size = rows["n_treated"] + rows["n_control"]
    return rows.loc[sorted(size.sort_values(ascending=False, kind="stable").index[:MAX_FOREST_LEVELS])]

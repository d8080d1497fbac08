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
from modifind.charts.spec import Band, Column, Figure, Key, Line, Panel, Places, Rule, Told, spanning, values_of
from modifind.result.explained import MIN_SUPPORT
from modifind.result.selection_result import SelectionResult, readable_p

MOST_FEATURES = 8
MOST_LEVELS = 8  # of a feature; those with the most rows
WIDTH = 7.0  # inches
MOST_RATIO = 100.0  # that is drawn
RATIO_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
LEAST_TICKS, MOST_TICKS = 3, 6


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

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.

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
        cls, result: SelectionResult, *, max_features: int = MOST_FEATURES, simultaneous: bool = False
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
        labels = [str(row["label"]) for row in rows]
        low, effect, high = (np.array([row[name] for row in rows], dtype=float) for name in ("low", "effect", "high"))
        weak = np.array([row["few"] for row in rows], dtype=bool)
        heads = tuple(bool(row["head"]) for row in rows)
        places = Places("", np.arange(len(rows), dtype=float), tuple(labels), True, weak, rows=True, heads=heads)
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
            Column(f"n {short.treated} | {short.control}", [row["n"] for row in rows], before=True),
            Column(f"{name} (95% limits)", [row["text"] for row in rows], narrow=True),
            Column("p" if not self.p_adjusted else "adjusted p", [row["p"] for row in rows]),
        )
        texts = tuple(row["said"] for row in rows)
        told = Told(f"{self.words.effect.capitalize()} by subgroup", about=self._about(rows), texts=texts)
        marks = (*rules, Band("average", low, high), Line("average", effect))
        label, sides = self.words.effect_label, self.words.sides
        panel = Panel(places, marks, label, sides, keys=tuple(keys), told=told, columns=columns)
        if self.words.is_ratio:
            panel = replace(panel, log=True, **_ratio_axis(panel))
        return Figure((panel,), 0.9 + 0.2 * len(rows), width=WIDTH)

    def _rows(self) -> list[dict[str, Any]]:
        """What each row has, from top to bottom."""
        found: list[dict[str, Any]] = []
        whole = [float(self.overall.get(f"mean_effect{end}", math.nan)) for end in ("_low", "", "_high")]
        if not math.isnan(whole[1]):
            rows, told = _counts(*self.n_rows) if self.n_rows else "", self._told(whole[1], whole[0], whole[2])
            first = dict(zip(("low", "effect", "high"), whole, strict=True)) | {"label": self.words.whom.capitalize()}
            found.append({**first, "head": True, "p": "", "n": rows, "text": told, "few": False, "said": told})
        blank = {"low": math.nan, "effect": math.nan, "high": math.nan, "few": False, "n": "", "text": "", "said": ""}
        for (feature, column), own in self.limits().groupby(["feature", "column"], sort=False):
            star = "★ " if feature in self.selected else ""
            name = str(feature) if feature == column else f"{feature}: {column}"
            p_value = self.p_adjusted.get(str(feature), math.nan)
            p_shown = "" if math.isnan(p_value) else readable_p(p_value)
            found.append({**blank, "label": f"{star}{name}", "head": True, "p": p_shown})
            for row in own.to_dict("records"):
                n_treated, n_control = int(row["n_treated"]), int(row["n_control"])
                told = "" if math.isnan(row["effect"]) else self._told(row["effect"], row["low"], row["high"])
                rows = _counts(n_treated, n_control)
                nothing = "no ratio" if self.words.is_ratio and n_treated and n_control else "too few rows"
                found.append(
                    {
                        **{name: float(row[name]) for name in ("low", "effect", "high")},
                        **{"label": typographic(str(row["level"])), "head": False, "p": "", "n": rows},
                        **{"few": min(n_treated, n_control) < MIN_SUPPORT, "said": f"{told} ({rows} rows)"},
                        "text": told or nothing,
                    }
                )
        return found

    def _told(self, effect: float, low: float, high: float) -> str:
        return with_limits(effect, low, high, ratio=self.words.is_ratio)

    def _about(self, rows: list[dict[str, Any]]) -> str:
        """What stands for the figure where it is not seen."""
        told = [f"{row['label']}: {row['text']}".strip() for row in rows if not row["head"]]
        return f"{self.words.effect.capitalize()} by subgroup, {self.words.outcome}. {'; '.join(told)}."


def _ratio_axis(panel: Panel) -> dict[str, Any]:
    """Ends and ticks of an axis of ratios, which is a logarithm; a ratio of few rows is not drawn to its end."""
    sure, weak = panel.values
    rules = [mark.at for mark in panel.marks if isinstance(mark, Rule)]
    inside = [min(max(value, 1 / MOST_RATIO), MOST_RATIO) for value in (sure or weak)]
    low, high = (10.0**end for end in spanning([math.log10(value) for value in (*inside, *rules) if value > 0]))
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    if len(ticks) < LEAST_TICKS:
        return {"span": (low, high), "ticks": tuple(Scale(low, high, 0.0, 1.0).ticks(4))}
    while len(ticks) > MOST_TICKS:
        ticks = ticks[ticks.index(1.0) % 2 :: 2]
    return {"span": (low, high), "ticks": tuple((tick, f"{tick:g}") for tick in ticks)}


def _counts(n_treated: int, n_control: int) -> str:
    return f"{n_treated:,} | {n_control:,}"


def _largest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the subgroups of a feature those with the most rows, in their order."""
    size = rows["n_treated"] + rows["n_control"]
    return rows.loc[sorted(size.sort_values(ascending=False, kind="stable").index[:MOST_LEVELS])]

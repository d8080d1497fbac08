"""The pictures of one column: what the treatment does along its values, and what can be said of single persons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.population import SHORT_NAMES
from modifind.report.layers import MOST_ROWS, Band, Chart, Layer, Line, Picture, Points, Rule, with_limits
from modifind.report.svg import number, shortened
from modifind.result.selection_result import readable_p

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

QUANTILES = (10, 25, 50, 75, 90)
BARE = frozenset(("yes", "no", "y", "n", "true", "false", "0", "1", "2"))  # arms that say nothing by themselves
LIMITED = (10, 50, 90)  # whose limits are told
UNSURE = ("key-unsure", "too few rows to rely on")
BAND = ("key-band", "95% band")


@dataclass(frozen=True)
class Terms:
    """Words of one analysis.

    Parameters
    ----------
    treated, control : str
        Names of the arms.
    log : bool
        Whether effects are differences of logarithms.
    binary : bool
        Whether the outcome is 0 or 1.
    outcome : str
        Name of the outcome.
    levels : bool
        Whether the outcome has few distinct values, so that shares are shown and not densities.
    population : str
        Whom effects are about.
    """

    treated: str
    control: str
    log: bool = False
    binary: bool = False
    levels: bool = False
    outcome: str = "outcome"
    population: str = "all"

    @classmethod
    def of(cls, result: SelectionResult) -> Terms:
        """Those that the settings of a result give."""
        settings = result.settings
        treated, control = str(settings["treated_label"]), str(settings["control_label"])
        if treated in ("1", "1.0", "True") and control in ("0", "0.0", "False"):
            treated, control = "treatment", "control"
        elif settings.get("treatment_name") and {treated.lower(), control.lower()} <= BARE:
            treated, control = (f"{settings['treatment_name']} = {label}" for label in (treated, control))
        levels = bool(settings.get("outcome_levels"))
        return cls(
            treated,
            control,
            log=settings.get("outcome_transform") == "log",
            binary=(settings.get("model") or {}).get("likelihood") == "bernoulli" or (levels and _has_two(result)),
            levels=levels,
            outcome=str(settings.get("outcome_name") or "outcome"),
            population=str(settings.get("population") or "all"),
        )

    @property
    def whom(self) -> str:
        """Whom effects are about, in a few words."""
        return SHORT_NAMES.get(self.population, self.population)

    @property
    def works(self) -> str:
        """What a modifier changes: "how the drug works"."""
        if (self.treated, self.control) == ("treatment", "control"):
            return "how the treatment works"
        return f"how {self.treated} works compared with {self.control}"

    @property
    def question(self) -> str:
        """What the report answers; of a long name the beginning."""
        return f"Which features change how {shortened(self.subject, 400)} works?"

    @property
    def subject(self) -> str:
        """The treatment within a sentence."""
        return "the treatment" if self.treated == "treatment" else self.treated


@dataclass(frozen=True)
class Column:
    """One column of the table, and the words to speak of it."""

    name: str
    curve: pd.DataFrame
    discrete: bool
    overall: Mapping[str, float]
    terms: Terms

    def charts(self) -> list[Chart]:
        """Average, spread, quantiles and distance, as far as they are known."""
        made = [self.average(), self.spread(), self.quantiles(), self.distance()]
        return [chart for chart in made if chart is not None]

    def average(self) -> Chart | None:
        """The average effect, with that of all rows beside it."""
        outcome = shortened(self.terms.outcome, 200)
        note = f"Average {outcome} under {self.terms.treated} less that under {self.terms.control}"
        if self.terms.binary:
            note = f"Share with the outcome under {self.terms.treated} less the share under {self.terms.control}"
        if self.terms.log:
            note += "; logarithms, so that 0.1 is about 10% more and \u22120.7 half as much"
        return self._simple("mean_effect", "Average effect", f"{note}.", "average", 0.0, "no effect")

    def spread(self) -> Chart | None:
        """The ratio of the standard deviations; that of an outcome of 0 and 1 follows from its average."""
        if self.terms.binary:
            return None
        note = (
            f"How much outcomes vary under {self.terms.treated} relative to {self.terms.control}: above 1 they vary "
            "more (ratio of standard deviations)."
        )
        return self._simple("sd_ratio", "Spread", note, "spread", 1.0, "equal spread", within=(0.0, math.inf))

    def _simple(
        self,
        name: str,
        title: str,
        note: str,
        style: str,
        neutral: float,
        neutral_key: str,
        within: tuple[float, float] | None = None,
    ) -> Chart | None:
        values = self._values(name)
        if not np.isfinite(values).any():
            return None
        low, high = self._values(f"{name}_low"), self._values(f"{name}_high")
        layers: list[Layer] = [Rule(neutral, "neutral")]
        keys = [("key-neutral", neutral_key)]
        if math.isfinite(self.overall.get(name, math.nan)):
            layers.append(Rule(float(self.overall[name]), "overall"))
            keys.append(("key-overall", f"{self.terms.whom}, {number(float(self.overall[name]))}"))
        if np.isfinite(low).any():
            layers.append(Band(low, high, f"{style}-band"))
            keys.append(BAND)
        layers.append(Line(values, style))
        said = [
            f"{title.lower()} {with_limits(*row)}{self._rows_text(k)}"
            for k, row in enumerate(zip(values, low, high, strict=True))
        ]
        return self._chart(title, note, layers, said, keys, within=within)

    def quantiles(self) -> Chart | None:
        """Effects on the quantiles of the outcome, where it has any worth looking at."""
        known = {q: self._values(f"q{q}_effect") for q in QUANTILES}
        if self.terms.binary or not any(np.isfinite(values).any() for values in known.values()):
            return None
        layers: list[Layer] = [Rule(0.0, "neutral")]
        if self.discrete:
            layers.append(Band(known[10], known[90], "fan-bar", thickness=1.5))
        shapes = {10: "left", 25: "small", 50: "dot", 75: "small", 90: "right"}
        layers += [Line(values, f"q{q}", shapes[q], f"{q}%") for q, values in known.items()]
        rows = {
            q: zip(*(self._values(f"q{q}_effect{end}") for end in ("", "_low", "_high")), strict=True) for q in known
        }
        texts = [
            [f"{q}%: {with_limits(*row) if q in LIMITED else number(row[0])}" for row in rows[q]] for q in QUANTILES
        ]
        said = ["; ".join(parts) for parts in zip(*texts, strict=True)]
        note = (
            "Effect on low (10%), middle (50%) and high (90%) outcomes. Lines that lie together: a shift of everybody "
            "alike. Lines that fan out: the spread or the shape changes."
        )
        keys = [("key-neutral", "no effect")]
        if self.discrete:
            keys += [("key-q10", "10%"), ("key-q50", "50%"), ("key-q90", "90%")]
        return self._chart("Low, middle and high outcomes", note, layers, said, keys)

    def distance(self) -> Chart | None:
        """The distance between the outcome distributions, with where it would lie if the feature changed nothing."""
        values = self._values("d2")
        if not np.isfinite(values).any():
            return None
        low, high = self._values("d2_low"), self._values("d2_high")
        null_low, null_high = self._values("d2_null_low"), self._values("d2_null_high")
        layers: list[Layer] = []
        keys: list[tuple[str, str]] = []
        note = "How far apart the outcomes of both arms are, in any respect (squared kernel distance)."
        if np.isfinite(null_low).any():
            layers.append(Band(null_low, null_high, "null-band", thickness=16.0))
            keys.append(("key-null", "if it changed nothing"))
            note += " A curve that leaves the hatched range speaks for a change."
        if np.isfinite(low).any():
            layers.append(Band(low, high, "distance-band"))
            keys.append(BAND)
        layers.append(Line(values, "distance"))
        said = []
        for k, row in enumerate(zip(values, low, high, strict=True)):
            text = f"distance {with_limits(*row)}"
            if math.isfinite(null_low[k]):
                text += f"; if it changed nothing {number(null_low[k])} to {number(null_high[k])}"
            said.append(text)
        return self._chart("Distance between the arms", note, layers, said, keys, within=(0.0, math.inf))

    def numbers(self) -> dict[str, Any]:
        """Curves as a table of texts, for those who do not see the pictures or want the figures."""
        shown = [("mean_effect", "average effect")]
        if not self.terms.binary:
            shown.append(("sd_ratio", "spread ratio"))
            shown += [(f"q{q}_effect", f"{q}% quantile") for q in (10, 50, 90)]
        shown = [(name, title) for name, title in shown if np.isfinite(self._values(name)).any()]
        counts = [("rows_treated", f"rows, {self.terms.treated}"), ("rows_control", f"rows, {self.terms.control}")]
        counts = [(name, title) for name, title in counts if name in self.curve]
        points = Points.of(self.curve, discrete=self.discrete)
        rows = []
        for k, label in enumerate(points.labels):
            cells = [
                with_limits(self._values(name)[k], self._values(f"{name}_low")[k], self._values(f"{name}_high")[k])
                for name, _ in shown
            ]
            cells += [_count(self._values(name)[k]) for name, _ in counts]
            rows.append({"label": label, "cells": cells, "unsure": bool(points.low_support[k])})
        return {"titles": [title for _, title in [*shown, *counts]], "rows": rows}

    def _rows_text(self, k: int) -> str:
        if "rows_treated" not in self.curve or "rows_control" not in self.curve:
            return ""
        treated, control = self._values("rows_treated")[k], self._values("rows_control")[k]
        if math.isnan(treated + control):
            return ""
        return f"; about {treated:,.0f} + {control:,.0f} rows"

    def _values(self, name: str) -> Array:
        return self._known.get(name, self._unknown)

    @cached_property
    def _known(self) -> dict[str, Array]:
        names = [name for name in self.curve.columns if name not in ("value", "low_support")]
        return {name: values_of(self.curve, name) for name in names}

    @cached_property
    def _unknown(self) -> Array:
        return np.full(len(self.curve), np.nan)

    def _chart(
        self,
        title: str,
        note: str,
        layers: Sequence[Layer],
        said: Sequence[str],
        keys: Sequence[tuple[str, str]],
        within: tuple[float, float] | None = None,
    ) -> Chart:
        return along(self.name, self.curve, self.discrete, title, note, layers, said, keys, within=within)


def _has_two(result: SelectionResult) -> bool:
    return any(frame["outcome"].nunique() == 2 for frame in result.densities.values())


def values_of(frame: pd.DataFrame, name: str) -> Array:
    """A column of numbers; NaN where the table has none."""
    if name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(dtype=float)


def along(
    name: str,
    frame: pd.DataFrame,
    discrete: bool,
    title: str,
    note: str,
    layers: Sequence[Layer],
    said: Sequence[str],
    keys: Sequence[tuple[str, str]],
    *,
    within: tuple[float, float] | None = None,
    text: Callable[[float], str] | None = None,
) -> Chart:
    """A chart over the values of a column; of very many categories those with the most rows."""
    points = Points.of(frame, discrete=discrete)
    if discrete and len(frame) > MOST_ROWS:
        kept = _largest(frame)
        note += f" The {MOST_ROWS} largest of {len(frame)} categories; the numbers below have all."
        frame, said = frame.iloc[kept], [said[k] for k in kept]
        layers, points = [_taken(layer, kept) for layer in layers], Points.of(frame, discrete=True)
    if points.low_support.any():
        keys = [*keys, UNSURE]
    label = f"{title} along {name}. {_summary(points, said)}"
    svg, readout = Picture(name, points, layers, said, label, within, text).draw()
    return Chart(title, note, svg, readout, tuple(keys))


def bound_charts(
    name: str, bounds: pd.DataFrame, tests: pd.DataFrame | None, discrete: bool, terms: Terms
) -> list[Chart]:
    """What the data allow for single persons: whose outcome is higher, how effects differ, how outcomes go together."""
    higher = f"Share of persons whose outcome is higher under {terms.treated} than under {terms.control}."
    if terms.binary:
        higher = f"Share of persons who have the outcome under {terms.treated} and would not under {terms.control}."
    quantities: tuple[tuple[str, str, str, tuple[float, float], Callable[[float], str]], ...] = (
        ("benefit", "Share with a higher outcome", higher, (0.0, 1.0), _percent),
        (
            "sd",
            "How much effects differ between persons",
            "Standard deviation of the effect between persons with the same value.",
            (0.0, math.inf),
            number,
        ),
        (
            "corr",
            "Do both outcomes of a person go together?",
            f"Correlation between a person's outcomes under {terms.treated} and under {terms.control}.",
            (-1.0, 1.0),
            number,
        ),
    )
    made = []
    for key, title, note, within, text in quantities:
        low, high = values_of(bounds, f"{key}_low"), values_of(bounds, f"{key}_high")
        outer_low, outer_high = values_of(bounds, f"{key}_low_ci_low"), values_of(bounds, f"{key}_high_ci_high")
        if not np.isfinite(low).any():
            continue
        layers: list[Layer] = []
        keys = [("key-bounds", "all that the data allow")]
        if np.isfinite(outer_low).any():
            layers.append(Band(outer_low, outer_high, "bounds-outer", thickness=12.0))
            keys.append(("key-bounds-outer", "with 95% limits"))
        layers.append(Band(low, high, "bounds", thickness=8.0))
        said = [
            f"between {text(low[k])} and {text(high[k])}"
            + (f" (95% limits {text(outer_low[k])} to {text(outer_high[k])})" if math.isfinite(outer_low[k]) else "")
            for k in range(len(bounds))
        ]
        note += _varies(tests, "var" if key == "sd" else key)
        made.append(along(name, bounds, discrete, title, note, layers, said, keys, within=within, text=text))
    return made


def _varies(tests: pd.DataFrame | None, quantity: str) -> str:
    """What the test of whether bounds change along the feature says."""
    if tests is None or "quantity" not in tests:
        return ""
    rows = tests[tests["quantity"] == quantity]
    known = {part: p for part, p in zip(rows["part"], rows["p_value"], strict=True) if p == p}
    if not known:
        return ""
    names = {"midpoint": "middle of the range", "width": "width"}
    parts = ", ".join(f"{names.get(part, part)} p = {readable_p(p)}" for part, p in known.items())
    return f" Does it change along the feature? {parts.capitalize()}."


def _count(rows: float) -> str:
    return "" if math.isnan(rows) else f"{rows:,.0f}"


def _percent(value: float) -> str:
    return "not known" if math.isnan(value) else f"{100 * value:.0f}%"


def _largest(frame: pd.DataFrame) -> list[int]:
    """Places of the categories with the most rows, in the order of the table."""
    support = values_of(frame, "rows_treated") + values_of(frame, "rows_control")
    if np.isnan(support).any():
        support = np.zeros(len(frame))
    return sorted(np.argsort(-support, kind="stable")[:MOST_ROWS].tolist())


def _taken(layer: Layer, kept: list[int]) -> Layer:
    if isinstance(layer, Line):
        return Line(layer.values[kept], layer.style, layer.shape, layer.label)
    if isinstance(layer, Band):
        return Band(layer.low[kept], layer.high[kept], layer.style, layer.thickness)
    return layer


def _summary(points: Points, said: Sequence[str]) -> str:
    """First and last point in words, or all of a few categories."""
    if not said:
        return "Nothing is known."
    shown = range(len(said)) if len(said) <= 4 else (0, len(said) - 1)
    return ". ".join(f"{points.labels[k]}: {said[k]}" for k in shown) + "."

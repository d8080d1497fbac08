"""One plain sentence about what a feature changes.

A sentence covers selected features only, and only the components whose own test is significant. Directions and numbers
come from the feature's curve at its 10th, 50th and 90th percentile, or at its categories, and are given only where
bands that hold simultaneously at these points do not overlap. The curve is marginal while the p-values are conditional
on all other features: with correlated features a change can be certain although the curve shows no direction, and the
sentence then gives none. A binary outcome has only its average to report, so that its figures are always given, without
a direction if their limits overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from modifind._typing import Array
from modifind.explain.views import SENTENCE_SHARES
from modifind.result.presentation import effect_name
from modifind.result.selection_result import NOT_TESTED, PARTS, p_text

NAMES = {"mean": "the average", "spread": "the spread", "shape": "the shape"}
NAMES_OF_AMOUNTS = {"mean": "whether there is any", "spread": "how much there is", "shape": "the shape"}
MAX_LABEL_LENGTH = 40
MAX_FIGURES = 3
MAX_NUMBER_LENGTH = 9
MAX_MORE_DIGITS = 3
ROUNDING_SHARE = 1e-9  # share of a number that is rounding
FIRST, LAST = 0.02, 0.98  # percentiles between which the points of a curve are evenly spread
Format = Callable[[Sequence[float]], list[str]]


def verdict(
    columns: Mapping[str, ShownColumn],
    changes: Mapping[str, Any] | pd.Series[Any],
    *,
    selected: bool,
    tested: bool = True,
    alpha: float = 0.05,
    log_outcome: bool = False,
    two_values: Sequence[float] = (),
    kind: str = "numeric",
    effect_scale: str = "difference",
) -> str:
    """Describe one feature in a sentence.

    Parameters
    ----------
    columns : dict of ShownColumn
        The feature's column, or all columns of a group. Without bands no directions are told.
    changes : mapping
        A row of `SelectionResult.changes`: raw p-values (`mean_p`, ...) and adjusted ones (`mean_adjusted`, ...).
    selected, tested : bool
        Whether the feature was selected, and whether it could be tested at all.
    alpha : float, default=0.05
        Level that adjusted p-values are compared with.
    log_outcome : bool, default=False
        Whether the outcome was taken as its logarithm: effects are then told as ratios, such as x1.3.
    two_values : sequence of float
        The values of an outcome that has two; effects on one of 0 and 1 are told as differences in risk.
    kind : str, default="numeric"
        What the outcome is.
    effect_scale : {"difference", "ratio", "odds_ratio"}, default="difference"
        The scale that effects of the curve are on.

    Examples
    --------
    >>> curve = pd.DataFrame({"value": ["no", "yes"], "mean_effect": [-6.1, 1.2]})
    >>> curve["mean_effect_low"], curve["mean_effect_high"] = curve["mean_effect"] - 1, curve["mean_effect"] + 1
    >>> row = {"mean_p": 0.001, "mean_adjusted": 0.004, "spread_p": 0.4, "spread_adjusted": 0.6}
    >>> verdict({"smoker": ShownColumn(curve, "discrete")}, row, selected=True)
    'Changes the average: the effect is -6.1 (-7.2 to -5.0) for "no" and 1.2 (0.1 to 2.3) for "yes".'
    """
    if not tested:
        return NOT_TESTED
    if not selected:
        return "No change found."
    names = NAMES_OF_AMOUNTS if kind == "amount" else NAMES
    changed = [part for part in PARTS if float(changes.get(f"{part}_adjusted", math.nan)) <= alpha]
    if not changed:
        return _unclear(changes, names)
    subject = "the effect"
    if effect_scale != "difference" or tuple(two_values) == (0.0, 1.0):
        subject = f"the {effect_name('binary' if len(two_values) == 2 else kind, effect_scale)}"
    form = _ratios if log_outcome else _numbers
    average = _factors if effect_scale != "difference" else form
    clauses: dict[str, list[tuple[str, str, Format, bool]]] = {
        "mean": [("mean_effect", subject, average, len(two_values) == 2)],
        "spread": [("sd_ratio", "the ratio of treated to control spread", _factors, False)],
        "shape": [
            ("q10_effect", "the effect at the 10% quantile", form, False),
            ("q90_effect", "the effect at the 90% quantile", form, False),
        ],
    }
    if kind == "amount":
        risk = f"the {effect_name('binary', effect_scale)} of any"
        clauses["mean"] = [("any_effect", risk, average, False)]
        clauses["spread"] = [("amount_ratio", "the ratio of amounts above zero", _factors, False)]
    # Of the shape only where it is all that changes.
    shape = changed == ["shape"]
    figures = [_clause(columns, *clause) for part in changed for clause in clauses[part] if part != "shape" or shape]
    shown = ", and ".join(filter(None, figures))
    return f"Changes {_listed([names[part] for part in changed])}{': ' if shown else ''}{shown}."


def _unclear(changes: Mapping[str, Any] | pd.Series[Any], names: Mapping[str, str]) -> str:
    """Clause for a selected feature none of whose components is significant."""
    raw = {part: float(changes.get(f"{part}_p", math.nan)) for part in PARTS}
    known = {part: p for part, p in raw.items() if not math.isnan(p)}
    if not known:
        return "Changes the distribution of the effect."
    strongest = min(known, key=lambda part: known[part])
    sign = f"strongest evidence: {names[strongest].removeprefix('the ')}, {p_text(known[strongest])}"
    if names is NAMES_OF_AMOUNTS:
        return f"Changes the effect, but which part of it is not clear ({sign})."
    short = [names[part].removeprefix("the ") for part in known]
    return f"Changes the effect, but whether its {_listed(short, 'or')} is not clear ({sign})."


def _listed(names: list[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


@dataclass(frozen=True)
class ShownColumn:
    """One column as the sentence describes it.

    Attributes
    ----------
    curve : DataFrame
        See `SelectionResult.curve`.
    kind : {"continuous", "discrete"}
        Whether it has values or categories.
    percentiles : tuple of float
        The 10th, 50th and 90th percentile of a continuous column. Without them they are taken to be where they are
        among points that are evenly spread over the percentiles, as those of a curve are where no two are the same.
    """

    curve: pd.DataFrame
    kind: str
    percentiles: tuple[float, ...] = ()

    def shown_points(self) -> list[int]:
        """The points of a continuous column nearest to its percentiles, without duplicates."""
        inner = np.flatnonzero(self.curve["value"].notna().to_numpy())
        at, wanted = FIRST + (LAST - FIRST) * np.arange(inner.size) / max(inner.size - 1, 1), np.array(SENTENCE_SHARES)
        if self.percentiles:
            at, wanted = self.curve["value"].to_numpy(dtype=np.float64)[inner], np.array(self.percentiles)
        return list(dict.fromkeys(int(inner[np.abs(at - value).argmin()]) for value in wanted)) if inner.size else []


@dataclass(frozen=True)
class _Points:
    """Values of a curve at the points mentioned, with simultaneous limits."""

    values: list[Any]
    estimate: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, shown: ShownColumn, effect: str, *, ratio: bool) -> _Points | None:
        """Points of a curve; None without bands or with fewer than two supported points."""
        curve = shown.curve
        if not {effect, f"{effect}_low", f"{effect}_high"} <= set(curve.columns):
            return None
        kept = np.isfinite(curve[[effect, f"{effect}_low", f"{effect}_high"]].to_numpy(dtype=np.float64)).all(axis=1)
        if "low_support" in curve.columns:
            kept &= ~curve["low_support"].to_numpy(dtype=bool)
        places = np.flatnonzero(kept)
        if shown.kind == "continuous":
            places = np.array([k for k in shown.shown_points() if kept[k]], dtype=np.int64)
        if places.size < 2:
            return None
        estimate, low, high = (
            curve[name].to_numpy(dtype=np.float64)[places] for name in (effect, f"{effect}_low", f"{effect}_high")
        )
        if ratio:  # bands are even on the logarithm
            estimate, low, high = (np.log(np.maximum(part, ROUNDING_SHARE)) for part in (estimate, low, high))
        # Limits of each point at 95%, widened for all of them at once (Bonferroni).
        wider = float(norm.isf(0.025 / places.size) / norm.isf(0.025))
        values = curve["value"].iloc[places].tolist()
        return cls(values, estimate, estimate - wider * (estimate - low), estimate + wider * (high - estimate))

    @property
    def apart(self) -> tuple[int, int]:
        """The two points whose bands are furthest apart, the higher first."""
        return int(self.low.argmax()), int(self.high.argmin())

    @property
    def gap(self) -> float:
        """Gap between these bands, in units of the curve's range; negative if they overlap."""
        top, bottom = self.apart
        return float((self.low[top] - self.high[bottom]) / (np.ptp(self.estimate) or 1.0))

    def figures(self, form: Format, *places: int) -> list[str]:
        """Estimates at some points with their limits."""
        numbers = [float(part[k]) for k in places for part in (self.estimate, self.low, self.high)]
        shown = form(numbers)
        return [f"{shown[k]} ({shown[k + 1]} to {shown[k + 2]})" for k in range(0, len(shown), 3)]


def _clause(columns: Mapping[str, ShownColumn], effect: str, subject: str, form: Format, always: bool) -> str | None:
    """Clause about one effect along a feature, or along the group's column that shows it best.

    Without a direction it is empty, or with `always` the figures alone.
    """
    known = {
        column: points
        for column, shown in columns.items()
        if (points := _Points.of(shown, effect, ratio=form is _factors)) is not None and (always or points.gap > 0)
    }
    if not known:
        return None
    best = max(known, key=lambda column: known[column].gap)
    along = f"along {_plain(best)} " if len(columns) > 1 else ""
    kind = columns[best].kind
    if known[best].gap <= 0:
        return f"{along}{subject} {_figures(known[best], form, kind)}, with limits that overlap"
    return f"{along}{subject} {(_along if kind == 'continuous' else _by_level)(known[best], form)}"


def _figures(points: _Points, form: Format, kind: str) -> str:
    """Estimates at all points, or at the lowest and highest of many, in curve order."""
    places = list(range(points.estimate.size))
    if len(places) > MAX_FIGURES:
        places = sorted({int(points.estimate.argmin()), int(points.estimate.argmax())})
    at = [f"at {value}" for value in _digits(points.values)] if kind == "continuous" else _labels(points)
    figures = points.figures(form, *places)
    return f"is {_listed([f'{figure} {at[k]}' for figure, k in zip(figures, places, strict=True)])}"


def _labels(points: _Points) -> list[str]:
    return [f'for "{_plain(value)}"' if isinstance(value, str) else f"for {_plain(value)}" for value in points.values]


def _by_level(points: _Points, form: Format) -> str:
    labels = _labels(points)
    if len(labels) == 2:
        first, second = points.figures(form, 0, 1)
        return f"is {first} {labels[0]} and {second} {labels[1]}"
    top, bottom = points.apart
    high, low = points.figures(form, top, bottom)
    return f"is higher {labels[top]}, {high}, than {labels[bottom]}, {low}"


def _along(points: _Points, form: Format) -> str:
    """Clause about a continuous feature: an increase, a decrease, or a middle above or below an end."""
    at = _digits(points.values)
    last = points.estimate.size - 1
    top, bottom = points.apart
    if last == 2:
        for place, beyond, word in (
            (top, points.low[top] > max(points.high[0], points.high[last]), "highest"),
            (bottom, points.high[bottom] < min(points.low[0], points.low[last]), "lowest"),
        ):
            if place == 1 and beyond:
                first, inner, final = points.figures(form, 0, 1, last)
                return (
                    f"is {word} in the middle, {inner} at {at[1]}, against {first} at {at[0]} and {final} at {at[last]}"
                )
    rises = top > bottom
    start, stop = sorted((top, bottom))
    if (points.low[last] > points.high[0]) if rises else (points.high[last] < points.low[0]):
        start, stop = 0, last
    before, after = points.figures(form, start, stop)
    return f"{'rises' if rises else 'falls'} from {before} at {at[start]} to {after} at {at[stop]}"


def _numbers(values: Sequence[float]) -> list[str]:
    """Format numbers with two digits for the largest of them, or more if they are close together."""
    largest, extent = max(abs(value) for value in values), max(values) - min(values)
    decimals = 1 - math.floor(math.log10(largest)) if largest > 0 else 0
    # The range of what is told keeps its first digit.
    decimals = max(decimals, -math.floor(math.log10(extent))) if extent > ROUNDING_SHARE * largest else decimals
    return _distinct_texts(values, lambda value, more: _rounded(value, decimals + more))


def _ratios(values: Sequence[float]) -> list[str]:
    """Format log differences as ratios."""
    return _distinct_texts(values, lambda value, more: f"x{float(f'{math.exp(min(value, 700.0)):.{2 + more}g}'):g}")


def _factors(values: Sequence[float]) -> list[str]:
    """Format log ratios as factors."""
    return _numbers([math.exp(min(value, 700.0)) for value in values])


def _distinct_texts(values: Sequence[float], write: Callable[[float, int], str]) -> list[str]:
    """Format values with as few additional digits as make them distinct."""
    for more in range(MAX_MORE_DIGITS + 1):
        shown = [write(value, more) for value in values]
        if len(set(shown)) == len(set(values)):
            break
    return shown


def _digits(values: Sequence[Any]) -> list[str]:
    """Format values of a feature as whole units, or with decimals that resolve a hundredth of their range."""
    numbers = [float(value) for value in values]
    extent = max(numbers) - min(numbers)
    decimals = 1 - math.floor(math.log10(extent)) if extent > 0 else 0
    return [_rounded(number, decimals) for number in numbers]


def _rounded(value: float, decimals: int) -> str:
    rounded = round(value, decimals) + 0.0
    shown = f"{rounded:.{max(decimals, 0)}f}"
    if len(shown) <= MAX_NUMBER_LENGTH:
        return shown
    return f"{rounded:.{max(math.floor(math.log10(abs(rounded))) + 1 + decimals if rounded else 1, 3)}g}"


def _plain(label: Any) -> str:
    """A category or column as one short line of text."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(label)).split())
    if len(text) <= MAX_LABEL_LENGTH:
        return text
    return f"{text[: MAX_LABEL_LENGTH - 18]}...{text[-15:]}"  # ends tell apart

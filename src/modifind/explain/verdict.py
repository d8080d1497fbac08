"""What a feature changes, in one sentence of plain words.

Directions and numbers come from the feature's curve, and only from points that enough rows support and whose bands are
apart. The curve is that of the feature alone, while the p-values are given all others: where features go together,
a change can be sure without a direction that the curve would show, and the sentence then names none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from modifind.kernels import Array
from modifind.result import PARTS, readable_p

NOT_TESTED = "Not tested."
NAMES = {"mean": "the average", "spread": "the spread", "shape": "the shape"}
LONGEST_LABEL = 40
LONGEST_NUMBER = 9
MOST_MORE_DIGITS = 3
SAME = 1e-9  # share of a number that is rounding
STEP_SHARE = 0.45  # of the points: a rise that takes no more is a step, and where it happens is what is told
Format = Callable[[Sequence[float]], list[str]]


def verdict(
    curves: Mapping[str, pd.DataFrame],
    changes: Mapping[str, Any] | pd.Series[Any],
    *,
    kinds: Mapping[str, str],
    selected: bool,
    tested: bool = True,
    alpha: float = 0.05,
    log_outcome: bool = False,
) -> str:
    """One sentence about one feature.

    Parameters
    ----------
    curves : dict of DataFrame
        The feature's curve by its column, or those of all columns of a group; see `SelectionResult.curve`. Without
        bands no directions are told.
    changes : mapping
        A row of `SelectionResult.changes`: raw p-values (`mean_p`, ...) and adjusted ones (`mean_adjusted`, ...).
    kinds : dict
        "continuous" or "discrete", by column.
    selected, tested : bool
        Whether the feature was selected, and whether it could be tested at all.
    alpha : float, default=0.05
        Level that adjusted p-values are compared with.
    log_outcome : bool, default=False
        Whether the outcome was taken as its logarithm: effects are then told as ratios, such as x1.3.

    Examples
    --------
    >>> curve = pd.DataFrame({"value": ["no", "yes"], "mean_effect": [-6.1, 1.2]})
    >>> curve["mean_effect_low"], curve["mean_effect_high"] = curve["mean_effect"] - 1, curve["mean_effect"] + 1
    >>> row = {"mean_p": 0.001, "mean_adjusted": 0.004, "spread_p": 0.4, "spread_adjusted": 0.6}
    >>> verdict({"smoker": curve}, row, kinds={"smoker": "discrete"}, selected=True)
    'Changes the average: the effect is -6.1 for "no" and 1.2 for "yes".'
    """
    if not tested:
        return NOT_TESTED
    adjusted = {part: float(changes.get(f"{part}_adjusted", math.nan)) for part in PARTS}
    found = [part for part in PARTS if adjusted[part] <= alpha]
    if not selected:
        if not found:
            return "No change found."
        signs = " and ".join(f"{NAMES[part]} (adjusted p = {readable_p(adjusted[part])})" for part in found)
        return f"Not selected, but there are signs of a change of {signs}."
    if not found:
        return _unclear(changes)
    names, clauses = [NAMES[part] for part in found], []
    if "mean" in found:
        clauses.append(_clause(curves, kinds, "mean_effect", "the effect", _ratios if log_outcome else _numbers))
    if "spread" in found:
        clauses.append(_clause(curves, kinds, "sd_ratio", "the ratio of treated to control spread", _numbers))
    if found == ["shape"]:
        tails = (("q10_effect", "lower 10%"), ("q90_effect", "upper 10%"))
        form = _ratios if log_outcome else _numbers
        clauses += [
            _clause(curves, kinds, column, f"the effect at the {tail} quantile", form) for column, tail in tails
        ]
    told_clauses = [clause for clause in clauses if clause]
    return f"Changes {_listed(names)}{': ' if told_clauses else ''}{', and '.join(told_clauses)}."


def _unclear(changes: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Of a feature that is selected though none of its parts is sure."""
    raw = {part: float(changes.get(f"{part}_p", math.nan)) for part in PARTS}
    known = {part: p for part, p in raw.items() if not math.isnan(p)}
    if not known:
        return "Changes the distribution of the effect."
    strongest = min(known, key=lambda part: known[part])
    short = [NAMES[part].removeprefix("the ") for part in known]
    sign = f"strongest sign: {NAMES[strongest].removeprefix('the ')}, p = {readable_p(known[strongest])}"
    return f"Changes the distribution of the effect; whether its {_listed(short, 'or')} is not clear ({sign})."


def _listed(names: list[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


@dataclass(frozen=True)
class _Points:
    """The supported points of a curve."""

    values: list[Any]
    estimate: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, curve: pd.DataFrame, effect: str, kind: str) -> _Points | None:
        """None where there are no bands, or fewer than two points."""
        if not {effect, f"{effect}_low", f"{effect}_high"} <= set(curve.columns):
            return None
        kept = np.isfinite(curve[[effect, f"{effect}_low", f"{effect}_high"]].to_numpy(dtype=np.float64)).all(axis=1)
        if "low_support" in curve.columns:
            kept &= ~curve["low_support"].to_numpy(dtype=bool)
        if kind == "continuous":
            kept &= curve["value"].notna().to_numpy()
        if kept.sum() < 2:
            return None
        columns = (
            curve.loc[kept, name].to_numpy(dtype=np.float64) for name in (effect, f"{effect}_low", f"{effect}_high")
        )
        return cls(curve.loc[kept, "value"].tolist(), *columns)

    @property
    def apart(self) -> tuple[int, int]:
        """The points whose bands are furthest apart, the higher first."""
        return int(self.low.argmax()), int(self.high.argmin())

    @property
    def gap(self) -> float:
        """How far apart these bands are, in units of the curve's range; below zero where they touch."""
        top, bottom = self.apart
        return float((self.low[top] - self.high[bottom]) / (np.ptp(self.estimate) or 1.0))


def _clause(
    curves: Mapping[str, pd.DataFrame], kinds: Mapping[str, str], effect: str, subject: str, form: Format
) -> str | None:
    """How one effect goes along a feature; along the column of a group that shows it best."""
    found = {
        column: points
        for column, curve in curves.items()
        if (points := _Points.of(curve, effect, kinds[column])) is not None and points.gap > 0
    }
    if not found:
        return None
    best = max(found, key=lambda column: found[column].gap)
    along = f"along {_plain(best)} " if len(curves) > 1 else ""
    tell = _along if kinds[best] == "continuous" else _by_level
    return f"{along}{subject} {tell(found[best], form)}"


def _by_level(points: _Points, form: Format) -> str:
    labels = [f'"{_plain(value)}"' if isinstance(value, str) else _plain(value) for value in points.values]
    if len(labels) == 2:
        first, second = form(points.estimate.tolist())
        return f"is {first} for {labels[0]} and {second} for {labels[1]}"
    top, bottom = int(points.estimate.argmax()), int(points.estimate.argmin())
    if points.low[top] <= points.high[bottom]:  # the most extreme levels have wide bands
        top, bottom = points.apart
    high, low = form([points.estimate[top], points.estimate[bottom]])
    return f"is highest for {labels[top]} ({high}) and lowest for {labels[bottom]} ({low})"


def _along(points: _Points, form: Format) -> str:
    """Along a continuous feature: a rise, a fall, a step, or an extreme between lower or higher ends."""
    estimate, low, high = points.estimate, points.low, points.high
    at = _digits(points.values)
    last = estimate.size - 1
    top, bottom = points.apart
    for place, beyond, word, other in (
        (top, low[top] > max(high[0], high[last]), "highest", "lower"),
        (bottom, high[bottom] < min(low[0], low[last]), "lowest", "higher"),
    ):
        if 0 < place < last and beyond:
            first, inner, final = form([float(estimate[k]) for k in (0, place, last)])
            ends = f"{first} at {at[0]}, {final} at {at[last]}"
            return f"is {word} near {at[place]} ({inner}) and {other} at both ends ({ends})"
    rises = top > bottom
    start, stop = (bottom, top) if rises else (top, bottom)
    if (low[last] > high[0]) if rises else (high[last] < low[0]):
        start, stop = 0, last
    before, after = form([float(estimate[start]), float(estimate[stop])])
    cut = _step(points, start, stop)
    if cut is not None:
        return f"is {'higher' if rises else 'lower'} above {cut} ({after} against {before})"
    return f"{'rises' if rises else 'falls'} from {before} at {at[start]} to {after} at {at[stop]}"


def _step(points: _Points, start: int, stop: int) -> str | None:
    """Where a curve crosses the middle of its rise or fall, if most of that happens within a few points.

    None also where the curve crosses the middle again, so that not all that is above would be higher or lower.
    """
    values = np.array(points.values, dtype=np.float64)
    share = (points.estimate - points.estimate[start]) / (points.estimate[stop] - points.estimate[start])
    inside = np.arange(start, stop + 1)
    begins = [k for k in inside if share[k] <= 0.2]
    ends = [k for k in inside if share[k] >= 0.8]
    if len(inside) < 5 or max(begins) > min(ends) or min(ends) - max(begins) > STEP_SHARE * len(values):
        return None
    if (share[: max(begins) + 1] > 0.5).any() or (share[min(ends) :] < 0.5).any():
        return None
    span = slice(max(begins), min(ends) + 1)
    rising = np.maximum.accumulate(share[span])
    return _digits([*points.values, float(np.interp(0.5, rising, values[span]))])[-1]


def _numbers(values: Sequence[float]) -> list[str]:
    """Numbers with as many decimals as give the largest of them two digits, or more where they are close together."""
    largest, extent = max(abs(value) for value in values), max(values) - min(values)
    decimals = 1 - math.floor(math.log10(largest)) if largest > 0 else 0
    # The range of what is told keeps its first digit.
    decimals = max(decimals, -math.floor(math.log10(extent))) if extent > SAME * largest else decimals
    return _told_apart(values, lambda value, more: _rounded(value, decimals + more))


def _ratios(values: Sequence[float]) -> list[str]:
    """Differences of logarithms as ratios."""
    return _told_apart(values, lambda value, more: f"x{float(f'{math.exp(min(value, 700.0)):.{2 + more}g}'):g}")


def _told_apart(values: Sequence[float], write: Callable[[float, int], str]) -> list[str]:
    """Values written with as few more digits as tell them apart."""
    for more in range(MOST_MORE_DIGITS + 1):
        shown = [write(value, more) for value in values]
        if len(set(shown)) == len(set(values)):
            break
    return shown


def _digits(values: Sequence[Any]) -> list[str]:
    """Values of a feature, in whole units or as many decimals as tell a hundredth of their range."""
    numbers = [float(value) for value in values]
    extent = max(numbers) - min(numbers)
    decimals = 1 - math.floor(math.log10(extent)) if extent > 0 else 0
    return [_rounded(number, decimals) for number in numbers]


def _rounded(value: float, decimals: int) -> str:
    rounded = round(value, decimals) + 0.0
    shown = f"{rounded:.{max(decimals, 0)}f}"
    if len(shown) <= LONGEST_NUMBER:
        return shown
    return f"{rounded:.{max(math.floor(math.log10(abs(rounded))) + 1 + decimals if rounded else 1, 3)}g}"


def _plain(label: Any) -> str:
    """A category or column as one short line of text."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(label)).split())
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."

"""Pictures of distributions: outcomes of both arms at one value of a feature, scores, and ranks of a feature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from modifind.report.charts import Terms, values_of
from modifind.report.layers import WIDTH, Chart, value_text
from modifind.report.svg import MINUS, Drawing, Scale, number, shortened, spanning

LEFT, RIGHT, TOP = 12.0, 12.0, 10.0
UPPER, LOWER, AXIS = 120.0, 64.0, 40.0
ARMS = ("control", "treated")
MOST_VALUES = 12  # that the style sheet has rules for


def density_charts(name: str, frame: pd.DataFrame, terms: Terms) -> list[tuple[str, Chart]]:
    """For every value of the feature, the outcomes of both arms and their difference; axes are shared.

    Values where an arm has no rows have no picture.
    """
    known = np.isfinite(frame[["outcome", "treated", "control", "witness"]].to_numpy(dtype=float)).all(axis=1)
    frame = frame.loc[known]
    codes, values = pd.factorize(frame["value"], use_na_sentinel=False)
    frames = [(value_text(value), frame[codes == code]) for code, value in enumerate(values)][:MOST_VALUES]
    x = spanning(frame["outcome"], LEFT + 6, WIDTH - RIGHT - 6, pad=0.02 if not terms.levels else 0.1)
    tops = [values_of(frame, column) for column in ("treated", "control", "treated_high", "control_high")]
    upper = spanning([0.0, *np.concatenate(tops)], TOP + UPPER, TOP, within=(0.0, math.inf))
    differences = [values_of(frame, column) for column in ("witness", "witness_low", "witness_high")]
    base = TOP + UPPER + 26
    lower = spanning([0.0, *np.concatenate(differences)], base + LOWER, base)
    return [(label, _density(name, label, rows, x, upper, lower, terms)) for label, rows in frames]


def _density(name: str, label: str, rows: pd.DataFrame, x: Scale, upper: Scale, lower: Scale, terms: Terms) -> Chart:
    drawing = Drawing(WIDTH, TOP + UPPER + 26 + LOWER + AXIS)
    unsure = "low_support" in rows and bool(rows["low_support"].any())
    low = " low" * unsure
    outcome = rows["outcome"].to_numpy(dtype=float)
    at = np.array([x(value) for value in outcome])
    base = upper(0.0)
    if unsure:
        drawing.rect(LEFT, TOP, WIDTH - LEFT - RIGHT, UPPER, "unsure")
    drawing.line(LEFT, base, WIDTH - RIGHT, base, "axis")
    marks = _levels if terms.levels else _areas
    marks(drawing, rows, at, upper, low)
    witness, w_low, w_high = (values_of(rows, f"witness{end}") for end in ("", "_low", "_high"))
    what = "share" if terms.levels else "density"
    drawing.text(LEFT, TOP + UPPER + 20, f"more common under {terms.treated} ↑", "note", room=WIDTH / 2)
    drawing.line(LEFT, lower(0.0), WIDTH - RIGHT, lower(0.0), "neutral")
    if terms.levels:
        for k, place in enumerate(at):
            if math.isfinite(w_low[k]) and math.isfinite(w_high[k]):
                drawing.rect(place - 2, lower(w_high[k]), 4, lower(w_low[k]) - lower(w_high[k]), f"witness-band{low}")
            if math.isfinite(witness[k]):
                drawing.mark(place, lower(witness[k]), f"witness-mark{low}")
    else:
        if np.isfinite([w_low, w_high]).all():
            drawing.path(_edge(at, w_low, w_high, lower), f"witness-band{low}", closed=True)
        drawing.path([(a, lower(v)) for a, v in zip(at, witness, strict=True)], f"witness{low}")
    bottom = TOP + UPPER + 26 + LOWER
    ticks = [(v, number(v)) for v in outcome] if terms.levels and len(outcome) <= 12 else x.ticks(5)
    for value, text in ticks:
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    outcome_name = shortened(terms.outcome, WIDTH / 2)
    scale = f"{outcome_name} (logarithm)" if terms.log else outcome_name
    drawing.text(WIDTH / 2, bottom + AXIS - 8, scale, "axis-name", anchor="middle")
    treated, control = values_of(rows, "treated"), values_of(rows, "control")
    write = _percent if terms.levels else number
    readout = {
        "axis": "x",
        "box": [LEFT, TOP, WIDTH - RIGHT, round(bottom, 1)],
        "at": [round(float(place), 1) for place in at],
        "marks": [[round(upper(t), 1), round(upper(c), 1)] for t, c in zip(treated, control, strict=True)],
        "name": "outcome",
        "labels": [number(value) for value in outcome],
        # Very many points say the same words: these are kept once.
        "words": [f"{what} ", f" under {terms.treated}, ", f" under {terms.control}; difference "],
        "texts": [[write(t), write(c), _signed(w, write)] for t, c, w in zip(treated, control, witness, strict=True)],
    }
    about = f"Outcomes of both arms where {name} is {label}. " + _peaks(outcome, treated, control, terms)
    return Chart("", "", drawing.svg(about), readout, unsure=unsure)


def _areas(drawing: Drawing, rows: pd.DataFrame, at: Any, y: Scale, low: str) -> None:
    """Densities as lines over their bands."""
    for arm in ARMS:
        below, above = values_of(rows, f"{arm}_low"), values_of(rows, f"{arm}_high")
        if np.isfinite([below, above]).all():
            drawing.path(_edge(at, below, above, y), f"{arm}-band{low}", closed=True)
    for arm in ARMS:
        values = values_of(rows, arm)
        drawing.path([(a, y(v)) for a, v in zip(at, values, strict=True) if math.isfinite(v)], f"{arm}{low}")


def _levels(drawing: Drawing, rows: pd.DataFrame, at: Any, y: Scale, low: str) -> None:
    """Shares as pairs of bars."""
    room = float(np.diff(at).min()) if len(at) > 1 else 80.0
    width = min(room * 0.36, 28.0)
    for side, arm in zip((-1, 0), ARMS, strict=True):
        values, below, above = (values_of(rows, f"{arm}{end}") for end in ("", "_low", "_high"))
        for k, place in enumerate(at):
            if not math.isfinite(values[k]):
                continue
            left = place + side * width + (1 if side == 0 else -1)
            drawing.rect(left, y(values[k]), width, y(0.0) - y(values[k]), f"{arm}-bar{low}")
            if math.isfinite(below[k]) and math.isfinite(above[k]):
                middle = left + width / 2
                drawing.line(middle, y(below[k]), middle, y(above[k]), "whisker")


def score_picture(histogram: pd.DataFrame, terms: Terms) -> Markup:
    """Propensity scores: the treated arm above the line, the control arm below it."""
    drawing = Drawing(WIDTH, 240)
    x = Scale(0.0, 1.0, LEFT + 10, WIDTH - RIGHT - 10)
    treated, control = values_of(histogram, "treated"), values_of(histogram, "control")
    most = max(float(np.nanmax([treated, control])), 1e-9)
    middle, reach = 104.0, 82.0
    for low, high, t, c in zip(histogram["low"], histogram["high"], treated, control, strict=True):
        left, width = x(float(low)) + 0.8, x(float(high)) - x(float(low)) - 1.6
        drawing.rect(left, middle - reach * t / most, width, reach * t / most, "treated-bar")
        drawing.rect(left, middle, width, reach * c / most, "control-bar")
    drawing.line(LEFT, middle, WIDTH - RIGHT, middle, "axis")
    room = WIDTH / 2 - 20
    drawing.text(LEFT, 16, terms.treated, "note", room=room)
    drawing.text(LEFT, middle + reach + 8, terms.control, "note", room=room)
    for value, text in x.ticks(5):
        drawing.text(x(value), 212, text, "tick", anchor="middle")
    name = f"estimated chance to be in {terms.treated}"
    drawing.text(WIDTH / 2, 232, name, "axis-name", anchor="middle", room=WIDTH - 30)
    shown = ", ".join(
        f"{_percent(t)} and {_percent(c)} from {low:.2f}"
        for low, t, c in zip(histogram["low"], treated, control, strict=True)
        if t + c > 0.05
    )
    return drawing.svg(f"Histogram of the chance to be treated: shares of {terms.treated} and {terms.control}: {shown}")


def rank_picture(name: str, shares: Any) -> Markup:
    """Ranks of a feature under its estimated distribution, in tenths; flat at one tenth where that is right."""
    drawing = Drawing(160, 64)
    values = np.asarray(shares, dtype=float)
    y = Scale(0.0, max(0.15, float(np.nanmax(values)) * 1.05), 58, 4)
    for k, value in enumerate(values):
        if math.isfinite(value):
            drawing.rect(2 + 15.6 * k, y(value), 14, 58 - y(value), "rank-bar")
    drawing.line(0, y(0.1), 160, y(0.1), "overall")
    listed = ", ".join(_percent(value) for value in values)
    return drawing.svg(
        f"Shares of {name} by tenths of its estimated distribution, 10% each where it is right: {listed}"
    )


def placebo_picture(p_values: Any) -> Markup:
    """P-values of placebo treatments in twentieths; the first are not far above the line where p-values hold."""
    drawing = Drawing(WIDTH, 170)
    x = Scale(0.0, 1.0, LEFT + 20, WIDTH - RIGHT - 10)
    shares = np.histogram(np.asarray(p_values, dtype=float), bins=20, range=(0.0, 1.0))[0] / max(len(p_values), 1)
    y = Scale(0.0, max(0.1, float(shares.max()) * 1.05), 126, 12)
    for k, share in enumerate(shares):
        left, width = x(k / 20) + 0.8, x((k + 1) / 20) - x(k / 20) - 1.6
        drawing.rect(left, y(share), width, 126 - y(share), "rank-bar")
    drawing.line(LEFT + 20, y(0.05), WIDTH - RIGHT - 10, y(0.05), "overall")
    drawing.line(LEFT + 20, 126, WIDTH - RIGHT - 10, 126, "axis")
    for value, text in x.ticks(5):
        drawing.text(x(value), 144, text, "tick", anchor="middle")
    drawing.text(WIDTH / 2, 164, "p-value under a placebo treatment", "axis-name", anchor="middle")
    first = _percent(float(shares[0]))
    return drawing.svg(f"Histogram of {len(p_values)} p-values of placebo treatments: {first} are below 0.05")


def _edge(at: Any, low: Any, high: Any, y: Scale) -> list[tuple[float, float]]:
    upper = [(a, y(v)) for a, v in zip(at, high, strict=True)]
    return upper + [(a, y(v)) for a, v in zip(at[::-1], low[::-1], strict=True)]


def _peaks(outcome: Any, treated: Any, control: Any, terms: Terms) -> str:
    if not (np.isfinite(treated).any() and np.isfinite(control).any()):
        return ""
    first, second = (number(float(outcome[int(np.nanargmax(values))])) for values in (treated, control))
    return f"Most common near {first} under {terms.treated} and near {second} under {terms.control}."


def _signed(value: float, text: Any) -> str:
    shown = str(text(value))
    return f"+{shown}" if value > 0 else shown


def _percent(value: float) -> str:
    return "not known" if math.isnan(value) else f"{100 * value:.1f}%".replace("-", MINUS)

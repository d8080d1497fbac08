"""A result with every part that a report can show, made by hand: numbers of all kinds, and names that would do harm."""

from __future__ import annotations

import numpy as np
import pandas as pd

from modifind.result.checks import as_frame
from modifind.result.concerns import Check
from modifind.result.selection_result import PIT_COLUMNS, SelectionResult, no_subgroups

SCRIPT = "<script>alert(1)</script>"
NAMES = (
    "age",
    "smoker",
    SCRIPT,
    "pressure",
    "</script><img src=x onerror=alert(2)>",
    '" onmouseover="alert(3)',
    "two\nlines\u2028more",
    "\u05d2\u05d9\u05dc \u202e reversed",
    "very_long_" * 20,
    "=HYPERLINK(1)",
    "100% #1 & more",
    "flat",
)
CHOSEN = ("age", "smoker", SCRIPT, "very_long_" * 20)
CATEGORIES = ("never", "<b>often</b>", "a category with a long name that goes on")
WHOLE = pd.DataFrame(
    {"statistic": [-13.0, 40.0, 1e-6], "p_value": [1e-9, 1e-8, 1e-5], "method": ["average", "kernel", "Simes"]},
    index=pd.Index(["mean", "distribution", "modification"], name="test"),
)
QUANTITIES = {"mean_effect": -2.0, "sd_ratio": 1.5, **{f"q{q}_effect": -2.0 + q / 50 for q in (10, 25, 50, 75, 90)}}


def curve_of(values, *, slope=1.0):
    """Effects that rise along the values, with bands; too few rows at the first value."""
    steps = np.linspace(-1.0, 1.0, len(values))
    frame = pd.DataFrame({"value": list(values), "d2": 0.1 + 0.05 * steps**2})
    for name, level in QUANTITIES.items():
        frame[name] = level + slope * 0.4 * steps
    for name in [column for column in frame if column != "value"]:
        frame[f"{name}_low"], frame[f"{name}_high"] = frame[name] - 0.3, frame[name] + 0.3
    frame["d2_null_low"], frame["d2_null_high"] = 0.08, 0.12
    frame["rows_treated"], frame["rows_control"] = 40.0, 50.0
    frame["low_support"] = np.arange(len(values)) == 0
    return frame


def densities_of(values, outcomes):
    parts = []
    for place, value in enumerate(values):
        treated = np.exp(-0.5 * (outcomes - 0.5 * place) ** 2)
        part = pd.DataFrame({"value": [value] * len(outcomes), "outcome": outcomes})
        for name, height in (("treated", treated), ("control", np.exp(-0.5 * outcomes**2))):
            part[name], part[f"{name}_low"], part[f"{name}_high"] = height, 0.9 * height, 1.1 * height
        part["witness"] = part["treated"] - part["control"]
        part["witness_low"], part["witness_high"] = part["witness"] - 0.1, part["witness"] + 0.1
        part["low_support"] = place == 0
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def bounds_of(values):
    frame = pd.DataFrame({"value": list(values)})
    for name, low, high in (("benefit", 0.2, 0.7), ("sd", 1.0, 4.0), ("corr", -0.9, 0.95), ("var", 1.0, 16.0)):
        for end, level in (("low", low), ("high", high)):
            frame[f"{name}_{end}"] = level
            frame[f"{name}_{end}_ci_low"], frame[f"{name}_{end}_ci_high"] = level - 0.05, level + 0.05
    frame["low_support"] = False
    return frame


def subgroups_of(table, settings):
    """Three subgroups of every column, the last without a clear effect."""
    groups, found = settings["feature_groups"] or {}, []
    for name, row in table.iterrows():
        for column in groups.get(name, [name]) if name != "flat" else ():
            levels = CATEGORIES if row["kind"] == "discrete" else ("up to -1.5", "over -1.5 to 40", "missing")
            for place, level in enumerate(levels):
                own = {"feature": name, "column": column, "level": level, "n_treated": 90 - 40 * place, "n_control": 50}
                own |= {"effect": -3.0 + 1.5 * place, "low": -3.5 + 1.5 * place, "high": -2.5 + 1.5 * place}
                found.append(own | {"se": 0.25, "df": 48.0, "p_value": row["p_value"]})
    return pd.DataFrame(found) if found else no_subgroups()


def explained_result(names=NAMES, chosen=CHOSEN, *, binary=False, notices=()):
    """A result of these features, the chosen ones selected."""
    index = pd.Index(names, name="feature")
    picked = np.array([name in chosen for name in names])
    p_values = np.where(picked, 1e-6, 0.2) + np.arange(len(names)) / 100 * ~picked
    kinds = ["discrete" if name == "smoker" else "group" if name == "pressure" else "continuous" for name in names]
    table = pd.DataFrame({"kind": kinds, "importance": np.linspace(2.0, 1.0, len(names))}, index=index)
    table["statistic"], table["p_value"], table["p_adjusted"] = 1.0, p_values, np.minimum(2 * p_values, 1.0)
    table["selected"] = picked
    for place, name in enumerate(("likelihood_gain", "gain_low", "gain_high")):
        table[name] = np.linspace(0.1, 0.0, len(names)) + 0.01 * (place % 3)
    table["caution"] = ["constant" if name == "flat" else "" for name in names]
    grid = np.linspace(20.0, 80.0, 9)
    outcomes = np.array([0.0, 1.0]) if binary else np.linspace(-3.0, 4.0, 12)
    plain = curve_of(grid), densities_of(list(grid[::4]), outcomes), bounds_of(grid)
    named = curve_of(CATEGORIES), densities_of(CATEGORIES, outcomes), bounds_of(CATEGORIES)
    gaps = curve_of([*grid, np.nan]), plain[1], bounds_of([*grid, np.nan])
    curves, densities, bounds = {}, {}, {}
    for name, kind in zip(names, kinds, strict=True):
        for column in ["sbp", "dbp"] if kind == "group" else [name]:
            curves[column], densities[column], bounds[column] = (
                named if kind == "discrete" else gaps if name == "age" else plain
            )
            if name not in chosen:
                del bounds[column]
    curves["flat"] = curves["flat"].assign(**dict.fromkeys(curves["flat"].columns.drop("value"), np.nan)).iloc[:1]
    curves["flat"]["low_support"] = True
    del densities["flat"]
    tests = pd.DataFrame({"quantity": ["benefit", "var"], "part": "midpoint", "p_value": [0.02, 0.6]})
    adjusted = {
        f"{part}_adjusted": np.where(picked, p, 0.9) for part, p in (("mean", 1e-5), ("spread", 0.3), ("shape", 1.0))
    }
    changes = pd.DataFrame({f"{part}_p": 0.5 for part in ("mean", "spread", "shape")} | adjusted, index=index)
    changes["verdict"] = [
        f"Changes the average of {n}." if c else "No change found." for n, c in zip(names, picked, strict=True)
    ]
    shares = np.full(20, 0.05)
    scores = pd.DataFrame(
        {"low": np.arange(20) / 20, "high": np.arange(1, 21) / 20, "treated": shares, "control": shares}
    )
    checks = [
        Check(
            "effective_rows", None, 0.9, 0.05, True, "The effective sample size of the treated arm is 81 rows (90%)."
        ),
        Check("arm_size", None, 90.0, 50.0, True, "The treated arm has 90 rows."),
    ]
    overlap = {f"effective_rows_{arm}": 90.0 for arm in ("treated", "control")} | {"extreme_share": 0.01, "auc": 0.55}
    settings = {
        "alpha": 0.05,
        "adjust": "bh",
        "n_rows": 1180,
        "n_treated": 590,
        "n_control": 590,
        "treated_label": f"pill {SCRIPT}" if SCRIPT in names else "1",
        "control_label": "placebo" if SCRIPT in names else "0",
        "propensity_model": "known, 0.5 for every row",
        "null_hypothesis": "nothing changes",
        "seed": 0,
        "model": {"likelihood": "bernoulli" if binary else "student-t", "n_folds": 5, "stack": "linear 1.00"},
        "statistic": {"class": "EffectLikelihood", "cv_repeats": 1},
        "sampler": {"class": "AutoSampler"},
        "outcome_levels": binary,
        "feature_groups": {"pressure": ["sbp", "dbp"]} if "pressure" in names else None,
        "group_column_kinds": {"sbp": "continuous", "dbp": "continuous"},
    }
    return SelectionResult(
        table,
        pd.DataFrame({"bandwidth": 1.0, "pit_distance": 0.02}, index=index),
        curves,
        overlap,
        settings,
        {"modifind": "0.1.0"},
        tuple(notices),
        as_frame(checks),
        changes,
        densities,
        bounds,
        dict.fromkeys(bounds, tests),
        {"mean_effect": -2.0, "mean_effect_low": -2.3, "mean_effect_high": -1.7, "sd_ratio": 1.5},
        scores,
        pd.DataFrame(0.1, index=index, columns=list(PIT_COLUMNS)),
        WHOLE,
        subgroups_of(table, settings),
    )

"""Checks that every fit ends with: what was found, why it matters and what to do.

Thresholds are set by what a departure does to the answer, not by whether it is significant: with 100,000 rows every law
and every score is significantly wrong by a little. docs/validity.md has the rates at which good and bad data fail.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from modifind.testing.analytic import combined_p_value
from modifind.testing.multiple import adjust_p_values

LEAST_EFFECTIVE_SHARE = 0.05
LARGEST_WEIGHT = 0.15  # share of an arm that one row may have, in arms of 300 rows and more
MOST_CLIPPED = 0.08
MOST_EXTREME = 0.3
LEAST_ARM = 50
LARGEST_DISTANCE = 0.05  # of the PIT: at 0.07 twice as many null features as should be are found
MISFIT_LEVEL = 0.001
LEAST_LAW_GAIN = -0.2  # nats per row
LEAST_MODEL_GAIN = -0.05  # nats per row
COST_OF_ROWS = 40.0  # nats that fitting to n rows may cost in all
DISAGREEMENT_LEVEL = 0.001
NOTICEABLE_FACTOR = 1.25  # between an analytic and a resampled p-value
DECIDING_FACTOR = 1.5  # between two tails that decide differently
MOST_NAMES = 12

TITLES = {
    "effective_rows": "rows left after weighting",
    "largest_weight": "largest weight",
    "clipped_scores": "clipped propensity scores",
    "extreme_scores": "extreme propensity scores",
    "arm_size": "size of the arms",
    "outcome_model": "model of the outcome against none",
    "resamples": "number of resamples",
    "constant": "constant features",
    "rare": "features of rare levels only",
    "determined": "features that others determine",
    "failed": "tests that failed",
    "unreached": "features that were not reached",
    "law_fit": "law of the feature",
    "law_gain": "law of the feature against none",
    "tail": "tail of the null distribution",
    "resampled_p": "agreement with resampling",
}
CAUTIONS = {
    "constant": "constant",
    "rare": "its levels are too rare",
    "determined": "determined by other features",
    "failed": "its test failed",
    "unreached": "not tested",
    "law_fit": "law of the feature fits badly",
    "law_gain": "law of the feature predicts worse than none",
    "tail": "the tail approximation decides",
    "resampled_p": "resampled p-value disagrees",
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name : str
        Kind of check.
    feature : str or None
        The feature it is about; None where it is about the whole table.
    value, threshold : float
        What was found, and the limit.
    passed : bool
        Whether the value is within the limit.
    text : str
        What was found; where it failed also why it matters and what to do.
    """

    name: str
    feature: str | None
    value: float
    threshold: float
    passed: bool
    text: str


def as_frame(checks: Sequence[Check]) -> pd.DataFrame:
    """Checks as a table, one row each."""
    columns = [field.name for field in fields(Check)]
    frame = pd.DataFrame([astuple(check) for check in checks], columns=columns)
    frame = frame.astype({"feature": object, "value": float, "threshold": float, "passed": bool})
    frame["feature"] = frame["feature"].where(frame["feature"].notna(), None)
    return frame


def run_checks(
    table: pd.DataFrame,
    diagnostics: pd.DataFrame,
    overlap: Mapping[str, float],
    settings: Mapping[str, Any],
    untestable: Mapping[str, str],
) -> pd.DataFrame:
    """All checks of a fit.

    Parameters
    ----------
    table, diagnostics, overlap, settings
        What the result is made of.
    untestable : mapping
        For features that were not tested the reason: "constant", "rare", "determined", "failed" or "unreached".

    Returns
    -------
    DataFrame
        One row per check, with the attributes of `Check` as columns.
    """
    found = [*_overlap_checks(overlap, settings), *_arm_checks(settings)]
    found += [*_model_check(settings), *_resample_check(len(table), settings)]
    for feature in table.index:
        found += _testable(str(feature), untestable.get(str(feature)))
    found += [check for row in diagnostics.itertuples() for check in _law_checks(row, int(settings["n_rows"]))]
    found += [*_tail_checks(table, diagnostics, settings), *_resampled_checks(table, diagnostics)]
    return as_frame(found)


def cautions(checks: pd.DataFrame, features: Sequence[str]) -> list[str]:
    """For each feature what its failed checks come to, in a few words; empty where nothing is wrong."""
    found: dict[str, list[str]] = {str(feature): [] for feature in features}
    failed = checks[~checks["passed"] & checks["feature"].notna()]
    for name, feature in zip(failed["name"], failed["feature"], strict=True):
        found[feature].append(CAUTIONS[name])
    return ["; ".join(dict.fromkeys(found[str(feature)])) for feature in features]


def concerns(checks: pd.DataFrame, named: frozenset[str] = frozenset()) -> list[str]:
    """One sentence or two for every kind of check that failed, naming the features.

    Features in `named` are left out where they cannot be tested: they have had a warning of their own.

    Examples
    --------
    >>> found = [Check("constant", name, 1.0, 1.0, False, "") for name in ("site", "batch")]
    >>> concerns(as_frame(found))
    ['constant columns cannot modify anything: site, batch']
    """
    told = checks["name"].isin(["constant", "rare", "determined"]) & checks["feature"].isin(list(named))
    failed = checks[~checks["passed"] & ~told]
    return [_concern(str(name), rows) for name, rows in failed.groupby("name", sort=False)]


def summary(checks: pd.DataFrame) -> str:
    """How many kinds of check need attention."""
    failed = checks.loc[~checks["passed"], "name"].nunique()
    return f"{failed} of {checks['name'].nunique()} need attention"


def warn_of(checks: pd.DataFrame, named: frozenset[str] = frozenset()) -> None:
    """One warning for every kind of check that failed; see `concerns`."""
    for message in concerns(checks, named):
        warnings.warn(message, UserWarning, stacklevel=4)


def _concern(name: str, rows: pd.DataFrame) -> str:
    if rows["feature"].isna().all():
        return " ".join(rows["text"])
    names = [str(feature) for feature in rows["feature"]]
    count = f"{len(names)} feature{'s' if len(names) > 1 else ''}"
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    if name == "constant":
        return f"constant columns cannot modify anything: {listed}"
    if name == "rare":
        return f"no two levels have enough rows in each arm, so not tested: {listed}"
    if name == "determined":
        return (
            f"{listed}: so nearly a function of the other features that the data cannot tell them apart; "
            "p-values set to 1. Leave out one of the columns that say the same."
        )
    if name == "failed":
        return f"{listed}: not tested, because the test failed; p-values set to 1"
    if name == "unreached":
        return f"{count} not tested: the run was interrupted. {listed}"
    return f"{count} ({listed}): {_PER_FEATURE[name]}"


# Why a failed check of features matters and what to do; the same for all of them.
_PER_FEATURE = {
    "law_fit": (
        "the estimated law of the feature given the rest does not fit held-out rows, so that p-values may be too small "
        "or too large. Try another sampler, or transform the column."
    ),
    "law_gain": (
        "the estimated law of the feature given the rest predicts held-out rows worse than the feature's own "
        "distribution does, so that p-values may be off. Try another sampler, or transform the column."
    ),
    "tail": (
        "the normal and the saddlepoint approximation of the tail decide differently. Check the p-value by resampling: "
        "EffectLikelihood(check_resamples=10000), or --check 10000."
    ),
    "resampled_p": (
        "the p-value and the one by resampling differ by more than chance explains. Rely on the larger of the two, or "
        "on statistic='wcmmd'."
    ),
}


def _overlap_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    for arm in ("treated", "control"):
        rows, share = overlap[f"effective_rows_{arm}"], overlap[f"effective_share_{arm}"]
        passed = share >= LEAST_EFFECTIVE_SHARE
        text = f"The {arm} arm is worth {'' if passed else 'only '}{rows:.0f} rows ({share:.0%} of it) after weighting"
        text += "." if passed else (
            ": the arms overlap poorly and power is low. Leave out rows that could only have been in one arm, or "
            "features that decide the treatment without being related to the outcome."
        )  # fmt: skip
        yield Check("effective_rows", None, share, LEAST_EFFECTIVE_SHARE, passed, text)
    for arm in ("treated", "control"):
        share = overlap[f"max_weight_share_{arm}"]
        limit = max(LARGEST_WEIGHT, min(0.5, 300 * LARGEST_WEIGHT / max(settings[f"n_{arm}"], 1)))
        passed = share <= limit
        text = f"The largest weight is {share:.1%} of the weight of the {arm} arm."
        if not passed:
            text += (
                " A single row can then shape importance and curves. Look at the rows with the largest weights, or "
                "narrow the clipping of the scores (PropensityModel(clip=...))."
            )
        yield Check("largest_weight", None, share, limit, passed, text)
    n_rows, clipped = int(settings["n_rows"]), int(overlap["n_clipped"])
    low, high = settings["propensity_clip"]
    passed = clipped <= MOST_CLIPPED * n_rows
    text = f"{clipped} of {n_rows} propensity scores were outside [{low:g}, {high:g}] and were clipped"
    text += "." if passed else (
        ": the arms hardly overlap there. What is said about such rows rests on the model; consider to leave them out."
    )  # fmt: skip
    yield Check("clipped_scores", None, clipped / max(n_rows, 1), MOST_CLIPPED, passed, text)
    share = overlap["extreme_share"]
    passed = share <= MOST_EXTREME
    text = f"{share:.1%} of the propensity scores are below 0.05 or above 0.95."
    if not passed:
        text += " Features all but decide the treatment, so that there is little to compare. Restrict the rows."
    yield Check("extreme_scores", None, share, MOST_EXTREME, passed, text)


def _arm_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    for arm in ("treated", "control"):
        rows = int(settings[f"n_{arm}"])
        passed = rows >= LEAST_ARM
        text = f"The {arm} arm has {rows} rows."
        if not passed:
            text += " Models of so few rows are poor and power is low: a feature that is not selected may still modify."
        yield Check("arm_size", None, float(rows), float(LEAST_ARM), passed, text)


def _model_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    gain = (settings.get("model") or {}).get("gain_over_marginal")
    if gain is None:
        return
    limit = LEAST_MODEL_GAIN - COST_OF_ROWS / int(settings.get("n_train_rows") or settings["n_rows"])
    passed = gain >= limit
    text = f"The model of the outcome predicts held-out rows {abs(gain):.3f} nats per row "
    text += "better" if gain > 0 else "worse"
    text += " than each arm's own distribution without features."
    if not passed:
        text += (
            " Such a model is of no use and power is low. Try learner='linear', the logarithm of the outcome, or look "
            "for outliers."
        )
    elif gain <= 0:
        text += " It has found nothing in the features, as it must where there is nothing."
    yield Check("outcome_model", None, float(gain), limit, passed, text)


def _resample_check(n_features: int, settings: Mapping[str, Any]) -> Iterator[Check]:
    needed, used = settings.get("n_resamples_needed"), settings.get("n_resamples_used")
    if not needed or not used:
        return
    passed = used >= needed
    text = f"n_resamples={used} can give a single discovery among {n_features} features."
    if not passed:
        text = (
            f"n_resamples={used} cannot give a single discovery among {n_features} features at "
            f"alpha={settings['alpha']:g}; use at least {needed} or 'auto'"
        )
    yield Check("resamples", None, float(used), float(needed), passed, text)


def _testable(feature: str, reason: str | None) -> list[Check]:
    texts = {
        "constant": f"{feature} has one value only and cannot modify anything. Leave it out.",
        "rare": f"{feature} has no two levels with enough rows in each arm, so it was not tested. Leave it out.",
        "determined": (
            f"{feature} is so nearly a function of the other features that the data cannot tell them apart; its "
            "p-value is set to 1. Leave out one of the columns that say the same."
        ),
        "failed": f"The test of {feature} failed, as a warning says; its p-value is set to 1.",
        "unreached": f"{feature} was not tested: the run was interrupted. With a checkpoint the same call continues.",
    }
    return [] if reason is None else [Check(reason, feature, 1.0, 0.0, False, texts[reason])]


def _law_checks(row: Any, n_rows: int) -> Iterator[Check]:
    feature = str(row.Index)
    distance, p_value = getattr(row, "pit_distance", math.nan), getattr(row, "pit_p_value", math.nan)
    if distance == distance:
        passed = not (distance > LARGEST_DISTANCE and p_value < MISFIT_LEVEL)
        text = f"The law of {feature} given the rest ({row.sampler}) is off by {distance:.3f} on held-out rows"
        text += f" (Kolmogorov-Smirnov distance; p = {p_value:.2g})."
        if not passed:
            text += " Its p-value may be too small or too large. Try another sampler, or transform the column."
        yield Check("law_fit", feature, distance, LARGEST_DISTANCE, passed, text)
    gain = getattr(row, "log_score_gain", math.nan)
    if gain == gain:
        limit = LEAST_LAW_GAIN - COST_OF_ROWS / n_rows
        passed = gain >= limit
        text = (
            f"The law of {feature} given the rest ({row.sampler}) predicts held-out rows {abs(gain):.3f} nats per row "
            f"{'better' if gain > 0 else 'worse'} than the feature's own distribution."
        )
        if not passed:
            text += " Its p-value may be off. Try another sampler."
        elif gain < 0:
            text += f" With this many rows up to {-limit:.3f} is no concern."
        yield Check("law_gain", feature, gain, limit, passed, text)


def _tail_checks(table: pd.DataFrame, diagnostics: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[Check]:
    if "normal_p_value" not in diagnostics:
        return
    combined = table["p_value"].fillna(1.0).to_numpy(dtype=float)
    p_values = diagnostics["likelihood_p_value"].fillna(1.0).to_numpy(dtype=float)
    normal = diagnostics["normal_p_value"].to_numpy(dtype=float)
    normal = np.where(np.isnan(normal) | table["p_value"].isna(), p_values, normal)
    # Another tail of the likelihood decides where the other component does not.
    instead = combined_p_value(normal, diagnostics["tail_p_value"].to_numpy(dtype=float))
    instead = np.where(table["p_value"].isna(), combined, instead)
    decided = adjust_p_values(instead, settings["adjust"]) <= settings["alpha"]
    factors = np.exp(np.abs(np.log(np.maximum(p_values, 1e-300)) - np.log(np.maximum(normal, 1e-300))).clip(max=700))
    selected = table["selected"].to_numpy(dtype=bool)
    for k, feature in enumerate(table.index):
        factor = 1.0 if decided[k] == selected[k] else float(factors[k])  # one that decides nothing does not matter
        passed = factor < DECIDING_FACTOR
        text = f"The saddlepoint tail of {feature} gives p = {p_values[k]:.2g}, the normal tail {normal[k]:.2g}."
        if not passed:
            text += " They decide differently. Check it by resampling: EffectLikelihood(check_resamples=10000)."
        yield Check("tail", str(feature), factor, DECIDING_FACTOR, passed, text)


def _resampled_checks(table: pd.DataFrame, diagnostics: pd.DataFrame) -> Iterator[Check]:
    if "check_p_value" not in diagnostics:
        return
    checked = diagnostics[diagnostics["check_p_value"].notna() & table["p_value"].notna()]
    for feature in checked.index:
        p_value = float(checked.loc[feature, "likelihood_p_value"])
        resampled = float(checked.loc[feature, "check_p_value"])
        drawn, reached = (int(checked.loc[feature, name]) for name in ("n_resamples", "n_exceeding"))
        chance = float(binomtest(reached, drawn, min(p_value, 1.0)).pvalue)
        apart = abs(math.log(resampled / max(p_value, 1e-300))) > math.log(NOTICEABLE_FACTOR)
        limit = DISAGREEMENT_LEVEL / len(checked)
        passed = chance >= limit or not apart
        text = f"P-value of {feature}: {p_value:.2g}; {reached} of {drawn} resamples reached the statistic."
        if not passed:
            text += " They differ by more than chance explains. Rely on the larger of the two, or on statistic='wcmmd'."
        yield Check("resampled_p", str(feature), chance, limit, passed, text)

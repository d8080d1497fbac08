"""Checks made at the end of every fit: what was observed, why it matters and what to do.

A check that bears on validity decides whether the result can be relied on, `SelectionResult.ok`; the others are notes.
`check_kinds` says which is which. Thresholds reflect how much a departure distorts the result, not whether it is
significant: with 100,000 rows every distribution and every score is significantly wrong by a little. docs/validity.md
has the rates at which good and bad tables fail.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from modifind.data.outcome import MAX_SHARED, MIN_EVENTS, MIN_SHARE
from modifind.data.words import counted, shortened
from modifind.inference.adjust import adjust_p_values
from modifind.result.concerns import KINDS, UNSEEN, Check, check, control_sentence, uncontrolled

MIN_EFFECTIVE_SHARE = 0.05
MIN_EFFECTIVE_ROWS = 30.0
MAX_OUTSIDE = 0.4  # share of an arm, by the propensity score
MAX_OUTSIDE_ALONG = 0.2  # share of an arm, along one feature
MIN_EXPLAINED = 0.95  # of known propensity scores by the features
MAX_SHARE_Z = 4.0  # between the arms' shares and known chances, in standard errors,
MIN_SHARE_GAP = 0.02  # and in itself
MAX_ARM_DIFFERENCE = 0.1  # standard deviations, between randomised arms
ARM_DIFFERENCE_LEVEL = 0.001  # over all features
MAX_WEIGHT = 0.15  # share of an arm that one row may have, in arms of 300 rows and more
MAX_CLIPPED = 0.08
MIN_OBSERVED_SHARE = 0.3  # of the rows with an outcome that are left when weighted for those without,
MIN_OBSERVED_ROWS = 60.0  # and in rows
MAX_OBSERVED_WEIGHT = 0.03  # share of all weight that one such row may have, in tables of 300 rows and more
MIN_RELIABLE_ARM = 50
MAX_PIT_DISTANCE = 0.05  # of the PIT: at 0.07 twice as many null features as should be are found
MISFIT_LEVEL = 0.001
CONDITIONAL_FOLLOWS = 1e-6
SCORES_MISFIT = 1e-3
MIN_CONDITIONAL_GAIN = -0.2  # nats per row
MIN_MODEL_GAIN = -0.05  # nats per row
ROW_COST = 40.0  # nats that fitting to n rows may cost in all
DISAGREEMENT_LEVEL = 0.001
NOTICEABLE_FACTOR = 1.25  # between an analytic and a resampled p-value
DECIDING_FACTOR = 1.5  # between two tails that decide differently

ARMS = ("treated", "control")


def as_frame(checks: Sequence[Check]) -> pd.DataFrame:
    """Checks as a table with one row each: whether it bears on validity, and advice where it failed."""
    columns = [field.name for field in fields(Check)]
    frame = pd.DataFrame([astuple(check) for check in checks], columns=columns)
    frame = frame.astype({"feature": object, "value": float, "threshold": float, "passed": bool})
    frame["feature"] = frame["feature"].where(frame["feature"].notna(), None)
    bears = np.array([KINDS[check.name].validity for check in checks], dtype=bool)
    frame.insert(columns.index("passed") + 1, "validity", bears)
    remedies = ["" if check.passed else check.remedy or KINDS[check.name].remedy for check in checks]
    frame["remedy"] = pd.Series(remedies, dtype=frame["text"].dtype)
    return frame


def run_checks(
    table: pd.DataFrame,
    diagnostics: pd.DataFrame,
    overlap: Mapping[str, float],
    settings: Mapping[str, Any],
    untestable: Mapping[str, str],
    adjusted: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """All checks of a fit.

    Parameters
    ----------
    table, diagnostics, overlap, settings
        What the result is made of.
    untestable : mapping
        For features that were not tested the reason: "constant", "rare", "determined", "failed" or "unreached".
    adjusted : DataFrame, optional
        What columns that are adjusted for and not tested were looked at for; see `review_columns`.

    Returns
    -------
    DataFrame
        One row per check, with the attributes of `Check` as columns, `validity` and `remedy`.
    """
    columns = diagnostics if adjusted is None else pd.concat([diagnostics, adjusted])
    groups = (
        *(_overlap_checks(overlap, settings), _outcome_weight_checks(settings), _score_check(overlap, settings)),
        *(_known_checks(overlap, settings), _arm_checks(settings), _repeated_check(settings)),
        *(_control_check(settings), _baseline_check(settings), outcome_checks(settings), _model_check(settings)),
        *(_resample_check(len(table), settings), _untested(table.index, untestable)),
        *(_column_checks(columns, settings), _conditional_checks(diagnostics, int(settings["n_rows"]))),
        *(_tail_checks(table, diagnostics, settings), _resampled_checks(table, diagnostics)),
    )
    return as_frame([check for group in groups for check in group])


def _overlap_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether the arms can be compared in the target population."""
    even = settings.get("population") == "overlap"
    yield from _support_checks(overlap, even)
    for arm in ARMS:
        n_arm = max(int(settings["n_" + arm]), 1)
        rows = overlap["overlap_rows_" + arm] if even else overlap["effective_rows_" + arm]
        share = rows / n_arm if even else overlap[f"effective_share_{arm}"]
        # Few rows are enough for the share to say little; where an arm is small anyway that is another check.
        least = max(MIN_EFFECTIVE_SHARE, min(MIN_EFFECTIVE_ROWS / n_arm, 0.5))
        only = "" if share >= least else "only "
        text = f"The effective sample size of the {arm} arm is {only}{rows:.0f} rows ({share:.0%})"
        failing = ": the arms overlap poorly, and effects rest on few rows."
        yield check("effective_rows", share, least, share >= least, text, failing)
    if not even:  # else no row counts much, and rows with extreme scores hardly at all
        yield from _weight_checks(overlap, settings)


def _weight_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    for arm in ARMS:
        share = overlap[f"max_weight_share_{arm}"]
        limit = max(MAX_WEIGHT, min(0.5, 300 * MAX_WEIGHT / max(settings[f"n_{arm}"], 1)))
        text = f"The largest weight is {share:.1%} of the weight of the {arm} arm."
        failing = " A single row can then dominate importance and curves."
        yield check("largest_weight", share, limit, share <= limit, text, failing, passing="")
    n_rows, clipped = int(settings["n_rows"]), int(overlap["n_clipped"])
    low, high = settings["propensity_clip"]
    passed, share = clipped <= MAX_CLIPPED * n_rows, clipped / max(n_rows, 1)
    text = f"{clipped} of {n_rows} propensity scores were outside [{low:g}, {high:g}] and were clipped"
    failing = ": the arms hardly overlap there, and statements about such rows rest on the model."
    yield check("clipped_scores", share, MAX_CLIPPED, passed, text, failing)


def _support_checks(overlap: Mapping[str, float], even: bool) -> Iterator[Check]:
    if "outside_share_treated" not in overlap:
        return
    for arm, other in (ARMS, ARMS[::-1]):
        share = overlap[f"outside_{'overlap_' if even else ''}share_{arm}"]
        text = f"{share:.0%} of the {'weight' if even else 'rows'} of the {arm} arm {'lies' if even else 'lie'} "
        text += f"where there are hardly any {other} rows to compare with"
        failing, remedy = ": their effect is extrapolated by the model.", UNSEEN if even else ""
        yield check("common_support", share, MAX_OUTSIDE, share <= MAX_OUTSIDE, text, failing, remedy=remedy)


def _outcome_weight_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether rows with an observed outcome can represent those without."""
    weights = settings.get("outcome_weights")
    if not weights:
        return
    n_rows, rows = max(int(settings["n_rows"]), 1), weights["effective_rows"]
    share, least = rows / n_rows, max(MIN_OBSERVED_SHARE, min(MIN_OBSERVED_ROWS / n_rows, 0.9))
    text = f"The outcome is missing in {weights['share_missing']:.0%} of the rows. After weighting, the others "
    text += f"have an effective sample size of {'' if share >= least else 'only '}{rows:.0f} ({share:.0%})"
    failing = ": a few rows represent many, and effects rest on them."
    yield check("outcome_weights", share, least, share >= least, text, failing)
    largest, most = (
        weights["largest_weight_share"],
        max(MAX_OBSERVED_WEIGHT, min(0.5, 300 * MAX_OBSERVED_WEIGHT / n_rows)),
    )
    text = f"The largest weight for missing outcomes is {largest:.1%} of all weight."
    failing = " A single row can then dominate effects."
    yield check("outcome_weights", largest, most, largest <= most, text, failing, passing="")


def _score_check(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether the scores fit along every feature."""
    p_value = overlap.get("misfit_p_value", math.nan)
    if p_value != p_value:
        return
    names = settings.get("propensity_misfit")
    where = f"the columns {', '.join(names)} or combinations of them" if names else "some combination of features"
    text = f"The share of treated rows agrees with the scores along all features and products (p = {p_value:.2g})."
    failing = (
        f"The share of treated rows differs from the propensity scores along {where} (p = {p_value:.2g}): "
        "differences between such rows may be mistaken for effects."
    )
    yield check("scores_fit", p_value, SCORES_MISFIT, p_value >= SCORES_MISFIT, "", failing, passing=text)


def _known_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check known treatment probabilities against the arms and the features."""
    if not settings.get("propensity_known") or "share_z" not in overlap:
        return
    share, expected, z = (overlap[name] for name in ("treated_share", "expected_share", "share_z"))
    gap = abs(share - expected)
    passed = not (abs(z) > MAX_SHARE_Z and gap > MIN_SHARE_GAP)
    text = f"{share:.1%} of the rows are treated; the known probability of treatment implies {expected:.1%}"
    failing = ": that is more than chance explains, and comparisons of the arms are biased."
    yield check("known_share", gap, MIN_SHARE_GAP, passed, text, failing)
    r2 = float(settings.get("propensity_r2", 1.0))
    text = f"The features explain {r2:.0%} of the variation in the known probabilities of treatment (R2)"
    failing = ": treatment assignment depended on something that is not among them."
    yield check("known_scores", r2, MIN_EXPLAINED, r2 >= MIN_EXPLAINED, text, failing)


def _column_checks(diagnostics: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check overlap along every feature, and whether it looks like a post-treatment measurement."""
    if "outside_share" not in diagnostics:
        return
    rows, outcome = _rows(diagnostics), settings.get("outcome_name") or "the outcome"
    unseen = UNSEEN if settings.get("population") == "overlap" else ""
    level = ARM_DIFFERENCE_LEVEL / max(len(rows), 1)
    yield from (_along_check(feature, row, unseen) for feature, row in rows)
    yield from (
        _arm_check(feature, row, level) for feature, row in rows if row["arm_difference"] == row["arm_difference"]
    )
    yield from (_order_check(feature, row["outcome_share"]) for feature, row in rows)
    for feature, row in rows:
        if row["event_flag"]:
            text = f"{feature} looks like the event indicator that belongs to the time {outcome}."
            yield Check("event_flag", feature, 1.0, 0.0, False, text)


def _rows(table: pd.DataFrame) -> list[tuple[str, dict[Any, Any]]]:
    """Features with their diagnostics as dicts."""
    return [(str(name), row) for name, row in zip(table.index, table.to_dict("records"), strict=True)]


def _along_check(feature: str, row: Mapping[str, Any], unseen: str) -> Check:
    share = row["outside_share"]
    if not share > 0:
        text, failing = f"Both arms have rows along the whole range of {feature}", "."
    else:
        text = f"{row['outside_where']} have hardly any counterparts in the other arm"
        failing = ": their effect is extrapolated by the model."
    passed = share <= MAX_OUTSIDE_ALONG
    return check("support_along", share, MAX_OUTSIDE_ALONG, passed, text, failing, feature=feature, remedy=unseen)


def _arm_check(feature: str, row: Mapping[str, Any], level: float) -> Check:
    difference, p_value = abs(row["arm_difference"]), row["arm_p_value"]
    passed = not (difference > MAX_ARM_DIFFERENCE and p_value < level)
    text = f"The arms differ in {feature} by {difference:.2f} standard deviations (p = {p_value:.2g})."
    failing = " Randomised arms hardly differ before treatment: the column looks as if it was measured afterwards."
    return check("arms_differ", difference, MAX_ARM_DIFFERENCE, passed, text, failing, passing="", feature=feature)


def _order_check(feature: str, share: float) -> Check:
    passing = f"{feature} and the outcome share {share:.0%} of their order."
    failing = (
        f"{feature} nearly determines the outcome ({share:.0%}), or is determined by it: it looks as if it was "
        "measured with the outcome or derived from it."
    )
    passed = share <= MAX_SHARED
    return check("near_outcome", share, MAX_SHARED, passed, "", failing, passing=passing, feature=feature)


def _arm_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    failing = " Models fitted to so few rows are poor and power is low: a feature that is not selected may still be "
    failing += "a modifier."
    for arm in ARMS:
        rows, text = int(settings[f"n_{arm}"]), f"The {arm} arm has {settings[f'n_{arm}']} rows."
        yield check("arm_size", rows, MIN_RELIABLE_ARM, rows >= MIN_RELIABLE_ARM, text, failing, passing="")


def _repeated_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check for rows that repeat the features of others, where any do."""
    if repeats := settings.get("repeated_rows"):
        columns, pairs, expected = (repeats[name] for name in ("columns", "pairs", "expected"))
        text = (
            f"{repeats['rows']:,} rows repeat those of others in {shortened(columns)}: {pairs:,} pairs of rows agree, "
        )
        text += f"where chance gives {expected:,}. They seem to be of one person (or place), but count as independent."
        yield Check("repeated_rows", None, float(pairs), float(expected), False, text)


def _control_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether the settings control the error rate, given correct models."""
    if reasons := uncontrolled(settings):
        text = control_sentence(settings)
        yield Check("control", None, float(len(reasons)), 0.0, False, f"{text[0].upper()}{text[1:]}.")


def _baseline_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    if names := settings.get("baseline_outcome"):
        looks = "look like the outcome" if len(names) > 1 else "looks like the outcome"
        yield Check("baseline_outcome", None, 1.0, 0.0, False, f"{', '.join(names)} {looks} before treatment.")


def _model_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    gain = (settings.get("model") or {}).get("gain_over_marginal")
    if gain is None:
        return
    limit = MIN_MODEL_GAIN - ROW_COST / int(settings.get("n_train_rows") or settings["n_rows"])
    text = f"The model of the outcome predicts held-out rows {abs(gain):.3f} nats per row "
    text += f"{'better' if gain > 0 else 'worse'} than each arm's own distribution without features."
    failing = " Such a model is not useful, and power is low."
    passing = "" if gain > 0 else " It found no structure in the features, as is expected where there is none."
    yield check("outcome_model", gain, limit, gain >= limit, text, failing, passing=passing)


def _resample_check(n_features: int, settings: Mapping[str, Any]) -> Iterator[Check]:
    needed, used = settings.get("n_resamples_needed"), settings.get("n_resamples_used")
    if needed and used:
        discovery = f"yield a single discovery among {counted(n_features, 'feature')}"
        failing = f"cannot {discovery} at alpha={settings['alpha']:g}; use at least {needed} or 'auto'"
        text = f"n_resamples={used} "
        yield check("resamples", used, needed, used >= needed, text, failing, passing=f"can {discovery}.")


def _untested(features: Iterable[Any], untestable: Mapping[str, str]) -> Iterator[Check]:
    for feature in map(str, features):
        texts = {
            "constant": f"{feature} has one value only and cannot modify anything. Leave it out.",
            "rare": f"{feature} has no two levels with enough rows in each arm, so it was not tested. Leave it out.",
            "determined": (
                f"{feature} is almost determined by the other features, so that the data cannot tell them apart; its "
                "p-value is set to 1."
            ),
            "failed": f"The test of {feature} failed, as a warning says; its p-value is set to 1.",
            "unreached": f"{feature} was not tested: the run was interrupted.",
        }
        if reason := untestable.get(feature):
            yield Check(reason, feature, 1.0, 0.0, False, texts[reason])


def _conditional_checks(diagnostics: pd.DataFrame, n_rows: int) -> Iterator[Check]:
    """Check the estimated conditional distribution of each feature given the others."""
    for feature, row in _rows(diagnostics):
        row = defaultdict(lambda: math.nan, row)
        if row["pit_distance"] == row["pit_distance"]:
            yield _fit_check(feature, row)
        if row["log_score_gain"] == row["log_score_gain"]:
            n_independent = row["n_clusters"] if row["n_clusters"] > 0 else n_rows
            yield _gain_check(feature, row, MIN_CONDITIONAL_GAIN - ROW_COST / n_independent)
        if row["conditional_p_value"] == row["conditional_p_value"]:
            yield _follows_check(feature, row)


def _fit_check(feature: str, row: Mapping[str, Any]) -> Check:
    distance, p_value = row["pit_distance"], row["pit_p_value"]
    passed = not (distance > MAX_PIT_DISTANCE and p_value < MISFIT_LEVEL)
    text = (
        f"The conditional distribution of {feature} given the rest ({row['sampler']}) deviates from held-out rows by "
    )
    text += f"{distance:.3f} (Kolmogorov-Smirnov distance; p = {p_value:.2g})."
    failing = " Its p-value may be too small or too large."
    return check("conditional_fit", distance, MAX_PIT_DISTANCE, passed, text, failing, passing="", feature=feature)


def _gain_check(feature: str, row: Mapping[str, Any], limit: float) -> Check:
    gain = row["log_score_gain"]
    text = (
        f"The conditional distribution of {feature} given the rest ({row['sampler']}) predicts held-out rows "
        f"{abs(gain):.3f} nats per row {'better' if gain > 0 else 'worse'} than the feature's marginal distribution."
    )
    failing = " Its p-value may be inaccurate."
    passing = f" With this many rows up to {-limit:.3f} is no concern." if gain < 0 else ""
    return check("conditional_gain", gain, limit, gain >= limit, text, failing, passing=passing, feature=feature)


def _follows_check(feature: str, row: Mapping[str, Any]) -> Check:
    p_value = row["conditional_p_value"]
    passing = f"Residuals of the model of {feature} given the rest follow no other feature (p = {p_value:.2g})."
    failing = (
        f"Residuals of the model of {feature} given the rest ({row['sampler']}) are still related to other features "
        f"(p = {p_value:.2g}): part of what is found for it may be due to them."
    )
    passed = p_value >= CONDITIONAL_FOLLOWS
    return check(
        "conditional_along", p_value, CONDITIONAL_FOLLOWS, passed, "", failing, passing=passing, feature=feature
    )


def _tail_checks(table: pd.DataFrame, diagnostics: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[Check]:
    if "normal_p_value" not in diagnostics:
        return
    p_values = table["p_value"].fillna(1.0).to_numpy(dtype=float)
    normal = diagnostics["normal_p_value"].to_numpy(dtype=float)
    normal = np.where(np.isnan(normal) | table["p_value"].isna(), p_values, normal)
    decided = adjust_p_values(normal, settings["adjust"]) <= settings["alpha"]
    factors = np.exp(np.abs(np.log(np.maximum(p_values, 1e-300)) - np.log(np.maximum(normal, 1e-300))).clip(max=700))
    factors[decided == table["selected"].to_numpy(dtype=bool)] = 1.0  # one that decides nothing does not matter
    failing = " They lead to different decisions."
    for feature, factor, p_value, other in zip(table.index, factors, p_values, normal, strict=True):
        text = f"With the saddlepoint tail {feature} has p = {p_value:.2g}, with the normal tail {other:.2g}."
        passed = factor < DECIDING_FACTOR
        yield check("tail", factor, DECIDING_FACTOR, passed, text, failing, passing="", feature=str(feature))


def _resampled_checks(table: pd.DataFrame, diagnostics: pd.DataFrame) -> Iterator[Check]:
    if "check_p_value" not in diagnostics:
        return
    checked = diagnostics[diagnostics["check_p_value"].notna() & table["p_value"].notna()]
    limit, failing = DISAGREEMENT_LEVEL / max(len(checked), 1), " They differ by more than chance explains."
    for feature, row in _rows(checked):
        p_value, resampled = row["checked_p_value"], row["check_p_value"]
        drawn, reached = int(row["n_resamples"]), int(row["n_exceeding"])
        chance = float(binomtest(reached, drawn, min(p_value, 1.0)).pvalue)
        apart = abs(math.log(resampled / max(p_value, 1e-300))) > math.log(NOTICEABLE_FACTOR)
        text = f"P-value of {feature}: {p_value:.2g}; {reached} of {drawn} resamples reached the statistic."
        passed = chance >= limit or not apart
        yield check("resampled_p", chance, limit, passed, text, failing, passing="", feature=feature)


MAX_GAIN = 2.3  # nats per row that an outcome which is a number leaves to be learned: 99% of its variance
MAX_GAIN_SHARE = 0.85  # of what there is to be learned of an outcome of levels
LEVELS = ("binary", "ordinal")


def outcome_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Failed checks of whether columns together determine the outcome and whether both arms have enough events."""
    if parts := settings.get("outcome_parts"):
        share = float(parts["share"])
        text = (
            f"{', '.join(parts['columns'])} together give the outcome by {parts['how']} ({share:.2%} of its variance): "
        )
        text += "it looks as if it was computed from them."
        yield Check("outcome_parts", None, share, MIN_SHARE, False, text)
    outcome = f"The outcome {settings.get('outcome_name') or ''}".strip()
    for arm, counts in (settings.get("few_events") or {}).items():
        events, rows, usual = int(counts["events"]), int(counts["rows"]), f"{counts['usual']:g}"
        if events == 0 and not counts["binary"]:
            text = f"{outcome} is constant ({usual}) in the {arm} arm: what varies in one arm only cannot be compared."
            yield Check("constant_arm", None, 0.0, 1.0, False, text)
        else:
            text = f"{counted(events, 'row')} of {rows} in the {arm} arm {'has' if events == 1 else 'have'} an outcome "
            text += f"other than {usual}. " if events else f"other than {usual}: it is constant there. "
            text += "With so few events, p-values and limits are inaccurate and power is low."
            yield Check("few_events", None, float(events), float(MIN_EVENTS), False, text)
    yield from _given_check(settings)


def _given_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether held-out rows are predicted better than is plausible for an outcome measured later."""
    model, kind = settings.get("model") or {}, settings.get("outcome_kind")
    gain = model.get("gain_over_marginal")
    if gain is None or kind == "count":  # of large counts there is more to learn
        return
    value, limit = float(gain), MAX_GAIN
    text = f"The model of the outcome predicts held-out rows better by {gain:.1f} nats per row than no model"
    if kind in LEVELS:
        left = -max(model["held_out_log_likelihood"].values(), default=-math.inf)
        value, limit = gain / (gain + left), MAX_GAIN_SHARE
        text = f"The model of the outcome explains {value:.0%} of what can be predicted in held-out rows"
    if value > limit:
        text += ": together, some columns almost determine the outcome, which columns measured before it rarely do."
        yield Check("outcome_given", None, value, limit, False, text)

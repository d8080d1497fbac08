"""Checks that every fit ends with: what was found, why it matters and what to do.

A check that bears on validity decides whether the answer can be relied on, `SelectionResult.ok`; the others are notes.
`check_kinds` says which is which. Thresholds are set by what a departure does to the answer, not by whether it is
significant: with 100,000 rows every distribution and every score is significantly wrong by a little. docs/validity.md
has the rates at which good and bad tables fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from modifind.data.suspicious import MOST_SHARED
from modifind.data.wording import counted, shortened
from modifind.inference.adjust import adjust_p_values
from modifind.result.check_kinds import KINDS, UNSEEN, Check
from modifind.result.outcome_checks import outcome_checks
from modifind.result.uncontrolled import control_sentence, uncontrolled

LEAST_EFFECTIVE_SHARE = 0.05
LEAST_EFFECTIVE_ROWS = 30.0
MOST_OUTSIDE = 0.4  # share of an arm, by the propensity score
MOST_OUTSIDE_ALONG = 0.2  # share of an arm, along one feature
LEAST_EXPLAINED = 0.95  # of known propensity scores by the features
LARGEST_SHARE_Z = 4.0  # between the arms' shares and known chances, in standard errors,
LEAST_SHARE_GAP = 0.02  # and in itself
LARGEST_ARM_DIFFERENCE = 0.1  # standard deviations, between randomised arms
ARM_DIFFERENCE_LEVEL = 0.001  # over all features
LARGEST_WEIGHT = 0.15  # share of an arm that one row may have, in arms of 300 rows and more
MOST_CLIPPED = 0.08
LEAST_OBSERVED_SHARE = 0.3  # of the rows with an outcome that are left when weighted for those without,
LEAST_OBSERVED_ROWS = 60.0  # and in rows
LARGEST_OBSERVED = 0.03  # share of all weight that one such row may have, in tables of 300 rows and more
LEAST_ARM = 50
LARGEST_DISTANCE = 0.05  # of the PIT: at 0.07 twice as many null features as should be are found
MISFIT_LEVEL = 0.001
CONDITIONAL_FOLLOWS = 1e-6
SCORES_MISFIT = 1e-3
LEAST_CONDITIONAL_GAIN = -0.2  # nats per row
LEAST_MODEL_GAIN = -0.05  # nats per row
COST_OF_ROWS = 40.0  # nats that fitting to n rows may cost in all
DISAGREEMENT_LEVEL = 0.001
NOTICEABLE_FACTOR = 1.25  # between an analytic and a resampled p-value
DECIDING_FACTOR = 1.5  # between two tails that decide differently


def as_frame(checks: Sequence[Check]) -> pd.DataFrame:
    """Checks as a table, one row each, with whether they bear on validity and what to do about those that failed."""
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
    found = [
        *_overlap_checks(overlap, settings),
        *_outcome_weight_checks(settings),
        *_score_check(overlap, settings),
        *_known_checks(overlap, settings),
        *_arm_checks(settings),
        *_repeated_check(settings),
    ]
    found += [*_control_check(settings), *_baseline_check(settings), *outcome_checks(settings)]
    found += [*_model_check(settings), *_resample_check(len(table), settings)]
    for feature in table.index:
        found += _testable(str(feature), untestable.get(str(feature)))
    found += _column_checks(diagnostics if adjusted is None else pd.concat([diagnostics, adjusted]), settings)
    found += [check for row in diagnostics.itertuples() for check in _conditional_checks(row, int(settings["n_rows"]))]
    found += [*_tail_checks(table, diagnostics, settings), *_resampled_checks(table, diagnostics)]
    return as_frame(found)


def _overlap_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether the arms can be compared where the effects that are told are about."""
    even = settings.get("population") == "overlap"
    yield from _support_checks(overlap, even)
    for arm in ("treated", "control"):
        rows = overlap["overlap_rows_" + arm] if even else overlap["effective_rows_" + arm]
        share = rows / max(int(settings["n_" + arm]), 1) if even else overlap[f"effective_share_{arm}"]
        # Few rows are enough for the share to say little; where an arm is small anyway that is another check.
        least = max(LEAST_EFFECTIVE_SHARE, min(LEAST_EFFECTIVE_ROWS / max(int(settings["n_" + arm]), 1), 0.5))
        passed = share >= least
        text = f"The effective sample size of the {arm} arm is {'' if passed else 'only '}{rows:.0f} rows ({share:.0%})"
        text += "." if passed else ": the arms overlap poorly, and effects rest on few rows."
        yield Check("effective_rows", None, share, least, passed, text)
    if even:  # no row counts much, and rows with extreme scores hardly at all
        return
    for arm in ("treated", "control"):
        share = overlap[f"max_weight_share_{arm}"]
        limit = max(LARGEST_WEIGHT, min(0.5, 300 * LARGEST_WEIGHT / max(settings[f"n_{arm}"], 1)))
        passed = share <= limit
        text = f"The largest weight is {share:.1%} of the weight of the {arm} arm."
        text += "" if passed else " A single row can then dominate importance and curves."
        yield Check("largest_weight", None, share, limit, passed, text)
    n_rows, clipped = int(settings["n_rows"]), int(overlap["n_clipped"])
    low, high = settings["propensity_clip"]
    passed = clipped <= MOST_CLIPPED * n_rows
    text = f"{clipped} of {n_rows} propensity scores were outside [{low:g}, {high:g}] and were clipped"
    text += "." if passed else ": the arms hardly overlap there, and statements about such rows rest on the model."
    yield Check("clipped_scores", None, clipped / max(n_rows, 1), MOST_CLIPPED, passed, text)


def _support_checks(overlap: Mapping[str, float], even: bool) -> Iterator[Check]:
    if "outside_share_treated" not in overlap:
        return
    for arm, other in (("treated", "control"), ("control", "treated")):
        share = overlap[f"outside_{'overlap_' if even else ''}share_{arm}"]
        passed = share <= MOST_OUTSIDE
        text = f"{share:.0%} of the {'weight' if even else 'rows'} of the {arm} arm {'lies' if even else 'lie'} "
        text += f"where there are hardly any {other} rows to compare with"
        text += "." if passed else ": their effect is extrapolated by the model."
        yield Check("common_support", None, share, MOST_OUTSIDE, passed, text, UNSEEN if even else "")


def _outcome_weight_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether rows with an outcome can represent those without."""
    found = settings.get("outcome_weights")
    if not found:
        return
    n_rows = max(int(settings["n_rows"]), 1)
    share, least = found["effective_rows"] / n_rows, max(LEAST_OBSERVED_SHARE, min(LEAST_OBSERVED_ROWS / n_rows, 0.9))
    passed = share >= least
    text = f"The outcome is missing in {found['share_missing']:.0%} of the rows. After weighting, the others "
    text += f"have an effective sample size of {'' if passed else 'only '}{found['effective_rows']:.0f} ({share:.0%})"
    text += "." if passed else ": a few rows represent many, and effects rest on them."
    yield Check("outcome_weights", None, share, least, passed, text)
    largest, most = found["largest_weight_share"], max(LARGEST_OBSERVED, min(0.5, 300 * LARGEST_OBSERVED / n_rows))
    passed = largest <= most
    text = f"The largest weight for missing outcomes is {largest:.1%} of all weight."
    text += "" if passed else " A single row can then dominate effects."
    yield Check("outcome_weights", None, largest, most, passed, text)


def _score_check(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether scores fit along the features."""
    p_value = overlap.get("misfit_p_value", math.nan)
    if p_value != p_value:
        return
    passed = p_value >= SCORES_MISFIT
    text = f"The share of treated rows agrees with the scores along all features and products (p = {p_value:.2g})."
    if not passed:
        names = settings.get("propensity_misfit")
        where = f"the columns {', '.join(names)} or combinations of them" if names else "some combination of features"
        text = (
            f"The share of treated rows differs from the propensity scores along {where} (p = {p_value:.2g}): "
            "differences between such rows may be mistaken for effects."
        )
    yield Check("scores_fit", None, p_value, SCORES_MISFIT, passed, text)


def _known_checks(overlap: Mapping[str, float], settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether known probabilities of treatment agree with the arms and with the features."""
    if not settings.get("propensity_known") or "share_z" not in overlap:
        return
    share, expected, z = (overlap[name] for name in ("treated_share", "expected_share", "share_z"))
    gap = abs(share - expected)
    passed = not (abs(z) > LARGEST_SHARE_Z and gap > LEAST_SHARE_GAP)
    text = f"{share:.1%} of the rows are treated; the known probability of treatment implies {expected:.1%}"
    text += "." if passed else ": that is more than chance explains, and comparisons of the arms are biased."
    yield Check("known_share", None, gap, LEAST_SHARE_GAP, passed, text)
    r2 = float(settings.get("propensity_r2", 1.0))
    passed = r2 >= LEAST_EXPLAINED
    text = f"The features explain {r2:.0%} of the variation in the known probabilities of treatment (R2)"
    text += "." if passed else ": treatment assignment depended on something that is not among them."
    yield Check("known_scores", None, r2, LEAST_EXPLAINED, passed, text)


def _column_checks(diagnostics: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[Check]:
    """Overlap along every feature, and whether it looks as if it was measured after treatment."""
    if "outside_share" in diagnostics:
        yield from _along_checks(diagnostics, UNSEEN if settings.get("population") == "overlap" else "")
        yield from _arm_difference_checks(diagnostics)
        yield from _outcome_checks(diagnostics, settings.get("outcome_name") or "the outcome")


def _along_checks(diagnostics: pd.DataFrame, unseen: str) -> Iterator[Check]:
    for row in diagnostics.itertuples():
        feature = str(row.Index)
        share = float(row.outside_share)  # type: ignore[arg-type]
        passed = share <= MOST_OUTSIDE_ALONG
        text = f"Both arms have rows along the whole range of {feature}."
        if share > 0:
            text = f"{row.outside_where} have hardly any counterparts in the other arm"
            text += "." if passed else ": their effect is extrapolated by the model."
        yield Check("support_along", feature, share, MOST_OUTSIDE_ALONG, passed, text, unseen)


def _arm_difference_checks(diagnostics: pd.DataFrame) -> Iterator[Check]:
    level = ARM_DIFFERENCE_LEVEL / max(len(diagnostics), 1)
    for row in diagnostics.itertuples():
        difference, p_value = float(row.arm_difference), float(row.arm_p_value)  # type: ignore[arg-type]
        if difference == difference:
            feature, passed = str(row.Index), not (abs(difference) > LARGEST_ARM_DIFFERENCE and p_value < level)
            text = f"The arms differ in {feature} by {abs(difference):.2f} standard deviations (p = {p_value:.2g})"
            text += "." if passed else (
                ". Randomised arms hardly differ before treatment: the column looks as if it was measured afterwards."
            )  # fmt: skip
            yield Check("arms_differ", feature, abs(difference), LARGEST_ARM_DIFFERENCE, passed, text)


def _outcome_checks(diagnostics: pd.DataFrame, outcome: str) -> Iterator[Check]:
    for row in diagnostics.itertuples():
        feature, share = str(row.Index), float(row.outcome_share)  # type: ignore[arg-type]
        passed = share <= MOST_SHARED
        text = f"{feature} and the outcome share {share:.0%} of their order."
        if not passed:
            text = f"{feature} nearly determines the outcome ({share:.0%}), or is determined by it: it looks as if it "
            text += "was measured with the outcome or derived from it."
        yield Check("near_outcome", feature, share, MOST_SHARED, passed, text)
    for row in diagnostics.itertuples():
        if float(row.event_flag):  # type: ignore[arg-type]
            text = f"{row.Index} looks like the event indicator that belongs to the time {outcome}."
            yield Check("event_flag", str(row.Index), 1.0, 0.0, False, text)


def _arm_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    for arm in ("treated", "control"):
        rows = int(settings[f"n_{arm}"])
        passed = rows >= LEAST_ARM
        text = f"The {arm} arm has {rows} rows."
        if not passed:
            text += (
                " Models fitted to so few rows are poor and power is low: a feature that is not selected may still be "
                "a modifier."
            )
        yield Check("arm_size", None, float(rows), float(LEAST_ARM), passed, text)


def _repeated_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Rows that repeat the features of others, where there are any."""
    found = settings.get("repeated_rows")
    if found:
        columns, pairs, expected = (found[name] for name in ("columns", "pairs", "expected"))
        text = f"{found['rows']:,} rows repeat those of others in {shortened(columns)}: {pairs:,} pairs of rows agree, "
        text += f"where chance gives {expected:,}. They seem to be of one person (or place), but count as independent."
        yield Check("repeated_rows", None, float(pairs), float(expected), False, text)


def _control_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether the test is one that controls its error rates, if its models are right."""
    if reasons := uncontrolled(settings):
        text = control_sentence(settings)
        yield Check("control", None, float(len(reasons)), 0.0, False, f"{text[0].upper()}{text[1:]}.")


def _baseline_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    names = settings.get("baseline_outcome")
    if names:
        looks = "look like the outcome" if len(names) > 1 else "looks like the outcome"
        yield Check("baseline_outcome", None, 1.0, 0.0, False, f"{', '.join(names)} {looks} before treatment.")


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
        text += " Such a model is not useful, and power is low."
    elif gain <= 0:
        text += " It found no structure in the features, as is expected where there is none."
    yield Check("outcome_model", None, float(gain), limit, passed, text)


def _resample_check(n_features: int, settings: Mapping[str, Any]) -> Iterator[Check]:
    needed, used = settings.get("n_resamples_needed"), settings.get("n_resamples_used")
    if not needed or not used:
        return
    passed = used >= needed
    text = f"n_resamples={used} can yield a single discovery among {counted(n_features, 'feature')}."
    if not passed:
        text = (
            f"n_resamples={used} cannot yield a single discovery among {counted(n_features, 'feature')} at "
            f"alpha={settings['alpha']:g}; use at least {needed} or 'auto'"
        )
    yield Check("resamples", None, float(used), float(needed), passed, text)


def _testable(feature: str, reason: str | None) -> list[Check]:
    texts = {
        "constant": f"{feature} has one value only and cannot modify anything. Leave it out.",
        "rare": f"{feature} has no two levels with enough rows in each arm, so it was not tested. Leave it out.",
        "determined": (
            f"{feature} is so nearly a function of the other features that the data cannot tell them apart; its "
            "p-value is set to 1."
        ),
        "failed": f"The test of {feature} failed, as a warning says; its p-value is set to 1.",
        "unreached": f"{feature} was not tested: the run was interrupted.",
    }
    return [] if reason is None else [Check(reason, feature, 1.0, 0.0, False, texts[reason])]


def _conditional_checks(row: Any, n_rows: int) -> Iterator[Check]:
    """Whether the conditional distribution of a feature given the rest is right."""
    feature = str(row.Index)
    distance, p_value = getattr(row, "pit_distance", math.nan), getattr(row, "pit_p_value", math.nan)
    if distance == distance:
        passed = not (distance > LARGEST_DISTANCE and p_value < MISFIT_LEVEL)
        text = (
            f"The conditional distribution of {feature} given the rest ({row.sampler}) deviates from held-out rows by "
        )
        text += f"{distance:.3f} (Kolmogorov-Smirnov distance; p = {p_value:.2g})."
        if not passed:
            text += " Its p-value may be too small or too large."
        yield Check("conditional_fit", feature, distance, LARGEST_DISTANCE, passed, text)
    gain = getattr(row, "log_score_gain", math.nan)
    if gain == gain:
        yield _gain_check(row, gain, int(getattr(row, "n_clusters", 0)) or n_rows)
    follows = getattr(row, "conditional_p_value", math.nan)
    if follows == follows:
        passed = follows >= CONDITIONAL_FOLLOWS
        text = f"Residuals of the model of {feature} given the rest follow no other feature (p = {follows:.2g})."
        if not passed:
            text = (
                f"Residuals of the model of {feature} given the rest ({row.sampler}) are still related to other "
                f"features (p = {follows:.2g}): part of what is found for it may be due to them."
            )
        yield Check("conditional_along", feature, follows, CONDITIONAL_FOLLOWS, passed, text)


def _gain_check(row: Any, gain: float, n_rows: int) -> Check:
    limit = LEAST_CONDITIONAL_GAIN - COST_OF_ROWS / n_rows
    passed = gain >= limit
    text = (
        f"The conditional distribution of {row.Index} given the rest ({row.sampler}) predicts held-out rows "
        f"{abs(gain):.3f} nats per row {'better' if gain > 0 else 'worse'} than the feature's marginal distribution."
    )
    if not passed:
        text += " Its p-value may be inaccurate."
    elif gain < 0:
        text += f" With this many rows up to {-limit:.3f} is no concern."
    return Check("conditional_gain", str(row.Index), gain, limit, passed, text)


def _tail_checks(table: pd.DataFrame, diagnostics: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[Check]:
    if "normal_p_value" not in diagnostics:
        return
    p_values = table["p_value"].fillna(1.0).to_numpy(dtype=float)
    normal = diagnostics["normal_p_value"].to_numpy(dtype=float)
    normal = np.where(np.isnan(normal) | table["p_value"].isna(), p_values, normal)
    decided = adjust_p_values(normal, settings["adjust"]) <= settings["alpha"]
    factors = np.exp(np.abs(np.log(np.maximum(p_values, 1e-300)) - np.log(np.maximum(normal, 1e-300))).clip(max=700))
    selected = table["selected"].to_numpy(dtype=bool)
    for k, feature in enumerate(table.index):
        factor = 1.0 if decided[k] == selected[k] else float(factors[k])  # one that decides nothing does not matter
        passed = factor < DECIDING_FACTOR
        text = f"With the saddlepoint tail {feature} has p = {p_values[k]:.2g}, with the normal tail {normal[k]:.2g}."
        if not passed:
            text += " They lead to different decisions."
        yield Check("tail", str(feature), factor, DECIDING_FACTOR, passed, text)


def _resampled_checks(table: pd.DataFrame, diagnostics: pd.DataFrame) -> Iterator[Check]:
    if "check_p_value" not in diagnostics:
        return
    checked = diagnostics[diagnostics["check_p_value"].notna() & table["p_value"].notna()]
    for feature in checked.index:
        p_value = float(checked.loc[feature, "checked_p_value"])
        resampled = float(checked.loc[feature, "check_p_value"])
        drawn, reached = (int(checked.loc[feature, name]) for name in ("n_resamples", "n_exceeding"))
        chance = float(binomtest(reached, drawn, min(p_value, 1.0)).pvalue)
        apart = abs(math.log(resampled / max(p_value, 1e-300))) > math.log(NOTICEABLE_FACTOR)
        limit = DISAGREEMENT_LEVEL / len(checked)
        passed = chance >= limit or not apart
        text = f"P-value of {feature}: {p_value:.2g}; {reached} of {drawn} resamples reached the statistic."
        if not passed:
            text += " They differ by more than chance explains."
        yield Check("resampled_p", str(feature), chance, limit, passed, text)

"""Kinds of checks and the wording of failed ones: cautions per feature, concerns in a sentence, a summary.

A new check is an entry in `KINDS` and a `Check` of that name from a function that `checks.run_checks` calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from modifind._warned import warn
from modifind.data.guards import HORIZON
from modifind.data.words import counted, printable, shortened

OTHER_SAMPLER = "Try another sampler, or transform the column."
UNSEEN = (  # of rows that the propensity model takes for comparable
    "The overlap population still includes them, because the propensity model does not detect that an arm is missing "
    "there. Leave out these rows, or pass a model that detects it (propensity=)."
)
AFTER = "may have been measured after treatment"


@dataclass(frozen=True)
class Kind:
    """One kind of check.

    Attributes
    ----------
    title : str
        What is looked at, as a heading.
    remedy : str
        What to do where it fails; a `Check` can have one of its own.
    caution : str
        A few words beside a feature that fails it.
    about_several : str
        Message about several features that fail, with {features} for their names and {count} for their number.
        Without it, what was found for each is listed.
    validity : bool
        Whether a failure bears on the answer: p-values or effects may then be wrong, and `SelectionResult.ok` is false.
        Otherwise it is a note, which does not affect the validity of what was found.
    """

    title: str
    remedy: str = ""
    caution: str = ""
    about_several: str = ""
    validity: bool = True


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes
    ----------
    name : str
        Kind of check.
    feature : str or None
        The feature it is about; None where it is about the whole table.
    value, threshold : float
        The measured value, and its limit.
    passed : bool
        Whether the value is within the limit.
    text : str
        The finding; where it failed also why it matters.
    remedy : str
        What to do where it failed, if that is not what its kind says.
    """

    name: str
    feature: str | None
    value: float
    threshold: float
    passed: bool
    text: str
    remedy: str = ""


def check(
    name: str,
    value: float,
    threshold: float,
    passed: bool,
    text: str,
    failing: str,
    *,
    passing: str = ".",
    feature: str | None = None,
    remedy: str = "",
) -> Check:
    """Make a check; its text ends with `passing` or `failing`."""
    text += passing if passed else failing
    return Check(name, feature, float(value), float(threshold), bool(passed), text, remedy)


KINDS = {
    # The arms.
    "common_support": Kind(
        "rows that have a counterpart in the other arm",
        "Leave out rows that could only have been in one arm, leave out a column that only says which arm a row is in, "
        "or estimate effects where the arms overlap: population='overlap' (--population overlap).",
    ),
    "support_along": Kind(
        "counterparts along each feature",
        "Leave out these rows, leave the column out if it only says which arm a row is in, or estimate effects where "
        "the arms overlap: population='overlap' (--population overlap).",
        "part of its range has one arm only",
    ),
    "effective_rows": Kind(
        "effective sample size",
        "Estimate effects where the arms overlap, population='overlap' (--population overlap), or leave out rows that "
        "could only have been in one arm, or features that determine the treatment but are unrelated to the outcome.",
    ),
    "largest_weight": Kind(
        "largest weight",
        "Look at the rows with the largest weights, estimate effects where the arms overlap, population='overlap', or "
        "clip the scores more narrowly (PropensityModel(clip=...)).",
    ),
    "outcome_weights": Kind(
        "weights for missing outcomes",
        "Look at which rows have no outcome: leave out groups in which it is almost always missing; "
        "missing_outcome='drop' (--missing-outcome drop) restricts the analysis to rows that have one.",
    ),
    "clipped_scores": Kind(
        "clipped propensity scores",
        "Leave out such rows, or estimate effects where the arms overlap: population='overlap' (--population overlap).",
    ),
    "known_share": Kind(
        "known probability of treatment against the arms",
        "Check how treatment was assigned: is this the probability of the other arm, or does it differ between rows? "
        "Otherwise leave it out, and it is estimated.",
    ),
    "known_scores": Kind(
        "known probabilities of treatment against the features",
        "Include the variables that determined treatment assignment among the features.",
    ),
    # Columns that may be no features at all.
    "arms_differ": Kind(
        "columns in which randomised arms differ",
        "Leave out columns measured after treatment. If it was measured before, check how treatment was assigned.",
        AFTER,
    ),
    "conditional_along": Kind(
        "residuals of the models of the features",
        "The feature may stand in for others that the models fit poorly: test it together with them (a feature group), "
        "or try another sampler.",
        "may stand in for other features",
    ),
    "scores_fit": Kind(
        "fit of the propensity scores",
        "Pass a model that follows these columns together (propensity=), add their product as a column, or pass the "
        "true probabilities of treatment if they are known.",
    ),
    "near_outcome": Kind(
        "columns that nearly equal the outcome",
        "Leave out columns measured with the outcome or derived from it. If it is the outcome measured before "
        "treatment, analyse the change since then.",
        AFTER,
    ),
    "outcome_parts": Kind(
        "columns that together give the outcome", "Leave out those that were measured after the treatment."
    ),
    "outcome_given": Kind(
        "outcomes that the features all but determine",
        "Leave out columns that were measured with the outcome or computed from it.",
    ),
    "constant_arm": Kind(
        "outcomes that are constant in an arm",
        "Check whether the outcome was measured in both arms, or is a dose or a duration of the treatment.",
    ),
    "event_flag": Kind(
        "event indicators beside their time",
        f"Right-censored times are not supported, with this column or without it. {HORIZON}.",
        "may flag the event of a censored time",
    ),
    "baseline_outcome": Kind(
        "baseline values of the outcome",
        "Keep it in the table: adjusting for it makes the comparison of the arms more precise. With adjust_for it is "
        "adjusted for without being tested.",
        validity=False,
    ),
    # The rows.
    "repeated_rows": Kind(
        "rows that repeat the features of others",
        "Pass a label of each person as clusters=, or keep one row of each. If one of these columns is derived from "
        "another, leave it out.",
    ),
    # The test.
    "control": Kind(
        "control of error rates",
        "Use these settings for reproduction and comparison only. For results, use the defaults, or statistic='wcmmd' "
        "with its defaults, and a sampler other than 'marginal'.",
    ),
    "conditional_fit": Kind(
        "conditional distribution of the feature",
        OTHER_SAMPLER,
        "its conditional distribution fits poorly",
        "{count} ({features}): the estimated conditional distribution given the other features does not fit held-out "
        "rows, so p-values may be too small or too large.",
    ),
    "conditional_gain": Kind(
        "conditional distribution of the feature against its marginal one",
        OTHER_SAMPLER,
        "its conditional distribution predicts worse than its marginal one",
        "{count} ({features}): the estimated conditional distribution given the other features predicts held-out rows "
        "worse than the feature's marginal distribution does, so p-values may be inaccurate.",
    ),
    "tail": Kind(
        "tail of the null distribution",
        "Check the p-value by resampling: EffectLikelihood(check_resamples=10000), or --check 10000.",
        "the decision depends on the tail approximation",
        "{count} ({features}): the normal and the saddlepoint approximation of the tail lead to different decisions.",
    ),
    "resampled_p": Kind(
        "agreement with resampling",
        "Rely on the larger of the two, or on statistic='wcmmd'.",
        "resampled p-value disagrees",
        "{count} ({features}): the p-value and its resampled counterpart differ by more than chance explains.",
    ),
    "failed": Kind(
        "tests that failed",
        caution="its test failed",
        about_several="{features}: not tested, because the test failed; p-values set to 1",
    ),
    "unreached": Kind(
        "features that were not reached",
        "With a checkpoint the same call continues.",
        "not tested",
        "{count} not tested: the run was interrupted. {features}",
    ),
    # Notes.
    "arm_size": Kind("size of the arms", validity=False),
    "outcome_model": Kind(
        "model of the outcome against none",
        "Try learner='linear', the logarithm of the outcome, or look for outliers.",
        validity=False,
    ),
    "few_events": Kind(
        "rows with an event", "Choose an outcome that more rows have, or a longer follow-up.", validity=False
    ),
    "resamples": Kind("number of resamples", validity=False),
    "constant": Kind(
        "constant features",
        caution="constant",
        about_several="constant columns cannot modify anything: {features}",
        validity=False,
    ),
    "rare": Kind(
        "features of rare levels only",
        caution="its levels are too rare",
        about_several="no two levels have enough rows in each arm, so not tested: {features}",
        validity=False,
    ),
    "determined": Kind(
        "features that others determine",
        "Leave out one of the redundant columns.",
        "determined by other features",
        "{features}: almost determined by the other features, so that the data cannot tell them apart; p-values set "
        "to 1.",
        validity=False,
    ),
}


def uncontrolled(settings: Mapping[str, Any]) -> list[str]:
    """Settings of a result that give up error control, in words; empty if errors are controlled.

    Examples
    --------
    >>> uncontrolled({"sampler": {"class": "MarginalSampler"}, "statistic": {"class": "EffectLikelihood"}})
    ["each feature is resampled from all of its values, whatever the other features are (sampler='marginal')"]
    >>> uncontrolled({"sampler": {"class": "AutoSampler"}})
    []
    """
    statistic, sampler, test = (_part(settings, name) for name in ("statistic", "sampler", "test"))
    reasons = {
        "each feature is resampled from all of its values, whatever the other features are (sampler='marginal')": (
            sampler.get("class") == "MarginalSampler"
        ),
        "weights do not follow the resampled feature (resample_weights='fixed')": (
            statistic.get("resample_weights") == "fixed"
        ),
        "p-values are counts of resamples without the observed one, which can be zero (p_value='count')": (
            bool(settings.get("n_resamples_used")) and test.get("p_value") == "count"
        ),
    }
    return [reason for reason, holds in reasons.items() if holds]


def control_sentence(settings: Mapping[str, Any]) -> str:
    """Clause that says why error rates are not controlled; empty if they are."""
    reasons = uncontrolled(settings)
    return f"error rates are not controlled, because {'; '.join(reasons)}" if reasons else ""


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    entry = settings.get(name)
    return entry if isinstance(entry, Mapping) else {}


MAX_NAMES = 12


def cautions(checks: pd.DataFrame, features: Sequence[str]) -> list[str]:
    """Failed checks of each feature in a few words; empty if all passed."""
    phrases: dict[str, list[str]] = {str(feature): [] for feature in features}
    failed = checks[~checks["passed"] & checks["feature"].isin(list(phrases))]  # others are columns adjusted for
    for name, feature in zip(failed["name"], failed["feature"], strict=True):
        phrases[feature].append(KINDS[name].caution)
    return ["; ".join(dict.fromkeys(phrases[str(feature)])) for feature in features]


def concerns(checks: pd.DataFrame, named: frozenset[str] = frozenset(), *, validity: bool | None = None) -> list[str]:
    """A short text for every kind of failed check that names the features, validity first.

    Features in `named` are left out of checks that call them untestable, because an earlier warning named them. With
    `validity` only cautions (True) or only notes (False) are returned.

    Examples
    --------
    >>> from modifind.result.concerns import Check
    >>> from modifind.result.checks import as_frame
    >>> found = [Check("constant", name, 1.0, 1.0, False, "") for name in ("site", "batch")]
    >>> concerns(as_frame(found))
    ['constant columns cannot modify anything: site, batch']
    >>> concerns(as_frame(found), validity=True)
    []
    """
    untestable = checks["name"].isin(["constant", "rare", "determined"]) & checks["feature"].isin(list(named))
    failed = checks[~checks["passed"] & ~untestable]
    wanted = (True, False) if validity is None else (validity,)
    return [
        printable(_concern(str(name), rows))
        for bears in wanted
        for name, rows in failed[failed["validity"] == bears].groupby("name", sort=False)
    ]


def summary(checks: pd.DataFrame) -> str:
    """Sentence that counts the kinds of checks that bear on validity, the failed ones, and the notes.

    Examples
    --------
    >>> from modifind.result.concerns import Check
    >>> from modifind.result.checks import as_frame
    >>> found = [Check("conditional_fit", "age", 0.1, 0.05, False, ""), Check("constant", "site", 1.0, 0.0, False, "")]
    >>> summary(as_frame(found))
    '1 of 1 check needs attention; 1 note'
    >>> summary(as_frame([Check("common_support", None, 0.1, 0.2, True, "")]))
    'The check passed'
    """
    bearing = checks[checks["validity"]]
    failed = bearing.loc[~bearing["passed"], "name"].nunique()
    notes = checks.loc[~checks["passed"] & ~checks["validity"], "name"].nunique()
    total = bearing["name"].nunique()
    passed = f"All {total} checks passed" if total > 1 else "The check passed"
    shown = f"{failed} of {counted(total, 'check')} need{'s' if failed == 1 else ''} attention" if failed else passed
    return shown + (f"; {counted(notes, 'note')}" if notes else "")


def warn_of(checks: pd.DataFrame, named: frozenset[str] = frozenset()) -> None:
    """Issue one warning for every kind of failed check; see `concerns`."""
    for message in concerns(checks, named):
        warn(message)


def _concern(name: str, rows: pd.DataFrame) -> str:
    kind, remedy = KINDS[name], str(rows["remedy"].iloc[0])
    if rows["feature"].isna().all() or not kind.about_several:
        texts = list(rows["text"])
        more = f"And {len(texts) - MAX_NAMES} more." if len(texts) > MAX_NAMES else ""
        return " ".join(filter(None, [*texts[:MAX_NAMES], more, remedy]))
    names = [str(feature) for feature in rows["feature"]]
    count, listed = counted(len(names), "feature"), shortened(names, MAX_NAMES)
    return f"{kind.about_several.format(count=count, features=listed)} {remedy}".rstrip()

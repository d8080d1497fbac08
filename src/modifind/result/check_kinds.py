"""Kinds of checks: what each is called, whether it decides if the answer can be relied on, and what to do about it.

A new check is an entry here and a `Check` of that name from a function that `checks.run_checks` calls.
"""

from __future__ import annotations

from dataclasses import dataclass

OTHER_SAMPLER = "Try another sampler, or transform the column."
UNSEEN = (  # of rows that the estimated chance to be treated takes for comparable
    "The overlap population leaves them in, because the model of the chance to be treated does not see that an arm is "
    "missing there. Leave out these rows, or pass a model that sees it (propensity=)."
)
AFTER = "may be measured after the treatment"


@dataclass(frozen=True)
class Kind:
    """One kind of check.

    Attributes
    ----------
    title : str
        What is looked at, as a heading.
    validity : bool
        Whether a failure bears on the answer: p-values or effects may then be wrong, and `SelectionResult.ok` is false.
        Otherwise it is a note: something to know that takes nothing away from what was found.
    remedy : str
        What to do where it fails; a `Check` can have one of its own.
    caution : str
        A few words beside a feature that fails it.
    told : str
        What a failure of several features comes to, with {features} for their names and {count} for their number.
        Without it what was found of each is told.
    """

    title: str
    validity: bool
    remedy: str = ""
    caution: str = ""
    told: str = ""


KINDS = {
    # The arms.
    "common_support": Kind(
        "rows that have a counterpart in the other arm",
        True,
        "Leave out rows that could only have been in one arm, leave out a column that only says which arm a row is in, "
        "or ask for effects where both arms are: population='overlap' (--population overlap).",
    ),
    "support_along": Kind(
        "counterparts along each feature",
        True,
        "Leave out these rows, leave the column out if it only says which arm a row is in, or ask for effects where "
        "both arms are: population='overlap' (--population overlap).",
        "part of its range has one arm only",
    ),
    "effective_rows": Kind(
        "rows left after weighting",
        True,
        "Ask for effects where both arms are, population='overlap' (--population overlap), or leave out rows that "
        "could only have been in one arm, or features that decide the treatment without being related to the outcome.",
    ),
    "largest_weight": Kind(
        "largest weight",
        True,
        "Look at the rows with the largest weights, ask for effects where both arms are, population='overlap', or "
        "narrow the clipping of the scores (PropensityModel(clip=...)).",
    ),
    "outcome_weights": Kind(
        "weights for missing outcomes",
        True,
        "Look at which rows have no outcome: kinds of rows that hardly ever have one should be left out, and "
        "missing_outcome='drop' (--missing-outcome drop) asks about the rows that have one.",
    ),
    "clipped_scores": Kind(
        "clipped propensity scores",
        True,
        "Leave out such rows, or ask for effects where both arms are: population='overlap' (--population overlap).",
    ),
    "known_share": Kind(
        "known chance to be treated against the arms",
        True,
        "Look up how the treatment was given; was the chance that of the other arm, or another in some of the rows? "
        "Otherwise leave it out, and the chance is estimated.",
    ),
    "known_scores": Kind(
        "known chances to be treated against the features",
        True,
        "Include what the treatment was assigned by among the features.",
    ),
    # Columns that may be no features at all.
    "arms_differ": Kind(
        "columns in which randomised arms differ",
        True,
        "Leave out what was measured after the treatment. If it was measured before, look up how the treatment was "
        "given.",
        AFTER,
    ),
    "conditional_along": Kind(
        "distributions of features where effects are told by them",
        True,
        "The feature may stand in for others that the models do not follow: look at it together with them (a feature "
        "group), or try another sampler.",
        "may stand in for other features",
    ),
    "scores_fit": Kind(
        "fit of the scores",
        True,
        "Pass a model that sees more (propensity=), or the chances by which the treatment was given, if these are "
        "known.",
    ),
    "near_outcome": Kind(
        "columns that nearly are the outcome",
        True,
        "Leave out what was measured with the outcome or made from it. If it is the outcome measured before the "
        "treatment, analyse the change since then.",
        AFTER,
    ),
    "event_flag": Kind(
        "flags of an event beside its time",
        True,
        "Leave it out: whether the event was seen is known only afterwards.",
        AFTER,
    ),
    "baseline_outcome": Kind(
        "baseline values of the outcome",
        False,
        "Keep it in the table: the comparison of the arms is adjusted for it, and sharper for that. With adjust_for "
        "it is adjusted for without being tested.",
    ),
    # The test.
    "conditional_fit": Kind(
        "distribution of the feature",
        True,
        OTHER_SAMPLER,
        "distribution of the feature fits badly",
        "{count} ({features}): the estimated distribution of the feature given the rest does not fit held-out rows, so "
        "that p-values may be too small or too large.",
    ),
    "conditional_gain": Kind(
        "distribution of the feature against none",
        True,
        OTHER_SAMPLER,
        "distribution of the feature predicts worse than none",
        "{count} ({features}): the estimated distribution of the feature given the rest predicts held-out rows worse "
        "than the feature's own distribution does, so that p-values may be off.",
    ),
    "tail": Kind(
        "tail of the null distribution",
        True,
        "Check the p-value by resampling: EffectLikelihood(check_resamples=10000), or --check 10000.",
        "the tail approximation decides",
        "{count} ({features}): the normal and the saddlepoint approximation of the tail decide differently.",
    ),
    "resampled_p": Kind(
        "agreement with resampling",
        True,
        "Rely on the larger of the two, or on statistic='wcmmd'.",
        "resampled p-value disagrees",
        "{count} ({features}): the p-value and the one by resampling differ by more than chance explains.",
    ),
    "failed": Kind(
        "tests that failed",
        True,
        "",
        "its test failed",
        "{features}: not tested, because the test failed; p-values set to 1",
    ),
    "unreached": Kind(
        "features that were not reached",
        True,
        "With a checkpoint the same call continues.",
        "not tested",
        "{count} not tested: the run was interrupted. {features}",
    ),
    # Notes.
    "arm_size": Kind("size of the arms", False),
    "outcome_model": Kind(
        "model of the outcome against none",
        False,
        "Try learner='linear', the logarithm of the outcome, or look for outliers.",
    ),
    "resamples": Kind("number of resamples", False),
    "constant": Kind("constant features", False, "", "constant", "constant columns cannot modify anything: {features}"),
    "rare": Kind(
        "features of rare levels only",
        False,
        "",
        "its levels are too rare",
        "no two levels have enough rows in each arm, so not tested: {features}",
    ),
    "determined": Kind(
        "features that others determine",
        False,
        "Leave out one of the columns that say the same.",
        "determined by other features",
        "{features}: so nearly a function of the other features that the data cannot tell them apart; p-values set "
        "to 1.",
    ),
}

"""The methods of a result as a paragraph for a paper, with what to cite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modifind.data.wording import counted
from modifind.report.design import design_methods
from modifind.result.effect_names import effect_name, scale_of
from modifind.result.explained import MIN_SUPPORT, N_DRAWS
from modifind.result.selection_result import PARTS, SelectionResult
from modifind.result.uncontrolled import control_sentence

PAPER = (
    "Chikahara Y, Yamada M, Kashima H. Feature selection for discovering distributional treatment effect modifiers. "
    "Proceedings of the 38th Conference on Uncertainty in Artificial Intelligence (UAI), 2022."
)
CRT = (
    "Candès E, Fan Y, Janson L, Lv J. Panning for gold: model-X knockoffs for high dimensional controlled variable "
    "selection. Journal of the Royal Statistical Society B 80, 551-577, 2018."
)
SADDLEPOINT = (
    "Lugannani R, Rice S. Saddle point approximation for the distribution of the sum of independent random variables. "
    "Advances in Applied Probability 12, 475-490, 1980."
)
CAUCHY = (
    "Liu Y, Xie J. Cauchy combination test: a powerful test with analytic p-value calculation under arbitrary "
    "dependency structures. Journal of the American Statistical Association 115, 393-402, 2020."
)
DOUBLY_ROBUST = (
    "Kennedy EH. Towards optimal doubly robust estimation of heterogeneous causal effects. "
    "Electronic Journal of Statistics 17, 3008-3049, 2023."
)
OVERLAP_WEIGHTS = (
    "Li F, Morgan KL, Zaslavsky AM. Balancing covariates via propensity score weighting. "
    "Journal of the American Statistical Association 113, 390-400, 2018."
)
KERNEL = (
    "Martinez-Taboada D, Ramdas A, Kennedy EH. An efficient doubly-robust test for the kernel treatment effect. "
    "Advances in Neural Information Processing Systems 36, 2023."
)
MAKAROV = (
    "Fan Y, Park SS. Sharp bounds on the distribution of treatment effects and their statistical inference. "
    "Econometric Theory 26, 931-951, 2010."
)
SIEM = (
    "Zhao Q, Small DS, Ertefaie A. Selective inference for effect modification via the lasso. "
    "Journal of the Royal Statistical Society B 84, 382-413, 2022."
)
LEE = (
    "Lee JD, Sun DL, Sun Y, Taylor JE. Exact post-selection inference, with application to the lasso. "
    "Annals of Statistics 44, 907-927, 2016."
)
SIMES = "Simes RJ. An improved Bonferroni procedure for multiple tests of significance. Biometrika 73, 751-754, 1986."
SELECTIVE = (
    "Benjamini Y, Bogomolov M. Selective inference on multiple families of hypotheses. "
    "Journal of the Royal Statistical Society B 76, 297-318, 2014."
)
SHAPED = "student-t"  # the likelihood beside which the shape of residuals is looked at
SHAPE = (
    "a component without a learned direction: sums over rows of the same scores at the null contrast, and of scores of "
    "standardised residuals for tails, skewness and modes"
)
DIRECT = "a component without a learned direction: sums over rows of the same scores at the null contrast"
ADJUSTMENTS = {
    "bh": (
        "Benjamini Y, Hochberg Y. Controlling the false discovery rate: a practical and powerful approach to multiple "
        "testing. Journal of the Royal Statistical Society B 57, 289-300, 1995."
    ),
    "by": (
        "Benjamini Y, Yekutieli D. The control of the false discovery rate in multiple testing under dependency. "
        "Annals of Statistics 29, 1165-1188, 2001."
    ),
    "holm": (
        "Holm S. A simple sequentially rejective multiple test procedure. "
        "Scandinavian Journal of Statistics 6, 65-70, 1979."
    ),
}


def methods(result: SelectionResult) -> str:
    """A paragraph for a paper."""
    s = result.settings
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    if s.get("method") == "si_em":
        test = _selective_methods(s)
    else:
        test = _analytic_methods(s) if s.get("model") else _resampling_methods(s)
    adjusted, doubt = s["adjust"] != "none", control_sentence(s)
    adjustment = f"adjusted over features ({s['adjust'].upper()})" if adjusted else "not adjusted over features"
    sample = ""
    if s.get("n_train_rows"):
        sample = (
            f" Models were fitted to a random sample of {s['n_train_rows']} rows, and every row was scored by models "
            "of the outcome and the treatment that had not seen it."
        )
    gaps = _missing_methods(s) + _row_methods(s)
    scale = " The outcome was analysed on the log scale." if s.get("outcome_transform") == "log" else _scale_methods(s)
    sentences = (
        *_several_methods(result),
        f"For each feature we tested the null hypothesis that {s['null_hypothesis']}, {test}{scale}{gaps}{sample}",
        *filter(None, [design_methods(s)]),
        f"Propensity scores: {s['propensity_model']}.",
        f"P-values were {adjustment}, and features with {'an adjusted' if adjusted else 'a'} p-value of",
        f"at most {s['alpha']:g} were selected{f'; {doubt}' if doubt else ''}.",
        f"Data: {s['n_rows']} rows, {s['n_treated']} treated",
        f"({s['treated_label']}) and {s['n_control']} control ({s['control_label']}).{_explained_methods(result)}",
        f"Seed {s['seed']}.",
        f"Software: {versions}.",
    )
    return " ".join(sentences)


def _several_methods(result: SelectionResult) -> list[str]:
    """How several arms were compared; nothing with two."""
    if not result.by_arm:
        return []
    s = result.settings
    within = "tested by the Benjamini-Hochberg method at level alpha R / m within each of R selected features of m"
    if s["adjust"] in ("holm", "bonferroni"):
        within = "tested by Hochberg's method at level alpha / m within each of m features"
    return [
        f"{' and '.join(result.by_arm)} were each compared with {s['control_label']} on the rows of these two arms.",
        "The p-values of the contrasts of a feature were combined by Simes' test; to say which contrasts a feature",
        f"modifies, these were {within} (Benjamini and Bogomolov, 2014).",
    ]


def references(result: SelectionResult) -> list[str]:
    """What the methods paragraph rests on: only what was used."""
    s, bands, model = result.settings, _has_bands(result), result.settings.get("model")
    used = {
        **dict.fromkeys([SIEM, LEE] if s.get("method") == "si_em" else [PAPER, CRT], True),
        SADDLEPOINT: model,
        CAUCHY: model,
        ADJUSTMENTS.get(s["adjust"], ""): s["adjust"] in ADJUSTMENTS,
        DOUBLY_ROBUST: bands and (model or len(result.changes)),
        **dict.fromkeys([SIMES, SELECTIVE], bool(result.by_arm)),
        OVERLAP_WEIGHTS: bands and s.get("population") == "overlap",
        KERNEL: "distribution" in result.tests.index,
        MAKAROV: result.bounds,
    }
    return [reference for reference, cited in used.items() if cited]


def _explained_methods(result: SelectionResult) -> str:
    """How curves, parts of the change and bounds were made, as far as the result has them."""
    said, shown = "", next(iter(result.by_arm.values())) if result.by_arm else result
    if _has_bands(shown):
        modelled = result.settings.get("model") or len(shown.changes)
        scores = "doubly robust scores of the cross-fitted models" if modelled else "inversely weighted outcomes"
        said += (
            f" Effects along the values of a feature are locally linear averages (by level for categories) of {scores},"
            f" with pointwise 95% bands from a weighted bootstrap over rows ({N_DRAWS} draws); values with an "
            f"effective sample size below {MIN_SUPPORT:g} in an arm were not interpreted."
        )
        if result.settings.get("population") == "overlap":
            said += (
                " Averages and effects along features are for the overlap population: each row is weighted by "
                "e(1 - e), where e is its propensity score, so that rows that could hardly have been in the other arm "
                "contribute little (overlap weights)."
            )
    if "mean" in shown.tests.index:
        between = "clusters" if result.settings.get("clusters") else "rows"
        said += (
            " The average effect is the mean of doubly robust scores of the cross-fitted models, with the variance "
            f"between {between}; whether the distribution of the outcome changes was tested by the squared length of "
            "the mean scores of two Gaussian kernels' feature maps and of the outcome (a kernel Fisher discriminant), "
            "and whether anything modifies the effect by a score test along all features, combined with the features' "
            "tests. Effects in subgroups are means of the same scores."
        )
    if len(shown.changes):
        said += _changes_methods(shown)
    if result.placebo is not None:
        said += (
            f" The analysis was repeated with {counted(result.placebo.n_runs, 'placebo treatment')} "
            f"({result.placebo.drawn}): {result.placebo.n_found} of them found something."
        )
    if shown.bounds:
        said += (
            " The share of individuals whose outcome is higher under treatment and the variation of the effect "
            "between individuals, which no data identify, were bounded sharply from the outcome distributions of both "
            "arms near each value, with 95% bootstrap limits."
        )
    return said


def _changes_methods(result: SelectionResult) -> str:
    """Which parts of the change were tested by themselves."""
    tested = [part for part in PARTS if result.changes[f"{part}_p"].notna().any()]
    if len(tested) < 2:
        return ""
    if scale_of(result.settings)[0] == "amount":
        return " Each part was also tested separately, adjusted in the same way."
    return (
        " Whether a feature changes the average effect, the ratio of the arms' spreads or their difference in tails "
        "and skewness was tested by three tests of the same kind, adjusted in the same way."
    )


def _scale_methods(s: Mapping[str, Any]) -> str:
    """The scale on which the arms were compared, where it is no difference of averages."""
    kind, scale = scale_of(s)
    if kind == "amount":
        return (
            " The outcome was analysed in two parts, whether it is above zero (compared by "
            f"{effect_name('binary', scale)}s) and its amount where it is (by ratios); one p-value combines both."
        )
    name = effect_name(kind, scale)
    plural = "ratios of means" if name == "ratio of means" else f"{name}s"
    said = "" if scale == "difference" else f" The arms were compared by {plural}; constant ones are no modification."
    return said + (" The outcome was treated as a count." if kind == "count" else "")


def _has_bands(result: SelectionResult) -> bool:
    results = (result.by_arm or {"": result}).values()
    return any("mean_effect_low" in curve for contrast in results for curve in contrast.curves.values())


def _missing_methods(s: Mapping[str, Any]) -> str:
    if s.get("n_rows_dropped"):
        rows = counted(s["n_rows_dropped"], "row with a missing value was", "rows with missing values were")
        return f" {rows} left out."
    if s.get("missing") == "category":
        return (
            " Missing values were treated as a separate category, whose distribution was modelled with that of the "
            "values."
        )
    return ""


def _row_methods(s: Mapping[str, Any]) -> str:
    """Columns adjusted for, weights, clusters of rows and groups of columns."""
    said = ""
    if s.get("adjust_for"):
        columns = ", ".join(map(str, s["adjust_for"]))
        parts = (
            "Models and propensity scores"
            if s.get("method") == "si_em"
            else "Models, propensity scores and conditional distributions"
        )
        said += f" {parts} also conditioned on columns that were not tested: {columns}."
    if s.get("outcome_weights"):
        weights = s["outcome_weights"]
        said += (
            f" The outcome was missing in {weights['n_missing']} rows ({weights['share_missing']:.0%}); rows that have "
            "one were weighted by the inverse probability of having one given features and arm (cross-fitted, at most "
            f"20){', times sample weights' if weights['times_sample_weight'] else ''}, with an effective "
            f"sample size of {weights['effective_rows']:.0f}."
        )
    if s.get("sample_weight"):
        said += (
            f" Rows were weighted by sample weights (effective sample size {s['sample_weight']['effective_rows']:.0f})."
        )
    if s.get("clusters"):
        said += f" Rows of a cluster ({s['clusters']['n_clusters']} clusters) were kept in the same fold, and variances"
        said += " between clusters were used where these were larger."
    for name, columns in (s.get("feature_groups") or {}).items():
        said += f" {name} stands for {', '.join(map(str, columns))}, tested as one feature."
    return said


def _resampling_methods(s: Mapping[str, Any]) -> str:
    statistic = s["statistic"]
    resamples = (
        f"by a conditional randomisation test with up to {s['n_resamples_used']} resamples of the feature "
        f"({s['sampler']['class']})"
    )
    if statistic["class"] != "WCMMD":
        settings = ", ".join(f"{name} = {value}" for name, value in statistic.items() if name != "class")
        return f"{resamples} and the statistic {statistic['class']}{f' ({settings})' if settings else ''}."
    weights = statistic["weighting"].replace("_", "-")
    return (
        f"{resamples} and the variance of the weighted conditional maximum mean discrepancy as statistic "
        f"({statistic['estimator']} estimator, {weights} weights; Chikahara, Yamada and Kashima, UAI 2022), with "
        f"weights {statistic['resample_weights']} on resampled data and {_cap(statistic)}."
    )


def _analytic_methods(s: Mapping[str, Any]) -> str:
    model, repeats = s["model"], s["statistic"]["cv_repeats"]
    again = "" if repeats == 1 else f", repeated {repeats} times"
    component = SHAPE if model["likelihood"] == SHAPED else DIRECT
    direct = (
        " This p-value was combined (weighted Cauchy combination; its weight is 0.3, for categories 0.15) with those "
        f"of {component}, weighted by treatment less propensity score, times functions of the feature (line, ramps, "
        "square; levels together) less their means under its conditional distribution, with the rows' own variance."
    )
    return (
        f"by the effect-likelihood test: held-out {model['likelihood']} scores of the contrasts between the arms, from "
        f"a {model['n_folds']}-fold cross-fitted model of the outcome in both arms{again} (learners and their mean "
        f"weights: {model['stack']}), with what the arms have in common held fixed, were summed over rows, each "
        "weighted by treatment less propensity score, and compared with their distribution when the feature is drawn "
        f"from its conditional distribution given the rest ({s['sampler']['class']}), by a saddlepoint approximation "
        f"with the rows' own variance where it is larger.{direct}"
    )


def _selective_methods(s: Mapping[str, Any]) -> str:
    sides = "two-sided" if s["sided"] == "two" else "one-sided in the direction of the estimate"
    penalty = "" if s["penalty"] is None else f" of {s['penalty']:.4g}"
    return (
        f"by SI-EM (Zhao, Small and Ertefaie, JRSS B 2022): the residuals of the outcome ({s['outcome_learner']}) were "
        "regressed on the residuals of the treatment times the standardised features by a lasso with penalty"
        f"{penalty}, {s['penalty_factor']:g} times what noise would reach on average; it selected {s['n_active']} of "
        f"{counted(s['n_columns'], 'column')}, whose p-values ({sides}) are conditional on the selected columns and "
        "their signs (Lee, Sun, Sun and Taylor, Annals of Statistics 2016)."
    )


def _cap(statistic: Mapping[str, Any]) -> str:
    cap, quantile = statistic["weight_cap"], statistic["weight_quantile"]
    limits = [f"{cap:g}"] if cap is not None else []
    limits += [f"the {quantile:g} quantile of their arm"] if quantile is not None else []
    return f"capped at {' and at '.join(limits)} in the test" if limits else "not capped"

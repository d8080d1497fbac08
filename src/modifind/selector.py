"""`ModifierSelector`: puts propensity, sampler, statistic and test together."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from threadpoolctl import threadpool_limits

from modifind.base import (
    UNRECORDED,
    BaseModifierSelector,
    check_shared_settings,
    data_settings,
    distinct_messages,
    entropy_of,
    hand_on,
    installed_versions,
    readable,
    warn_constant,
    with_messages,
)
from modifind.explain.marginal import MarginalView, marginal_view
from modifind.features import (
    FeatureTable,
    monotone_copies,
    read_features,
    read_outcome,
    read_treatment,
    transform_outcome,
)
from modifind.kernels import Array
from modifind.progress import Progress, ProgressBar
from modifind.propensity import FittedPropensity, arm_folds, resolve_propensity
from modifind.result import SelectionResult
from modifind.samplers import BaseSampler, Calibration, resolve_sampler
from modifind.statistics import WCMMD, EffectLikelihood
from modifind.statistics.wcmmd import PreparedWCMMD
from modifind.testers import AnalyticTester, Outcome, ResamplingTester, Tester
from modifind.testing import ConditionalRandomizationTest, adjust_p_values

NULL_HYPOTHESIS = "the outcome is independent of the feature given the other features"
# Held-out share of a feature's law that the others explain, above which the data cannot tell it from them. What little
# is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
MOST_TASKS = 100
NO_LAW = Calibration("none", float("nan"), float("nan"), float("nan"))
Statistic: TypeAlias = WCMMD | EffectLikelihood
_STATISTICS: dict[str, type[Statistic]] = {"effect_likelihood": EffectLikelihood, "wcmmd": WCMMD}


class ModifierSelector(BaseModifierSelector):
    """Select the features that modify the distribution of a treatment's effect.

    For each feature the null hypothesis is that the outcome is independent of it given the other features and the
    treatment. A feature that merely correlates with a modifier is null. The default statistic is also blind to
    features that shift both arms alike. P-values are adjusted over features.

    Parameters
    ----------
    statistic : {"effect_likelihood", "wcmmd"}, EffectLikelihood or WCMMD, default="effect_likelihood"
        What is compared between the data and what the null hypothesis would give. "effect_likelihood" asks whether a
        model that has learned all features predicts held-out outcomes better with this one; its p-values need no
        resampling. "wcmmd" is the paper's statistic, with a conditional randomisation test.
    sampler : {"auto", "gaussian", "boosting", "cvae", "marginal"} or sampler, default="auto"
        How a feature is resampled given the rest. "auto" picks gaussian or boosting per feature by held-out log-score.
    propensity : "auto", "mlp", float, array, classifier or PropensityModel, default="auto"
        P(treated | features). A number for randomised trials; an array for known scores per row.
    alpha : float, default=0.05
        Level at which adjusted p-values select.
    adjust : {"bh", "by", "holm", "bonferroni", "none"}, default="bh"
        Adjustment over features.
    n_resamples : int or "auto", default="auto"
        Most resamples per feature of "wcmmd"; "auto" takes enough for a single discovery to be possible.
    discrete_features : "auto" or list, default="auto"
        Names, positions or a mask of numeric columns to be taken as categories.
    cv : int, default=5
        Folds of cross-fitting.
    n_jobs : int, optional
        Processes; features are spread over them. The result is the same for every value.
    progress : bool or callable, default=False
        Show a progress bar on stderr, or call ``progress(done, total)``.
    random_state : int, Generator or None, default=None
        One seed for everything. None draws one, which the result records.
    test : ConditionalRandomizationTest, optional
        How resampled statistics of "wcmmd" become p-values.
    outcome_transform : {None, "log"}, default=None
        Scale on which effects are measured. On the logarithm of a positive outcome effects are ratios, and a feature
        that multiplies both arms alike modifies nothing.

    Attributes
    ----------
    result_ : SelectionResult
        Table, curves, diagnostics and settings.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : array of str
        Their names.

    See Also
    --------
    modifind.presets.uai2022 : the paper's configuration.

    Examples
    --------
    >>> from modifind import ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("NonlinMean", n_samples=500, n_features=6, random_state=0)
    >>> selector = ModifierSelector(sampler="gaussian", random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).get_feature_names_out().tolist()
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    def __init__(
        self,
        statistic: Any = "effect_likelihood",
        sampler: Any = "auto",
        propensity: Any = "auto",
        alpha: float = 0.05,
        adjust: str = "bh",
        n_resamples: int | str = "auto",
        discrete_features: Any = "auto",
        cv: int = 5,
        n_jobs: int | None = None,
        progress: bool | Progress = False,
        random_state: Any = None,
        test: ConditionalRandomizationTest | None = None,
        outcome_transform: str | None = None,
    ) -> None:
        self.statistic = statistic
        self.sampler = sampler
        self.propensity = propensity
        self.alpha = alpha
        self.adjust = adjust
        self.n_resamples = n_resamples
        self.discrete_features = discrete_features
        self.cv = cv
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state
        self.test = test
        self.outcome_transform = outcome_transform

    def fit(self, X: Any, y: Any = None, treatment: Any = None, *, treated: Any = None) -> ModifierSelector:
        """Test every feature.

        Parameters
        ----------
        X : DataFrame or array of shape (n, d)
            Features measured before the treatment.
        y : array of shape (n,)
            Numeric outcome.
        treatment : array of shape (n,)
            Two values: 0/1, booleans or any two labels.
        treated : optional
            The label that means "treated"; by default the larger one, or the one that is not called control, placebo,
            ...

        Returns
        -------
        self
        """
        statistic, test = self._validate()
        table = read_features(X, self.discrete_features)
        outcome = read_outcome(y, table.n_rows)
        labels = read_treatment(treatment, table.n_rows, treated)
        arms = labels.arms
        entropy = entropy_of(self.random_state)
        seeds = np.random.SeedSequence(entropy).spawn(5)
        propensity_seed, sampler_seed, statistic_seed, feature_seed, fold_seed = seeds

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            outcome = transform_outcome(outcome, self.outcome_transform)
            if isinstance(statistic, EffectLikelihood):
                statistic.validate(outcome)
            model = resolve_propensity(self.propensity)
            scores = model.fit(table, arms, n_folds=self.cv, seed=propensity_seed)
            scores.warn()
            sampler = _agreeing_sampler(self.sampler, statistic)
            sampler.fit(table, arms, sampler_seed)
            marginal = statistic if isinstance(statistic, WCMMD) else WCMMD()
            prepared = marginal.prepare(outcome, arms, statistic_seed)
            tester, n_resamples = self._tester(statistic, test, table, outcome, scores, prepared, fold_seed)
            plan = _Plan(table, outcome, scores, sampler, prepared, tester, monotone_copies(table))
            findings = self._run(plan, feature_seed.spawn(table.n_features))
            _warn_untestable(table, findings)
        for warning in caught:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

        settings = {
            **_settings(self.get_params(deep=False), statistic, sampler, test),
            "n_resamples_used": n_resamples,
            "model": tester.prepared.description if isinstance(tester, AnalyticTester) else None,
            **data_settings(labels, scores, entropy),
            "null_hypothesis": NULL_HYPOTHESIS
            + (" and the treatment" if getattr(sampler, "condition_on_treatment", True) else ""),
        }
        messages = distinct_messages(caught)
        self._keep(table, _assemble(table, findings, self.alpha, self.adjust, scores, settings, messages))
        return self

    def _validate(self) -> tuple[Statistic, ConditionalRandomizationTest]:
        check_shared_settings(self.alpha, self.cv, self.outcome_transform)
        adjust_p_values([1.0], self.adjust)
        statistic: Any = _STATISTICS[self.statistic]() if self.statistic in tuple(_STATISTICS) else self.statistic
        if not isinstance(statistic, WCMMD | EffectLikelihood):
            given = repr(statistic) if isinstance(statistic, str) else type(statistic).__name__
            raise ValueError(
                f"statistic must be 'effect_likelihood', 'wcmmd', or an EffectLikelihood or WCMMD object, not {given}"
            )
        test = ConditionalRandomizationTest() if self.test is None else self.test
        test.validate()
        return statistic, test

    def _tester(
        self,
        statistic: Statistic,
        test: ConditionalRandomizationTest,
        table: FeatureTable,
        outcome: Array,
        scores: FittedPropensity,
        prepared: PreparedWCMMD,
        seed: np.random.SeedSequence,
    ) -> tuple[Tester, int]:
        """What tests one feature, and how many resamples it may take."""
        if isinstance(statistic, WCMMD):
            n_resamples = test.resolve_resamples(self.n_resamples, table.n_features, self.alpha, self.adjust)
            return ResamplingTester(prepared, statistic, test, n_resamples, scores, table), n_resamples
        if self.test is not None:
            warnings.warn("test= belongs to 'wcmmd'; effect_likelihood does not use it", UserWarning, stacklevel=3)
        if self.n_resamples != "auto":
            test.resolve_resamples(self.n_resamples, 1, self.alpha, self.adjust)  # refuses what is no count
            warnings.warn(
                "effect_likelihood does not resample, so n_resamples has no effect; "
                "EffectLikelihood(check_resamples=...) checks its tail by resampling",
                UserWarning,
                stacklevel=3,
            )
        states = [int(child.generate_state(1)[0]) for child in seed.spawn(statistic.cv_repeats)]
        folds = [arm_folds(prepared.treatment, self.cv, state) for state in states]
        model = statistic.prepare(table, outcome, prepared.treatment, scores.scores, folds, n_jobs=self.n_jobs)
        return AnalyticTester(model, statistic.check_resamples), statistic.check_resamples

    def _run(self, plan: _Plan, seeds: list[np.random.SeedSequence]) -> list[_Finding]:
        total = plan.table.n_features
        # Every task carries the plan, so many features come in as many tasks as keep all workers busy to the end.
        step = max(1, total // MOST_TASKS)
        tasks = (range(start, min(start + step, total)) for start in range(0, total, step))
        jobs = (delayed(_test_features)(plan, task, seeds[task.start : task.stop]) for task in tasks)
        found: list[_Finding] = []
        with ProgressBar(self.progress) as advance:
            advance(0, total)
            for findings in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
                found += findings
                advance(len(found), total)
        return found


@dataclass(frozen=True)
class _Plan:
    """Everything a worker needs to test any feature."""

    table: FeatureTable
    y: Array
    propensity: FittedPropensity
    sampler: BaseSampler
    prepared: PreparedWCMMD
    tester: Tester
    copies: frozenset[int]


@dataclass(frozen=True)
class _Finding:
    view: MarginalView
    outcome: Outcome | None  # None: not testable
    calibration: Calibration
    messages: tuple[str, ...] = ()


def _test_features(plan: _Plan, features: range, seeds: list[np.random.SeedSequence]) -> list[_Finding]:
    return [_test_feature(plan, feature, seed) for feature, seed in zip(features, seeds, strict=True)]


def _test_feature(plan: _Plan, feature: int, seed: np.random.SeedSequence) -> _Finding:
    """Test one feature; its warnings travel with the finding."""
    finding, messages = with_messages(_find, plan, feature, seed)
    return replace(finding, messages=messages)


def _warn_untestable(table: FeatureTable, findings: list[_Finding]) -> None:
    """Hand on what workers were warned of, and name the features that no data of this kind could select."""
    hand_on([finding.messages for finding in findings])
    constant = warn_constant(table)
    determined = [
        table.names[m] for m, f in enumerate(findings) if f.outcome is None and table.names[m] not in constant
    ]
    if determined:
        warnings.warn(
            f"{', '.join(determined)}: so nearly a function of the other features that the data cannot tell them "
            "apart; p-values set to 1. Leave out one of the columns that say the same.",
            UserWarning,
            stacklevel=3,
        )


def _find(plan: _Plan, feature: int, seed: np.random.SeedSequence) -> _Finding:
    """Work with one BLAS thread, so that results do not depend on how many workers there are."""
    with threadpool_limits(limits=1):
        table = plan.table
        bandwidth_seed, draw_seed = seed.spawn(2)
        view = marginal_view(table, feature, plan.y, plan.propensity.scores, plan.prepared, bandwidth_seed)
        if table.is_constant(feature):
            return _Finding(view, None, NO_LAW)
        known = None if feature in plan.copies else plan.tester.without_law(feature)
        if known is not None:
            return _Finding(view, known, NO_LAW)
        law = plan.sampler.law(feature)
        if feature in plan.copies or law.calibration.explained_share > DETERMINED[table.kind(feature)]:
            return _Finding(view, None, law.calibration)
        outcome = plan.tester.test(feature, law, view.bandwidth, np.random.default_rng(draw_seed))
        return _Finding(view, outcome, law.calibration)


def _agreeing_sampler(sampler: Any, statistic: Statistic) -> BaseSampler:
    """A fresh sampler whose conditioning goes with the weights.

    Weights that do not follow a resampled feature are right only with a sampler that ignores the treatment.
    """
    named = isinstance(sampler, str)
    chosen = resolve_sampler(sampler)
    chosen = clone(chosen) if isinstance(chosen, BaseEstimator) else chosen
    if isinstance(statistic, EffectLikelihood) and not getattr(chosen, "condition_on_treatment", True):
        raise ValueError(
            "effect_likelihood needs the law of a feature given the treatment: condition_on_treatment=True"
        )
    fixed = isinstance(statistic, WCMMD) and statistic.resample_weights == "fixed"
    if fixed and getattr(chosen, "condition_on_treatment", False):
        if not named:
            raise ValueError("resample_weights='fixed' needs a sampler with condition_on_treatment=False")
        chosen.set_params(condition_on_treatment=False)
    return chosen


def _settings(
    params: dict[str, Any], statistic: Statistic, sampler: BaseSampler, test: ConditionalRandomizationTest
) -> dict[str, Any]:
    """The selector's arguments as plain values, with the parts spelled out as they were used."""
    parts = {"statistic": statistic, "sampler": sampler, "test": test}
    shown: dict[str, Any] = {}
    for name, value in params.items():
        if name in parts:
            part = parts[name]
            own = part.get_params() if hasattr(part, "get_params") else {}
            shown[name] = {"class": type(part).__name__, **{k: readable(v) for k, v in own.items()}}
        elif name not in UNRECORDED:
            shown[name] = readable(value)
    return shown


def _assemble(
    table: FeatureTable,
    findings: list[_Finding],
    alpha: float,
    adjust: str,
    scores: FittedPropensity,
    settings: dict[str, Any],
    messages: tuple[str, ...],
) -> SelectionResult:
    index = pd.Index(table.names, name="feature")
    p_values = np.array([1.0 if f.outcome is None else f.outcome.p_value for f in findings])
    adjusted = adjust_p_values(p_values, adjust)
    columns = {
        "kind": [table.kind(m) for m in range(table.n_features)],
        "importance": [f.view.importance for f in findings],
        "statistic": _column(findings, "statistic"),
        "p_value": p_values,
        "p_adjusted": adjusted,
        "selected": adjusted <= alpha,
    }
    diagnostics = pd.DataFrame([asdict(f.calibration) for f in findings], index=index)
    if settings["model"] is not None:
        columns["effect_size"] = _column(findings, "gain")
        columns["effect_low"] = _column(findings, "gain_low")
        columns["effect_high"] = _column(findings, "gain_high")
        diagnostics["normal_p_value"] = _column(findings, "normal_p_value")
        diagnostics["check_p_value"] = _column(findings, "check_p_value")
    features = pd.DataFrame(columns, index=index)
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = [0 if f.outcome is None else getattr(f.outcome, name) for f in findings]
    diagnostics["bandwidth"] = [f.view.bandwidth for f in findings]
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={name: f.view.curve for name, f in zip(table.names, findings, strict=True)},
        overlap=scores.overlap(),
        settings=settings,
        versions=installed_versions(),
        warnings=messages,
    )


def _column(findings: list[_Finding], name: str) -> list[float]:
    """One number of every outcome; NaN where a feature could not be tested."""
    return [float("nan") if f.outcome is None else getattr(f.outcome, name) for f in findings]

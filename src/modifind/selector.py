"""`ModifierSelector`: puts propensity, sampler, statistic and test together."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from modifind.base import (
    BaseModifierSelector,
    check_shared_settings,
    data_settings,
    distinct_messages,
    entropy_of,
)
from modifind.composition import Statistic, agreeing_sampler, recorded_settings, resolve_statistic
from modifind.feature_tests import Analysis, run_tests
from modifind.features import (
    FeatureTable,
    as_frame,
    is_distributed,
    monotone_copies,
    transform_outcome,
)
from modifind.findings import Finding, assemble, warn_untestable
from modifind.kernels import Array
from modifind.progress import Progress
from modifind.propensity import FittedPropensity, PropensityModel, resolve_propensity
from modifind.reading import Data, read_data
from modifind.scoring import draw_folds, fit_scores, model_of_rows
from modifind.statistics import WCMMD, EffectLikelihood
from modifind.statistics.wcmmd import PreparedWCMMD
from modifind.strata import refuse_strata
from modifind.streaming import FrameSource, LocalPieces, Piece, Pieces, Source, Streamed, StreamedFit
from modifind.streaming.sources import has_row_scores
from modifind.testers import AnalyticTester, ResamplingTester, Tester
from modifind.testing import ConditionalRandomizationTest, adjust_p_values
from modifind.torch_support import import_torch
from modifind.weighting import (
    assign_group_folds,
    check_sampler_weights,
    refuse_in_pieces,
    warn_resampled_weights,
)

NULL_HYPOTHESIS = "the outcome is independent of the feature given the other features"
MIN_TRAIN_ROWS = 200


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
    max_train_rows : int, default=200_000
        Most rows that propensity, outcome model and samplers of "effect_likelihood" are fitted to. Of a longer table
        they see a random sample, and every row is scored, in one pass, by models of the outcome and the treatment that
        have not seen it. "wcmmd" takes all rows of a table in memory whatever their number.
    device : {"cpu", "cuda", "cuda:0", ...}, optional
        Where the parts given by name compute what they can by torch: the networks of "cvae" and of the learners of
        "effect_likelihood", the resamples of "wcmmd". None leaves every part its own setting, "cpu" by default. Each
        process of `n_jobs` opens the device for itself, so with a GPU one process is the sensible choice for "wcmmd".

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
        max_train_rows: int = 200_000,
        device: str | None = None,
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
        self.max_train_rows = max_train_rows
        self.device = device

    def fit(
        self,
        X: Any,
        y: Any = None,
        treatment: Any = None,
        *,
        treated: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        strata: Any = None,
    ) -> ModifierSelector:
        """Test every feature.

        Parameters
        ----------
        X : DataFrame, array of shape (n, d) or Dask DataFrame
            Features measured before the treatment. A Dask DataFrame is worked on by the cluster in use; without one, a
            cluster of `n_jobs` processes (all cores for None) is started here and stopped again.
        y : array of shape (n,)
            Numeric outcome. With a Dask DataFrame a Dask Series of the same partitions, or the name of a column of X.
        treatment : array of shape (n,)
            Two values: 0/1, booleans or any two labels; with a Dask DataFrame as `y`.
        treated : optional
            The label that means "treated"; by default the larger one, or the one that is not called control, placebo,
            ...
        sample_weight : array of shape (n,), optional
            How much each row counts, such as one over its probability of being in the sample. Only ratios matter; rows
            of weight 0 are left out. Needs the table in memory.
        groups : array of shape (n,), optional
            Labels of rows that are not independent of each other: patients of a clinic, visits of a patient. Rows of a
            group stay in one fold, and variances are those between groups. Needs the table in memory, and
            "effect_likelihood".
        strata : array of shape (n,), optional
            One label per row of a trial that was randomised within strata, such as sites. Models and samplers condition
            on the stratum, which is not tested, and with ``propensity="auto"`` the score of a row is its stratum's
            share of treated rows.

        Returns
        -------
        self
        """
        statistic, test = self._validate()
        if groups is not None and isinstance(statistic, WCMMD):
            raise ValueError(
                "groups needs statistic='effect_likelihood'; resampled features of 'wcmmd' take rows as independent"
            )
        if is_distributed(X):
            refuse_in_pieces(sample_weight, groups, "a Dask DataFrame", "pass a sample of the rows as a DataFrame")
            refuse_strata(strata, "a Dask DataFrame")
            from modifind.distributed import DaskPieces

            pieces = DaskPieces.of(X, y, treatment, self.propensity, self.n_jobs)
            with pieces:
                return self._fit_pieces(pieces, statistic, treated)
        frame = as_frame(X)
        if len(frame) > self.max_train_rows and isinstance(statistic, EffectLikelihood):
            what = f"a table of more than max_train_rows={self.max_train_rows} rows"
            refuse_in_pieces(sample_weight, groups, what, "raise max_train_rows")
            refuse_strata(strata, "more than max_train_rows rows")
            source = FrameSource.of(frame, y, treatment, self.propensity)
            return self._fit_pieces(LocalPieces(source, self.n_jobs), statistic, treated)
        extras = {"sample_weight": sample_weight, "groups": groups, "strata": strata}
        return self._fit_whole(frame, y, treatment, treated, extras, statistic, test)

    def fit_source(self, source: Source, *, treated: Any = None) -> ModifierSelector:
        """Test every feature of a table that comes in pieces, such as a file larger than memory.

        Parameters
        ----------
        source : Source
            Where the rows come from; `modifind.streaming.open_files` makes one of CSV or Parquet files.
        treated : optional
            The label that means "treated".

        Returns
        -------
        self
        """
        statistic, _ = self._validate()
        if has_row_scores(self.propensity) and getattr(source, "scores", None) is None:
            raise ValueError("propensity is one score per row; the scores of a source must come with it")
        return self._fit_pieces(LocalPieces(source, self.n_jobs), statistic, treated)

    def _fit_pieces(self, pieces: Pieces, statistic: Statistic, treated: Any) -> ModifierSelector:
        """Test every feature by sums over pieces of the table."""
        if not isinstance(statistic, EffectLikelihood):
            raise ValueError(
                "a table in pieces is tested by statistic='effect_likelihood', whose p-values are sums over rows; "
                "'wcmmd' needs the table in memory"
            )
        entropy = entropy_of(self.random_state)
        model = resolve_propensity(self.propensity)
        sampler = agreeing_sampler(self.sampler, statistic, self.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            self._warn_unused(statistic)
            run = StreamedFit(
                statistic=statistic,
                sampler=sampler,
                propensity=model,
                discrete_features=self.discrete_features,
                outcome_transform=self.outcome_transform,
                treated=treated,
                n_folds=self.cv,
                max_train_rows=self.max_train_rows,
                n_jobs=self.n_jobs,
                progress=self.progress,
                seed=np.random.SeedSequence(entropy),
            )
            found = run.fit(pieces)
            if isinstance(found, Streamed):
                warn_untestable(found.names, found.constant, found.findings)
        if isinstance(found, Piece):  # few enough rows for all to be taken at once
            own = self.get_params(deep=False) | {"random_state": entropy}
            if found.scores is not None:
                known = found.scores.to_numpy()
                wrapped = isinstance(self.propensity, PropensityModel)
                own["propensity"] = PropensityModel(known, clip=model.clip) if wrapped else known
            whole = type(self)(**own)
            whole.fit(found.X, found.y, found.treatment, treated=treated)
            self._keep(tuple(whole.feature_names_in_), whole.result_)
            return self
        _warn_again(caught)
        settings = {
            **recorded_settings(self.get_params(deep=False), statistic, sampler, ConditionalRandomizationTest()),
            "n_resamples_used": 0,
            "model": found.model,
            **data_settings(*found.labels, found.n_rows, found.n_treated, found.propensity, entropy),
            "n_train_rows": found.n_train_rows,
            "null_hypothesis": NULL_HYPOTHESIS + " and the treatment",
        }
        messages = distinct_messages(caught)
        result = assemble(
            found.names, found.kinds, found.findings, self.alpha, self.adjust, found.overlap, settings, messages
        )
        self._keep(found.names, result)
        return self

    def _fit_whole(
        self,
        X: pd.DataFrame,
        y: Any,
        treatment: Any,
        treated: Any,
        extras: dict[str, Any],
        statistic: Statistic,
        test: ConditionalRandomizationTest,
    ) -> ModifierSelector:
        """Test every feature with all rows at once."""
        entropy = entropy_of(self.random_state)
        seeds = np.random.SeedSequence(entropy).spawn(6)
        propensity_seed, sampler_seed, statistic_seed, feature_seed, fold_seed, group_seed = seeds

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            data = read_data(X, y, treatment, treated=treated, discrete_features=self.discrete_features, **extras)
            tested, table, labels, arms = data.table, data.conditioned, data.treatment, data.arms
            outcome = transform_outcome(data.y, self.outcome_transform)
            weighted: dict[str, Any] = {} if data.weights is None else {"weights": data.weights}
            if isinstance(statistic, EffectLikelihood):
                statistic.validate(outcome, weighted=bool(weighted))
            elif weighted:
                warn_resampled_weights()
            model = model_of_rows(resolve_propensity(self.propensity), len(X), data.kept)
            scores = fit_scores(model, data, table, self.cv, propensity_seed)
            scores.warn()
            sampler = agreeing_sampler(self.sampler, statistic, self.device)
            if data.groups is not None:
                assign_group_folds(sampler, arms, data.groups, self.cv, group_seed)
            if weighted:
                check_sampler_weights(sampler)
            sampler.fit(table, arms, sampler_seed, **weighted)
            marginal = statistic if isinstance(statistic, WCMMD) else WCMMD()
            prepared = marginal.prepare(outcome, arms, statistic_seed, **weighted)
            tester, n_resamples = self._tester(statistic, test, data, table, outcome, scores, prepared, fold_seed)
            copies = monotone_copies(table)
            n_tested = tested.n_features
            plan = Analysis(table, outcome, scores, sampler, prepared, tester, copies, n_tested, data.weights)
            findings = self._run(plan, feature_seed)
            warn_untestable(tested.names, tested.constant, findings)
        _warn_again(caught)

        settings = {
            **recorded_settings(self.get_params(deep=False), statistic, sampler, test),
            "n_resamples_used": n_resamples,
            "model": tester.prepared.description if isinstance(tester, AnalyticTester) else None,
            **data_settings(labels.control, labels.treated, arms.size, int(arms.sum()), scores, entropy),
            **data.settings,
            "null_hypothesis": NULL_HYPOTHESIS
            + (" and the stratum" if data.strata is not None else "")
            + (" and the treatment" if getattr(sampler, "condition_on_treatment", True) else ""),
        }
        messages = distinct_messages(caught)
        kinds = [tested.kind(m) for m in range(tested.n_features)]
        found = assemble(tested.names, kinds, findings, self.alpha, self.adjust, scores.overlap(), settings, messages)
        self._keep(tested.names, found)
        return self

    def _validate(self) -> tuple[Statistic, ConditionalRandomizationTest]:
        check_shared_settings(self.alpha, self.cv, self.outcome_transform)
        if not isinstance(self.max_train_rows, int | np.integer) or self.max_train_rows < MIN_TRAIN_ROWS:
            raise ValueError(
                f"max_train_rows must be an integer of at least {MIN_TRAIN_ROWS}, not {self.max_train_rows!r}"
            )
        adjust_p_values([1.0], self.adjust)
        if self.device not in (None, "cpu"):
            import_torch(self.device, f"device={self.device!r}")
        statistic = resolve_statistic(self.statistic, self.device)
        test = ConditionalRandomizationTest() if self.test is None else self.test
        test.validate()
        return statistic, test

    def _tester(
        self,
        statistic: Statistic,
        test: ConditionalRandomizationTest,
        data: Data,
        table: FeatureTable,
        outcome: Array,
        scores: FittedPropensity,
        prepared: PreparedWCMMD,
        seed: np.random.SeedSequence,
    ) -> tuple[Tester, int]:
        """What tests one feature, and how many resamples it may take."""
        if isinstance(statistic, WCMMD):
            n_tested = data.table.n_features
            n_resamples = test.resolve_resamples(self.n_resamples, n_tested, self.alpha, self.adjust)
            return ResamplingTester(prepared, statistic, test, n_resamples, scores, table), n_resamples
        self._warn_unused(statistic)
        folds = [draw_folds(data, self.cv, child) for child in seed.spawn(statistic.cv_repeats)]
        model = statistic.prepare(
            table,
            outcome,
            data.arms,
            scores.scores,
            folds,
            n_jobs=self.n_jobs,
            weights=data.weights,
            groups=data.groups,
        )
        return AnalyticTester(model, statistic.check_resamples), statistic.check_resamples

    def _run(self, plan: Analysis, seed: np.random.SeedSequence) -> list[Finding]:
        return run_tests(plan, seed, self.n_jobs, self.progress)

    def _warn_unused(self, statistic: EffectLikelihood) -> None:
        if self.test is not None:
            warnings.warn("test= belongs to 'wcmmd'; effect_likelihood does not use it", UserWarning, stacklevel=4)
        if self.n_resamples != "auto":
            # refuses what is no count
            ConditionalRandomizationTest().resolve_resamples(self.n_resamples, 1, self.alpha, self.adjust)
            warnings.warn(
                "effect_likelihood does not resample, so n_resamples has no effect; "
                "EffectLikelihood(check_resamples=...) checks its tail by resampling",
                UserWarning,
                stacklevel=4,
            )


def _warn_again(caught: list[warnings.WarningMessage]) -> None:
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

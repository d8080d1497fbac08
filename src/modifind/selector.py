"""`ModifierSelector`: combines propensity, sampler, statistic and test."""

from __future__ import annotations

import os
from typing import Any

from modifind._workers import Progress
from modifind.base import BaseModifierSelector
from modifind.engine.contrasts import fit_arms, placebo_arms
from modifind.engine.settings import ConditionalRandomizationTest, check_runs, read_call
from modifind.result.placebo_result import PlaceboResult
from modifind.statistics.families import Family


class ModifierSelector(BaseModifierSelector):
    """Select the features that modify the distribution of a treatment's effect.

    For each feature the null hypothesis is that the difference between the arms' outcome distributions does not depend
    on it given the other features. A feature that moves the outcome of both arms alike, in location, spread or shape,
    is null, and so is one that merely correlates with a modifier. P-values are adjusted over features.

    Parameters
    ----------
    statistic : {"effect_likelihood", "wcmmd"} or Statistic, default="effect_likelihood"
        Test statistic. "effect_likelihood" asks whether the arms' difference in location and spread, as predicted for
        held-out rows by models of all features, depends on this one; its p-values need no resampling. "wcmmd" is the
        paper's statistic, with a conditional randomisation test.
    sampler : {"auto", "gaussian", "splines", "boosting", "cvae", "marginal"} or sampler, default="auto"
        Conditional distribution of a feature given the rest. "auto" chooses between gaussian, splines and boosting for
        each feature by held-out log-score.
    propensity : "auto", "mlp", float, dict, array, str, classifier or PropensityModel, default="auto"
        P(treated | features). A number for randomised trials, or ``{label: share}`` for every arm; with two arms, an
        array of known scores per row, or the name of their column in the table that is fitted.
    alpha : float, default=0.05
        Features with an adjusted p-value of at most `alpha` are selected.
    adjust : {"bh", "by", "holm", "bonferroni", "none"}, default="bh"
        Adjustment of p-values for the number of features.
    n_resamples : int or "auto", default="auto"
        Maximum number of resamples per feature of "wcmmd"; "auto" uses enough to make a single discovery possible.
    discrete_features : "auto" or list, default="auto"
        Names, positions or a mask of numeric columns to treat as categories.
    cv : int, default=5
        Folds of cross-fitting.
    n_jobs : int, optional
        Number of processes. They share the features between them, and the result is the same for every value.
    progress : bool or callable, default=False
        Show a progress bar on stderr, or call ``progress(done, total)``.
    random_state : int, Generator or None, default=None
        One seed for everything. None draws one, which the result records.
    test : ConditionalRandomizationTest, optional
        How resampled statistics of "wcmmd" become p-values.
    outcome_transform : {None, "log"}, default=None
        With "log", the logarithm of a positive outcome is analysed: effects are ratios of geometric means, and a
        feature that multiplies both arms alike modifies nothing.
    max_train_rows : int, default=200_000
        Maximum number of rows to fit propensity, outcome model and samplers to. In a longer table they are fitted to a
        random sample, and every row is scored by models of the outcome and the treatment that have not seen it; "wcmmd"
        of all rows is compared with that of resampled rows.
    device : {"cpu", "cuda", "cuda:0", ...}, optional
        Device for networks and resamples. Parts given by name run there what torch can compute: the networks of "cvae"
        and of the learners of "effect_likelihood", the resamples of "wcmmd". None leaves every part its own setting,
        "cpu" by default. Each process of `n_jobs` opens the device separately, so with a GPU use one process for
        "wcmmd".
    missing : {"error", "category", "drop"}, default="error"
        Missing values of features: "error" refuses them, "category" makes them a separate level, "drop" leaves out
        their rows. For a continuous feature "category" makes them a separate state: the test then asks both whether the
        value matters and whether it matters that it is missing. "drop" leaves out every row with a missing feature,
        outcome, treatment, weight, cluster or stratum, with a warning that counts them.
    missing_outcome : {"error", "drop", "weight"}, default="error"
        Rows without an outcome: "error" refuses them, "drop" leaves them out, "weight" reweights the others. With
        "drop" there is a warning that counts them; p-values are valid if missingness depends on features and arm alone,
        and averages are those of the remaining rows. With "weight" each row with an outcome is weighted by
        1 / P(observed | features, arm), from cross-fitted models, at most 20, times its sample weight: averages are
        then those of all rows. Not for an outcome that is missing because follow-up ended before the event: rows with
        an early event are always observed, which no weight corrects. With ``missing="drop"``, "error" leaves such rows
        out as well.
    outcome : {"auto", "numeric", "binary", "count", "ordinal", "amount"} or Family, default="auto"
        Kind of outcome. "auto" treats two values as "binary" and everything else as "numeric"; with
        ``effect_scale="ratio"`` it treats what looks like a count as "count", and what is often zero as "amount".
        "ordinal" means 2 to 10 ordered levels (cumulative logits). An "amount" is analysed in two parts, whether there
        is any and how much, with one p-value. An object of a class derived from `modifind.statistics.families.Family`
        is another kind of outcome, with a density of its own.
    effect_scale : {"difference", "ratio", "odds_ratio"}, default="difference"
        How the arms are compared. That says what a constant effect is: by differences of means, by ratios of means (of
        outcomes that are never negative), or by odds ratios (of two values, or of ordered levels). For
        "effect_likelihood".
    feature_groups : dict, optional
        Columns to test as one feature, by the name of their group: ``{"blood pressure": ["sbp", "dbp"]}``. The null
        hypothesis of a group is that the arms' difference does not depend on its columns jointly given the others, so
        columns with nearly the same content do not hide each other. The result has one row per group, in the place of
        its first column. For "effect_likelihood".
    checkpoint : path, optional
        Folder to save progress in; the same call then continues. Every feature is saved as soon as it is tested. After
        a crash, a kill or Ctrl-C the same call with the same folder continues, and ends with the same result as a run
        that was never stopped. Models are fitted again; of a table in pieces the sums over rows are saved, every ten
        seconds. The folder of a run with other data, another seed, other versions of modifind, numpy, scipy,
        scikit-learn or torch, or with settings that change what is found of a feature is refused. `alpha` and `adjust`
        may change, and `n_jobs` and `progress`. With ``random_state=None`` the seed is that of the run in the folder.
        Files or partitions must be the same ones.
    explain : bool, default=True
        Whether to also estimate effects along features: curves with bands, what changes, bounds.
    placebo_runs : int, default=0
        Repeat the analysis this many times with a treatment that does nothing. It is drawn as the real one was
        assigned; see `placebo`. What these runs find is in ``result_.placebo`` and in the report. For a table in pieces
        they use a sample of `max_train_rows` rows.
    population : {"all", "overlap"}, default="all"
        Population of the effects: "all" rows, or "overlap" (rows with a counterpart in the other arm). Curves, average
        effects and bounds refer to it; p-values and importance are the same in both. In "overlap" each row is weighted
        by e (1 - e), where e is its propensity score: effects are those among rows that could have been in either arm,
        and no single row dominates.
    better : {"higher", "lower"}, optional
        Which outcomes are better. The report then speaks of benefit and harm; no number depends on it.
    unit : str, optional
        Unit of the outcome, for the report and figures.
    design : {None, "randomised", "observational"}, default=None
        How the treatment was given. "randomised" without a known `propensity` or strata takes the observed share of
        treated rows as the probability of treatment. None means randomised where a known propensity or strata are
        given, otherwise observational. A column in which the arms of a randomised treatment differ by more than chance
        is refused unless it is named in `features` or `adjust_for`; where no design is given, also if the other columns
        do not tell the arms apart.

    Attributes
    ----------
    result_ : SelectionResult
        Table, curves, diagnostics and settings.
    placebo_ : PlaceboResult
        What `placebo` found last.
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
        missing: str = "error",
        feature_groups: dict[str, list[str]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        explain: bool = True,
        placebo_runs: int = 0,
        population: str = "all",
        missing_outcome: str = "error",
        outcome: str | Family = "auto",
        effect_scale: str = "difference",
        better: str | None = None,
        unit: str | None = None,
        design: str | None = None,
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
        self.missing = missing
        self.feature_groups = feature_groups
        self.checkpoint = checkpoint
        self.explain = explain
        self.placebo_runs = placebo_runs
        self.population = population
        self.missing_outcome = missing_outcome
        self.outcome = outcome
        self.effect_scale = effect_scale
        self.better = better
        self.unit = unit
        self.design = design

    def fit(
        self,
        X: Any,
        y: Any = None,
        treatment: Any = None,
        *,
        outcome: str | None = None,
        features: Any = None,
        treated: Any = None,
        reference: Any = None,
        arms: Any = None,
        adjust_for: Any = None,
        sample_weight: Any = None,
        clusters: Any = None,
        strata: Any = None,
    ) -> ModifierSelector:
        """Test every feature.

        Parameters
        ----------
        X : table, path, pattern, list of paths, or Source
            Features measured before the treatment, and whatever the other arguments name. A DataFrame of pandas or
            polars, a pyarrow Table, a dict of columns or an array of shape (n, d). A Dask DataFrame is processed by the
            cluster in use; without one, a cluster of `n_jobs` processes (all cores for None) is started here and
            stopped again. CSV and Parquet files, by a path, a pattern such as ``"part-*.parquet"`` or a list of those,
            are read in batches, as is any `modifind.data.sources.Source`, an object with `pieces()` that brings outcome
            and treatment with it.
        y : array of shape (n,) or str
            Outcome, or the name of its column in X. A column that this argument or one of the others names is no
            feature. With a Dask DataFrame a name or a Dask Series of the same partitions; with files a name.
        treatment : array of shape (n,) or str
            Two values: 0/1, booleans or any two labels; more with `reference` or `arms`. Or a name, as `y`.
        outcome : str, optional
            Name of the outcome in the place of `y`: ``fit(frame, outcome="change", treatment="drug")``.
        features : list, optional
            Names, positions or a mask of columns of X to test. The columns that have no role are then adjusted for
            where `adjust_for` is None, but for dates, identifiers and free text, and left out where it is not. By
            default all columns without a role are tested.
        treated : optional
            Label of the treated arm; needed unless it is obvious. It is with 0 and 1, truth values, yes and no, or with
            one label that says control, placebo, untreated, ... beside one that does not.
        reference : optional
            Label that all others are compared with; needed with more than two. The result then has one p-value per
            feature, whether it modifies any of these contrasts, and each of them in ``result_.contrasts``; with two it
            says which is the control.
        arms : pair, optional
            Two labels to compare; rows of other arms are left out.
        adjust_for : list, optional
            Names, positions or a mask of columns of X that are used and not tested. Models of the outcome, scores and
            distributions of the tested features condition on them as on all others: the p-value of a tested feature is
            the one that it has where all columns are tested. A column that is left out of X instead is not adjusted for
            at all.
        sample_weight : array of shape (n,) or str, optional
            Weight of each row, such as one over its probability of being in the sample. Only ratios matter; rows of
            weight 0 are left out.
        clusters : array of shape (n,) or str, optional
            Labels of rows that are not independent of each other: patients of a clinic, visits of a patient. Rows of a
            cluster are kept in one fold, and variances are between clusters. Needs "effect_likelihood".
        strata : array of shape (n,) or str, optional
            One label per row of a trial that was randomised within strata, such as sites. Models and samplers condition
            on the stratum, which is not tested, and with ``propensity="auto"`` the score of a row is its stratum's
            share of treated rows.

        Returns
        -------
        self

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C. If features have been tested by then, `result_` holds them: those that were not reached have a
            p-value of NaN and count as 1 in the adjustment.

        Examples
        --------
        >>> from modifind import ModifierSelector
        >>> from modifind.datasets import load_trial
        >>> selector = ModifierSelector(sampler="gaussian", explain=False, random_state=0)
        >>> selector.fit(load_trial().frame, outcome="pressure_change", treatment="drug").result_.selected
        ['smoker', 'diabetes', 'age']
        """
        labels = {"treated": treated, "reference": reference, "arms": arms}
        columns = {"outcome": outcome, "features": features, "adjust_for": adjust_for}
        rows = {"sample_weight": sample_weight, "clusters": clusters, "strata": strata}
        call = read_call(self.get_params(deep=False), X, y, treatment, **columns, **rows, **labels)
        names, result, interrupted = fit_arms(*call)
        self._keep(names, result)
        if interrupted:
            raise KeyboardInterrupt
        return self

    def placebo(
        self,
        X: Any,
        y: Any = None,
        treatment: Any = None,
        *,
        n: int = 20,
        outcome: str | None = None,
        features: Any = None,
        treated: Any = None,
        reference: Any = None,
        arms: Any = None,
        adjust_for: Any = None,
        sample_weight: Any = None,
        clusters: Any = None,
        strata: Any = None,
    ) -> PlaceboResult:
        """Analyse the table with placebo treatments, which have no effect: every discovery is a false positive.

        The treatment is redrawn as the real one was assigned: with its known probability or the fitted scores, keeping
        the number of treated rows of every stratum, and for whole clusters where clusters were treated. Everything is
        refitted for each draw. `n_jobs`, `progress`, `random_state` and `checkpoint` are those of the selector.

        Parameters
        ----------
        X, y, treatment, outcome, features, treated, reference, arms, adjust_for, sample_weight, clusters, strata
            As in `fit`. With several arms every contrast is run, and a run finds what modifies any of them. For a
            table in pieces the runs use a sample of `max_train_rows` rows.
        n : int, default=20
            Number of placebo treatments.

        Returns
        -------
        PlaceboResult

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C; `placebo_` then holds the runs that were done.

        Examples
        --------
        >>> from modifind import EffectLikelihood, ModifierSelector
        >>> from modifind.datasets import make_modifiers
        >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
        >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
        >>> selector.placebo(data.X, data.y, treatment=data.treatment, n=3).text
        '0 of 3 placebo treatments found anything.'
        """
        check_runs(n)
        labels = {"treated": treated, "reference": reference, "arms": arms}
        columns = {"outcome": outcome, "features": features, "adjust_for": adjust_for}
        rows = {"sample_weight": sample_weight, "clusters": clusters, "strata": strata}
        call = read_call(self.get_params(deep=False), X, y, treatment, **columns, **rows, **labels)
        result, interrupted = placebo_arms(*call, n)
        if result is not None:
            self.placebo_ = result
        if interrupted:
            raise KeyboardInterrupt
        return self.placebo_

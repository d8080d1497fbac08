"""SI-EM, selective inference for effect modification (Zhao, Small and Ertefaie, 2022).

With cross-fitted ``mu_y(x) = E[Y | x]`` and ``e(x) = P(A = 1 | x)``, the residuals r = Y - mu_y and W = A - e obey
``E[r | A, x] = W tau(x)``, tau the mean effect at x. The best linear approximation ``tau(x) ~ a + x'b`` is fitted by

    1/2 | r - W a - (W x)'b |^2 + lambda |b|_1,        lambda = 1.1 sigma E max_j |D_j' z|,  z standard normal,

with a free of penalty, so that r and the design are both projected off W; D is the projected design. P-values are those
of `lasso_selective_inference`: valid given which columns the lasso took up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import roc_auc_score

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind._warned import recorded
from modifind.base import BaseModifierSelector
from modifind.baselines.design import EffectDesign, effect_design, lasso_columns
from modifind.baselines.lasso import N_DRAWS, SIDES, expected_max_correlation, lasso_selective_inference, residual_sd
from modifind.data.features import FeatureTable
from modifind.data.outcome import warn_of_scale
from modifind.data.roles import assign_roles
from modifind.data.schema import Schema
from modifind.data.weights import Weights
from modifind.engine.explaining import MarginalView, results_alone, views_alone
from modifind.engine.preparation import refuse_separation
from modifind.engine.reading import Given, Reading
from modifind.engine.record import UNRECORDED, data_settings, entropy_of, installed_versions, readable
from modifind.engine.settings import check_positive, check_shared_settings
from modifind.nuisance.propensity.scores import (
    FittedPropensity,
    OverlapSums,
    PropensityModel,
    arm_folds,
    overlap_of,
    resolve_propensity,
    seeded_clone,
)
from modifind.result.checks import run_checks
from modifind.result.concerns import cautions, concerns, warn_of
from modifind.result.selection_result import SelectionResult

# Splits and leaves as in R's randomForest; its classifier grows leaves of one row, for votes and not for probabilities.
N_TREES = 200
NODE_SIZE = 5
FOREST = f"random forest of {N_TREES} trees, cross-fitted"


def propensity_forest(seed: int) -> RandomForestClassifier:
    """Forest for P(treated | features)."""
    return RandomForestClassifier(N_TREES, max_features="sqrt", min_samples_leaf=NODE_SIZE, random_state=seed)


def outcome_learner(model: Any, seed: int) -> Any:
    """Fresh regressor, seeded unless the user has set a seed; None if `model` holds predictions."""
    if isinstance(model, str):
        return RandomForestRegressor(N_TREES, max_features=1 / 3, min_samples_leaf=NODE_SIZE, random_state=seed)
    return seeded_clone(model, seed) if hasattr(model, "fit") else None


def check_outcome_model(model: Any) -> None:
    """Refuse names other than "forest", and classifiers."""
    if hasattr(model, "predict_proba") or (isinstance(model, str) and model != "forest"):
        raise ValueError(f"outcome_model must be 'forest', a regressor or an array of predictions, not {model!r}")


def known_predictions(values: Any, n_rows: int) -> Array:
    """Validate predictions passed by the user: one finite number per row."""
    try:
        known = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        known = np.empty(0)
    if known.shape != (n_rows,) or not np.isfinite(known).all():
        shape = f" of shape {known.shape}" if known.size else ""
        raise ValueError(
            f"outcome_model must be 'forest', a regressor or one finite prediction per row ({n_rows}); found "
            f"{type(values).__name__}{shape}"
        )
    return known


def describe_outcome_model(model: Any) -> str:
    """Description of the model."""
    if isinstance(model, str):
        return FOREST
    return f"{model!r}, cross-fitted" if hasattr(model, "fit") else "known per row"


def held_out(model: Any, target: Any, design: Array, folds: Ints, fold: int) -> Array:
    """Predictions for the rows of one fold by a model of the others: values, or probabilities of a classifier."""
    train, out = folds != fold, folds == fold
    fitted = clone(model).fit(design[train], target[train])
    if hasattr(fitted, "predict_proba"):
        return fitted.predict_proba(design[out])[:, 1]
    values = np.asarray(fitted.predict(design[out]), dtype=np.float64).ravel()
    if not np.isfinite(values).all():
        raise ValueError(f"{type(model).__name__} predicted values that are not finite; choose another outcome_model")
    return values


COLUMNS = ("kind", "importance", "statistic", "p_value", "p_adjusted", "selected", "coef", "ci_low", "ci_high")
DIAGNOSTICS = ("n_columns", "n_active", "level", "sd", "lower", "upper", "bandwidth")
NULL_HYPOTHESIS = (
    "its partial linear coefficient is zero in the best linear approximation of the conditional average effect by the "
    "features that the lasso selected"
)


class SIEM(BaseModifierSelector):
    """Select features that modify the *mean* effect of a treatment linearly: a lasso with selective inference.

    Features selected by a lasso are tested for a non-zero partial linear coefficient in the best linear approximation
    of the conditional average effect, given that the lasso selected them. Blind to features that change only the
    spread, tails or shape. Valid for normal noise of equal variance, and in large samples, when the outcome and
    propensity models are good.

    Parameters
    ----------
    outcome_model : "forest", regressor or array, default="forest"
        E[outcome | features], cross-fitted. "forest" splits as R's randomForest does: 200 trees, a third of the
        columns at each split, leaves of at least 5 rows. An array holds one prediction per row, made elsewhere from
        other rows.
    propensity : "forest", "auto", "mlp", float, array, classifier or PropensityModel, default="forest"
        P(treated | features). "forest" has 200 trees, the square root of the number of columns at each split, leaves of
        at least 5 rows. The others are as in `ModifierSelector`; a number for randomised trials.
    alpha : float, default=0.05
        Level at which p-values select. They are not adjusted over features, as published.
    sided : {"two", "one"}, default="two"
        "one" tests in the direction that the lasso found.
    penalty_factor : float, default=1.1
        The penalty as a multiple of what noise alone would reach on average.
    discrete_features : "auto" or list, default="auto"
        Names, positions or a mask of numeric columns to be taken as categories.
    cv : int, default=5
        Folds of cross-fitting.
    n_jobs : int, optional
        Processes; folds and features are spread over them. The result is the same for every value.
    random_state : int, Generator or None, default=None
        One seed for everything. None draws one, which the result records.
    outcome_transform : {None, "log"}, default=None
        Scale on which effects are measured.

    Attributes
    ----------
    result_ : SelectionResult
        In its table, `p_value` is 1 for features that the lasso did not take up; for a discrete feature it is the
        smallest p-value of its active indicators times their number. `statistic` (coefficient over its standard
        deviation), `coef`, `ci_low` and `ci_high` belong to the most significant column of the feature and are missing
        where none is active. `coef` is the change of the mean effect per unit of the feature, or between a level and
        the others; the interval has level 1 - alpha given the selection. `importance` and the curves are those of
        `ModifierSelector`.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : array of str
        Their names.

    See Also
    --------
    modifind.ModifierSelector : finds modifiers of the whole distribution.
    modifind.baselines.lasso_selective_inference : the test beneath.

    References
    ----------
    Zhao, Small, Ertefaie. Selective inference for effect modification via the lasso. JRSS B, 2022.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from modifind.baselines import SIEM
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=500, n_features=6, random_state=0)
    >>> selector = SIEM(LinearRegression(), propensity="auto", random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).get_feature_names_out().tolist()
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    def __init__(
        self,
        outcome_model: Any = "forest",
        propensity: Any = "forest",
        alpha: float = 0.05,
        sided: str = "two",
        penalty_factor: float = 1.1,
        discrete_features: Any = "auto",
        cv: int = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
        outcome_transform: str | None = None,
    ) -> None:
        self.outcome_model = outcome_model
        self.propensity = propensity
        self.alpha = alpha
        self.sided = sided
        self.penalty_factor = penalty_factor
        self.discrete_features = discrete_features
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.outcome_transform = outcome_transform

    def fit(
        self,
        X: Any,
        y: Any = None,
        treatment: Any = None,
        *,
        outcome: str | None = None,
        features: Any = None,
        treated: Any = None,
        adjust_for: Any = None,
    ) -> SIEM:
        """Test every feature.

        Parameters
        ----------
        X, y, treatment, outcome, features, treated
            As in `modifind.ModifierSelector.fit`: a table in memory, a numeric outcome and two arms, as values of every
            row or as names of columns.
        adjust_for : list, optional
            Columns of X, by names, positions or a mask, that expected outcomes and propensity scores are given and
            whose part in the effect is not asked for.

        Returns
        -------
        self
        """
        self._validate()
        roles = assign_roles(X, y, treatment, outcome=outcome, features=features, adjust_for=adjust_for)
        if not isinstance(roles["X"], pd.DataFrame):
            raise ValueError("SIEM needs the table in memory; pass a DataFrame")
        given, reading = Given(roles["X"], roles["y"], roles["treatment"]), Reading(self.discrete_features)
        reading = replace(reading, treated=treated, adjust_for=roles["adjust_for"])
        entropy = entropy_of(self.random_state)
        # The order is that of ModifierSelector, so that the same seed gives the same importance and curves.
        seeds = np.random.SeedSequence(entropy).spawn(5)
        propensity_seed, outcome_seed, statistic_seed, feature_seed, penalty_seed = seeds

        with recorded() as caught, one_thread():
            data = reading.read(reading.at_once(given.source().whole), transform=self.outcome_transform)
            table, numbers, arms = data.block.table.with_indicators, data.block.y, data.arms
            tested = [m for m, name in enumerate(table.names) if name not in data.adjusted]
            if self.outcome_transform is None:
                warn_of_scale(numbers)
            columns = lasso_columns(table, arms, tested)  # refuses too wide a table before anything slow
            scores, expected = self._nuisances(table, numbers, arms, propensity_seed, outcome_seed)
            refuse_separation(scores)
            design = effect_design(table, columns, numbers - expected, arms - scores.scores)
            fit = self._infer(design, penalty_seed)
            seeds_used = (statistic_seed, feature_seed)
            views = views_alone(table, numbers, arms, scores.scores, tested, seeds_used, self.n_jobs)

        settings = self._settings(data.schema, scores, fit, entropy) | data.recorded
        messages, named = tuple(caught), data.left_out
        seen = dict(zip(tested, views, strict=True))
        result = _assemble(table, seen, fit, float(self.alpha), scores, settings, messages, named)
        warn_of(result.checks, named)
        self._keep(table.names, result)
        return self

    def _validate(self) -> None:
        check_shared_settings(self.alpha, self.cv, self.outcome_transform)
        if self.sided not in SIDES:
            raise ValueError(f"sided must be one of {', '.join(map(repr, SIDES))}, not {self.sided!r}")
        check_positive("penalty_factor", self.penalty_factor)
        if isinstance(self.propensity, str) and self.propensity not in ("forest", "auto", "mlp"):
            raise ValueError(
                "propensity must be 'forest', 'auto', 'mlp', a number, an array or a classifier, "
                f"not {self.propensity!r}"
            )
        check_outcome_model(self.outcome_model)

    def _nuisances(
        self,
        table: FeatureTable,
        outcome: Array,
        arms: Ints,
        propensity_seed: np.random.SeedSequence,
        outcome_seed: np.random.SeedSequence,
    ) -> tuple[FittedPropensity, Array]:
        """Propensity scores and expected outcomes of each row, from models that have not seen it."""
        fold_state, outcome_state, forest_state = (int(s.generate_state(1)[0]) for s in outcome_seed.spawn(3))
        tasks: dict[str, tuple[Any, Any]] = {}
        if isinstance(self.propensity, str) and self.propensity == "forest":
            tasks["propensity"] = (propensity_forest(forest_state), arms)
        learner = outcome_learner(self.outcome_model, outcome_state)
        if learner is not None:
            tasks["outcome"] = (learner, outcome)
        predicted = self._cross_fit(tasks, table.design, arm_folds(arms, self.cv, fold_state))
        expected = known_predictions(predicted.get("outcome", self.outcome_model), table.n_rows)
        if "propensity" not in predicted:
            model = resolve_propensity(self.propensity)
            return model.fit(table, arms, n_folds=self.cv, seed=propensity_seed), expected
        scores = FittedPropensity(
            raw=predicted["propensity"],
            clip=PropensityModel().clip,
            treatment=arms,
            table=table,
            description=FOREST,
            auc=float(roc_auc_score(arms, predicted["propensity"])),
            weights=Weights.alike(arms.size),
        )
        return scores, expected

    def _cross_fit(self, tasks: dict[str, tuple[Any, Any]], design: Array, folds: Ints) -> dict[str, Array]:
        """Predictions for every row by models fitted to the other folds."""
        jobs = [(name, fold) for name in tasks for fold in range(int(folds.max()) + 1)]
        calls = [(held_out, *tasks[name], design, folds, fold) for name, fold in jobs]
        predictions = results_alone(calls, self.n_jobs, doing="fitting models of the outcome")
        predicted = {name: np.empty(folds.size) for name in tasks}
        for (name, fold), values in zip(jobs, predictions, strict=True):
            predicted[name][folds == fold] = values
        return predicted

    def _infer(self, design: EffectDesign, seed: np.random.SeedSequence) -> _SelectionFit:
        if not design.features.size:
            return _SelectionFit(design)
        sigma = residual_sd(design.matrix, design.response, n_used=1)
        reached = expected_max_correlation(design.matrix, n_draws=N_DRAWS, random_state=seed)
        penalty = float(self.penalty_factor) * sigma * reached
        inference = lasso_selective_inference(
            design.matrix, design.response, penalty, sigma=sigma, sided=self.sided, alpha=self.alpha
        )
        return _SelectionFit(design, inference.to_dict("index"), sigma, penalty)

    def _settings(self, schema: Schema, scores: FittedPropensity, fit: _SelectionFit, entropy: int) -> dict[str, Any]:
        shown = {name: readable(value) for name, value in self.get_params(deep=False).items() if name not in UNRECORDED}
        return {
            "method": "si_em",
            **shown,
            "adjust": "none",
            "outcome_learner": describe_outcome_model(self.outcome_model),
            "n_columns": int(fit.design.features.size),
            "n_active": len(fit.active),
            "penalty": fit.penalty,
            "penalty_draws": N_DRAWS,
            "sigma": fit.sigma,
            **data_settings(schema.arm_labels, schema.n_rows, schema.n_treated, scores, entropy),
            "null_hypothesis": NULL_HYPOTHESIS,
        }


@dataclass(frozen=True)
class _SelectionFit:
    """Selective inference by active column; without noise level and penalty if there were no candidate columns."""

    design: EffectDesign
    active: Mapping[Any, Mapping[Any, Any]] = field(default_factory=dict)
    sigma: float | None = None
    penalty: float | None = None


def _assemble(
    table: FeatureTable,
    views: Mapping[int, MarginalView],
    fit: _SelectionFit,
    alpha: float,
    scores: FittedPropensity,
    settings: dict[str, Any],
    messages: tuple[str, ...],
    named: frozenset[str],
) -> SelectionResult:
    """Assemble the result from the features that have a view."""
    shown = {table.names[m]: view for m, view in views.items()}
    rows = pd.DataFrame(
        [_feature_row(table, fit, m, view) for m, view in views.items()], pd.Index(shown, name="feature")
    )
    rows["p_adjusted"] = rows["p_value"]
    rows["selected"] = (rows["n_active"] > 0) & (rows["p_value"] <= alpha)
    features, diagnostics = rows[list(COLUMNS)].copy(), rows[list(DIAGNOSTICS)].copy()
    overlap = overlap_of(scores)
    still = [table.names[m] for m in views if table.is_constant(m)]
    untestable = {name: "rare" if name in named else "constant" for name in still}
    checks = run_checks(features, diagnostics, overlap, settings, untestable)
    features["caution"] = cautions(checks, list(shown))
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={name: view.curve for name, view in shown.items()},
        overlap=overlap,
        settings=settings,
        versions=installed_versions(),
        warnings=(*messages, *concerns(checks, named)),
        checks=checks,
        densities={name: view.densities for name, view in shown.items() if view.densities is not None},
        score_histogram=OverlapSums.of(scores).score_histogram(),
    )


def _feature_row(table: FeatureTable, fit: _SelectionFit, feature: int, view: MarginalView) -> dict[str, Any]:
    """The most significant active column of one feature, with a p-value corrected for the number of those columns."""
    columns = np.flatnonzero(fit.design.features == feature)
    nothing = {name: float("nan") for name in ("statistic", "coef", "ci_low", "ci_high", "sd", "lower", "upper")}
    alone = {"kind": table.kind(feature), "importance": view.importance, "bandwidth": view.bandwidth}
    row = {**alone, "n_columns": columns.size, "n_active": 0, "level": "", "p_value": 1.0, **nothing}
    active = {k: fit.active[k] for k in columns.tolist() if k in fit.active}
    if not active:
        return row
    best = min(active, key=lambda k: active[k]["p_value"])
    line, scale = active[best], float(fit.design.scales[best])
    # Per unit of the feature; the lasso saw it standardised.
    units = {name: line[name] / scale for name in ("coef", "sd", "lower", "upper", "ci_low", "ci_high")}
    return {
        **row,
        **units,
        "n_active": len(active),
        "level": fit.design.levels[best],
        "p_value": min(1.0, len(active) * line["p_value"]),
        "statistic": line["coef"] / line["sd"],
    }

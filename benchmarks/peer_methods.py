"""Methods that `peers.py` compares, each from a table to a score and a selection of features.

Peers run with their own defaults, but for what is said here. All p-values are adjusted by Benjamini-Hochberg at 0.05.

- `ols`: interactions of the treatment with every feature in one least squares fit, HC3 errors.
- `log-squares`, `squares`: the same for the logarithm of squared residuals of a least squares fit to each arm, and for
  the squares: how statisticians look for differences in spread.
- `slope`: the idea of R's unihtee: slope of doubly robust pseudo-outcomes on one feature at a time, robust error.
- `econml`: `CausalForestDML` as it comes, for a discrete treatment; it ranks by `feature_importances_`.
- `lineardml`: EconML's `LinearDML`, p-values of the coefficients of the effect; both nuisances are linear (the default
  tries forests as well).
- `blp`, `gate`: DoubleML's best linear predictor of the effect by all features, and Wald tests of whether effects
  differ between quarters of a feature, or at and above its least value where most rows have that, one feature at a
  time; `DoubleMLIRM` with the models of the pseudo-outcomes.
- `causalml-f`: `FilterSelect`, F-test of one interaction of treatment and feature; the outcome is used as it is.
- `causalml-lr`, `causalml-kl`: likelihood-ratio test of the same interaction in a logistic model, and the divergence of
  the arms in five bins; both want a binary outcome, here whether it is above its median. KL has no p-values.
- `d0crt`: hidimstat's distilled conditional randomisation test of the pseudo-outcomes on the features. Screening is
  off: as it comes it keeps 10% of the features, fewer than there are modifiers.
- `siem`: modifind's SI-EM baseline; as published its selective p-values are not adjusted over features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LassoCV, LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

import designs
from interaction_tests import interaction_p_values
from modifind import ModifierSelector
from modifind.inference import adjust_p_values

Array = NDArray[np.float64]
ALPHA = 0.05
CLIP = (0.01, 0.99)


class Found(NamedTuple):
    """What a method says about each feature: a score that ranks it and, if it has p-values, whether it is selected."""

    score: Array
    selected: NDArray[np.bool_] | None


def from_p_values(score: ArrayLike, p_value: ArrayLike) -> Found:
    return Found(np.asarray(score, dtype=float), adjust_p_values(p_value, "bh") <= ALPHA)


def rank_by_p_value(p_value: ArrayLike, statistic: ArrayLike) -> Array:
    """Score by p-value, equal p-values by statistic: with resampling many are equal. What is equal in both stays so."""
    p, tie = np.nan_to_num(p_value, nan=1.0), np.nan_to_num(statistic, nan=-np.inf)
    return np.unique(np.column_stack([-p, tie]), axis=0, return_inverse=True)[1].ravel().astype(float)


def nuisance_models() -> tuple[Any, Any]:
    """A ridge of additive splines for an arm's mean, and a penalised logistic regression for the score."""
    splines = SplineTransformer(n_knots=5, extrapolation="linear")
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    penalties = {"logisticregression__C": [0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0]}
    return (
        make_pipeline(splines, StandardScaler(), RidgeCV(np.logspace(-2, 4, 13))),
        GridSearchCV(logistic, penalties, scoring="neg_log_loss"),
    )


def aipw_outcomes(x: Array, y: Array, a: NDArray[np.int64], seed: int) -> Array:
    """Doubly robust pseudo-outcomes, five folds.

    mu_1 - mu_0 + A (Y - mu_1) / e - (1 - A) (Y - mu_0) / (1 - e) with additive means of the arms and a logistic
    propensity, which are right for nearly all designs: models that favour the peers which use them.
    """
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    outcome_model, score_model = nuisance_models()
    e = np.clip(cross_val_predict(score_model, x, a, cv=folds, method="predict_proba")[:, 1], *CLIP)
    mean = np.empty((2, y.size))
    for train, test in folds.split(x, a):
        for arm in (0, 1):
            rows = train[a[train] == arm]
            mean[arm, test] = clone(outcome_model).fit(x[rows], y[rows]).predict(x[test])
    return mean[1] - mean[0] + a * (y - mean[1]) / e - (1 - a) * (y - mean[0]) / (1 - e)


def slope_test(x: Array, outcome: Array) -> tuple[Array, Array]:
    """Regress the outcome on each column alone: t-statistics with HC1 standard errors, and two-sided p-values."""
    n = outcome.size
    centred = x - x.mean(axis=0)
    square = (centred**2).sum(axis=0)
    residual = (outcome - outcome.mean())[:, None]
    slope = (centred * residual).sum(axis=0) / square
    meat = (centred**2 * (residual - centred * slope) ** 2).sum(axis=0)
    t = slope / (np.sqrt(meat * n / (n - 2)) / square)
    return t, 2 * stats.t.sf(np.abs(t), n - 2)


def slope(table: designs.Table, seed: int) -> Found:
    x = table.X.to_numpy()
    t, p = slope_test(x, aipw_outcomes(x, table.y, table.treatment, seed))
    return from_p_values(np.abs(t), p)


def interactions(outcome: Callable[[designs.Table], Array]) -> Callable[[designs.Table, int], Found]:
    """Interactions of the treatment with all features, for something that is made of the outcome."""

    def run(table: designs.Table, seed: int) -> Found:
        x = table.X.to_numpy(float)
        p = interaction_p_values(x, table.treatment, outcome(table), "numeric", "difference")
        return from_p_values(-p, p)

    return run


def squared_residuals(table: designs.Table) -> Array:
    """Of a least squares fit to each arm."""
    x, found = np.column_stack((np.ones(table.y.size), table.X.to_numpy(float))), np.empty(table.y.size)
    for arm in (0, 1):
        rows = table.treatment == arm
        found[rows] = table.y[rows] - x[rows] @ np.linalg.lstsq(x[rows], table.y[rows], rcond=None)[0]
    return found**2


def log_squares(table: designs.Table) -> Array:
    squares = squared_residuals(table)
    return np.log(np.maximum(squares, 1e-8 * squares.mean()))


def doubleml(what: str) -> Callable[[designs.Table, int], Found]:
    def run(table: designs.Table, seed: int) -> Found:
        from doubleml import DoubleMLData, DoubleMLIRM

        np.random.seed(seed)  # noqa: NPY002 (which is how DoubleML draws its folds)
        data = DoubleMLData.from_arrays(table.X.to_numpy(float), table.y, table.treatment)
        fitted = DoubleMLIRM(data, *nuisance_models(), n_folds=5).fit()
        p = blp_p_values(fitted, table.X) if what == "blp" else gate_p_values(fitted, table.X)
        return from_p_values(-p, p)

    return run


def blp_p_values(fitted: Any, X: pd.DataFrame) -> Array:
    basis = (X - X.mean()) / X.std()
    return fitted.cate(basis.assign(constant=1.0)).summary["P>|t|"].to_numpy(float)[:-1]


def gate_p_values(fitted: Any, X: pd.DataFrame) -> Array:
    """One test per feature: are the effects of its quarters the same, or those at and above its least value?"""
    found = []
    for name in X:
        quarters = pd.qcut(X[name].rank(method="average"), 4, labels=False, duplicates="drop")
        groups = pd.get_dummies(quarters if quarters.nunique() > 1 else X[name] > X[name].min()).astype(bool)
        groups.columns = [f"group {number}" for number in range(groups.shape[1])]
        model = fitted.gate(groups).blp_model[0]
        contrasts = np.eye(groups.shape[1])[1:] - np.eye(groups.shape[1])[0]
        found.append(float(model.wald_test(contrasts, scalar=True).pvalue))
    return np.array(found)


def d0crt(table: designs.Table, seed: int) -> Found:
    from hidimstat import D0CRT

    x = table.X.to_numpy()
    test = D0CRT(LassoCV(), screening_threshold=None, random_state=seed)
    z = test.fit_importance(x, aipw_outcomes(x, table.y, table.treatment, seed))
    return from_p_values(np.abs(z), test.pvalues_)


def econml(table: designs.Table, seed: int) -> Found:
    from econml.dml import CausalForestDML

    forest = CausalForestDML(discrete_treatment=True, n_jobs=1, random_state=seed)
    forest.fit(table.y, table.treatment, X=table.X.to_numpy(float))
    return Found(np.ravel(forest.feature_importances_), None)


def lineardml(table: designs.Table, seed: int) -> Found:
    from econml.dml import LinearDML

    model = LinearDML(model_y="linear", model_t="linear", discrete_treatment=True, random_state=seed)
    p = np.ravel(model.fit(table.y, table.treatment, X=table.X.to_numpy(float)).coef__inference().pvalue())
    return from_p_values(-p, p)


def causalml(method: str) -> Callable[[designs.Table, int], Found]:
    def run(table: designs.Table, seed: int) -> Found:
        from causalml.feature_selection import FilterSelect

        outcome = table.y if method == "F" else (table.y > np.median(table.y)).astype(int)
        data = table.X.assign(outcome=outcome, arm=np.where(table.treatment == 1, "treatment", "control"))
        found = FilterSelect().get_importance(data, list(table.X), "outcome", method, experiment_group_column="arm")
        found = found.set_index("feature").loc[list(table.X)]
        score = found["score"].to_numpy(float)
        return Found(score, None) if method == "KL" else from_p_values(score, found["p_value"].to_numpy(float))

    return run


def from_table(found: pd.DataFrame) -> Found:
    return Found(rank_by_p_value(found["p_value"], found["statistic"]), found["selected"].to_numpy(bool))


def siem(table: designs.Table, seed: int) -> Found:
    from modifind.baselines import SIEM

    found = SIEM(alpha=ALPHA, random_state=seed).fit(table.X, table.y, treatment=table.treatment).result_.table
    return from_table(found.assign(statistic=found["statistic"].abs()))  # two-sided


def modifind(statistic: str) -> Callable[[designs.Table, int], Found]:
    def run(table: designs.Table, seed: int) -> Found:
        selector = ModifierSelector(statistic, alpha=ALPHA, random_state=seed).set_params(explain=False)
        if statistic == "effect_likelihood":  # which knows kinds of outcomes
            selector.set_params(**table.settings)
        return from_table(selector.fit(table.X, table.y, treatment=table.treatment).result_.table)

    return run


class Method(NamedTuple):
    """A row of the table; `module` is imported before the clock starts."""

    label: str
    module: str
    run: Callable[[designs.Table, int], Found]


METHODS = {
    "default": Method("modifind, default", "modifind", modifind("effect_likelihood")),
    "wcmmd": Method('modifind, "wcmmd"', "modifind", modifind("wcmmd")),
    "siem": Method("SI-EM, not adjusted", "modifind.baselines", siem),
    "ols": Method("OLS interactions", "scipy", interactions(lambda table: table.y)),
    "log-squares": Method("interactions, log squared residuals", "scipy", interactions(log_squares)),
    "squares": Method("interactions, squared residuals", "scipy", interactions(squared_residuals)),
    "slope": Method("univariate doubly robust slope", "scipy", slope),
    "d0crt": Method("hidimstat D0CRT on AIPW", "hidimstat", d0crt),
    "econml": Method("EconML causal forest", "econml.dml", econml),
    "lineardml": Method("EconML LinearDML", "econml.dml", lineardml),
    "blp": Method("DoubleML BLP", "doubleml", doubleml("blp")),
    "gate": Method("DoubleML GATE by quarters", "doubleml", doubleml("gate")),
    "causalml-f": Method("CausalML F filter", "causalml.feature_selection", causalml("F")),
    "causalml-lr": Method("CausalML LR filter, Y > median", "causalml.feature_selection", causalml("LR")),
    "causalml-kl": Method("CausalML KL filter, Y > median", "causalml.feature_selection", causalml("KL")),
}

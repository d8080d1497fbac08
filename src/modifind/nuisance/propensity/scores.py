"""Propensity scores, cross-fitted or known: choice of the treatment model, and overlap of the arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import has_fit_parameter

from modifind._typing import Array, Ints
from modifind.data.balance import count_by_arm, rows_without_counterpart
from modifind.data.clusters import Clusters, cluster_folds, treated_as_one
from modifind.data.containers import is_known
from modifind.data.features import FeatureTable
from modifind.data.weights import GivenWeights, Weights, row_weights
from modifind.data.words import counted
from modifind.nuisance.propensity.fit_check import ScoreCheck
from modifind.nuisance.propensity.fitted import FittedPropensity, predict_scores
from modifind.nuisance.propensity.models import (
    EDGE,
    EarlyStoppedMLP,
    KnownScores,
    ScreenedTrees,
    StackedScores,
    balanced,
    fit_classifier,
    level_odds,
)
from modifind.nuisance.regression.penalised import convex_weights
from modifind.nuisance.regression.screening import Leftover, Misfit, ScreenedLogistic, Trace, has_many_columns
from modifind.nuisance.regression.smooth import SmoothClassifier, predict_probabilities

PENALTY_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0)
SMOOTH_STRENGTHS = (0.1, 1.0, 10.0)
TREES = ((30, 8), (100, 16))  # rounds and leaves; the larger where a grid or a product of three calls for them
MISFIT_LEVEL = 0.01
CHOICE_ROWS = 20_000
MIN_ARM_ROWS = 500  # of an arm, where it has so many
NEGLIGIBLE = 0.05


def described(model: Any) -> str:
    """Description of a model."""
    if isinstance(model, StackedScores):
        members = zip(model.members, model.weights, strict=True)
        names = ", ".join(f"{described(member)} ({weight:.2f})" for member, weight in members)
        return f"mean log-odds of {names}" if len(model.members) > 1 else described(model.members[0])
    if isinstance(model, ScreenedTrees):
        return "boosted trees"
    kind = "splines and products" if isinstance(model, SmoothClassifier) else "logistic regression"
    screened = " on the columns most associated with the treatment" * isinstance(model, ScreenedLogistic)
    return f"{kind}, ridge penalty C = {model.C:g}{screened}"


def held_out_scores(model: Any, design: Array, treatment: Ints, folds: Ints, weights: Weights) -> Array:
    """Scores of every row by a model fitted to the other folds."""
    scores = np.empty(treatment.size)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = clone(model).fit(design[~out], treatment[~out], **weights[~out].argument())
        scores[out] = predict_probabilities(fitted, design[out])[:, 1]
    return scores


def arm_folds(treatment: Ints, n_folds: int, seed: int, clusters: Clusters | None = None) -> Ints:
    """Fold of each row; every fold holds both arms, with fewer folds if necessary, and clusters stay whole."""
    clusters = Clusters.of(clusters, treatment.size)
    if not clusters.of_rows and n_folds > 1:
        return cluster_folds(treatment, clusters.codes, n_folds, seed)
    folds = np.zeros(treatment.size, dtype=np.int64)
    if n_folds > 1:
        splits = StratifiedKFold(min(n_folds, int(np.bincount(treatment).min())), shuffle=True, random_state=seed)
        for fold, (_, out) in enumerate(splits.split(treatment[:, None], treatment)):
            folds[out] = fold
    return folds


def chosen_model(
    design: Array, treatment: Ints, seed: int, weights: Weights, clusters: Clusters, encoded: Sequence[int] = ()
) -> Any:
    """The unfitted model with the least held-out log-loss.

    Logistic regression on lines comes first. If its held-out residuals depend on bins or products of columns, products
    of three or grids of two, splines and products are tried, and trees. The candidates are mixed on the log-odds scale
    with weights from held-out rows. The mixture is chosen if it is better than lines alone by more than one standard
    error. If whole clusters were treated, only lines are tried: there are too few independent units for more. Columns
    `encoded` by the treatment of other rows are not used in grids and products of three.

    A penalty is a normal prior with variance C of every coefficient. The best C reflects the size of the coefficients,
    not the number of rows: it is chosen on at most 20,000 of them and used on all unchanged.
    """
    if treatment.size > CHOICE_ROWS:
        drawn = np.random.default_rng(seed).permutation(treatment.size)
        arms = [drawn[treatment[drawn] == arm] for arm in (0, 1)]  # a small arm is taken as a whole
        rows = np.concatenate([r[: max(CHOICE_ROWS * r.size // treatment.size, MIN_ARM_ROWS)] for r in arms])
        design, treatment, weights, clusters = design[rows], treatment[rows], weights[rows], clusters[rows]
    folds = arm_folds(treatment, 4, seed, clusters)

    def held_out(model: Any) -> Array:
        return held_out_scores(model, design, treatment, folds, weights)

    def loss(chances: Array) -> Array:
        chances = np.clip(chances, EDGE, 1.0 - EDGE)
        return -np.where(treatment == 1, np.log(chances), np.log1p(-chances))

    def best(kind: Any, strengths: tuple[float, ...]) -> tuple[Any, Array]:
        models = [kind(C=strength) for strength in strengths]
        candidates = [(model, held_out(model)) for model in models]
        return min(candidates, key=lambda candidate: weights.mean(loss(candidate[1])))

    def logistic(C: float) -> Any:
        return (ScreenedLogistic if has_many_columns(*design.shape) else LogisticRegression)(C=C, max_iter=1000)

    lines, chances = best(logistic, PENALTY_STRENGTHS)
    if not treated_as_one(treatment, clusters).of_rows or has_many_columns(*design.shape):
        return lines
    residual, variance = treatment - chances, chances * (1.0 - chances)
    called = _crossed(design, weights.times(residual), weights.times(weights.times(variance)), encoded)
    tests = Misfit(design, weights)
    strays = min(tests.curve(residual, variance, chances), tests.product(residual, variance)) < MISFIT_LEVEL
    if not strays and not called:
        return lines
    smooth, by_smooth = best(SmoothClassifier, SMOOTH_STRENGTHS)
    trees = [ScreenedTrees(lines.C, called, *size) for size in TREES[: 1 + bool(called)]]
    candidates = [lines, smooth, *trees]
    predicted = np.stack((chances, by_smooth, *map(held_out, trees)))
    index = logit(np.clip(predicted, EDGE, 1.0 - EDGE))
    mixed = convex_weights(lambda shares: float(weights.mean(loss(expit(shares @ index)))), len(index), NEGLIGIBLE)
    gain = loss(chances) - loss(expit(mixed @ index))
    error = float(gain.std() / np.sqrt(gain.size))
    if weights.mean(gain) <= error:
        return lines
    kept = np.flatnonzero(mixed)
    return StackedScores([candidates[k] for k in kept], [float(mixed[k]) for k in kept])


def _crossed(design: Array, residual: Array, variance: Array, encoded: Sequence[int]) -> tuple[int, ...]:
    """Columns whose grid, or product of three, the residuals depend on."""
    leftover = Leftover(design, np.setdiff1d(np.arange(design.shape[1]), np.asarray(encoded, dtype=np.int64)))
    trace = Trace.clearest([leftover.triple(residual, variance), leftover.grid(residual, variance)])
    return trace.columns if trace.p_value < MISFIT_LEVEL else ()


class PropensityModel(BaseEstimator):
    """How propensity scores are obtained.

    Parameters
    ----------
    estimator : "auto", "mlp", classifier, float or array, default="auto"
        "auto": ridge-penalised logistic regression on the standardised features, the penalty chosen by
        cross-validated log-loss; mixed with splines and products and with trees where its held-out residuals follow
        bins, products or grids of the features and the mixture's held-out log-loss is better.
        "mlp": the paper's network with two hidden layers of 50 ReLU units, stopped early on held-out log-loss. A
        scikit-learn classifier is fitted to the encoded features. A number is a known randomisation probability; an
        array holds one known score per row.
    cross_fit : bool, default=True
        Score each row by a model that has not seen it. False scores the training rows themselves, as the paper does.
    clip : tuple of two floats, default=(0.01, 0.99)
        Scores are moved into this interval; the result's checks count the rows.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from modifind import EffectLikelihood, ModifierSelector, PropensityModel
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> scores = PropensityModel(LogisticRegression(C=0.1), clip=(0.05, 0.95))
    >>> selector = ModifierSelector(EffectLikelihood("linear"), "gaussian", scores, explain=False, random_state=0)
    >>> sorted(selector.fit(data.X, data.y, treatment=data.treatment).result_.selected)
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    def __init__(
        self, estimator: Any = "auto", *, cross_fit: bool = True, clip: tuple[float, float] = (0.01, 0.99)
    ) -> None:
        self.estimator = estimator
        self.cross_fit = cross_fit
        self.clip = clip

    def fit(
        self,
        table: FeatureTable,
        treatment: Ints,
        *,
        n_folds: int = 5,
        seed: np.random.SeedSequence | None = None,
        folds: Ints | None = None,
        weights: GivenWeights = None,
        clusters: Clusters | Ints | None = None,
        unpooled: tuple[Array, ...] = (),
    ) -> FittedPropensity:
        """Score every row; the result can re-score rows with one feature changed.

        Folds are drawn unless `folds` gives the fold of each row. With `weights`, one number per row of mean 1, scores
        are those of the population that the weighted rows represent. Rows of one of `clusters` stay in one fold, also
        when the penalty is chosen. `unpooled` are codes of categories with many levels before rare ones were pooled.
        """
        self.check()
        weights, clusters = Weights.of(weights, treatment.size), Clusters.of(clusters, treatment.size)
        if is_known(self):
            return self._known(table, treatment, weights)
        fold_seed, model_seed = (int(s.generate_state(1)[0]) for s in (seed or np.random.SeedSequence()).spawn(2))
        # Missing values are at the mean of all observed rows. Another constant, such as a fold's mean, would move the
        # slope of the indicator beside it and no score, up to the penalty. Treatment and outcome have no part in it.
        design = table.design
        if folds is None or not self.cross_fit:
            folds = arm_folds(treatment, n_folds if self.cross_fit else 1, fold_seed, clusters)
        effective = weights.effective
        columns, encoded = level_odds(table.coded, design, treatment, effective)[1], [at.start for at, _ in table.coded]
        template = self._model(model_seed, columns, treatment, effective, clusters, encoded)
        models = []
        for fold in range(int(folds.max()) + 1):
            train = (folds != fold) | (not self.cross_fit)
            rows = design[train], treatment[train], effective[train]
            models.append(fit_classifier(clone(template), *rows, table.coded))
        raw = predict_scores(models, folds, design)
        held = raw
        if not self.cross_fit:  # the AUC is that of held-out scores; two halves are enough for a diagnostic
            held = held_out_scores(template, columns, treatment, arm_folds(treatment, 2, fold_seed), effective)
        auc = float(roc_auc_score(treatment, held, sample_weight=effective.given))
        models, raw = balanced(models, raw, design, treatment, effective, table.coded, unpooled)
        looked_at = self.cross_fit and clusters.of_rows
        return FittedPropensity(
            raw,
            self.clip,
            treatment,
            table,
            self._describe(template),
            auc,
            weights,
            models=tuple(models),
            folds=folds,
            misfit=ScoreCheck.of(table, treatment, raw, weights).trace() if looked_at else None,
        )

    def check(self, n_rows: int | None = None) -> None:
        """Refuse invalid settings, and known scores that are invalid for this number of rows."""
        low, high = self.clip
        if not 0 < low < high < 1:
            raise ValueError(f"clip must be two numbers with 0 < low < high < 1, not {self.clip!r}")
        if isinstance(self.estimator, str) and self.estimator not in ("auto", "mlp"):
            raise ValueError(
                f"propensity must be 'auto', 'mlp', a number, an array or a classifier, not {self.estimator!r}"
            )
        if n_rows is not None and is_known(self):
            _read_scores(self.estimator, n_rows)

    def _model(
        self, seed: int, design: Array, treatment: Ints, weights: Weights, clusters: Clusters, encoded: Sequence[int]
    ) -> Any:
        if isinstance(self.estimator, str):
            if self.estimator == "mlp":
                return EarlyStoppedMLP(random_state=seed)
            return chosen_model(design, treatment, seed, weights, clusters, encoded)
        model = seeded_clone(self.estimator, seed)
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"propensity classifier {type(model).__name__} has no predict_proba")
        if not weights.uniform and not has_fit_parameter(model, "sample_weight"):
            raise ValueError(
                f"propensity classifier {type(model).__name__} does not support sample_weight in fit, which weighted "
                "rows need; use another classifier or propensity='auto'"
            )
        return model

    def _known(self, table: FeatureTable, treatment: Ints, weights: Weights) -> FittedPropensity:
        scores = _read_scores(self.estimator, table.n_rows)
        alike = FittedPropensity(
            scores, self.clip, treatment, table, f"known, {scores[0]:g} for every row", 0.5, weights, is_known=True
        )
        if (scores == scores[0]).all():
            return alike
        model = KnownScores().fit(table.design, scores, weights.given, table.coded)
        return replace(
            alike,
            models=(model,),
            folds=np.zeros(table.n_rows, dtype=np.int64),
            description=f"known per row; as a function of the features R2 = {model.r2_:.3f} on the logit scale",
            auc=float(roc_auc_score(treatment, scores, sample_weight=weights.given)),
            r2=model.r2_,
        )

    def _describe(self, template: Any) -> str:
        name = repr(self.estimator)
        if isinstance(self.estimator, str):
            network = "neural network of two hidden layers of 50 units"
            name = described(template) if self.estimator == "auto" else network
        return f"{name}, {'cross-fitted' if self.cross_fit else 'fitted and evaluated on the same rows'}"


def _read_scores(value: ArrayLike, n_rows: int) -> Array:
    try:
        scores = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"propensity must be 'auto', 'mlp', a number, an array or a classifier; found {type(value).__name__}"
        ) from None
    if scores.ndim > 1 or (scores.ndim == 1 and scores.size != n_rows):
        raise ValueError(f"propensity array must have one score per row ({n_rows}); found shape {scores.shape}")
    outside = int((~((scores > 0) & (scores < 1))).sum())
    if outside:
        raise ValueError(
            f"propensity must lie strictly between 0 and 1; {counted(outside, 'value does not', 'values do not')}"
        )
    return np.broadcast_to(scores, (n_rows,)).copy()


def resolve_propensity(propensity: Any) -> PropensityModel:
    """Make a `PropensityModel` from what the user passed."""
    return propensity if isinstance(propensity, PropensityModel) else PropensityModel(propensity)


def seeded_clone(model: Any, seed: int) -> Any:
    """A fresh copy of a learner, seeded unless the user has set a seed."""
    model = clone(model)
    unseeded = (name for name, value in model.get_params().items() if value is None)
    return model.set_params(**{name: seed for name in unseeded if name.split("__")[-1] == "random_state"})


EXTREME = 0.05
SCORE_EDGES = np.linspace(0.0, 1.0, 21)
LOGIT_EDGES = np.arange(-7.0, 7.01, 0.5)  # where arms are looked for side by side; beyond them is one bin each


@dataclass(frozen=True)
class OverlapSums:
    """Overlap of the arms, as sums over rows; arrays with two entries are control, treated.

    `largest` is the largest weight of each arm, the only entry that is not a sum. `histogram` has the weights of the
    rows, without inverse probabilities, by arm and by bin of the score, shape (2, 20). `weights` are inverse
    probabilities, and `even` the weights of the overlap population. `side_by_side` has the number of rows by arm and by
    bin of the score's logit, and `even_by_score` their weights in the overlap population. `treated` has the sum of the
    treatment, that of the scores, and the variance of their difference under correct scores.
    """

    n_rows: Array
    weights: Array
    squares: Array
    largest: Array
    even: Array
    even_squares: Array
    n_extreme: int
    n_clipped: int
    histogram: Array
    side_by_side: Array
    even_by_score: Array
    treated: Array

    @classmethod
    def of(cls, propensity: FittedPropensity, clusters: Clusters | None = None) -> OverlapSums:
        """Sums over some rows, with their clusters."""
        arms, scores, raw = propensity.treatment, propensity.scores, propensity.raw
        clusters = Clusters.of(clusters, arms.size)
        given = propensity.weights.values
        in_arm = [arms == arm for arm in (0, 1)]
        inverse = given / np.where(arms == 1, scores, 1.0 - scores)
        even = row_weights(scores, "overlap") * inverse
        bins = np.searchsorted(LOGIT_EDGES, logit(np.clip(raw, 1e-12, 1.0 - 1e-12)))
        beyond = given * (arms - raw)
        variance = (given**2 * raw * (1.0 - raw)).sum()
        if not clusters.of_rows:
            variance = max(variance, (clusters.sums(beyond[:, None]) ** 2).sum())
        n_bins = LOGIT_EDGES.size + 1
        return cls(
            _by_arm(np.ones(arms.size), arms),
            _by_arm(inverse, arms),
            _by_arm(inverse**2, arms),
            np.array([inverse[rows].max(initial=0.0) for rows in in_arm]),
            _by_arm(even, arms),
            _by_arm(even**2, arms),
            int(((raw < EXTREME) | (raw > 1 - EXTREME)).sum()),
            propensity.n_clipped,
            np.stack([np.histogram(scores[rows], SCORE_EDGES, weights=given[rows])[0] for rows in in_arm]),
            count_by_arm(bins, arms, n_bins, treated_as_one(arms, clusters)),
            np.stack([np.bincount(bins[rows], even[rows], minlength=n_bins) for rows in in_arm]),
            np.array([given @ arms, given @ raw, variance]),
        )

    def __add__(self, other: OverlapSums) -> OverlapSums:
        """Add the sums of other rows."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return OverlapSums(**(added | {"largest": np.maximum(self.largest, other.largest)}))

    def overlap(self, propensity: FittedPropensity) -> dict[str, float]:
        """The summary of `overlap_of`, with properties of the scores themselves."""
        out = {}
        alone = rows_without_counterpart(self.side_by_side)
        for arm, name in ((1, "treated"), (0, "control")):
            effective = float(self.weights[arm] ** 2 / self.squares[arm])
            out[f"effective_rows_{name}"] = effective
            out[f"effective_share_{name}"] = effective / float(self.n_rows[arm])
            out[f"max_weight_share_{name}"] = float(self.largest[arm] / self.weights[arm])
            out[f"overlap_rows_{name}"] = float(self.even[arm] ** 2 / self.even_squares[arm])
            out[f"outside_share_{name}"] = float((self.side_by_side * alone)[arm].sum() / self.side_by_side[arm].sum())
            out[f"outside_overlap_share_{name}"] = float((self.even_by_score * alone)[arm].sum() / self.even[arm])
        total = float(self.n_rows.sum())
        treated, expected, variance = self.treated
        given = float(self.histogram.sum())
        out |= {"treated_share": float(treated / given), "expected_share": float(expected / given)}
        out["share_z"] = float((treated - expected) / np.sqrt(variance))
        out |= {"extreme_share": self.n_extreme / total, "n_clipped": float(self.n_clipped)}
        known = {} if np.isnan(propensity.misfit_p) else {"misfit_p_value": propensity.misfit_p}
        return {**out, "auc": propensity.auc, **known}

    def score_histogram(self) -> pd.DataFrame:
        """Shares of each arm by propensity score, in twenty bins of equal width from `low` to `high`."""
        control, treated = self.histogram / self.histogram.sum(axis=1, keepdims=True)
        return pd.DataFrame({"low": SCORE_EDGES[:-1], "high": SCORE_EDGES[1:], "treated": treated, "control": control})


def _by_arm(values: Array, arms: Ints) -> Array:
    return np.array([values[arms == arm].sum() for arm in (0, 1)])


def overlap_of(propensity: FittedPropensity) -> dict[str, float]:
    """Summary of the overlap of the arms.

    Returns
    -------
    dict
        Effective sample size of each arm's weights, its share of the arm, the largest weight's share of the arm's
        total, the share of scores outside [0.05, 0.95], the number of clipped rows, and the AUC of the scores (0.5 in
        a randomised trial). Weights are inverse probabilities, times the weights of the rows if there are any.
    """
    return OverlapSums.of(propensity).overlap(propensity)

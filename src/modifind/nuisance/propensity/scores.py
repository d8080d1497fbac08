"""Propensity scores e(x) = P(A = 1 | X = x), cross-fitted or known: how they are obtained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import has_fit_parameter

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters
from modifind.data.containers import is_known
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import GivenWeights, Weights
from modifind.data.wording import counted
from modifind.nuisance.propensity.choice import arm_folds, chosen_model, described, held_out_scores
from modifind.nuisance.propensity.fit_check import ScoreCheck
from modifind.nuisance.propensity.fitted import FittedPropensity, predict_scores
from modifind.nuisance.propensity.levels import balanced, fit_classifier, level_odds
from modifind.nuisance.propensity.models import EarlyStoppedMLP, KnownScores


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
        are those of the population that the weighted rows stand for. Rows of one of `clusters` stay in one fold, also
        where the penalty is chosen. `unpooled` are codes of categories of many levels before rare ones were pooled.
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
        """Refuse settings that have no meaning, and known scores that are none for so many rows."""
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
                f"propensity classifier {type(model).__name__} takes no sample_weight in fit, which weighted rows "
                "need; use another classifier or propensity='auto'"
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
    """A `PropensityModel` from what the user passed."""
    return propensity if isinstance(propensity, PropensityModel) else PropensityModel(propensity)


def seeded_clone(model: Any, seed: int) -> Any:
    """A fresh copy of a learner, seeded where the user left its seed open."""
    model = clone(model)
    unseeded = (name for name, value in model.get_params().items() if value is None)
    return model.set_params(**{name: seed for name in unseeded if name.split("__")[-1] == "random_state"})

"""Propensity scores e(x) = P(A = 1 | X = x): cross-fitted, clipped with a count, and cheap to re-evaluate.

A resampled feature changes one column, so its scores are read off a *profile*: a closed form for logistic models, a
grid of values of that one feature for any other classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, cluster_folds, treated_as_one
from modifind.data.containers import is_known
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import GivenWeights, Weights
from modifind.data.wording import counted
from modifind.nuisance.propensity.choice import EDGE, chosen_model, described, held_out_scores, log_odds_along
from modifind.nuisance.propensity.fit_check import ScoreCheck
from modifind.nuisance.propensity.levels import (
    balanced,
    fit_classifier,
    is_linear,
    level_odds,
    linear_tables,
    slopes_of,
)
from modifind.nuisance.propensity.models import EarlyStoppedMLP, KnownScores, takes_weights
from modifind.nuisance.propensity.profile import ScoreProfile
from modifind.nuisance.regression.chances import predict_chances
from modifind.nuisance.regression.leftover import Trace

N_GRID = 25
CHOICE_ROWS = 20_000
LEAST_ARM = 500  # rows of an arm, where it has so many


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
        own = weights.effective
        columns = level_odds(table.coded, design, treatment, own)[1]
        template = self._model(model_seed, columns, treatment, own, clusters, [place.start for place, _ in table.coded])
        models = []
        for fold in range(int(folds.max()) + 1):
            train = (folds != fold) | (not self.cross_fit)
            given = design[train], treatment[train], own[train], table.coded
            models.append(fit_classifier(clone(template), *given))
        raw = _predict(models, folds, design)
        auc = self._auc(template, columns, treatment, raw, fold_seed, own)
        models, raw = balanced(models, raw, design, treatment, own, table.coded, unpooled)
        looked_at = self.cross_fit and clusters.of_rows
        return FittedPropensity(
            raw=raw,
            clip=self.clip,
            treatment=treatment,
            table=table,
            models=tuple(models),
            folds=folds,
            description=self._describe(template),
            auc=auc,
            weights=weights,
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
            return _chosen(design, treatment, seed, weights, clusters, encoded)
        model = seeded_clone(self.estimator, seed)
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"propensity classifier {type(model).__name__} has no predict_proba")
        if not weights.uniform and not takes_weights(model.fit):
            raise ValueError(
                f"propensity classifier {type(model).__name__} takes no sample_weight in fit, which weighted rows "
                "need; use another classifier or propensity='auto'"
            )
        return model

    def _known(self, table: FeatureTable, treatment: Ints, weights: Weights) -> FittedPropensity:
        scores = _read_scores(self.estimator, table.n_rows)
        alike = FittedPropensity(
            raw=scores,
            clip=self.clip,
            treatment=treatment,
            table=table,
            description=f"known, {scores[0]:g} for every row",
            is_known=True,
            auc=0.5,
            weights=weights,
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

    def _auc(self, template: Any, design: Array, treatment: Ints, raw: Array, seed: int, weights: Weights) -> float:
        """Held-out AUC, also where the scores themselves are in-sample; two halves are enough for a diagnostic."""
        if not self.cross_fit:
            raw = held_out_scores(template, design, treatment, arm_folds(treatment, 2, seed), weights)
        return float(roc_auc_score(treatment, raw, sample_weight=weights.given))

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


def arm_folds(treatment: Ints, n_folds: int, seed: int, clusters: Clusters | None = None) -> Ints:
    """Fold of each row; every fold holds both arms, also where this makes fewer, and rows of a cluster share one."""
    clusters = Clusters.of(clusters, treatment.size)
    if not clusters.of_rows and n_folds > 1:
        return cluster_folds(treatment, clusters.codes, n_folds, seed)
    folds = np.zeros(treatment.size, dtype=np.int64)
    if n_folds > 1:
        splits = StratifiedKFold(min(n_folds, int(np.bincount(treatment).min())), shuffle=True, random_state=seed)
        for fold, (_, out) in enumerate(splits.split(treatment[:, None], treatment)):
            folds[out] = fold
    return folds


def _chosen(
    design: Array, treatment: Ints, seed: int, weights: Weights, clusters: Clusters, encoded: Sequence[int] = ()
) -> Any:
    """The model of "auto".

    A penalty is a normal prior with variance C of every coefficient. The best C tells how large the coefficients are,
    whatever the number of rows: it is chosen on at most 20,000 of them and used on all as it is.
    """
    if treatment.size > CHOICE_ROWS:
        drawn = np.random.default_rng(seed).permutation(treatment.size)
        arms = [drawn[treatment[drawn] == arm] for arm in (0, 1)]  # a small arm is taken as a whole
        rows = np.concatenate([r[: max(CHOICE_ROWS * r.size // treatment.size, LEAST_ARM)] for r in arms])
        design, treatment, weights, clusters = design[rows], treatment[rows], weights[rows], clusters[rows]
    folds = arm_folds(treatment, 4, seed, clusters)
    only_lines = not treated_as_one(treatment, clusters).of_rows
    return chosen_model(design, treatment, folds, weights, only_lines=only_lines, encoded=encoded)


def _predict(models: list[Any] | tuple[Any, ...], folds: Ints, design: Array) -> Array:
    scores = np.empty(design.shape[0])
    for fold, model in enumerate(models):
        rows = folds == fold
        if rows.any():
            scores[rows] = predict_chances(model, design[rows])[:, 1]
    return scores


@dataclass(frozen=True)
class FittedPropensity:
    """Scores of the rows, and of the rows with one feature changed.

    Attributes
    ----------
    raw : array of shape (n,)
        Scores before clipping.
    r2 : float
        How well known scores are a function of the features, 1 for fitted ones. Resampled features are scored by
        that function.
    weights : Weights
        How much each row counts.
    misfit : Trace, optional
        The clearest structure that arms less scores have left; None where it was not looked at.
    is_known : bool
        Whether the scores came with the data.
    """

    raw: Array
    clip: tuple[float, float]
    treatment: Ints
    table: FeatureTable
    description: str
    auc: float
    weights: Weights
    models: tuple[Any, ...] = ()
    folds: Ints | None = None
    r2: float = 1.0
    misfit: Trace | None = None
    is_known: bool = False
    scores: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", np.clip(self.raw, *self.clip))

    def at(
        self,
        table: FeatureTable,
        treatment: Ints,
        folds: Ints,
        known: Array | None = None,
        weights: Weights | None = None,
    ) -> FittedPropensity:
        """The same models for other rows.

        Parameters
        ----------
        table, treatment
            The other rows.
        folds : array of int
            Which model scores a row.
        known : array, optional
            Scores of the rows, where they are known.
        weights : Weights, optional
            How much each row counts.
        """
        if known is None and not self.models:
            known = np.broadcast_to(self.raw[:1], treatment.shape).copy()
        folds = folds % max(len(self.models), 1)
        raw = _predict(self.models, folds, table.design) if known is None else known
        weights = Weights.of(weights, treatment.size)
        return replace(self, raw=raw, treatment=treatment, table=table, folds=folds, weights=weights)

    @property
    def misfit_p(self) -> float:
        """P-value of no structure in arms less scores; NaN where it was not looked at."""
        return np.nan if self.misfit is None else self.misfit.p_value

    @property
    def misfit_features(self) -> list[str]:
        """Features along which arms less scores have the clearest structure."""
        columns = () if self.misfit is None else self.misfit.columns
        encoding = enumerate(self.table.encoding)
        return [self.table.names[m] for m, own in encoding if any(own.start <= j < own.stop for j in columns)]

    def checked_beside(self, residual: Array, guides: Array) -> FittedPropensity:
        """The same, looked at also where residuals of the outcome have structure, and along what models say of it."""
        if self.misfit is None:
            return self
        along = ScoreCheck.of(self.table, self.treatment, self.raw, self.weights).beside_outcome(residual, guides)
        return replace(self, misfit=Trace.clearest([self.misfit, along]))

    @property
    def n_clipped(self) -> int:
        """Number of rows whose score was moved."""
        return int((self.scores != self.raw).sum())

    def along(self, rows: Ints, columns: slice, encoded: Array) -> Array:
        """Scores of some rows, shape (rows, g), when columns of the design take g encoded values, (rows, g, width)."""
        if not self.models:
            return np.repeat(self.scores[rows][:, None], encoded.shape[1], axis=1)
        assert self.folds is not None
        folds, design = self.folds[rows], self.table.design[rows]
        # From the row's own score, which may be known, as far as the model says that it moves.
        index = logit(np.clip(self.raw[rows], EDGE, 1.0 - EDGE))
        found: Array = np.empty(encoded.shape[:2])
        if all(isinstance(model, LogisticRegression) for model in self.models):
            slopes = np.stack([model.coef_[0, columns] for model in self.models])[folds]
            found[:] = (index - np.einsum("ij,ij->i", design[:, columns], slopes))[:, None]
            for k in range(encoded.shape[2]):
                found += slopes[:, k, None] * encoded[..., k]
        else:
            for fold, model in enumerate(self.models):
                own = np.flatnonzero(folds == fold)
                if own.size:
                    points = np.concatenate((design[own, None, columns], encoded[own]), axis=1)
                    moved = log_odds_along(model, design[own], columns, points)
                    found[own] = index[own, None] + moved[:, 1:] - moved[:, :1]
        return np.clip(expit(found, out=found), *self.clip, out=found)

    def profile_values(self, feature: int) -> Array | None:
        """Values of a feature that its profile is a table of; None where the profile is a closed form."""
        if not self.models or all(is_linear(model) for model in self.models):
            return None
        levels = self.table.n_levels(feature)
        if levels:
            return np.arange(levels, dtype=np.float64)
        return _grid(self.table.values[self.table.observed(feature), feature])

    def profile(self, feature: int, device: str = "cpu", values: Array | None = None) -> ScoreProfile:
        """Scores as a function of one feature, the others staying as they are; networks are evaluated on `device`.

        `values` are those of a table whose rows these are some of, see `profile_values`.
        """
        if not self.models:
            return ScoreProfile(self.clip, logit(self.scores))
        if all(is_linear(model) for model in self.models):
            return self._linear_profile(feature)
        levels, gaps = self.table.n_levels(feature), feature in self.table.incomplete
        grid = self.profile_values(feature) if values is None else values
        assert grid is not None
        encoded = self.table.encode(feature, np.append(grid, np.nan) if gaps else grid)
        table = logit(np.clip(self._table(self.table.encoding[feature], encoded, device), 1e-6, 1 - 1e-6))
        missing = table[:, -1] if gaps else None
        shown = None if levels else grid
        return ScoreProfile(self.clip, np.empty(0), table=table[:, : grid.size], grid=shown, missing=missing)

    def _linear_profile(self, feature: int) -> ScoreProfile:
        """The same in closed form, where log-odds are sums over columns."""
        columns, values = self.table.encoding[feature], self.table.values[:, feature]
        if feature in self.table.level_columns:
            own = linear_tables(self.models, columns, self.table.level_columns[feature])[self.folds]
            still = logit(self.raw) - own[np.arange(values.size), values.astype(np.intp)]
            return ScoreProfile(self.clip, still, table=still[:, None] + own)
        slopes = np.stack([slopes_of(model)[columns] for model in self.models])[self.folds]
        index = logit(self.raw) - np.einsum("ij,ij->i", slopes, self.table.encode(feature, values))
        if levels := self.table.n_levels(feature):
            table = index[:, None] + np.concatenate((np.zeros((index.size, 1)), slopes), axis=1)[:, :levels]
            return ScoreProfile(self.clip, index, table=table)
        mean, spread = (part[feature] for part in self.table.scaling)
        missing = index + slopes[:, 1] if feature in self.table.incomplete else None
        return ScoreProfile(self.clip, index - slopes[:, 0] * mean / spread, slopes[:, 0] / spread, missing=missing)

    def _table(self, columns: slice, encoded: Array, device: str) -> Array:
        """Scores of all rows, shape (n, g), when a feature's columns take each of g encoded values."""
        assert self.folds is not None
        if device != "cpu" and all(isinstance(model, EarlyStoppedMLP) for model in self.models):
            from modifind.nuisance.propensity.on_device import network_scores

            return network_scores(self.models, self.folds, self.table.design, columns, encoded, device)
        design = self.table.design.copy()
        table = np.empty((design.shape[0], len(encoded)))
        for k, value in enumerate(encoded):
            design[:, columns] = value
            table[:, k] = _predict(self.models, self.folds, design)
        return table


def _grid(column: Array) -> Array:
    """Values of a feature that follow its distribution and reach half its spread beyond the data."""
    inner = np.quantile(column, np.linspace(0, 1, N_GRID - 2))
    margin = column.std() / 2
    return np.unique(np.concatenate(([inner[0] - margin], inner, [inner[-1] + margin])))

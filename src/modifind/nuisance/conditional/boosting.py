"""Boosting sampler: trees on what smooth functions of the other features leave over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.conditional.splines import SplineSampler


class BoostingSampler(SplineSampler):
    """X_m given the rest as in `SplineSampler`, and boosted trees for what its smooth functions leave over.

    Discrete features use out-of-fold class probabilities of trees alone.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    max_iter : int, default=40
        Number of boosting rounds.
    n_folds : int, optional
        Folds of the out-of-fold predictions; 4, or 2 above 50,000 rows, half of which teach trees of this size as much.

    Examples
    --------
    >>> from modifind import EffectLikelihood, BoostingSampler, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> sampler = BoostingSampler(max_iter=10)
    >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler, explain=False, random_state=0)
    >>> sorted(selector.fit(data.X, data.y, treatment=data.treatment).result_.selected)
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    name = "boosting"

    def __init__(self, *, condition_on_treatment: bool = True, max_iter: int = 40, n_folds: int | None = None) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment, n_folds=n_folds)
        self.max_iter = max_iter

    def _refine(self, model: Any, inputs: Array, column: Array, weights: Weights) -> RefinedByTrees:
        mean, spread = model.predict(inputs)
        trees = HistGradientBoostingRegressor(**self._settings())
        return RefinedByTrees(model, trees.fit(inputs, (column - mean) / spread, weights.given))

    def _classifier(self, inputs: Array, codes: Array, weights: Weights) -> Any:
        return HistGradientBoostingClassifier(**self._settings()).fit(inputs, codes, weights.given)

    def _settings(self) -> dict[str, Any]:
        return {
            "max_iter": self.max_iter,
            "learning_rate": 0.12,
            "max_leaf_nodes": 8,
            "max_bins": 64,
            "early_stopping": False,
            "random_state": 0,  # no subsampling and no binning sample below 10,000 rows: nothing is random
        }


@dataclass(frozen=True)
class RefinedByTrees:
    """A model of mean and spread, and trees on what its mean leaves over, in units of the spread."""

    model: Any
    trees: HistGradientBoostingRegressor

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and spread."""
        mean, spread = self.model.predict(X)
        return mean + spread * self.trees.predict(X), spread

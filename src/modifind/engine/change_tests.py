r"""What a feature changes: the arms' difference in mean, their ratio of spreads, or their shapes.

All three tests use the cross-fitted models and the distribution of the feature that the main test uses, and the same
evaluation along that distribution (`statistics.effect_likelihood` has the notation).

*Mean* and *spread* are the two parts of the main test: only the difference of the arms' locations follows the feature
and the ratio of their scales stays at the row's own value, or the other way round.

*Shape* is the main test's direct component for tails and skewness (`statistics.direct`), of residuals that location and
scale follow the feature in. Where outcomes have no shape, the direct component is about the contrasts, and joins the
tests of these as it joins the main test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.feature_groups import Feature
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.inference import AnalyticOutcome, analytic_test
from modifind.inference.tails import cluster_sums, combined_p_value
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.conditional.grid import ConditionalGrid
from modifind.nuisance.conditional.joint import JointConditional, set_variance
from modifind.nuisance.conditional.per_cluster import ClusterConditional
from modifind.statistics.likelihood_terms import MEAN, OUTCOME, SPREAD, WHOLE, RowTerms
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.reuse import Reuse

NAN = float("nan")


@dataclass(frozen=True)
class Changes:
    """P-values of what one feature changes, NaN where there is nothing to test.

    Attributes
    ----------
    mean, spread, shape : float
        P-values, not adjusted for the number of features.
    """

    mean: float
    spread: float
    shape: float


def unseen_changes(prepared: PreparedEffectLikelihood) -> Changes:
    """What is known of a feature that the models do not look at, and that gives no sign of its own."""
    return Changes(1.0, 1.0, 1.0) if prepared.family.has_scale else Changes(1.0, NAN, NAN)


@dataclass(frozen=True)
class Sweep:
    """What rows add to the statistic and to its parts, along the distribution of a feature.

    Attributes
    ----------
    terms : tuple of RowTerms
        When both contrasts of the arms follow the feature; then, if asked for, when only that of the locations does,
        and only that of the scales; last, when the outcome of the row's own arm does.
    weights : array of shape (n, g)
        Weights of the points.
    reuse : tuple of Reuse
        What the folds' models have in common, for each of the terms.
    clusters : int array of shape (n,), optional
        Rows that share one draw of the feature.
    """

    terms: tuple[RowTerms, ...]
    weights: Array
    reuse: tuple[Reuse, ...]
    clusters: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, prepared: PreparedEffectLikelihood, feature: Feature, grid: RowGrid, *, parts: bool = True) -> Sweep:
        """Evaluate the models once. An outcome without a scale has no parts: only its location can follow."""
        wanted = (WHOLE, MEAN, SPREAD, OUTCOME) if parts and prepared.family.has_scale else (WHOLE, OUTCOME)
        terms, weights = prepared.terms(feature, grid, *wanted)
        return cls(terms, weights, tuple(prepared.reuse(feature, grid, *wanted)), shared_draws(grid))

    def test(self, prepared: PreparedEffectLikelihood, grid: RowGrid, part: int, **settings: Any) -> AnalyticOutcome:
        """Compare the sum over rows of one of the terms with its null distribution; settings of `analytic_test`."""
        terms = self.terms[part]
        shared = self.reuse[part].variance(prepared.fold_variances(terms.values, self.weights))
        conditional = grid.conditional if isinstance(grid, OverlapConditional) else grid
        shared += set_variance(terms.values) if isinstance(conditional, JointConditional) else 0.0
        if self.clusters is None:
            return analytic_test(
                terms.observed,
                terms.values,
                self.weights,
                shared_variance=shared,
                clusters=prepared.clusters,
                **settings,
            )
        observed, values, weights = cluster_sums(terms.observed, terms.values, self.weights, self.clusters)
        alone = np.einsum("ij,ij,ij->", terms.values, terms.values, self.weights)
        shared *= float(np.einsum("ij,ij,ij->", values, values, weights) / alone) if alone > 0 else 1.0
        found = analytic_test(
            observed, values, weights, shared_variance=shared, clusters=self._units(prepared), **settings
        )
        per_row = observed.size / terms.observed.size
        return replace(
            found, gain=found.gain * per_row, gain_low=found.gain_low * per_row, gain_high=found.gain_high * per_row
        )

    def _units(self, prepared: PreparedEffectLikelihood) -> NDArray[np.int64]:
        """What is independent of each other, for each cluster that shares a draw: itself, or a larger one around it."""
        assert self.clusters is not None
        first = np.unique(self.clusters, return_index=True)[1]
        return np.arange(first.size) if prepared.clusters is None else prepared.clusters[first]


def shared_draws(grid: RowGrid) -> NDArray[np.int64] | None:
    """The clusters whose rows share one draw of a feature, None where every row has its own."""
    plain = grid.conditional if isinstance(grid, OverlapConditional) else grid
    conditional = plain.conditional if isinstance(plain, ConditionalGrid) else plain
    return conditional.clusters if isinstance(conditional, ClusterConditional) else None


def change_tests(
    prepared: PreparedEffectLikelihood,
    feature: Feature,
    grid: RowGrid,
    sweep: Sweep | None = None,
    excess: Array | None = None,
) -> Changes:
    """Test what a feature changes, given all other features.

    The hypotheses, each about the distribution of the outcome given all features and the treatment:

    mean
        the difference between the arms' locations does not depend on the feature. The scale may.
    spread
        the ratio of the arms' scales does not depend on the feature. The locations may.
    shape
        the arms' standardised residuals differ alike at all values of the feature. Location and scale may depend on
        it, and so may a shape that both arms share.

    All are centred, as the main test is, wherever the arms do not differ or the outcome does not depend on the
    feature. Where only another part differs, what remains are errors of the models: a location that misses a bend
    of the feature's effect in one arm looks like spread there.

    Parameters
    ----------
    prepared : PreparedEffectLikelihood
        Cross-fitted models of the outcome.
    feature : int or tuple of int
        Place of the feature, or of the columns of a group, which are tested as one.
    grid : RowGrid
        Its distribution.
    sweep : Sweep, optional
        What `Sweep.of` gives, if it is known.
    excess : array of shape (n, h) or (n, 2, h), optional
        Functions of the feature less their means under the distribution (`direct.ValueFunctions`), if they are known.

    Returns
    -------
    Changes
        Of an outcome that has neither spread nor shape of its own, such as a binary one, only the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind import EffectLikelihood
    >>> from modifind.datasets import make_modifiers
    >>> from modifind.data.feature_matrix import read_features
    >>> from modifind.nuisance.conditional import ConditionalGrid, GaussianSampler
    >>> from modifind.statistics import Nuisances
    >>> data = make_modifiers("LinVar", n_samples=500, n_features=6, random_state=0)
    >>> table, folds = read_features(data.X), np.arange(500) % 5
    >>> seed, arms = np.random.SeedSequence(0), data.treatment
    >>> nuisances = Nuisances(table, data.y, arms, data.propensity, seed, (folds,))
    >>> prepared = EffectLikelihood("linear").prepare(nuisances)
    >>> distribution = GaussianSampler().fit(table, arms, seed).conditional(0)
    >>> found = change_tests(prepared, 0, ConditionalGrid.of(distribution, 500))
    >>> found.mean > 0.05, found.spread < 0.001, found.shape > 0.05
    (True, True, True)
    """
    changes, scores, informed, family = unseen_changes(prepared), prepared.direct_scores, None, prepared.family
    if prepared.looks_at(feature):
        sweep = Sweep.of(prepared, feature, grid) if sweep is None else sweep
        parts = (1, 2) if family.has_scale else (0,)
        mean, *rest = (sweep.test(prepared, grid, part).p_value for part in parts)
        changes = replace(changes, mean=mean, spread=rest[0] if rest else NAN)
        scores, informed = sweep.terms[0].direct, sweep.terms[0].informed
    functions = prepared.direct_functions(feature)
    if functions is None:
        return replace(changes, shape=NAN)
    excess = functions.excess(prepared.table, grid, informed) if excess is None else excess
    clusters = shared_draws(grid)
    if family.has_shape:
        return replace(changes, shape=prepared.direct_test(prepared.direct_scores, excess, clusters))
    apart = [excess] * 2 if informed is None else np.moveaxis(excess, 1, 0)
    each = zip((changes.mean, changes.spread), scores.T, apart, strict=True)
    mean, spread = (float(combined_p_value(p, prepared.direct_test(own[:, None], h, clusters))) for p, own, h in each)
    return Changes(mean, spread, NAN)

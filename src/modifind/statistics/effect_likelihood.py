r"""The effect-likelihood test: does a model that has learned all other features predict better with this one?

A cross-fitted model gives the location mu_a(x) and the scale sigma_a(x) of the outcome in both arms. For row i and a
candidate value v of feature m, with x' the row whose m-th feature is v, let

    l_i(v) = log-density of y_i at location  b_i + (a_i - ebar_i) (mu_1(x') - mu_0(x'))  and scale  sigma_{a_i}(x'),

``b_i = (1 - ebar_i) mu_0(x_i) + ebar_i mu_1(x_i)`` a baseline frozen at the observed row, and ``ebar_i`` the share of
the precision that the treated arm has at x_i. The statistic is ``T_m = sum_i l_i(x_im)``. Under the null hypothesis
that the outcome is independent of X_m given the other features and the treatment, T_m is compared with the sum of
independent variables ``l_i(V_i)``, V_i drawn from the law of X_m given the rest, whose tail needs no resampling.

The baseline is frozen because a shift of both arms alike changes no effect: a feature that is merely prognostic for the
location leaves T where it is. It does tie l_i to the observed value, and the weights ebar are there to make up for it:
to second order in the errors of mu, and with the assignment depending little on X_m, the expected log-likelihood under
the null is then the same for the observed and for a resampled value.

With sample weights the terms are ``w_i l_i``, models and laws are weighted too, and rows of a group stay in one fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from modifind.feature_groups import Feature, columns_of, encode
from modifind.features import FeatureTable
from modifind.kernels import Array
from modifind.learners.density import student_weight
from modifind.learners.marginal import marginal_log_likelihood
from modifind.learners.stacking import (
    EDGE,
    CrossFit,
    cross_fit,
    describe,
    log_likelihood,
    own_arm,
    resolve_learners,
)
from modifind.rows.groups import check_takes_weights
from modifind.rows.weights import mean_of
from modifind.statistics.arms import ArmTraits, treated_share
from modifind.statistics.reuse import Reuse
from modifind.torch_support import check_device, import_torch

BLOCK_CELLS = 2**17  # rows times grid points evaluated at a time
REUSE_ROWS = 250
# What moves along the grid, the location and the scale, in the statistic and in its two parts.
Part: TypeAlias = tuple[bool, bool]
WHOLE, MEAN, SPREAD = (True, True), (True, False), (False, True)


class EffectLikelihood(BaseEstimator):
    """Held-out log-likelihood of the treatment effect as the test statistic of a `ModifierSelector`.

    Finds what changes the difference between the arms' locations, and the scale of either arm. A feature that shifts
    both arms alike is not found. P-values come from the exact null mean and variance of the statistic and a
    saddlepoint tail; the folds of the cross-fitting are all that is random.

    Parameters
    ----------
    learner : "auto", name, learner or list of those, default="auto"
        Model of the outcome. Names: "linear" (ridge mean, scale with a log link or rising from a floor), "splines" (the
        same with smooth curves and products), "boosting" (trees on top of splines), "neural" (an ensemble of small
        networks; needs torch). "auto" stacks them by cross-validated log-likelihood, as does a list; trees and networks
        join a stack only where they raise it by 0.01 nats per row. Any object with
        ``fit(X, a, y)`` and ``predict(X) -> (location, scale)``, both of shape (n, 2) with one column per arm, will do.
    cv_repeats : int, default=1
        Number of times the cross-fitting is repeated with other folds; log-likelihoods are averaged.
    check_resamples : int, default=0
        Also draw this many resamples from the same grid, as a check of the tail: the diagnostics then have
        `check_p_value`, ``(1 + #{T_b >= T}) / (1 + B)``.
    device : {"cpu", "cuda", "cuda:0", ...}, default="cpu"
        Where the networks of learners given by name are trained; everything else is numpy on the CPU.

    Examples
    --------
    >>> from modifind import EffectLikelihood, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinVar", n_samples=500, n_features=6, random_state=0)
    >>> selector = ModifierSelector(EffectLikelihood(learner="linear"), sampler="gaussian", random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).get_feature_names_out().tolist()
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    def __init__(
        self, learner: Any = "auto", *, cv_repeats: int = 1, check_resamples: int = 0, device: str = "cpu"
    ) -> None:
        self.learner = learner
        self.cv_repeats = cv_repeats
        self.check_resamples = check_resamples
        self.device = device

    def check(self) -> None:
        """Refuse counts that are none."""
        for name, least in (("cv_repeats", 1), ("check_resamples", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")

    def validate(self, y: Array, *, weighted: bool = False) -> None:
        """Refuse settings that have no meaning for this outcome, and learners that take no weights where there are."""
        self.check()
        check_device(self.device)
        if self.device != "cpu":
            import_torch(self.device, "EffectLikelihood(device=...)")
        for learner in resolve_learners(self.learner, binary=is_binary(y), device=self.device).values():
            if weighted:
                check_takes_weights(learner, "learner")

    def prepare(
        self,
        table: FeatureTable,
        y: Array,
        treatment: NDArray[np.int64],
        scores: Array,
        folds: list[NDArray[np.int64]],
        *,
        n_jobs: int | None = None,
        weights: Array | None = None,
        groups: NDArray[np.int64] | None = None,
    ) -> PreparedEffectLikelihood:
        """Cross-fit the model of the outcome, once for every set of folds.

        Parameters
        ----------
        table : FeatureTable
            Features.
        y : array of shape (n,)
            Outcome; with two distinct values it is taken as binary.
        treatment : array of shape (n,)
            0 or 1.
        scores : array of shape (n,)
            Propensity scores.
        folds : list of int arrays
            Fold of each row, for every repeat.
        n_jobs : int, optional
            Processes to fit folds with.
        weights : array of shape (n,), optional
            How much each row counts, of mean 1.
        groups : int array of shape (n,), optional
            Which rows belong together; the folds must keep them so.
        """
        binary = is_binary(y)
        outcome = (y == y.max()).astype(np.float64) if binary else y
        candidates = resolve_learners(self.learner, binary=binary, device=self.device)
        fits = []
        for own in folds:
            fit = cross_fit(
                candidates,
                table.design,
                treatment,
                outcome,
                own,
                binary=binary,
                n_jobs=n_jobs,
                sample_weight=weights,
                gaps=table.gaps,
            )
            traits = ArmTraits.of(fit, outcome, treatment, binary, weights)
            fits.append(_Fit.of(fit, traits, table.design, outcome, treatment, scores, binary))
        return PreparedEffectLikelihood(table, outcome, treatment, binary, tuple(fits), weights, groups)


def is_binary(y: Array) -> bool:
    """Whether an outcome has two values."""
    return bool(((y == y.min()) | (y == y.max())).all())


class RowGrid(Protocol):
    """The law of a feature, or of several together, given all else, as weighted points for any rows."""

    def at(self, rows: NDArray[np.int64]) -> tuple[Array, Array]:
        """Points and weights, each of shape (rows, g); points of several features have one more axis for these."""


@dataclass(frozen=True)
class _Fit:
    """One cross-fit and what follows from it for every row."""

    cross: CrossFit
    traits: ArmTraits
    shape: Array
    share: Array
    baseline: Array
    observed: Array
    index: tuple[tuple[Array | None, ...], ...]

    @classmethod
    def of(
        cls,
        cross: CrossFit,
        traits: ArmTraits,
        X: Array,
        y: Array,
        a: NDArray[np.int64],
        scores: Array,
        binary: bool,
    ) -> _Fit:
        shape = np.array(traits.shapes)[a]
        share = treated_share(cross, traits, scores, binary)
        baseline = (1 - share) * cross.location[:, 0] + share * cross.location[:, 1]
        own = log_likelihood(y, own_arm(cross.location, a), own_arm(cross.scale, a), shape, binary=binary)
        index = tuple(model.index(X[cross.folds == fold]) for fold, model in enumerate(cross.models))
        return cls(cross, traits, shape, share, baseline, own, index)


@dataclass(frozen=True)
class PreparedEffectLikelihood:
    """The statistic for one table, to be tested at any feature.

    Attributes
    ----------
    weights, groups : arrays of shape (n,), optional
        How much each row counts, and which rows belong together.
    """

    table: FeatureTable
    y: Array
    treatment: NDArray[np.int64]
    binary: bool
    fits: tuple[_Fit, ...]
    weights: Array | None = None
    groups: NDArray[np.int64] | None = None

    def at(
        self,
        table: FeatureTable,
        y: Array,
        treatment: NDArray[np.int64],
        scores: Array,
        folds: list[NDArray[np.int64]],
    ) -> PreparedEffectLikelihood:
        """The same models for other rows, none of which they have seen; arguments as in `EffectLikelihood.prepare`.

        The outcome of a binary model is 0 or 1 here.
        """
        fits = []
        for fit, own in zip(self.fits, folds, strict=True):
            cross = fit.cross.at(table.design, own)
            fits.append(_Fit.of(cross, fit.traits, table.design, y, treatment, scores, self.binary))
        return PreparedEffectLikelihood(table, y, treatment, self.binary, tuple(fits))

    @property
    def description(self) -> dict[str, Any]:
        """The stack that was used, for the record."""
        crosses = [fit.cross for fit in self.fits]
        names = dict.fromkeys(name for cross in crosses for name in cross.weights)
        shares = {name: float(np.mean([cross.weights.get(name, 0.0) for cross in crosses])) for name in names}
        scores = {
            name: float(np.mean([cross.log_scores[name] for cross in crosses if name in cross.log_scores]))
            for name in names
        }
        return {
            "likelihood": "bernoulli" if self.binary else "student-t",
            "n_folds": len(crosses[0].models),
            "stack": describe(shares),
            "held_out_log_likelihood": scores,
            "gain_over_marginal": self.gain_over_marginal,
        }

    @property
    def gain_over_marginal(self) -> float:
        """Held-out log-likelihood, in nats per row, beyond that of each arm's own distribution without features."""
        least = min(model.least_scale for fit in self.fits for model in fit.cross.models)
        plain = [
            marginal_log_likelihood(
                self.y,
                self.treatment,
                fit.cross.folds,
                binary=self.binary,
                least_scale=0.0 if self.binary else least,
                weights=self.weights,
            )
            for fit in self.fits
        ]
        own = np.mean([fit.observed for fit in self.fits], axis=0)
        return float(mean_of(own - np.mean(plain, axis=0), self.weights))

    def looks_at(self, feature: Feature) -> bool:
        """Whether the model of any fold looks at a feature; the statistic does not depend on one that none does."""
        columns = columns_of(self.table, feature)
        return any(model.looks_at(columns) for fit in self.fits for model in fit.cross.models)

    def fold_variances(self, values: Array, weights: Array) -> list[Array]:
        """Null variance of each fold's sum, for every repeat."""
        expected = np.einsum("ij,ij->i", values, weights)
        per_row = np.einsum("ij,ij,ij->i", values, values, weights) - expected**2
        return [
            np.bincount(f.cross.folds, per_row, minlength=len(f.cross.models)).astype(np.float64) for f in self.fits
        ]

    def reuse(self, feature: Feature, grid: RowGrid) -> Reuse:
        """How far the models of different folds agree about a feature: the variance that their folds' sums share.

        Rows are independent given the models, but a chance pattern that two folds have in common raises the sum of
        both: one fold's model has learned it from the other. With many ways for a feature to matter by chance this
        doubles the variance of the total; with a single one it does nothing, since the pattern then only decides the
        sign. Which of the two, the models of different folds tell. They share (K - 2) / (K - 1) of their rows, so what
        they learned from noise agrees that far; an effect, or a single way to matter, agrees fully, and patterns that
        have nothing in common cannot have taught each other. The variance is evaluated on a sample of the rows and
        averaged over repeats.
        """
        return self.part_reuse(feature, grid, WHOLE)[0]

    def part_reuse(self, feature: Feature, grid: RowGrid, *parts: Part) -> list[Reuse]:
        """The same for the statistic's parts; see `parts_on_grid`."""
        products = [self._products(fit, feature, grid, parts) for fit in self.fits]
        return [Reuse(tuple(own[k] for own in products)) for k in range(len(parts))]

    def _products(self, fit: _Fit, feature: Feature, grid: RowGrid, parts: tuple[Part, ...]) -> list[Array]:
        """Inner products of what the folds' models make of the feature."""
        rows = np.linspace(0, self.y.size - 1, min(REUSE_ROWS, self.y.size)).astype(np.int64)
        points, weights = grid.at(rows)
        encoded = encode(self.table, feature, points)
        location_score, scale_score = (score[rows, None] for score in self._scores(fit))
        patterns: list[list[Array]] = [[] for _ in parts]
        for model in fit.cross.models:
            location, scale = model.along(self.table.design[rows], columns_of(self.table, feature), encoded)
            arm = self.treatment[rows]
            by_location = location_score * self._moved_location(fit, rows, location)
            by_scale = scale_score * np.log(scale[np.arange(rows.size), :, arm])
            for found, part in zip(patterns, parts, strict=True):
                pattern = {WHOLE: by_location + by_scale, MEAN: by_location, SPREAD: by_scale}[part]
                pattern = pattern - np.einsum("ij,ij->i", pattern, weights)[:, None]
                if self.weights is not None:
                    pattern *= self.weights[rows, None]
                found.append((pattern * np.sqrt(weights)).ravel())
        return [np.array(found) @ np.array(found).T for found in patterns]

    def _scores(self, fit: _Fit) -> tuple[Array, Array]:
        """Derivatives of every row's log-likelihood by its location and by the logarithm of its scale."""
        own = own_arm(fit.cross.location, self.treatment)
        if self.binary:
            own = np.clip(own, EDGE, 1 - EDGE)
            return (self.y - own) / (own * (1 - own)), np.zeros(own.size)
        scale = own_arm(fit.cross.scale, self.treatment)
        u = (self.y - own) / scale
        weight = student_weight(u, fit.shape)
        return weight * u / scale, weight * u**2 - 1.0

    @property
    def observed(self) -> Array:
        """What every row adds to the statistic: its log-likelihood, averaged over repeats, times its weight."""
        found = np.mean([fit.observed for fit in self.fits], axis=0)
        return found if self.weights is None else self.weights * found

    def on_grid(self, feature: Feature, grid: RowGrid) -> tuple[Array, Array]:
        """Log-likelihood of every row when a feature takes the points of its law, and the points' weights.

        Returns
        -------
        values, weights : array of shape (n, g)
            Averaged over repeats of the cross-fitting; values are times the weight of the row.
        """
        (values,), weights = self.parts_on_grid(feature, grid, WHOLE)
        return values, weights

    def parts_on_grid(self, feature: Feature, grid: RowGrid, *parts: Part) -> tuple[tuple[Array, ...], Array]:
        """The same when only the location (`MEAN`) or the scale (`SPREAD`) follows the points, or both (`WHOLE`).

        What does not follow stays where the model has it at the row's own value.

        Returns
        -------
        values : tuple of arrays of shape (n, g)
            One for each of the parts.
        weights : array of shape (n, g)
            The points' weights.
        """
        values, weights = np.empty((len(parts), 0, 0)), np.empty((0, 0))
        columns = columns_of(self.table, feature)
        for fit in self.fits:
            for fold, model in enumerate(fit.cross.models):
                members = np.flatnonzero(fit.cross.folds == fold)
                step = max(1, BLOCK_CELLS // max(grid.at(members[:1])[0].shape[1], 1))
                for start in range(0, members.size, step):
                    rows = members[start : start + step]
                    points, chances = grid.at(rows)
                    if not values.size:
                        values = np.zeros((len(parts), self.y.size, points.shape[1]))
                        weights = np.empty(values.shape[1:])
                    encoded = encode(self.table, feature, points)
                    known = tuple(None if part is None else part[start : start + step] for part in fit.index[fold])
                    location, scale = model.along(self.table.design[rows], columns, encoded, known)
                    for found, part in zip(values, parts, strict=True):
                        found[rows] += self._at(fit, rows, location, scale, part) / len(self.fits)
                    weights[rows] = chances
        if self.weights is not None:
            values *= self.weights[:, None]
        return tuple(values), weights

    def _at(self, fit: _Fit, rows: NDArray[np.int64], location: Array, scale: Array, part: Part = WHOLE) -> Array:
        arm = self.treatment[rows]
        moves_location, moves_scale = part
        own = scale[np.arange(rows.size), :, arm] if moves_scale else fit.cross.scale[rows, arm][:, None]
        if moves_location:
            place = fit.baseline[rows, None] + self._moved_location(fit, rows, location)
        else:
            place = fit.cross.location[rows, arm][:, None]
        return log_likelihood(self.y[rows, None], place, own, fit.shape[rows, None], binary=self.binary)

    def _moved_location(self, fit: _Fit, rows: NDArray[np.int64], location: Array) -> Array:
        """What the feature may move, beyond the frozen baseline."""
        return (self.treatment[rows] - fit.share[rows])[:, None] * (location[..., 1] - location[..., 0])

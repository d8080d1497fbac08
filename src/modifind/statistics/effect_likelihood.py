r"""The effect-likelihood test: does the difference between the arms follow this feature, given all others?

A cross-fitted model gives the location mu_a(x) and the scale sigma_a(x) of the outcome in both arms. Only their
*contrasts* are tested: ``D(x) = mu_1(x) - mu_0(x)`` and ``d(x) = log sigma_1(x) - log sigma_0(x)``. What the arms share
is held still at the observed row: the common location ``b = (1 - s) mu_0 + s mu_1``, s the treated arm's share of the
precision, and the common log-scale ``c``, midway.

For feature m let V be drawn from its distribution given the other features and the treatment, tilted to where both arms
are (`samplers.overlap`), let D(v) and d(v) be the contrasts of a row whose m-th feature is v, and let Dbar and dbar be
their means over V: the contrasts if the feature modified nothing. A row's residual u is that of its outcome at location
``b + (a - s) Dbar`` and log-scale ``c + (a - 1/2) dbar``, Dbar and dbar taken as far as held-out rows bear them out
(`arms.ArmTraits`). With e the propensity score, K the precision of a contrast of locations, w u the score of a
Student-t location and f_q the density of residuals whose log-scale is q,

    l(v) = (a - e)/2 [ K sigma w u (D(v) - Dbar) + log f_{q/2}(u) - log f_{-q/2}(u) ],    q = d(v) - dbar.

The first term is the score of the contrast of locations, the second the log-likelihood ratio of a residual that is
wider in one arm against one that is wider in the other, less its mean over V. The statistic is T_m, the sum over rows
of l_i(x_im).

*The null hypothesis* is that the difference between the arms' outcome distributions does not depend on X_m given the
other features. Two things make T centred under it, whatever the noise does. Where the treatment does nothing, residuals
of both arms have one distribution given x, and ``a - e`` has mean zero whatever that distribution is. And where the
outcome is independent of X_m given the rest, x_im is a draw from the distribution of V_i. In between errors of D count
with the information on it, so that Dbar is the mean under the distribution of V weighted by K(V). The tail is that of
the sum of independent variables ``l_i(V_i)``; where rows vary more than that, as they do about a feature that moves
both arms, their own variance is taken.

A binary outcome has no scale: its statistic is the first term with ``K (y - p)`` for ``K sigma w u``, the score of the
Bernoulli likelihood for a difference of risks.

With sample weights the terms are ``w_i l_i``, models and distributions are weighted too, and rows of a cluster stay in
one fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modifind._torch import check_device, import_torch
from modifind._typing import Array
from modifind.data.clusters import check_takes_weights
from modifind.data.feature_groups import Feature, columns_of, encode
from modifind.data.feature_matrix import FeatureTable
from modifind.data.survey import effective_size, mean_of, some
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.outcome.marginal import marginal_log_likelihood
from modifind.nuisance.outcome.stacking import (
    CrossFit,
    TrainingRows,
    cross_fit,
    describe,
    log_likelihood,
    own_arm,
    resolve_learners,
)
from modifind.nuisance.regression.density import student_weight
from modifind.nuisance.regression.misfit import Misfit
from modifind.statistics.arms import ArmTraits, CommonPart, contrast_precision, contrasts, variances
from modifind.statistics.contract import Nuisances, Statistic
from modifind.statistics.level_groups import LevelGroups
from modifind.statistics.reuse import Reuse
from modifind.statistics.shape import N_SCORES, TailSums, ValueFunctions, residual_scores

LEAST_EXCESS = 1e-3
SMALLEST = 1e-300  # p-value
BLOCK_CELLS = 2**17  # rows times grid points evaluated at a time
REUSE_ROWS = 250
SIGN = 0.1  # p-value
NO_MODIFICATION = "the difference between the arms' outcome distributions does not depend on the feature"
# Which contrasts move along the grid, of locations and of scales, in the statistic and in its two parts. In the last
# the prediction for the row's own arm moves: an ordinary held-out likelihood, of whether the outcome follows the
# feature.
Part: TypeAlias = tuple[bool, bool]
WHOLE, MEAN, SPREAD, OUTCOME = (True, True), (True, False), (False, True), (False, False)


class EffectLikelihood(Statistic):
    """Held-out log-likelihood of the treatment effect as the test statistic of a `ModifierSelector`.

    Finds what changes the difference between the arms: that of their locations, and the ratio of their scales. What
    moves both arms alike, in location or in spread, is not found. P-values come from the null mean and variance of the
    statistic and a saddlepoint tail; the folds of the cross-fitting are all that is random.

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
    >>> data = make_modifiers("LinVar", n_samples=1000, n_features=6, random_state=0)
    >>> selector = ModifierSelector(EffectLikelihood(learner="linear"), sampler="gaussian", random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).get_feature_names_out().tolist()
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    name = "effect_likelihood"
    null_hypothesis = NO_MODIFICATION
    resamples = False
    in_pieces = takes_weights = takes_missing = takes_clusters = takes_feature_groups = True

    def __init__(
        self, learner: Any = "auto", *, cv_repeats: int = 1, check_resamples: int = 0, device: str = "cpu"
    ) -> None:
        self.learner = learner
        self.cv_repeats = cv_repeats
        self.check_resamples = check_resamples
        self.device = device

    def with_stack(self, prepared: PreparedEffectLikelihood | None) -> EffectLikelihood:
        """The same with the learners that another cross-fit of the same rows took, where it was to choose."""
        if self.learner != "auto" or prepared is None:
            return self
        taken = [name for name, share in prepared.shares.items() if share > 0]
        return EffectLikelihood(
            taken, cv_repeats=self.cv_repeats, check_resamples=self.check_resamples, device=self.device
        )

    def check(self) -> None:
        """Refuse counts that are none."""
        for name, least in (("cv_repeats", 1), ("check_resamples", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")

    def validate(self, outcome: Array, *, weighted: bool = False) -> None:
        """Refuse settings that have no meaning for this outcome, and learners that take no weights where there are."""
        self.check()
        check_device(self.device)
        if self.device != "cpu":
            import_torch(self.device, "EffectLikelihood(device=...)")
        for learner in resolve_learners(self.learner, binary=is_binary(outcome), device=self.device).values():
            if weighted:
                check_takes_weights(learner, "learner")

    def prepare(self, nuisances: Nuisances) -> PreparedEffectLikelihood:
        """Cross-fit the model of the outcome, once for every set of folds."""
        return self.for_rows(
            nuisances.table,
            nuisances.outcome,
            nuisances.arms,
            nuisances.scores,
            list(nuisances.folds),
            n_jobs=nuisances.n_jobs,
            weights=nuisances.weights,
            clusters=nuisances.clusters,
        )

    def for_rows(
        self,
        table: FeatureTable,
        y: Array,
        treatment: NDArray[np.int64],
        scores: Array,
        folds: list[NDArray[np.int64]],
        *,
        n_jobs: int | None = None,
        weights: Array | None = None,
        clusters: NDArray[np.int64] | None = None,
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
        clusters : int array of shape (n,), optional
            Which rows belong together; the folds must keep them so.
        """
        binary = is_binary(y)
        outcome = (y == y.max()).astype(np.float64) if binary else y
        candidates = resolve_learners(self.learner, binary=binary, device=self.device)
        fits = []
        for own in folds:
            rows = TrainingRows(table.design, treatment, outcome, own, binary, weights, table.gaps, table.coded)
            fit = cross_fit(candidates, rows, n_jobs)
            traits = ArmTraits.of(fit, outcome, treatment, scores, binary, weights)
            fits.append(_Fit.of(fit, traits, table.design, outcome, treatment, scores, binary))
        return PreparedEffectLikelihood(table, outcome, treatment, binary, tuple(fits), weights, clusters)


def is_binary(y: Array) -> bool:
    """Whether an outcome has two values."""
    return bool(((y == y.min()) | (y == y.max())).all())


@dataclass(frozen=True)
class _Fit:
    """One cross-fit and what follows from it for every row.

    Attributes
    ----------
    lead : array of shape (n,)
        Half of treatment less propensity score: the sign and weight of a row in a comparison of the arms.
    contrasts : tuple of two arrays of shape (n,)
        Differences of the arms' locations and of their log-scales at the observed row.
    log_likelihood : array of shape (n,)
        Of the observed outcomes.
    index : tuple
        What the learners of each fold can reuse from feature to feature.
    """

    cross: CrossFit
    traits: ArmTraits
    common: CommonPart
    lead: Array
    contrasts: tuple[Array, Array]
    log_likelihood: Array
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
        own = log_likelihood(
            y, own_arm(cross.location, a), own_arm(cross.scale, a), np.array(traits.shapes)[a], binary=binary
        )
        return cls(
            cross,
            traits,
            CommonPart.of(cross.location, cross.scale, scores, binary),
            (a - scores) / 2,
            contrasts(cross.location, cross.scale),
            own,
            tuple(model.index(X[cross.folds == fold]) for fold, model in enumerate(cross.models)),
        )


@dataclass(frozen=True)
class RowTerms:
    """What every row adds to the statistic, or to one of its parts.

    Attributes
    ----------
    observed : array of shape (n,)
        At the observed value of the feature.
    tails : array of shape (n, 2)
        Scores of the same residuals for the component for tails and shape; see `tails.TailSums`.
    values : array of shape (n, g)
        At the points of its distribution, less their mean under the distribution.
    """

    observed: Array
    tails: Array
    values: Array


@dataclass(frozen=True)
class PreparedEffectLikelihood:
    """The statistic for one table, to be tested at any feature.

    Attributes
    ----------
    weights, clusters : arrays of shape (n,), optional
        How much each row counts, and which rows belong together.
    """

    table: FeatureTable
    y: Array
    treatment: NDArray[np.int64]
    binary: bool
    fits: tuple[_Fit, ...]
    weights: Array | None = None
    clusters: NDArray[np.int64] | None = None

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
    def shares(self) -> dict[str, float]:
        """Weights of the learners in the stack, averaged over repeats."""
        crosses = [fit.cross for fit in self.fits]
        names = dict.fromkeys(name for cross in crosses for name in cross.weights)
        return {name: float(np.mean([cross.weights.get(name, 0.0) for cross in crosses])) for name in names}

    @property
    def description(self) -> dict[str, Any]:
        """The stack that was used, for the record."""
        crosses = [fit.cross for fit in self.fits]
        shares = self.shares
        scores = {
            name: float(np.mean([cross.log_scores[name] for cross in crosses if name in cross.log_scores]))
            for name in shares
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
        own = np.mean([fit.log_likelihood for fit in self.fits], axis=0)
        return float(mean_of(own - np.mean(plain, axis=0), self.weights))

    def looks_at(self, feature: Feature) -> bool:
        """Whether the model of any fold looks at a feature; the statistic does not depend on one that none does."""
        columns = columns_of(self.table, feature)
        return any(model.looks_at(columns) for fit in self.fits for model in fit.cross.models)

    def fold_variances(self, values: Array, weights: Array) -> list[Array]:
        """Null variance of each fold's sum, for every repeat."""
        per_row = np.einsum("ij,ij,ij->i", values, values, weights)
        return [
            np.bincount(f.cross.folds, per_row, minlength=len(f.cross.models)).astype(np.float64) for f in self.fits
        ]

    def reuse(self, feature: Feature, grid: RowGrid, *parts: Part) -> list[Reuse]:
        """How far the models of different folds agree about a feature: the variance that their folds' sums share.

        Rows are independent given the models, but a chance pattern that two folds have in common raises the sum of
        both: one fold's model has learned it from the other. With many ways for a feature to matter by chance this
        doubles the variance of the total; with a single one it does nothing, since the pattern then only decides the
        sign. Which of the two, the models of different folds tell. They share (K - 2) / (K - 1) of their rows, so what
        they learned from noise agrees that far; an effect, or a single way to matter, agrees fully, and patterns that
        have nothing in common cannot have taught each other. The variance is evaluated on a sample of the rows and
        averaged over repeats, for each of the statistic's parts (see `terms`).
        """
        products = [self._products(fit, feature, grid, parts) for fit in self.fits]
        return [Reuse(tuple(own[k] for own in products)) for k in range(len(parts))]

    def _products(self, fit: _Fit, feature: Feature, grid: RowGrid, parts: tuple[Part, ...]) -> list[Array]:
        """Inner products of what the folds' models make of the feature."""
        rows = np.linspace(0, self.y.size - 1, min(REUSE_ROWS, self.y.size)).astype(np.int64)
        points, weights = grid.at(rows)
        encoded = encode(self.table, feature, points)
        location_lead, scale_lead = (lead[rows, None] for lead in self._leads(fit))
        patterns: list[list[Array]] = [[] for _ in parts]
        for model in fit.cross.models:
            location, scale = model.along(self.table.design[rows], columns_of(self.table, feature), encoded)
            apart = contrasts(location, scale)
            by_location, by_scale = location_lead * apart[0], scale_lead * apart[1]
            for found, part in zip(patterns, parts, strict=True):
                if part == OUTCOME:
                    pattern = self._own_log_likelihood(fit, rows, location, scale)
                else:
                    pattern = {WHOLE: by_location + by_scale, MEAN: by_location, SPREAD: by_scale}[part]
                pattern = pattern - np.einsum("ij,ij->i", pattern, weights)[:, None]
                if self.weights is not None:
                    pattern *= self.weights[rows, None]
                found.append((pattern * np.sqrt(weights)).ravel())
        return [np.array(found) @ np.array(found).T for found in patterns]

    def _leads(self, fit: _Fit) -> tuple[Array, Array]:
        """How much a small change of either contrast changes what each row adds, at the row's own prediction."""
        own = own_arm(fit.cross.location, self.treatment)
        if self.binary:
            return fit.lead * fit.common.precision * (self.y - own), np.zeros(own.size)
        scale = own_arm(fit.cross.scale, self.treatment)
        u = (self.y - own) / scale
        weight = student_weight(u, fit.traits.shape)
        return fit.lead * fit.common.precision * scale * weight * u, fit.lead * (weight * u**2 - 1.0)

    def terms(self, feature: Feature, grid: RowGrid, *parts: Part) -> tuple[tuple[RowTerms, ...], Array]:
        """What every row adds as a feature takes the points of its distribution, and the points' weights.

        Averaged over repeats of the cross-fitting, and times the weight of the row.

        Parameters
        ----------
        feature : int or tuple of int
            Place of the feature, or of the columns of a group.
        grid : RowGrid
            Its distribution.
        *parts : Part
            Which contrasts follow the points: both (`WHOLE`, by default), that of the locations (`MEAN`) or that of the
            scales (`SPREAD`). One that does not stays where the model has it at the row's own value. With `OUTCOME` the
            log-likelihood of the row's own arm follows.

        Returns
        -------
        terms : tuple of RowTerms
            One for each of the parts.
        weights : array of shape (n, g)
            The points' weights.
        """
        parts = parts or (WHOLE,)
        observed = np.zeros((len(parts), self.y.size))
        tails = np.zeros((len(parts), self.y.size, N_SCORES))
        values, weights = np.empty((len(parts), 0, 0)), np.empty((0, 0))
        columns = columns_of(self.table, feature)
        groups = self._groups(columns)
        for fit in self.fits:
            for fold, model in enumerate(fit.cross.models):
                members = np.flatnonzero(fit.cross.folds == fold)
                step = max(1, BLOCK_CELLS // max(grid.at(members[:1])[0].shape[1], 1))
                for start in range(0, members.size, step):
                    rows = members[start : start + step]
                    points, chances = grid.at(rows)
                    if groups is not None:
                        points, chances = groups.gather(rows, chances)
                    if not values.size:
                        values = np.zeros((len(parts), self.y.size, points.shape[1]))
                        weights = np.empty(values.shape[1:])
                    encoded = encode(self.table, feature, points)
                    known = tuple(None if part is None else part[start : start + step] for part in fit.index[fold])
                    location, scale = model.along(self.table.design[rows], columns, encoded, known)
                    for k, own in enumerate(self._rows_terms(fit, rows, location, scale, chances, parts)):
                        observed[k, rows] += own.observed / len(self.fits)
                        tails[k, rows] += own.tails / len(self.fits)
                        values[k, rows] += own.values / len(self.fits)
                    weights[rows] = chances
        if self.weights is not None:
            observed *= self.weights
            tails *= self.weights[:, None]
            values *= self.weights[:, None]
        return tuple(RowTerms(*own) for own in zip(observed, tails, values, strict=True)), weights

    def _groups(self, columns: slice) -> LevelGroups | None:
        """Levels that a row's models cannot tell apart, where the feature is a category of many."""
        alike: list[list[NDArray[np.intp]]] = []
        for fit in self.fits:
            found = [model.alike(columns) for model in fit.cross.models]
            alike.append([part for part in found if part is not None])
        return LevelGroups.of(alike, [fit.cross.folds for fit in self.fits]) if alike[0] else None

    def _rows_terms(
        self,
        fit: _Fit,
        rows: NDArray[np.int64],
        location: Array,
        scale: Array,
        chances: Array,
        parts: tuple[Part, ...],
    ) -> list[RowTerms]:
        """The same for some rows, from the predictions of both arms at the points, shape (rows, g, 2)."""
        own, along = [contrast[rows] for contrast in fit.contrasts], contrasts(location, scale)
        scores = self.treatment[rows] - 2 * fit.lead[rows]
        information = chances * contrast_precision(variances(location, scale, self.binary), scores[:, None])
        means = [np.einsum("ij,ij->i", contrast, chances) for contrast in along]
        # Errors of the contrast count as much as there is information on it, so that its null value is the mean under
        # the distribution weighted by that: where a feature changes the spread of both arms the two means differ.
        centre = np.einsum("ij,ij->i", along[0], information) / information.sum(axis=1)
        found = []
        for part in parts:
            if part == OUTCOME:
                values = self._own_log_likelihood(fit, rows, location, scale)
                mean = np.einsum("ij,ij->i", values, chances)
                observed = fit.log_likelihood[rows] - mean
                found.append(RowTerms(observed, np.zeros((rows.size, N_SCORES)), values - mean[:, None]))
                continue
            moves_location, moves_scale = part
            null = centre if moves_location else own[0], means[1] if moves_scale else own[1]
            residual, lead = self._residual(fit, rows, *null)
            observed, values = np.zeros(rows.size), np.zeros(chances.shape)
            if moves_location:
                observed += lead * (own[0] - centre)
                values += lead[:, None] * (along[0] - means[0][:, None])
            if moves_scale and not self.binary:
                here, there = own[1] - means[1], along[1] - means[1][:, None]
                shape, side = fit.traits.shape, fit.lead[rows]
                ratios = _scale_score(residual[:, None], there, shape)
                mean = np.einsum("ij,ij->i", ratios, chances)
                observed += side * (_scale_score(residual, here, shape) - mean)
                values += side[:, None] * (ratios - mean[:, None])
            found.append(RowTerms(observed, self._tails(fit, rows, residual), values))
        return found

    def _own_log_likelihood(self, fit: _Fit, rows: NDArray[np.int64], location: Array, scale: Array) -> Array:
        """Log-likelihood of the row's own outcome at predictions of both arms, shape (rows, g, 2)."""
        own, arm = np.arange(rows.size), self.treatment[rows]
        shape = np.array(fit.traits.shapes)[arm, None]
        return log_likelihood(self.y[rows, None], location[own, :, arm], scale[own, :, arm], shape, binary=self.binary)

    def _residual(self, fit: _Fit, rows: NDArray[np.int64], *apart: Array) -> tuple[Array, Array]:
        """Residuals at given contrasts of the arms, and the lead of a contrast of locations; see `arms.residuals`."""
        common = fit.common.at(rows)
        residual, unit = fit.traits.residuals(common, self.y[rows], self.treatment[rows], *apart)
        lead = fit.lead[rows] * common.precision * unit
        return residual, lead * residual * (1.0 if self.binary else student_weight(residual, fit.traits.shape))

    def _tails(self, fit: _Fit, rows: NDArray[np.int64], residual: Array) -> Array:
        """Scores of residuals less their arm's mean, with the sign and weight of the row's arm."""
        return 2 * fit.lead[rows, None] * (residual_scores(residual) - fit.traits.scores[self.treatment[rows]])

    @cached_property
    def tail_scores(self) -> Array:
        """The same of all rows at the models' own contrasts, averaged over repeats and times the weight of the row."""
        rows = np.arange(self.y.size)
        found = [self._tails(fit, rows, self._residual(fit, rows, *fit.contrasts)[0]) for fit in self.fits]
        return np.mean(found, axis=0) * (1.0 if self.weights is None else self.weights[:, None])

    def tail_functions(self, feature: Feature) -> ValueFunctions | None:
        """What the component for tails and shape looks at along a feature; None where there is nothing to test."""
        functions = ValueFunctions.of(self.table, self.treatment, feature)
        return None if self.binary or not functions.parts else functions

    def tail_test(self, scores: Array, excess: Array, clusters: NDArray[np.int64] | None = None) -> float:
        """P-value of the component for tails and shape, from scores of residuals and functions of the feature.

        Where rows of `clusters` share one value of the feature, they are not independent even if no one has said so.
        """
        own = clusters if self.clusters is None else self.clusters  # the larger ones
        return TailSums.of(scores, excess, own).p_value(self._freedom(own))

    @cached_property
    def _misfit(self) -> Misfit:
        return Misfit(self.table.design, self.weights)

    def conditional_test(self, feature: Feature, grid: RowGrid) -> float:
        """P-value of whether the distribution of a feature is off where it matters: along the arms' contrasts.

        Under a right distribution the excess of a row's contrast over its mean under the distribution, times |a - e|,
        has mean zero whatever the other features are. What it has left of them, times what the models of the contrast
        have left, is what a feature that modifies nothing gains by. Tested are sums over bins of the other features and
        of the contrast's mean, and over products of two features, for the location and for the scale.
        """
        excess, means = np.zeros((2, self.y.size)), np.zeros((2, self.y.size))
        columns = columns_of(self.table, feature)
        for fit in self.fits:
            for fold, model in enumerate(fit.cross.models):
                members = np.flatnonzero(fit.cross.folds == fold)
                step = max(1, BLOCK_CELLS // max(grid.at(members[:1])[0].shape[1], 1))
                for start in range(0, members.size, step):
                    rows = members[start : start + step]
                    points, chances = grid.at(rows)
                    encoded = encode(self.table, feature, points)
                    along = contrasts(*model.along(self.table.design[rows], columns, encoded))
                    for k, (contrast, own) in enumerate(zip(along, fit.contrasts, strict=True)):
                        mean = np.einsum("ij,ij->i", contrast, chances)
                        excess[k, rows] += np.abs(fit.lead[rows]) * (own[rows] - mean)
                        means[k, rows] += mean
        found = []
        for own, mean, unit in zip(excess, means, (float(self.y.std()), 1.0), strict=True):
            if own.std() > LEAST_EXCESS * unit * len(self.fits):  # less is nothing that a test could gain by
                variance = own**2 + 0.01 * own.var()  # rows of a fold that sees hardly anything decide nothing
                found.append(self._misfit.curve(own, variance, mean, columns))
                found.append(self._misfit.product(own, variance, columns))
        return max(min(min(found, default=1.0) * len(found), 1.0), SMALLEST)

    def may_show_tails(self, feature: Feature) -> bool:
        """Whether the same test gives a sign without a distribution of the feature, which takes time to fit.

        A feature that no model looks at is not tested where it does not: its p-value is 1 instead of a large one.
        """
        functions = self.tail_functions(feature)
        if functions is None:
            return False
        excess = functions.excess(self.table, None)
        for arm in (0, 1):
            own = self.treatment == arm
            excess[own] -= mean_of(excess[own], some(self.weights, own))
        return self.tail_test(self.tail_scores, excess) <= SIGN

    def _freedom(self, clusters: NDArray[np.int64] | None) -> float:
        """Degrees of freedom of a variance that rows or clusters tell; infinite for rows that count alike."""
        found = np.inf if self.weights is None else effective_size(self.weights) - 1.0
        return found if clusters is None else min(found, np.unique(clusters).size - 1.0)


def _scale_score(residual: Array, contrast: Array, shape: float) -> Array:
    """Log-density of residuals in the treated arm less that in the control arm, their log-scales `contrast` apart.

    The scales lie evenly on either side of 1, so that the score is odd in the contrast.
    """
    square, factor = residual**2 / shape, np.exp(contrast)
    return (shape + 1) / 2 * (np.log1p(square * factor) - np.log1p(square / factor)) - contrast

r"""The effect-likelihood test: does the difference between the arms follow this feature, given all others?

A cross-fitted model gives the location mu_a(x) and the scale sigma_a(x) of the outcome in both arms. Only their
*contrasts* are tested: ``D(x) = mu_1(x) - mu_0(x)`` and ``d(x) = log sigma_1(x) - log sigma_0(x)``. What the arms share
is held still at the observed row: the common location ``b = (1 - s) mu_0 + s mu_1``, s the treated arm's share of the
precision, and the common log-scale ``c``, midway.

For feature m let V be drawn from its distribution given the other features and the treatment, tilted to where both arms
are (`engine.sums`), let D(v) and d(v) be the contrasts of a row whose m-th feature is v, and let Dbar
and dbar be their means over V: those if the feature modified nothing. A row's residual u is that of its outcome at
location ``b + (a - s) Dbar`` and log-scale ``c + (a - 1/2) dbar``, Dbar and dbar taken as far as held-out rows bear
them out (`arms.ArmTraits`). With e the propensity score, K the precision of a contrast of locations, w u the score of a
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

That is for numbers and differences. Other families of outcomes, and other scales of effects, have other links: D is
then a contrast of ``eta = g(mu)``, and ``K (y - mu) / mu'(eta)`` takes the place of ``K sigma w u``, which is the score
of D when what the arms share is free. A family without a scale has the first term only (`families`).

With sample weights the terms are ``w_i l_i``, models and distributions are weighted too, and rows of a cluster stay in
one fold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from modifind._torch import check_device, import_torch
from modifind.data.weights import check_takes_weights
from modifind.nuisance.outcome.contract import observed_arm
from modifind.nuisance.outcome.learners import resolve_learners
from modifind.nuisance.outcome.stacking import OutcomeRows, cross_fit
from modifind.statistics.arms import ArmTraits
from modifind.statistics.contract import Nuisances, Statistic
from modifind.statistics.families import Family, family_of
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.row_terms import ArmFit

NO_MODIFICATION = "the difference between the arms' outcome distributions does not depend on the feature"


class EffectLikelihood(Statistic):
    """Held-out log-likelihood of the treatment effect as the test statistic of a `ModifierSelector`.

    Finds features that change the difference between the arms' locations or the ratio of their scales. A feature that
    changes both arms alike, in location or in spread, is not found. P-values come from the null mean and variance of
    the statistic and a saddlepoint tail; only the folds of the cross-fitting are random.

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
    tail = "analytic"
    in_pieces = takes_weights = takes_missing = takes_clusters = takes_feature_groups = needs_treatment = True

    def __init__(
        self, learner: Any = "auto", *, cv_repeats: int = 1, check_resamples: int = 0, device: str = "cpu"
    ) -> None:
        self.learner = learner
        self.cv_repeats = cv_repeats
        self.check_resamples = check_resamples
        self.device = device

    def repeated(self, prepared: PreparedEffectLikelihood, nuisances: Nuisances) -> PreparedEffectLikelihood | None:
        """The same with further cross-fits, where "auto" uses the learners chosen by the first one.

        None if cross-fits are repeated anyway.
        """
        if self.cv_repeats > 1:
            return None
        taken = [name for name, share in prepared.shares.items() if share > 0]
        again = clone(self).set_params(learner=taken if self.learner == "auto" else self.learner)
        return replace(prepared, fits=(*prepared.fits, *again.prepare(nuisances).fits))

    def check(self) -> None:
        """Refuse invalid counts."""
        for name, least in (("cv_repeats", 1), ("check_resamples", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")

    def validate(self, family: Family, *, weighted: bool = False) -> None:
        """Refuse learners that do not suit the family or, with weights, do not support them."""
        self.check()
        check_device(self.device)
        if self.device != "cpu":
            import_torch(self.device, "EffectLikelihood(device=...)")
        for learner in self._learners(family).values():
            if weighted:
                check_takes_weights(learner, "learner")

    def _learners(self, family: Family) -> dict[str, Any]:
        return resolve_learners(self.learner, family.learners or family.kind, device=self.device)

    def prepare(self, nuisances: Nuisances) -> PreparedEffectLikelihood:
        """Cross-fit the outcome model, once for every set of folds."""
        table, treatment, scores, weights = nuisances.table, nuisances.arms, nuisances.scores, nuisances.weights
        family = nuisances.family or family_of(nuisances.outcome)
        y = family.coded(nuisances.outcome)
        candidates, fits = self._learners(family), []
        for folds in nuisances.folds:
            rows = OutcomeRows(table.design, treatment, y, folds, weights, table.gaps, table.coded)
            cross = cross_fit(candidates, rows, family, nuisances.n_jobs)
            fitted = family.fitted(
                y, observed_arm(cross.location, treatment), observed_arm(cross.scale, treatment), weights
            )
            traits = ArmTraits.of(fitted, cross, y, treatment, scores, weights)
            fits.append(ArmFit.of(cross, traits, table.design, y, treatment, scores))
        return PreparedEffectLikelihood(table, y, treatment, tuple(fits), weights, nuisances.clusters)

"""Distributions of features with missing values: whether a value is there, and which one if it is.

The feature is missing with a probability that the other features and the treatment tell, by the sampler's own
distribution of a discrete feature. If it is not missing, its value follows the sampler's distribution of a continuous
feature, learned from the rows that have one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import named
from modifind.nuisance.conditional.auto import AutoSampler
from modifind.nuisance.conditional.boosting import BoostingSampler
from modifind.nuisance.conditional.contract import Calibration, ConditionalRule, Rows, without_rows
from modifind.nuisance.conditional.cvae import CVAESampler
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.nuisance.conditional.grid import Distribution, quantiles_of_rows
from modifind.nuisance.conditional.rules import LearnedRule
from modifind.nuisance.conditional.sampler import BaseSampler, fit_copy
from modifind.nuisance.regression.screening import has_many_columns

N_PARTS = 20  # a multiple of the folds of all samplers
KNOWN_SHARE = 0.9  # of perfect prediction, above which other columns tell which values are missing
MIN_ARM_VALUES = 5  # values of an arm from which it has a say
PRESENCE = ("observed", "missing")


@dataclass(frozen=True)
class IncompleteConditional(Distribution):
    """Missing with a probability per row, else drawn from the distribution of the values.

    Attributes
    ----------
    chance : array of shape (n,)
        Probability that the value is missing.
    value : Distribution
        Distribution of the value if there is one.
    """

    chance: Array
    value: Any
    calibration: Calibration

    def __len__(self) -> int:
        return self.chance.size

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns, NaN where missing."""
        draws = np.empty((n_draws, len(self)))
        for column in draws:
            missing = rng.random(len(self)) < self.chance
            column[:] = np.where(missing, np.nan, self.value.draw(rng, 1)[0])
        return draws

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n); missing ones come first."""
        missing = levels < self.chance
        left = (levels - self.chance) / np.where(self.chance < 1.0, 1.0 - self.chance, 1.0)
        return np.where(missing, np.nan, quantiles_of_rows(self.value, np.clip(left, 0.0, 1.0 - 2.0**-53)))

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """The points of the value's distribution, and NaN with the probability that it is missing."""
        points, weights = self.value.grid(rows)
        chance = self.chance[rows, None]
        points = np.concatenate((points, np.full(chance.shape, np.nan)), axis=1)
        return points, np.concatenate(((1.0 - chance) * weights, chance), axis=1)


@dataclass(frozen=True)
class IncompleteRule(LearnedRule):
    """The distribution of an incomplete feature for any rows.

    Attributes
    ----------
    feature : int
        Position of the feature.
    presence : ConditionalRule or None
        Distribution of whether the value is missing; None where that is taken as it is, because other columns tell it.
    value : ConditionalRule
        Distribution of the value if there is one.
    """

    feature: int
    presence: ConditionalRule | None
    value: ConditionalRule

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> IncompleteConditional:
        """The distribution of some rows."""
        chance = (~table.observed(self.feature)).astype(np.float64)
        if self.presence is not None:
            chance = self.presence.conditional(table, treatment, parts).grid(slice(None))[1][:, 1]
        return IncompleteConditional(chance, self.value.conditional(table, treatment, parts), self.calibration)


class IncompleteSampler(BaseSampler):
    """A sampler for tables in which continuous features have missing values.

    Complete features are left to the sampler, which sees of the others the value, at its mean where missing, and an
    indicator. (Another constant than the mean would move the indicator's slope and nothing else, up to the penalty.)
    Where columns are many, the gaussian sampler and "auto" leave incomplete features to the boosting sampler, whose
    work is per feature. Theirs is shared by all features of a table, but each incomplete one has rows of its own.

    Parameters
    ----------
    sampler : BaseSampler
        The sampler.
    """

    name = "incomplete"

    def __init__(self, sampler: BaseSampler) -> None:
        super().__init__(condition_on_treatment=getattr(sampler, "condition_on_treatment", True))
        self.sampler = sampler

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Fit the sampler for the complete features."""
        table = self.table_
        inner_seed, fold_seed = seed.spawn(2)
        self.parts_ = self._folds(N_PARTS, np.random.default_rng(fold_seed))
        if len(table.incomplete) < table.n_features:
            rows = table, self.treatment_, inner_seed, self.weights_.scaled
            self.complete_ = fit_copy(self.sampler, *rows, self.assigned_folds_, self.whole_clusters_)

    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature, for any rows."""
        table = self.table_
        if feature not in table.incomplete:
            return self.complete_.rule(feature)
        observed = table.observed(feature)
        first, second = self.seeds_[feature].spawn(2)
        rest = table.incomplete - {feature}
        codes = table.values.copy()
        codes[:, feature] = ~observed
        kinds = (*table.categories[:feature], PRESENCE, *table.categories[feature + 1 :])
        coded = replace(table, values=codes, categories=kinds, incomplete=rest, reference=table.scaling)
        valued = replace(table, values=table.values[observed], incomplete=rest, reference=table.scaling)
        presence: ConditionalRule | None = self._rule_of(coded, np.ones_like(observed), feature, first)
        value = self._rule_of(valued, observed, feature, second)
        assert presence is not None
        if presence.calibration.explained_share > KNOWN_SHARE:
            presence = None
        # Held-out log-score of presence and value together; the rest is that of the value.
        gain = float(self.weights_.mean(observed.astype(np.float64)) * value.calibration.log_score_gain)
        gain += 0.0 if presence is None else presence.calibration.log_score_gain
        rule = IncompleteRule(feature, presence, value, calibration=replace(value.calibration, log_score_gain=gain))
        return replace(rule, fitted=rule.conditional(table, self.treatment_, self.parts_))

    def _rule_of(
        self, table: FeatureTable, rows: NDArray[np.bool_], feature: int, seed: np.random.SeedSequence
    ) -> ConditionalRule:
        """The rule of one feature, from a sampler of its own that sees some rows."""
        settings: dict[str, Any] = {}
        sampler, treatment = self.sampler, self.treatment_[rows]
        if has_many_columns(*table.design.shape) and isinstance(sampler, AutoSampler | GaussianSampler):
            sampler = BoostingSampler(condition_on_treatment=self.condition_on_treatment)
        if np.bincount(treatment, minlength=2).min() < MIN_ARM_VALUES and isinstance(sampler, BaseSampler):
            settings = {"condition_on_treatment": False}  # an arm of so few values says nothing of its own
        known = table, treatment, seed, self.weights_[rows].scaled, self.parts_[rows], self.whole_clusters_
        return without_rows(fit_copy(sampler, *known, **settings).rule(feature))


def for_gaps(sampler: BaseSampler, table: FeatureTable) -> BaseSampler:
    """The sampler itself, or where continuous features have missing values one that has distributions for them too."""
    if not table.incomplete:
        return sampler
    if isinstance(sampler, CVAESampler) or not getattr(sampler, "learns", False):
        gaps = named(table.names[m] for m in sorted(table.incomplete))
        raise ValueError(
            f"{type(sampler).__name__} has no distribution for continuous features with missing values ({gaps}); use "
            "sampler='auto', or missing='drop'"
        )
    return IncompleteSampler(sampler)

"""The effect-likelihood statistic prepared for one table: sums over rows, and what else their tests need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters
from modifind.data.features import Feature, FeatureTable, columns_of, encode
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.outcome.contract import marginal_log_likelihood
from modifind.nuisance.outcome.stacking import describe
from modifind.nuisance.regression.screening import Misfit
from modifind.statistics.arms import contrasts
from modifind.statistics.contract import Nuisances, PreparedTerms, Terms
from modifind.statistics.direct import DirectTerms, Scores, ValueFunctions
from modifind.statistics.families import Family
from modifind.statistics.row_terms import (
    MEAN,
    OUTCOME,
    SPREAD,
    WHOLE,
    ArmFit,
    LevelGroups,
    Part,
    Reuse,
    RowTerms,
    along_grid,
)

LEAST_EXCESS = 1e-3
SMALLEST = 1e-300  # p-value
REUSE_ROWS = 250
SHAPES = ("tails", "skewness", "modes")
PARTS = {"test": WHOLE, "outcome": OUTCOME, "mean": MEAN, "spread": SPREAD}


@dataclass(frozen=True)
class PreparedEffectLikelihood(PreparedTerms):
    """The statistic prepared for one table, to be tested at any feature.

    Attributes
    ----------
    weights, clusters : Weights, Clusters
        How much each row counts, and which rows belong together.
    functions : mapping
        What the direct component looks at along features, where other rows have told it.
    """

    table: FeatureTable
    y: Array
    treatment: Ints
    fits: tuple[ArmFit, ...]
    weights: Weights
    clusters: Clusters
    functions: Mapping[Feature, ValueFunctions | None] = field(default_factory=dict)
    tests_changes = True

    def at(self, rows: Nuisances) -> PreparedEffectLikelihood:
        """The same models for other, unseen rows; folds say which model scores a row."""
        design, y, fits = rows.table.design, self.family.coded(rows.outcome), []
        for fit, folds in zip(self.fits, rows.folds, strict=True):
            cross = fit.cross.at(design, folds)
            fits.append(ArmFit.of(cross, fit.traits, design, y, rows.arms, rows.scores))
        known = rows.table, y, rows.arms, tuple(fits), rows.weights, rows.clusters
        return PreparedEffectLikelihood(*known, self.functions)

    def with_directions(self, features: Sequence[Feature]) -> PreparedEffectLikelihood:
        """The same statistic with the functions of some features for the direct component fixed by these rows."""
        return replace(self, functions={feature: self.direct_functions(feature) for feature in features})

    @property
    def family(self) -> Family:
        """The family of the outcome."""
        return self.fits[0].traits.family

    @property
    def shares(self) -> dict[str, float]:
        """Weights of the learners in the stack, averaged over repeats."""
        crosses = [fit.cross for fit in self.fits]
        names = dict.fromkeys(name for cross in crosses for name in cross.weights)
        return {name: float(np.mean([cross.weights.get(name, 0.0) for cross in crosses])) for name in names}

    @property
    def description(self) -> dict[str, Any]:
        """Description of the stack for the record."""
        crosses = [fit.cross for fit in self.fits]
        shares = self.shares
        scores = {
            name: float(np.mean([cross.log_scores[name] for cross in crosses if name in cross.log_scores]))
            for name in shares
        }
        return {
            "likelihood": self.family.name,
            "n_folds": len(crosses[0].models),
            "stack": describe(shares),
            "held_out_log_likelihood": scores,
            "gain_over_marginal": self.gain_over_marginal,
        }

    @property
    def gain_over_marginal(self) -> float:
        """Held-out log-likelihood per row, in nats, in excess of each arm's marginal distribution."""
        least = min(model.least_scale for fit in self.fits for model in fit.cross.models)
        plain = [
            marginal_log_likelihood(
                self.y, self.treatment, fit.cross.folds, family=self.family, least_scale=least, weights=self.weights
            )
            for fit in self.fits
        ]
        own = np.mean([fit.log_likelihood for fit in self.fits], axis=0)
        return float(self.weights.mean(own - np.mean(plain, axis=0)))

    def looks_at(self, feature: Feature) -> bool:
        """Whether the model of any fold uses a feature; otherwise the statistic does not depend on it."""
        columns = columns_of(self.table, feature)
        return any(model.looks_at(columns) for fit in self.fits for model in fit.cross.models)

    def reuse(self, feature: Feature, distribution: RowGrid, *parts: str) -> dict[str, Reuse]:
        """Variance shared by the folds' sums, because models of different folds agree about a feature.

        Rows are independent given the models, but a chance pattern common to two folds raises the sum of both: one
        fold's model has learned it from the other. If a feature can matter by chance in many ways, this doubles the
        variance of the total; with a single way it does nothing, since the pattern then only decides the sign. The
        models of different folds show which applies. They share (K - 2) / (K - 1) of their rows, so what they learned
        from noise agrees to that extent; an effect, or a single way to matter, agrees fully, and patterns with nothing
        in common cannot have been learned from each other. The variance is evaluated on a sample of the rows and
        averaged over repeats, for each of the statistic's parts (see `terms`).
        """
        rows, known = self._sampled
        # Without a scale the contrast of the locations is the whole.
        moving = {name: PARTS[name] if self.family.has_scale or name == "outcome" else WHOLE for name in parts}
        distinct = tuple(dict.fromkeys(moving.values()))
        products = [
            self._products(fit, rows, index, feature, distribution, distinct)
            for fit, index in zip(self.fits, known, strict=True)
        ]
        return {name: Reuse(tuple(own[distinct.index(part)] for own in products)) for name, part in moving.items()}

    @cached_property
    def _sampled(self) -> tuple[Ints, list[list[tuple[Array | None, ...]]]]:
        """The rows used by `reuse`, and the parts of each cross-fit that do not depend on the feature."""
        rows = np.linspace(0, self.y.size - 1, min(REUSE_ROWS, self.y.size)).astype(np.int64)
        X = self.table.design[rows]
        return rows, [[model.index(X) for model in fit.cross.models] for fit in self.fits]

    def _products(
        self,
        fit: ArmFit,
        rows: Ints,
        known: list[tuple[Array | None, ...]],
        feature: Feature,
        grid: RowGrid,
        parts: tuple[Part, ...],
    ) -> list[Array]:
        """Inner products between folds of what their models learned about the feature."""
        points, weights = grid.at(rows)
        where = self.table.design[rows], columns_of(self.table, feature), encode(self.table, feature, points)
        location_lead, scale_lead = (lead[rows, None] for lead in fit.leads())
        patterns: list[list[Array]] = [[] for _ in parts]
        for model, index in zip(fit.cross.models, known, strict=True):
            location, scale = model.along(*where, index)
            apart = contrasts(self.family, location, scale)
            by_location, by_scale = location_lead * apart[0], scale_lead * apart[1]
            for found, part in zip(patterns, parts, strict=True):
                if part == OUTCOME:
                    pattern = fit.own_log_likelihood(rows, location, scale)
                else:
                    pattern = {WHOLE: by_location + by_scale, MEAN: by_location, SPREAD: by_scale}[part]
                pattern = pattern - np.einsum("ij,ij->i", pattern, weights)[:, None]
                found.append((self.weights[rows].times(pattern) * np.sqrt(weights)).ravel())
        return [np.array(found) @ np.array(found).T for found in patterns]

    def terms(self, feature: Feature, distribution: RowGrid, *, parts: bool = False) -> Terms:
        """Contributions of every row to the test and to the test of whether the outcome follows the feature.

        With `parts` also to the tests of what the feature changes. For a feature that no model uses there are only
        directions, at the models' own contrasts.
        """
        scores, informed, known, n_rows = self.direct_scores, None, None, self.y.size
        terms = Terms(np.zeros(n_rows), np.zeros((n_rows, 1)), np.ones((n_rows, 1)))
        if self.looks_at(feature):
            changes = {"mean": MEAN, "spread": SPREAD} if parts and self.family.has_scale else {}
            (whole, *rest), weights = self.row_terms(feature, distribution, WHOLE, OUTCOME, *changes.values())
            summed = {
                name: (part.observed, part.values) for name, part in zip(("outcome", *changes), rest, strict=True)
            }
            if parts and not changes:
                summed["mean"] = whole.observed, whole.values
            terms = Terms(whole.observed, whole.values, weights, summed)
            scores, informed, known = replace(scores, values=whole.direct), whole.informed, weights
        functions = self.direct_functions(feature)
        if functions is None:
            return terms
        gathered = any(m in self.table.level_columns for m in functions.columns)
        # What levels of a category of many tell of a contrast is known by groups of them alone.
        excess = functions.excess(self.table, distribution, *((None, None) if gathered else (informed, known)))

        directions = {"test": DirectTerms.along(scores.only(*scores.names[gathered:]), excess, functions.blocks)}
        if parts and not gathered:
            directions["mean"] = DirectTerms.along(scores.only("location"), excess, functions.blocks)
        if parts and len(scores.names) > 1:
            shaped = self.fits[0].traits.ranks is not None
            free = (
                self.direct_scores if self.family.has_shape else scores
            )  # locations of numbers may follow the feature
            changed = free.only(*SHAPES) if shaped else free.only("scale")
            directions["shape" if shaped else "spread"] = DirectTerms.along(changed, excess[:, -1:], functions.blocks)
        return replace(terms, directions=directions)

    def row_terms(self, feature: Feature, grid: RowGrid, *parts: Part) -> tuple[tuple[RowTerms, ...], Array]:
        """Contributions of every row over the points of a feature's distribution, and the points' weights.

        They are averaged over repeats of the cross-fitting and multiplied by the weight of the row.

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
        observed = np.empty((len(parts), self.y.size))
        direct = np.zeros((self.y.size, len(self.fits[0].score_names)))
        values, weights = np.empty((len(parts), 0, 0)), np.empty((0, 0))
        informed: Array | None = None
        groups = self._groups(columns_of(self.table, feature))
        for fit, rows, chances, location, scale in along_grid(self.fits, self.table, feature, grid, groups):
            if not values.size:
                values = np.empty((len(parts), self.y.size, chances.shape[1]))
                weights = np.empty(values.shape[1:])
            for k, own in enumerate(fit.terms(rows, location, scale, chances, parts)):
                for total, part in ((observed, own.observed), (values, own.values)):
                    total[k, rows] = part if fit is self.fits[0] else total[k, rows] + part
                if own.informed is not None:
                    if informed is None:
                        informed = np.zeros((len(own.informed), *weights.shape))
                    direct[rows] += own.direct
                    informed[:, rows] += own.informed / len(self.fits)
            weights[rows] = chances
        factor = (self.weights.values / len(self.fits))[:, None]
        if not self.weights.uniform or len(self.fits) > 1:
            observed *= factor[:, 0]
            direct *= factor
            values *= factor
        each = zip(parts, observed, values, strict=True)
        none = np.empty((self.y.size, 0))
        return tuple(
            RowTerms(own, direct, along, informed) if part == WHOLE else RowTerms(own, none, along)
            for part, own, along in each
        ), weights

    def _groups(self, columns: slice) -> LevelGroups | None:
        """Levels that a row's models cannot distinguish, if the feature is a many-level category."""
        alike: list[list[NDArray[np.intp]]] = []
        for fit in self.fits:
            found = [model.alike(columns) for model in fit.cross.models]
            alike.append([part for part in found if part is not None])
        return LevelGroups.of(alike, [fit.cross.folds for fit in self.fits]) if alike[0] else None

    @cached_property
    def direct_scores(self) -> Scores:
        """Scores of rows at the models' own contrasts, averaged over repeats and times the weight of the row."""
        rows = np.arange(self.y.size)
        both = [(fit.direct(rows, *fit.residual(rows, *fit.contrasts)), fit.slopes) for fit in self.fits]
        values, slopes = self.weights.times(np.mean(both, axis=0).swapaxes(0, 1)).swapaxes(0, 1)
        return Scores(values, slopes, self.fits[0].score_names, self.fits[0].traits.changed)

    def direct_functions(self, feature: Feature) -> ValueFunctions | None:
        """Functions of a feature for the direct component; None if there is nothing to test."""
        if feature in self.functions:
            return self.functions[feature]
        functions = ValueFunctions.of(self.table, self.treatment, feature)
        grouped = not self.family.has_shape and any(m in self.table.level_columns for m in functions.columns)
        return functions if functions.parts and not grouped else None

    @cached_property
    def _misfit(self) -> Misfit:
        return Misfit(self.table.design, self.weights)

    def conditional_test(self, feature: Feature, grid: RowGrid) -> float:
        """P-value for an error in a feature's distribution where it matters: along the arms' contrasts.

        Under a correct distribution the excess of a row's contrast over its mean under the distribution, times |a - e|,
        has mean zero whatever the other features are. Its remaining dependence on them, times that of the models'
        contrast, is what would inflate the statistic of a null feature. The test uses sums over bins of the other
        features and of the contrast's mean, and over products of two features, for the location and for the scale.
        """
        excess, means = np.zeros((2, self.y.size)), np.zeros((2, self.y.size))
        for fit, rows, chances, location, scale in along_grid(self.fits, self.table, feature, grid):
            along = contrasts(self.family, location, scale)
            for k, (contrast, own) in enumerate(zip(along, fit.contrasts, strict=True)):
                mean = np.einsum("ij,ij->i", contrast, chances)
                excess[k, rows] += np.abs(fit.lead[rows]) * (own[rows] - mean)
                means[k, rows] += mean
        columns = columns_of(self.table, feature)
        p_values = []
        for own, mean, unit in zip(excess, means, (self.family.unit_of_contrasts(self.y), 1.0), strict=True):
            if own.std() > LEAST_EXCESS * unit * len(self.fits):  # less is nothing that a test could gain by
                variance = own**2 + 0.01 * own.var()  # rows of a fold that sees hardly anything decide nothing
                p_values.append(self._misfit.curve(own, variance, mean, columns))
                p_values.append(self._misfit.product(own, variance, columns))
        if not p_values:
            return 1.0
        return max(min(min(p_values) * len(p_values), 1.0), SMALLEST)

    def first_look(self, feature: Feature) -> DirectTerms | None:
        """Direct terms of a feature that no model uses, from its values minus their mean in each arm."""
        if self.looks_at(feature):
            return None
        functions = self.direct_functions(feature)
        if functions is None:
            return DirectTerms.of(np.empty((self.y.size, 0)))
        excess = functions.excess(self.table, None)
        for arm in (0, 1):
            in_arm = self.treatment == arm
            excess[in_arm] -= self.weights[in_arm].mean(excess[in_arm])
        return DirectTerms.along(self.direct_scores, excess, functions.blocks)

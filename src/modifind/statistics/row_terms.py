"""Contributions of rows to the effect-likelihood statistic along a feature's distribution, given one cross-fit.

`effect_likelihood` has the formula. Levels of a category that a row's models cannot distinguish are one point of the
category's distribution (`LevelGroups`), and rows of different folds share what their models learned (`Reuse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.features import Feature, FeatureTable, columns_of, encode
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.outcome.contract import observed_arm
from modifind.nuisance.outcome.stacking import CrossFit
from modifind.statistics.arms import ArmTraits, CommonPart, contrasts, null_precision
from modifind.statistics.direct import CONTRAST_SCORES, SHAPE_SCORES, residual_scores


@dataclass(frozen=True)
class Reuse:
    """Agreement of the folds' models about one feature.

    Attributes
    ----------
    products : tuple of arrays of shape (folds, folds)
        Inner products of the models' patterns, for every repeat.
    share : float, default=1.0
        Number of rows of the sum over that of the rows that models were fitted to. The smaller it is, the less two
        folds have taught each other's models.
    """

    products: tuple[Array, ...]
    share: float = 1.0

    def variance(self, per_fold: list[Array]) -> float:
        """Shared variance of the sum, given the variance over each fold's rows, averaged over repeats."""
        return self.share * float(np.mean(list(map(_shared, self.products, per_fold))))


def _shared(products: Array, per_fold: Array) -> float:
    """Shared variance of one repeat."""
    n_folds = per_fold.size
    size = np.sqrt(np.maximum(per_fold, 0.0))
    both = np.outer(size, size)
    np.fill_diagonal(both, 0.0)
    norms = np.sqrt(np.outer(np.diag(products), np.diag(products)))
    if not both.sum() > 0 or not (norms * both).sum() > 0:
        return 0.0
    agreement = float((products * both).sum() / (norms * both).sum())
    by_chance = (n_folds - 2) / (n_folds - 1)
    share = min((1 - agreement) / (1 - by_chance), agreement / by_chance if by_chance else 1.0)
    return max(share, 0.0) * float(both.sum()) / (n_folds - 1)


@dataclass(frozen=True)
class LevelGroups:
    """Groups of levels, which differ from fold to fold as the models do.

    Attributes
    ----------
    kind : int array of shape (n,)
        Which set of groups a row has: rows whose folds are the same in all repeats share one.
    first : int array of shape (kinds, groups)
        A level of each group.
    member : array of shape (kinds, levels, groups)
        1 where a level belongs to a group.
    """

    kind: NDArray[np.intp]
    first: NDArray[np.intp]
    member: Array

    @classmethod
    def of(cls, alike: list[list[NDArray[np.intp]]], folds: list[Ints]) -> LevelGroups:
        """Groups by row, from those of each fold's models and the folds of the rows, for each repeat.

        Examples
        --------
        >>> groups = LevelGroups.of([[np.array([0, 0, 1])]], [np.zeros(2, dtype=np.int64)])
        >>> points, chances = groups.gather(np.array([1]), np.array([[0.2, 0.3, 0.5]]))
        >>> points.tolist(), chances.tolist()
        ([[0.0, 2.0]], [[0.5, 0.5]])
        """
        combined, kind = np.unique(np.stack(folds, axis=1), axis=0, return_inverse=True)
        groups = []
        for row_folds in combined:
            together = np.stack([group_of[fold] for group_of, fold in zip(alike, row_folds, strict=True)], axis=1)
            groups.append(np.unique(together, axis=0, return_index=True, return_inverse=True)[1:])
        n_groups = max(first.size for first, _ in groups)
        firsts = np.zeros((len(groups), n_groups), dtype=np.intp)
        member = np.zeros((len(groups), alike[0][0].size, n_groups))
        for k, (first, group) in enumerate(groups):
            firsts[k, : first.size] = first
            member[k, np.arange(group.size), group.reshape(-1)] = 1.0
        return cls(kind.reshape(-1), firsts, member)

    def gather(self, rows: Ints, chances: Array) -> tuple[Array, Array]:
        """A level of each group and the group's probability, each of shape (rows, groups), from those of levels."""
        kind = self.kind[rows]
        gathered = np.empty((rows.size, self.first.shape[1]))
        for k in np.unique(kind):
            gathered[kind == k] = chances[kind == k] @ self.member[k]
        return self.first[kind].astype(np.float64), gathered


# Which contrasts move along the grid, of locations and of scales, in the statistic and in its two parts. In the last
# the prediction for the row's own arm moves: an ordinary held-out likelihood, of whether the outcome follows the
# feature.
Part: TypeAlias = tuple[bool, bool]
WHOLE, MEAN, SPREAD, OUTCOME = (True, True), (True, False), (False, True), (False, False)


@dataclass(frozen=True)
class RowTerms:
    """Contributions of every row to the statistic, or to one of its parts.

    Attributes
    ----------
    observed : array of shape (n,)
        At the observed value of the feature.
    direct : array of shape (n, s)
        Scores of the same residuals for the direct component, see `statistics.direct`; none in the parts.
    values : array of shape (n, g)
        At the points of its distribution, less their mean under the distribution.
    informed : array of shape (1 or 2, n, g), optional
        Weights of the points by what they tell of the contrast of locations, and of that of scales where it differs.
    """

    observed: Array
    direct: Array
    values: Array
    informed: Array | None = None


@dataclass(frozen=True)
class ArmFit:
    """One cross-fit, and everything derived from it for every row.

    Attributes
    ----------
    y, treatment : arrays of shape (n,)
        Outcome and arm.
    lead : array of shape (n,)
        Half of treatment less propensity score: the sign and weight of a row in a comparison of the arms.
    scale_lead : array of shape (n,)
        The same among the rows that a scale is about; see `Family.scores_of_scale`.
    contrasts : tuple of two arrays of shape (n,)
        Differences of the arms' locations and of their log-scales at the observed row.
    log_likelihood : array of shape (n,)
        Of the observed outcomes.
    index : tuple
        What the learners of each fold reuse from feature to feature.
    """

    y: Array
    treatment: Ints
    cross: CrossFit
    traits: ArmTraits
    common: CommonPart
    lead: Array
    scale_lead: Array
    contrasts: tuple[Array, Array]
    log_likelihood: Array
    index: tuple[tuple[Array | None, ...], ...]

    @classmethod
    def of(cls, cross: CrossFit, traits: ArmTraits, X: Array, y: Array, a: Ints, scores: Array) -> ArmFit:
        """Apply a cross-fit to rows that its models have not seen."""
        family, shapes = traits.family, np.array(traits.shapes)[a]
        common = CommonPart.of(family, cross.location, cross.scale, scores, traits.level)
        apart = contrasts(family, cross.location, cross.scale)
        both = np.column_stack([family.location(traits.eta(common, arm, apart[0])) for arm in (0, 1)])
        return cls(
            y,
            a,
            cross,
            traits,
            common,
            (a - scores) / 2,
            (a - family.scores_of_scale(scores, both)) / 2,
            apart,
            family.log_density(y, observed_arm(cross.location, a), observed_arm(cross.scale, a), shapes),
            tuple(model.index(X[cross.folds == fold]) for fold, model in enumerate(cross.models)),
        )

    def terms(
        self, rows: Ints, location: Array, scale: Array, chances: Array, parts: tuple[Part, ...]
    ) -> list[RowTerms]:
        """Terms of some rows for each part, from predictions for both arms at the points, shape (rows, g, 2)."""
        family, shape = self.traits.family, self.traits.shape
        here, along = [contrast[rows] for contrast in self.contrasts], contrasts(family, location, scale)
        scores = self.treatment[rows] - 2 * self.lead[rows]
        # Errors of a contrast count as much as there is information on it, so that its null value is the mean under the
        # distribution weighted by that: where a feature changes the spread of both arms the two means differ.
        information = chances * null_precision(family, location, scale, scores[:, None], self.traits.level)
        of_scale = family.scale_information(location, scores[:, None])
        informed = [information] if of_scale is None else [information, chances * of_scale]
        location_mean, scale_mean = (np.einsum("ij,ij->i", contrast, chances) for contrast in along)
        null = _mean(along[0], information), scale_mean if of_scale is None else _mean(along[1], informed[1])
        terms, no_scores = [], np.zeros((rows.size, 0))
        for part in parts:
            if part == OUTCOME:
                values = self.own_log_likelihood(rows, location, scale)
                mean = np.einsum("ij,ij->i", values, chances)
                terms.append(RowTerms(self.log_likelihood[rows] - mean, no_scores, values - mean[:, None]))
                continue
            residual, lead, plain = self.residual(rows, *np.where(np.array(part)[:, None], null, here))
            observed, values = np.zeros(rows.size), np.zeros(chances.shape)
            moves_location, moves_scale = part
            if moves_location:
                observed += lead * (here[0] - null[0])
                values += lead[:, None] * (along[0] - location_mean[:, None])
            if moves_scale and family.has_scale:
                side = self.scale_lead[rows]
                ratios = family.scale_ratio(residual[:, None], along[1] - null[1][:, None], shape)
                mean = np.einsum("ij,ij->i", ratios, chances)
                null_ratio = mean if of_scale is None else _mean(ratios, informed[1])
                observed += side * (family.scale_ratio(residual, here[1] - null[1], shape) - null_ratio)
                values += side[:, None] * (ratios - mean[:, None])
            if part == WHOLE:
                by_contrast = np.stack([weights / weights.sum(axis=1)[:, None] for weights in informed])
                terms.append(RowTerms(observed, self.direct(rows, residual, lead, plain), values, by_contrast))
            else:
                terms.append(RowTerms(observed, no_scores, values))
        return terms

    def own_log_likelihood(self, rows: Ints, location: Array, scale: Array) -> Array:
        """Log-likelihood of the observed outcome under predictions for both arms, shape (rows, g, 2)."""
        each, arm = np.arange(rows.size), self.treatment[rows]
        shape = np.array(self.traits.shapes)[arm, None]
        return self.traits.family.log_density(self.y[rows, None], location[each, :, arm], scale[each, :, arm], shape)

    def residual(self, rows: Ints, *apart: Array) -> tuple[Array, Array, Array]:
        """Residuals at given contrasts of the arms, and the factor of the location contrast, weighted and not."""
        common, family, y = self.common.at(rows), self.traits.family, self.y[rows]
        residual, unit, eta = self.traits.residuals(common, y, self.treatment[rows], *apart)
        per_unit, of_eta = family.on_eta(y, eta, unit, residual)
        plain = self.lead[rows] * common.precision * per_unit * of_eta
        return residual, plain * family.weight(of_eta, self.traits.shape), plain

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the scores of the direct component."""
        if self.traits.ranks is not None:
            return tuple(SHAPE_SCORES)
        return tuple(CONTRAST_SCORES)[: 1 + self.traits.family.has_scale]

    def direct(self, rows: Ints, residual: Array, lead: Array, plain: Array) -> Array:
        """Scores of rows for the direct component, with the sign and weight of the row's arm.

        The score of the location contrast comes first, without residual weights if outcomes pile up. The others concern
        the shape of residuals, minus their arm's mean, or the scale contrast. The arguments are the result of
        `residual`.
        """
        family, traits = self.traits.family, self.traits
        scores = [(plain if traits.ranks is None else lead)[:, None]]
        if family.has_scale:
            by_scale = family.scale_score(residual, traits.shape)
            shape = by_scale[:, None]
            if traits.ranks is not None:
                shape = residual_scores(residual, traits.ranks, by_scale) - traits.scores[self.treatment[rows]]
            scores.append(self.scale_lead[rows, None] * shape)
        return np.concatenate(scores, axis=1)

    @property
    def slopes(self) -> Array:
        """Derivative of each score of `direct` with respect to an effect, up to a common factor of the row."""
        by_location = self.lead * self.common.precision * (self.treatment - self.common.share)
        by_shape = self.scale_lead * (self.treatment - 0.5)
        return np.stack((by_location, *(by_shape,) * (len(self.score_names) - 1)), axis=-1)

    def leads(self) -> tuple[Array, Array]:
        """Derivatives of each row's contribution with respect to either contrast, at the row's own prediction."""
        family, shape = self.traits.family, self.traits.shape
        location = observed_arm(self.cross.location, self.treatment)
        unit = observed_arm(self.cross.scale, self.treatment) if family.has_scale else 1.0
        residual = family.residual(self.y, location, unit)
        per_unit, u = family.on_eta(self.y, family.eta(location), unit, residual)
        by_location = self.lead * self.common.precision * per_unit * family.weight(u, shape) * u
        return by_location, self.scale_lead * family.scale_score(residual, shape)


def _mean(values: Array, weights: Array) -> Array:
    """Weighted means of rows, for weights of any sum."""
    return np.einsum("ij,ij->i", values, weights) / weights.sum(axis=1)


GRID_CELLS = 2**17  # rows times grid points evaluated at a time


def along_grid(
    fits: Iterable[ArmFit], table: FeatureTable, feature: Feature, grid: RowGrid, groups: LevelGroups | None = None
) -> Iterator[tuple[ArmFit, Ints, Array, Array, Array]]:
    """Every cross-fit over blocks of rows, with a feature at the points of its distribution.

    Each block is the cross-fit, the rows, the weights of the points, of shape (rows, g), and the predictions of
    location and scale in both arms, of shape (rows, g, 2). Levels are merged into their `groups`, if there are any.
    """
    columns = columns_of(table, feature)
    for fit in fits:
        for fold, model in enumerate(fit.cross.models):
            members = np.flatnonzero(fit.cross.folds == fold)
            step = max(1, GRID_CELLS // max(grid.at(members[:1])[0].shape[1], 1))
            for start in range(0, members.size, step):
                rows = members[start : start + step]
                points, chances = grid.at(rows)
                if groups is not None:
                    points, chances = groups.gather(rows, chances)
                known = tuple(None if index is None else index[start : start + step] for index in fit.index[fold])
                encoded = encode(table, feature, points)
                yield fit, rows, chances, *model.along(table.design[rows], columns, encoded, known)

"""Propensity scores e(x) = P(A = 1 | X = x) of some rows: clipped with a count, and cheap to re-evaluate.

A resampled feature changes one column, so its scores are read off a *profile*: a closed form for logistic models, a
grid of values of that one feature for any other classifier. Whole batches of resampled columns are scored by torch on
any device, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from modifind._torch import OnDevice, open_device
from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.propensity.fit_check import ScoreCheck
from modifind.nuisance.propensity.models import (
    EDGE,
    EarlyStoppedMLP,
    is_linear,
    linear_tables,
    log_odds_along,
    slopes_of,
)
from modifind.nuisance.regression.screening import Trace
from modifind.nuisance.regression.smooth import predict_probabilities

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ScoreProfile:
    """Logit scores of all rows along one feature: ``offset + slope * x``, or a table over categories or grid values.

    If the feature may be missing, `missing` has the logit scores of rows without it.
    """

    clip: tuple[float, float]
    offset: Array
    slope: Array | None = None
    table: Array | None = None
    grid: Array | None = None
    missing: Array | None = None

    def __call__(self, x: Array) -> Array:
        """Clipped scores of all rows when the feature takes the values `x`, shape (n,)."""
        index = self.index(x, np, np.arange(x.size), lambda codes: codes.astype(np.intp))
        return np.clip(expit(index), *self.clip)

    def index(self, x: Any, xp: Any, rows: Any, whole: Callable[[Any], Any]) -> Any:
        """Logit scores, in numpy or torch, depending on the arrays; `whole` converts codes to indices."""
        table, grid = self.table, self.grid
        if table is None:
            index = self.offset if self.slope is None else self.offset + self.slope * x
        elif grid is None:
            index = table[rows, whole(x)]
        elif len(grid) == 1:  # a constant column
            index = table[:, 0]
        else:
            right = xp.searchsorted(grid, x).clip(1, len(grid) - 1)
            left = right - 1
            share = ((x - grid[left]) / (grid[right] - grid[left])).clip(0.0, 1.0)
            index = (1 - share) * table[rows, left] + share * table[rows, right]
        return index if self.missing is None else xp.where(xp.isnan(x), self.missing, index)


USER = "a propensity profile on a device"
BLOCK_ROWS = 2**18


class DeviceProfile(OnDevice):
    """A `ScoreProfile` on a torch device.

    Parameters
    ----------
    profile : ScoreProfile
        Scores along one feature.
    device : str
        Device to evaluate them on.
    """

    def __init__(self, profile: ScoreProfile, device: str) -> None:
        super().__init__(device, USER)
        arrays = {name: getattr(profile, name) for name in ("offset", "slope", "table", "grid", "missing")}
        tensors: dict[str, Any] = {name: self.tensor(array) for name, array in arrays.items() if array is not None}
        self.profile = replace(profile, **tensors)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Clipped scores of all rows for each of k columns, shape (k, n)."""
        rows = self.torch.arange(x.shape[1], device=self.device)
        index = self.profile.index(x, self.torch, rows, self.torch.Tensor.long)
        return index.sigmoid().clamp(*self.profile.clip).expand_as(x)


class FixedScores:
    """Scores that do not depend on the feature, on a torch device."""

    def __init__(self, scores: Array, device: str) -> None:
        torch, torch_device = open_device(device, USER)
        # A copy: what a worker process is given may be read-only.
        self.scores = torch.tensor(scores, device=torch_device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same scores for each of k columns, shape (k, n)."""
        return self.scores.expand_as(x)


def network_scores(
    models: tuple[Any, ...], folds: Ints, design: Array, moved: slice, encoded: Array, device: str
) -> Array:
    """Scores of all rows, shape (n, g), when some design columns take each of g encoded values.

    Parameters
    ----------
    models : tuple of EarlyStoppedMLP
        The fitted model of each fold.
    folds : array of shape (n,)
        Fold of each row.
    design : array of shape (n, p)
        Encoded features.
    moved : slice
        The columns that take other values.
    encoded : array of shape (g, width)
        Their values.
    device : str
        Device to evaluate the networks on.
    """
    on_device = OnDevice(device, USER)
    torch, tensor = on_device.torch, on_device.tensor
    scores = np.empty((design.shape[0], len(encoded)))
    fixed = np.delete(np.arange(design.shape[1]), np.arange(design.shape[1])[moved])
    for fold, model in enumerate(models):
        network = model.network_
        weights, biases = [tensor(w) for w in network.coefs_], [tensor(b) for b in network.intercepts_]
        steps = tensor(encoded) @ weights[0][moved]
        rest = weights[0][fixed.tolist()]
        members = np.flatnonzero(folds == fold)
        for start in range(0, members.size, BLOCK_ROWS):
            rows = members[start : start + BLOCK_ROWS]
            # Only the moved columns change what enters the first layer.
            still = tensor(design[rows][:, fixed]) @ rest + biases[0]
            out = torch.empty((rows.size, len(encoded)), dtype=still.dtype, device=on_device.device)
            for k, step in enumerate(steps):
                hidden = still + step
                for weight, bias in zip(weights[1:], biases[1:], strict=True):
                    hidden = hidden.relu() @ weight + bias
                out[:, k] = hidden[:, 0].sigmoid()
            scores[rows] = out.cpu().numpy()
    return scores


N_GRID = 25


def predict_scores(models: Sequence[Any], folds: Ints, design: Array) -> Array:
    """Scores of every row by the model of its fold."""
    scores = np.empty(design.shape[0])
    for fold, model in enumerate(models):
        rows = folds == fold
        if rows.any():
            scores[rows] = predict_probabilities(model, design[rows])[:, 1]
    return scores


@dataclass(frozen=True)
class FittedPropensity:
    """Scores of the rows, which can be re-evaluated with one feature changed.

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
        """Scores of other rows by the same models.

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
        raw = predict_scores(self.models, folds, table.design) if known is None else known
        weights = Weights.of(weights, treatment.size)
        return replace(self, raw=raw, treatment=treatment, table=table, folds=folds, weights=weights)

    @property
    def misfit_p(self) -> float:
        """P-value of no structure in treatment minus scores; NaN if not tested."""
        return np.nan if self.misfit is None else self.misfit.p_value

    @property
    def misfit_features(self) -> list[str]:
        """Features along which treatment minus scores has the clearest structure."""
        columns = () if self.misfit is None else self.misfit.columns
        encoding = zip(self.table.names, self.table.encoding, strict=True)
        return [name for name, at in encoding if any(at.start <= j < at.stop for j in columns)]

    def checked_beside(self, residual: Array, guides: Array) -> FittedPropensity:
        """These scores, also checked where residuals of the outcome have structure, and along its predictions."""
        if self.misfit is None:
            return self
        along = ScoreCheck.of(self.table, self.treatment, self.raw, self.weights).beside_outcome(residual, guides)
        return replace(self, misfit=Trace.clearest([self.misfit, along]))

    @property
    def n_clipped(self) -> int:
        """Number of rows whose score was clipped."""
        return int((self.scores != self.raw).sum())

    def along(self, rows: Ints, columns: slice, encoded: Array) -> Array:
        """Scores of some rows, shape (rows, g), when design columns take g encoded values, (rows, g, width)."""
        if not self.models:
            return np.repeat(self.scores[rows][:, None], encoded.shape[1], axis=1)
        assert self.folds is not None
        folds, design = self.folds[rows], self.table.design[rows]
        # From the row's own score, which may be known, as far as the model says that it moves.
        index = logit(np.clip(self.raw[rows], EDGE, 1.0 - EDGE))
        scores: Array = np.empty(encoded.shape[:2])
        if all(isinstance(model, LogisticRegression) for model in self.models):
            slopes = np.stack([model.coef_[0, columns] for model in self.models])[folds]
            scores[:] = (index - np.einsum("ij,ij->i", design[:, columns], slopes))[:, None]
            for k in range(encoded.shape[2]):
                scores += slopes[:, k, None] * encoded[..., k]
        else:
            for fold, model in enumerate(self.models):
                inside = np.flatnonzero(folds == fold)
                if inside.size:
                    points = np.concatenate((design[inside, None, columns], encoded[inside]), axis=1)
                    moved = log_odds_along(model, design[inside], columns, points)
                    scores[inside] = index[inside, None] + moved[:, 1:] - moved[:, :1]
        return np.clip(expit(scores, out=scores), *self.clip, out=scores)

    def profile_values(self, feature: int) -> Array | None:
        """Values at which a feature's profile is tabulated; None if it has a closed form."""
        if not self.models or all(is_linear(model) for model in self.models):
            return None
        levels = self.table.n_levels(feature)
        if levels:
            return np.arange(levels, dtype=np.float64)
        return _grid(self.table.values[self.table.observed(feature), feature])

    def profile(self, feature: int, device: str = "cpu", values: Array | None = None) -> ScoreProfile:
        """Scores as a function of one feature with the others fixed; networks are evaluated on `device`.

        If these rows are some of a table, pass `values` for the whole table, see `profile_values`.
        """
        if not self.models:
            return ScoreProfile(self.clip, logit(self.scores))
        if all(is_linear(model) for model in self.models):
            return self._linear_profile(feature)
        levels, gaps = self.table.n_levels(feature), feature in self.table.incomplete
        grid = self.profile_values(feature) if values is None else values
        assert grid is not None
        encoded = self.table.encode(feature, np.append(grid, np.nan) if gaps else grid)
        table = logit(np.clip(self._table(self.table.encoding[feature], encoded, device), EDGE, 1 - EDGE))
        missing = table[:, -1] if gaps else None
        shown = None if levels else grid
        return ScoreProfile(self.clip, np.empty(0), table=table[:, : grid.size], grid=shown, missing=missing)

    def _linear_profile(self, feature: int) -> ScoreProfile:
        """Profile in closed form, if log-odds are sums over columns."""
        columns, values = self.table.encoding[feature], self.table.values[:, feature]
        if feature in self.table.level_columns:
            added = linear_tables(self.models, columns, self.table.level_columns[feature])[self.folds]
            still = logit(self.raw) - added[np.arange(values.size), values.astype(np.intp)]
            return ScoreProfile(self.clip, still, table=still[:, None] + added)
        slopes = np.stack([slopes_of(model)[columns] for model in self.models])[self.folds]
        index = logit(self.raw) - np.einsum("ij,ij->i", slopes, self.table.encode(feature, values))
        if levels := self.table.n_levels(feature):
            table = index[:, None] + np.concatenate((np.zeros((index.size, 1)), slopes), axis=1)[:, :levels]
            return ScoreProfile(self.clip, index, table=table)
        mean, spread = (moments[feature] for moments in self.table.scaling)
        missing = index + slopes[:, 1] if feature in self.table.incomplete else None
        return ScoreProfile(self.clip, index - slopes[:, 0] * mean / spread, slopes[:, 0] / spread, missing=missing)

    def _table(self, columns: slice, encoded: Array, device: str) -> Array:
        """Scores of all rows, shape (n, g), when a feature's columns take each of g encoded values."""
        assert self.folds is not None
        if device != "cpu" and all(isinstance(model, EarlyStoppedMLP) for model in self.models):
            return network_scores(self.models, self.folds, self.table.design, columns, encoded, device)
        design = self.table.design.copy()
        table = np.empty((design.shape[0], len(encoded)))
        for k, value in enumerate(encoded):
            design[:, columns] = value
            table[:, k] = predict_scores(self.models, self.folds, design)
        return table


def _grid(column: Array) -> Array:
    """Values spaced like a feature's distribution, extending half its spread beyond the data."""
    inner = np.quantile(column, np.linspace(0, 1, N_GRID - 2))
    margin = column.std() / 2
    return np.unique(np.concatenate(([inner[0] - margin], inner, [inner[-1] + margin])))

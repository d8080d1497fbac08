"""Propensity scores of whole batches of resampled columns, by torch on any device, in double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from modifind._torch import OnDevice, open_device
from modifind._typing import Array, Ints
from modifind.nuisance.propensity.profile import ScoreProfile

if TYPE_CHECKING:
    import torch

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
    """Scores that do not follow the feature, on a torch device."""

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
    """Scores of all rows, shape (n, g), when some columns of the design take each of g encoded values.

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

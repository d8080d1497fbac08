"""The weighted conditional MMD of whole batches of resampled columns, by torch on any device.

The sums are those of `kernel_sums.GroupSums` and `kernel_sums.GridSums`, in double precision and with the same nodes,
so that results agree with `PreparedWCMMD.importance` to rounding. Columns whose range needs cells that follow the data,
and those with a row so far from an arm that its kernel sums underflow, are left to numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from modifind._torch import OnDevice
from modifind._typing import Array
from modifind.statistics.kernels import (
    MAX_DENSE_RANGE,
    NEGLIGIBLE_WEIGHT,
    NODES_PER_BANDWIDTH,
    QUADRATURE_WEIGHT,
    REACH,
)
from modifind.statistics.prepared_wcmmd import PreparedWCMMD

if TYPE_CHECKING:
    import torch

DEVICE_CELLS = 2**26  # numbers held at a time in the largest arrays: half a gigabyte
PIECE = 2048
MIN_COUNT = np.finfo(float).tiny
MAX_NODES = math.ceil((MAX_DENSE_RANGE + 2 * REACH) * NODES_PER_BANDWIDTH) + 2


class DeviceWCMMD(OnDevice):
    """The statistic of one feature on a torch device.

    Parameters
    ----------
    prepared : PreparedWCMMD
        The statistic of this outcome and treatment; its sums must be accelerated ones.
    device : str
        A device as in `WCMMD`, or "torch:cpu".
    bandwidth : float
        Bandwidth of the feature; not used for discrete features.
    n_levels : int, default=0
        Number of categories, 0 for a continuous feature.
    """

    def __init__(self, prepared: PreparedWCMMD, device: str, *, bandwidth: float, n_levels: int = 0) -> None:
        assert prepared.outcome_map is not None
        super().__init__(device, "WCMMD(device=...)")
        self.hajek = prepared.weighting == "hajek"
        self.bandwidth, self.n_levels = bandwidth, n_levels
        self.n_rows, self.n_control = prepared.order.size, prepared.n_control
        self.order, self.columns = self.tensor(prepared.order), self.tensor(prepared.columns)
        self.row_weights = self.tensor(prepared.row_weights.values[prepared.order])

    def importances(
        self, columns: Array, scores: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Variance of D2 over rows for every column.

        Parameters
        ----------
        columns : array of shape (k, n)
            Feature values, or codes.
        scores : callable
            Propensity scores, shape (k, n), of a tensor of columns on the device.

        Returns
        -------
        importances : array of shape (k,)
        left : boolean array of shape (k,)
            Columns that numpy is to evaluate.
        """
        values, left = np.empty(len(columns)), np.empty(len(columns), dtype=bool)
        step = max(1, DEVICE_CELLS // (self._width() * self.n_rows))
        for start in range(0, len(columns), step):
            batch = slice(start, start + step)
            x = self.tensor(columns[batch])
            followed = scores(x)[:, self.order]
            followed[:, : self.n_control] = 1.0 - followed[:, : self.n_control]
            evaluate = self._over_levels if self.n_levels else self._over_rows
            variance, undone = evaluate(x[:, self.order], followed.reciprocal_() * self.row_weights)
            values[batch], left[batch] = variance.cpu().numpy(), undone.cpu().numpy()
        return values, left

    def _width(self) -> int:
        """Size of the intermediate arrays, in numbers per row and resample."""
        return self.n_levels or MAX_NODES + 2 * self.columns.shape[1]

    def _blocks(self, start: int, stop: int, n_columns: int) -> Iterator[slice]:
        step = max(1, DEVICE_CELLS // (self._width() * n_columns))
        for at in range(start, stop, step):
            yield slice(at, min(at + step, stop))

    def _collect(
        self, basis: Callable[[slice], torch.Tensor], weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sums of both arms, shape (k, g, columns), and the total over all rows, (k, g, 1).

        `basis` has the contributions of the rows to g nodes, shape (k, g, rows). Inverse probabilities enter the arms'
        sums only, weights of the rows all three.
        """
        sums: list[Any] = []
        total: Any = 0.0
        for start, stop in ((0, self.n_control), (self.n_control, self.n_rows)):
            arm: Any = 0.0
            for rows in self._blocks(start, stop, len(weights)):
                share = basis(rows)
                total = total + share @ self.row_weights[rows, None]
                arm = arm + self._product(share * weights[:, None, rows], self.columns[rows])
            sums.append(arm)
        return sums[0], sums[1], total

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """``left @ right``, shapes (k, g, rows) and (rows, columns).

        The result is small and the sums are long. They are split into pieces that a GPU sums in parallel; in one piece
        most of it would be idle.
        """
        k, g, n_rows = left.shape
        n_pieces = n_rows // PIECE
        whole = n_pieces * PIECE
        product = left[..., whole:] @ right[whole:]
        if n_pieces:
            pieces = left[..., :whole].unflatten(2, (n_pieces, PIECE)).flatten(0, 1).transpose(0, 1)
            products = self.torch.bmm(pieces, right[:whole].unflatten(0, (n_pieces, PIECE)))
            product = product + products.sum(dim=0).unflatten(0, (k, g))
        return product

    def _difference(
        self, control: torch.Tensor, treated: torch.Tensor, total: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """D2 from the sums in the last dimension, and the smaller of the arms' weights."""
        if self.hajek:
            means = treated[..., 1:] / treated[..., :1] - control[..., 1:] / control[..., :1]
        else:
            means = (treated[..., 1:] - control[..., 1:]) / total
        return means.square().sum(dim=-1), self.torch.minimum(control[..., 0], treated[..., 0])

    def _over_levels(self, codes: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch = self.torch
        levels = torch.arange(self.n_levels, dtype=codes.dtype, device=self.device)[:, None]
        control, treated, total = self._collect(
            lambda rows: (codes[:, None, rows] == levels).to(weights.dtype), weights
        )
        d2, smallest = self._difference(control, treated, total)
        counts = total[..., 0]
        # As in numpy, rows of a category that has one arm only count as average; empty categories have no rows.
        known = (smallest > 0) if self.hajek else (counts > 0)
        d2, counts = d2.masked_fill(~known, 0.0), counts * known
        n_known = counts.sum(dim=1, keepdim=True)
        deviation = d2 - (counts * d2).sum(dim=1, keepdim=True) / n_known.clamp_min(MIN_COUNT)
        variance = (counts * deviation.square()).sum(dim=1) / (self.n_rows - 1)
        return variance, torch.zeros_like(known[:, 0])

    def _over_rows(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch, h = self.torch, self.bandwidth
        missing = x.isnan()
        gaps = bool(missing.any())
        if gaps:
            low = x.masked_fill(missing, math.inf).amin(dim=1, keepdim=True)
            high = x.masked_fill(missing, -math.inf).amax(dim=1, keepdim=True)
            low, high = low.masked_fill(low.isinf(), 0.0), high.masked_fill(high.isinf(), 0.0)  # all missing
            x = x.masked_fill(missing, -math.inf)  # infinitely far from every node
        else:
            low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
        left = (high - low > MAX_DENSE_RANGE * h)[:, 0]
        if left.any():
            x = torch.where(left[:, None], low, x)  # left to numpy: any column of ordinary range will do
            high = torch.where(left[:, None], low, high)
        spacing = h / NODES_PER_BANDWIDTH
        low, high = low - REACH * h, high + REACH * h
        n_nodes = torch.ceil((high - low) / spacing) + 1
        index = torch.arange(int(n_nodes.max()), dtype=x.dtype, device=self.device)
        # A column with a shorter grid than others of its batch has nodes at infinity, where its rows add nothing.
        nodes = (low + spacing * index).masked_fill(index >= n_nodes, math.inf)[:, :, None]

        def roots(rows: slice) -> Any:
            scaled = (x[:, None, rows] - nodes) * (math.sqrt(2.0) / h)
            near = scaled.square_().neg_().exp_()
            # Missing values are a place of their own, after the nodes.
            return torch.cat((near, missing[:, None, rows].to(x.dtype)), dim=1) if gaps else near

        control, treated, total = self._collect(roots, weights)
        moments = QUADRATURE_WEIGHT * torch.cat((control, treated, total), dim=2)
        if gaps:
            moments[:, -1] /= QUADRATURE_WEIGHT
        width = control.shape[2]
        d2, smallest = torch.empty_like(x), torch.empty_like(x)
        for rows in self._blocks(0, self.n_rows, len(x)):
            sums = roots(rows).transpose(1, 2) @ moments
            d2[:, rows], smallest[:, rows] = self._difference(*sums.split((width, width, 1), dim=2))
        if self.hajek:
            left = left | (smallest < NEGLIGIBLE_WEIGHT).any(dim=1)
        deviation = d2 - (d2 @ self.row_weights / self.n_rows)[:, None]
        return deviation.square() @ self.row_weights / (self.n_rows - 1), left

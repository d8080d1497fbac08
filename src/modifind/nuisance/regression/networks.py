"""Networks of equal architecture, trained in parallel on a torch device: Adam, weight averaging, early stopping."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from modifind._torch import OnDevice
from modifind._typing import Array

if TYPE_CHECKING:
    import torch


Float32 = NDArray[np.float32]

ADAM_DECAYS = (0.9, 0.999)
AVERAGING = 0.98
# Copying costs as much as some steps do: finished networks leave when they are a quarter of all.
MAX_SHARE_WAITING = 0.75


class Networks(OnDevice, ABC):
    """Networks during training: the weights of each are one row of `theta`, and rows are independent.

    An optimiser step, a snapshot or the removal of finished networks is then one operation. A subclass defines the
    `batches` of an epoch, the `objective` of each network on a batch, and its score on the rows `held_out` from it.

    Parameters
    ----------
    settings : estimator
        How they are trained: `device`, `n_threads` of torch on the CPU, `learning_rate` of Adam, `max_epochs` over the
        training rows and `patience`, the epochs without a better score that stop a network.
    user : str
        The estimator in words.
    shapes : dict
        Shape of every layer, in the order in which they lie in a row.
    n : int
        Number of networks.

    Attributes
    ----------
    theta : tensor of shape (networks, weights)
        Where they start; set by the subclass.
    alive : array of int
        Networks that are still in training.
    best, best_epoch : arrays of shape (networks,)
        Best score of each on its held-out rows, and the epoch, from 1, at which that was.
    """

    finished_leave = False  # possible where networks do not share random numbers
    start_counts = False  # as an epoch 0: a network that no training helps stays where it was
    warmup_epochs = 0  # after which patience begins to count
    max_gradient = math.inf
    threshold: torch.Tensor | None = None  # what a step takes from the size of each weight
    theta: torch.Tensor

    def __init__(self, settings: Any, user: str, shapes: dict[str, tuple[int, int]], n: int) -> None:
        super().__init__(settings.device, user)
        self.settings, self.shapes = settings, shapes
        self.alive = np.arange(n)
        self.best, self.best_epoch = np.full(n, -np.inf), np.zeros(n, dtype=np.int64)

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[tuple[Any, ...]]:
        """Arguments of `objective` for each step of an epoch."""

    @abstractmethod
    def objective(self, theta: torch.Tensor, *batch: Any) -> torch.Tensor:
        """Objective that each network maximises, shape (networks,)."""

    @abstractmethod
    def held_out(self, theta: torch.Tensor) -> Array:
        """Score of each network on its held-out rows, shape (networks,)."""

    def keep(self, stay: torch.Tensor) -> None:
        """Drop the data of networks that have finished."""

    def layers(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """The weights by layer, networks along the first axis."""
        pieces = theta.split([math.prod(shape) for shape in self.shapes.values()], dim=1)
        return {name: piece.view(-1, *shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def train(self) -> torch.Tensor:
        """Train until every network has stopped; return the averaged weights at the best epoch of each."""
        kept = self.theta.clone()
        state = {"theta": self.theta, "average": kept.clone()}
        state |= {name: self.torch.zeros_like(kept) for name in ("first", "second")}
        waiting = np.ones(self.alive.size, dtype=bool)
        step = 0
        with _threads(self.torch, self.settings.n_threads):
            if self.start_counts:
                self.best = self.held_out(kept)
            for epoch in range(1, self.settings.max_epochs + 1):
                for batch in self.batches(epoch):
                    step += 1
                    theta = state["theta"].detach().requires_grad_()
                    (gradient,) = self.torch.autograd.grad(-self.objective(theta, *batch).sum(), theta)
                    self._step(state, gradient, step)
                score = self.held_out(state["average"])
                better = (score > self.best[self.alive]) & (waiting | self.finished_leave)
                improved = self.alive[better]
                self.best[improved], self.best_epoch[improved] = score[better], epoch
                kept[self.tensor(improved)] = state["average"][self.tensor(better)]
                waiting = epoch - np.maximum(self.best_epoch[self.alive], self.warmup_epochs) < self.settings.patience
                if not waiting.any():
                    break
                if self.finished_leave and waiting.mean() <= MAX_SHARE_WAITING:
                    stay = self.tensor(waiting)
                    state = {name: tensor[stay] for name, tensor in state.items()}
                    self.keep(stay)
                    self.alive, waiting = self.alive[waiting], waiting[waiting]
        return kept

    def _step(self, state: dict[str, Any], gradient: torch.Tensor, step: int) -> None:
        """Adam with clipped gradients, soft thresholding and weight averaging, in place.

        Implemented here because its state drops rows when networks finish.
        """
        fast, slow = ADAM_DECAYS
        if math.isfinite(self.max_gradient):
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self.max_gradient / norm.clamp_min(self.max_gradient))
        state["first"].lerp_(gradient, 1.0 - fast)
        state["second"].mul_(slow).addcmul_(gradient, gradient, value=1.0 - slow)
        spread = (state["second"] / (1.0 - slow**step)).sqrt_().add_(1e-8)
        theta = state["theta"].addcdiv_(state["first"], spread, value=-self.settings.learning_rate / (1.0 - fast**step))
        if self.threshold is not None:
            theta.sub_(theta.clamp(-self.threshold, self.threshold))
        state["average"].lerp_(theta, 1.0 - min(AVERAGING, step / (step + 9.0)))


@contextmanager
def _threads(torch: Any, n_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""An ensemble of small networks for the location and the scale of a numeric outcome in two arms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.contract import ScreenedLearner
from modifind.nuisance.regression.networks import Float32, Networks
from modifind.nuisance.regression.penalised import centre_and_unit, student_log_density, student_weight

if TYPE_CHECKING:
    import torch


NETWORK_SHAPE = 10.0
N_OUTPUTS = 4  # common location, difference of the arms' locations, log-scale of each arm
LOG_BOUND = 5.0
MIN_ARM_SCALE = 1e-3
MAX_RATIO = 3.0
MAX_VALUE = 1e6
MAX_GRADIENT = 5.0
MAX_STEPS = 50
BLOCK_POINTS = 8192


class NeuralLearner(ScreenedLearner):
    """Location and scale of each arm by a few networks of two hidden layers, trained side by side.

    Every network has one trunk for both arms and four outputs: what the arms' locations share, how they differ, and
    the log-scale of each arm. The inputs reach the outputs directly too, so that the trunk need only learn what is not
    linear. Networks start from the two arms' constants, are fitted by a Student-t likelihood with 10 degrees of
    freedom, and each keeps the running average of its weights at the epoch that is best on the rows held out from it.
    Columns should be standardised or indicators.

    Needs torch (``pip install "modifind[cvae]"``) to fit, not to predict.

    Parameters
    ----------
    members : int, default=5
        Networks whose predictions are averaged.
    hidden : int, default=32
        Units of each hidden layer.
    max_epochs : int, default=100
        Maximum number of passes over the training rows.
    batch_size : int, default=96
        Rows per step, about; more in large data, where an epoch has 50 steps.
    learning_rate : float, default=1e-2
        Step size of Adam.
    weight_decay : float, default=0.4
        What every step takes from the size of each weight but the biases, as a share of Adam's longest move. The same
        for small weights as for large: a column whose gradients are mostly noise falls out.
    patience : int, default=25
        Epochs without a better held-out likelihood that stop a network.
    validation_fraction : float, default=0.2
        Share of rows held out from each network, others for each as far as they reach.
    max_rows : int, default=20000
        Most rows used; a random choice of larger data.
    random_state : int, default=0
        Seed of the choice of rows, the starting weights and the order of the rows.
    n_threads : int, default=1
        Threads torch trains with on the CPU. The steps are many and small: more threads seldom help.
    device : {"cpu", "cuda", "cuda:0", ...}, default="cpu"
        Where the networks are trained.

    Attributes
    ----------
    best_epoch_ : array of shape (members,)
        Epoch whose weights each network keeps; 0 if no training helped.
    held_out_log_likelihood_ : array of shape (members,)
        At that epoch, in nats per held-out row, of the outcome in its own units.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import NeuralLearner
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = 2.0 * a * X[:, 0] + rng.normal(size=400)
    >>> location, scale = NeuralLearner(members=2, max_epochs=20).fit(X, a, y).predict(X)
    >>> bool(np.corrcoef(location[:, 1] - location[:, 0], X[:, 0])[0, 1] > 0.9)
    True
    """

    def __init__(
        self,
        *,
        members: int = 5,
        hidden: int = 32,
        max_epochs: int = 100,
        batch_size: int = 96,
        learning_rate: float = 1e-2,
        weight_decay: float = 0.4,
        patience: int = 25,
        validation_fraction: float = 0.2,
        max_rows: int = 20000,
        random_state: int = 0,
        n_threads: int = 1,
        device: str = "cpu",
    ) -> None:
        self.members = members
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.max_rows = max_rows
        self.random_state = random_state
        self.n_threads = n_threads
        self.device = device

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> NeuralLearner:
        """Train all networks; log-likelihoods of rows are multiplied by their weights."""
        a = np.asarray(a, dtype=np.int64)
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        weights, rng = Weights.of(sample_weight, y.size), np.random.default_rng(self.random_state)
        if y.size > self.max_rows:
            rows = np.sort(rng.choice(y.size, self.max_rows, replace=False))
            X, a, y, weights = X[rows], a[rows], y[rows], weights[rows]
        counts = weights.scaled
        self.n_features_in_ = X.shape[1]
        self.column_center_ = X.mean(axis=0)
        self.column_unit_ = np.maximum(X.std(axis=0), 1.0)  # indicators stay as small as they are
        self.center_, self.unit_ = centre_and_unit(y)
        standardised = np.clip((y - self.center_) / self.unit_, -MAX_VALUE, MAX_VALUE)
        self.constants_ = _arm_constants(standardised, a, counts)
        # An arm with little noise would have the whole say in the trunk. Its location moves in smaller units; without
        # any noise it keeps its constants and the networks skip it.
        log_scale = self.constants_[1]
        self.varies_ = log_scale > math.log(MIN_ARM_SCALE)
        self.reach_ = self.varies_ * np.minimum(MAX_RATIO * np.exp(log_scale - log_scale.max()), 1.0)
        ensemble = _Ensemble(self, self._inputs(X), a, standardised, rng, counts)
        kept = ensemble.train()
        self.weights_ = {name: layer.cpu().numpy().copy() for name, layer in ensemble.layers(kept).items()}
        self.best_epoch_ = ensemble.best_epoch
        self.held_out_log_likelihood_ = (
            ensemble.best
            + ensemble.constant
            + float(student_log_density(np.zeros(1), NETWORK_SHAPE)[0])
            - math.log(self.unit_)
        )
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        location, scale = self.along(X, slice(0, 0), np.empty((len(X), 1, 0)))  # no column moves
        return location[:, 0], scale[:, 0]

    def along(self, X: Array, columns: slice, points: Array) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        X, (n, g) = np.asarray(X, dtype=np.float64), points.shape[:2]
        change = ((points - X[:, None, columns]) / self.column_unit_[columns]).astype(np.float32)
        location, scale = np.empty((n, g, 2)), np.empty((n, g, 2))
        step = max(BLOCK_POINTS // max(g, 1), 1)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            inputs, moved = self._inputs(X[rows]), change[rows]
            entered = np.stack([(inputs @ w)[:, None] + moved @ w[:-1][columns] for w in self.weights_["enter"]])
            flat = entered.reshape(entered.shape[0], -1, entered.shape[-1])
            location[rows], scale[rows] = (out.reshape(-1, g, 2) for out in self._combine(flat))
        return location, scale

    def _inputs(self, X: Array) -> Float32:
        """Centred columns, and a constant for the biases."""
        columns = (X - self.column_center_) / self.column_unit_
        return np.column_stack((columns, np.ones(X.shape[0]))).astype(np.float32)

    def _combine(self, entered: Float32) -> tuple[Array, Array]:
        """Location and scale, shape (rows, 2) each, from the first-layer sums, (members, rows, hidden + 4)."""
        w = self.weights_
        n_hidden = w["second"].shape[-1]
        hidden = _silu(entered[..., :n_hidden])
        hidden = _silu(hidden @ w["second"] + w["second_bias"])
        output = (entered[..., n_hidden:] + hidden @ w["last"]).astype(np.float64)
        common, half = output[..., :1], output[..., 1:2] / 2
        location = self.constants_[0] + self.reach_ * np.concatenate((common - half, common + half), axis=-1)
        log_scale = self.constants_[1] + self.varies_ * LOG_BOUND * np.tanh(output[..., 2:] / LOG_BOUND)
        # Where the networks disagree none of them is to be trusted: their spread is part of the scale.
        scale = np.sqrt(np.exp(2 * log_scale).mean(axis=0) + location.var(axis=0))
        return self.center_ + self.unit_ * location.mean(axis=0), self.unit_ * scale


class _Ensemble(Networks):
    """Networks during training."""

    start_counts = True
    max_gradient = MAX_GRADIENT

    def __init__(
        self, learner: NeuralLearner, inputs: Float32, a: Ints, y: Array, rng: np.random.Generator, counts: Weights
    ) -> None:
        hidden, members, self.rng = learner.hidden, learner.members, rng
        shapes = {
            "enter": (inputs.shape[1], hidden + N_OUTPUTS),
            "second": (hidden, hidden),
            "second_bias": (1, hidden),
            "last": (hidden, N_OUTPUTS),
        }
        super().__init__(learner, "the neural learner", shapes, members)
        held, self.training = _held_out(a, members, learner.validation_fraction, rng)
        self.theta = self.tensor(np.stack([self._initial() for _ in range(members)]))
        decays = {name: np.full(shape, float(name != "second_bias")) for name, shape in shapes.items()}
        decays["enter"][-1] = 0.0
        self.threshold = self.tensor(learner.learning_rate * learner.weight_decay * self._flat(decays))
        self.inputs = self.tensor(inputs)
        # Per row: what each output adds to location and log-scale in units of the arm's constants, and the outcome.
        center, log_scale = learner.constants_
        unit = np.exp(-log_scale[a])
        reach = learner.reach_[a] * unit
        rows = np.column_stack((reach, (a - 0.5) * reach, a == 0, a == 1, (y - center[a]) * unit))
        rows *= learner.varies_[a][:, None]
        self.rows = self.tensor(np.column_stack((rows, counts.values)).astype(np.float32))  # weights come last
        self.held = self._gather(held)
        self.constant = -np.average(log_scale[a][held], axis=1, weights=counts.values[held])

    def _flat(self, layers: dict[str, Array]) -> Float32:
        return np.concatenate([layers[name].ravel() for name in self.shapes]).astype(np.float32)

    def _initial(self) -> Float32:
        """Random weights of one network; output weights are zero, so that it starts from the constants."""
        hidden = self.settings.hidden
        layers = {name: np.zeros(shape) for name, shape in self.shapes.items()}
        for name in ("enter", "second"):
            shape = (self.shapes[name][0], hidden)
            layers[name][:, :hidden] = self.rng.standard_normal(shape) / math.sqrt(shape[0])
        return self._flat(layers)

    def log_likelihood(self, theta: torch.Tensor, inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of each network at its rows, shape (members, rows), up to a constant."""
        torch, w = self.torch, self.layers(theta)
        first, direct = torch.bmm(inputs, w["enter"]).split((self.settings.hidden, N_OUTPUTS), dim=2)
        hidden = torch.nn.functional.silu(first)
        hidden = torch.nn.functional.silu(torch.baddbmm(w["second_bias"], hidden, w["second"]))
        output = torch.baddbmm(direct, hidden, w["last"])
        location, log_scale = (output * rows[..., :N_OUTPUTS]).unflatten(2, (2, 2)).sum(dim=3).unbind(dim=2)
        log_scale = LOG_BOUND * torch.tanh(log_scale / LOG_BOUND)
        squared = ((rows[..., N_OUTPUTS] - location) * (-log_scale).exp()).square()
        return -(NETWORK_SHAPE + 1) / 2 * torch.log1p(squared / NETWORK_SHAPE) - log_scale

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Every network's rows, each in its own order."""
        n_batches = int(np.clip(round(self.training.shape[1] / self.settings.batch_size), 1, MAX_STEPS))
        shuffled = self._gather(self.rng.permuted(self.training, axis=1))
        return zip(*(tensor.tensor_split(n_batches, dim=1) for tensor in shuffled), strict=True)

    def objective(self, theta: torch.Tensor, *batch: Any) -> torch.Tensor:
        """Mean log-likelihood of each network over the rows of a batch."""
        return self._mean(self.log_likelihood(theta, *batch), batch[1])

    def held_out(self, theta: torch.Tensor) -> Array:
        """Mean log-likelihood of each network over its held-out rows."""
        with self.torch.no_grad():
            values = self.log_likelihood(theta, *self.held).double()
            return self._mean(values, self.held[1], whole=True).cpu().numpy()

    def _gather(self, rows: Ints) -> tuple[torch.Tensor, torch.Tensor]:
        index = self.tensor(rows)
        return self.inputs[index], self.rows[index]

    def _mean(self, values: torch.Tensor, rows: torch.Tensor, whole: bool = False) -> torch.Tensor:
        """Mean over the rows of each network, by weights of mean 1 over the `whole`."""
        counts = rows[..., -1].to(values.dtype)
        counts = counts / counts.mean(dim=1, keepdim=True) if whole else counts
        return (values * counts).mean(dim=1)


def _held_out(a: Ints, members: int, fraction: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Held-out and training rows of each network, one row of each array per network, stratified by arm."""
    n = a.size
    position = np.empty(n)
    for arm in (0, 1):
        rows = rng.permutation(np.flatnonzero(a == arm))
        position[rows] = (np.arange(rows.size) + 0.5) / max(rows.size, 1)
    order = np.argsort(position, kind="stable")
    n_held = int(np.clip(round(fraction * n), 1, n - 1))
    turned = np.stack([np.roll(order, -member * n_held) for member in range(members)])
    return np.sort(turned[:, :n_held], axis=1), turned[:, n_held:]


def _arm_constants(y: Array, a: Ints, counts: Weights) -> Array:
    """Maximum likelihood location and log-scale of each arm without features, shape (2, 2)."""
    constants = np.zeros((2, 2))
    for arm in (0, 1):
        rows = a == arm if (a == arm).any() else np.ones(a.size, dtype=bool)
        values, counted = y[rows], counts[rows]
        center, scale = centre_and_unit(values)
        for _ in range(30):
            weight = student_weight((values - center) / scale, NETWORK_SHAPE)
            center = float(np.average(values, weights=counted.times(weight)))
            scale = max(math.sqrt(counted.mean(weight * (values - center) ** 2)), MIN_ARM_SCALE)
        constants[:, arm] = center, math.log(scale)
    return constants


def _silu(x: Float32) -> Float32:
    return (x / (1.0 + np.exp(-np.maximum(x, -80.0)))).astype(np.float32, copy=False)

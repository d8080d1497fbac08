"""Conditional variational autoencoder, trained in torch; it draws in numpy, or in torch on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax
from scipy.stats import qmc

from modifind._torch import OnDevice
from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.nuisance.conditional.contract import Calibration, Rows, decoder_calibration
from modifind.nuisance.conditional.distributions import Distribution, cell_grid, code_grid
from modifind.nuisance.conditional.sampler import BaseSampler, LearnedRule
from modifind.nuisance.regression.networks import Networks

if TYPE_CHECKING:
    import torch


Float32: TypeAlias = NDArray[np.float32]

# Bounds of the decoder's log-variance on the standardised scale. Below, one per cent of the column's spread: a
# narrower distribution would let a few ties dominate the likelihood. Above, so that no early step can overflow.
MIN_LOG_VARIANCE, MAX_LOG_VARIANCE = -9.2, 4.0
LATENT_NODES, NOISE_NODES = 64, 5
GRID_BLOCK = 1024


@dataclass(frozen=True)
class Decoder:
    """The generative half of one network: value of the feature from latent noise, row by row.

    Attributes
    ----------
    context : array of shape (n, hidden)
        What the other features add to the first hidden layer, bias included.
    weights : tuple of arrays
        Latent to first hidden layer, first to second, its bias, second to output, its bias.
    centre, spread : float
        Mean and standard deviation that the column was standardised by.
    n_levels : int
        Number of categories, 0 for a continuous feature.
    device : str
        Where the network is evaluated: numpy for "cpu", torch for any other. Noise is drawn by numpy in any case.
    """

    context: Float32
    weights: tuple[Float32, Float32, Float32, Float32, Float32]
    centre: float
    spread: float
    n_levels: int
    device: str = "cpu"

    def at(self, rows: Rows) -> Decoder:
        """The decoder for a subset of the rows."""
        return replace(self, context=self.context[rows])

    def output(self, latent: Array) -> Float32:
        """Mean and log-variance, or logits, at given latent values."""
        if self.device != "cpu":
            return self._on_device(latent)
        latent_weight, middle, middle_bias, last, last_bias = self.weights
        first = latent.astype(np.float32) @ latent_weight
        first += self.context
        second = np.maximum(first, 0, out=first) @ middle
        second += middle_bias
        return np.maximum(second, 0, out=second) @ last + last_bias

    @cached_property
    def _on_device(self) -> Callable[[Array], Float32]:
        """The same network with context and weights on the device."""
        on_device = OnDevice(self.device, "a decoder on a device")
        torch, tensor = on_device.torch, on_device.tensor
        context, latent_weight, middle, middle_bias, last, last_bias = map(tensor, (self.context, *self.weights))

        def output(latent: Array) -> Float32:
            hidden = torch.addmm(context, tensor(latent.astype(np.float32)), latent_weight).relu_()
            hidden = torch.addmm(middle_bias, hidden, middle).relu_()
            return torch.addmm(last_bias, hidden, last).cpu().numpy()

        return output

    def probabilities(self, latent: Array) -> Array:
        """Category probabilities at given latent values."""
        return softmax(self.output(latent)[:, : self.n_levels].astype(np.float64), axis=1)

    def moments(self, latent: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at given latent values, on the original scale."""
        mean, log_variance = self.output(latent).T.astype(np.float64)
        deviation = np.exp(0.5 * np.clip(log_variance, MIN_LOG_VARIANCE, MAX_LOG_VARIANCE))
        return self.centre + self.spread * mean, self.spread * deviation

    def latent(self, rng: np.random.Generator) -> Array:
        """Standard normal latent values of all rows."""
        return rng.standard_normal((self.context.shape[0], self.weights[0].shape[0]))


@dataclass(frozen=True)
class CVAEConditional(Distribution):
    """Distribution of one feature by a trained decoder of standard normal latent noise."""

    decoder: Decoder
    calibration: Calibration

    def __len__(self) -> int:
        return len(self.decoder.context)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns; latent values of all rows are drawn first, then the decoder's own noise."""
        decoder, draws = self.decoder, np.empty((n_draws, len(self)))
        for column in draws:
            latent = decoder.latent(rng)
            if decoder.n_levels:
                edges = np.cumsum(decoder.probabilities(latent), axis=1)[:, :-1]
                column[:] = (rng.random((len(self), 1)) > edges).sum(axis=1)
            else:
                mean, scale = decoder.moments(latent)
                column[:] = mean + scale * rng.standard_normal(len(self))
        return draws

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Cell means of the decoder's output over latent and noise nodes, or the average probabilities of codes."""
        decoder = self.decoder.at(rows)
        starts = range(0, max(decoder.context.shape[0], 1), GRID_BLOCK)
        grids = [_decoder_grid(decoder.at(slice(start, start + GRID_BLOCK))) for start in starts]
        points, weights = zip(*grids, strict=True)
        return np.concatenate(points), np.concatenate(weights)


@dataclass(frozen=True)
class CVAERule(LearnedRule):
    """A trained decoder for any rows.

    Attributes
    ----------
    decoder : Decoder
        Without rows.
    context_weights : array of shape (inputs, hidden)
        From the other features to the first hidden layer.
    mean_treatment : float or None
        Centre of the treatment; None where it is not conditioned on.
    """

    decoder: Decoder
    context_weights: Float32
    mean_treatment: float | None

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> CVAEConditional:
        """The distribution of some rows."""
        inputs = network_inputs(table, treatment, self.mean_treatment)
        return CVAEConditional(replace(self.decoder, context=inputs @ self.context_weights), self.calibration)


def network_inputs(table: FeatureTable, treatment: Ints, mean_treatment: float | None) -> Float32:
    """Design of all features, the treatment, and a constant for the first layers' biases."""
    arms = np.zeros(table.n_rows) if mean_treatment is None else treatment - mean_treatment
    return np.column_stack((table.with_indicators.design, arms, np.ones(table.n_rows))).astype(np.float32)


def _decoder_grid(decoder: Decoder) -> tuple[Array, Array]:
    nodes, noise = latent_nodes(decoder.weights[0].shape[0])
    latents = [np.broadcast_to(node, (decoder.context.shape[0], node.size)) for node in nodes]
    if decoder.n_levels:
        return code_grid(np.asarray(sum(map(decoder.probabilities, latents))) / len(latents))
    moments = map(decoder.moments, latents)
    points = [mean[:, None] + scale[:, None] * z for (mean, scale), z in zip(moments, noise, strict=True)]
    return cell_grid(np.concatenate(points, axis=1), np.full(noise.size, 1.0 / noise.size))


def latent_nodes(dim: int) -> tuple[Array, Array]:
    """Equally weighted nodes for expectations over the latent variables and the decoder's own noise.

    The nodes are normal scores of a Sobol sequence, shifted by half a cell to be symmetric in each variable, and scaled
    to variance 1. Gauss-Hermite rules are unsuitable: a decoder with two modes is nearly a step function. One more
    variable shifts a stratified sample of the noise, so that a decoder that ignores its latent variables still has as
    many values as there are nodes. Shapes are (LATENT_NODES, dim) and (LATENT_NODES, NOISE_NODES).
    """
    uniform = qmc.Sobol(dim + 1, scramble=False).random(LATENT_NODES) + 0.5 / LATENT_NODES
    latent = ndtri(uniform[:, :-1])
    noise = ndtri((np.arange(NOISE_NODES) + uniform[:, -1:]) / NOISE_NODES)
    return latent / latent.std(axis=0), noise / noise.std()


VALIDATION_NOISES, VALIDATION_BLOCK = 2, 1024


class CVAESampler(BaseSampler):
    """X_m given the rest by a conditional variational autoencoder per feature, all trained as one batch.

    Encoder q(z | x_m, rest) and decoder p(x_m | z, rest) have two hidden layers of ReLU units, as in Chikahara et
    al. (UAI 2022). The decoder is normal on the standardised value, or categorical. Each network keeps the running
    average of its weights at the epoch with the best held-out evidence bound, and stops when that has not improved
    for `patience` epochs.

    Needs torch (``pip install "modifind[cvae]"``) to fit, and with device="cpu" not to draw.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    hidden : int, default=128
        Units of each hidden layer.
    latent_dim : int, default=2
        Latent variables of each network.
    max_epochs : int, default=300
        Maximum number of passes over the training rows.
    batch_size : int, default=256
        Rows per step.
    learning_rate : float, default=1e-3
        Step size of Adam.
    patience : int, default=25
        Epochs without a better held-out bound, counted after the warm-up, that stop a network.
    warmup_epochs : int, default=10
        Epochs over which the weight of the Kullback-Leibler term rises to 1; without them the latent variable
        falls out of use before a distribution with two modes is found.
    validation_fraction : float, default=0.2
        Share of rows held out for early stopping and calibration.
    device : {"cpu", "cuda", "cuda:0", ...}, default="cpu"
        Where the networks are trained and evaluated. Random numbers are numpy's, so that a GPU differs by rounding in
        single precision only.
    n_threads : int, default=1
        Threads torch trains with on the CPU. The steps are many and small: on a machine that is busy otherwise, a
        second thread can make training slower by far.
    chunk_features : int, default=64
        Networks trained at a time; bounds memory and does not change results beyond rounding.

    Attributes
    ----------
    best_epoch_ : array of shape (d,)
        Epoch, from 1, whose weights each network keeps.
    held_out_elbo_ : array of shape (d,)
        Evidence bound at that epoch, in nats per held-out row (density of the standardised value if continuous).
    validation_rows_ : array of int
        The rows held out.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.features import FeatureTable
    >>> from modifind import CVAESampler
    >>> values = np.random.default_rng(0).normal(size=(200, 2))
    >>> table, arms = FeatureTable(("x", "y"), values, (None, None)), np.arange(200) % 2
    >>> sampler = CVAESampler(hidden=8, max_epochs=5).fit(table, arms, np.random.SeedSequence(0))
    >>> sampler.conditional(0).draw(np.random.default_rng(0), 3).shape
    (3, 200)
    """

    name = "cvae"
    learns = True

    def __init__(
        self,
        *,
        condition_on_treatment: bool = True,
        hidden: int = 128,
        latent_dim: int = 2,
        max_epochs: int = 300,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        patience: int = 25,
        warmup_epochs: int = 10,
        validation_fraction: float = 0.2,
        device: str = "cpu",
        n_threads: int = 1,
        chunk_features: int = 64,
    ) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.warmup_epochs = warmup_epochs
        self.validation_fraction = validation_fraction
        self.device = device
        self.n_threads = n_threads
        self.chunk_features = chunk_features

    def _read(self, table: FeatureTable) -> FeatureTable:
        """The table with an indicator of every level for the networks."""
        return table.with_indicators

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Train the networks of all features."""
        table = self.table_
        split_seed, self.order_seed_ = seed.spawn(2)
        order = np.random.default_rng(split_seed).permutation(table.n_rows)
        n_held = int(np.clip(round(self.validation_fraction * table.n_rows), 1, table.n_rows - 1))
        self.validation_rows_ = np.sort(order[:n_held])
        self.mean_treatment_ = float(self.treatment_.mean()) if self.condition_on_treatment else None
        self.inputs_ = network_inputs(table, self.treatment_, self.mean_treatment_)
        self.best_epoch_ = np.zeros(table.n_features, dtype=np.int64)
        self.held_out_elbo_ = np.full(table.n_features, -np.inf)
        self.decoders_: list[dict[str, Float32]] = []
        for start in range(0, table.n_features, self.chunk_features):
            features = np.arange(start, min(start + self.chunk_features, table.n_features))
            networks = FeatureNetworks(self, features, order[n_held:])
            self.decoders_ += networks.decoders()
            self.best_epoch_[features], self.held_out_elbo_[features] = networks.best_epoch, networks.best

    def rule(self, feature: int) -> CVAERule:
        """The trained network of one feature, with its calibration on the held-out rows."""
        column = self.table_.values[:, feature]
        # A jump ahead, so that calibration shares no numbers with training and `rule` may be called again.
        rng = np.random.Generator(np.random.PCG64(self.seeds_[feature]).jumped())
        weights, n_levels = self.decoders_[feature], self.table_.n_levels(feature)
        context_weights, n_outputs = weights["decode_context"], n_levels or 2
        hidden = weights["decode_latent"], weights["decode_2"], weights["decode_2_bias"]
        output = np.ascontiguousarray(weights["decode_3"][:, :n_outputs]), weights["decode_3_bias"][:, :n_outputs]
        context, moments = self.inputs_ @ context_weights, (float(column.mean()), float(column.std()))
        decoder = Decoder(context, (*hidden, *output), *moments, n_levels, self.device)
        calibration = decoder_calibration(self.name, decoder, column, self.validation_rows_, rng, self.weights_)
        empty = replace(decoder, context=context[:0].copy())
        return CVAERule(empty, context_weights, self.mean_treatment_, calibration=calibration)


class FeatureNetworks(Networks):
    """Networks of several features, trained side by side."""

    finished_leave = True

    def __init__(self, sampler: CVAESampler, features: Ints, training_rows: Ints) -> None:
        table, hidden, latent = sampler.table_, sampler.hidden, sampler.latent_dim
        n_inputs = sampler.inputs_.shape[1]
        n_outputs = max(2, *(table.n_levels(m) for m in range(table.n_features)))
        self.training_rows, self.warmup_epochs = training_rows, sampler.warmup_epochs
        shapes = {
            "encode_1": (n_inputs, hidden),
            "encode_2": (hidden, hidden),
            "encode_2_bias": (1, hidden),
            "encode_3": (hidden, 2 * latent),
            "encode_3_bias": (1, 2 * latent),
            "decode_context": (n_inputs, hidden),
            "decode_latent": (latent, hidden),
            "decode_2": (hidden, hidden),
            "decode_2_bias": (1, hidden),
            "decode_3": (hidden, n_outputs),
            "decode_3_bias": (1, n_outputs),
        }
        super().__init__(sampler, "the cvae sampler", shapes, features.size)
        self.generators = [np.random.default_rng(sampler.seeds_[m]) for m in features]
        self.theta = self.tensor(np.stack([self._initial(rng) for rng in self.generators]))
        self.inputs = self.tensor(sampler.inputs_)
        self.weights = self.tensor(sampler.weights_.values.astype(np.float32))
        levels = np.array([table.n_levels(m) for m in features])
        self.mask = np.ones((features.size, n_inputs, 1), dtype=np.float32)
        for mask, m in zip(self.mask, features, strict=True):
            mask[table.encoding[m]] = 0.0
        columns = table.values[:, features].T
        standardised = np.stack([table.encode(m, table.values[:, m])[:, 0] for m in features])
        # Everything that has a row per network, so that finished networks can be dropped in one place.
        self.data = {
            "mask": self.tensor(self.mask),
            "value": self.tensor(np.where(levels[:, None] > 0, 0.0, standardised).astype(np.float32)),
            "code": self.tensor(np.where(levels[:, None] > 0, columns, 0.0).astype(np.int64)[..., None]),
            "discrete": self.tensor(levels[:, None] > 0),
            "impossible": self.tensor((np.arange(n_outputs) >= np.maximum(levels, 1)[:, None])[:, None]),
        }
        self.any_discrete = bool((levels > 0).any())
        # One stream orders the rows for all networks, started anew by every chunk.
        self.order = np.random.default_rng(sampler.order_seed_)
        self.held_rows = self.tensor(np.tile(sampler.validation_rows_, VALIDATION_NOISES))
        self.data["held_noise"] = self._noise(len(self.held_rows))

    def _initial(self, rng: np.random.Generator) -> Float32:
        """Random weights of one network; the last layer is zero: training starts from the marginal distribution."""
        parts = []
        for name, (n_in, n_out) in self.shapes.items():
            fan_in = self.settings.hidden if name.endswith("bias") else n_in
            scale = 0.0 if name.startswith("decode_3") else 1.0 / math.sqrt(fan_in)
            parts.append(scale * rng.uniform(-1.0, 1.0, n_in * n_out))
        return np.concatenate(parts).astype(np.float32)

    def elbo(self, theta: torch.Tensor, rows: torch.Tensor, noise: torch.Tensor, beta: float) -> torch.Tensor:
        """Evidence bound of each network at each row, shape (networks, rows), with the KL term weighted by `beta`."""
        torch, w = self.torch, self.layers(theta)
        w["decode_context"] = w["decode_context"] * self.data["mask"]
        x = self.inputs[rows].expand(theta.shape[0], -1, -1)
        hidden = torch.bmm(x, w["encode_1"]).relu()
        hidden = torch.baddbmm(w["encode_2_bias"], hidden, w["encode_2"]).relu()
        posterior = torch.baddbmm(w["encode_3_bias"], hidden, w["encode_3"])
        mean, log_variance = posterior.chunk(2, dim=2)
        log_variance = log_variance.clamp(-8.0, 4.0)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=2)
        latent = mean + noise * (0.5 * log_variance).exp()
        hidden = torch.baddbmm(torch.bmm(x, w["decode_context"]), latent, w["decode_latent"]).relu()
        hidden = torch.baddbmm(w["decode_2_bias"], hidden, w["decode_2"]).relu()
        output = torch.baddbmm(w["decode_3_bias"], hidden, w["decode_3"])
        return self._log_likelihood(output, rows) - beta * divergence

    def _log_likelihood(self, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        log_variance = output[..., 1].clamp(MIN_LOG_VARIANCE, MAX_LOG_VARIANCE)
        error = (self.data["value"][:, rows] - output[..., 0]).square() * (-log_variance).exp()
        normal = -0.5 * (log_variance + error + math.log(2.0 * math.pi))
        if not self.any_discrete:
            return normal
        logits = output.masked_fill(self.data["impossible"], -1e9).log_softmax(dim=2)
        categorical = logits.gather(2, self.data["code"][:, rows]).squeeze(2)
        return self.torch.where(self.data["discrete"], categorical, normal)

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, float]]:
        """Shuffled rows, with the noise of each network and the weight of the KL term."""
        rows, beta = self.training_rows, min(1.0, epoch / max(self.warmup_epochs, 1))
        n_batches = max(1, round(rows.size / self.settings.batch_size))
        shuffled = self.tensor(self.order.permutation(rows)).tensor_split(n_batches)
        noise = self._noise(rows.size).tensor_split(n_batches, dim=1)
        return ((batch, batch_noise, beta) for batch, batch_noise in zip(shuffled, noise, strict=True))

    def objective(self, theta: torch.Tensor, *batch: Any) -> torch.Tensor:
        """Mean bound of each network over the rows of a batch."""
        return self._weighted(self.elbo(theta, *batch), batch[0]).mean(dim=1)

    def held_out(self, theta: torch.Tensor) -> Array:
        """Mean bound over the held-out rows, in blocks that limit memory."""
        rows, noise = self.held_rows, self.data["held_noise"]
        with self.torch.no_grad():
            blocks = zip(rows.split(VALIDATION_BLOCK), noise.split(VALIDATION_BLOCK, dim=1), strict=True)
            total = sum(self._weighted(self.elbo(theta, *block, beta=1.0), block[0]).sum(dim=1) for block in blocks)
        return total.cpu().numpy().astype(np.float64) / float(self.weights[rows].sum())

    def keep(self, stay: torch.Tensor) -> None:
        """Drop the data of networks that have finished."""
        self.data = {name: tensor[stay] for name, tensor in self.data.items()}

    def decoders(self) -> list[dict[str, Float32]]:
        """Train until every network has stopped; return the weights of the decoders."""
        kept = self.train()
        layers = {n: layer.cpu().numpy() for n, layer in self.layers(kept).items() if n.startswith("decode")}
        layers["decode_context"] = layers["decode_context"] * self.mask
        return [{name: layer[i].copy() for name, layer in layers.items()} for i in range(len(kept))]

    def _noise(self, n_rows: int) -> torch.Tensor:
        """Normal noise, each network's from its own stream."""
        shape = (n_rows, self.settings.latent_dim)
        return self.tensor(np.stack([self.generators[i].standard_normal(shape, dtype=np.float32) for i in self.alive]))

    def _weighted(self, bound: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Terms of a sum over rows."""
        return bound * self.weights[rows]

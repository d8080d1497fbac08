"""The decoder of a trained conditional autoencoder, which draws by numpy, or by torch on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax
from scipy.stats import qmc

from modifind._torch import OnDevice
from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.nuisance.conditional.contract import Calibration, Rows
from modifind.nuisance.conditional.grid import Distribution, cell_grid, code_grid
from modifind.nuisance.conditional.rules import LearnedRule

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
        """The decoder of some rows only."""
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
        """The same network with its context and weights on the device."""
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
    """The distribution of one feature as a trained decoder fed with standard normal latent noise."""

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
    """The design of all features, the treatment and a constant that carries the first layers' biases."""
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

    The nodes are normal scores of a Sobol sequence, moved by half a cell so that they are symmetric in each variable,
    and stretched to variance 1. Gauss-Hermite rules are no choice here: a decoder with two modes is nearly a step
    function. One more variable shifts a stratified sample of the noise, so that a decoder that ignores its latent
    variables still has as many values as there are nodes. Shapes are (LATENT_NODES, dim) and (LATENT_NODES,
    NOISE_NODES).
    """
    uniform = qmc.Sobol(dim + 1, scramble=False).random(LATENT_NODES) + 0.5 / LATENT_NODES
    latent = ndtri(uniform[:, :-1])
    noise = ndtri((np.arange(NOISE_NODES) + uniform[:, -1:]) / NOISE_NODES)
    return latent / latent.std(axis=0), noise / noise.std()

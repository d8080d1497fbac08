"""The paper's method on many tables at once, by torch: all networks of a kind train side by side.

The tables of one seed share features and treatment whatever their kind, so networks and draws are made once for all
kinds. A part for `readings.py`, which varies what the paper leaves open, and for `full_runs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

B = 100
ALPHA = 0.05
N_FOURIER, MAX_RANK = 1000, 600
# As in modifind.statistics.kernels: nodes per bandwidth, and how far they reach beyond the data.
NODES_PER_BANDWIDTH, REACH = 2.9, 2.2
MAX_CELLS = 2**30  # numbers in the largest array


@dataclass(frozen=True)
class Tables:
    """T tables of one size.

    Attributes
    ----------
    x : tensor of shape (T, n, d)
        Features, codes where they are discrete.
    arms : tensor of shape (T, n)
        Treatment, 0 or 1.
    y : array of shape (K, T, n)
        Outcomes of K kinds.
    levels : tuple of d int
        Number of categories of each feature, 0 for a continuous one.
    design : tensor of shape (T, n, p)
        Features as networks see them.
    columns : tuple of d slices
        Columns of the design that belong to each feature.
    """

    x: Tensor
    arms: Tensor
    y: np.ndarray
    levels: tuple[int, ...]
    design: Tensor
    columns: tuple[slice, ...]

    @classmethod
    def of(cls, x: np.ndarray, arms: np.ndarray, y: np.ndarray, levels: Sequence[int], device: str) -> Tables:
        """Standardise continuous features and turn codes into indicators."""
        parts, columns, at = [], [], 0
        for m, n_levels in enumerate(levels):
            own = x[..., m, None]
            if n_levels:
                own = (own == np.arange(1, max(n_levels, 2))).astype(float)
            else:
                own = (own - own.mean(1, keepdims=True)) / own.std(1, keepdims=True)
            parts.append(own)
            columns.append(slice(at, at + own.shape[-1]))
            at += own.shape[-1]
        given = (torch.tensor(a, dtype=torch.float32, device=device) for a in (x, arms, np.concatenate(parts, -1)))
        features, treatment, design = given
        return cls(features, treatment, y, tuple(levels), design, tuple(columns))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Tables, rows and features."""
        return tuple(self.x.shape)  # type: ignore[return-value]


# ---- propensity networks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """How a propensity network is trained; the defaults are those of scikit-learn's `MLPClassifier`."""

    units: int = 50
    layers: int = 2
    epochs: int = 0  # exactly so many; 0 for as many as `stop` says
    stop: str = "loss"  # best held-out "loss" of a fifth of the rows, or "accuracy" of a tenth as scikit-learn has it
    standardise: bool = True
    init: str = "glorot"  # or "torch", uniform within 1/sqrt(inputs)
    scale: float = 1.0  # of the initial weights
    optimiser: str = "adam"
    rate: float = 1e-3
    batch: int = 200
    decay: float = 0.0  # weight decay, added to the gradient
    dropout: float = 0.0
    smoothing: float = 0.0
    folds: int = 1  # above 1, rows are scored by networks that have not seen them


@dataclass
class Trained:
    """Weights of one network per table, and what its scores need."""

    layers: list[tuple[Tensor, Tensor]]
    inputs: Tensor
    columns: tuple[slice, ...]

    def scores(self) -> Tensor:
        """Scores of the rows, shape (T, n)."""
        return forward(self.inputs, self.layers).sigmoid()

    def along(self, table: int, draws: Tensor, spread: Tensor) -> Tensor:
        """Scores of the rows of one table with features replaced, shape (d, k, n) as `draws`; continuous only."""
        (first, bias), *rest = [(weight[table], own[table]) for weight, own in self.layers]
        still = self.inputs[table] @ first + bias
        scores = torch.empty_like(draws)
        for m, columns in enumerate(self.columns):
            moved = draws[m] / spread[m] - self.inputs[table][:, columns.start]
            hidden = still + moved[..., None] * first[columns.start]
            for weight, own in rest:
                hidden = hidden.relu() @ weight + own
            scores[m] = hidden[..., 0].sigmoid()
        return scores


def forward(x: Tensor, layers: list[tuple[Tensor, Tensor]], dropout: float = 0.0) -> Tensor:
    """Log-odds, shape (T, n)."""
    for k, (weight, bias) in enumerate(layers):
        if k:
            x = torch.nn.functional.dropout(x.relu(), dropout) if dropout else x.relu()
        x = torch.baddbmm(bias, x, weight)
    return x[..., 0]


def fit_networks(tables: Tables, net: Network, epochs: Iterable[int], seed: int) -> dict[int, Trained]:
    """Networks after each of these numbers of epochs, or under 0 those that `net.stop` chose."""
    torch.manual_seed(seed)
    inputs = tables.design if net.standardise else tables.x
    n_tables, n, p = inputs.shape
    sizes = [p, *[net.units] * net.layers, 1]
    layers = []
    for n_in, n_out in pairwise(sizes):
        bound = net.scale * (math.sqrt(6 / (n_in + n_out)) if net.init == "glorot" else 1 / math.sqrt(n_in))
        layers.append([torch.empty(n_tables, size, n_out, device=inputs.device) for size in (n_in, 1)])
        for own in layers[-1]:
            own.uniform_(-bound, bound).requires_grad_()
    flat = [own for pair in layers for own in pair]
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    extra = {"momentum": 0.9} if net.optimiser == "sgd" else {}
    optimiser = kinds[net.optimiser](flat, lr=net.rate, weight_decay=net.decay, **extra)
    wanted, pairs, kept = sorted(epochs), [tuple(pair) for pair in layers], {}
    stopping = _Stopping(net, n_tables, n, inputs.device) if 0 in wanted else None
    last = 200 if stopping else wanted[-1]
    rows = stopping.training if stopping else torch.arange(n, device=inputs.device).expand(n_tables, n)
    table = torch.arange(n_tables, device=inputs.device)[:, None]
    target = tables.arms * (1 - net.smoothing) + net.smoothing / 2
    for epoch in range(1, last + 1):
        order = rows.gather(1, torch.rand(rows.shape, device=inputs.device).argsort(1))
        for batch in order.split(min(net.batch, order.shape[1]), 1):
            odds = forward(inputs[table, batch], pairs, net.dropout)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, target[table, batch], reduction="none")
            optimiser.zero_grad(set_to_none=True)
            loss.mean(1).sum().backward()
            optimiser.step()
        if epoch in wanted:
            kept[epoch] = Trained(_copied(pairs), inputs, tables.columns)
        if stopping and not stopping.watch(forward(inputs, pairs).detach(), tables.arms, pairs, epoch):
            break
    if stopping:
        kept[0] = Trained(stopping.best, inputs, tables.columns)
    return kept


class _Stopping:
    """Keeps the weights of each table that are best on rows held out."""

    def __init__(self, net: Network, n_tables: int, n: int, device: torch.device) -> None:
        self.by_loss = net.stop == "loss"
        order = torch.rand(n_tables, n, device=device).argsort(1)
        n_held = n // 5 if self.by_loss else n // 10
        self.held, self.training = order[:, :n_held], order[:, n_held:]
        self.score = torch.full((n_tables,), -math.inf, device=device)
        self.epoch = torch.zeros(n_tables, device=device)
        self.best: list[tuple[Tensor, Tensor]] = []

    def watch(self, odds: Tensor, arms: Tensor, pairs: list[Any], epoch: int) -> bool:
        """Whether any table goes on."""
        odds, truth = odds.gather(1, self.held), arms.gather(1, self.held)
        if self.by_loss:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, truth, reduction="none")
            found, gain = -loss.mean(1), 0.0
        else:
            found, gain = ((odds > 0) == (truth > 0)).float().mean(1), 1e-4
        better = (found > self.score + gain) & (epoch - self.epoch <= 10)
        if not self.best:
            self.best = _copied(pairs)
        for kept, new in zip(self.best, pairs, strict=True):
            for own, now in zip(kept, new, strict=True):
                own[better] = now.detach()[better]
        self.score[better], self.epoch[better] = found[better], epoch
        return bool((epoch - self.epoch < 10).any())


def _copied(pairs: list[Any]) -> list[tuple[Tensor, Tensor]]:
    return [(weight.detach().clone(), bias.detach().clone()) for weight, bias in pairs]


def held_out_scores(tables: Tables, net: Network, epochs: int, seed: int) -> Tensor:
    """Scores of every row by networks of the other folds."""
    n_tables, n, _ = tables.shape
    scores = torch.empty(n_tables, n, device=tables.x.device)
    fold = torch.arange(n, device=tables.x.device) % net.folds
    for k in range(net.folds):
        train = fold != k
        some = replace(tables, x=tables.x[:, train], design=tables.design[:, train], arms=tables.arms[:, train])
        fitted = fit_networks(some, net, [epochs], seed + k)[epochs]
        inputs = tables.design if net.standardise else tables.x
        scores[:, ~train] = replace(fitted, inputs=inputs[:, ~train]).scores()
    return scores


# ---- draws of a feature given the others -----------------------------------------------------------------------------


def gaussian_draws(tables: Tables, seed: int) -> Tensor:
    """Draws from normal distributions around linear regressions, shape (T, d, B, n)."""
    torch.manual_seed(seed)
    x = tables.x - tables.x.mean(1, keepdim=True)
    precision = torch.linalg.inv((x.transpose(1, 2) @ x / x.shape[1]).double()).float()
    variance = 1 / precision.diagonal(dim1=1, dim2=2)
    mean = tables.x - x @ (precision * variance[:, None, :])
    n_tables, n, d = tables.shape
    noise = torch.randn(n_tables, d, B, n, device=x.device)
    return mean.transpose(1, 2)[:, :, None] + variance.sqrt()[:, :, None, None] * noise


def marginal_draws(tables: Tables, seed: int) -> Tensor:
    """Draws from the column's own values, shape (T, d, B, n): the paper's Naive."""
    torch.manual_seed(seed)
    n_tables, n, d = tables.shape
    place = torch.randint(n, (n_tables, d, B * n), device=tables.x.device)
    return tables.x.transpose(1, 2).gather(2, place).view(n_tables, d, B, n)


@dataclass(frozen=True)
class Autoencoder:
    """How autoencoders are trained; the defaults are those of the preset."""

    hidden: int = 128
    latent: int = 2
    epochs: int = 0  # exactly so many on all rows; 0 for the best held-out bound
    max_epochs: int = 300
    batch: int = 256
    rate: float = 1e-3
    patience: int = 10
    warmup: int = 10
    variance: str = "learned"  # or "unit": the squared error of most code for images
    noise: bool = True  # whether draws have the decoder's noise, or are its mean


class Autoencoders:
    """One conditional autoencoder per table and feature."""

    def __init__(self, tables: Tables, settings: Autoencoder, seed: int) -> None:
        torch.manual_seed(seed)
        self.tables, self.settings = tables, settings
        n_tables, n, d = tables.shape
        self.device = tables.x.device
        ones = torch.ones(n_tables, n, 1, device=self.device)
        self.inputs = torch.cat((tables.design, ones), -1)
        p, hidden, latent = self.inputs.shape[-1], settings.hidden, settings.latent
        self.levels = torch.tensor(tables.levels, device=self.device)
        n_out = max(2, *tables.levels)
        shapes = {
            "encode_1": (p, hidden),
            "encode_2": (hidden, hidden),
            "encode_2_bias": (1, hidden),
            "encode_3": (hidden, 2 * latent),
            "encode_3_bias": (1, 2 * latent),
            "context": (p, hidden),
            "decode_1": (latent, hidden),
            "decode_2": (hidden, hidden),
            "decode_2_bias": (1, hidden),
            "decode_3": (hidden, n_out),
            "decode_3_bias": (1, n_out),
        }
        self.weights = {}
        for name, (n_in, size) in shapes.items():
            bound = 0.0 if name.startswith("decode_3") else 1 / math.sqrt(hidden if name.endswith("bias") else n_in)
            own = torch.empty(n_tables * d, n_in, size, device=self.device).uniform_(-bound, bound)
            self.weights[name] = own.requires_grad_()
        mask = torch.ones(d, p, 1, device=self.device)
        value = torch.zeros(n_tables, n, d, device=self.device)
        for m, columns in enumerate(tables.columns):
            mask[m, columns] = 0
            if not tables.levels[m]:
                value[..., m] = tables.design[..., columns.start]
        self.mask = mask.repeat(n_tables, 1, 1)
        self.value = value.transpose(1, 2).reshape(n_tables * d, n)
        self.discrete = (self.levels > 0).repeat(n_tables)
        columns = tables.x.transpose(1, 2).reshape(n_tables * d, n)
        self.codes = torch.where(self.discrete[:, None], columns, 0.0).long()
        places = torch.arange(n_out, device=self.device)
        self.impossible = (places >= self.levels[:, None].clamp_min(1)).repeat(n_tables, 1)

    def bound(self, w: dict[str, Tensor], rows: Tensor, beta: float) -> Tensor:
        """Evidence bound of each network at each row, shape (networks, rows)."""
        d = self.tables.shape[2]
        x = self.inputs[:, rows].repeat_interleave(d, 0)
        hidden = torch.bmm(x, w["encode_1"]).relu()
        hidden = torch.baddbmm(w["encode_2_bias"], hidden, w["encode_2"]).relu()
        mean, spread = torch.baddbmm(w["encode_3_bias"], hidden, w["encode_3"]).chunk(2, 2)
        spread = spread.clamp(-8, 4)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(2)
        latent = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        out = self._decoded(w, torch.bmm(x, w["context"] * self.mask), latent)
        log_variance = (
            out[..., 1].clamp(-9.2, 4) if self.settings.variance == "learned" else torch.zeros_like(out[..., 1])
        )
        error = (self.value[:, rows] - out[..., 0]).square() * (-log_variance).exp()
        likelihood = -0.5 * (log_variance + error + math.log(2 * math.pi))
        if bool(self.discrete.any()):
            logits = out.masked_fill(self.impossible[:, None], -1e9).log_softmax(2)
            chosen = logits.gather(2, self.codes[:, rows, None])[..., 0]
            likelihood = torch.where(self.discrete[:, None], chosen, likelihood)
        return likelihood - beta * divergence

    @staticmethod
    def _decoded(w: dict[str, Tensor], context: Tensor, latent: Tensor) -> Tensor:
        hidden = torch.baddbmm(context, latent, w["decode_1"]).relu()
        hidden = torch.baddbmm(w["decode_2_bias"], hidden, w["decode_2"]).relu()
        return torch.baddbmm(w["decode_3_bias"], hidden, w["decode_3"])

    def train(self) -> Autoencoders:
        """Train all, and keep the running average of each at its best epoch."""
        own, n = self.settings, self.tables.shape[1]
        n_held = 0 if own.epochs else round(0.2 * n)
        order = torch.randperm(n, device=self.device)
        held, training = order[:n_held].repeat(2), order[n_held:]
        flat = list(self.weights.values())
        optimiser = torch.optim.Adam(flat, lr=own.rate, fused=self.device.type == "cuda")
        average = {name: weight.detach().clone() for name, weight in self.weights.items()}
        kept = {name: weight.clone() for name, weight in average.items()}
        best = torch.full((len(self.value),), -math.inf, device=self.device)
        best_epoch, step = torch.zeros_like(best), 0
        for epoch in range(1, (own.epochs or own.max_epochs) + 1):
            beta = min(1.0, epoch / max(own.warmup, 1))
            shuffled = training[torch.randperm(len(training), device=self.device)]
            for rows in shuffled.tensor_split(max(1, round(len(training) / own.batch))):
                step += 1
                optimiser.zero_grad(set_to_none=True)
                (-self.bound(self.weights, rows, beta).mean(1).sum()).backward()
                optimiser.step()
                share = 1.0 - min(0.98, step / (step + 9.0))
                for name, weight in self.weights.items():
                    average[name].lerp_(weight.detach(), share)
            if not own.epochs:
                with torch.no_grad():
                    blocks = held.split(512)
                    score = sum(self.bound(average, rows, 1.0).sum(1) for rows in blocks) / len(held)
                better = (score > best) & (epoch - best_epoch.clamp_min(own.warmup) < own.patience)
                best[better], best_epoch[better] = score[better], epoch
                for name, weight in average.items():
                    kept[name][better] = weight[better]
                if not bool((epoch - best_epoch.clamp_min(own.warmup) < own.patience).any()):
                    break
        self.weights = average if own.epochs else kept
        self.best_epoch = best_epoch
        return self

    @torch.no_grad()
    def draws(self) -> Tensor:
        """Draws of all features, shape (T, d, B, n)."""
        n_tables, n, d = self.tables.shape
        out = torch.empty(n_tables, d, B, n, device=self.device)
        centre, spread = self.tables.x.mean(1), self.tables.x.std(1, correction=0)
        for table in range(n_tables):
            own = slice(table * d, (table + 1) * d)
            w = {name: weight[own].detach() for name, weight in self.weights.items()}
            context = self.inputs[table] @ (w["context"] * self.mask[own])
            for b in range(B):
                latent = torch.randn(d, n, self.settings.latent, device=self.device)
                found = self._decoded(w, context, latent)
                deviation = (0.5 * found[..., 1].clamp(-9.2, 4)).exp() if self.settings.variance == "learned" else 1.0
                value = found[..., 0]
                if self.settings.noise:
                    value = value + deviation * torch.randn(d, n, device=self.device)
                value = centre[table][:, None] + spread[table][:, None] * value
                if bool(self.discrete.any()):
                    chances = found.masked_fill(self.impossible[own][:, None], -1e9).softmax(2)
                    codes = (torch.rand(d, n, 1, device=self.device) > chances.cumsum(2)[..., :-1]).sum(2)
                    value = torch.where(self.discrete[own][:, None], codes.float(), value)
                out[table, :, b] = value
        return out


# ---- the statistic ---------------------------------------------------------------------------------------------------


def outcome_map(
    y: np.ndarray, gamma: float, device: torch.device, fourier: bool = False, tolerance: float = 1e-7
) -> Tensor:
    """Columns U with UU' = exp(-gamma (y - y')^2), or the product of random Fourier features.

    By pivoted Cholesky factorisation of the distinct values.
    """
    distinct, place = np.unique(y, return_inverse=True)
    values = torch.tensor(distinct, device=device)
    residual = torch.ones_like(values)
    if fourier:
        frequencies = torch.randn(N_FOURIER, device=device, dtype=torch.float64) * math.sqrt(2 * gamma)
        phases = 2 * math.pi * torch.rand(N_FOURIER, device=device, dtype=torch.float64)
        features = math.sqrt(2 / N_FOURIER) * torch.cos(values[:, None] * frequencies + phases)
        residual = features.square().sum(1)
    columns = torch.empty(MAX_RANK, len(values), device=device, dtype=torch.float64)
    for k in range(MAX_RANK):
        pivot = int(residual.argmax())
        if float(residual[pivot]) < tolerance:
            break
        kernel = features @ features[pivot] if fourier else torch.exp(-gamma * (values - values[pivot]).square())
        columns[k] = (kernel - columns[:k, pivot] @ columns[:k]) / residual[pivot].sqrt()
        residual = residual - columns[k].square()
    return columns[:k].T[torch.tensor(place, device=device)].float()


def kernel_roots(x: Tensor, bandwidth: Tensor) -> Tensor:
    """Columns R with RR' proportional to the Gaussian kernel, shape (columns, n, nodes), of x of shape (columns, n)."""
    scaled = x / bandwidth[:, None]
    low = scaled.amin(1) - REACH
    n_nodes = math.ceil(float((scaled.amax(1) + REACH - low).max()) * NODES_PER_BANDWIDTH) + 1
    nodes = low[:, None] + torch.arange(n_nodes, device=x.device) / NODES_PER_BANDWIDTH
    return torch.exp(-2 * (scaled[..., None] - nodes[:, None]).square_())


def feature_roots(x: Tensor, bandwidth: Tensor, n_levels: int) -> Tensor:
    """The same of a continuous feature or of a discrete one."""
    return torch.nn.functional.one_hot(x.long(), n_levels).to(x.dtype) if n_levels else kernel_roots(x, bandwidth)


def importances(roots: Tensor, maps: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Variance over rows of D2 under Horvitz-Thompson weights, shape (columns, K, R).

    Parameters
    ----------
    roots : tensor of shape (columns, n, nodes)
    maps : K tensors of shape (n, r)
        Outcome maps.
    weights : tensor of shape (n, R), or (columns, n, R)
        Inverse probability weights of R readings, negative for the control arm.
    """
    total = roots @ roots.sum(1)[..., None]  # (columns, n, 1)
    ranks = [outcome.shape[1] for outcome in maps]
    stacked = torch.cat(list(maps), 1)
    n_readings = weights.shape[-1]
    at_once = 1 if weights.dim() == 3 else max(1, MAX_CELLS // (total.numel() * stacked.shape[1]))
    found = torch.empty(len(roots), len(maps), n_readings, device=roots.device)
    for start in range(0, n_readings, at_once):
        own = weights[..., start : start + at_once]
        if weights.dim() == 2:
            weighted = (own[:, :, None] * stacked[:, None]).flatten(1)
            sums = roots.transpose(1, 2) @ weighted
        else:
            sums = (roots * own).transpose(1, 2) @ stacked
        squares = ((roots @ sums) / total).square_().unflatten(2, (own.shape[-1], -1))
        for k, part in enumerate(squares.split(ranks, 3)):
            found[:, k, start : start + at_once] = part.sum(3).var(1)
    return found


def hajek_importances(roots: Tensor, maps: Sequence[Tensor], weights: Tensor) -> Tensor:
    """The same with each arm divided by the sum of its own weights."""
    ranks = [outcome.shape[1] for outcome in maps]
    stacked = torch.cat([torch.ones_like(maps[0][:, :1]), *maps], 1)
    found = torch.empty(len(roots), len(maps), weights.shape[-1], device=roots.device)
    for reading in range(weights.shape[-1]):
        own, means = weights[..., reading, None], []
        for arm in (own.clamp_min(0), (-own).clamp_min(0)):
            weighted = arm * stacked if own.dim() == 2 else stacked
            sums = (roots if own.dim() == 2 else roots * arm).transpose(1, 2) @ weighted
            totals = roots @ sums
            means.append(totals[..., 1:] / totals[..., :1])
        squares = (means[0] - means[1]).square_()
        for k, part in enumerate(squares.split(ranks, 2)):
            found[:, k, reading] = part.sum(2).nan_to_num(0.0).var(1)
    return found


def p_values(statistics: Tensor, tie: float = 1e-6) -> Tensor:
    """The paper's count / B, from statistics of shape (1 + B, ...) with the observed one first."""
    return (statistics[1:] >= statistics[0] * (1 - tie)).float().mean(0)


def adjusted(p: np.ndarray) -> np.ndarray:
    """Benjamini-Hochberg along the last axis."""
    order = np.argsort(p, -1)
    d = p.shape[-1]
    ranked = np.take_along_axis(p, order, -1) * d / np.arange(1, d + 1)
    ranked = np.minimum.accumulate(ranked[..., ::-1], -1)[..., ::-1]
    out = np.empty_like(ranked)
    np.put_along_axis(out, order, np.minimum(ranked, 1.0), -1)
    return out


def median_distances(columns: np.ndarray) -> np.ndarray:
    """Median distance between rows of each column, of shape (..., n); of non-zero ones where half of them are zero."""
    from modifind.statistics.wcmmd import median_bandwidth

    flat = columns.reshape(-1, columns.shape[-1])
    return np.array([median_bandwidth(own) for own in flat]).reshape(columns.shape[:-1])


def signed_weights(scores: Tensor, arms: Tensor, quantile: float = 1.0) -> Tensor:
    """Inverse probability weights, negative for the control arm, shape (T, n).

    Above a quantile of the weights of their own arm they are moved to it.
    """
    signed = torch.where(arms > 0, 1 / scores, -1 / (1 - scores))
    if quantile < 1:
        treated, control = (torch.where(rows, signed.abs(), math.nan) for rows in (arms > 0, arms == 0))
        high = treated.nanquantile(quantile, dim=-1, keepdim=True)
        low = control.nanquantile(quantile, dim=-1, keepdim=True)
        signed = torch.minimum(torch.maximum(signed, -low), high)
    return signed


def evaluate(
    tables: Tables,
    draws: Tensor,
    fixed: Tensor,
    *,
    followed: Sequence[tuple[Trained, float]] = (),
    hajek: Sequence[bool] = (),
    gammas: Sequence[float] = (1.0,),
    x_gamma: float = 1.0,
    fourier: bool = False,
) -> Iterator[np.ndarray]:
    """P-values of one table after the other, shape (d, K * gammas, readings).

    Parameters
    ----------
    draws : tensor of shape (T, d, B, n)
    fixed : tensor of shape (T, n, R)
        Signed weights of readings that keep them.
    followed : pairs of networks and caps
        Readings whose weights follow the draws, after the R others.
    hajek : sequence of bool
        Which of all readings divide each arm by the sum of its weights.
    gammas : sequence of float
        The kernel on outcomes is exp(-gamma (y - y')^2 / h^2), h the median distance; a negative one is taken as it
        is, without h.
    x_gamma : float
        The like for features.
    fourier : bool
        Take random Fourier features, as the paper does, in place of the kernel that they approach.
    """
    n_tables, n, d = tables.shape
    y_widths = median_distances(tables.y)
    x_widths = median_distances(tables.x.transpose(1, 2).cpu().numpy()) / math.sqrt(x_gamma)
    spread = tables.x.std(1, correction=0)
    n_readings = fixed.shape[-1] + len(followed)
    normed = torch.tensor(list(hajek) or [False] * n_readings, device=draws.device)
    for table in range(n_tables):
        maps = []
        for y, width in zip(tables.y[:, table], y_widths[:, table], strict=True):
            scales = (gamma / width**2 if gamma > 0 else -gamma * width for gamma in gammas)
            maps += [outcome_map(y, scale, draws.device, fourier) for scale in scales]
        columns = torch.cat((tables.x[table].T[:, None], draws[table]), 1)  # (d, 1 + B, n)
        moved = []
        for network, cap in followed:
            standardised = columns - tables.x[table].mean(0)[:, None, None]
            scores = network.along(table, standardised, spread[table]).clamp(cap, 1 - cap)
            moved.append(signed_weights(scores, tables.arms[table]))
        found = np.empty((d, len(maps), fixed.shape[-1] + len(moved)), dtype=np.float32)
        for features in _together(tables.levels, n * (1 + B)):
            width = torch.as_tensor(x_widths[table, features], dtype=torch.float32, device=draws.device)
            flat = columns[features].flatten(0, 1)
            roots = feature_roots(flat, width.repeat_interleave(1 + B), tables.levels[features[0]])
            found_by = torch.empty(len(flat), len(maps), len(normed), device=draws.device)
            for how, chosen in ((importances, ~normed), (hajek_importances, normed)):
                still = chosen[: fixed.shape[-1]].nonzero()[:, 0]
                if len(still):
                    found_by[..., still] = how(roots, maps, fixed[table][:, still])
                for k in chosen[fixed.shape[-1] :].nonzero()[:, 0].tolist():
                    own = moved[k][features].flatten(0, 1)[..., None]
                    found_by[..., fixed.shape[-1] + k] = how(roots, maps, own)[..., 0]
            statistics = found_by.unflatten(0, (len(features), 1 + B)).transpose(0, 1)
            found[features] = p_values(statistics).cpu().numpy()
        yield found


def _together(levels: Sequence[int], cells: int) -> Iterator[list[int]]:
    """Features whose columns are evaluated at a time: continuous ones while they are small, discrete ones alone."""
    continuous = [m for m, n_levels in enumerate(levels) if not n_levels]
    at_once = max(1, 2**22 // cells)
    yield from (continuous[k : k + at_once] for k in range(0, len(continuous), at_once))
    yield from ([m] for m, n_levels in enumerate(levels) if n_levels)

"""Gaussian kernels in one dimension, and their feature maps.

One convention holds everywhere: ``k(u, v) = exp(-(u - v)^2 / h^2)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from modifind._typing import Array

# Trapezoidal nodes per bandwidth, and how far beyond a point its nodes reach. The Gaussian is its own convolution
# square, exp(-(u-v)^2/h^2) = c * integral exp(-2(u-t)^2/h^2) exp(-2(v-t)^2/h^2) dt, and the trapezoidal rule on that
# integral has *relative* error 2 exp(-(pi/2 * NODES_PER_BANDWIDTH)^2): about 2e-9 here.
NODES_PER_BANDWIDTH = 2.9
# What the rule multiplies its terms by: c * spacing with c = sqrt(4 / pi) / h; the bandwidth cancels.
QUADRATURE_WEIGHT = float(np.sqrt(4.0 / np.pi) / NODES_PER_BANDWIDTH)
REACH = 2.2
MAX_DENSE_RANGE = 24.0  # bandwidths of range that one dense grid serves
N_LATTICE = 400  # values between the limits of a column that its map is fitted to as well
MAX_PIVOT_VALUES = 20_000  # among which pivots are looked for


def gaussian_gram(left: Array, right: Array, bandwidth: float) -> Array:
    """Matrix of ``exp(-(u - v)^2 / h^2)``."""
    scaled = (np.asarray(left)[:, None] - np.asarray(right)[None, :]) / bandwidth
    np.multiply(scaled, scaled, out=scaled)
    np.negative(scaled, out=scaled)
    return np.exp(scaled, out=scaled)


def random_fourier_map(values: Array, bandwidth: float, n_components: int, rng: np.random.Generator) -> Array:
    """Random Fourier features ``z`` with ``z(u)'z(v)`` close to the Gaussian kernel.

    Frequencies are ``N(0, 2/h^2)``, the spectrum of ``exp(-(u-v)^2/h^2)``; phases are uniform.
    """
    frequencies = rng.normal(scale=np.sqrt(2.0) / bandwidth, size=n_components)
    phases = rng.uniform(0.0, 2 * np.pi, size=n_components)
    return np.sqrt(2.0 / n_components) * np.cos(np.multiply.outer(values, frequencies) + phases)


def reduce_map(features: Array, *, tolerance: float = 1e-10) -> Array:
    """Rotate a feature map onto its numerical rank; directions that move no inner product by `tolerance` are cut.

    A thousand random Fourier features of one variable span some thirty directions. Inner products are all a
    kernel statistic sees, so the rotated and cut map gives the same number at a fraction of the cost.
    """
    return np.ascontiguousarray(features @ _rank_rotation(features, tolerance))


def _rank_rotation(features: Array, tolerance: float) -> Array:
    """Rotation of a feature map onto its numerical rank."""
    _, vectors = np.linalg.eigh(features.T @ features)
    return vectors[:, np.square(features @ vectors).max(axis=0) > tolerance]


def spectral_map(values: Array, bandwidth: float, *, reduce: bool = True) -> Array:
    """Deterministic low-rank map ``U`` with ``U U'`` equal to the Gram matrix to a few 1e-9 in every entry.

    Columns within `MAX_DENSE_RANGE` bandwidths use trapezoidal nodes, rotated onto their numerical rank when `reduce`
    (worth it from the second use on); heavier tails use a pivoted Cholesky factorisation, whose pivots follow the data.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.random.default_rng(0).normal(size=300)
    >>> U = spectral_map(y, 1.0)
    >>> bool(np.abs(U @ U.T - gaussian_gram(y, y, 1.0)).max() < 1e-8), U.shape[1] < 40
    (True, True)
    """
    values = np.asarray(values, dtype=np.float64)
    if values.max() - values.min() > MAX_DENSE_RANGE * bandwidth:
        return _pivoted_cholesky(values, bandwidth)[1]
    return SpectralMap.of(values, bandwidth, reduce=reduce)(values)


@dataclass(frozen=True)
class SpectralMap:
    """The map of `spectral_map` for any values of a column, made from some of them.

    Attributes
    ----------
    points : array of shape (p,)
        Trapezoidal nodes; or pivots, where the range is long.
    rotation : array of shape (p, k), optional
        From nodes onto the numerical rank.
    factor : array of shape (p, p), optional
        Cholesky factor of the pivots' Gram matrix. Values that are far from every pivot are like nothing else.
    """

    bandwidth: float
    points: Array
    rotation: Array | None = None
    factor: Array | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        bandwidth: float,
        limits: tuple[float, float] | None = None,
        *,
        reduce: bool = True,
        tolerance: float = 1e-10,
    ) -> SpectralMap:
        """A map for values like these; where they are some of a column, for all values between its limits."""
        low, high = limits or (float(values.min()), float(values.max()))
        if high - low > MAX_DENSE_RANGE * bandwidth:
            candidates = _spread(values)
            pivots, columns = _pivoted_cholesky(candidates, bandwidth)
            return cls(bandwidth, candidates[pivots], factor=columns[pivots])
        plain = cls(bandwidth, dense_nodes(low, high, bandwidth))
        if not reduce:
            return plain
        features = plain(values if limits is None else np.concatenate((values, np.linspace(low, high, N_LATTICE))))
        return replace(plain, rotation=_rank_rotation(features, tolerance))

    def __call__(self, values: Array) -> Array:
        """The map of some values, shape (n, k)."""
        if self.factor is not None:
            near = gaussian_gram(self.points, values, self.bandwidth)
            return np.asarray(solve_triangular(self.factor, near, lower=True).T)
        features: Array = np.sqrt(QUADRATURE_WEIGHT) * root_kernel(values, self.bandwidth, self.points)
        return features if self.rotation is None else features @ self.rotation


def _spread(values: Array) -> Array:
    """The values; of very many both ends and some in between."""
    if values.size <= MAX_PIVOT_VALUES:
        return values
    ordered, quarter = np.unique(values), MAX_PIVOT_VALUES // 4
    if ordered.size <= MAX_PIVOT_VALUES:
        return ordered
    between = ordered[quarter:-quarter]
    step = -(-between.size // (2 * quarter))
    return np.concatenate((ordered[:quarter], between[::step], ordered[-quarter:]))


def _pivoted_cholesky(
    values: Array, bandwidth: float, tolerance: float = 1e-10, max_components: int = 1000
) -> tuple[NDArray[np.intp], Array]:
    """Indices of the pivots, and columns whose products are the Gram matrix."""
    # |K - UU'|_ij <= sqrt(residual_i residual_j), so stopping on the largest residual bounds every entry.
    residual = np.ones(values.size)
    columns = np.empty((max_components, values.size))
    pivots: list[int] = []
    for k in range(max_components):
        pivot = int(np.argmax(residual))
        if residual[pivot] < tolerance:
            break
        kernel = np.exp(-(((values - values[pivot]) / bandwidth) ** 2))
        columns[k] = (kernel - columns[:k, pivot] @ columns[:k]) / np.sqrt(residual[pivot])
        residual -= columns[k] ** 2
        pivots.append(pivot)
    return np.array(pivots, dtype=np.intp), np.ascontiguousarray(columns[: len(pivots)].T)


def dense_nodes(low: float, high: float, bandwidth: float) -> Array:
    """Nodes of the trapezoidal rule for values between two limits."""
    spacing = bandwidth / NODES_PER_BANDWIDTH
    low, high = low - REACH * bandwidth, high + REACH * bandwidth
    return low + spacing * np.arange(int(np.ceil((high - low) / spacing)) + 1, dtype=np.float64)


def root_kernel(values: Array, bandwidth: float, nodes: Array) -> Array:
    """Kernel roots between values and nodes: products of two, summed over nodes, are the kernel."""
    scaled = (values[:, None] - nodes) * (np.sqrt(2.0) / bandwidth)
    np.multiply(scaled, scaled, out=scaled)
    np.negative(scaled, out=scaled)
    return np.exp(scaled, out=scaled)

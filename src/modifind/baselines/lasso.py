"""Selective inference for the lasso at a fixed penalty (Lee, Sun, Sun and Taylor, 2016).

With active columns M and signs s of the lasso solution b of ``1/2 |y - X b|^2 + lam |b|_1``, the least-squares
coefficients on the active columns are ``c = b_M + lam (X_M' X_M)^{-1} s``. Given M, s and all of y but its part along
``eta_j = X_M (X_M' X_M)^{-1} e_j``, the coefficient c_j is normal, truncated to where no active coefficient changes its
sign. Moving c_j by t moves b_k by ``t g_kj / g_jj``, with g the inverse of ``X_M' X_M``; the subgradients of the other
columns do not move. The limits are therefore the nearest zeros of ``b_k + t g_kj / g_jj``.

Tail probabilities and limits of a truncated normal are kept as the log-odds of the mass above the observed value
against the mass below it,

    L = log P(z <= Z <= z + above) - log P(z - below <= Z <= z),

from which ``P(Z >= z) = expit(L)``. Both masses are taken relative to the density near z, so that nothing underflows
or cancels however far out the interval lies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.optimize import brentq
from scipy.special import erf, erfcx, expit, log_ndtr

from modifind._typing import Array, Ints
from modifind.engine.settings import check_level, check_positive

FARTHEST = 1e100  # standard deviations; beyond this a limit is called infinite
NARROW = 1e-5  # standard deviations
_ROOT_TWO = math.sqrt(2.0)


def tail_log_odds(z: float, below: float, above: float) -> float:
    """Log-odds that a standard normal truncated to ``[z - below, z + above]`` exceeds z.

    Examples
    --------
    >>> tail_log_odds(0.0, 2.0, 2.0)
    0.0
    >>> round(tail_log_odds(1000.0, 0.001, math.inf), 4)  # far out the distribution is exponential: log 1/(e - 1)
    -0.5413
    """
    if below <= 0 or above <= 0:
        return 0.0 if below <= 0 and above <= 0 else (math.inf if below <= 0 else -math.inf)
    if z < 0:
        return -tail_log_odds(-z, above, below)
    beyond = _log_one_minus_exp(_log_tail_ratio(z, above))  # log of the mass above, less log P(Z > z)
    if z > below:
        ratio = _log_tail_ratio(z - below, below)
        return beyond + ratio - _log_one_minus_exp(ratio)
    # z - below is negative, so the mass below contains zero and is no smaller than its width says.
    return float(log_ndtr(-z)) + beyond - math.log(0.5 * float(erf(z / _ROOT_TWO) + erf((below - z) / _ROOT_TWO)))


def tail_p_value(log_odds: float, sided: str) -> float:
    """P(Z >= z), or twice the smaller tail."""
    return float(expit(log_odds)) if sided == "one" else 2.0 * float(expit(-abs(log_odds)))


def mean_interval(z: float, below: float, above: float, alpha: float) -> tuple[float, float]:
    """Equal-tailed interval for the mean of a normal with unit variance, observed at z in ``[z - below, z + above]``.

    Examples
    --------
    >>> low, high = mean_interval(0.0, math.inf, math.inf, 0.05)
    >>> round(low, 6), round(high, 6)
    (-1.959964, 1.959964)
    """
    tail = math.log(alpha / 2) - math.log1p(-alpha / 2)
    low = _mean_with_log_odds(tail, z, below, above, -1.0)
    high = _mean_with_log_odds(-tail, z, below, above, 1.0)
    return low, high


def _mean_with_log_odds(wanted: float, z: float, below: float, above: float, side: float) -> float:
    """The mean at which z has the log-odds `wanted`; infinite on the given side when no float is."""

    def excess(distance: float) -> float:  # the mean is z + distance, so z stands at -distance
        return tail_log_odds(-distance, below, above) - wanted

    # The log-odds grow with the mean. Towards which side the root lies is seen at the observed value itself.
    start = excess(0.0)
    if not math.isfinite(start):
        return side * math.inf
    if start == 0.0:
        return z
    towards = -1.0 if start > 0 else 1.0
    near, far = 0.0, towards
    while towards * excess(far) < 0:
        near, far = far, 2.0 * far
        if abs(far) > FARTHEST:
            return side * math.inf
    return z + float(brentq(excess, near, far, xtol=1e-14, rtol=1e-14, maxiter=500))


def _log_tail_ratio(u: float, width: float) -> float:
    """Log of P(Z > u + width) / P(Z > u) for u >= 0; takes the width itself, which the difference of two ends loses."""
    if math.isinf(width):
        return -math.inf
    if width < NARROW:  # the quotient below would be 1 and a rounding error; the hazard at the middle is exact enough
        return -width * math.sqrt(2 / math.pi) / float(erfcx((u + 0.5 * width) / _ROOT_TWO))
    return math.log(float(erfcx((u + width) / _ROOT_TWO)) / float(erfcx(u / _ROOT_TWO))) - width * (u + 0.5 * width)


def _log_one_minus_exp(value: float) -> float:
    """Log of 1 - exp(value) for value <= 0."""
    if value >= 0:
        return -math.inf
    return math.log(-math.expm1(value)) if value > -0.7 else math.log1p(-math.exp(value))


SIDES = ("one", "two")
COLUMNS = ("sign", "coef", "sd", "lower", "upper", "p_value", "ci_low", "ci_high")
# Share of a column's length that is left when the other columns are projected out; what is less is rounding error.
COLLINEAR = 1e-7
# A subgradient this close to the penalty is taken to be at it.
TIE = 1e-9
N_DRAWS = 2000


def lasso_selective_inference(
    X: ArrayLike,
    y: ArrayLike,
    lam: float,
    *,
    sigma: float | None = None,
    intercept: bool = False,
    sided: str = "two",
    alpha: float = 0.05,
) -> pd.DataFrame:
    """P-values and confidence intervals for the columns that a lasso selected, valid given that it selected them.

    The lasso minimises ``1/2 |y - X b|^2 + lam |b|_1``. The parameters are the coefficients of the population
    least-squares fit on the selected columns. Noise is taken to be normal with equal variances.

    Parameters
    ----------
    X : array of shape (n, p)
        Columns, used as they are; the penalty depends on their scale.
    y : array of shape (n,)
        Response.
    lam : float
        Penalty, above 0 and chosen without looking at y.
    sigma : float, optional
        Standard deviation of the noise. By default that of the residuals of least squares on all columns.
    intercept : bool, default=False
        Centre X and y first.
    sided : {"one", "two"}, default="two"
        "one" tests in the direction of the sign that the lasso found, "two" doubles the smaller tail.
    alpha : float, default=0.05
        Confidence intervals have level 1 - alpha, with alpha / 2 on each side.

    Returns
    -------
    DataFrame
        Indexed by the position of the active column: `sign`, `coef` (least squares on the active columns), `sd`,
        `lower` and `upper` (what selection leaves to ``sign * coef``), `p_value`, `ci_low` and `ci_high`. Empty
        when nothing is selected. A limit is infinite where selection leaves the data nothing to say on that side.

    References
    ----------
    Lee, Sun, Sun, Taylor. Exact post-selection inference, with application to the lasso. Annals of Statistics, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4))
    >>> found = lasso_selective_inference(X, 0.8 * X[:, 1] + rng.normal(size=100), lam=25.0)
    >>> found[["sign", "coef", "ci_low", "ci_high"]].round(2).to_dict("index")
    {1: {'sign': 1, 'coef': 0.98, 'ci_low': 0.74, 'ci_high': 1.23}}
    """
    columns, response = _read(X, y)
    check_positive("lam", lam)
    if sided not in SIDES:
        raise ValueError(f"sided must be one of {', '.join(map(repr, SIDES))}, not {sided!r}")
    check_level("alpha", alpha)
    if intercept:
        columns, response = columns - columns.mean(axis=0), response - response.mean()
    if sigma is None:
        sigma = residual_sd(columns, response, n_used=int(intercept))
    else:
        check_positive("sigma", sigma)
    active, signs = lasso_active_set(columns, response, float(lam))
    inverse, coefficients = _least_squares(columns[:, active], response, active)
    penalised = signs * (coefficients - lam * inverse @ signs)
    if (penalised <= 0).any():
        raise ValueError(_collinear(active))
    rows = []
    for j, (sign, coefficient) in enumerate(zip(signs, coefficients, strict=True)):
        # On the scale of sign * coef every sign-flipped coefficient moves by `pace` and must stay positive.
        pace = signs * sign * inverse[:, j] / inverse[j, j]
        below = float(np.min(penalised[pace > 0] / pace[pace > 0]))
        above = float(np.min(penalised[pace < 0] / -pace[pace < 0], initial=math.inf))
        sd, value = float(sigma) * math.sqrt(inverse[j, j]), sign * coefficient
        scaled = value / sd, below / sd, above / sd
        p_value = tail_p_value(tail_log_odds(*scaled), sided)
        interval = sorted(sign * sd * end for end in mean_interval(*scaled, float(alpha)))
        rows.append((int(sign), coefficient, sd, value - below, value + above, p_value, *interval))
    inference = pd.DataFrame(rows, columns=list(COLUMNS), index=pd.Index(active, dtype=np.int64, name="column"))
    return inference.astype({name: np.int64 if name == "sign" else np.float64 for name in COLUMNS})


def lasso_active_set(X: Array, y: Array, lam: float) -> tuple[Ints, Array]:
    """Exact active columns and their signs: columns enter one at a time and leave when they would change sign.

    The objective decreases at every step and there are finitely many sets, as in the algorithm of Lawson and Hanson for
    non-negative least squares, so the result is the exact solution.
    """
    gram, products = X.T @ X, X.T @ y
    coefficients, signs = np.zeros(products.size), np.zeros(products.size)
    for _ in range(20 * products.size + 20):
        gradient = products - gram @ coefficients
        outside = np.where(signs == 0, np.abs(gradient), 0.0)
        entering = int(np.argmax(outside))
        if outside[entering] <= lam * (1 + TIE):
            active = np.flatnonzero(signs)
            tied = np.flatnonzero(outside >= lam * (1 - TIE))
            if tied.size:
                raise ValueError(_collinear(np.union1d(active, tied)))
            return active, signs[active]
        signs[entering] = np.sign(gradient[entering])
        _descend(gram, products, lam, coefficients, signs)
    raise ValueError(_collinear(np.flatnonzero(signs)))


def _descend(gram: Array, products: Array, lam: float, coefficients: Array, signs: Array) -> None:
    """Minimise over the active columns in place; those whose sign would change become inactive."""
    while signs.any():
        active = np.flatnonzero(signs)
        target = _solve(gram[np.ix_(active, active)], products[active] - lam * signs[active], active)
        crossing = target * signs[active] <= 0
        if not crossing.any():
            coefficients[active] = target
            return
        now = coefficients[active]
        shares = np.full(active.size, np.inf)
        shares[crossing] = now[crossing] / (now[crossing] - target[crossing])
        first = int(np.argmin(shares))
        coefficients[active] = now + shares[first] * (target - now)
        coefficients[active[first]] = signs[active[first]] = 0.0


def _solve(gram: Array, right: Array, active: Ints) -> Array:
    lengths = np.sqrt(np.diag(gram))
    try:
        factor = cho_factor(gram / np.outer(lengths, lengths), lower=True)
    except LinAlgError:
        raise ValueError(_collinear(active)) from None
    if np.diag(factor[0]).min() < COLLINEAR:
        raise ValueError(_collinear(active))
    return cho_solve(factor, right / lengths) / lengths


def _least_squares(X: Array, y: Array, active: Ints) -> tuple[Array, Array]:
    """Inverse of X'X and the coefficients, by a QR decomposition, which is more accurate than solving with X'X."""
    if not active.size:
        return np.empty((0, 0)), np.empty(0)
    q, r = np.linalg.qr(X)
    if (np.abs(np.diag(r)) < COLLINEAR * np.sqrt((X**2).sum(axis=0))).any():
        raise ValueError(_collinear(active))
    root = solve_triangular(r, np.eye(active.size))
    return root @ root.T, root @ (q.T @ y)


def residual_sd(X: Array, y: Array, *, n_used: int = 0) -> float:
    """Standard deviation of the residuals of least squares on all columns.

    Parameters
    ----------
    X, y : arrays
        Columns and response.
    n_used : int, default=0
        Degrees of freedom that were used before: an intercept, a column that was projected out.
    """
    coefficients, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    left = y.size - int(rank) - n_used
    if left < 1:
        raise ValueError(f"{y.size} rows are too few to estimate the noise with {rank + n_used} columns; pass sigma=")
    residual = y - X @ coefficients
    sd = math.sqrt(float(residual @ residual) / left)
    if not sd > 1e-12 * math.sqrt(float(y @ y) / y.size):
        raise ValueError("the columns fit the response exactly: no noise is left to estimate sigma from")
    return sd


def expected_max_correlation(X: Array, *, n_draws: int = N_DRAWS, random_state: Any = None) -> float:
    """Mean of max_j |X_j' z| for standard normal z, by simulation.

    With X = QR the products X'z are distributed like R'u for standard normal u of the length of R, so neither time nor
    memory of the draws grows with the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(expected_max_correlation(np.eye(100)[:, :1], n_draws=100_000, random_state=0), 2)  # sqrt(2 / pi)
    0.8
    """
    root = np.asarray(np.linalg.qr(X, mode="r"))
    draws = np.random.default_rng(random_state).standard_normal((n_draws, root.shape[0]))
    return float(np.abs(draws @ root).max(axis=1).mean())


def _read(X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    try:
        columns, response = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("X and y must be numeric; encode text as numbers first") from None
    if columns.ndim != 2 or 0 in columns.shape:
        raise ValueError(f"X must be a table with rows and columns; found shape {columns.shape}")
    if response.shape != (columns.shape[0],):
        raise ValueError(f"y must have one value per row of X ({columns.shape[0]}); found shape {response.shape}")
    for name, values in (("X", columns), ("y", response)):
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise ValueError(f"{name} has {bad} missing or infinite values; drop those rows")
    return columns, response


def _collinear(columns: Ints) -> str:
    shown = ", ".join(map(str, columns[:10])) + (", ..." if columns.size > 10 else "")
    return (
        f"columns among {shown} are collinear or tied, so the lasso has no unique solution; leave out those that the "
        "others determine"
    )

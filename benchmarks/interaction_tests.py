"""The test that a statistician would run by hand: treatment times every feature in a generalised linear model.

`interaction_p_values` has numbers for features, `joint_tests` also categories, whose levels are tested together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import chi2, f, norm

Array = NDArray[np.float64]
STEPS = 30
# Of a level in an arm; few rows of a level that all have one outcome have, to a sandwich, no variance.
LEAST_ROWS, LEAST_ROWS_FEW_VALUES = 5, 10
FEW_VALUES = 5


def interaction_p_values(X: Array, a: NDArray[np.int64], y: Array, kind: str, scale: str) -> Array:
    """P-values of treatment times each feature, all features and the treatment being in the model as well.

    Wald tests with a sandwich variance: of a linear model for differences, of a log-linear one (Poisson scores) for
    ratios, of a logistic one for odds ratios, of cumulative logits for ordered levels. Amounts have two models, for any
    and for the logarithm of amounts above zero, and twice the smaller of the two p-values.
    """
    if kind == "amount":
        has_any = y > 0
        first = interaction_p_values(X, a, has_any.astype(np.float64), "binary", scale)
        second = interaction_p_values(X[has_any], a[has_any], np.log(y[has_any]), "numeric", "difference")
        return np.minimum(2 * np.minimum(first, second), 1.0)
    centred = (X - X.mean(axis=0)) / X.std(axis=0)
    design = np.column_stack((np.ones(a.size), centred, a, centred * (a - a.mean())[:, None]))
    tested = slice(design.shape[1] - X.shape[1], None)
    if kind == "ordinal":
        return _wald(*_cumulative(design[:, 1:], y))[-X.shape[1] :]
    return _wald(*_fitted(design, y, scale))[tested]


def joint_tests(
    X: pd.DataFrame,
    a: NDArray[np.int64],
    y: Array,
    kind: str = "numeric",
    scale: str = "difference",
    *,
    adjust: pd.DataFrame | None = None,
    clusters: Any = None,
    squares: bool = False,
) -> pd.DataFrame:
    """Wald tests of treatment times each feature, with all features in the model; columns p_value, z and df.

    HC3 errors, summed over clusters where there are any. A category is tested by all its levels together. Tests are
    by F for differences and with clusters, which are then what is counted, by chi-square elsewhere. z is that of
    features with one column, and says in which direction they modify. `adjust` has columns that are in the model
    without an interaction, `squares` puts those of numeric features there as well. A gap in a number is filled by the
    mean, with an indicator of its own; a gap in a category is a level.
    """
    least = LEAST_ROWS_FEW_VALUES if len(np.unique(y)) <= FEW_VALUES else LEAST_ROWS
    blocks = {name: _columns(X[name], a, least) for name in X}
    others = [_columns(adjust[name], a, least) for name in adjust] if adjust is not None else []
    others += [X[[name]].isna().to_numpy(np.float64) for name in X if _is_number(X[name]) and X[name].isna().any()]
    if squares:
        others += [blocks[name] ** 2 for name in X if _is_number(X[name])]
    main = np.column_stack((*blocks.values(), *others))
    products = np.column_stack(list(blocks.values())) * (a - a.mean())[:, None]
    feature = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks.values()])
    design = np.column_stack((np.ones(a.size), main, a, products))
    owner = np.concatenate((np.full(main.shape[1] + 2, -1), feature))
    kept = _independent(design)
    design, owner = design[:, kept], owner[kept]
    if kind == "ordinal":
        beta, covariance = _cumulative(design[:, 1:], y, clusters)
        owner = owner[1:]
    else:
        beta, covariance = _fitted(design, y, scale, clusters)
    spare = y.size - design.shape[1] if scale == "difference" else None
    if clusters is not None:
        spare = len(np.unique(clusters)) - 1
    rows = [
        _block_test(beta[owner == j], covariance[np.ix_(owner == j, owner == j)], spare) for j in range(len(blocks))
    ]
    return pd.DataFrame(rows, index=X.columns, columns=["p_value", "z", "df"])


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _columns(column: pd.Series, a: NDArray[np.int64], least: int) -> Array:
    """A number in standard units, or an indicator of every level but the first by name; rare levels are pooled."""
    if _is_number(column):
        values = column.to_numpy(np.float64)
        centred = np.nan_to_num(values - np.nanmean(values))
        return (centred / (centred.std() or 1.0))[:, None]
    levels = _pooled(column.astype(object).where(column.notna(), "(missing)").astype(str), a, least)
    names = np.unique(levels)[1:]
    return (levels[:, None] == names[None, :]).astype(np.float64)


def _pooled(levels: pd.Series, a: NDArray[np.int64], least: int) -> NDArray[np.object_]:
    """Levels of few rows in an arm as one, with the next larger ones until that has enough.

    It has the name of the largest of them, so that signs of two levels mean the same in another part of the rows.
    """
    counts = pd.crosstab(levels.to_numpy(), a).reindex(columns=[0, 1], fill_value=0)
    order = counts.min(axis=1).sort_values(kind="stable").index
    counts = counts.loc[order]
    n_pooled = int((counts.min(axis=1) < least).sum())
    while 0 < n_pooled < len(order) and counts.iloc[:n_pooled].sum().min() < least:
        n_pooled += 1
    pool = order[:n_pooled]
    name = counts.loc[pool].sum(axis=1).idxmax() if n_pooled else ""
    return levels.where(~levels.isin(pool), name).to_numpy()


def _independent(design: Array) -> NDArray[np.intp]:
    """Columns that are no linear function of columns before them."""
    size = np.linalg.norm(design, axis=0)
    rest = np.abs(np.diag(np.linalg.qr(design / np.where(size > 0, size, 1.0), mode="r")))
    return np.flatnonzero((rest > 1e-7) & (size > 0))


def _block_test(beta: Array, covariance: Array, spare: int | None) -> tuple[float, float, int]:
    """P-value, by F where `spare` rows estimate a variance and by chi-square elsewhere; z; degrees of freedom."""
    q = beta.size
    if q == 0:
        return 1.0, 0.0, 0
    wald = float(beta @ np.linalg.pinv(covariance, hermitian=True) @ beta)
    p = float(chi2.sf(wald, q) if spare is None else f.sf(wald / q, q, spare))
    return p, float(beta[0] / np.sqrt(covariance[0, 0])) if q == 1 else np.nan, q


def _fitted(design: Array, y: Array, scale: str, clusters: Any = None) -> tuple[Array, Array]:
    """Coefficients by Fisher scoring and their sandwich covariance."""
    inverse: dict[str, Callable[[Array], Array]] = {
        "difference": lambda eta: eta,
        "ratio": lambda eta: np.exp(np.clip(eta, -20, 20)),
        "odds_ratio": expit,
    }
    found = np.zeros(design.shape[1])
    found[0] = {"difference": y.mean(), "ratio": np.log(y.mean()), "odds_ratio": 0.0}[scale]
    for _ in range(STEPS):
        mean = inverse[scale](design @ found)
        weight = {"difference": np.ones(y.size), "ratio": mean, "odds_ratio": mean * (1 - mean)}[scale]
        bread = np.linalg.inv(design.T @ (design * weight[:, None]))
        move = bread @ (design.T @ (y - mean))
        damped = 1.0 if scale == "difference" else min(1.0, 1.0 / max(float(np.abs(move).max()), 1e-12))
        found = found + move * damped
        if np.abs(move).max() < 1e-8 * max(1.0, float(np.abs(found).max())):
            break
    leverage = weight * np.einsum("ij,jk,ik->i", design, bread, design)
    meat = design * ((y - mean) / (1 - np.minimum(leverage, 0.9)))[:, None]
    meat = _summed(meat, clusters)
    return found, bread @ (meat.T @ meat) @ bread


def _summed(scores: Array, clusters: Any) -> Array:
    """Scores of clusters instead of rows, where there are clusters."""
    return scores if clusters is None else pd.DataFrame(scores).groupby(np.asarray(clusters)).sum().to_numpy()


def _cumulative(design: Array, y: Array, clusters: Any = None) -> tuple[Array, Array]:
    """Cumulative logits by Newton's method on thresholds and coefficients: coefficients, covariance by the information.

    With clusters the covariance is a sandwich.
    """
    levels = np.unique(y)
    codes = np.searchsorted(levels, y)
    k = levels.size - 1
    shares = np.cumsum(np.bincount(codes))[:-1] / y.size
    found = np.concatenate((np.log(shares / (1 - shares)), np.zeros(design.shape[1])))
    uppers, lowers = (np.equal(codes[:, None] - shift, np.arange(k)).astype(np.float64) for shift in (0, 1))
    for _ in range(STEPS):
        ends = np.concatenate(([-60.0], found[:k], [60.0]))
        index = design @ found[k:]
        above, below = expit(ends[codes + 1] - index), expit(ends[codes] - index)
        chance = np.maximum(above - below, 1e-12)
        slopes = (above * (1 - above))[:, None], (below * (1 - below))[:, None]
        score = (slopes[0] * np.hstack((uppers, -design)) - slopes[1] * np.hstack((lowers, -design))) / chance[:, None]
        bread = np.linalg.inv(score.T @ score)
        move = bread @ score.sum(axis=0)
        found = found + move * min(1.0, 1.0 / max(float(np.abs(move).max()), 1e-12))
        if np.abs(move).max() < 1e-8:
            break
    if clusters is not None:
        sums = _summed(score, clusters)
        bread = bread @ (sums.T @ sums) @ bread
    return found[k:], bread[k:, k:]


def _wald(found: Array, covariance: Array) -> Array:
    return 2 * norm.sf(np.abs(found) / np.sqrt(np.diag(covariance)))

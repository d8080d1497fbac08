"""Design of SI-EM's lasso: features times the treatment residual, with the mean effect projected out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind.baselines.lasso import COLLINEAR
from modifind.data.features import FeatureTable
from modifind.data.levels import MIN_LEVEL_ROWS
from modifind.data.words import named

MIN_FREE_ROWS = 10  # rows beyond the number of columns, without which the noise is anybody's guess


@dataclass(frozen=True)
class EffectDesign:
    """Response and design with the mean effect projected out.

    Attributes
    ----------
    matrix : array of shape (n, k)
        Standardised features and indicators, times the treatment residual, projected off the treatment residual.
    response : array of shape (n,)
        Outcome residual, projected likewise.
    features : array of shape (k,)
        The feature that each column belongs to.
    levels : tuple of str
        The level that each indicator stands for; empty for a continuous feature.
    scales : array of shape (k,)
        Standard deviations that the columns were divided by.
    """

    matrix: Array
    response: Array
    features: Ints
    levels: tuple[str, ...]
    scales: Array


def lasso_columns(table: FeatureTable, arms: Ints, tested: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Candidate columns that vary enough in both arms, each as a feature and a position in its encoding.

    `tested` are the candidate features, by default all. Raises a ValueError if there are hardly more rows than columns.

    Raises
    ------
    ValueError
        When there are hardly more rows than columns.
    """
    common: list[tuple[int, int]] = []
    rare: list[tuple[int, int]] = []
    for feature in range(table.n_features) if tested is None else tested:
        for position, enough in enumerate(_populated(table, feature, arms)):
            (common if enough else rare).append((feature, position))
    if rare:
        shown = named(_name(table, *column) for column in rare)
        warn(
            f"{shown}: fewer than {MIN_LEVEL_ROWS} rows of an arm are at that level, or off it; it goes with "
            "the first level of the feature",
        )
    needed = len(common) + 1 + MIN_FREE_ROWS
    if table.n_rows < needed:
        raise ValueError(
            f"{table.n_rows} rows are too few for SI-EM with {len(common)} columns (features, and levels of discrete "
            f"ones); it needs {needed}. Leave out features or pool levels."
        )
    return common


def _populated(table: FeatureTable, feature: int, arms: Ints) -> list[bool]:
    """Whether each column of a feature has enough rows in both arms; a constant feature has no columns."""
    if table.is_constant(feature) or not table.n_levels(feature):
        return [] if table.is_constant(feature) else [True]
    block = table.design[:, table.encoding[feature]]
    counts = np.stack([side[arms == arm].sum(axis=0) for arm in (0, 1) for side in (block, 1 - block)])
    return (counts.min(axis=0) >= MIN_LEVEL_ROWS).tolist()


def effect_design(
    table: FeatureTable, columns: list[tuple[int, int]], residual: Array, treatment: Array
) -> EffectDesign:
    """Standardise, multiply by the treatment residual, project it out, and drop linearly dependent columns.

    Parameters
    ----------
    table : FeatureTable
        Features.
    columns : list
        What `lasso_columns` found.
    residual, treatment : arrays of shape (n,)
        Outcome and treatment less their expectations given the features.

    Returns
    -------
    EffectDesign
    """
    matrix = table.design[:, [table.encoding[feature].start + position for feature, position in columns]]
    # Indicators are scaled like everything else: the lasso then asks the same z-score of every column. Unscaled, a
    # level that 5% of rows have would need more than four times the z-score of a continuous feature. What scaling
    # cannot mend, a coefficient that rests on a handful of rows, `lasso_columns` has left out.
    scales = matrix.std(axis=0)
    matrix = (matrix - matrix.mean(axis=0)) / scales * treatment[:, None]
    length = float(treatment @ treatment)
    matrix -= np.outer(treatment, treatment @ matrix / length)
    response = residual - treatment * float(treatment @ residual / length)
    kept = _independent(matrix)
    repeated = [_name(table, *columns[k]) for k in np.setdiff1d(np.arange(len(columns)), kept)]
    if repeated:
        warn(
            f"{named(repeated)}: a linear function of the columns before, so without a coefficient of its own. "
            "Leave out one of the redundant columns.",
        )
    units = np.array([1.0 if table.n_levels(feature) else table.scaling[1][feature] for feature, _ in columns])
    return EffectDesign(
        matrix[:, kept],
        response,
        np.array([feature for feature, _ in columns], dtype=np.int64)[kept],
        tuple(_level(table, *columns[k]) for k in kept),
        (scales * units)[kept],
    )


def _level(table: FeatureTable, feature: int, position: int) -> str:
    labels = table.categories[feature]
    return "" if labels is None else str(labels[position + 1])


def _name(table: FeatureTable, feature: int, position: int) -> str:
    level = _level(table, feature, position)
    return table.names[feature] + (f" ({level})" if level else "")


def _independent(matrix: Array) -> Ints:
    """Positions of the columns that are not linear combinations of earlier ones."""
    kept = np.arange(matrix.shape[1])
    lengths = np.sqrt((matrix**2).sum(axis=0))
    while kept.size:
        left = np.abs(np.diag(np.linalg.qr(matrix[:, kept], mode="r")))
        dependent = np.flatnonzero(left < COLLINEAR * lengths[kept])
        if not dependent.size:
            break
        kept = np.delete(kept, dependent[0])  # what follows the first is not to be trusted
    return kept

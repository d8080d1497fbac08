"""How comparable the arms are, from sums over rows that pieces of a table add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from modifind.kernels import Array

if TYPE_CHECKING:
    from modifind.propensity import FittedPropensity

EXTREME = 0.05
SCORE_EDGES = np.linspace(0.0, 1.0, 21)


@dataclass(frozen=True)
class OverlapSums:
    """How comparable the arms are, as sums over rows; two-entry arrays are control, treated.

    `largest` is the largest weight of each arm, the only entry that is no sum. `histogram` has the weights of the rows,
    without inverse probabilities, by arm and by bin of the score, shape (2, 20).
    """

    n_rows: Array
    weights: Array
    squares: Array
    largest: Array
    n_extreme: int
    n_clipped: int
    histogram: Array

    @classmethod
    def of(cls, propensity: FittedPropensity) -> OverlapSums:
        """Sums over some rows."""
        arms, scores, raw = propensity.treatment, propensity.scores, propensity.raw
        weights = [1.0 / own for own in (1.0 - scores[arms == 0], scores[arms == 1])]
        rows = [np.ones(own.size) for own in weights]
        if propensity.weights is not None:
            rows = [propensity.weights[arms == arm] for arm in (0, 1)]
            weights = [own * given for own, given in zip(weights, rows, strict=True)]
        return cls(
            np.array([own.size for own in weights], dtype=np.float64),
            np.array([own.sum() for own in weights]),
            np.array([(own**2).sum() for own in weights]),
            np.array([own.max(initial=0.0) for own in weights]),
            int(((raw < EXTREME) | (raw > 1 - EXTREME)).sum()),
            propensity.n_clipped,
            np.stack([np.histogram(scores[arms == arm], SCORE_EDGES, weights=own)[0] for arm, own in enumerate(rows)]),
        )

    def __add__(self, other: OverlapSums) -> OverlapSums:
        """The sums of both sets of rows."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return OverlapSums(**(added | {"largest": np.maximum(self.largest, other.largest)}))

    def overlap(self, auc: float) -> dict[str, float]:
        """The summary that `FittedPropensity.overlap` describes; `auc` is that of the scores."""
        out = {}
        for arm, name in ((1, "treated"), (0, "control")):
            effective = float(self.weights[arm] ** 2 / self.squares[arm])
            out[f"effective_rows_{name}"] = effective
            out[f"effective_share_{name}"] = effective / float(self.n_rows[arm])
            out[f"max_weight_share_{name}"] = float(self.largest[arm] / self.weights[arm])
        total = float(self.n_rows.sum())
        return {**out, "extreme_share": self.n_extreme / total, "n_clipped": float(self.n_clipped), "auc": auc}

    def score_histogram(self) -> pd.DataFrame:
        """Shares of each arm by the propensity score, in twenty bins of equal width from `low` to `high`."""
        control, treated = self.histogram / self.histogram.sum(axis=1, keepdims=True)
        return pd.DataFrame({"low": SCORE_EDGES[:-1], "high": SCORE_EDGES[1:], "treated": treated, "control": control})

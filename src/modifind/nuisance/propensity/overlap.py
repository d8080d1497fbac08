"""Overlap: how comparable the arms are, from sums over rows that pieces of a table add up."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from scipy.special import logit

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, treated_as_one
from modifind.data.population import row_weights
from modifind.data.support import count_by_arm, without_counterpart
from modifind.nuisance.propensity.scores import FittedPropensity

EXTREME = 0.05
SCORE_EDGES = np.linspace(0.0, 1.0, 21)
LOGIT_EDGES = np.arange(-7.0, 7.01, 0.5)  # where arms are looked for side by side; beyond them is one bin each


@dataclass(frozen=True)
class OverlapSums:
    """How comparable the arms are, as sums over rows; two-entry arrays are control, treated.

    `largest` is the largest weight of each arm, the only entry that is no sum. `histogram` has the weights of the rows,
    without inverse probabilities, by arm and by bin of the score, shape (2, 20). `weights` are inverse probabilities,
    and `even` the weights of the overlap population. `side_by_side` has the number of rows by arm and by bin of the
    score's logit, and `even_by_score` their weights in the overlap population. `treated` has the sum of the treatment,
    that of the scores, and the variance that their difference has if the scores are right.
    """

    n_rows: Array
    weights: Array
    squares: Array
    largest: Array
    even: Array
    even_squares: Array
    n_extreme: int
    n_clipped: int
    histogram: Array
    side_by_side: Array
    even_by_score: Array
    treated: Array

    @classmethod
    def of(cls, propensity: FittedPropensity, clusters: Clusters | None = None) -> OverlapSums:
        """Sums over some rows, which belong to clusters."""
        arms, scores, raw = propensity.treatment, propensity.scores, propensity.raw
        clusters = Clusters.of(clusters, arms.size)
        given = propensity.weights.values
        in_arm = [arms == arm for arm in (0, 1)]
        inverse = given / np.where(arms == 1, scores, 1.0 - scores)
        even = row_weights(scores, "overlap") * inverse
        bins = np.searchsorted(LOGIT_EDGES, logit(np.clip(raw, 1e-12, 1.0 - 1e-12)))
        beyond = given * (arms - raw)
        variance = (given**2 * raw * (1.0 - raw)).sum()
        if not clusters.of_rows:
            variance = max(variance, (clusters.sums(beyond[:, None]) ** 2).sum())
        n_bins = LOGIT_EDGES.size + 1
        return cls(
            _by_arm(np.ones(arms.size), arms),
            _by_arm(inverse, arms),
            _by_arm(inverse**2, arms),
            np.array([inverse[rows].max(initial=0.0) for rows in in_arm]),
            _by_arm(even, arms),
            _by_arm(even**2, arms),
            int(((raw < EXTREME) | (raw > 1 - EXTREME)).sum()),
            propensity.n_clipped,
            np.stack([np.histogram(scores[rows], SCORE_EDGES, weights=given[rows])[0] for rows in in_arm]),
            count_by_arm(bins, arms, n_bins, treated_as_one(arms, clusters)),
            np.stack([np.bincount(bins[rows], even[rows], minlength=n_bins) for rows in in_arm]),
            np.array([given @ arms, given @ raw, variance]),
        )

    def __add__(self, other: OverlapSums) -> OverlapSums:
        """The sums of both sets of rows."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return OverlapSums(**(added | {"largest": np.maximum(self.largest, other.largest)}))

    def overlap(self, propensity: FittedPropensity) -> dict[str, float]:
        """The summary that `overlap_of` describes, with what is known of the scores themselves."""
        out = {}
        alone = without_counterpart(self.side_by_side)
        for arm, name in ((1, "treated"), (0, "control")):
            effective = float(self.weights[arm] ** 2 / self.squares[arm])
            out[f"effective_rows_{name}"] = effective
            out[f"effective_share_{name}"] = effective / float(self.n_rows[arm])
            out[f"max_weight_share_{name}"] = float(self.largest[arm] / self.weights[arm])
            out[f"overlap_rows_{name}"] = float(self.even[arm] ** 2 / self.even_squares[arm])
            out[f"outside_share_{name}"] = float((self.side_by_side * alone)[arm].sum() / self.side_by_side[arm].sum())
            out[f"outside_overlap_share_{name}"] = float((self.even_by_score * alone)[arm].sum() / self.even[arm])
        total = float(self.n_rows.sum())
        treated, expected, variance = self.treated
        given = float(self.histogram.sum())
        out |= {"treated_share": float(treated / given), "expected_share": float(expected / given)}
        out["share_z"] = float((treated - expected) / np.sqrt(variance))
        out |= {"extreme_share": self.n_extreme / total, "n_clipped": float(self.n_clipped)}
        known = {} if np.isnan(propensity.misfit_p) else {"misfit_p_value": propensity.misfit_p}
        return {**out, "auc": propensity.auc, **known}

    def score_histogram(self) -> pd.DataFrame:
        """Shares of each arm by the propensity score, in twenty bins of equal width from `low` to `high`."""
        control, treated = self.histogram / self.histogram.sum(axis=1, keepdims=True)
        return pd.DataFrame({"low": SCORE_EDGES[:-1], "high": SCORE_EDGES[1:], "treated": treated, "control": control})


def _by_arm(values: Array, arms: Ints) -> Array:
    return np.array([values[arms == arm].sum() for arm in (0, 1)])


def overlap_of(propensity: FittedPropensity) -> dict[str, float]:
    """Summary of how comparable the arms are.

    Returns
    -------
    dict
        Effective sample size of each arm's weights, its share of the arm, the largest weight's share of the arm's
        total, the share of scores outside [0.05, 0.95], the number of clipped rows, and the AUC of the scores (0.5 in
        a randomised trial). Weights are inverse probabilities, times the weights of the rows if there are any.
    """
    return OverlapSums.of(propensity).overlap(propensity)

"""Importance from sums over rows."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from conftest import confounded_table, seed_of
from modifind.data.feature_matrix import read_features
from modifind.engine.importance_sums import BinnedRows, FeatureView, OutcomeBins
from modifind.explain.marginal import marginal_view
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.nuisance.propensity.overlap import OverlapSums, overlap_of
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics import WCMMD


def view_inputs(kind, n=3000, seed=3):
    rng = np.random.default_rng(seed)
    X, treatment = confounded_table(rng, n, 2)
    scores = 1 / (1 + np.exp(-0.4 * X[:, 0]))
    noise = rng.standard_t(2.2, size=n) if kind == "heavy" else rng.normal(size=n)
    frame = pd.DataFrame({"x": X[:, 0], "rest": X[:, 1]})
    if kind == "discrete":
        frame["x"] = np.array(list("abcd"))[np.digitize(X[:, 0], [-1, 0.2, 1.1])]
    if kind == "skewed":
        frame["x"] = np.exp(0.3 * X[:, 0])
    y = 1.5 * treatment * np.tanh(X[:, 0]) + (1 + 0.6 * treatment * (X[:, 0] > 0)) * noise
    if kind == "rounded":
        y = np.maximum(np.round(y), 0.0)
    return read_features(frame), y, treatment, scores


def sums_of(table, y, treatment, scores, cuts=(), looked_at=None):
    """Importance and bandwidth from the sums of pieces, and the sums; the sample is all rows, or `looked_at`."""
    sample, outcome = looked_at or (table, y)
    bins, view = OutcomeBins.of(outcome, seed_of(0)), FeatureView.of(sample, 0, seed_of(1))
    total = None
    for start, stop in zip([0, *cuts], [*cuts, y.size], strict=True):
        rows = slice(start, stop)
        arms = BinnedRows.of(bins, y[rows], treatment[rows], scores[rows])
        own = view.sums(table.values[rows, 0], arms, bins.centre.size)
        total = own if total is None else total + own
    return view.importance(total, bins), view.bandwidth, total


def rows_view(table, y, treatment, scores):
    outcomes = PseudoOutcomes.of(ArmRows(y, treatment, scores))
    prepared = WCMMD().for_rows(y, treatment, seed_of(0))
    return marginal_view(table, 0, outcomes, scores, prepared, seed_of(1), n_draws=0)


@pytest.mark.parametrize("kind", ["smooth", "skewed", "discrete", "rounded", "heavy"])
def test_importance_from_sums_is_that_of_the_rows(kind):
    inputs = view_inputs(kind)
    (importance, bandwidth, _), expected = sums_of(*inputs), rows_view(*inputs)
    assert importance == pytest.approx(expected.importance, rel=0.05)
    assert bandwidth == pytest.approx(expected.bandwidth, rel=1e-9)


@pytest.mark.parametrize("kind", ["smooth", "discrete"])
def test_sums_are_additive_over_cuts_of_the_rows(kind):
    inputs = view_inputs(kind)
    whole, parts = sums_of(*inputs)[2], sums_of(*inputs, cuts=(1, 700, 2999))[2]
    for name in ("histogram", "cells"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-9)
    assert whole.cells[0].sum() == 3000


def test_pieces_of_one_arm_only_are_fine():
    table, y, treatment, scores = view_inputs("smooth")
    order = np.argsort(treatment, kind="stable")
    by_arm = (dataclasses.replace(table, values=table.values[order]), y[order], treatment[order], scores[order])
    first = sums_of(table, y, treatment, scores)[0]
    second = sums_of(*by_arm, cuts=(int((treatment == 0).sum()),), looked_at=(table, y))[0]
    assert first == pytest.approx(second, rel=1e-9)


def test_category_without_treated_rows_leaves_the_others_their_importance():
    table, y, treatment, scores = view_inputs("discrete")
    treatment = np.where(table.values[:, 0] == 2, 0, treatment)
    expected = rows_view(table, y, treatment, scores)
    assert sums_of(table, y, treatment, scores)[0] == pytest.approx(expected.importance, rel=0.05)


def test_outcome_beyond_the_range_of_the_sample_falls_into_the_outer_bins():
    table, y, treatment, scores = view_inputs("smooth")
    sample = (dataclasses.replace(table, values=table.values[:400]), y[:400])
    near = sums_of(table, y, treatment, scores, looked_at=sample)[2]
    far = sums_of(table, 50 * y, treatment, scores, looked_at=sample)[2]
    np.testing.assert_allclose(far.histogram.sum(axis=2), near.histogram.sum(axis=2))  # no row is lost
    assert (far.histogram[..., [0, -1]].sum() > 10 * near.histogram[..., [0, -1]].sum()).all()


def test_importance_by_bins_of_a_sample_is_that_of_all_rows():
    table, y, treatment, scores = view_inputs("smooth", n=6000)
    sample = (dataclasses.replace(table, values=table.values[:2000]), y[:2000])
    found = sums_of(table, y, treatment, scores, looked_at=sample)[0]
    # Bandwidths of 2000 rows are within a few per cent of those of all, and importance moves with them.
    assert found == pytest.approx(rows_view(table, y, treatment, scores).importance, rel=0.15)


def test_binary_outcome_has_two_bins():
    bins = OutcomeBins.of(np.array([0.0, 1.0, 1.0, 0.0, 0.0]), seed_of(0))
    np.testing.assert_array_equal(bins.centre, [0.0, 1.0])
    assert bins.edges.tolist() == [0.0]


def test_overlap_sums_are_the_overlap_of_all_rows():
    rng = np.random.default_rng(4)
    table = read_features(rng.normal(size=(500, 1)))
    raw, arms = rng.beta(1, 1, size=500), rng.integers(0, 2, size=500)

    def rows(chosen):
        return FittedPropensity(
            raw[chosen], (0.02, 0.98), arms[chosen], dataclasses.replace(table, values=table.values[chosen]), "", 0.7
        )

    total = OverlapSums.of(rows(slice(0, 120))) + OverlapSums.of(rows(slice(120, 500)))
    expected = overlap_of(rows(slice(None)))
    assert total.overlap(rows(slice(None))) == pytest.approx(expected, rel=1e-9)
    assert expected["n_clipped"] > 0

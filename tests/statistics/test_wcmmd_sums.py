"""The weighted conditional MMD from sums over parts of the rows."""

import operator
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from conftest import seed_of
from modifind.data.weights import Weights
from modifind.statistics import WCMMD
from modifind.statistics.contract import Column, Nuisances
from modifind.statistics.kernels import SpectralMap, gaussian_gram
from modifind.statistics.prepared_wcmmd import MAX_FAR_VALUES, D2Moments, FarSums
from modifind.statistics.wcmmd import weighted_bandwidth

KINDS = (
    "smooth",
    "weights",
    "discrete",
    "rounded outcome",
    "gaps",
    "long tails",
    "cauchy",
    "long-tailed outcome",
    "long tails, gaps, weights, long-tailed outcome",
)


def rows_of(kind, n=1500, seed=3):
    """Nuisances of all rows as of a table in pieces, and one column of it."""
    rng = np.random.default_rng(seed)
    x, levels = rng.normal(size=n), 0
    scores = 1 / (1 + np.exp(-0.4 * x))
    arms = (rng.random(n) < scores).astype(np.int64)
    noise = rng.standard_t(2.2, size=n) if "outcome" in kind else rng.normal(size=n)
    y = 1.5 * arms * np.tanh(x) + (1 + 0.6 * arms * (x > 0)) * noise
    weights = None
    if "weights" in kind:
        weights = rng.exponential(size=n) + 0.2
        weights /= weights.mean()
    if kind == "rounded outcome":
        y = np.maximum(np.round(y), 0.0)
    if kind == "discrete":
        x, levels = np.digitize(x, [-1, 0.2, 1.1]).astype(float), 5  # one level has no rows
    x = np.sign(x) * np.abs(x) ** 4 if "long tails" in kind else x
    x = rng.standard_cauchy(n) if kind == "cauchy" else x
    x = np.where(rng.random(n) < 0.1, np.nan, x) if "gaps" in kind else x
    seen = ~np.isnan(x)
    own = Weights.of(weights, n)[seen]
    bandwidth = 1.0 if levels else weighted_bandwidth(x[seen], own, np.random.default_rng(1))
    limits = (float(y.min()), float(y.max()))
    table = Nuisances(None, y, arms, scores, seed_of(0), weights=weights, in_pieces=True, outcome_limits=limits)
    return table, Column(0, x, scores, levels, bandwidth, (float(x[seen].min()), float(x[seen].max())))


def summed(prepared, rows, column, step, order=None):
    """Value from the sums of parts of `step` rows, and the number of passes."""
    known, parts = (), range(0, column.values.size, step)
    while True:
        found = []
        for start in parts if order is None else order(parts):
            own = slice(start, start + step)
            weights = None if rows.weights.uniform else 7.0 * rows.weights.values[own]  # only ratios of weights matter
            part = replace(column, values=column.values[own], scores=column.scores[own])
            some = Nuisances(None, rows.outcome[own], rows.arms[own], rows.scores[own], seed_of(0), weights=weights)
            found.append(prepared.at(some).sums(part, known))
        known += (reduce(operator.add, found),)
        value = prepared.value_of(known)
        if value is not None:
            return value, len(known)


@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_from_parts_is_that_of_all_rows(kind, weighting):
    rows, column = rows_of(kind)
    prepared = WCMMD(weighting=weighting).prepare(rows)
    expected = prepared.value(column)
    far = weighting == "hajek" and ("long tails" in kind or kind == "cauchy")
    for step, order in ((137, None), (1000, reversed), (1500, None)):
        value, n_passes = summed(prepared, rows, column, step, order)
        assert value == pytest.approx(expected, rel=1e-10)
        assert n_passes == (3 if far else 2)


def test_arms_that_are_far_from_each_other_are_compared_by_their_nearest_rows():
    rows, column = rows_of("smooth", n=400)
    apart = replace(column, values=column.values + 1e4 * rows.arms, limits=(-10.0, 1e4 + 10.0))
    prepared = WCMMD().prepare(rows)
    value, n_passes = summed(prepared, rows, apart, 37)
    assert n_passes == 3
    assert value == pytest.approx(prepared.value(apart), rel=1e-9)


def test_rows_far_from_an_arm_that_are_too_many_count_as_average():
    d2, weights = np.array([1.0, 3.0]), np.ones(2)
    far = np.column_stack((np.arange(MAX_FAR_VALUES // 2 + 1.0), np.ones((MAX_FAR_VALUES // 2 + 1, 2))))
    few = D2Moments.of(d2, weights, far)
    more = D2Moments.of(d2, weights, far + np.array([MAX_FAR_VALUES, 0, 0]))
    assert len((few + few).far) == len(far)  # the same values
    assert (few + more).far is None
    assert (few + more + few).far is None
    n = 2 * (2 + len(far))
    assert (few + more).variance == pytest.approx(4 / (n - 1))


def test_moments_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    d2, weights = rng.normal(size=300) + 5, rng.exponential(size=300)
    d2[::7] = np.nan
    parts = [D2Moments.of(d2[own], weights[own]) for own in (slice(0, 1), slice(1, 130), slice(130, 300))]
    known = ~np.isnan(d2)
    mean = np.average(d2[known], weights=weights[known])
    expected = (weights[known] * (d2[known] - mean) ** 2).sum() * (300 / weights.sum()) / 299
    assert reduce(operator.add, parts).variance == pytest.approx(expected, rel=1e-12)
    assert D2Moments.of(d2[:1], weights[:1]).variance == 0.0


def test_far_sums_add_up_in_any_order():
    rng = np.random.default_rng(1)
    points, x = np.array([-1e5, 40.0, 1e9]), rng.normal(size=60)
    columns = np.column_stack((np.ones(60), rng.normal(size=60)))
    arm = rng.integers(0, 2, 60)

    def of(rows):
        return FarSums.of(points, 1.0, [(x[rows & (arm == own)], columns[rows & (arm == own)]) for own in (0, 1)])

    place = np.arange(60)
    expected = of(place >= 0).d2
    parts = [of(place < 7), of((place >= 7) & (arm == 0)), of((place >= 7) & (arm == 1))]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        np.testing.assert_allclose(reduce(operator.add, [parts[k] for k in order]).d2, expected, rtol=1e-9)
    assert np.isnan(of(arm == 0).d2).all()


@pytest.mark.parametrize("limits", [(-3.0, 4.0), (-60.0, 4.0)])
def test_map_of_some_values_serves_all_between_their_limits(limits):
    rng = np.random.default_rng(2)
    some, rest = np.array([-2.0, 0.0, 1.0, 3.0]).repeat(20), rng.uniform(-3.0, 4.0, 200)
    known = SpectralMap.of(rng.normal(size=500) if limits[0] < -10 else some, 1.0, limits)
    near = rest if limits[0] > -10 else rest[np.abs(rest) < 2]
    features = known(near)
    np.testing.assert_allclose(features @ features.T, gaussian_gram(near, near, 1.0), atol=1e-8)


def test_pivots_of_very_many_values_are_looked_for_among_some_of_them():
    values = np.random.default_rng(3).standard_t(3, size=60_000)
    known, rows = SpectralMap.of(values, 1.0), values[:400]
    features = known(rows)
    assert known.factor is not None
    np.testing.assert_allclose(features @ features.T, gaussian_gram(rows, rows, 1.0), atol=1e-7)


@pytest.mark.parametrize("settings", [{"estimator": "exact"}, {"estimator": "rff"}, {"device": "torch:cpu"}])
def test_what_needs_all_rows_at_once_is_refused_by_name(settings):
    (name, value), *_ = settings.items()
    with pytest.raises(ValueError, match=f"{name}='{value}'.*in memory"):
        WCMMD(**settings).check_in_pieces()
    WCMMD().check_in_pieces()

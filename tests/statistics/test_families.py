"""What every family of outcomes must keep to, by its own densities."""

import re

import numpy as np
import pytest

from modifind.statistics.families import FAMILIES, Amount, Bernoulli, Count, Ordinal, StudentT, family_of
from modifind.statistics.families.contract import LINKS

SHAPE = 4.0
STEP = 1e-6
ORIGIN = (0.0, 1.0)
EVERY = [family.of(y, LINKS[scale]) for family, y in (
    (StudentT, np.array([1.0, 2.0, 3.5])),
    (Bernoulli, np.array([0.0, 1.0])),
    (Count, np.array([0.0, 1.0, 2.0, 5.0])),
    (Ordinal, np.array([0.0, 1.0, 2.0, 3.0])),
    (Amount, np.array([0.0, 1.0, 2.5])),
) for scale in family.scales]  # fmt: skip


def named(family):
    return f"{family.kind}, {family.link.scale}"


def outcomes(family, n=200):
    """Outcomes as the family takes them, with locations and scales that they could have."""
    rng = np.random.default_rng(0)
    location, scale = rng.uniform(0.2, 0.8, size=n), rng.uniform(0.5, 2.0, size=n)
    draw = {
        "numeric": lambda: location + scale * rng.normal(size=n),
        "binary": lambda: (rng.random(n) < location).astype(float),
        "count": lambda: rng.poisson(3 * location).astype(float),
        "ordinal": lambda: rng.integers(0, 4, n).astype(float),
        "amount": lambda: (rng.random(n) < location) * scale * np.exp(rng.normal(size=n)),
    }
    return draw[family.kind](), location, scale


every_family = pytest.mark.parametrize("family", EVERY, ids=named)


def test_every_family_is_here():
    assert {type(family) for family in EVERY} == set(FAMILIES.values())


@every_family
def test_scores_are_derivatives_of_the_log_density(family):
    y, location, scale = outcomes(family)
    family = family.fitted(y, location, scale)
    eta, log_scale = family.eta(location), np.log(scale)

    def density(eta, log_scale):
        return family.log_density(y, family.location(eta), np.exp(log_scale), SHAPE)

    found, scores = family.log_density_and_scores(y, eta, log_scale, SHAPE)
    np.testing.assert_allclose(found, density(eta, log_scale), rtol=1e-12)
    slopes = [(density(eta + STEP, log_scale) - density(eta - STEP, log_scale)) / (2 * STEP)]
    if family.has_scale:
        slopes.append((density(eta, log_scale + STEP) - density(eta, log_scale - STEP)) / (2 * STEP))
        u = family.residual(y, location, scale)
        np.testing.assert_allclose(scores[1], family.scale_score(u, SHAPE), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores, slopes, rtol=1e-4, atol=1e-6)


@every_family
def test_the_weighted_residual_over_the_variance_is_the_score_of_eta(family):
    y, location, scale = outcomes(family)
    family = family.fitted(y, location, scale)
    unit = scale if family.has_scale else 1.0
    eta = family.eta(location)
    per_unit, u = family.on_eta(y, eta, unit, family.residual(y, family.location(eta), unit))
    _, scores = family.log_density_and_scores(y, eta, np.log(scale), SHAPE)
    found = family.weight(u, SHAPE) * u * per_unit / family.variance(location, scale)
    np.testing.assert_allclose(found, scores[0], rtol=1e-9)


@every_family
def test_eta_and_location_are_inverse_to_each_other(family):
    _, location, _ = outcomes(family)
    np.testing.assert_allclose(family.location(family.eta(location)), location, rtol=1e-12)


@pytest.mark.parametrize("family", [family for family in EVERY if family.has_scale], ids=named)
def test_the_ratio_of_scales_is_that_of_two_densities(family):
    y = np.exp(np.linspace(-5, 5, 41)) if family.kind == "amount" else np.linspace(-5, 5, 41)
    location, contrast = np.full(41, 0.5), np.linspace(-1, 1, 41)
    u = family.residual(y, location, 1.0)
    wide, narrow = (family.log_density(y, location, np.exp(side * contrast / 2), SHAPE) for side in (1, -1))
    np.testing.assert_allclose(family.scale_ratio(u, contrast, SHAPE), wide - narrow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(family.scale_ratio(u, -contrast, SHAPE), narrow - wide, rtol=1e-9, atol=1e-12)


@every_family
def test_no_outcomes_are_likelier_than_at_their_own_distribution(family):
    y, _, _ = outcomes(family, 2000)
    location, scale, shape = family.marginal(y, 0.0)
    family = family.fitted(y, np.full(y.size, location), np.full(y.size, scale))
    best = family.log_density(y, location, scale, shape).sum()
    # The amount's typical value and spread are those of the middle half, near the likeliest ones.
    slack = 2.0 if family.kind == "amount" else 1e-6
    for moved, wider in ((-0.02, 1.0), (0.02, 1.0), (0.0, 0.97), (0.0, 1.03)):
        assert family.log_density(y, location + moved, scale * wider, shape).sum() <= best + slack


@every_family
def test_expectations_follow_the_units_of_the_outcome(family):
    y, location, scale = outcomes(family)
    family = family.fitted(y, location, scale)
    marks, own = np.array([y.min(), np.median(y[y > 0]), y.max()]), np.ones(y.size)
    plain = family.expected(location, scale, SHAPE, marks, y, own, ORIGIN)
    moved = family.expected(location, scale, SHAPE, (marks - 2.0) / 3.0, (y - 2.0) / 3.0, own, (2.0, 3.0))
    np.testing.assert_allclose(moved[:, 0], (plain[:, 0] - 2.0) / 3.0, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved[:, 1], (plain[:, 1] - 4.0 * plain[:, 0] + 4.0) / 9.0, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved[:, 2:], plain[:, 2:], rtol=1e-9)
    assert (np.diff(plain[:, 2:], axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["count", "ordinal", "amount"])
def test_expectations_are_those_of_simulated_outcomes(kind):
    rng = np.random.default_rng(0)
    n = 40_000
    location, scale = np.full(n, 0.6), np.full(n, 2.0)
    if kind == "count":
        family, y = Count(dispersion=0.5), rng.poisson(0.6 * rng.gamma(2.0, 0.5, n)).astype(float)
    elif kind == "ordinal":
        family = Ordinal(levels=(1.0, 2.0, 4.0), thresholds=(-1.0, 1.0))
        y = np.array([1.0, 2.0, 4.0])[np.digitize(0.6 + rng.logistic(size=n), [-1.0, 1.0])]
    else:
        family, y = Amount(spread=0.7), (rng.random(n) < 0.6) * 2.0 * np.exp(0.7 * rng.standard_t(30, n))
    marks = np.array([0.0, 1.0, 2.0, 4.0])
    found = family.expected(location[:5], scale[:5], 30.0, marks, y[:5], np.ones(5), ORIGIN)[0]
    if kind != "amount":  # whose mean comes from the rows
        assert found[:2] == pytest.approx([y.mean(), (y**2).mean()], rel=0.03)  # standard errors about 0.5%
    assert found[2:] == pytest.approx([(y <= mark).mean() for mark in marks], abs=0.01)  # standard error 0.0025


def test_auto_takes_two_values_as_a_coin_and_all_else_as_numbers():
    assert family_of(np.array([3.0, 7.0, 3.0])) == Bernoulli(middle=5.0)
    assert family_of(np.array([3.0, 7.0, 5.0])) == StudentT()
    np.testing.assert_array_equal(family_of(np.array([3.0, 7.0])).coded(np.array([3.0, 7.0, 3.0])), [0.0, 1.0, 0.0])


def test_dispersion_and_thresholds_are_found():
    rng = np.random.default_rng(1)
    mean = np.exp(rng.normal(size=20_000))
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, mean.size)).astype(float)
    assert Count().fitted(y, mean, mean).dispersion == pytest.approx(0.5, abs=0.05)  # standard error 0.012
    assert Count().fitted(rng.poisson(mean).astype(float), mean, mean).dispersion < 0.03
    index = rng.normal(size=20_000)
    levels = np.digitize(index + rng.logistic(size=index.size), [-1.0, 0.5]).astype(float)
    family = Ordinal.of(levels, LINKS["odds_ratio"]).fitted(levels, index, index)
    assert family.thresholds == pytest.approx((-1.0, 0.5), abs=0.08)  # standard errors 0.018


@pytest.mark.parametrize(
    ("y", "settings", "message"),
    [
        ([0.0, 1.5, 2.0], {"outcome": "count"}, "outcome='count' needs whole numbers, 0 or more; 1 value of y is not"),
        ([0.0, -1.0, 2.0], {"outcome": "count"}, "such as -1"),
        ([0.0, -1.0, 2.0], {"effect_scale": "ratio"}, "effect_scale='ratio' needs an outcome that is never negative"),
        ([0.0, 1.0, 2.0], {"effect_scale": "odds_ratio"}, "needs an outcome of two values; found 3 in y"),
        (range(11), {"outcome": "ordinal", "effect_scale": "odds_ratio"}, "at most 10 ordered levels; found 11"),
        ([0.0, 1.0, 2.0], {"outcome": "binary"}, "outcome='binary' needs an outcome of two values; found 3"),
        ([0.0, -1.0, 2.0], {"outcome": "amount"}, "outcome='amount' needs amounts of 0 or more"),
        ([1.0, 2.0, 3.0], {"outcome": "amount"}, "needs zeros and different amounts above them"),
        ([1.0, 2.0], {"outcome": "ratio"}, "outcome must be 'auto', 'numeric', 'binary', 'count', 'ordinal', 'amount'"),
        ([1.0, 2.0], {"effect_scale": "log"}, "effect_scale must be 'difference', 'ratio', 'odds_ratio', not 'log'"),
        ([1.0, 2.0], {"outcome": "ordinal"}, "use effect_scale='odds_ratio'"),
    ],
)  # fmt: skip
def test_outcomes_that_do_not_fit_are_refused(y, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        family_of(np.array(y, dtype=float), **settings)


def test_a_level_that_models_have_not_seen_is_refused():
    family = Ordinal.of(np.array([1.0, 2.0, 3.0]), LINKS["odds_ratio"])
    with pytest.raises(ValueError, match=r"y has a level, 2\.5, in too few rows for models"):
        family.coded(np.array([1.0, 2.5]))


@pytest.mark.parametrize("outcome", ["numeric", "amount"])
def test_negative_outcomes_that_models_have_not_seen_are_refused(outcome):
    family = family_of(np.array([0.0, 1.5, 2.0]), outcome, "ratio")
    assert family.coded(np.array([0.0, 3.0])).tolist() == [0.0, 3.0]
    with pytest.raises(ValueError, match="1 value of y is below 0"):
        family.coded(np.array([1.0, -2.0]))


@pytest.mark.parametrize("scale", ["ratio", "odds_ratio"])
def test_an_arm_without_any_outcome_is_refused(scale):
    y, arms = np.array([0.0, 0.0, 0.0, 1.0]), np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match="no control row has one"):
        family_of(y, "auto", scale, arms)


def test_no_count_has_more_than_a_tenth_of_the_sum_where_one_had_a_quarter():
    plain = np.repeat([0.0, 1.0, 2.0, 3.0], [40, 40, 15, 5])
    assert (Count.of(plain).coded(plain) == plain).all()
    wild = np.append(plain, [5000.0, 7.0, 9000.0])
    cut = Count.of(wild).coded(wild)
    assert (cut[:100] == plain).all()
    assert cut[101] == 7.0
    assert cut.max() == cut[100] == cut[102] == np.floor(cut.sum() / 10)

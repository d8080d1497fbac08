"""What every family of outcomes must keep to, by its own densities."""

import numpy as np
import pytest

from modifind.statistics.families import FAMILIES, Bernoulli, StudentT, family_of

SHAPE = 4.0
STEP = 1e-6


def outcomes(family, n=200):
    """Outcomes as the family takes them, with locations and scales that they could have."""
    rng = np.random.default_rng(0)
    location, scale = rng.uniform(0.2, 0.8, size=n), rng.uniform(0.5, 2.0, size=n)
    y = location + scale * rng.normal(size=n)
    return (y if family.has_scale else family.coded((y > 0.5).astype(float))), location, scale


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_scores_are_derivatives_of_the_log_density(family):
    y, location, scale = outcomes(family)
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
    np.testing.assert_allclose(scores, slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_weighted_residual_over_the_variance_is_the_score_of_eta(family):
    y, location, scale = outcomes(family)
    unit = scale if family.has_scale else 1.0
    u = family.residual(y, location, unit)
    _, scores = family.log_density_and_scores(y, family.eta(location), np.log(scale), SHAPE)
    found = family.weight(u, SHAPE) * u * unit / family.variance(location, scale)
    np.testing.assert_allclose(found, scores[0], rtol=1e-9)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.has_scale], ids=lambda family: family.name)
def test_the_ratio_of_scales_is_that_of_two_densities(family):
    u, contrast = np.linspace(-5, 5, 41), np.linspace(-1, 1, 41)
    wide, narrow = (family.log_density(u, 0.0, np.exp(side * contrast / 2), SHAPE) for side in (1, -1))
    np.testing.assert_allclose(family.scale_ratio(u, contrast, SHAPE), wide - narrow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(family.scale_ratio(u, -contrast, SHAPE), narrow - wide, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_outcomes_are_likelier_than_at_their_own_distribution(family):
    y, _, _ = outcomes(family, 2000)
    location, scale, shape = family.marginal(y, 0.0)
    best = family.log_density(y, location, scale, shape).sum()
    for moved, wider in ((-0.02, 1.0), (0.02, 1.0), (0.0, 0.97), (0.0, 1.03)):
        assert family.log_density(y, location + moved, scale * wider, shape).sum() <= best


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_expectations_follow_the_units_of_the_outcome(family):
    y, location, scale = outcomes(family)
    marks, own = np.array([y.min(), np.median(y), y.max()]), np.ones(y.size)
    plain = family.expected(location, scale, SHAPE, marks, y, own)
    moved = family.expected(
        *family.in_units(location, scale, 2.0, 3.0), SHAPE, (marks - 2.0) / 3.0, (y - 2.0) / 3.0, own
    )
    np.testing.assert_allclose(moved[:, 0], (plain[:, 0] - 2.0) / 3.0, rtol=1e-9)
    np.testing.assert_allclose(moved[:, 1], (plain[:, 1] - 4.0 * plain[:, 0] + 4.0) / 9.0, rtol=1e-9)
    np.testing.assert_allclose(moved[:, 2:], plain[:, 2:], rtol=1e-9)
    assert (np.diff(plain[:, 2:], axis=1) >= 0).all()


def test_two_values_are_a_coin_and_all_else_a_number():
    assert family_of(np.array([3.0, 7.0, 3.0])) == Bernoulli()
    assert family_of(np.array([3.0, 7.0, 5.0])) == StudentT()
    np.testing.assert_array_equal(Bernoulli().coded(np.array([3.0, 7.0, 3.0])), [0.0, 1.0, 0.0])

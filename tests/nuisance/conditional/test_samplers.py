"""What all samplers share."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from conftest import OracleSampler, seed_of
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.conditional import (
    AutoSampler,
    BoostingSampler,
    GaussianSampler,
    MarginalSampler,
    SplineSampler,
    resolve_sampler,
)
from modifind.nuisance.conditional.contract import binned_log_score, marginal_log_score, value_bins
from modifind.nuisance.conditional.distributions import CategoricalConditional, NormalConditional

SAMPLERS = (GaussianSampler, SplineSampler, BoostingSampler, MarginalSampler, AutoSampler, OracleSampler)


def mixed_table():
    rng = np.random.default_rng(0)
    z = rng.normal(size=150)
    frame = pd.DataFrame(
        {
            "x": z + rng.normal(size=150),
            "c": np.array(list("abc"))[rng.integers(0, 3, size=150)],
            "zero": np.where(rng.random(150) < 0.6, 0.0, np.exp(z)),
        }
    )
    return read_features(frame), rng.integers(0, 2, size=150)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_do_not_depend_on_how_they_are_cut_into_blocks(sampler):
    table, treatment = mixed_table()
    fitted = sampler().fit(table, treatment, seed_of(1))
    for feature in range(1 if sampler is OracleSampler else 3):
        conditional = fitted.conditional(feature)
        rng = np.random.default_rng(2)
        whole = conditional.draw(np.random.default_rng(2), 12)
        parts = np.concatenate([conditional.draw(rng, k) for k in (1, 4, 7)])
        np.testing.assert_array_equal(whole, parts)
        assert whole.shape == (12, 150)


@pytest.mark.parametrize("sampler", SAMPLERS[:4])
def test_same_seed_gives_the_same_distribution_in_any_order_of_features(sampler):
    table, treatment = mixed_table()
    first, second = (sampler().fit(table, treatment, seed_of(3)) for _ in range(2))
    forward = [first.conditional(m).draw(np.random.default_rng(4), 2) for m in (0, 1, 2)]
    backward = [second.conditional(m).draw(np.random.default_rng(4), 2) for m in (2, 1, 0)][::-1]
    for left, right in zip(forward, backward, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("sampler", SAMPLERS[:4])
def test_discrete_draws_are_codes_of_known_categories(sampler):
    table, treatment = mixed_table()
    draws = sampler().fit(table, treatment, seed_of(5)).conditional(1).draw(np.random.default_rng(6), 20)
    assert set(np.unique(draws)) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize("sampler", SAMPLERS[:4])
def test_treatment_does_not_enter_an_unconditioned_distribution(sampler):
    table, treatment = mixed_table()
    for feature in range(3):
        draws = [
            sampler(condition_on_treatment=False)
            .fit(table, arms, seed_of(7))
            .conditional(feature)
            .draw(np.random.default_rng(8), 3)
            for arms in (treatment, 1 - treatment[::-1])
        ]
        np.testing.assert_array_equal(*draws)


def test_names_and_objects_are_resolved():
    assert isinstance(resolve_sampler("gaussian"), GaussianSampler)
    assert isinstance(resolve_sampler("marginal"), MarginalSampler)
    own = BoostingSampler(max_iter=3)
    assert resolve_sampler(own) is own
    with pytest.raises(ValueError, match="sampler must be one of 'auto', 'gaussian'"):
        resolve_sampler("knockoff")
    with pytest.raises(ValueError, match="fit and rule; int has no fit and no rule"):
        resolve_sampler(3)


def test_normal_distribution_draws_are_normal():
    conditional = NormalConditional(np.zeros(100), 2.0, None)
    draws = conditional.draw(np.random.default_rng(9), 100).ravel()
    # 10,000 draws: the distance exceeds 1.95/sqrt(10000) = 0.0195 with probability 0.001.
    assert kstest(draws / 2.0, "norm").statistic < 0.0195


def test_categorical_distribution_draws_its_probabilities_and_never_a_category_of_none():
    probabilities = np.tile([0.2, 0.0, 0.5, 0.3], (200, 1))
    draws = CategoricalConditional(probabilities, None).draw(np.random.default_rng(10), 200)
    shares = np.bincount(draws.ravel().astype(int), minlength=4) / draws.size
    # 40,000 draws: sd at most 0.0025; 4 sd.
    np.testing.assert_allclose(shares, [0.2, 0.0, 0.5, 0.3], atol=0.01)
    assert shares[1] == 0


def test_an_atom_has_a_bin_of_its_own():
    values = np.concatenate((np.zeros(60), np.linspace(1, 2, 40)))
    edges = value_bins(values)
    place = np.searchsorted(edges, values, side="left")
    assert (place[:60] == place[0]).all()
    assert (place[60:] != place[0]).all()


def test_log_score_of_the_empirical_distribution_is_that_of_the_marginal():
    values = np.random.default_rng(11).normal(size=500)
    edges = value_bins(values)
    cumulative = np.tile((values[:, None] <= edges).mean(axis=0), (500, 1))
    # The mixture takes at most 1/501 of each bin's mass, and gives a little to bins of one row.
    np.testing.assert_allclose(
        binned_log_score(values, edges, cumulative),
        marginal_log_score(values, edges, Weights.alike(values.size)),
        atol=0.06,
    )

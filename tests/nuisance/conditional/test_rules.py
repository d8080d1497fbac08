"""Rules of the samplers: the fitted distribution on its own rows, and one for rows that were not in the table."""

import importlib.util
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from conftest import OracleSampler, confounded_table, seed_of
from modifind import EffectLikelihood, ModifierSelector
from modifind.data.features import FeatureTable
from modifind.data.schema import read_features
from modifind.nuisance.conditional import (
    AutoSampler,
    BoostingSampler,
    CVAESampler,
    GaussianSampler,
    MarginalSampler,
    SplineSampler,
)
from modifind.nuisance.conditional.contract import Calibration, without_rows
from modifind.nuisance.conditional.distributions import NormalConditional
from modifind.nuisance.conditional.sampler import CategoryRule, NormalRule, ResidualRule

FEATURES = ("linear", "curved", "zeros", "group")
NO_TORCH = importlib.util.find_spec("torch") is None


def simulate(n, seed):
    """A line, a curve, an atom at zero and three categories, all moved by the treatment."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, 2, size=n)
    z, first, second, third, fourth = rng.normal(size=(5, n))
    frame = pd.DataFrame(
        {
            "linear": 10 + 3 * z,
            "curved": np.sin(z) + 0.5 * arms + 0.4 * first,
            "zeros": np.where(z + second > 0.3, 0.0, np.exp(0.5 * third)),
            "group": np.array(["u", "v", "w"])[np.digitize(z + 0.8 * fourth + 0.3 * arms, [-0.7, 0.9])],
        }
    )
    return frame, arms


@pytest.fixture(scope="module")
def seen():
    frame, arms = simulate(1200, 0)
    return read_features(frame), arms


@pytest.fixture(scope="module")
def others(seen):
    frame, arms = simulate(900, 1)
    table = read_features(frame)
    assert table.categories == seen[0].categories
    return FeatureTable(table.names, table.values, table.categories, seen[0].scaling), arms


@pytest.fixture(scope="module")
def samplers(seen):
    kinds = {
        "gaussian": GaussianSampler(),
        "splines": SplineSampler(),
        "boosting": BoostingSampler(),
        "marginal": MarginalSampler(),
    }
    kinds["auto"] = AutoSampler()
    if not NO_TORCH:
        kinds["cvae"] = CVAESampler(max_epochs=3, hidden=16)
    return {name: sampler.fit(*seen, seed_of(0)) for name, sampler in kinds.items()}


@pytest.fixture(scope="module")
def rules(samplers):
    return {(name, feature): own.rule(feature) for name, own in samplers.items() for feature in range(4)}


def parts_of(n, seed=2):
    return np.random.default_rng(seed).integers(0, 5, size=n)


def moments(points, weights):
    mean = np.einsum("ij,ij->i", points, weights)
    return mean, np.sqrt(np.einsum("ij,ij->i", weights, (points - mean[:, None]) ** 2))


def skip_without_torch(name):
    if name == "cvae" and NO_TORCH:
        pytest.skip("torch is not installed")


@pytest.mark.parametrize("feature", range(4), ids=FEATURES)
@pytest.mark.parametrize("name", ["gaussian", "marginal", "cvae"])
def test_rule_gives_the_fitted_distribution_on_the_fitted_rows(samplers, rules, seen, name, feature):
    skip_without_torch(name)
    table, arms = seen
    conditional, rule = samplers[name].conditional(feature), rules[name, feature]
    rows = np.array([5, 3, 3, 1100, 0])
    for chosen in (slice(None), rows):
        points, weights = rule.conditional(table, arms, parts_of(arms.size)).grid(chosen)
        expected, chances = conditional.grid(chosen)
        np.testing.assert_allclose(points, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(weights, chances, rtol=1e-9, atol=1e-9)
    np.testing.assert_equal(vars(rule.calibration), vars(conditional.calibration))


@pytest.mark.parametrize("feature", [0, 1], ids=FEATURES[:2])
def test_boosted_rule_has_the_means_and_spreads_of_the_fitted_distribution(samplers, rules, seen, feature):
    table, arms = seen
    conditional, rule = samplers["boosting"].conditional(feature), rules["boosting", feature]
    mean, spread = moments(*rule.conditional(table, arms, parts_of(arms.size)).grid(slice(None)))
    expected, width = moments(*conditional.grid(slice(None)))
    # A row is predicted by the trees of some fold, not of its own: means differ by the noise of trees.
    assert np.sqrt(np.mean((mean - expected) ** 2)) < 0.3 * np.sqrt(np.mean(width**2))
    assert abs(np.mean(mean - expected)) < 0.03 * expected.std()
    assert np.median(spread / width) == pytest.approx(1.0, abs=0.02)
    assert np.mean(np.abs(spread / width - 1)) < 0.1


def test_boosted_rule_with_the_trees_of_the_own_fold_is_the_fitted_distribution(seen):
    table, arms = seen
    sampler = BoostingSampler(n_folds=3).fit(table, arms, seed_of(4))
    conditional, rule = sampler.conditional(1), sampler.rule(1)
    conditionals = [rule.conditional(table, arms, np.full(arms.size, part)) for part in range(3)]
    gaps = np.abs(np.stack([own.shift for own in conditionals]) - conditional.shift)
    np.testing.assert_allclose(gaps.min(axis=0), 0.0, atol=1e-9)
    assert np.bincount(gaps.argmin(axis=0)).tolist() == [400, 400, 400]
    assert (np.sort(gaps, axis=0)[1] > 1e-6).mean() > 0.95
    for part, own in enumerate(conditionals):
        rows = np.flatnonzero(gaps.argmin(axis=0) == part)
        for found, expected in zip(own.grid(rows), conditional.grid(rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_boosted_rule_keeps_the_atom_at_zero(rules, others):
    table, arms = others
    points, weights = rules["boosting", 2].conditional(table, arms, parts_of(arms.size)).grid(slice(None))
    assert np.isin(0.0, points)
    zero = (weights * (points == 0.0)).sum(axis=1)
    column, z = table.values[:, 2], (table.values[:, 0] - 10) / 3
    # P(zero | z) rises with z from near 0.1 to near 0.9; shares of 450 rows have sd 0.024, the windows as much again.
    for side in (z < 0, z >= 0):
        assert zero[side].mean() == pytest.approx((column[side] == 0).mean(), abs=0.1)
    assert zero[z >= 0].mean() > zero[z < 0].mean() + 0.25
    assert (points >= 0).all()


@pytest.mark.parametrize("name", ["gaussian", "boosting", "auto", "cvae", "marginal"])
@pytest.mark.parametrize("feature", range(4), ids=FEATURES)
def test_rule_gives_distributions_for_rows_that_were_not_in_the_table(rules, others, name, feature):
    skip_without_torch(name)
    table, arms = others
    rule = rules[name, feature]
    conditional = rule.conditional(table, arms, parts_of(arms.size))
    points, weights = conditional.grid(slice(None))
    assert points.shape == weights.shape == (arms.size, 3 if feature == 3 else 25)
    assert np.isfinite(points).all()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
    column = table.values[:, feature]
    mean, spread = moments(points, weights)
    standardised = (column - mean) / spread
    if name != "cvae":  # which is hardly trained here
        # 900 standardised values: their mean has sd 0.033, their sd 0.024 and more with heavy tails.
        assert abs(standardised.mean()) < 0.2
    if name != "cvae" and feature != 3:  # and trees are too sure of categories
        assert standardised.std() == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("name", ["gaussian", "boosting", "auto"])
def test_rule_predicts_unseen_rows(rules, others, name):
    table, arms = others
    for feature in (0, 1):
        mean, _ = moments(*rules[name, feature].conditional(table, arms, parts_of(arms.size)).grid(slice(None)))
        assert np.corrcoef(mean, table.values[:, feature])[0, 1] > 0.5
    _, chances = rules[name, 3].conditional(table, arms, parts_of(arms.size)).grid(slice(None))
    codes = table.values[:, 3].astype(int)
    own = chances[np.arange(codes.size), codes]
    frequencies = np.bincount(codes) / codes.size
    assert np.log(np.maximum(own, 1e-3)).mean() > np.log(frequencies[codes]).mean() + 0.1


@pytest.mark.parametrize("name", ["gaussian", "boosting", "auto", "cvae", "marginal"])
@pytest.mark.parametrize("feature", [1, 3], ids=["continuous", "discrete"])
def test_rule_of_a_row_does_not_depend_on_the_rows_beside_it(rules, others, name, feature):
    skip_without_torch(name)
    table, arms = others
    rule, parts = rules[name, feature], parts_of(arms.size)
    whole = rule.conditional(table, arms, parts).grid(slice(None))
    piece = slice(300, 520)
    part = rule.conditional(replace(table, values=table.values[piece]), arms[piece], parts[piece]).grid(slice(None))
    for expected, found in zip(whole, part, strict=True):
        np.testing.assert_allclose(found, expected[piece], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "boosting", "auto", "cvae", "marginal"])
@pytest.mark.parametrize("feature", range(4), ids=FEATURES)
def test_rule_is_small_and_the_same_after_pickling(rules, others, name, feature):
    skip_without_torch(name)
    table, arms = others
    rule = rules[name, feature]
    stored = pickle.dumps(without_rows(rule))
    # Far less than the table of the fit would need at scale; trees of four folds are most of it.
    assert len(stored) < (1_000_000 if name in ("boosting", "auto") else 50_000)
    rows = np.arange(50)
    before = rule.conditional(table, arms, parts_of(arms.size)).grid(rows)
    after = pickle.loads(stored).conditional(table, arms, parts_of(arms.size)).grid(rows)
    for expected, found in zip(before, after, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_auto_takes_the_rule_of_the_sampler_whose_distribution_it_takes(samplers, rules):
    kinds = set()
    for feature in range(4):
        rule, conditional = rules["auto", feature], samplers["auto"].conditional(feature)
        assert rule.calibration.sampler == conditional.calibration.sampler
        linear = conditional.calibration.sampler == "gaussian"
        assert isinstance(rule, (NormalRule if linear else ResidualRule, CategoryRule))
        kinds.add(linear)
    assert kinds == {True, False}  # both are exercised


def test_treatment_moves_the_distribution_when_conditioned_on(seen, others):
    table, arms = others
    for sampler, moves in ((GaussianSampler(), True), (GaussianSampler(condition_on_treatment=False), False)):
        rule = sampler.fit(*seen, seed_of(0)).rule(1)
        low, high = (
            moments(*rule.conditional(table, np.full(arms.size, arm), arms).grid(slice(None)))[0] for arm in (0, 1)
        )
        if moves:  # the effect on this feature is 0.5, its sd over 1200 rows 0.03 and the shrinkage small
            np.testing.assert_allclose(high - low, 0.5, atol=0.15)
        else:
            np.testing.assert_array_equal(low, high)


@pytest.mark.parametrize("sampler", [GaussianSampler, BoostingSampler, MarginalSampler])
@pytest.mark.parametrize("values", ["continuous", "discrete"])
def test_rule_of_a_table_of_one_feature(sampler, values):
    rng = np.random.default_rng(5)
    column = rng.normal(size=400) if values == "continuous" else rng.integers(0, 3, size=400)
    table, arms = read_features(pd.DataFrame({"only": column})), rng.integers(0, 2, size=400)
    fitted = sampler(condition_on_treatment=False).fit(table, arms, seed_of(0))
    points, weights = fitted.rule(0).conditional(table, arms, parts_of(400)).grid(slice(None))
    mean, spread = moments(points, weights)
    # Folds of 100 rows have means of their own, and the windows of trees half of the rows: sd 0.1 and 5%.
    np.testing.assert_allclose(mean, table.values.mean(), atol=0.4)
    np.testing.assert_allclose(spread, table.values.std(), rtol=0.3)


@pytest.mark.parametrize("sampler", [GaussianSampler, BoostingSampler])
def test_category_that_the_sample_lacks_has_no_probability(seen, sampler):
    table, arms = seen
    categories = (*table.categories[:3], ("t", "u", "v", "w"))
    values = table.values.copy()
    values[:, 3] += 1
    wider = FeatureTable(table.names, values, categories)
    points, weights = (
        sampler().fit(wider, arms, seed_of(0)).rule(3).conditional(wider, arms, parts_of(arms.size)).grid(slice(None))
    )
    assert weights.shape[1] == 4
    np.testing.assert_array_equal(weights[:, 0], 0.0)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_array_equal(points[0], [0, 1, 2, 3])


class DuckSampler:
    """A sampler of the two methods that the interface asks for."""

    def fit(self, table, treatment, seed):
        self.oracle = OracleSampler().fit(table, treatment, seed)
        return self

    def rule(self, feature):
        return self.oracle.rule(feature)


@pytest.mark.parametrize("sampler", [OracleSampler(), DuckSampler()], ids=["base", "duck"])
def test_a_sampler_of_one_s_own_serves_a_table_in_memory_and_refuses_one_in_pieces_without_points(sampler):
    rng = np.random.default_rng(7)
    X, arms = confounded_table(rng, 600, 3)
    y = arms * X[:, 0] + rng.normal(size=600)
    settings = {"statistic": EffectLikelihood("linear"), "sampler": sampler, "random_state": 0}
    with pytest.raises(ValueError, match=r"what OracleRule\.conditional returns, OracleConditional, has no grid"):
        ModifierSelector(**settings, max_train_rows=300).fit(X, y, treatment=arms)
    assert "x0" in ModifierSelector(**settings, max_train_rows=600).fit(X, y, treatment=arms).result_.selected


class KnownNormal:
    """Independent standard normal variables."""

    calibration = Calibration("known", np.nan, np.nan, 0.0)

    def fit(self, table, treatment, seed):
        return self

    def rule(self, feature):
        return self

    def conditional(self, table, treatment, parts):
        return NormalConditional(np.zeros(table.n_rows), 1.0, self.calibration)


def test_a_rule_that_is_known_serves_a_table_in_pieces():
    rng = np.random.default_rng(8)
    X, arms = rng.normal(size=(600, 3)), np.arange(600) % 2
    settings = {"statistic": EffectLikelihood("linear"), "sampler": KnownNormal(), "propensity": 0.5, "explain": False}
    for most in (300, 600):
        selector = ModifierSelector(**settings, max_train_rows=most, random_state=0)
        assert selector.fit(X, arms * X[:, 0] + rng.normal(size=600), treatment=arms).result_.selected == ["x0"]

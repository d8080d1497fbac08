"""The effect-likelihood statistic: what moves it, what leaves it alone, and how its p-values are found."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

from conftest import ar_normal, conditional_grid, four_sd, logistic_treatment, quiet_fit, raw_p_values, runs, seed_of
from modifind import EffectLikelihood
from modifind.data.schema import read_features
from modifind.engine import features as repeats
from modifind.engine.sums import UnitSums, outcome_of
from modifind.inference import analytic_test
from modifind.nuisance.conditional import ConditionalGrid, GaussianSampler, MarginalSampler
from modifind.nuisance.conditional.distributions import N_GRID
from modifind.nuisance.outcome.stacking import StackedModel
from modifind.nuisance.propensity.scores import arm_folds
from modifind.statistics import Nuisances
from modifind.statistics.contract import Terms
from modifind.statistics.prepared_likelihood import REUSE_ROWS
from modifind.statistics.row_terms import MEAN, SPREAD, WHOLE
from prepared import feature_sums, scored_rows


class Known:
    """A learner that knows the truth, or thinks so: functions of the design matrix."""

    def __init__(self, control, treated, scale=lambda X: np.ones((len(X), 2))):
        self.control, self.treated, self.scale = control, treated, scale

    def fit(self, X, a, y):
        return self

    def predict(self, X):
        return np.stack((self.control(X), self.treated(X)), axis=1), self.scale(X)


class Points:
    """A distribution with given points and weights, the same for every row."""

    def __init__(self, points, weights):
        self.points, self.weights = np.asarray(points, dtype=float), np.asarray(weights, dtype=float)

    def at(self, rows):
        shape = (len(rows), self.points.size)
        return np.broadcast_to(self.points, shape), np.broadcast_to(self.weights, shape)


class Observed:
    """A distribution that has only the observed value of every row."""

    def __init__(self, column):
        self.column = column

    def at(self, rows):
        return self.column[rows, None], np.ones((len(rows), 1))


def standardised(rng, n, d):
    """Columns of mean 0 and standard deviation 1 exactly, so that they are their own design matrix."""
    X = rng.normal(size=(n, d))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def prepare(X, y, treatment, learner="linear", scores=None, n_repeats=1, **settings):
    table = read_features(X, [])
    folds = [arm_folds(treatment, 5, seed) for seed in range(n_repeats)]
    scores = np.full(y.size, 0.5) if scores is None else scores
    statistic = EffectLikelihood(learner, cv_repeats=n_repeats)
    return statistic.prepare(Nuisances(table, y, treatment, scores, seed_of(0), tuple(folds), **settings))


def reuse_variance(prepared, feature, grid):
    sums, reuse = feature_sums(prepared, feature, grid)
    return sums.parts["test"].excess_variance(reuse.get("test"))


def p_of(prepared, feature, grid):
    """The test without its direct component."""
    sums, reuse = feature_sums(prepared, feature, grid)
    return outcome_of(replace(sums, directions={}), reuse)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = ar_normal(rng, 300, 4, 0.3)
    treatment = rng.integers(0, 2, size=300)
    y = X[:, 1] + treatment * X[:, 0] + np.exp(0.8 * treatment * X[:, 2]) * rng.normal(size=300)
    return X, y, treatment


def test_null_variances_of_folds_are_those_of_their_rows(data):
    X, y, treatment = data
    prepared = prepare(X, y, treatment, n_repeats=2)
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(6), size=300)
    values = rng.normal(size=(300, 6)) * np.linspace(0.1, 4.0, 300)[:, None]  # folds differ, and so do rows
    values -= (values * weights).sum(axis=1, keepdims=True)
    terms = Terms(np.zeros(300), values, weights)
    found = UnitSums.of(terms, scored_rows(prepared)).parts["test"].per_fold
    assert len(found) == 2
    for repeat, own in enumerate(found):
        folds = arm_folds(treatment, 5, repeat)
        expected = [np.sum(values[folds == k] ** 2 * weights[folds == k]) for k in range(5)]
        np.testing.assert_allclose(own, expected)
    assert np.std(found[0]) > 0.02 * np.mean(found[0])
    assert not np.allclose(*found)


@pytest.mark.parametrize("learner", ["linear", "splines", "boosting", ["linear", "splines"]])
def test_distribution_that_has_only_the_observed_value_leaves_nothing_to_test(data, learner):
    X, y, treatment = data
    prepared = prepare(X, y, treatment, learner, n_repeats=2)
    for feature in range(4):
        terms, weights = prepared.row_terms(feature, Observed(X[:, feature]), WHOLE, MEAN, SPREAD)
        assert (weights == 1).all()
        for own in terms:  # the models at that value are those of the row, but for rounding
            np.testing.assert_allclose(own.observed, 0.0, atol=1e-9)
            np.testing.assert_allclose(own.values, 0.0, atol=1e-9)


def test_categories_at_their_observed_code_give_the_observed_terms():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": rng.choice(list("abcd"), size=200)})
    treatment = rng.integers(0, 2, size=200)
    y = treatment * (frame["c"] == "b").to_numpy() + rng.normal(size=200)
    table = read_features(frame)
    prepared = EffectLikelihood("splines").prepare(
        Nuisances(table, y, treatment, np.full(200, 0.5), seed_of(0), (arm_folds(treatment, 5, 0),))
    )
    (spread,), _ = prepared.row_terms(1, Points([0, 1, 2, 3], [0.25] * 4), SPREAD)
    chosen = spread.values[np.arange(200), table.values[:, 1].astype(int)]
    np.testing.assert_allclose(chosen, spread.observed, rtol=1e-9, atol=1e-12)
    assert spread.values.std(axis=1).max() > 1e-4


@pytest.mark.parametrize("part", [WHOLE, MEAN, SPREAD])
def test_terms_are_the_formula_of_the_docstring(part):
    rng = np.random.default_rng(2)
    n = 120
    X, treatment, scores = standardised(rng, n, 2), rng.integers(0, 2, size=n), rng.uniform(0.2, 0.8, size=n)
    y = rng.normal(size=n)
    model = Known(
        lambda X: np.sin(X[:, 0]) + X[:, 1],
        lambda X: X[:, 0] ** 2,
        lambda X: np.exp(np.outer(X[:, 0], [0.3, -0.2])) * np.array([[1.0, 1.5]]),
    )
    prepared = prepare(X, y, treatment, model, scores)
    points, chances = np.array([-1.0, 0.3, 2.0]), np.array([0.2, 0.5, 0.3])
    (terms,), _ = prepared.row_terms(0, Points(points, chances), part)
    traits = prepared.fits[0].traits

    def contrasts(X):
        """Difference of locations and of log-scales, and K."""
        location, scale = model.predict(X)
        precision = 1 / (scores * scale[:, 0] ** 2 + (1 - scores) * scale[:, 1] ** 2)
        return location[:, 1] - location[:, 0], np.log(scale[:, 1] / scale[:, 0]), precision

    own = contrasts(X)
    moved = [contrasts(np.column_stack((np.full(n, point), X[:, 1]))) for point in points]
    first, second, precision = (np.stack([at[k] for at in moved], axis=1) for k in range(3))
    informed = chances * precision
    first_bar = (first * informed).sum(axis=1) / informed.sum(axis=1) if part[0] else own[0]
    second_bar = second @ chances if part[1] else own[1]
    mu, sigma = model.predict(X)
    share = scores / sigma[:, 1] ** 2 / (scores / sigma[:, 1] ** 2 + (1 - scores) / sigma[:, 0] ** 2)
    apart, ratio = traits.location[0] + traits.location[1] * first_bar, traits.scale[0] + traits.scale[1] * second_bar
    place = (1 - share) * mu[:, 0] + share * mu[:, 1] + (treatment - share) * apart
    scale = np.exp(np.log(sigma).mean(axis=1) + (treatment - 0.5) * ratio)
    u = (y - place) / scale
    weight = (traits.shape + 1) / (traits.shape + u**2)

    def at(first, second):
        found = np.zeros(n)
        if part[0]:
            found += own[2] * scale * weight * u * (first - first_bar)
        if part[1]:
            wide = np.exp((second - second_bar) / 2)
            found += t.logpdf(u, traits.shape, scale=wide) - t.logpdf(u, traits.shape, scale=1 / wide)
        return (treatment - scores) / 2 * found

    along = np.stack([at(first[:, k], second[:, k]) for k in range(3)], axis=1)
    mean = (along * chances).sum(axis=1)
    np.testing.assert_allclose(terms.values, along - mean[:, None], rtol=1e-9, atol=1e-12)
    # The location part is centred by its mean under the weighted distribution, the scale part by that under the
    # distribution.
    at_mean = at(first @ chances, second_bar) if part[0] else 0.0
    np.testing.assert_allclose(terms.observed, at(*own[:2]) - mean + at_mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("contrast", [(0.7, 0.0), (0.0, 0.4)], ids=["location", "scale"])
@pytest.mark.parametrize("distribution", ["normal", "t3", "log-normal", "piled"])
def test_where_the_treatment_does_nothing_the_coin_centres_every_row(distribution, contrast):
    # Whatever the model makes of a feature and whatever the noise does: given the outcome and the features a row of
    # the treated arm adds as much, times 1 - e, as the same row of the control arm takes away, times e.
    rng = np.random.default_rng(3)
    n = 200
    X, scores = standardised(rng, n, 2), rng.uniform(0.1, 0.9, size=n)
    noise = {"normal": rng.normal(size=n), "t3": rng.standard_t(3, n), "log-normal": np.exp(rng.normal(size=n))}
    y = (
        np.maximum(X[:, 0] + rng.normal(size=n), -0.3)
        if distribution == "piled"
        else np.exp(X[:, 0]) * noise[distribution]
    )
    location, log_scale = contrast
    model = Known(  # contrasts that are zero on average over the feature, and far from it at its points
        lambda X: X[:, 1] - location * X[:, 0],
        lambda X: X[:, 1] + location * X[:, 0],
        lambda X: np.exp(0.5 * X[:, 1:] + np.outer(X[:, 0], [-log_scale, log_scale])),
    )
    treatment = (rng.random(n) < scores).astype(int)
    prepared = prepare(X, y, treatment, model, scores)
    fit = prepared.fits[0]
    fit = replace(fit, traits=replace(fit.traits, location=(0.0, 0.8), scale=(0.0, 0.8)))
    arms = []
    for arm in (0, 1):
        rows = Nuisances(prepared.table, y, np.full(n, arm), scores, seed_of(0), (fit.cross.folds,))
        moved = replace(prepared, fits=(fit,)).at(rows)
        (terms,), _ = moved.row_terms(0, Points([-1.0, 1.0], [0.5, 0.5]))
        arms.append(terms.observed)
    np.testing.assert_allclose(scores * arms[1] + (1 - scores) * arms[0], 0.0, atol=1e-12)
    assert np.abs(arms[1]).max() > 0.01


def test_contrasts_are_kept_as_far_as_held_out_rows_bear_them_out():
    rng = np.random.default_rng(4)
    n = 4000
    X, treatment = standardised(rng, n, 2), rng.integers(0, 2, size=n)
    factor = np.exp([-0.15, 0.15])
    model = Known(
        lambda X: -0.5 * X[:, 0] - 0.2,
        lambda X: 0.5 * X[:, 0] + 0.2,
        lambda X: factor * np.exp(np.outer(X[:, 1], [-0.3, 0.3])),
    )
    noise = rng.normal(size=n)
    for kept in (0.0, 0.6, 1.0):
        half = kept * (treatment - 0.5)
        traits = prepare(X, half * X[:, 0] + np.exp(0.6 * half * X[:, 1]) * noise, treatment, model).fits[0].traits
        # Standard errors of both shares are near 0.04, and each feels a little of the other contrast.
        assert traits.location[1] == pytest.approx(kept, abs=0.25)
        assert traits.scale[1] == pytest.approx(kept, abs=0.25)
        # The arms' level is found anew: the model's shift of 0.4 and its factor of exp(0.3) are not there.
        assert traits.location[0] + 0.4 * traits.location[1] == pytest.approx(0.0, abs=0.25)
        assert traits.scale[0] + 0.3 * traits.scale[1] == pytest.approx(0.0, abs=0.25)


def test_wrong_model_gains_nothing_on_average_from_a_null_feature():
    # A model with a large made-up effect of a feature that does nothing, arms of unequal size and spread. The null mean
    # of the statistic is then its expectation, and z-scores are standard normal.
    z = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = 400
        X = standardised(rng, n, 2)
        treatment, scores = logistic_treatment(rng, X[:, 1])
        scale = np.where(treatment == 1, 2.0, 1.0)
        y = X[:, 1] + scale * rng.normal(size=n)
        model = Known(
            lambda X: X[:, 1] + 0.8 * X[:, 0] + 0.5,
            lambda X: X[:, 1] + np.sin(2 * X[:, 0]),
            lambda X: np.tile([1.3, 2.2], (len(X), 1)),
        )
        prepared = prepare(X, y, treatment, model, scores)
        (terms,), weights = prepared.row_terms(0, Points(np.sort(X[:, 0]), np.full(n, 1 / n)))
        z.append(analytic_test(terms.observed, terms.values, weights).statistic)
    # 60 standard normal numbers: their mean has sd 0.13. Four of those; their sd has a relative sd of 0.09.
    assert abs(np.mean(z)) < 4 / np.sqrt(60)
    assert np.std(z) == pytest.approx(1.0, abs=0.4)


def test_true_model_leaves_the_statistic_where_it_is_for_a_prognostic_feature():
    rng = np.random.default_rng(3)
    n = 300
    X, treatment = standardised(rng, n, 3), rng.integers(0, 2, size=n)
    y = 3 * np.sin(2 * X[:, 0]) + treatment * X[:, 1] + rng.normal(size=n)
    model = Known(lambda X: 3 * np.sin(2 * X[:, 0]), lambda X: 3 * np.sin(2 * X[:, 0]) + X[:, 1])
    prepared = prepare(X, y, treatment, model)
    sampler = GaussianSampler().fit(prepared.table, treatment, seed_of(0))
    found = [p_of(prepared, feature, conditional_grid(sampler, feature)) for feature in range(3)]
    assert (found[0].p_value, found[0].statistic, found[0].gain) == (1.0, 0.0, 0.0)
    assert found[1].p_value < 1e-6
    assert found[1].gain > 0.05
    assert found[2].p_value == 1.0


def test_feature_that_moves_the_spread_of_one_arm_is_found():
    rng = np.random.default_rng(4)
    n = 300
    X, treatment = standardised(rng, n, 2), rng.integers(0, 2, size=n)
    y = X[:, 1] + np.where(treatment == 1, np.exp(0.6 * X[:, 0]), 1.0) * rng.normal(size=n)
    model = Known(
        lambda X: X[:, 1], lambda X: X[:, 1], lambda X: np.stack((np.ones(len(X)), np.exp(0.6 * X[:, 0])), axis=1)
    )
    prepared = prepare(X, y, treatment, model)
    grid = conditional_grid(GaussianSampler().fit(prepared.table, treatment, seed_of(0)), 0)
    assert p_of(prepared, 0, grid).p_value < 1e-4


@pytest.mark.parametrize("both", [0.5, 1.0])
def test_feature_that_moves_the_spread_of_both_arms_alike_is_not_found(both):
    # A true model has nothing to test; one that takes the arms for a little different has a direction, and no gain.
    z = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = 300
        X, treatment = standardised(rng, n, 2), rng.integers(0, 2, size=n)
        y = X[:, 1] + np.exp(both * X[:, 0]) * rng.normal(size=n)
        model = Known(
            lambda X: X[:, 1],
            lambda X: X[:, 1] + 0.1 * X[:, 0],
            lambda X: np.exp(np.outer(X[:, 0], [both - 0.1, both + 0.1])),
        )
        prepared = prepare(X, y, treatment, model)
        grid = conditional_grid(GaussianSampler().fit(prepared.table, treatment, seed_of(0)), 0)
        z.append(p_of(prepared, 0, grid).statistic)
    # 40 numbers of sd near 1: their mean has sd 0.16, four of those.
    assert abs(np.mean(z)) < 4 / np.sqrt(40)
    assert np.mean(np.array(z) > norm.isf(0.05)) <= 0.05 + four_sd(0.05, 40)


def test_repeats_are_averaged_row_by_row(data):
    X, y, treatment = data
    table = read_features(X, [])
    folds = [arm_folds(treatment, 5, seed) for seed in (7, 8)]
    scores = np.full(300, 0.5)
    both = EffectLikelihood("linear", cv_repeats=2).prepare(
        Nuisances(table, y, treatment, scores, seed_of(0), tuple(folds))
    )
    single = [
        EffectLikelihood("linear").prepare(Nuisances(table, y, treatment, scores, seed_of(0), (own,))) for own in folds
    ]
    grid = conditional_grid(GaussianSampler().fit(table, treatment, seed_of(0)), 0)
    (terms,), _ = both.row_terms(0, grid)
    parts = [part.row_terms(0, grid)[0][0] for part in single]
    np.testing.assert_allclose(terms.observed, np.mean([part.observed for part in parts], axis=0), atol=1e-12)
    np.testing.assert_allclose(terms.values, np.mean([part.values for part in parts], axis=0), atol=1e-12)


@pytest.mark.parametrize("order", [1, -1])
def test_record_counts_learners_that_joined_in_some_repeats_only(data, order):
    X, y, treatment = data
    prepared = prepare(X, y, treatment, n_repeats=2)
    first, second = prepared.fits
    joined = replace(
        second.cross, weights={"linear": 0.25, "boosting": 0.75}, log_scores={"linear": -1.5, "boosting": -1.4}
    )
    fits = (replace(first, cross=replace(first.cross, log_scores={"linear": -1.7})), replace(second, cross=joined))
    record = replace(prepared, fits=fits[::order]).description
    assert record["stack"] == "linear 0.62, boosting 0.38"
    assert record["held_out_log_likelihood"] == pytest.approx({"linear": -1.6, "boosting": -1.4})


def test_p_values_do_not_depend_on_the_seed_of_a_gaussian_sampler(data):
    X, y, treatment = data
    prepared = prepare(X, y, treatment)
    samplers = [GaussianSampler().fit(prepared.table, treatment, seed_of(seed)) for seed in (1, 2)]
    for feature in range(4):
        grids = [ConditionalGrid.of(sampler.conditional(feature), 300) for sampler in samplers]
        first, second = (p_of(prepared, feature, grid) for grid in grids)
        # The seed orders the rows of the sampler's own cross-validation: sums differ in their last digits.
        assert first.p_value == pytest.approx(second.p_value, rel=1e-9)
        assert first.p_value < 1


def test_other_folds_are_all_that_a_seed_changes(data):
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5}
    first, again, other = (quiet_fit(*data, **settings, random_state=seed).result_ for seed in (0, 0, 1))
    assert first == again
    assert (first.table["p_value"] != other.table["p_value"]).all()
    np.testing.assert_array_equal(first.diagnostics["log_score_gain"] > 0, other.diagnostics["log_score_gain"] > 0)


@pytest.mark.parametrize("learner", ["linear", ["linear", "splines"]])
def test_p_values_do_not_depend_on_the_number_of_jobs(data, learner):
    statistic = EffectLikelihood(learner, cv_repeats=2, check_resamples=50)
    settings = {"statistic": statistic, "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    one, two = (quiet_fit(*data, **settings, n_jobs=n_jobs).result_ for n_jobs in (1, 2))
    assert one == two


@pytest.mark.study
def test_repeats_make_p_values_depend_less_on_the_folds(monkeypatch):
    monkeypatch.setattr(repeats, "MAX_FITS", 1)  # no further ones near the cut
    rng = np.random.default_rng(5)
    X = ar_normal(rng, 250, 5, 0.3)
    treatment = rng.integers(0, 2, size=250)
    y = X[:, 1] + 0.3 * treatment * X[:, 0] + rng.normal(size=250)
    spread, seeds = {}, range(runs(8, 4))
    for n_repeats in (1, 4):
        settings = {"statistic": EffectLikelihood("linear", cv_repeats=n_repeats), "sampler": "gaussian"}
        found = [raw_p_values(X, y, treatment, **settings, propensity=0.5, random_state=seed) for seed in seeds]
        spread[n_repeats] = np.sqrt(np.mean(norm.isf(np.array(found)).var(axis=0, ddof=1)))
    # Four repeats would halve the deviation if folds were independent. Each is estimated from 8 seeds and 5 features,
    # 35 degrees of freedom: relative sd 0.12, of the ratio 0.17. 1.0 is three of those above 0.5.
    assert spread[4] < spread[1]


@pytest.fixture(scope="module")
def binary():
    """The first feature reverses the difference of risks, the second moves both risks alike."""
    rng = np.random.default_rng(6)
    X = ar_normal(rng, 600, 4, 0.3)
    treatment = rng.integers(0, 2, size=600)
    chance = np.clip(0.5 + 0.12 * X[:, 1] + 0.12 * (2 * treatment - 1) * X[:, 0], 0.02, 0.98)
    return X, (rng.random(600) < chance).astype(float), treatment


def test_modifier_of_a_probability_is_found(binary):
    result = quiet_fit(*binary, sampler="gaussian", propensity=0.5, random_state=0).result_
    assert result.selected == ["x0"]
    assert result.settings["model"]["likelihood"] == "bernoulli"
    assert set(result.settings["model"]["held_out_log_likelihood"]) == {"linear", "splines"}
    # In nats a coin costs log 2; this outcome is better known than that.
    assert -np.log(2) < max(result.settings["model"]["held_out_log_likelihood"].values()) < 0


def test_labels_of_a_binary_outcome_do_not_matter(binary):
    X, y, treatment = binary
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    plain = quiet_fit(X, y, treatment, **settings).result_
    other = quiet_fit(X, np.where(y == 1, 7.0, 3.0), treatment, **settings).result_
    np.testing.assert_array_equal(plain.table["p_value"], other.table["p_value"])
    np.testing.assert_array_equal(plain.table["likelihood_gain"], other.table["likelihood_gain"])


def test_swapped_labels_of_a_binary_outcome_give_the_same_p_values(binary):
    X, y, treatment = binary
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    plain, turned = (raw_p_values(X, outcome, treatment, **settings) for outcome in (y, 1 - y))
    # The model is the same with the sign of every coefficient turned; iterations agree to rounding.
    np.testing.assert_allclose(plain, turned, rtol=1e-5)


def test_learner_for_numbers_alone_is_refused_for_a_binary_outcome(binary):
    with pytest.raises(ValueError, match="learner for a binary outcome must be 'auto', 'linear', 'splines', not"):
        quiet_fit(*binary, statistic=EffectLikelihood("boosting"), sampler="gaussian", propensity=0.5)


@pytest.mark.parametrize("size", [100.0, 1e6])
@pytest.mark.parametrize("learner", ["linear", "splines"])
def test_one_wild_outcome_changes_no_selection(data, learner, size):
    X, y, treatment = data
    settings = {"statistic": EffectLikelihood(learner), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    plain = quiet_fit(X, y, treatment, **settings).result_
    assert set(plain.selected) == {"x0", "x2"}
    for row in (0, 17, 100):
        wild = y.copy()
        wild[row] = size
        found = quiet_fit(X, wild, treatment, **settings).result_
        assert set(found.selected) == set(plain.selected)


@pytest.mark.parametrize("factor", [0.01, 5.0, 1e4])
def test_origin_and_units_of_the_outcome_do_not_matter(data, factor):
    X, y, treatment = data
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    plain = raw_p_values(X, y, treatment, **settings)
    moved = raw_p_values(X, factor * (y + 200.0), treatment, **settings)
    # The intercept goes unpenalised and the start is relative to the spread; the penalties start at fixed values, so
    # their iteration ends a little elsewhere.
    np.testing.assert_allclose(norm.isf(moved), norm.isf(plain), atol=0.5)


def test_swapping_the_arms_changes_little(data):
    X, y, treatment = data
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    plain, turned = (raw_p_values(X, y, arms, **settings) for arms in (treatment, 1 - treatment))
    assert (plain <= 0.01).tolist() == (turned <= 0.01).tolist() == [True, False, True, False]


def test_reuse_variance_is_nothing_for_a_model_that_learns_nothing():
    rng = np.random.default_rng(8)
    X, treatment, y = standardised(rng, 200, 2), np.arange(200) % 2, rng.normal(size=200)
    prepared = prepare(X, y, treatment, Known(lambda X: X[:, 0], lambda X: -X[:, 0]))
    grid = Points([-1.0, 1.0], [0.5, 0.5])
    # Models of all folds agree fully, as they would on a true effect.
    assert reuse_variance(prepared, 0, grid) == pytest.approx(0.0, abs=1e-9)
    assert reuse_variance(prepared, 1, grid) == 0.0


@pytest.mark.parametrize(("agreement", "share"), [(0.0, 0.0), (0.3, 0.4), (0.75, 1.0), (0.9, 0.4), (1.0, 0.0)])
def test_reuse_variance_is_largest_where_models_agree_as_far_as_the_rows_they_share(agreement, share):
    rng = np.random.default_rng(9)
    n = REUSE_ROWS
    X, treatment, y = standardised(rng, n, 1), np.arange(n) % 2, rng.normal(size=n)
    # Patterns of five models on nine points: orthonormal and of mean zero, and a part common to all.
    points = np.linspace(-2, 2, 9)
    basis = np.linalg.qr(np.column_stack((np.ones(9), rng.normal(size=(9, 6)))))[0][:, 1:]
    patterns = np.sqrt(agreement) * basis[:, :1] + np.sqrt(1 - agreement) * basis[:, 1:]
    models = [
        Known(lambda X, k=k: 0.0 * X[:, 0], lambda X, k=k: np.interp(X[:, 0], points, patterns[:, k])) for k in range(5)
    ]
    plain = prepare(X, y, treatment, models[0])
    stacks = tuple(StackedModel((model,), (1.0,)) for model in models)
    fit = replace(plain.fits[0], cross=replace(plain.fits[0].cross, models=stacks))
    prepared = replace(plain, fits=(fit,))
    grid = Points(points, np.full(9, 1 / 9))
    (terms,), weights = prepared.row_terms(0, grid)
    values = terms.values
    per_row = (values**2 * weights).sum(axis=1)
    # Models of two of five folds have three quarters of their rows in common. At that agreement the variance is the
    # products of the folds' deviations over the number of other folds: as much again as that of independent rows.
    size = np.sqrt(np.bincount(fit.cross.folds, per_row))
    most = (size.sum() ** 2 - (size**2).sum()) / 4
    assert most == pytest.approx(per_row.sum(), rel=0.1)
    assert reuse_variance(prepared, 0, grid) == pytest.approx(share * most, rel=1e-6, abs=1e-6 * most)


def test_distribution_given_the_rest_spares_what_travels_with_a_modifier():
    # A model that has mistaken the neighbour (correlation 0.8) for the modifier.
    mistaken = Known(lambda X: 0.0 * X[:, 1], lambda X: 1.6 * X[:, 1])
    z = {MarginalSampler: [], GaussianSampler: []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X, treatment = ar_normal(rng, 300, 2, 0.8), rng.integers(0, 2, size=300)
        prepared = prepare(X, 2 * treatment * X[:, 0] + rng.normal(size=300), treatment, mistaken)
        for sampler, found in z.items():
            grid = conditional_grid(sampler().fit(prepared.table, treatment, seed_of(0)), 1)
            found.append(p_of(prepared, 1, grid).statistic)
    assert min(z[MarginalSampler]) > 3
    # 30 standard normal numbers: their mean has sd 0.18, four of those.
    assert abs(np.mean(z[GaussianSampler])) < 4 / np.sqrt(30)
    assert max(z[GaussianSampler]) < 3.5


def test_memory_does_not_grow_with_rows_times_features_times_points():
    rng = np.random.default_rng(11)
    n, d = 2000, 20
    X = rng.normal(size=(n, d))
    treatment = rng.integers(0, 2, size=n)
    y = X[:, 0] * treatment + rng.normal(size=n)
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    quiet_fit(X[:200], y[:200], treatment[:200], **settings)  # what is imported late is not counted
    tracemalloc.start()
    quiet_fit(X, y, treatment, **settings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A feature at a time: five arrays of n times g for its values, points, weights and their products, with locations
    # and scales of two arms for a block of rows; design matrices of n times 2 d; about 55 functions of the outcome in
    # both arms, their errors, and sums of all these over rows, for curves; 5 MB for all else. All features at once
    # would be 8 MB for each such array.
    one = 8 * n * N_GRID
    assert peak < 12 * one + 4 * 8 * n * 2 * d + 9 * 8 * n * 55 + 5e6
    assert 12 * one < 8 * n * d * N_GRID


def test_a_contrast_that_hardly_varies_does_not_fail_the_check_of_the_distribution():
    """The directions alone find the feature, so the models' contrast has nothing that an error could gain by."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["x", "z", "w"])
    treatment = rng.integers(0, 2, size=300)
    y = treatment * X["x"] + rng.normal(size=300)
    nearly_flat = Known(lambda X: 0.0 * X[:, 0], lambda X: 1e-6 * X[:, 0])
    result = quiet_fit(X, y, treatment, statistic=EffectLikelihood(nearly_flat), propensity=0.5).result_
    assert result.selected == ["x"]
    assert result.diagnostics.loc["x", "conditional_p_value"] == 1.0
    assert result.ok

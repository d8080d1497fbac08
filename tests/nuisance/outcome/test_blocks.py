"""Tall matrices in blocks of rows: the same results as at once, and little memory on the way."""

import tracemalloc

import numpy as np
import pytest

from modifind.datasets import make_modifiers
from modifind.nuisance.outcome import AdditiveClassifier, AdditiveLearner, BoostingLearner, stacking
from modifind.nuisance.outcome import additive as boosting
from modifind.nuisance.outcome.learners import resolve_learners
from modifind.nuisance.outcome.stacking import OutcomeRows, cross_fit
from modifind.nuisance.propensity.scores import arm_folds
from modifind.nuisance.regression import penalised as blocks
from modifind.nuisance.regression.penalised import quadratic_forms, random_rows, row_blocks, scaled_gram
from modifind.nuisance.regression.terms import AdditiveTerms, _inner_product, _interpolate, _quantiles
from modifind.statistics.families import StudentT

SIZES = [1, 7, 100, 1000]


@pytest.mark.parametrize("size", SIZES)
def test_blocks_cover_every_row_once(monkeypatch, size):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", size)
    parts = [np.arange(100)[rows] for rows in row_blocks(100)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(100))
    assert max(part.size for part in parts) == min(size, 100)
    assert list(row_blocks(0)) == []


@pytest.mark.parametrize("size", SIZES)
def test_sums_over_blocks_are_those_over_all_rows(monkeypatch, size):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", size)
    rng = np.random.default_rng(0)
    terms, factor, half = rng.normal(size=(100, 6)), rng.normal(size=100), rng.normal(size=(6, 6))
    form = half + half.T
    np.testing.assert_allclose(scaled_gram(terms, factor), terms.T @ np.diag(factor**2) @ terms, rtol=1e-12)
    np.testing.assert_allclose(quadratic_forms(terms, form), np.diag(terms @ form @ terms.T), rtol=1e-10, atol=1e-12)


@pytest.fixture(scope="module")
def products():
    """Curves, a product, and a spread that rises in the treated arm from a floor."""
    rng = np.random.default_rng(1)
    X, a = rng.normal(size=(900, 4)), rng.integers(0, 2, size=900)
    mean = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + a * X[:, 3]
    return X, a, mean + np.where(a == 1, 0.5 + np.logaddexp(0.0, 2 * X[:, 1]), 1.0) * rng.normal(size=900)


@pytest.mark.parametrize("kind", [AdditiveLearner, AdditiveClassifier])
def test_learners_do_not_depend_on_the_size_of_blocks(monkeypatch, products, kind):
    X, a, y = products
    y = (y > 0).astype(float) if kind is AdditiveClassifier else y
    whole = kind().fit(X, a, y)
    assert (1, 2) in whole.terms_.pairs
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 64)
    in_blocks = kind().fit(X, a, y)
    assert in_blocks.terms_.pairs == whole.terms_.pairs
    # Whether a last tiny step improves the likelihood of the scale is decided by its rounding.
    for one, other in zip(in_blocks.predict(X), whole.predict(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [64, 4096])
def test_combined_terms_are_the_terms_times_coefficients(monkeypatch, products, size):
    X = products[0]
    terms = AdditiveTerms(AdditiveTerms.of(X, 8).bases, ((0, 1), (1, 3)))
    coefficients = np.random.default_rng(2).normal(size=(terms.degree.size, 3))
    expected = terms(X) @ coefficients
    monkeypatch.setattr(blocks, "BLOCK_ROWS", size)
    np.testing.assert_allclose(terms.combine(X, coefficients), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(terms(X) @ coefficients, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["normal", "rounded"])
def test_sums_between_nodes_are_means_over_rows(name):
    rng = np.random.default_rng(3)
    values = np.sort(rng.normal(size=500) if name == "normal" else np.round(3 * rng.normal(size=500)))
    shares = np.linspace(0.0, 1.0, 18)
    np.testing.assert_allclose(_quantiles(values, shares), np.quantile(values, shares), rtol=1e-12, atol=1e-14)
    nodes = np.unique(np.quantile(values, shares))
    one, other = rng.normal(size=(2, nodes.size, 4))
    expected = (_interpolate(values, nodes, one) * _interpolate(values, nodes, other)).mean(axis=0)
    np.testing.assert_allclose(_inner_product(values, nodes)(one, other), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), [(AdditiveLearner, "LinVar"), (AdditiveClassifier, "NonlinMean")])
def test_fit_needs_little_memory_beyond_its_terms(kind, name):
    data = make_modifiers(name, n_samples=20_000, n_features=30, random_state=0)
    X, y = data.X.to_numpy().copy(), data.y
    y = (y > np.median(y)).astype(float) if kind is AdditiveClassifier else y
    tracemalloc.start()
    try:
        model = kind().fit(X, data.treatment, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.terms_.pairs
    # The terms once, a fifth of them again for the scale of one arm, and blocks of a fifth of the rows.
    assert peak < 1.8 * X.shape[0] * model.terms_.degree.size * 8


def test_rows_are_sampled_only_where_they_are_too_many():
    assert random_rows(50, 50) == slice(None)
    rows = random_rows(51, 50)
    assert np.unique(rows).size == rows.size == 50
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, random_rows(51, 50))
    # Tables that alternate between two kinds of rows: 500 of 1000 at random, a share of one half with sd 0.016.
    assert abs(np.mean(random_rows(1000, 500) % 2) - 0.5) < 4 * 0.016


def test_trees_are_grown_on_a_sample_of_many_rows(monkeypatch):
    rng = np.random.default_rng(4)
    X, a = rng.normal(size=(3000, 3)), rng.integers(0, 2, size=3000)
    corner = (X[:, 0] > 0.5) & (X[:, 1] > 0)
    y = 4.0 * a * corner + rng.normal(size=3000)
    base = AdditiveLearner(0, products=False).fit(X, a, y)
    whole = BoostingLearner().fit(X, a, y, fitted_base=base).predict(X)
    monkeypatch.setattr(boosting, "MAX_TREE_ROWS", 3000)
    np.testing.assert_array_equal(BoostingLearner().fit(X, a, y, fitted_base=base).predict(X), whole)
    monkeypatch.setattr(boosting, "MAX_TREE_ROWS", 2000)
    sampled = BoostingLearner().fit(X, a, y, fitted_base=base).predict(X)
    error = [np.sqrt(np.mean((part[0][:, 1] - part[0][:, 0] - 4.0 * corner) ** 2)) for part in (whole, sampled)]
    assert error[0] != error[1] < 1.3 * error[0]


def test_weights_of_a_stack_need_not_see_all_rows(monkeypatch):
    rng = np.random.default_rng(5)
    X, a = rng.normal(size=(2000, 2)), rng.integers(0, 2, size=2000)
    y = np.sin(2 * X[:, 0]) + a * X[:, 1] + rng.normal(size=2000)
    folds = arm_folds(a, 4, 0)
    candidates = resolve_learners(["linear", "splines"], "numeric")
    sizes = []

    def best_weights(y, *rest):
        sizes.append(y.size)
        return find(y, *rest)

    find = stacking._best_weights
    monkeypatch.setattr(stacking, "_best_weights", best_weights)
    whole = cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT())
    monkeypatch.setattr(stacking, "WEIGHED_ROWS", 700)
    sampled = cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT())
    assert sizes == [1500] * 4 + [700] * 4
    assert sampled.weights == pytest.approx(whole.weights, abs=0.1)

import numpy as np
import pytest

from modifind import EffectLikelihood
from modifind.data.weights import Weights
from modifind.nuisance.outcome import AdditiveClassifier, AdditiveLearner, BoostingLearner
from modifind.nuisance.outcome import columns as screening
from modifind.nuisance.outcome.columns import SubsetLearner, screened_columns
from modifind.nuisance.outcome.stacking import OutcomeRows, cross_fit
from modifind.nuisance.propensity.scores import arm_folds
from modifind.statistics import Nuisances
from modifind.statistics.families import Bernoulli, StudentT


def many(seed=0, n=250, p=300):
    """Column 0 moves both arms, 10 their difference, 20 the treated arm's spread, 30 bends the difference."""
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(n, p)), np.arange(n) % 2
    mean = 2 * X[:, 0] + a * (1.5 * X[:, 10] + X[:, 30] ** 2)
    return X, a, mean + np.exp(0.7 * a * X[:, 20]) * rng.normal(size=n)


def test_columns_that_matter_in_any_way_are_kept():
    X, a, y = many(n=500)
    kept = screened_columns(X, a, y, binary=False, weights=Weights.alike(y.size))
    assert {0, 10, 20, 30} <= set(kept)
    assert kept.size == 31
    assert (np.diff(kept) > 0).all()


def test_strong_columns_do_not_hide_weak_ones():
    rng = np.random.default_rng(1)
    X, a = rng.normal(size=(400, 400)), np.arange(400) % 2
    y = 8 * X[:, 0] - 8 * X[:, 1] * a + 0.4 * X[:, 2] * (2 * a - 1) + rng.normal(size=400)
    assert {0, 1, 2} <= set(screened_columns(X, a, y, binary=False, weights=Weights.alike(y.size)))


def test_binary_outcomes_are_screened_too():
    rng = np.random.default_rng(2)
    X, a = rng.normal(size=(600, 200)), np.arange(600) % 2
    y = (X[:, 0] + (2 * a - 1) * X[:, 5] + rng.logistic(size=600) > 0).astype(float)
    assert {0, 5} <= set(screened_columns(X, a, y, binary=True, weights=Weights.alike(y.size)))


@pytest.mark.parametrize("shape", [(240, 60), (500, 62), (800, 100), (4000, 250)])
def test_ordinary_tables_are_left_whole(shape):
    rng = np.random.default_rng(3)
    a = np.arange(shape[0]) % 2
    X, y, alike = rng.normal(size=shape), rng.normal(size=shape[0]), Weights.alike(shape[0])
    assert screened_columns(X, a, y, binary=False, weights=alike) is None


@pytest.mark.parametrize("model", [AdditiveLearner(), BoostingLearner(max_iter=3)])
def test_screened_learner_follows_columns_to_where_it_predicts(model):
    X, a, y = many(p=90)
    kept = np.array([0, 10, 11, 20, 30])
    learner = SubsetLearner(model, kept).fit(X, a, y)
    rng = np.random.default_rng(4)
    for columns in (slice(10, 12), slice(9, 11), slice(30, 32), slice(40, 41)):
        points = rng.normal(size=(20, 3, columns.stop - columns.start))
        for index in (None, learner.index(X[:20])):
            along = learner.along(X[:20], columns, points, index)
            for k in range(3):
                rows = X[:20].copy()
                rows[:, columns] = points[:, k]
                for direct, followed in zip(learner.predict(rows), along, strict=True):
                    np.testing.assert_allclose(followed[:, k], direct, atol=1e-9)
    assert learner.looks_at(slice(9, 11))
    assert not learner.looks_at(slice(12, 20))


class Plain:
    """A learner of another package: arms' means, and the spread about them."""

    def fit(self, X, a, y):
        self.width = X.shape[1]
        self.mean = np.array([y[a == arm].mean() for arm in (0, 1)])
        return self

    def predict(self, X):
        return np.tile(self.mean, (X.shape[0], 1)), np.ones((X.shape[0], 2))


def test_folds_screen_without_their_rows_and_other_learners_get_all_columns(monkeypatch):
    X, a, y = many(n=150, p=100)
    folds = arm_folds(a, 3, 0)
    seen = []

    def recorded(rows, *args, **kwargs):
        seen.append(rows[:, 0].copy())
        return screened_columns(rows, *args, **kwargs)

    monkeypatch.setattr("modifind.nuisance.outcome.stacking.screened_columns", recorded)
    fit = cross_fit({"linear": AdditiveLearner(0), "Plain": Plain()}, OutcomeRows(X, a, y, folds), StudentT())
    assert [set(rows) for rows in seen] == [set(X[folds != fold, 0]) for fold in range(3)]
    models = [model for stack in fit.models for model in stack.models]
    assert any(isinstance(model, SubsetLearner) for model in models)
    cross_fit({"Plain": Plain()}, OutcomeRows(X, a, y, folds), StudentT())
    assert len(seen) == 3
    assert all(model.width == 100 for model in models if isinstance(model, Plain))


def test_trees_take_the_columns_of_the_splines_they_start_from(monkeypatch):
    X, a, y = many(n=150, p=100)
    folds = arm_folds(a, 2, 0)
    monkeypatch.setattr("modifind.nuisance.outcome.stacking.MIN_GAIN", -np.inf)
    monkeypatch.setattr("modifind.nuisance.outcome.stacking.MIN_STACK_WEIGHT", 0.0)
    monkeypatch.setattr("modifind.nuisance.outcome.stacking.WEIGHT_STEP", 1e-9)
    candidates = {"splines": AdditiveLearner(4, products=False), "boosting": BoostingLearner(max_iter=2)}
    fit = cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT())
    for stack in fit.models:
        splines, trees = stack.models
        np.testing.assert_array_equal(splines.kept, trees.kept)
        np.testing.assert_array_equal(trees.model.base_.coefficients_, splines.model.coefficients_)


def test_ordinary_tables_are_never_screened(monkeypatch):
    monkeypatch.setattr(screening, "_lines_and_parabolas", lambda X: pytest.fail("screened"))
    X, a, y = many(n=300, p=50)
    fit = cross_fit(
        {"linear": AdditiveLearner(0, products=False)}, OutcomeRows(X, a, y, arm_folds(a, 5, 0)), StudentT()
    )
    assert all(isinstance(model, AdditiveLearner) for stack in fit.models for model in stack.models)
    label = (y > np.median(y)).astype(float)
    binary = cross_fit(
        {"linear": AdditiveClassifier(0, products=False)}, OutcomeRows(X, a, label, arm_folds(a, 5, 0)), Bernoulli()
    )
    assert all(isinstance(model, AdditiveClassifier) for stack in binary.models for model in stack.models)


def test_statistic_says_which_features_no_fold_looks_at():
    from modifind.data.schema import read_features

    X, a, y = many(n=200, p=150)
    folds = [arm_folds(a, 2, 0)]
    prepared = EffectLikelihood("linear").prepare(
        Nuisances(read_features(X), y, a, np.full(200, 0.5), np.random.SeedSequence(0), tuple(folds))
    )
    kept = set().union(*(set(stack.models[0].kept) for stack in prepared.fits[0].cross.models))
    assert [m for m in range(150) if prepared.looks_at(m)] == sorted(kept)

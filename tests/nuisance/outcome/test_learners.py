"""Learners beyond the additive one, and how they are cross-fitted and stacked."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from conftest import quiet_fit
from modifind import EffectLikelihood
from modifind.nuisance.outcome import AdditiveClassifier, AdditiveLearner, BoostingLearner, NeuralLearner
from modifind.nuisance.outcome.contract import observed_arm, predict_along, predict_arms
from modifind.nuisance.outcome.learners import resolve_learners
from modifind.nuisance.outcome.stacking import OutcomeRows, StackedModel, cross_fit, describe
from modifind.nuisance.propensity.scores import arm_folds
from modifind.statistics.families import Bernoulli, StudentT


def changed_rows(X, columns, points):
    n, g = points.shape[:2]
    rows = np.repeat(X, g, axis=0)
    rows[:, columns] = points.reshape(n * g, -1)
    return rows


def assert_along_is_predict(model, X, columns, points):
    for found, expected in zip(
        predict_along(model, X, columns, points), model.predict(changed_rows(X, columns, points)), strict=True
    ):
        assert found.shape == (*points.shape[:2], 2)
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def steps():
    """A step and an interaction of steps that curves of single columns cannot follow; spread with a step, too."""
    rng = np.random.default_rng(0)
    n = 1200
    X, a = rng.normal(size=(n, 4)), rng.integers(0, 2, size=n)
    corner = (X[:, 0] > 0.5) & (X[:, 1] > 0)
    scale = np.where(X[:, 3] > 0, 2.0, 1.0)
    y = 4.0 * a * corner + X[:, 2] + scale * rng.normal(size=n)
    return X, a, y, corner


@pytest.fixture(scope="module")
def boosted(steps):
    return BoostingLearner().fit(*steps[:3])


@pytest.mark.parametrize("columns", [slice(0, 1), slice(3, 4), slice(1, 3)])
def test_boosting_along_a_feature_predicts_changed_rows(steps, boosted, columns):
    X = steps[0][:40]
    points = np.random.default_rng(1).normal(size=(40, 5, columns.stop - columns.start)) * 2
    assert_along_is_predict(boosted, X, columns, points)


def test_boosting_learns_a_corner_that_splines_cannot(steps, boosted):
    X, a, y, corner = steps
    error = {}
    for name, model in (("boosting", boosted), ("splines", AdditiveLearner(products=False).fit(X, a, y))):
        location, _ = model.predict(X)
        error[name] = np.sqrt(np.mean((location[:, 1] - location[:, 0] - 4.0 * corner) ** 2))
    assert error["boosting"] < 0.7 * error["splines"]
    high, low = (boosted.predict(X[side])[1].mean() for side in (X[:, 3] > 0, X[:, 3] <= 0))
    # Truth 2; shrinkage of the trees keeps them short of it.
    assert 1.4 < high / low < 2.4


@pytest.mark.parametrize("factor", [0.5, 100.0])
def test_boosting_learns_as_well_in_other_units(steps, boosted, factor):
    X, a, y, corner = steps
    error = []
    for unit, model in ((1.0, boosted), (factor, BoostingLearner().fit(X, a, factor * y))):
        location = model.predict(X)[0] / unit
        error.append(np.sqrt(np.mean((location[:, 1] - location[:, 0] - 4.0 * corner) ** 2)))
    assert error[1] < 1.15 * error[0]


def test_boosting_is_deterministic_and_starts_from_the_model_it_is_given(steps, boosted):
    X, a, y = (part[:400] for part in steps[:3])
    first, second = (BoostingLearner().fit(X, a, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    base = AdditiveLearner().fit(X, a, y)
    given = BoostingLearner().fit(X, a, y, fitted_base=base)
    assert given.base_ is base
    np.testing.assert_array_equal(given.predict(X), first)


def test_boosting_takes_a_constant_column_and_categories():
    rng = np.random.default_rng(2)
    X = np.column_stack((rng.normal(size=120), np.zeros(120), rng.integers(0, 2, size=120)))
    location, scale = BoostingLearner().fit(X, np.arange(120) % 2, rng.normal(size=120)).predict(X)
    assert np.isfinite(location).all()
    assert (scale > 0).all()


@pytest.fixture(scope="module")
def coins():
    rng = np.random.default_rng(3)
    X, a = rng.normal(size=(1500, 3)), rng.integers(0, 2, size=1500)
    chance = np.stack((expit(X[:, 0]), expit(X[:, 0] + 1.5 * X[:, 1])), axis=1)
    return X, a, (rng.random(1500) < observed_arm(chance, a)).astype(float), chance


@pytest.mark.parametrize("n_knots", [0, 12])
def test_classifier_learns_the_probabilities_of_both_arms(coins, n_knots):
    X, a, y, chance = coins
    probability, spread = AdditiveClassifier(n_knots).fit(X, a, y).predict(X)
    assert ((probability > 0) & (probability < 1)).all()
    np.testing.assert_allclose(spread, np.sqrt(probability * (1 - probability)))
    # 750 rows an arm, at most ten effective parameters: sd 0.5 * sqrt(10 / 750) = 0.06 at even odds.
    assert np.sqrt(np.mean((probability - chance) ** 2)) < 0.06


@pytest.mark.parametrize("columns", [slice(0, 1), slice(1, 3)])
def test_classifier_along_a_feature_predicts_changed_rows(coins, columns):
    X, a, y, _ = coins
    model = AdditiveClassifier().fit(X, a, y)
    points = np.random.default_rng(4).normal(size=(30, 4, columns.stop - columns.start))
    assert_along_is_predict(model, X[:30], columns, points)


def test_classifier_follows_a_product(coins):
    X, a, _, _ = coins
    rng = np.random.default_rng(5)
    y = (rng.random(1500) < expit(2 * X[:, 0] * X[:, 1])).astype(float)
    assert (0, 1) in AdditiveClassifier().fit(X, a, y).terms_.pairs
    assert AdditiveClassifier(products=False).fit(X, a, y).terms_.pairs == ()


def test_outcome_that_a_column_decides_does_not_break_the_classifier():
    rng = np.random.default_rng(6)
    X, a = rng.normal(size=(200, 2)), np.arange(200) % 2
    probability, _ = AdditiveClassifier().fit(X, a, (X[:, 0] > 0).astype(float)).predict(X)
    assert np.isfinite(probability).all()
    assert ((probability > 0.5) == (X[:, :1] > 0)).mean() > 0.95


def test_arm_without_events_does_not_break_the_classifier():
    rng = np.random.default_rng(7)
    X, a = rng.normal(size=(200, 2)), np.arange(200) % 2
    y = np.where(a == 1, rng.random(200) < 0.3, 0.0).astype(float)
    probability, _ = AdditiveClassifier().fit(X, a, y).predict(X)
    assert probability[:, 0].max() < 0.1
    assert probability[:, 1].mean() == pytest.approx(y[a == 1].mean(), abs=0.1)


class Flat:
    """Knows nothing but the mean and the spread of each arm."""

    def fit(self, X, a, y):
        self.mean, self.spread = ([f(y[a == arm]) for arm in (0, 1)] for f in (np.mean, np.std))
        return self

    def predict(self, X):
        return np.tile(self.mean, (len(X), 1)), np.tile(self.spread, (len(X), 1))


class Broken(Flat):
    """Predicts what it is told to."""

    def __init__(self, location=None, scale=None):
        self.location, self.scale = location, scale

    def predict(self, X):
        location, scale = super().predict(X)
        return location if self.location is None else self.location(X), scale if self.scale is None else self.scale(X)


def test_learner_without_along_is_followed_by_repeated_rows():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(50, 3))

    class Plain:
        def predict(self, X):
            return np.stack((X[:, 0], X[:, 1]), axis=1), np.exp(np.stack((X[:, 1], X[:, 2]), axis=1))

    points = rng.normal(size=(50, 4, 1))
    location, scale = predict_along(Plain(), X, slice(1, 2), points)
    np.testing.assert_array_equal(location[..., 1], points[..., 0])
    np.testing.assert_array_equal(location[..., 0], np.repeat(X[:, :1], 4, axis=1))
    np.testing.assert_array_equal(scale[..., 0], np.exp(points[..., 0]))


def test_names_resolve_to_learners():
    numeric = resolve_learners("auto", "numeric")
    assert list(numeric)[:3] == ["linear", "splines", "boosting"]
    assert (numeric["linear"].n_knots, numeric["linear"].products) == (0, False)
    assert isinstance(numeric["boosting"], BoostingLearner)
    binary = resolve_learners("auto", "binary")
    assert list(binary) == ["linear", "splines"]
    assert all(isinstance(model, AdditiveClassifier) for model in binary.values())
    own, other = Flat(), Flat()
    mixed = resolve_learners(["splines", own, other], "numeric")
    assert list(mixed) == ["splines", "Flat", "Flat 3"]
    assert (mixed["Flat"], mixed["Flat 3"]) == (own, other)
    assert isinstance(resolve_learners("neural", "numeric")["neural"], NeuralLearner)


@pytest.mark.parametrize(
    ("learner", "binary", "message"),
    [
        ("forest", False, "learner for a numeric outcome must be 'auto', 'linear', .* not 'forest'"),
        ("boosting", True, "learner for a binary outcome must be 'auto', 'linear', 'splines', not 'boosting'"),
        (["linear", "auto"], False, "not 'auto'"),
        ([], False, "must not be an empty list"),
        (None, False, "a name or have fit and predict; NoneType has no fit and no predict"),
        ([3.0], False, "float has no fit"),
    ],
)
def test_learners_that_are_none_are_refused(learner, binary, message):
    with pytest.raises(ValueError, match=message):
        resolve_learners(learner, "binary" if binary else "numeric")


@pytest.fixture(scope="module")
def lines():
    rng = np.random.default_rng(9)
    X, a = rng.normal(size=(300, 3)), np.arange(300) % 2
    y = 2 * X[:, 0] + a * X[:, 1] + rng.normal(size=300)
    return X, a, y, arm_folds(a, 5, 0)


def test_weights_are_convex_and_prefer_the_candidate_that_predicts(lines):
    X, a, y, folds = lines
    fit = cross_fit({"flat": Flat(), "linear": AdditiveLearner(0)}, OutcomeRows(X, a, y, folds), StudentT())
    assert sum(fit.weights.values()) == pytest.approx(1.0)
    assert fit.weights["linear"] > 0.9
    assert fit.log_scores["linear"] > fit.log_scores["flat"] + 0.3
    for model in fit.models:
        assert sum(model.weights) == pytest.approx(1.0)
        assert min(model.weights) > 0


class Half:
    """A linear model of one column only."""

    def __init__(self, column):
        self.column = column

    def fit(self, X, a, y):
        self.model = AdditiveLearner(0, products=False).fit(X[:, [self.column]], a, y)
        return self

    def predict(self, X):
        return self.model.predict(X[:, [self.column]])


def test_candidates_that_know_different_things_share_the_weight():
    rng = np.random.default_rng(10)
    X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    y = X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=400)
    fit = cross_fit({"first": Half(0), "second": Half(1)}, OutcomeRows(X, a, y, arm_folds(a, 5, 0)), StudentT())
    assert min(fit.weights.values()) > 0.3
    for model in fit.models:
        parts = [half.predict(X) for half in model.models]
        location, scale = model.predict(X)
        first, second = model.weights
        np.testing.assert_allclose(location, first * parts[0][0] + second * parts[1][0])
        np.testing.assert_allclose(scale, parts[0][1] ** first * parts[1][1] ** second)
        assert_along_is_predict(model, X[:20], slice(1, 2), rng.normal(size=(20, 3, 1)))


def test_predictions_of_a_row_do_not_know_its_outcome(lines):
    X, a, y, folds = lines
    candidates = {"linear": AdditiveLearner(0), "flat": Flat()}
    before = cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT())
    for row in (0, 123):
        changed = y.copy()
        changed[row] += 50.0
        after = cross_fit(candidates, OutcomeRows(X, a, changed, folds), StudentT())
        own = folds == folds[row]
        # Neither the models of its fold nor their weights have seen it.
        np.testing.assert_array_equal(after.location[own], before.location[own])
        np.testing.assert_array_equal(after.scale[own], before.scale[own])
        assert (after.location[~own] != before.location[~own]).any()
        assert after.models[folds[row]].weights == before.models[folds[row]].weights


def test_each_fold_is_predicted_by_its_own_model(lines):
    X, a, y, folds = lines
    fit = cross_fit({"linear": AdditiveLearner(0)}, OutcomeRows(X, a, y, folds), StudentT())
    for fold, model in enumerate(fit.models):
        location, scale = model.predict(X[folds == fold])
        np.testing.assert_array_equal(location, fit.location[folds == fold])
        np.testing.assert_array_equal(scale, fit.scale[folds == fold])
        alone = AdditiveLearner(0).fit(X[folds != fold], a[folds != fold], y[folds != fold])
        np.testing.assert_allclose(location, alone.predict(X[folds == fold])[0], rtol=1e-9)
    assert len(fit.models) == 5


def test_cross_fit_is_the_same_for_one_job_and_two(lines):
    X, a, y, folds = lines
    candidates = resolve_learners(["linear", "splines", "boosting"], "numeric")
    one, two = (cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT(), n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.location, two.location)
    np.testing.assert_array_equal(one.scale, two.scale)
    assert (one.weights, one.log_scores) == (two.weights, two.log_scores)


def test_trees_join_the_stack_only_where_they_help(lines, steps):
    X, a, y, folds = lines
    candidates = resolve_learners(["splines", "boosting"], "numeric")
    assert list(cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT()).weights) == ["splines"]
    X, a, y, _ = steps
    folds = arm_folds(a, 3, 0)
    fit = cross_fit(candidates, OutcomeRows(X, a, y, folds), StudentT())
    assert fit.weights["boosting"] > 0.5
    assert fit.log_scores["boosting"] > fit.log_scores["splines"]
    # The trees start from the splines of the stack, which is what they would fit themselves.
    alone = cross_fit(resolve_learners("boosting", "numeric"), OutcomeRows(X, a, y, folds), StudentT())
    assert fit.log_scores["boosting"] == pytest.approx(alone.log_scores["boosting"], rel=1e-9)


def test_of_many_rows_the_first_fold_tells_whether_trees_are_tried(steps, monkeypatch):
    rng, fitted = np.random.default_rng(9), []
    X, a = rng.normal(size=(3000, 2)), np.arange(3000) % 2
    lines = X, a, 2 * X[:, 0] + a * X[:, 1] + rng.normal(size=3000)
    fit = BoostingLearner.fit
    monkeypatch.setattr(BoostingLearner, "fit", lambda *args, **given: fitted.append(1) or fit(*args, **given))
    candidates = resolve_learners(["splines", "boosting"], "numeric")
    for (X, a, y), n_tried in ((lines, 1), (steps[:3], 3)):
        rows = OutcomeRows(X, a, y, arm_folds(a, 3, 0))
        every = cross_fit(candidates, rows, StudentT())
        fitted.clear()
        with monkeypatch.context() as many:
            many.setattr("modifind.nuisance.outcome.stacking.TRIAL_ROWS", 0)
            found = cross_fit(candidates, rows, StudentT())
        assert len(fitted) == n_tried
        assert found.weights == every.weights
        np.testing.assert_array_equal(found.location, every.location)


def test_candidates_given_by_the_user_are_not_fitted_themselves(lines):
    X, a, y, folds = lines
    own = {"flat": Flat(), "linear": AdditiveLearner(0)}
    cross_fit(own, OutcomeRows(X, a, y, folds), StudentT())
    assert not hasattr(own["flat"], "mean")
    assert not hasattr(own["linear"], "coefficients_")


def test_stack_is_described_by_its_weights():
    assert describe({"linear": 0.25, "splines": 0.75, "boosting": 0.0}) == "splines 0.75, linear 0.25"


def test_log_likelihood_of_a_coin_is_bounded():
    found = Bernoulli().log_density(np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.25, 1.0]), np.ones(3), np.inf)
    np.testing.assert_allclose(found, np.log([0.001, 0.75, 0.999]))


class Oracle:
    """The true model of `modified`, with no parent class and no `along`."""

    def fit(self, X, a, y):
        return self

    def predict(self, X):
        return np.stack((X[:, 1], X[:, 1] + X[:, 0]), axis=1), np.ones((len(X), 2))


@pytest.fixture(scope="module")
def modified():
    rng = np.random.default_rng(11)
    X, a = rng.normal(size=(250, 3)), np.arange(250) % 2
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, X[:, 1] + a * X[:, 0] + rng.normal(size=250), a


def fit_with(learner, data):
    return quiet_fit(*data, statistic=EffectLikelihood(learner), sampler="gaussian", propensity=0.5, random_state=0)


def test_any_object_with_fit_and_predict_will_do(modified):
    result = fit_with(Oracle(), modified).result_
    assert result.selected == ["x0"]
    # The model does not look at these: what they have is from tails, or 1.
    assert (result.diagnostics.loc[["x1", "x2"], "likelihood_p_value"] == 1.0).all()
    assert result.settings["model"]["stack"] == "Oracle 1.00"
    # The entropy of a standard normal outcome is 1.42 nats.
    assert result.settings["model"]["held_out_log_likelihood"]["Oracle"] == pytest.approx(-1.42, abs=0.2)


def test_own_learner_can_be_stacked_with_named_ones(modified):
    result = fit_with(["linear", Oracle()], modified).result_
    assert result.selected == ["x0"]
    assert set(result.settings["model"]["held_out_log_likelihood"]) == {"linear", "Oracle"}


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (Broken(location=lambda X: np.zeros(len(X))), r"Broken.predict must return .* its location has shape \(50,\)"),
        (Broken(scale=lambda X: np.ones((len(X), 1))), r"of shape \(50, 2\), .* its scale has shape \(50, 1\)"),
        (Broken(location=lambda X: np.full((len(X), 2), np.nan)), "Broken.predict returned a location that is not"),
        (Broken(scale=lambda X: np.full((len(X), 2), np.inf)), "Broken.predict returned a scale that is not finite"),
        (Broken(scale=lambda X: np.full((len(X), 2), -1.0)), "Broken.predict returned a negative scale"),
    ],
)
def test_predictions_of_no_use_are_refused_by_the_name_of_the_learner(modified, learner, message):
    with pytest.raises(ValueError, match=message):
        fit_with(learner, modified)


class Boastful(LogisticRegression):
    """A classifier whose chances are none."""

    def __init__(self, chance=1.7):
        super().__init__()
        self.chance = chance

    def predict_proba(self, X):
        return np.tile([1.0 - self.chance, self.chance], (len(X), 1))


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (
            Broken(location=lambda X: np.full((len(X), 2), 1.7)),
            "^Broken.predict must give probabilities .* 1; found 1.7$",
        ),
        (Broken(location=lambda X: np.full((len(X), 2), np.nan)), "^Broken.predict returned a location that is not"),
        (Boastful(), "^Boastful.predict_proba must give probabilities between 0 and 1; found -0.7$"),
        (Boastful(float("nan")), "^Boastful.predict_proba must give probabilities between 0 and 1; found nan$"),
        (LinearRegression(), "^LinearRegression.predict must give probabilities between 0 and 1; found "),
    ],
)
def test_what_is_no_chance_is_refused_by_the_name_of_the_learner(modified, learner, message):
    X, y, a = modified
    with pytest.raises(ValueError, match=message):
        fit_with(learner, (X, (y > 0).astype(float), a))


def test_chances_beyond_the_rows_are_refused_along_a_feature():
    class Extrapolates:
        def predict(self, X):
            return np.tile(X, 2), np.ones((len(X), 2))

    stack, X = StackedModel((Extrapolates(),), (1.0,), chances=True), np.full((3, 1), 0.5)
    stack.predict(X)
    with pytest.raises(ValueError, match=r"^Extrapolates.predict must give probabilities between 0 and 1; found 1.5$"):
        stack.along(X, slice(0, 1), np.full((3, 2, 1), 1.5))


def test_scale_of_zero_is_kept_above_zero():
    class Sure:
        def predict(self, X):
            return np.zeros((len(X), 2)), np.zeros((len(X), 2))

    assert (predict_arms(Sure(), np.zeros((4, 1)))[1] > 0).all()


class SwappedAlong(AdditiveLearner):
    """Follows a column with the arms exchanged."""

    def along(self, X, columns, points, index=None):
        location, scale = super().along(X, columns, points)
        return location[..., ::-1], scale[..., ::-1]


class BrokenAlong(AdditiveLearner):
    def along(self, X, columns, points, index=None):
        location, scale = super().along(X, columns, points)
        return np.where(points[..., :1] > 0.5, np.nan, location), scale


@pytest.mark.parametrize(("learner", "message"), [(SwappedAlong, "different values"), (BrokenAlong, "not finite")])
def test_learner_whose_along_is_wrong_is_refused(learner, message):
    rng = np.random.default_rng(3)
    X, a = rng.normal(size=(120, 2)), rng.integers(0, 2, size=120)
    y = a * (3.0 + X[:, 0]) + rng.normal(size=120)
    with pytest.raises(ValueError, match=f"{learner.__name__}.along.*{message}"):
        quiet_fit(X, y, a, statistic=EffectLikelihood(learner(0)), sampler="gaussian", propensity=0.5, random_state=0)


def test_trees_leave_the_base_they_were_given_unfitted():
    rng = np.random.default_rng(4)
    base = AdditiveLearner(0)
    BoostingLearner(base).fit(rng.normal(size=(60, 2)), np.arange(60) % 2, rng.normal(size=60))
    assert not hasattr(base, "coefficients_")

"""Additive location-scale models: their functions, penalties, scales, products and predictions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from modifind.data.weights import Weights
from modifind.nuisance.outcome import AdditiveLearner
from modifind.nuisance.outcome.additive import ArmLocations
from modifind.nuisance.regression.penalised import (
    SHAPES,
    STRONGEST,
    ScaleModel,
    best_shape,
    solve_ridge,
    student_log_density,
    symmetric,
    updated_penalties,
)
from modifind.nuisance.regression.terms import AdditiveTerms, ColumnBasis

COLUMNS = {
    "normal": lambda rng: rng.normal(3.0, 2.0, size=300),
    "skewed": lambda rng: np.exp(rng.normal(size=300)),
    "heavy tails": lambda rng: rng.standard_t(2, size=300),
    "rounded": lambda rng: np.round(5 * rng.normal(size=300)),
    "half zero": lambda rng: np.maximum(rng.normal(size=300), 0.0),
}


def test_lines_end_one_range_beyond_the_column():
    basis = ColumnBasis.of(np.array([0.0, 1.0, 2.0, 4.0]), 0)
    values = np.array([-1e9, -4.0, 1.0, 8.0, 1e9])
    np.testing.assert_allclose(basis.line(values), basis.line(np.clip(values, -4.0, 8.0)))
    assert basis.line(np.array([-4.0, 8.0])).tolist() == list(basis.reach)


@pytest.mark.parametrize("name", COLUMNS)
def test_curves_leave_lines_to_the_line(name):
    column = COLUMNS[name](np.random.default_rng(0))
    basis = ColumnBasis.of(column, 12)
    functions = basis(column)
    assert functions.shape == (300, basis.width)
    assert basis.width >= 4
    line, curves = functions[:, 0], functions[:, 1:]
    np.testing.assert_allclose((line.mean(), line.std()), (0.0, 1.0), atol=1e-12)
    # Least squares on 1 and x finds nothing in any curve.
    np.testing.assert_allclose(np.column_stack((np.ones(300), line)).T @ curves / 300, 0.0, atol=1e-9)
    # Rougher curves are smaller, and all together have mean square one.
    assert np.mean((curves**2).sum(axis=1)) == pytest.approx(1.0)
    assert (curves**2).mean(axis=0)[0] > 10 * (curves**2).mean(axis=0)[-1]


def test_curves_are_constant_outside_the_data_and_the_line_is_not():
    column = np.random.default_rng(1).normal(size=200)
    basis = ColumnBasis.of(column, 12)
    at_edges, far = basis(np.array([column.min(), column.max()])), basis(np.array([-5.0, 5.0]))
    np.testing.assert_allclose(far[:, 1:], at_edges[:, 1:], atol=1e-12)
    np.testing.assert_allclose(far[:, 0], (np.array([-5.0, 5.0]) - column.mean()) / column.std())


def test_curves_can_follow_a_sine():
    column = np.random.default_rng(2).normal(size=2000)
    functions = np.column_stack((np.ones(2000), ColumnBasis.of(column, 12)(column)))
    target = np.sin(2 * column)
    left = target - functions @ np.linalg.lstsq(functions, target, rcond=None)[0]
    # Cubic splines with knots about half a standard deviation apart miss (2 * 0.5 / 4)^4 or so of a sine of period pi.
    assert left.std() < 0.03


@pytest.mark.parametrize("values", [np.arange(10.0), np.array([0.0, 1.0]), np.array([4.0])], ids=["ten", "two", "one"])
def test_columns_with_few_values_have_a_line_only(values):
    column = np.resize(values, 100)
    basis = ColumnBasis.of(column, 12)
    assert basis.width == 1
    assert np.isfinite(basis(column)).all()
    assert ColumnBasis.of(np.random.default_rng(0).normal(size=100), 3).width == 1


@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(COLUMNS)), n_knots=st.sampled_from([0, 5, 12]))
@settings(max_examples=30, deadline=None)
def test_combined_functions_are_the_functions_times_coefficients(seed, name, n_knots):
    rng = np.random.default_rng(seed)
    column = COLUMNS[name](rng)
    basis = ColumnBasis.of(column, n_knots)
    coefficients = rng.normal(size=(basis.width, 3))
    values = rng.uniform(column.min() - 1, column.max() + 1, size=(7, 4))
    np.testing.assert_allclose(basis.combine(values, coefficients), basis(values) @ coefficients, atol=1e-9)


def ridge_problem(seed=0, n=200, strong=2.0):
    """Groups: intercept, five strong coefficients, five null ones."""
    rng = np.random.default_rng(seed)
    X = np.column_stack((np.ones(n), rng.normal(size=(n, 10))))
    groups = np.repeat([0, 1, 2], [1, 5, 5])
    y = 3.0 + X[:, 1:6] @ np.full(5, strong) + rng.normal(size=n)
    return X, y, groups


def test_ridge_solution_is_the_closed_form():
    X, y, groups = ridge_problem()
    penalties = np.array([0.0, 0.7, 30.0])
    solution, lower = solve_ridge(X.T @ X, X.T @ y, penalties, groups)
    matrix = X.T @ X + np.diag(penalties[groups])
    # The solver adds 1e-9 of the mean diagonal, so that singular problems have a solution.
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, X.T @ y), rtol=1e-6)
    np.testing.assert_allclose(symmetric(lower), np.linalg.inv(matrix), rtol=1e-5, atol=1e-9)


def test_evidence_shrinks_a_null_group_and_spares_a_strong_one():
    X, y, groups = ridge_problem()
    penalties = np.array([0.0, 10.0, 10.0])
    for _ in range(20):
        before = penalties
        solution, lower = solve_ridge(X.T @ X, X.T @ y, before, groups)
        penalties, freedom = updated_penalties(solution, lower, np.diag(X.T @ X), before, groups)
    assert penalties[0] == 0.0
    # Unit noise: the fixed point is 1 / mean squared coefficient, here 1/4.
    assert penalties[1] == pytest.approx(0.25, rel=0.1)
    assert penalties[2] > 100
    # Effective parameters: the trace of the hat matrix.
    hat = np.linalg.solve(X.T @ X + np.diag(before[groups]), X.T @ X)
    assert freedom == pytest.approx(np.trace(hat), rel=1e-5)
    np.testing.assert_allclose(solution[1:6], 2.0, atol=4 / np.sqrt(200))
    plain = np.linalg.lstsq(X, y, rcond=None)[0]
    assert np.abs(solution[6:]).sum() < 0.75 * np.abs(plain[6:]).sum()


def test_penalties_stay_within_bounds_when_a_group_has_no_coefficient():
    information, groups = np.array([1.0, 2.0, 4.0]), np.array([0, 1, 1])
    penalties, _ = updated_penalties(np.zeros(3), np.eye(3) * 1e-9, information, np.array([0.0, 1e5]), groups)
    assert penalties.tolist() == [0.0, pytest.approx(3.0 * STRONGEST)]


def spread_data(link, seed, n=1500, tail=None):
    """One strong column and two without effect; scale exp(0.5 x) or 0.5 + softplus(2 x)."""
    rng = np.random.default_rng(seed)
    terms = np.column_stack((np.ones(n), rng.normal(size=(n, 3))))
    x = terms[:, 1]
    scale = np.exp(0.5 * x) if link == "exp" else 0.5 + np.logaddexp(0.0, 2.0 * x)
    noise = rng.normal(size=n) if tail is None else rng.standard_t(tail, size=n)
    return terms, scale, scale * noise


def fitted_scale(link, terms, residual, shape=30.0, n_steps=25):
    return ScaleModel(link, np.arange(terms.shape[1])).fit(
        terms, residual, shape, n_steps, Weights.alike(residual.size)
    )


@pytest.mark.parametrize("link", ["exp", "softplus"])
@pytest.mark.parametrize("seed", range(3))
def test_scale_is_recovered_and_the_right_link_fits_better(link, seed):
    terms, scale, residual = spread_data(link, seed)
    models = {name: fitted_scale(name, terms, residual) for name in ("exp", "softplus")}
    found = models[link].at(terms)
    # Three or four parameters of 1500 rows: log-scales with sd sqrt(4 / 2 / 1500) = 0.037 on average; four of those.
    assert np.sqrt(np.mean((np.log(found) - np.log(scale)) ** 2)) < 0.15
    other = "softplus" if link == "exp" else "exp"
    assert models[link].criterion < models[other].criterion


@pytest.mark.parametrize("link", ["exp", "softplus"])
def test_scale_of_plain_noise_is_nearly_constant(link):
    rng = np.random.default_rng(5)
    terms = np.column_stack((np.ones(800), rng.normal(size=(800, 3))))
    found = fitted_scale(link, terms, 7.0 * rng.normal(size=800)).at(terms)
    assert np.median(found) == pytest.approx(7.0, rel=0.1)
    # Evidence shrinks null coefficients below their own error of 1 / sqrt(2 * 800) = 0.025 each.
    assert np.log(found).std() < 0.1


@pytest.mark.parametrize("size", [100.0, 1e6])
@pytest.mark.parametrize("link", ["exp", "softplus"])
def test_heavy_tails_do_not_break_the_scale(link, size):
    terms, scale, residual = spread_data(link, 7, tail=3)
    residual[3] = size
    model = fitted_scale(link, terms, residual, shape=best_shape(residual / scale))
    ratio = np.log(model.at(terms) / scale)
    # Information per row is 2 v / (v + 3) = 1, half of the normal one: sd 0.05 for four parameters; four of those and
    # as much for one row, whose score is bounded by v.
    assert np.sqrt(np.mean(ratio**2)) < 0.25


def test_scale_follows_units():
    terms, _, residual = spread_data("exp", 8, n=300)
    first, second = (fitted_scale("exp", terms, unit * residual).at(terms) for unit in (1.0, 1e6))
    # Whether a last tiny step improves the likelihood is decided by its rounding.
    np.testing.assert_allclose(second, 1e6 * first, rtol=1e-6)


def test_shape_follows_the_tails():
    rng = np.random.default_rng(9)
    assert best_shape(rng.standard_t(2.5, size=4000)) in (2.5, 3.0)
    assert best_shape(rng.normal(size=4000)) == SHAPES[-1]
    values = rng.normal(size=5)
    np.testing.assert_allclose(student_log_density(values, 3.0), t.logpdf(values, 3.0))


def columns_and_points(rng, kind, n=80):
    """A design matrix with a continuous column, three dummies of one feature and another continuous column."""
    code = rng.integers(0, 4, size=n)
    dummies = (code[:, None] == np.arange(1, 4)).astype(float)
    X = np.column_stack((rng.normal(size=n), dummies, np.exp(rng.normal(size=n))))
    if kind == "dummies":
        drawn = rng.integers(0, 4, size=(n, 6))
        return X, slice(1, 4), (drawn[..., None] == np.arange(1, 4)).astype(float)
    column = 0 if kind == "first" else 4
    return X, slice(column, column + 1), rng.normal(size=(n, 6, 1)) * 2


def changed_rows(X, columns, points):
    n, g = points.shape[:2]
    rows = np.repeat(X, g, axis=0)
    rows[:, columns] = points.reshape(n * g, -1)
    return rows


PAIRS = [(), ((0, 4),), ((0, 2), (1, 3), (2, 4), (0, 4))]


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["first", "last", "dummies"]),
    pairs=st.sampled_from(PAIRS),
    n_knots=st.sampled_from([0, 12]),
)
@settings(max_examples=60, deadline=None)
def test_terms_along_a_feature_are_the_terms_of_changed_rows(seed, kind, pairs, n_knots):
    rng = np.random.default_rng(seed)
    X, columns, points = columns_and_points(rng, kind)
    terms = AdditiveTerms(AdditiveTerms.of(X, n_knots).bases, pairs)
    coefficients = rng.normal(size=(terms.degree.size, 3))
    found = terms.along(X, columns, points, coefficients)
    expected = (terms(changed_rows(X, columns, points)) @ coefficients).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["first", "last", "dummies"])
def test_learner_along_a_feature_predicts_changed_rows(kind):
    rng = np.random.default_rng(11)
    X, columns, points = columns_and_points(rng, kind, n=600)
    a = rng.integers(0, 2, size=600)
    y = 2 * X[:, 0] * X[:, 2] + a * X[:, 1] + rng.normal(size=600)
    model = AdditiveLearner().fit(X, a, y)
    assert (0, 2) in model.terms_.pairs
    for found, expected in zip(
        model.along(X, columns, points), model.predict(changed_rows(X, columns, points)), strict=True
    ):
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-9, atol=1e-9)


def test_groups_are_one_per_line_one_per_columns_curves_and_one_per_product():
    rng = np.random.default_rng(12)
    X = np.column_stack((rng.normal(size=100), rng.integers(0, 2, size=100), rng.normal(size=100)))
    terms = AdditiveTerms(AdditiveTerms.of(X, 8).bases, ((0, 1), (1, 2)))
    width = terms.bases[0].width
    assert terms.degree.size == terms.groups.size == 1 + width + 1 + terms.bases[2].width + 2
    assert terms.groups[0] == 0
    curves = [set(terms.groups[s][1:]) for s in (terms.slices[0], terms.slices[2])]
    assert all(len(own) == 1 for own in curves)
    lines = terms.groups[terms.degree == 0]
    assert len({*lines, *curves[0], *curves[1]}) == lines.size + 2 == terms.groups.max() + 1


def product_scores(seed, strength, n=600, d=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    a = rng.integers(0, 2, size=n)
    score = strength * X[:, 1] * X[:, 4] + rng.normal(size=n)
    rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
    return AdditiveTerms.of(X, 0).with_products(X, [[score[r] for r in rows]], rows).pairs


def test_products_that_scores_call_for_enter():
    for seed in range(5):
        assert product_scores(seed, 0.5)[0] == (1, 4)


def test_noise_calls_for_few_products():
    found = sum(len(product_scores(seed, 0.0)) for seed in range(40))
    # 15 pairs with four correlated normal scores each, against the limit sqrt(2 log 60) = 2.86: at most 0.25 products
    # per table, 10 over 40 tables with sd 3.2; four of those.
    assert found <= 10 + 4 * 3.2


def test_product_that_only_one_arm_has_enters():
    rng = np.random.default_rng(13)
    X, a = rng.normal(size=(800, 4)), np.arange(800) % 2
    score = np.where(a == 1, X[:, 0] * X[:, 3], 0.0) + rng.normal(size=800)
    rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
    assert (0, 3) in AdditiveTerms.of(X, 0).with_products(X, [[score[r] for r in rows]], rows).pairs


def test_single_column_has_no_products():
    X = np.random.default_rng(0).normal(size=(50, 1))
    rows = [np.arange(25), np.arange(25, 50)]
    terms = AdditiveTerms.of(X, 0)
    assert terms.with_products(X, [[X[r, 0] for r in rows]], rows).pairs == ()


def test_leverage_gives_leave_one_out_residuals():
    rng = np.random.default_rng(14)
    n = 60
    X, a = rng.normal(size=(n, 3)), np.arange(n) % 2
    terms = AdditiveTerms.of(X, 6)
    rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
    y, weight = X[:, 0] + a * X[:, 1] + rng.normal(size=n), rng.uniform(0.3, 2.0, size=n)

    def solved(kept):
        locations = ArmLocations(terms.groups, np.flatnonzero(terms.degree <= 2))
        parts = [r[kept[r]] for r in rows]
        # One step: the penalties it starts with are not changed.
        locations.fit_least_squares([(terms(X[r]), y[r], weight[r]) for r in parts], 1)
        return locations

    whole = solved(np.ones(n, dtype=bool))
    for arm, r in enumerate(rows):
        own = terms(X[r])
        leverage = weight[r] * whole.leverage(own, arm)
        assert (leverage > 0).all()
        assert (leverage < 1).all()
        short_cut = (y[r] - own @ whole.coefficients[arm]) / (1 - leverage)
        for place in (0, 7, 20):
            kept = np.ones(n, dtype=bool)
            kept[r[place]] = False
            refitted = solved(kept)
            left = y[r[place]] - own[place] @ refitted.coefficients[arm]
            # The ridge of 1e-9 of the trace changes with the row that is left out.
            assert short_cut[place] == pytest.approx(left, rel=1e-5, abs=1e-6)


@pytest.fixture(scope="module")
def trial():
    """Common sine, arms that differ by a line, and a spread that rises in the treated arm only."""
    rng = np.random.default_rng(15)
    n = 1500
    X, a = rng.normal(size=(n, 4)), rng.integers(0, 2, size=n)
    mean = 2 * np.sin(1.5 * X[:, 0]) + a * (1 + X[:, 1])
    y = mean + np.where(a == 1, np.exp(0.5 * X[:, 2]), 1.0) * rng.normal(size=n)
    return X, a, y


def test_learner_finds_mean_difference_and_spread(trial):
    X, a, y = trial
    model = AdditiveLearner().fit(X, a, y)
    location, scale = model.predict(X)
    assert location.shape == scale.shape == (1500, 2)
    inside = np.abs(X[:, 0]) < 2
    # 750 rows an arm and some ten effective parameters: root mean square error sqrt(10 / 750) = 0.12; twice that.
    error = location[:, 0] - 2 * np.sin(1.5 * X[:, 0])
    assert np.sqrt(np.mean(error[inside] ** 2)) < 0.24
    difference = location[:, 1] - location[:, 0] - 1 - X[:, 1]
    assert np.sqrt(np.mean(difference**2)) < 0.24
    # Scales: log-linear, sd of each coefficient 1 / sqrt(2 * 750) = 0.026, five of them; four times their joint 0.06.
    assert np.sqrt(np.mean((np.log(scale[:, 1]) - 0.5 * X[:, 2]) ** 2)) < 0.24
    assert np.log(scale[:, 0]).std() < 0.15
    assert scale[:, 0].mean() == pytest.approx(1.0, abs=0.15)


def test_straight_learner_has_straight_lines_only(trial):
    X, a, y = trial
    model = AdditiveLearner(0, products=False).fit(X, a, y)
    grid = np.zeros((3, 4))
    grid[:, 0] = [-1.0, 0.0, 1.0]
    location, _ = model.predict(grid)
    np.testing.assert_allclose(location[2] - location[1], location[1] - location[0], atol=1e-9)
    assert model.coefficients_.shape == (5, 4)


def test_learner_finds_a_product():
    rng = np.random.default_rng(16)
    X, a = rng.normal(size=(600, 5)), np.arange(600) % 2
    y = a * X[:, 1] * X[:, 3] + rng.normal(size=600)
    model = AdditiveLearner().fit(X, a, y)
    assert (1, 3) in model.terms_.pairs
    location, _ = model.predict(X)
    assert np.corrcoef(location[:, 1] - location[:, 0], X[:, 1] * X[:, 3])[0, 1] > 0.9
    assert AdditiveLearner(products=False).fit(X, a, y).terms_.pairs == ()


def test_floor_of_the_spread_is_seen():
    rng = np.random.default_rng(17)
    X, a = rng.normal(size=(3000, 2)), np.arange(3000) % 2
    y = (0.5 + np.logaddexp(0.0, 3 * X[:, 0])) * rng.normal(size=3000)
    model = AdditiveLearner(0, products=False).fit(X, a, y)
    assert [own.link for own in model.scales_] == ["softplus", "softplus"]
    only = AdditiveLearner(0, products=False, links=("exp",)).fit(X, a, y)
    assert [own.link for own in only.scales_] == ["exp", "exp"]


@pytest.mark.parametrize("size", [None, 100.0, 1e6])
def test_heavy_tails_and_one_wild_row_leave_predictions_sane(size):
    rng = np.random.default_rng(18)
    n = 600
    X, a = rng.normal(size=(n, 3)), np.arange(n) % 2
    y = X[:, 0] + a * X[:, 1] + rng.standard_t(2, size=n)
    y[5] = y[5] if size is None else size
    model = AdditiveLearner().fit(X, a, y)
    location, scale = model.predict(X)
    truth = np.stack((X[:, 0], X[:, 0] + X[:, 1]), axis=1)
    # Three hundred rows an arm, information about half of the normal one, some ten parameters: 0.25; twice that.
    assert np.sqrt(np.mean((location - truth) ** 2)) < 0.5
    assert np.abs(np.log(scale)).max() < 2.5
    assert size is None or model.weight_[5] < 1e-2 * np.median(model.weight_)


def test_constant_column_changes_nothing():
    rng = np.random.default_rng(19)
    X, a = rng.normal(size=(200, 2)), np.arange(200) % 2
    y = X[:, 0] + rng.normal(size=200)
    plain = AdditiveLearner(products=False).fit(X, a, y).predict(X)
    with_flat = np.column_stack((X, np.full(200, 4.0)))
    for one, other in zip(plain, AdditiveLearner(products=False).fit(with_flat, a, y).predict(with_flat), strict=True):
        # The ridge is relative to the mean diagonal, which one more column changes.
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n_knots", [0, 12])
@pytest.mark.parametrize("d", [1, 30])
def test_twenty_rows_are_enough_to_run(n_knots, d):
    rng = np.random.default_rng(20)
    X, a, y = rng.normal(size=(20, d)), np.arange(20) % 2, rng.normal(size=20)
    location, scale = AdditiveLearner(n_knots).fit(X, a, y).predict(rng.normal(size=(500, d)))
    assert np.isfinite(location).all()
    assert np.abs(location).max() < 20
    assert (scale > 0).all()
    assert np.isfinite(np.log(scale)).all()


def test_outcome_without_noise_does_not_break_the_learner():
    rng = np.random.default_rng(21)
    X, a = rng.normal(size=(100, 2)), np.arange(100) % 2
    location, scale = AdditiveLearner().fit(X, a, X[:, 0] + a).predict(X)
    np.testing.assert_allclose(location[:, 1], X[:, 0] + 1, atol=0.05)
    assert (scale > 0).all()


@pytest.mark.parametrize("factor", [1e-6, 0.01, 30.0, 1e6])
def test_units_of_the_outcome_are_carried_along(factor):
    rng = np.random.default_rng(22)
    X, a = rng.normal(size=(300, 2)), np.arange(300) % 2
    y = X[:, 0] + rng.normal(size=300)
    location, scale = AdditiveLearner(0).fit(X, a, y).predict(X)
    other_location, other_scale = AdditiveLearner(0).fit(X, a, factor * y).predict(X)
    # Penalties start at fixed values, so their iteration stops a little elsewhere in other units.
    np.testing.assert_allclose(other_location / factor, location, atol=0.1)
    np.testing.assert_allclose(other_scale / factor, scale, rtol=0.1)

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from modifind.data.schema import read_features
from modifind.nuisance.propensity.scores import PropensityModel
from modifind.nuisance.regression.screening import Association, ScreenedLogistic, has_many_columns


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "many"),
    [(300, 50, False), (240, 60, False), (500, 62, False), (1000, 125, False), (240, 61, True), (2000, 2000, True)],
)
def test_columns_are_many_above_sixty_and_an_eighth_of_the_rows(n_rows, n_columns, many):
    assert has_many_columns(n_rows, n_columns) is many


def test_association_finds_lines_bends_and_spreads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 200))
    y = X[:, 3] + X[:, 50] ** 2 + np.exp(0.7 * X[:, 120]) * rng.normal(size=400)
    order = Association(X).order(y[:, None])
    assert set(order[:3]) == {3, 50, 120}


def test_association_ignores_units_and_puts_constant_columns_last():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 30))
    X[:, 7] = 4.0
    y = X[:, 2:3] + rng.normal(size=(200, 1))
    order = Association(X).order(y)
    assert order[-1] == 7
    rescaled = Association(3.0 + X * np.linspace(0.5, 5.0, 30)).order(10.0 * y - 2.0)
    np.testing.assert_array_equal(order[:-1], rescaled[:-1])


def test_screened_logistic_is_the_logistic_regression_of_the_columns_it_keeps():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 400))
    y = (X[:, 5] - X[:, 9] + rng.normal(size=300) > 0).astype(int)
    model = clone(ScreenedLogistic(C=0.1)).fit(X, y)
    kept = np.flatnonzero(model.coef_[0])
    assert kept.size == 20
    assert {5, 9} <= set(kept)
    direct = LogisticRegression(C=0.1).fit(X[:, kept], y)
    np.testing.assert_allclose(model.predict_proba(X), direct.predict_proba(X[:, kept]), atol=1e-12)


def test_propensity_of_many_columns_is_screened_inside_the_training_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 300))
    a = (rng.random(300) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(np.int64)
    noise = rng.integers(0, 2, 300)
    table = read_features(X)
    found = PropensityModel().fit(table, a, seed=np.random.SeedSequence(0))
    assert found.auc > 0.7
    assert "most associated" in found.description
    # Columns chosen with the held-out rows in view would separate even a coin.
    assert PropensityModel().fit(table, noise, seed=np.random.SeedSequence(0)).auc < 0.6
    # A score follows one resampled feature in closed form.
    np.testing.assert_allclose(found.profile(0)(X[:, 0]), found.scores, atol=1e-9)

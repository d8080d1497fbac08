"""A family of outcomes that the user wrote, in the place of a name."""

import warnings

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.statistics.families import LINKS, Family, MeanFamily, StudentT, check_family

N = 400


class Exponential(MeanFamily):
    """Waiting times, as docs/extending.md has them."""

    name, learners = "exponential", "count"
    link = LINKS["ratio"]

    def coded(self, y):
        if (y <= 0).any():
            raise ValueError("waiting times must be above 0")
        return y

    def log_density(self, y, location, scale, shape):
        return -np.log(location) - y / location

    def outcome_variance(self, location):
        return location**2

    def at_most(self, marks, location):
        return -np.expm1(-np.maximum(marks, 0.0) / location)


class Logistic(Family):
    """Numbers with a scale, by the defaults of locations and scales."""

    name, has_scale = "logistic", True

    def log_density(self, y, location, scale, shape):
        u = np.abs(self.residual(y, location, scale))
        return -u - 2 * np.log1p(np.exp(-u)) - np.log(scale)

    def weight(self, residual, shape):
        return np.tanh(residual / 2) / residual

    def variance(self, location, scale):
        return scale**2

    def marginal(self, y, least_scale):
        return float(np.median(y)), max(float(y.std()) * np.sqrt(3) / np.pi, least_scale), np.inf

    def expected(self, location, scale, shape, marks, y, weights, origin):
        location, scale = (location - origin[0]) / origin[1], scale / origin[1]
        below = 1 / (1 + np.exp(-(marks - location[:, None]) / scale[:, None]))
        return np.column_stack((location, location**2 + (np.pi * scale) ** 2 / 3, below))


def table(seed, modified):
    """A feature that predicts waiting times in both arms, and one that the treatment's effect may depend on."""
    rng = np.random.default_rng(seed)
    X, arms = rng.normal(size=(N, 3)), np.arange(N) % 2
    return X, rng.exponential(np.exp(0.5 * X[:, 0] + arms * (0.5 + modified * X[:, 1]))), arms


def fit(X, y, arms, **settings):
    own = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    own |= {"outcome": Exponential(), "effect_scale": "ratio", "explain": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ModifierSelector(**own | settings).fit(X, y, treatment=arms).result_


@pytest.mark.parametrize("settings", [{}, {"max_train_rows": 250}], ids=["memory", "pieces"])
def test_a_planted_modifier_is_found(settings, tmp_path):
    found = fit(*table(0, modified=0.8), **settings)
    assert found.selected == ["x1"]
    assert found.settings["model"]["likelihood"] == "exponential"
    assert found.settings["outcome"] == "Exponential()"
    found.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == found


def test_nothing_is_found_where_the_ratio_is_the_same_for_all():
    p_values = np.array([fit(*table(seed, modified=0.0)).table["p_value"] for seed in range(40)])
    # 120 p-values, about independent: a share of 0.05 has a standard error of 0.02.
    assert (p_values <= 0.05).mean() <= 0.05 + 2.5 * 0.02
    assert p_values.min() > 1e-4


def test_explanations_placebos_processes_and_checkpoints_take_it(tmp_path):
    data, settings = table(0, modified=0.8), {"explain": True, "placebo_runs": 2}
    found = fit(*data, **settings)
    assert found.placebo.n_runs == 2
    assert set(found.curves) == {"x0", "x1", "x2"}
    assert fit(*data, **settings, n_jobs=2) == found
    for _ in range(2):
        assert_frame_equal(fit(*data, **settings, checkpoint=tmp_path).table, found.table, check_exact=True)


@pytest.mark.parametrize("family", [Exponential(), Logistic()], ids=["mean", "location and scale"])
def test_default_scores_are_derivatives_of_the_log_density(family):
    y, step = np.array([0.5, 1.0, 3.0]), 1e-6
    eta, log_scale = np.array([-0.3, 0.2, 1.1]), np.array([-0.2, 0.0, 0.4])

    def density(eta, log_scale):
        return family.log_density(y, family.location(eta), np.exp(log_scale), np.inf)

    found, scores = family.log_density_and_scores(y, eta, log_scale, np.inf)
    np.testing.assert_allclose(found, density(eta, log_scale))
    moves = ((step, 0.0), (0.0, step))[: 1 + family.has_scale]
    slopes = [(density(eta + a, log_scale + b) - density(eta - a, log_scale - b)) / (2 * step) for a, b in moves]
    np.testing.assert_allclose(scores, slopes, rtol=1e-6, atol=1e-8)


def test_expectations_follow_from_the_distribution_function():
    y = np.random.default_rng(0).exponential(2.0, 100_000)
    marks, origin = np.array([-1.0, 0.5, 2.0]), (1.0, 2.0)
    scaled = (y - origin[0]) / origin[1]
    found = Exponential().expected(np.array([2.0]), np.ones(1), np.inf, marks, scaled, np.ones(y.size), origin)[0]
    # Standard errors 0.003, 0.011 and 0.0016.
    assert found[:2] == pytest.approx([scaled.mean(), (scaled**2).mean()], abs=0.03)
    assert found[2:] == pytest.approx([(scaled <= mark).mean() for mark in marks], abs=0.006)


def test_a_modifier_of_the_mean_is_found_by_a_family_with_a_scale():
    X, y, arms = table(0, modified=0.8)
    settings = {"outcome": Logistic(), "effect_scale": "difference", "explain": True}
    result = fit(X, np.log(y), arms, **settings)
    assert result.selected == ["x1"]
    assert set(result.curves) == {"x0", "x1", "x2"}


class WithoutLearners(Exponential):
    learners = "times"


class WithoutName(Exponential):
    name = None


class HalfAScale(Exponential):
    has_scale = True


class Stranger:
    def log_density(self):
        """All that it has."""


def complete(*methods):
    return type("Foreign", (), {name: lambda self: None for name in methods})()


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Exponential, r"outcome must be an object, Exponential\(\.\.\.\), not the class"),
        (Stranger(), "Stranger has no expected and no variance"),
        (complete(*Family.__abstractmethods__), r"derive Foreign from modifind\.statistics\.families\.Family"),
        (WithoutName(), "WithoutName has no name"),
        (HalfAScale(), "HalfAScale has no weight"),
        (WithoutLearners(), "WithoutLearners.learners must be one of 'numeric', 'binary', .*, not 'times'"),
        (StudentT(), r"StudentT\(\) has no effects on effect_scale='ratio'; use 'difference'"),
        (3, "outcome must be a name or have .*; int has no expected"),
    ],
)
def test_what_a_family_lacks_is_named(outcome, message):
    with pytest.raises(ValueError, match=message):
        check_family(outcome, "ratio")


def test_python_names_what_a_class_lacks():
    class Half(Family):
        name = kind = "numeric"

    with pytest.raises(TypeError, match=r"expected.*log_density.*variance"):
        Half()


def test_outcomes_of_another_family_are_refused():
    X, y, arms = table(0, modified=0.0)
    with pytest.raises(ValueError, match="waiting times must be above 0"):
        fit(X, y - 1.0, arms)


def test_a_family_with_a_name_is_the_same_as_an_object():
    X, y, arms = table(0, modified=0.0)
    named, own = (
        fit(X, np.log(y), arms, outcome=outcome, effect_scale="difference") for outcome in ("numeric", StudentT())
    )
    assert_frame_equal(named.table, own.table, check_exact=True)

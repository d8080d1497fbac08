"""A family of outcomes that the user wrote, in the place of a name."""

import warnings

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.statistics.families import Family, StudentT, check_family
from modifind.statistics.families.links import LINKS

N = 400


class Exponential(Family):
    """Waiting times, as docs/extending.md has them."""

    name, kind, learners = "exponential", "numeric", "count"
    link = LINKS["ratio"]

    def coded(self, y):
        if (y <= 0).any():
            raise ValueError("waiting times must be above 0")
        return y

    def log_density(self, y, location, scale, shape):
        return -np.log(location) - y / location

    def residual(self, y, location, scale):
        return y - location

    def marginal(self, y, least_scale):
        return float(y.mean()), 1.0, np.inf

    def expected(self, location, scale, shape, marks, y, weights, origin):
        return np.column_stack((location, 2 * location**2, -np.expm1(-marks / location[:, None])))

    def variance(self, location, scale):
        return np.ones(location.shape)

    def log_density_and_scores(self, y, eta, log_scale, shape):
        location = self.location(eta)
        return self.log_density(y, location, 1.0, shape), (y / location - 1.0,)


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


def test_its_scores_are_derivatives_of_its_log_density():
    y, step, family = np.array([0.5, 1.0, 3.0]), 1e-6, Exponential()
    eta, one = np.array([-0.3, 0.2, 1.0]), np.ones(3)
    found, (score,) = family.log_density_and_scores(y, eta, np.log(one), np.inf)
    up, down = (family.log_density(y, family.location(eta + side), one, np.inf) for side in (step, -step))
    np.testing.assert_allclose(score, (up - down) / (2 * step), rtol=1e-6)
    np.testing.assert_allclose(found, family.log_density(y, family.location(eta), one, np.inf))


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
        (Stranger(), "Stranger has no expected and no log_density_and_scores and no marginal and no residual"),
        (complete(*Family.__abstractmethods__), r"derive Foreign from modifind\.statistics\.families\.Family"),
        (WithoutName(), "WithoutName has no name"),
        (HalfAScale(), "HalfAScale has no on_eta and no scale_score and no scale_ratio"),
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

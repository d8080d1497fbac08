"""Effects in the overlap population: what they average, how sure they are, and where they are named."""

import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit, seed_of
from modifind import EffectLikelihood, ModifierSelector
from modifind.data.weights import Weights, population_weights, row_weights
from modifind.explain import effect_curve
from modifind.explain.rows import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.explain.views import overall_effects
from modifind.report.content import methods, references
from modifind.statistics.families import StudentT

LINEAR = EffectLikelihood("linear")


def table(seed, n=800, strength=1.5):
    """The effect is 1 + x, and so is, in other units, the logit of the chance to be treated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    scores = 1 / (1 + np.exp(-strength * (x[:, 0] - 0.7)))
    arms = (rng.random(n) < scores).astype(np.int64)
    y = x[:, 1] + arms * (1 + x[:, 0]) + rng.normal(size=n)
    return x, scores, arms, y


def truth(strength=1.5):
    x = np.random.default_rng(0).normal(size=1_000_000)
    scores = 1 / (1 + np.exp(-strength * (x - 0.7)))
    return float(np.average(1 + x, weights=scores * (1 - scores)))


def test_weights_are_those_of_even_chances():
    scores = np.array([0.5, 0.2, 0.8, 0.01])
    np.testing.assert_allclose(row_weights(scores, "overlap"), 4 * scores * (1 - scores))
    np.testing.assert_array_equal(row_weights(scores, "all"), np.ones(4))
    assert population_weights(scores, "all", Weights.alike(4)).uniform
    counted = population_weights(scores, "overlap", Weights.of(scores))
    np.testing.assert_allclose(counted.values, scores * row_weights(scores, "overlap"))


@pytest.mark.parametrize("modelled", [False, True])
def test_average_is_that_of_the_overlap_population_and_its_limits_hold(modelled):
    wanted, found = truth(), []
    for seed in range(40):
        x, scores, arms, y = table(seed)
        models = ()
        if modelled:  # a model that is wrong by half
            location = np.column_stack((x[:, 1], x[:, 1] + 0.5 * (1 + x[:, 0])))
            models = (OutcomeModel(location, np.ones_like(location), (30.0, 30.0), StudentT()),)
        outcomes = PseudoOutcomes.of(ArmRows(y, arms, scores, population="overlap"), models)
        overall = overall_effects(outcomes, 1.0, seed_of(seed))
        found.append([overall[f"mean_effect{end}"] for end in ("", "_low", "_high")])
    effect, low, high = np.array(found).T
    # The mean of 40 estimates is within 4 of its standard errors.
    assert effect.mean() == pytest.approx(wanted, abs=4 * effect.std() / np.sqrt(40))
    assert wanted > 1.3  # in all rows it is 1
    covered = ((low <= wanted) & (wanted <= high)).mean()
    assert covered >= 0.85  # 34 or more of 40 at 95%: less has a chance of 0.002
    # Limits are neither too wide: their half width is 1.96 standard errors, give or take the chance of 40 runs.
    assert ((high - low) / 2).mean() == pytest.approx(1.96 * effect.std(), rel=0.4)


def test_overlap_effects_are_surer_where_arms_overlap_poorly():
    _, scores, arms, y = table(0, n=2000, strength=3.0)
    scores = np.clip(scores, 0.005, 0.995)
    widths = {}
    for population in ("all", "overlap"):
        overall = overall_effects(PseudoOutcomes.of(ArmRows(y, arms, scores, population=population)), 1.0, seed_of(0))
        widths[population] = overall["mean_effect_high"] - overall["mean_effect_low"]
    assert widths["overlap"] < 0.8 * widths["all"]


def test_curve_within_a_level_is_the_weighted_mean_and_one_chance_for_all_changes_nothing():
    x, scores, arms, y = table(1)
    half = x[:, 1] > 0
    curve = effect_curve(half, y, arms, scores, discrete=True, population="overlap", n_bootstrap=0)
    for level, own in ((False, ~half), (True, half)):
        treated, control = own & (arms == 1), own & (arms == 0)
        expected = np.average(y[treated], weights=1 - scores[treated]) - np.average(y[control], weights=scores[control])
        found = float(curve.loc[curve["value"] == level, "mean_effect"].iloc[0])
        assert found == pytest.approx(expected)
    same = [
        effect_curve(x[:, 0], y, arms, 0.4, population=population, n_bootstrap=20, random_state=0)
        for population in ("all", "overlap")
    ]
    pd.testing.assert_frame_equal(*same)


@pytest.fixture(scope="module")
def fits():
    x, _, arms, y = table(2, n=500)
    frame = pd.DataFrame(x, columns=["age", "dose"])
    settings = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": True}
    return {
        population: quiet_fit(frame, y, arms, population=population, **settings).result_
        for population in ("all", "overlap")
    }


def test_population_changes_effects_and_no_p_value(fits):
    every, overlap = fits["all"], fits["overlap"]
    pd.testing.assert_frame_equal(every.table.drop(columns="caution"), overlap.table.drop(columns="caution"))
    assert overlap.overall["mean_effect"] > every.overall["mean_effect"] + 0.2
    assert overlap.curve("age")["value"].mean() > every.curve("age")["value"].mean() + 0.2
    ends = [every.bounds["age"]["value"].max(), overlap.bounds["age"]["value"].max()]
    assert ends[0] != ends[1]


def test_population_is_named(fits, tmp_path, capsys):
    from modifind.cli.output import print_result

    every, overlap = fits["all"], fits["overlap"]
    assert overlap.settings["population"] == "overlap"
    assert "overlap population: each row is weighted by e(1 - e)" in methods(overlap)
    assert "overlap" not in methods(every)
    assert any("Zaslavsky" in reference for reference in references(overlap))
    overlap.report(tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Effects are for the overlap population" in html
    print_result(overlap)
    assert " in the overlap population; p " in html
    assert " in the overlap population; p " in " ".join(capsys.readouterr().out.split())
    every.report(tmp_path / "all.html")
    assert "overlap population; p" not in (tmp_path / "all.html").read_text(encoding="utf-8")
    weights = overlap.checks.loc[overlap.checks["name"] == "effective_rows", "value"]
    assert weights.min() * 500 > 30
    assert "largest_weight" not in set(overlap.checks["name"])


def test_streamed_tables_have_it_too():
    x, _, arms, y = table(3, n=1500)
    frame = pd.DataFrame(x, columns=["age", "dose"])
    settings = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": True, "max_train_rows": 800}
    found = {
        population: quiet_fit(frame, y, arms, population=population, **settings).result_
        for population in ("all", "overlap")
    }
    assert found["all"].settings["n_train_rows"] < 1500
    np.testing.assert_array_equal(found["all"].table["p_value"], found["overlap"].table["p_value"])
    assert found["overlap"].overall["mean_effect"] > found["all"].overall["mean_effect"] + 0.2


def test_other_populations_are_refused():
    x, _, arms, y = table(4, n=100)
    with pytest.raises(ValueError, match="population must be 'all' or 'overlap', not 'treated'"):
        ModifierSelector(population="treated").fit(x, y, treatment=arms)
    with pytest.raises(ValueError, match="population must be"):
        effect_curve(x[:, 0], y, arms, 0.5, population="treated")

"""Explanations of streamed fits, by rows of the sample that models are fitted to."""

import dataclasses
import json
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.stats import norm

from conftest import conditional_grid, confounded_table, seed_of
from modifind import EffectLikelihood, ModifierSelector, PropensityModel
from modifind.data.clusters import Clusters
from modifind.data.features import Unit
from modifind.data.schema import read_features
from modifind.data.sources import Block
from modifind.data.weights import Weights
from modifind.engine import checkpoint
from modifind.engine.explaining import Explainer
from modifind.engine.features import Analysis, ChangeRows, Examination, UnitSeeds
from modifind.engine.passes import ScoredRows
from modifind.engine.sums import OverlapConditional
from modifind.explain.bounds import explain_bounds
from modifind.explain.rows import ArmRows, GivenFeature, OutcomeModel, PseudoOutcomes
from modifind.explain.views import CURVE_COLUMNS
from modifind.inference import UNSEEN
from modifind.inference.direct_sums import DirectSums
from modifind.nuisance.conditional import GaussianSampler
from modifind.statistics import WCMMD, Nuisances
from modifind.statistics.row_terms import Reuse
from prepared import feature_changes
from streams import FAST, SMALL, cut, fit, fit_source

BANDS = {"d2_null_low", "mean_effect_low", "q90_effect_high", "sd_ratio_low", "rows_treated", "low_support"}


@pytest.fixture(scope="module")
def sample():
    """A sample, its scores and folds, and models that are cross-fitted to it."""
    rng = np.random.default_rng(6)
    X, treatment = confounded_table(rng, 1200, 3)
    frame = pd.DataFrame(X, columns=["x", "other", "gappy"])
    frame.loc[rng.random(1200) < 0.2, "gappy"] = np.nan
    frame["site"] = np.array(list("abc"))[rng.integers(0, 3, size=1200)]
    y = treatment * X[:, 0] + rng.normal(size=1200)
    table = read_features(frame, missing="category")
    folds = [rng.integers(0, 5, size=1200) for _ in range(2)]
    scores = 1 / (1 + np.exp(-0.4 * X[:, 0]))
    model = EffectLikelihood("linear", cv_repeats=2).prepare(
        Nuisances(table, y, treatment, scores, seed_of(0), tuple(folds))
    )
    sampler = GaussianSampler()
    sampler.fit(table, treatment, seed_of(2))
    block = Block(0, table, y, treatment, None, Weights.alike(1200), Clusters.rows(1200))
    propensity = PropensityModel(scores).fit(table, treatment)
    return SimpleNamespace(block=block, scores=scores, propensity=propensity, folds=folds, model=model, sampler=sampler)


def rows_of(sample, **settings):
    """The analysis of a sample whose features are explained by some of its rows."""
    block, model, everyone = sample.block, sample.model, np.ones(1200, dtype=bool)
    rows = ArmRows(block.y, block.treatment, sample.propensity.scores)
    outcomes = PseudoOutcomes.of(rows, OutcomeModel.of(model), seed=seed_of(3), **settings)
    importance = WCMMD().for_rows(block.y, block.treatment, seed_of(0))
    whole = ScoredRows(block, tuple(sample.folds), sample.propensity, everyone, 5, 1200)
    looked, units = SimpleNamespace(numbers=block.numbers), ()
    table = SimpleNamespace(
        whole=False, block=block, units=units, data=SimpleNamespace(first_pass=looked), scored=lambda propensity: whole
    )
    models = SimpleNamespace(propensity=sample.propensity, explaining=model)
    explainer = Explainer(block.table, rows, outcomes, importance)
    run = SimpleNamespace(explain=True, alpha=0.05)
    return Analysis(run, table, models, explainer, ChangeRows.of(table, models, outcomes.rows))


def answer(rows, feature, *, rule=None, bounds=False):
    """The explanation of a feature, with its curve and densities."""
    unit = Unit(rows.explainer.table.names[feature], (feature,))
    seeds = UnitSeeds(seed_of(7), seed_of(8), seed_of(9), seed_of(10))
    outcome = dataclasses.replace(UNSEEN, p_value=0.01) if bounds else UNSEEN
    found = rows.explained(unit, seeds, Examination(rule=rule, outcome=outcome), {})
    return found, found.view.curve, found.view.densities


@pytest.mark.parametrize("feature", [0, 3])
def test_a_small_sample_is_explained_as_a_table_in_memory(sample, feature):
    block, rows = sample.block, rows_of(sample)
    found, curve, densities = answer(rows, feature, rule=sample.sampler.rule(feature), bounds=True)
    expected = rows.explainer.view(feature, seed_of(7))
    assert_frame_equal(curve, expected.curve, check_exact=True)
    assert_frame_equal(densities, expected.densities, check_exact=True)
    points = conditional_grid(sample.sampler, feature)
    changes = feature_changes(sample.model, feature, OverlapConditional(points, sample.propensity, feature))
    for part in ("mean", "spread", "shape"):
        assert getattr(found.changes, part) == pytest.approx(getattr(changes, part), rel=1e-6), part
    seed = seed_of(10).spawn(1)[0]
    given = GivenFeature(block.table.values[:, feature], block.table.categories[feature])
    bounds = explain_bounds(given, ArmRows(block.y, block.treatment, sample.scores), seed)
    own = found.bounds[block.table.names[feature]]
    assert_frame_equal(own.table, bounds.table, check_exact=True)
    assert_frame_equal(own.tests, bounds.tests, check_exact=True)


def test_a_part_of_the_sample_is_predicted_by_models_that_have_not_seen_it(sample):
    part, again = (rows_of(sample, max_rows=400) for _ in range(2))
    chosen = part.explainer.outcomes.rows
    assert np.unique(chosen).size == 400
    np.testing.assert_array_equal(chosen, again.explainer.outcomes.rows)
    changing = part.changing
    np.testing.assert_array_equal(changing.rows.block.table.values, sample.block.table.values[chosen])
    np.testing.assert_array_equal(changing.numbers, chosen)
    assert changing.share == pytest.approx(1 / 3)
    for mine, whole, folds in zip(changing.model.fits, sample.model.fits, sample.folds, strict=True):
        np.testing.assert_array_equal(mine.cross.folds, folds[chosen])
        np.testing.assert_allclose(mine.cross.location, whole.cross.location[chosen], rtol=1e-9)
        np.testing.assert_allclose(mine.cross.scale, whole.cross.scale[chosen], rtol=1e-9)
        np.testing.assert_allclose(mine.log_likelihood, whole.log_likelihood[chosen], rtol=1e-9)


def test_a_part_of_the_sample_tells_the_same_with_wider_bands(sample):
    rule = sample.sampler.rule(0)
    part, whole = (answer(rows_of(sample, max_rows=n), 0, rule=rule) for n in (400, 1200))
    at = [np.interp([-1.0, 0.0, 1.0], curve["value"], curve["mean_effect"]) for _, curve, _ in (part, whole)]
    np.testing.assert_allclose(at[0], at[1], atol=0.6)
    np.testing.assert_allclose(at[1], [-1.0, 0.0, 1.0], atol=0.6)
    wide, narrow = ((own["mean_effect_high"] - own["mean_effect_low"]).median() for _, own, _ in (part, whole))
    assert 1.2 < wide / narrow < 2.5  # by the root of 3, and the width of the neighbourhood
    assert whole[0].changes.mean < part[0].changes.mean < 1e-6


def test_folds_share_less_variance_the_fewer_rows_have_taught():
    products = np.full((4, 4), 0.7) + 0.3 * np.eye(4)
    per_fold = [np.array([1.0, 2.0, 3.0, 4.0])]
    whole = Reuse((products,)).variance(per_fold)
    assert whole > 0
    assert Reuse((products,), share=0.25).variance(per_fold) == pytest.approx(whole / 4)


def test_what_changes_is_tested_with_the_variance_that_the_explained_rows_share(sample, monkeypatch):
    """Of a third of the rows a third of the variance between folds is shared, whatever the feature's patterns are."""
    patterns = np.full((5, 5), 0.75) + 0.25 * np.eye(5)  # as much in common as noise has in five folds
    reuse = type(sample.model).reuse
    monkeypatch.setattr(
        type(sample.model),
        "reuse",
        lambda own, *given: {
            name: dataclasses.replace(part, products=(patterns,) * 2) for name, part in reuse(own, *given).items()
        },
    )
    # The sums alone: directions are not learned, so that folds share nothing of them.
    monkeypatch.setattr(DirectSums, "p_value", lambda own, freedom: np.nan)
    part, rule = rows_of(sample, max_rows=400), sample.sampler.rule(1)
    z = {}
    own_share = part.changing.share
    for share in (0.0, own_share, 1.0):
        changing = dataclasses.replace(part.changing, share=share)
        found, _, _ = answer(dataclasses.replace(part, changing=changing), 1, rule=rule)
        z[share] = norm.isf(found.changes.mean)
    # Shared variance is the share of that of independent rows, nearly: folds have about a fifth of it each.
    for share, own in z.items():
        assert own == pytest.approx(z[0.0] / np.sqrt(1 + share), rel=0.1)
    assert abs(z[1.0]) < abs(z[own_share]) < abs(z[0.0])


def with_few_values(sample, n_values):
    rows, block = rows_of(sample), sample.block
    values = block.table.values.copy()
    seen = np.flatnonzero(block.table.observed(2))
    values[seen[n_values:], 2] = np.nan
    table = dataclasses.replace(block.table, values=values)
    return dataclasses.replace(rows, explainer=dataclasses.replace(rows.explainer, table=table))


def test_values_that_are_all_missing_have_a_curve_of_one_point(sample):
    found, curve, densities = answer(with_few_values(sample, 0), 2, bounds=True)
    assert curve["value"].dtype == densities["value"].dtype == np.float64
    assert curve["value"].isna().tolist() == [True]
    assert np.isfinite(curve[["mean_effect", "mean_effect_low", "sd_ratio_high"]]).all().all()
    assert not found.bounds


def test_features_are_explained_where_the_sample_holds_a_value_or_two(sample):
    _, curve, _ = answer(with_few_values(sample, 2), 2, bounds=True)
    assert curve["low_support"].tolist()[:-1] == [True] * (len(curve) - 1)
    assert not curve["low_support"].iloc[-1]


def test_streamed_result_explains_every_feature(few, base):
    names = list(few.X.columns)
    assert list(base.curves) == list(base.densities) == list(base.changes.index) == names
    for name in names:
        assert set(base.curve(name).columns) > BANDS
    assert list(base.bounds) == [name for name in names if base.table.loc[name, "p_value"] <= 0.05]
    assert list(base.bounds) == list(base.bound_tests)
    assert base.settings["n_explained_rows"] == base.settings["n_train_rows"] == 400
    assert "outcome_levels" not in base.settings
    assert base.overall["mean_effect_low"] < 2 / 3 < base.overall["mean_effect_high"]
    assert base.changes.loc[["age", "site"], "mean_adjusted"].max() < 0.05
    assert base.changes.loc["age", "verdict"].startswith("Changes the average: the effect rises from")
    curve = base.curve("age")
    truth = 2 * (curve["value"] + 1 / 3)
    inside = truth.between(curve["mean_effect_low"], curve["mean_effect_high"])
    assert inside.mean() > 0.8  # neighbouring points miss together


def test_without_explanations_tests_are_the_same_and_curves_have_no_bands(few, base):
    plain = fit(few.X, few.y, few.treatment, **SMALL, explain=False)
    assert_frame_equal(plain.table, base.table, check_exact=True)
    for name in few.X:
        assert not BANDS & set(plain.curve(name).columns) - {"rows_treated", "low_support"}
        effects = list(CURVE_COLUMNS[2:])  # D2 with bands is less what chance adds to it
        assert_frame_equal(plain.curve(name)[effects], base.curve(name)[effects], check_exact=True)
    assert not plain.densities
    assert not plain.bounds
    assert not plain.overall
    assert plain.changes.empty


def test_bounds_follow_alpha(two):
    none, all_of_them = (fit(two.X, two.y, two.treatment, **SMALL, alpha=alpha) for alpha in (1e-290, 0.999))
    assert none.table["p_value"].between(1e-290, 0.999).all()
    assert not none.bounds
    assert list(all_of_them.bounds) == ["age", "dose"]


def test_outcome_of_few_values_is_shown_by_their_shares(two):
    result = fit(two.X, np.round(two.y / 3), two.treatment, **SMALL)
    assert result.settings["outcome_levels"] is True
    shown = result.density("age")
    np.testing.assert_allclose(shown.groupby("value")[["treated", "control"]].sum(), 1.0)


def test_binary_outcome_is_explained_on_its_own_scale():
    rng = np.random.default_rng(8)
    X, treatment = confounded_table(rng, 2500, 2, shift=0.0)
    y = np.where(rng.random(2500) < 1 / (1 + np.exp(-2.0 * treatment * X[:, 0])), 7.0, 3.0)
    result = fit(X, y, treatment, max_train_rows=1000)
    assert result.changes.loc["x0", "mean_adjusted"] < 1e-4
    assert result.changes[["spread_p", "shape_p"]].isna().all().all()
    curve = result.curve("x0")
    truth = 4.0 / (1 + np.exp(-2.0 * curve["value"])) - 2.0
    assert truth.between(curve["mean_effect_low"], curve["mean_effect_high"]).mean() > 0.8
    assert sorted(result.density("x0")["outcome"].unique()) == [3.0, 7.0]


@pytest.fixture(scope="module")
def explained(two):
    return fit(two.X, two.y, two.treatment, **SMALL)


@pytest.mark.parametrize(
    ("step", "named", "lost"),
    [
        ("modifind.engine.explaining.explained_column", "its curve", "curves"),
        ("modifind.engine.features.changes_of", "what changes along it", "changes"),
        ("modifind.engine.explaining.explain_bounds", "bounds along it", "bounds"),
    ],
)
def test_what_cannot_be_explained_costs_no_test_and_nothing_else(two, explained, monkeypatch, step, named, lost):
    def fails(*args, **kwargs):
        raise MemoryError("no room")

    monkeypatch.setattr(step, fails)
    with pytest.warns(UserWarning, match=rf"feature 'age': {named} could not be found \(MemoryError: no room\)"):
        found = fit(two.X, two.y, two.treatment, **SMALL)
    assert_frame_equal(found.table, explained.table, check_exact=True)
    assert found.curve("age").empty == (lost == "curves")
    assert ("age" in found.densities) == (lost != "curves")
    assert ("age" in found.bounds) == (lost != "bounds")
    assert found.changes.empty == (lost == "changes")
    if lost != "curves":
        assert_frame_equal(found.curve("age"), explained.curve("age"), check_exact=True)
    if lost != "bounds":
        assert_frame_equal(found.bounds["age"], explained.bounds["age"], check_exact=True)


def test_warnings_as_errors_reach_the_user(two, monkeypatch):
    def warns(*args, **kwargs):
        raise UserWarning("loud")

    monkeypatch.setattr("modifind.engine.explaining.explain_bounds", warns)
    with pytest.raises(UserWarning, match="loud"):
        fit(two.X, two.y, two.treatment, **SMALL)


def test_large_table_in_memory_says_how_many_rows_explain():
    rng = np.random.default_rng(9)
    X, treatment = confounded_table(rng, 30_500, 1, shift=0.0)
    y = treatment * X[:, 0] + rng.normal(size=30_500)
    settings = FAST | {"max_train_rows": 31_000, "explain": False}
    for n_rows, shown in ((30_500, 30_000), (29_000, None)):
        result = ModifierSelector(**settings).fit(X[:n_rows], y[:n_rows], treatment=treatment[:n_rows]).result_
        assert result.settings.get("n_explained_rows") == shown


def test_sums_of_an_earlier_format_are_refused(two, tmp_path):
    source = cut(two.X, two.y, two.treatment, 300)
    fit_source(source, **SMALL, checkpoint=tmp_path)
    (sums,) = tmp_path.glob("sums-*.json")
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) | {"format": checkpoint.FORMAT - 1}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    sums.rename(tmp_path / f"sums-{checkpoint._read_run(tmp_path).token}.json")
    with pytest.raises(ValueError, match=f"its format is {checkpoint.FORMAT - 1}, not {checkpoint.FORMAT}"):
        fit_source(source, **SMALL, checkpoint=tmp_path)


def test_column_that_is_nearly_always_missing_is_tested_and_explained(two):
    rng = np.random.default_rng(10)
    rare = np.where(rng.random(900) < 0.1, rng.normal(size=900), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = fit(two.X.assign(rare=rare), two.y, two.treatment, **SMALL, missing="category")
    assert result.curve("rare")["value"].isna().tolist()[-1]
    assert np.isfinite(result.curve("rare")["mean_effect"].iloc[-1])

"""Missing values: refused, left out with their rows, or a category with a distribution of its own."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from conftest import four_sd, quiet_fit, runs, seed_of
from modifind import WCMMD, EffectLikelihood, ModifierSelector, SelectionResult
from modifind.charts import CurveDisplay
from modifind.cli.app import app
from modifind.data.determined import find_determined
from modifind.data.schema import Schema, read_features
from modifind.data.sources import FrameSource
from modifind.data.summary import Summary
from modifind.nuisance.conditional import AutoSampler, CVAESampler, resolve_sampler, with_missing_support
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.columns import Filling, Recast
from modifind.nuisance.outcome.stacking import StackedModel
from modifind.nuisance.propensity.scores import PropensityModel
from streams import FAST, close, cut, fit, fit_source

CATEGORY = {"missing": "category"}


def with_gaps(seed=0, n=400, d=5, effect=1.5, prognostic=0.0):
    """X1 modifies by its value, X2 by being missing, X3 is missing at random and X3's gaps may move both arms."""
    rng = np.random.default_rng([seed, 5])
    x = rng.standard_normal((n, d))
    x[:, 3] += 0.5 * x[:, 4]
    a = rng.integers(0, 2, n)
    gaps = rng.random((n, 3)) < 1 / (1 + np.exp(1.4 - x[:, 3:4]))
    y = effect * a * (x[:, 0] + gaps[:, 1]) + x[:, 4] + prognostic * gaps[:, 2] + rng.standard_normal(n)
    x[:, :3] = np.where(gaps, np.nan, x[:, :3])
    return pd.DataFrame(x, columns=[f"X{j + 1}" for j in range(d)]), y, a


@pytest.fixture(scope="module")
def table():
    return with_gaps()


def test_error_names_columns_counts_and_remedies(table):
    X, y, a = table
    counts = ", ".join(rf"'X{j}' \({X[f'X{j}'].isna().sum()} missing\)" for j in (1, 2, 3))
    with pytest.raises(ValueError, match=counts + r"; .*missing='category'.*missing='drop'"):
        ModifierSelector().fit(X, y, treatment=a)
    with pytest.raises(ValueError, match="missing must be one of 'error', 'category', 'drop', not 'ignore'"):
        ModifierSelector(missing="ignore").fit(X, y, treatment=a)


@pytest.mark.parametrize("missing", ["error", "category"])
def test_missing_outcome_or_treatment_is_refused_and_counted(table, missing):
    X, y, a = table
    X = X[["X4", "X5"]]
    bad_y, bad_a = y.copy(), a.astype(float)
    bad_y[:3] = np.nan
    bad_a[:2] = np.nan
    with pytest.raises(ValueError, match=r"the outcome y is missing in 3 of \d+ rows; missing_outcome='drop'"):
        ModifierSelector(missing=missing).fit(X, bad_y, treatment=a)
    with pytest.raises(ValueError, match=r"treatment has 2 missing values; .*missing='drop'"):
        ModifierSelector(missing=missing).fit(X, y, treatment=bad_a)


@pytest.mark.parametrize("missing", ["category", "drop"])
def test_infinite_values_stay_an_error(table, missing):
    X, y, a = table
    with pytest.raises(ValueError, match=r"infinite values in 'X4' \(1 infinite\)"):
        ModifierSelector(missing=missing).fit(X.assign(X4=[np.inf, *X["X4"][1:]]), y, treatment=a)


@pytest.mark.parametrize("rows", [{}, {"max_train_rows": 200}], ids=["at once", "streamed"])
def test_drop_is_the_analysis_of_the_complete_rows(table, rows):
    X, y, a = table
    scores = np.where(X["X5"] > 0, 0.6, 0.4)
    y, treatment = y.copy(), pd.Series(a).astype(object)
    y[5], treatment[7] = np.nan, None
    kept = X.notna().all(axis=1).to_numpy() & ~np.isnan(y) & treatment.notna().to_numpy()
    expected = fit(X[kept], y[kept], treatment[kept], propensity=scores[kept], **rows)
    with pytest.warns(
        UserWarning, match=rf"{(~kept).sum()} of 400 rows .* left out: X1 \(\d+\), .*y \(1\), treat"
    ) as w:
        found = fit(X, y, treatment, propensity=scores, missing="drop", **rows)
    assert "missing='category' keeps rows without a feature" in str(w[0].message)  # more than a fifth is gone
    assert_frame_equal(found.table, expected.table)
    assert_frame_equal(found.curve("X1"), expected.curve("X1"))
    assert found.settings["n_rows_dropped"] == (~kept).sum()
    assert found.settings["missing_values"]["X1"] == X["X1"].isna().sum()
    assert found.settings["n_rows"] == kept.sum()
    assert any("left out" in message for message in found.warnings)


def test_drop_without_missing_values_changes_nothing_and_says_nothing(table, recwarn):
    X, y, a = table
    X = X[["X4", "X5"]]
    found = fit(X, y, a, missing="drop")
    assert_frame_equal(found.table, fit(X, y, a).table)
    assert found.settings["n_rows_dropped"] == 0
    assert not [w for w in recwarn if "left out" in str(w.message)]


def test_drop_of_every_row_is_refused(table):
    X, y, a = table
    with pytest.raises(ValueError, match="every row has a missing value"):
        ModifierSelector(missing="drop").fit(X.assign(X4=np.nan), y, treatment=a)


def test_levels_of_missing_values_of_every_type():
    n = 60
    X = pd.DataFrame(
        {
            "text": ["a", "missing", None, "b"] * 15,
            "whole": pd.array([1, None, 2, 3] * 15, dtype="Int64"),
            "flag": pd.array([True, None, False, True] * 15, dtype="boolean"),
            "object": [1.5, pd.NA, 2.5, None] * 15,
            "category": pd.Categorical(["u", None, "v", "v"] * 15, categories=["v", "u"]),
            "time": [pd.NaT, "q", "r", "q"] * 15,
            "nothing": [None] * n,
            "number": np.where(np.arange(n) % 4 == 0, np.nan, np.arange(n) / 7),
            "one": np.where(np.arange(n) % 4 == 0, np.nan, 3.0),
        }
    )
    table = read_features(X, missing="category")
    assert table.categories == (
        ("a", "b", "missing", "missing (no value)"),
        (1, 2, 3, "missing"),
        (False, True, "missing"),
        (1.5, 2.5, "missing"),
        ("v", "u", "missing"),
        ("q", "r", "missing"),
        ("missing",),
        None,
        (3.0, "missing"),
    )
    assert table.incomplete == {7}
    assert table.constant == (False,) * 6 + (True, False, False)
    piece = next(FrameSource.of(X, np.arange(n), [0, 1] * 30).pieces())
    block = Schema.of(Summary.of(piece, "auto"), None, None, "category").read(piece)
    assert block.table.categories == table.categories
    assert block.table.incomplete == table.incomplete
    np.testing.assert_array_equal(block.table.values, table.values)


def test_a_column_with_hardly_any_value_is_refused_by_name(table):
    X, y, a = table
    few = np.where(np.arange(400) < 15, np.arange(400.0), np.nan)
    with pytest.raises(ValueError, match=r"too few values to learn from in 'few' \(15 values\)"):
        ModifierSelector(missing="category").fit(X.assign(few=few), y, treatment=a)


def test_model_columns_are_the_value_and_an_indicator(table):
    features = read_features(table[0], missing="category")
    column = table[0]["X1"].to_numpy()
    own = features.design[:, features.encoding[0]]
    assert own.shape[1] == 2
    np.testing.assert_array_equal(own[:, 1], np.isnan(column))
    assert (own[np.isnan(column), 0] == 0).all()
    observed = column[~np.isnan(column)]
    np.testing.assert_allclose(own[~np.isnan(column), 0], (observed - observed.mean()) / observed.std())
    assert features.gaps == (0, 2, 4)


def test_copies_that_miss_the_same_values_are_found(table):
    X = table[0].assign(again=np.exp(table[0]["X1"]))
    assert find_determined(read_features(X, missing="category")).features == {0, 5}


def test_learners_fill_in_the_mean_of_the_rows_they_are_fitted_to():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.normal(size=(200, 2)), np.zeros(200)))
    X[::4, 1:] = 0.0, 1.0
    a, y = rng.integers(0, 2, 200), X[:, 1] + rng.normal(size=200)
    filling = Filling.from_rows(X, (1,))
    assert filling.means == (pytest.approx(X[X[:, 2] == 0, 1].mean()),)
    filled = filling(X)
    assert (X[::4, 1] == 0).all()  # what was passed is left alone
    assert (filled[::4, 1] == filling.means[0]).all()
    plain = AdditiveLearner(0).fit(filled, a, y)
    learner = StackedModel((plain,), (1.0,), recast=Recast(filling))
    np.testing.assert_array_equal(learner.predict(X), plain.predict(filled))
    points = np.array([[[0.0, 1.0], [0.7, 0.0]]]).repeat(200, axis=0)
    expected = plain.along(filled, slice(1, 3), np.where(points == [0.0, 1.0], [filling.means[0], 1.0], points))
    for index in (None, learner.index(X)):
        np.testing.assert_allclose(learner.along(X, slice(1, 3), points, index), expected)


@pytest.mark.parametrize("name", ["gaussian", "boosting", "marginal", "auto"])
def test_distributions_of_incomplete_features(table, name):
    X, _, a = table
    features = read_features(X, missing="category")
    sampler = with_missing_support(resolve_sampler(name), features).fit(features, a, seed_of(0))
    conditional = sampler.conditional(1)
    points, weights = conditional.grid(np.arange(400))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert np.isnan(points[:, -1]).all()
    assert np.isfinite(points[:, :-1]).all()
    gaps = X["X2"].isna().to_numpy()
    # In the mean over rows the chance is the share of missing values: probabilities are fitted.
    assert conditional.chance.mean() == pytest.approx(gaps.mean(), abs=0.03)
    if name != "marginal":  # X4 tells who is missing
        assert np.corrcoef(conditional.chance, X["X4"])[0, 1] > 0.6
    draws = conditional.draw(np.random.default_rng(0), 200)
    assert draws.shape == (200, 400)
    share = np.isnan(draws).mean(axis=0)
    assert np.abs(share - conditional.chance).max() < four_sd(0.25, 200) + 0.05  # the sd of a share is at most 0.035
    assert np.nanmean(draws) == pytest.approx(X["X2"].mean(), abs=0.1)
    assert np.nanstd(draws) == pytest.approx(X["X2"].std(), rel=0.1)
    again, rng = conditional.draw(np.random.default_rng(0), 3), np.random.default_rng(0)
    np.testing.assert_array_equal(again, np.concatenate([conditional.draw(rng, 1), conditional.draw(rng, 2)]))
    assert sampler.conditional(3).draw(np.random.default_rng(0), 1).shape == (1, 400)  # a complete feature


def test_missingness_that_others_tell_is_taken_as_it_is(table):
    X, _, a = table
    X = X.assign(also=np.where(X["X1"].isna(), np.nan, np.random.default_rng(0).normal(size=400)))
    features = read_features(X, missing="category")
    conditional = with_missing_support(AutoSampler(), features).fit(features, a, seed_of(0)).conditional(5)
    np.testing.assert_array_equal(conditional.chance, X["X1"].isna())


def test_an_arm_without_values_still_has_a_distribution(table):
    X, _, a = table
    X = X.assign(late=np.where(a == 1, X["X5"] + np.random.default_rng(0).normal(size=400), np.nan))
    features = read_features(X, missing="category")
    points, weights = (
        with_missing_support(AutoSampler(), features).fit(features, a, seed_of(0)).conditional(5).grid(slice(None))
    )
    assert np.isfinite(points[:, :-1]).all()
    np.testing.assert_array_equal(weights[:, -1], a == 0)


def test_autoencoders_are_refused_by_name(table):
    X, _, _ = table
    with pytest.raises(
        ValueError, match=r"CVAESampler has no distribution .* missing values \(X1, X2, X3\); use sampler='auto'"
    ):
        with_missing_support(CVAESampler(), read_features(X, missing="category"))


def test_a_wide_table_with_gaps():
    X, y, a = with_gaps(n=200, d=70)
    given = {"statistic": EffectLikelihood("linear"), "propensity": 0.5, "random_state": 0, "cv": 2}
    found = quiet_fit(X, y, a, **given, **CATEGORY)
    assert {"X1"} <= set(found.result_.selected)


@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
@pytest.mark.parametrize("estimator", ["spectral", "exact"])
def test_missing_rows_are_an_atom_of_the_statistic(table, weighting, estimator):
    X, y, a = table
    x, scores = X["X2"].to_numpy(), np.full(400, 0.4)
    gaps = np.isnan(x)
    whole = WCMMD(estimator, weighting).for_rows(y, a, seed_of(0))
    found = whole.curve(x, scores, bandwidth=1.0)
    as_levels = whole.curve(gaps.astype(float), scores, bandwidth=1.0, n_levels=2)
    np.testing.assert_allclose(found[gaps], as_levels[gaps])
    far = whole.curve(np.where(gaps, 1e4, x), scores, bandwidth=1.0)  # so far away that the kernel is 0
    np.testing.assert_allclose(found, far, rtol=1e-6)
    one_arm = whole.curve(np.where((a == 1) & (np.arange(400) < 50), np.nan, X["X5"]), scores, bandwidth=1.0)
    assert np.isnan(one_arm[(a == 1) & (np.arange(400) < 50)]).all() == (weighting == "hajek")


@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
def test_torch_gives_the_same_statistic(table, weighting):
    torch = pytest.importorskip("torch")
    from modifind.statistics.wcmmd_torch import DeviceWCMMD

    X, y, a = table
    rng = np.random.default_rng(0)
    columns = np.stack([rng.permutation(X["X1"]), X["X2"], X["X5"] * 2, np.full(400, np.nan)])
    prepared = WCMMD(weighting=weighting).for_rows(y, a, seed_of(0))
    scores = np.full(columns.shape, 0.4)
    found, left = DeviceWCMMD(prepared, "torch:cpu", bandwidth=1.0).importances(
        columns, lambda x: torch.full_like(x, 0.4)
    )
    expected = [prepared.importance(x, e, bandwidth=1.0) for x, e in zip(columns, scores, strict=True)]
    assert not left.any()
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("model", [LogisticRegression(), "mlp"], ids=["closed form", "grid"])
def test_propensity_profiles_follow_a_value_that_goes_missing(table, model):
    X, _, a = table
    features = read_features(X, missing="category")
    fitted = PropensityModel(model).fit(features, a, seed=seed_of(0))
    profile = fitted.profile(0)
    column = features.values[:, 0]
    np.testing.assert_allclose(profile(column), fitted.scores, atol=1e-10 if model != "mlp" else 0.02)
    gone = profile(np.full(400, np.nan))
    np.testing.assert_allclose(gone[np.isnan(column)], fitted.scores[np.isnan(column)], atol=1e-10)
    torch = pytest.importorskip("torch")
    from modifind.nuisance.propensity.fitted import DeviceProfile

    on_device = DeviceProfile(profile, "torch:cpu")(torch.from_numpy(np.stack((column, np.full(400, np.nan)))))
    np.testing.assert_allclose(on_device.numpy(), np.stack((profile(column), gone)), atol=1e-10)


@pytest.fixture(scope="module")
def found(table):
    return ModifierSelector(**FAST | CATEGORY).fit(*table[:2], treatment=table[2]).result_


def test_both_kinds_of_modifiers_are_found(found):
    assert set(found.selected) == {"X1", "X2"}
    effect = found.curve("X2")
    assert effect["mean_effect"].iloc[-1] > effect["mean_effect"].iloc[:-1].max() + 0.5


def test_result_with_gaps_is_saved_plotted_and_reported(found, tmp_path):
    found.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == found
    display = CurveDisplay.from_result(found, "X1").plot()
    assert [label.get_text() for label in display.axes_[0].get_xticklabels()][-1] == "missing"
    found.report(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Missing values were treated as a separate category" in report


def test_result_does_not_depend_on_the_number_of_jobs(table, found):
    X, y, a = table
    assert ModifierSelector(**FAST | CATEGORY, n_jobs=2).fit(X, y, treatment=a).result_ == found


def test_category_without_missing_values_changes_nothing(table):
    X, y, a = table
    X = X[["X4", "X5"]]
    assert_frame_equal(fit(X, y, a, **CATEGORY).table, fit(X, y, a).table)


def test_resampling_test_takes_missing_values(table):
    X, y, a = table
    settings = {"statistic": "wcmmd", "sampler": "gaussian", "n_resamples": 199, "random_state": 0}
    result = quiet_fit(X, y, a, **settings, **CATEGORY).result_
    assert result.selected == ["X1"]
    assert result.table["p_value"].idxmin() == "X1"
    assert result.curve("X2")["value"].isna().sum() == 1


def test_streamed_fit_takes_missing_values_and_any_cut():
    X, y, a = with_gaps(n=1500)
    X = X.assign(level=np.where(np.arange(1500) % 7 == 0, None, np.where(y > np.median(y), "high", "low")))
    small = {**CATEGORY, "max_train_rows": 500}
    whole = fit(X, y, a, **small)
    assert {"X1", "X2"} <= set(whole.selected)
    close(whole, fit_source(cut(X, y, a, 170), **small))
    at_once = fit(X, y, a, **CATEGORY)
    for name in ("X2", "level"):
        assert whole.table.loc[name, "importance"] == pytest.approx(at_once.table.loc[name, "importance"], rel=0.2)
    curve, other = whole.curve("X2"), at_once.curve("X2")
    assert curve["value"].isna().tolist() == other["value"].isna().tolist()
    for found in (curve, other):  # the effect where X2 is missing is 1.5 on average
        last = found.iloc[-1]
        assert last["mean_effect_low"] < 1.5 < last["mean_effect_high"]
        assert last["mean_effect_high"] - last["mean_effect_low"] < 2.0
    assert whole.curve("level")["value"].tolist() == ["high", "low", "missing"]


def test_streamed_pieces_without_a_complete_row_are_counted(table):
    X, y, a = table
    X = X.copy()
    X.loc[100:149, "X4"] = np.nan
    kept = X.notna().all(axis=1).to_numpy()
    with pytest.warns(UserWarning, match=rf"{(~kept).sum()} of 400 rows"):
        found = fit_source(cut(X, y, a, 50), missing="drop", max_train_rows=200)
    close_tables = fit(X[kept], y[kept], a[kept], max_train_rows=200)
    assert_frame_equal(found.table, close_tables.table, rtol=1e-9)


@pytest.mark.parametrize("how", [(), ("--stream", "--train-rows", "200")], ids=["at once", "streamed"])
def test_command_line_reads_blanks_and_na_as_missing(table, tmp_path, how):
    X, y, a = table
    frame = X.assign(group=np.where(X["X4"] > 0, "a", "b"), arm=a, y=y)
    text = frame.astype(object).where(frame.notna(), "")
    first, second = np.flatnonzero(X.notna().all(axis=1))[:2]
    text.loc[first, "X4"] = text.loc[second, "group"] = "NA"
    text.to_csv(tmp_path / "gaps.csv", index=False)
    command = ["select", str(tmp_path / "gaps.csv"), "--treatment", "arm", "--outcome", "y", "--learner", "linear"]
    command += ["--sampler", "gaussian", "--propensity", "0.5", "--out", str(tmp_path / "result.json"), *how]
    for missing in ("category", "drop"):
        done = CliRunner().invoke(app, [*command, "--missing", missing])
        assert done.exit_code == 0, done.output
        result = SelectionResult.from_json(tmp_path / "result.json")
        assert result.settings["missing"] == missing
        assert result.settings["n_rows"] == (400 if missing == "category" else X.notna().all(axis=1).sum() - 2)
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, ValueError)
    assert "'X4' (1 missing), 'group' (1 missing); fill them" in str(refused.exception)


@pytest.mark.study
def test_null_features_with_gaps_keep_their_level():
    """X3 is missing at random, and where it is both arms are moved; X4 tells who is missing, X5 is prognostic."""
    p_values = []
    for seed in range(runs(16, 5)):
        X, y, a = with_gaps(seed, n=300, prognostic=2.0)
        found = ModifierSelector(**FAST | CATEGORY).fit(X, y, treatment=a).result_.table
        p_values.append(found.loc[["X3", "X4", "X5"], "p_value"])
    share = (np.array(p_values) <= 0.05).mean()
    assert share < 0.05 + four_sd(0.05, np.size(p_values))  # sd 0.031 of all runs


def test_rare_levels_of_missing_values_are_pooled_streamed_as_in_memory():
    rng = np.random.default_rng(8)
    X = pd.DataFrame({"grade": rng.integers(1, 4, 900).astype(float), "age": rng.normal(size=900)})
    X.loc[rng.choice(900, 9, replace=False), "grade"] = np.nan
    X.loc[X.index[X["grade"] == 2][6:], "grade"] = 1.0
    a, y = rng.integers(0, 2, 900), rng.normal(size=900)
    with pytest.warns(UserWarning, match="pooled as 'other'"):
        whole = fit(X, y, a, **CATEGORY)
    with pytest.warns(UserWarning, match="pooled as 'other'"):
        streamed = fit_source(cut(X, y, a, 170), **CATEGORY, max_train_rows=300)
    labels = list(whole.curve("grade")["value"])
    assert "other" in labels
    assert list(streamed.curve("grade")["value"]) == labels


def test_rows_that_were_left_out_are_told_where_too_few_remain():
    frame = pd.DataFrame({"age": np.arange(80.0), "b": np.where(np.arange(80) < 4, 1.0, np.nan)})
    source = FrameSource.of(frame, np.arange(80.0) % 7, np.arange(80) % 2)
    with (
        pytest.warns(UserWarning, match="76 of 80 rows have missing values and are left out"),
        pytest.raises(ValueError, match="X has 4 rows; at least 50 are needed"),
    ):
        ModifierSelector(missing="drop").fit(source)

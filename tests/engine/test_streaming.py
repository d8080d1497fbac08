"""Tables of more rows than models are fitted to: whole fits."""

import dataclasses
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from conftest import confounded_table, four_sd, runs
from modifind import WCMMD, EffectLikelihood, ModifierSelector, PropensityModel
from modifind.data.clusters import LAST_WORD, RowPlan
from modifind.data.features import AdditionalDiscrete
from modifind.data.sources import FrameSource, Piece
from modifind.datasets import make_modifiers
from modifind.engine import passes as scored
from modifind.engine.passes import LocalPieces
from modifind.result.selection_result import SelectionResult
from streams import FAST, SMALL, close, cut, fit, fit_source, logistic_scores


@pytest.mark.study
@pytest.mark.parametrize("kind", ["NonlinMean", "LinVar"])
def test_streamed_fit_finds_what_all_rows_in_memory_tell(kind):
    data = make_modifiers(kind, n_samples=4000, n_features=6, random_state=2)
    settings = {"features": list(data.X), "cv": 5}
    found = fit(data.X, data.y, data.treatment, **settings)
    whole = fit(data.X, data.y, data.treatment, max_train_rows=4000, **settings)
    assert set(found.selected) == set(whole.selected) == set(data.modifiers)
    # Importance is of all rows in both, up to bins and bandwidths from a sample of the rows.
    np.testing.assert_allclose(found.table["importance"], whole.table["importance"], rtol=0.25, atol=2e-4)
    for name in data.modifiers[:2]:
        one, two = found.curve(name), whole.curve(name)
        # Curves are of 1500 rows and of 4000 that include them; a band is two standard errors of the former.
        ends = (one[f"mean_effect{end}"] for end in ("", "_low", "_high"))
        at, low, high = (np.interp(two["value"], one["value"], end) for end in ends)
        assert (np.abs(at - two["mean_effect"]) < high - low).all()
        assert (np.abs(at - two["mean_effect"]) < (high - low) / 2).mean() > 0.8
    # The models have seen less than half of the rows; log-likelihood gains are alike.
    np.testing.assert_allclose(found.table["likelihood_gain"][:5], whole.table["likelihood_gain"][:5], rtol=0.4)


def test_defaults_work_above_the_limit():
    data = make_modifiers("LinMean", n_samples=1500, n_features=5, random_state=2)
    found = ModifierSelector(max_train_rows=700, random_state=0).fit(data.X, data.y, treatment=data.treatment).result_
    assert set(found.selected) == set(data.modifiers)
    assert found.settings["n_train_rows"] == 700
    assert found.settings["model"]["n_folds"] == 5
    assert found.diagnostics["sampler"].isin(["gaussian", "boosting"]).all()


def test_result_records_rows_and_sample(data, streamed):
    settings = streamed.settings
    assert (settings["n_rows"], settings["n_train_rows"], settings["max_train_rows"]) == (4000, 1500, 1500)
    assert settings["n_treated"] == int(data.treatment.sum())
    assert settings["n_control"] == 4000 - settings["n_treated"]
    assert settings["n_resamples_used"] == 0
    assert settings["seed"] == 0
    assert settings["model"]["stack"] == "linear 1.00"
    assert streamed.table.index.tolist() == [f"X{j}" for j in range(1, 7)]
    assert streamed.overlap["effective_rows_treated"] == pytest.approx(settings["n_treated"])
    assert (streamed.diagnostics["n_resamples"] == 0).all()


def test_table_in_memory_does_not_record_a_sample(data):
    result = fit(data.X[:300], data.y[:300], data.treatment[:300])
    assert "n_train_rows" not in result.settings


def test_report_and_json_hold_a_streamed_result(base, streamed, tmp_path):
    base.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == base
    streamed.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == streamed
    streamed.report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "X1" in text
    assert "4000" in text or "4,000" in text


def test_result_is_the_same_for_one_job_and_two(few):
    source = cut(few.X[["age", "site"]], few.y, few.treatment, 250)
    one, two = (fit_source(source, **SMALL, sampler="auto", n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one == two
    assert one.table["p_value"].between(0, 1).all()


def test_same_seed_same_answer_and_other_seed_other_sample(two):
    settings = SMALL | {"explain": False}
    first, again, other = (fit(two.X, two.y, two.treatment, **settings, random_state=seed) for seed in (7, 7, 8))
    assert first == again
    assert (first.table["p_value"] != other.table["p_value"]).any()
    drawn = fit(two.X, two.y, two.treatment, **settings, random_state=None)
    assert fit(two.X, two.y, two.treatment, **settings, random_state=drawn.settings["seed"]) == drawn


@pytest.mark.parametrize("piece_rows", [133, 899])
def test_size_of_the_pieces_does_not_matter(few, base, piece_rows):
    close(fit_source(cut(few.X, few.y, few.treatment, piece_rows), **SMALL), base)


def test_size_of_the_blocks_does_not_matter(few, base, monkeypatch):
    monkeypatch.setattr(scored, "BLOCK_ROWS", 97)
    close(fit(few.X, few.y, few.treatment, **SMALL), base)


def test_repeated_cross_fits_are_streamed_too(two):
    statistic = EffectLikelihood("linear", cv_repeats=2)
    one = fit(two.X, two.y, two.treatment, **SMALL, statistic=statistic)
    close(fit_source(cut(two.X, two.y, two.treatment, 250), **SMALL, statistic=statistic), one)
    once = fit(two.X, two.y, two.treatment, **SMALL)
    assert (one.table["p_value"] != once.table["p_value"]).any()
    assert one.selected[0] == once.selected[0] == "age"


@pytest.fixture
def spied(two, monkeypatch):
    """The plan that workers get in a fit, and the sums that they return."""
    seen = SimpleNamespace()
    add_up = LocalPieces.sums

    def spy(self, plan, n_rows, advance, *, saved=True):
        sums = add_up(self, plan, n_rows, advance, saved=saved)
        if saved:
            seen.plan, seen.sums = plan, sums
        return sums

    monkeypatch.setattr(LocalPieces, "sums", spy)
    fit(two.X, two.y, two.treatment, cv=5, **SMALL)
    return seen


def test_variance_that_folds_share_is_of_the_sample_alone(spied, two):
    scoring = spied.plan.scoring
    everyone = dataclasses.replace(scoring, rows=scoring.rows.limited(LAST_WORD))
    everyone = dataclasses.replace(spied.plan, scoring=everyone)
    whole = everyone.sums(Piece(0, two.X, pd.Series(two.y), pd.Series(two.treatment)))
    for found, all_rows in zip(spied.sums.features, whole.features, strict=True):
        assert list(found.parts) == ["test", "outcome"]
        for part in all_rows.parts.values():
            assert part.per_fold.sum() == pytest.approx(part.rows.second, rel=1e-9)
        # 400 of 900 rows, whose variances differ.
        test = found.parts["test"]
        assert test.per_fold.sum() / test.rows.second == pytest.approx(400 / 900, abs=0.1)
        assert all(part.per_fold.shape == (1, 5) for part in found.parts.values())


def test_plan_of_the_workers_is_small_and_has_no_rows(spied):
    assert len(pickle.dumps(spied.plan)) < 100_000
    assert spied.plan.statistic.y.size == spied.plan.scoring.propensity.raw.size == 1


def test_index_and_container_of_the_table_do_not_matter(few):
    X = few.X[["age", "dose", "visits"]]
    expected = fit(X, few.y, few.treatment, **SMALL)
    odd = X.set_axis(np.arange(900)[::-1] * 3, axis=0)
    people = [f"person {k}" for k in range(900)]
    for frame, labels in ((odd, odd.index), (X, people)):
        found = fit(frame, pd.Series(few.y, index=labels), pd.Series(few.treatment, index=labels), **SMALL)
        assert found == expected
    assert fit(X.set_axis(["same"] * 900, axis=0), list(few.y), few.treatment.tolist(), **SMALL) == expected
    array = fit(X.to_numpy(), few.y[:, None], few.treatment, **SMALL)
    assert array.table.index.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(array.table["p_value"], expected.table["p_value"])


@pytest.mark.parametrize(
    ("labels", "treated", "shown"),
    [([False, True], None, (False, True)), (["new", "old"], "old", ("new", "old")), (["usual care", "x"], None, None)],
)
def test_treatment_of_any_two_labels(few, base, labels, treated, shown):
    found = fit(few.X, few.y, np.array(labels)[few.treatment], treated=treated, **SMALL)
    assert_frame_equal(found.table, base.table, check_exact=True)
    assert (found.settings["control_label"], found.settings["treated_label"]) == (shown or tuple(labels))


def test_other_label_as_treated_swaps_the_arms(few, base):
    found = fit(few.X, few.y, few.treatment, treated=0, **SMALL)
    assert found.settings["treated_label"] == 0
    one, two = found.curve("age"), base.curve("age")
    np.testing.assert_allclose(one["mean_effect"], -two["mean_effect"], rtol=1e-8)


def test_binary_outcome_is_streamed():
    rng = np.random.default_rng(8)
    X, treatment = confounded_table(rng, 2500, 3, shift=0.0)
    chance = 1 / (1 + np.exp(-(0.3 * X[:, 1] + 2.0 * treatment * X[:, 0])))
    y = np.where(rng.random(2500) < chance, 7.0, 3.0)
    result = fit(X, y, treatment, max_train_rows=1000)
    assert result.selected == ["x0"]
    assert result.settings["model"]["likelihood"] == "bernoulli"
    coded = fit(X, y == 7.0, treatment, max_train_rows=1000)
    np.testing.assert_allclose(coded.table["p_value"], result.table["p_value"], rtol=1e-9)


def test_logarithm_of_the_outcome_is_that_of_a_logged_outcome(two):
    y = two.y / 4
    plain = fit(two.X, y, two.treatment, **SMALL)
    logged = fit(two.X, np.exp(y), two.treatment, **SMALL, outcome_transform="log")
    assert logged.settings["outcome_transform"] == "log"
    np.testing.assert_allclose(logged.table["p_value"], plain.table["p_value"], rtol=1e-6)
    np.testing.assert_allclose(logged.table["importance"], plain.table["importance"], rtol=1e-6)


def test_skewed_outcome_is_warned_of(few):
    with pytest.warns(UserWarning, match="strongly skewed"):
        result = fit(few.X[["age", "dose"]], np.exp(few.y / 2), few.treatment, **SMALL)
    assert any("strongly skewed" in message for message in result.warnings)


@pytest.mark.parametrize("wrap", [False, True], ids=["array", "model"])
def test_known_scores_are_cut_with_the_rows(two, wrap):
    scores = logistic_scores(two)
    propensity = PropensityModel(scores, clip=(0.35, 0.9)) if wrap else scores
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*clipped")
        expected = fit(two.X, two.y, two.treatment, **SMALL, propensity=propensity)
        source = cut(two.X, two.y, two.treatment, 170, propensity)
        found = fit_source(source, **SMALL, propensity=propensity)
        whole = fit(two.X, two.y, two.treatment, propensity=propensity, explain=False)
    close(found, expected)
    # Each row has its own score: the sums over rows are those of the table in memory.
    for name in ("effective_rows_treated", "effective_rows_control", "n_clipped", "extreme_share"):
        assert found.overlap[name] == pytest.approx(whole.overlap[name], rel=1e-9), name
    if wrap:
        assert found.overlap["n_clipped"] == ((scores < 0.35) | (scores > 0.9)).sum()
        assert any(
            f"{found.overlap['n_clipped']:.0f} of 900 propensity scores" in text for text in found.checks["text"]
        )


def test_scores_as_a_list_or_series_with_labels_of_its_own_follow_the_rows(two):
    scores = logistic_scores(two)
    expected = fit(two.X, two.y, two.treatment, **SMALL, propensity=scores)
    series = pd.Series(scores, index=[f"person {k}" for k in np.arange(900)[::-1]])
    for propensity in (scores.tolist(), series):
        found = fit(two.X, two.y, two.treatment, **SMALL, propensity=propensity).table
        np.testing.assert_array_equal(found["p_value"], expected.table["p_value"])


def outside_the_sample(few, **settings):
    """Numbers of rows that models are not fitted to."""
    seeds = np.random.SeedSequence(FAST["random_state"]).spawn(6)
    words = RowPlan.of(seeds[0], 5, 1).words(np.arange(len(few.X)))
    return np.argsort(words)[settings.get("max_train_rows", 400) :]


@pytest.mark.parametrize("wrong", [np.nan, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("inside", [True, False], ids=["sample", "rest"])
def test_impossible_scores_are_refused_wherever_they_are(few, wrong, inside):
    scores = logistic_scores(few)
    rest = outside_the_sample(few)
    row = np.setdiff1d(np.arange(900), rest)[0] if inside else rest[0]
    scores[row] = wrong
    with pytest.raises(ValueError, match="propensity must lie strictly between 0 and 1"):
        fit(few.X[["age", "dose"]], few.y, few.treatment, **SMALL, propensity=scores)


def test_fitted_propensity_scores_every_row(two):
    result = fit(two.X, two.y, two.treatment, **SMALL, propensity="auto")
    assert "logistic regression" in result.settings["propensity_model"]
    assert 0.5 < result.overlap["auc"] < 0.75
    assert 700 < result.overlap["effective_rows_treated"] + result.overlap["effective_rows_control"] < 900


def test_text_and_categories_are_tested(base):
    result = base
    assert result.table["kind"].tolist() == ["continuous"] * 2 + ["discrete"] * 4
    assert {"age", "site"} <= set(result.selected)
    assert result.curve("stage")["value"].tolist() == ["mild", "bad"]
    assert result.curve("site")["value"].tolist() == ["north", "south", "west"]
    assert result.curve("smoker")["value"].tolist() == [False, True]
    assert result.curve("visits")["value"].tolist() == [0, 1, 2, 3, 4]
    west = result.curve("site").set_index("value")["mean_effect"]
    assert west["west"] - west["north"] == pytest.approx(2.0, abs=1.0)


def test_columns_declared_discrete(few):
    chosen = fit(few.X, few.y, few.treatment, **SMALL, discrete_features=["smoker"])
    assert chosen.table.loc["visits", "kind"] == "continuous"
    also = fit(
        few.X.assign(age=few.X["age"].round()),
        few.y,
        few.treatment,
        **SMALL,
        discrete_features=AdditionalDiscrete(("age",)),
    )
    assert also.table.loc[["age", "visits"], "kind"].tolist() == ["discrete", "discrete"]


@pytest.mark.parametrize("flat", [2.5, "same"])
def test_constant_column_warns_and_has_p_value_one(few, flat):
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: flat"):
        result = fit(few.X[["age", "dose"]].assign(flat=flat), few.y, few.treatment, **SMALL)
    row = result.table.loc["flat"]
    assert (row["importance"], row["p_value"], row["selected"]) == (0.0, 1.0, False)
    assert any("flat" in message for message in result.warnings)
    assert "age" in result.selected


def test_monotone_copies_are_named_and_not_tested(few):
    frame = few.X[["age", "dose"]].assign(log_age=np.exp(few.X["age"]))
    with pytest.warns(UserWarning, match="identical, or nearly so, up to relabelling or units: age = log_age"):
        result = fit(frame, few.y, few.treatment, **SMALL)
    assert result.table.loc[["age", "log_age"], "p_value"].tolist() == [1.0, 1.0]
    assert result.table.loc["dose", "p_value"] < 1


def test_column_that_is_constant_in_the_sample_only_is_not_called_a_function_of_the_others(few):
    rare = np.zeros(900)
    rare[outside_the_sample(few)[:6]] = 1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(few.X[["age", "dose"]].assign(rare=rare), few.y, few.treatment, **SMALL)
    texts = [str(own.message) for own in caught]
    assert result.table.loc["rare", "p_value"] == 1.0
    assert any("rare" in text for text in texts)
    assert not any("almost determined by the other features" in text for text in texts)


def test_category_that_the_sample_lacks_is_shown_and_harms_nothing(few):
    site = few.X["site"].to_numpy(dtype=object)
    site[outside_the_sample(few)[:30]] = "atlantis"
    result = fit(few.X.assign(site=site), few.y, few.treatment, **SMALL, sampler="auto")
    assert result.curve("site")["value"].tolist() == ["atlantis", "north", "south", "west"]
    assert {"age", "site"} <= set(result.selected)
    assert np.isfinite(result.table[["statistic", "p_value", "importance"]]).all().all()


def test_outcome_that_is_binary_in_the_sample_only_is_refused(few):
    y = np.round(few.y > 0).astype(float)
    y[outside_the_sample(few)[0]] = -99.0
    with pytest.raises(ValueError, match="codes that stand for missing values"):
        fit(few.X, y, few.treatment, **SMALL)


def test_arm_that_is_rare_in_the_sample_is_refused(few):
    treatment = np.zeros(900, dtype=int)
    treatment[:40] = 1
    with pytest.raises(ValueError, match="raise max_train_rows"):
        fit(few.X, few.y, treatment, cv=5, **SMALL)


def test_object_outcome_of_numbers_is_read_as_in_memory(few, base):
    y = pd.Series(few.y.astype(object))
    assert_frame_equal(fit(few.X, y, few.treatment, **SMALL).table, base.table, check_exact=True)


@pytest.mark.parametrize("rows", [10, 199, 1e6, "all", None, 400.0])
def test_number_of_training_rows_is_checked(few, rows):
    with pytest.raises(ValueError, match="max_train_rows must be an integer of at least 200"):
        fit(few.X, few.y, few.treatment, max_train_rows=rows)


@pytest.mark.parametrize("repeats", [0, 1.5, "two"])
def test_repeats_are_checked_as_in_memory(few, repeats):
    for rows in (900, 400):
        with pytest.raises(ValueError, match="cv_repeats must be an integer of at least 1"):
            fit(few.X, few.y, few.treatment, max_train_rows=rows, statistic=EffectLikelihood(cv_repeats=repeats))


@pytest.mark.parametrize("change", [{"estimator": "exact"}, {"device": "torch:cpu"}])
def test_wcmmd_that_needs_memory_refuses_pieces(few, change):
    X, y, treatment = few.X[["age", "dose"]][:300], few.y[:300], few.treatment[:300]
    settings = {"statistic": WCMMD(**change), "max_train_rows": 200}
    with pytest.raises(ValueError, match=r"in memory, and this one is processed in pieces; .* or raise max_train_rows"):
        fit_source(FrameSource.of(X, y, treatment), **settings)


def test_table_of_few_rows_in_pieces_is_fitted_as_in_memory(two):
    for settings in ({}, {"propensity": "auto", "n_resamples": 99}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            expected = fit(two.X, two.y, two.treatment, **settings)
            n_warnings = len(caught)
            found = fit_source(cut(two.X, two.y, two.treatment, 100), **settings)
        assert found == expected
        assert len(caught) == 2 * n_warnings


def test_table_of_few_rows_in_pieces_keeps_its_scores(two):
    scores = logistic_scores(two)
    expected = fit(two.X, two.y, two.treatment, propensity=scores)
    found = fit_source(cut(two.X, two.y, two.treatment, 100, scores))
    assert_frame_equal(found.table, expected.table, check_exact=True)
    assert found.overlap == expected.overlap


def test_fit_leaves_the_selector_as_it_was(two):
    selector = ModifierSelector(**FAST | SMALL)
    before = selector.get_params()
    selector.fit(two.X, two.y, treatment=two.treatment)
    assert selector.get_params() == before
    assert selector.feature_names_in_.tolist() == ["age", "dose"]
    assert selector.transform(two.X).columns.tolist() == ["age"]


def test_progress_counts_features_then_rows_and_features_again(two):
    calls = []
    source = cut(two.X, two.y, two.treatment, 300)
    fit_source(source, **SMALL, progress=lambda done, total: calls.append((done, total)))
    features, rows = [(k, 2) for k in range(3)], [(k, 900) for k in (0, 300, 600, 900)]
    assert calls == [*features, *rows, *rows, *features]  # tests, importance


def test_check_by_resampling_is_said_to_have_no_effect(two):
    with pytest.warns(UserWarning, match="check_resamples has no effect"):
        result = fit(two.X, two.y, two.treatment, **SMALL, statistic=EffectLikelihood("linear", check_resamples=50))
    assert result.diagnostics["check_p_value"].isna().all()
    assert any("check_resamples" in message for message in result.warnings)


def test_resamples_are_said_to_have_no_effect(two):
    with pytest.warns(UserWarning, match="n_resamples has no effect"):
        fit(two.X, two.y, two.treatment, **SMALL, n_resamples=99)


def test_lengths_must_agree(few):
    with pytest.raises(ValueError, match="y has 899 rows but X has 900"):
        fit(few.X, few.y[:-1], few.treatment, **SMALL)
    with pytest.raises(ValueError, match="treatment has 3 rows but X has 900"):
        fit(few.X, few.y, few.treatment[:3], **SMALL)
    with pytest.raises(ValueError, match=r"propensity array must have one score per row \(900\); found shape \(5,\)"):
        fit(few.X, few.y, few.treatment, **SMALL, propensity=np.full(5, 0.5))
    with pytest.raises(ValueError, match="required"):
        fit(few.X, None, few.treatment, **SMALL)


@pytest.mark.study
def test_null_features_are_selected_no_more_often_than_they_should_be():
    p_values = []
    for seed in range(runs(6, 2)):
        rng = np.random.default_rng(seed)
        X, treatment = confounded_table(rng, 1000, 6)
        y = (2 * treatment - 1) * X[:, 0] + X[:, 1] + rng.normal(size=1000)
        result = fit(X, y, treatment, max_train_rows=500, propensity="auto", random_state=seed)
        assert result.table.loc["x0", "p_value"] < 1e-6
        p_values.append(result.table["p_value"].to_numpy()[2:])
    # 24 p-values of all runs: three standard deviations above 0.05 are 0.18.
    assert (np.array(p_values) <= 0.05).mean() <= 0.05 + 0.75 * four_sd(0.05, np.size(p_values))

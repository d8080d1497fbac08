"""Trials randomised within strata."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from conftest import four_sd, runs
from modifind import EffectLikelihood, ModifierSelector
from modifind.cli.app import main
from modifind.data.clusters import stratum_folds
from modifind.engine.preparation import observed_scores
from modifind.engine.reading import Given
from modifind.nuisance.propensity.scores import PropensityModel, overlap_of
from modifind.result.selection_result import SelectionResult
from tables import read, read_rows

RATIOS = np.array([0.25, 0.5, 0.7, 0.8])
BASELINES = np.array([0.0, 1.5, 3.0, -1.0])


def trial(seed, n=600, d=4):
    """Sites differ in ratio, baseline and features; x1 is prognostic, x2 modifies the effect, the others do nothing."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 4, size=n)
    X = rng.normal(size=(n, d))
    X[:, [0, 2]] += 0.5 * np.array([-1.0, 0.0, 1.0, 1.5])[site][:, None]
    treatment = (rng.random(n) < RATIOS[site]).astype(int)
    y = BASELINES[site] + treatment * (0.5 + 0.6 * X[:, 2]) + X[:, 1] + rng.normal(size=n)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    return frame, y, treatment, np.array(["north", "south", "east", "west"])[site]


def selector(**settings):
    parts = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "explain": False}
    return ModifierSelector(**(parts | settings))


@pytest.fixture(scope="module")
def fitted():
    X, y, treatment, site = trial(0)
    return selector().fit(X, y, treatment=treatment, strata=site), (X, y, treatment, site)


def test_the_stratum_is_no_row_of_the_result(fitted):
    found, (X, _, _, _) = fitted
    assert list(found.result_.table.index) == list(found.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    assert list(found.result_.diagnostics.index) == list(found.result_.curves) == ["x0", "x1", "x2", "x3"]
    assert found.n_features_in_ == 4
    assert list(found.transform(X).columns) == found.result_.selected == ["x2"]


def test_p_values_are_adjusted_over_the_tested_features(fitted):
    X, y, treatment, site = fitted[1]
    table = selector(adjust="bonferroni").fit(X, y, treatment=treatment, strata=site).result_.table
    np.testing.assert_allclose(table["p_adjusted"], np.minimum(4 * table["p_value"], 1.0))


def test_scores_are_the_strata_s_shares_of_treated_rows(fitted):
    found, (X, y, treatment, site) = fitted
    settings = found.result_.settings
    assert settings["n_strata"] == 4
    assert "4 strata (a saturated model, not cross-fitted)" in settings["propensity_model"]
    assert settings["null_hypothesis"].endswith("given the other features and the stratum")
    data = read(Given(X, y, treatment, strata=site))
    assert data.recorded["n_strata"] == 4
    scores = observed_scores(PropensityModel(), data.block.scores, "", data.block)
    shares = pd.Series(treatment).groupby(site).mean()
    np.testing.assert_allclose(scores.raw, shares[site])
    profile = scores.profile(0)
    np.testing.assert_allclose(profile(np.full(600, 7.0)), scores.scores)
    clipped = observed_scores(PropensityModel(clip=(0.3, 0.6)), data.block.scores, "", data.block)
    assert clipped.n_clipped == ((scores.raw < 0.3) | (scores.raw > 0.6)).sum() > 0


def test_weighted_scores_are_weighted_shares():
    rng = np.random.default_rng(1)
    arms, codes, weights = rng.integers(0, 2, 100), rng.integers(0, 2, 100), rng.uniform(0.5, 2, size=100)
    given = Given(rng.normal(size=(100, 2)), rng.normal(size=100), arms, sample_weight=weights, strata=codes)
    block = read_rows(given)[1]
    fitted = observed_scores(PropensityModel(), block.scores, "", block)
    first = codes == 0
    assert fitted.raw[first][0] == pytest.approx(weights[first & (arms == 1)].sum() / weights[first].sum())
    assert overlap_of(fitted)["max_weight_share_treated"] > 0


def test_known_scores_and_classifiers_stay(fitted):
    X, y, treatment, site = fitted[1]
    known = pd.Series(site).map(dict(zip(["north", "south", "east", "west"], RATIOS, strict=True))).to_numpy()
    half = selector(propensity=0.5).fit(X, y, treatment=treatment, strata=site, features=range(4)).result_
    assert half.settings["propensity_model"] == "known, 0.5 for every row"
    # Scores by stratum are a function of the stratum, which is among the columns: no warning.
    rows = selector(propensity=known).fit(X, y, treatment=treatment, strata=site).result_
    assert "R2 = 1.000" in rows.settings["propensity_model"]
    assert rows.checks.loc[rows.checks["name"] == "known_scores", "passed"].all()
    learned = selector(propensity=LogisticRegression()).fit(X, y, treatment=treatment, strata=site).result_
    assert learned.settings["propensity_model"] == "LogisticRegression(), cross-fitted"
    assert learned.overlap["auc"] > 0.6  # the stratum is among the columns


def test_labels_and_order_of_strata_do_not_matter(fitted):
    found, (X, y, treatment, site) = fitted
    codes = pd.Series(site, index=np.arange(600)[::-1]).map({"north": 3.5, "south": 1.0, "east": 2.0, "west": -1.0})
    again = selector().fit(X, y, treatment=treatment, strata=codes.to_numpy()).result_
    # Another level is the reference of the indicators, and folds are drawn in another order.
    np.testing.assert_allclose(
        again.table["statistic"].drop("x0"), found.result_.table["statistic"].drop("x0"), atol=1.5
    )
    assert again.selected == found.result_.selected


def test_results_do_not_depend_on_the_number_of_processes(fitted):
    found, (X, y, treatment, site) = fitted
    again = clone(found).set_params(n_jobs=2).fit(X, y, treatment=treatment, strata=site)
    pd.testing.assert_frame_equal(again.result_.table, found.result_.table)


def test_wcmmd_takes_strata():
    X, y, treatment, site = trial(2, n=300, d=3)
    y = y - BASELINES[pd.factorize(site)[0]] + 3 * treatment * X["x2"]
    result = selector(statistic="wcmmd", n_resamples=80).fit(X, y, treatment=treatment, strata=site).result_
    assert list(result.table.index) == ["x0", "x1", "x2"]
    assert result.table["p_value"]["x2"] < 0.05


def test_folds_divide_every_stratum_and_arm():
    rng = np.random.default_rng(3)
    arms, codes = rng.integers(0, 2, size=503), rng.integers(0, 5, size=503)
    folds = stratum_folds(arms, codes, 5, seed=1)
    counts = pd.crosstab([arms, codes], folds).to_numpy()
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1
    by_arm = pd.crosstab(arms, folds).to_numpy()
    assert (by_arm.max(axis=1) - by_arm.min(axis=1)).max() <= 1
    assert (folds != stratum_folds(arms, codes, 5, seed=2)).any()
    few = stratum_folds(np.array([0, 0, 0, 1, 1, 1, 0]), np.zeros(7, dtype=int), 5, seed=0)
    assert few.max() == 2


def test_the_model_s_folds_are_the_strata_s(monkeypatch, fitted):
    X, y, treatment, site = fitted[1]
    seen = []
    prepare = EffectLikelihood.prepare

    def spy(self, nuisances):
        seen.extend(nuisances.folds)
        assert nuisances.table.names[-1] == "stratum"
        return prepare(self, nuisances)

    monkeypatch.setattr(EffectLikelihood, "prepare", spy)
    selector(cv=4).fit(X, y, treatment=treatment, strata=site)
    counts = pd.crosstab([treatment, site], seen[0]).to_numpy()
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_the_stratum_s_name_is_free():
    X, strata = pd.DataFrame({"stratum": np.arange(60.0)}), np.array(["a", "a", 2, 2, 2, 2] * 10, dtype=object)
    table = read(Given(X, np.sin(np.arange(60)), np.arange(60) % 2, strata=strata)).block.table
    assert table.names == ("stratum", "(stratum)")
    assert table.categories == (None, ("2", "a"))
    np.testing.assert_array_equal(table.values[:, 1], strata == "a")


def refused(strata, match, **frame):
    X, y, treatment, site = trial(4, n=200)
    X = X.assign(**{name: make(site) for name, make in frame.items()})
    with pytest.raises(ValueError, match=match):
        selector().fit(X, y, treatment=treatment, strata=strata(site, treatment))


def test_impossible_strata_are_refused():
    refused(lambda site, _: site[:50], "strata has 50 rows but X has 200")
    refused(lambda site, _: np.where(np.arange(200) < 3, None, site), "strata has 3 missing values")
    refused(lambda site, _: ["all"] * 200, "strata has one value only \\('all'\\)")


def test_labels_of_strata_may_be_anything():
    X, y, treatment, _ = trial(4, n=200)
    for labels in ([["a"], ["b"]], [(0, 1), (1, 0)], [1.5, "x"]):
        strata = pd.Series([labels[k % 4 // 2] for k in range(200)], dtype=object)
        np.testing.assert_array_equal(read(Given(X, y, treatment, strata=strata)).strata, np.arange(200) % 4 // 2)


def test_a_stratum_with_few_rows_of_an_arm_is_named():
    def small(site, treatment):
        site = site.copy()
        site[np.flatnonzero(treatment == 1)[:3]] = "tiny"
        site[np.flatnonzero(treatment == 0)[:6]] = "tiny"
        return site

    refused(small, r"at least 5 rows of each arm; too few in 'tiny' \(3 treated, 6 control\)")
    X, y, _, _ = trial(4, n=200)
    with pytest.raises(ValueError, match="and 57 more"):
        read(Given(X, y, np.arange(200) % 2, strata=np.repeat(np.arange(20), 10) * 10 + np.arange(200) % 3))


def test_strata_that_are_a_feature_are_refused():
    refused(
        lambda site, _: site, "strata has the same content as the feature 'region'", region=lambda s: np.char.upper(s)
    )
    codes = {"north": 0.5, "south": 7.0, "east": 2.0, "west": 11.0}
    refused(lambda site, _: site, "'size'", size=lambda s: [codes[label] for label in s])


def test_a_function_of_the_stratum_is_named_as_determined():
    X, y, treatment, site = trial(5)
    X["coast"] = np.isin(site, ["north", "west"])
    with pytest.warns(UserWarning, match="coast: almost determined"):
        result = selector().fit(X, y, treatment=treatment, strata=site).result_
    assert result.table["p_value"]["coast"] == 1.0


@pytest.mark.study
def test_null_features_of_a_stratified_trial_keep_the_level():
    p_values = []
    for seed in range(runs(10, 3)):
        X, y, treatment, site = trial(seed, n=400, d=8)
        table = selector(random_state=seed).fit(X, y, treatment=treatment, strata=site).result_.table
        p_values.extend(table["p_value"].drop(["x1", "x2"]))
    assert np.mean(np.array(p_values) <= 0.05) < 0.05 + four_sd(0.05, len(p_values))


# The command line.


@pytest.fixture(scope="module")
def path(tmp_path_factory, fitted):
    X, y, treatment, site = fitted[1]
    path = tmp_path_factory.mktemp("trial") / "trial.csv"
    X.assign(arm=treatment, change=y, site=site).to_csv(path, index=False)
    return path


def select(monkeypatch, path, *options):
    arguments = ["modifind", "select", str(path), "--treatment", "arm", "--outcome", "change", *options]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_strata_on_the_command_line(monkeypatch, tmp_path, path, fitted):
    out = tmp_path / "result.json"
    options = ("--strata", "site", "--learner", "linear", "--sampler", "gaussian", "--out", str(out))
    assert select(monkeypatch, path, *options) == 0
    pd.testing.assert_frame_equal(SelectionResult.from_json(out).table, fitted[0].result_.table, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strata", "city"), "--strata: no column 'city'"),
        (("--strata", "arm"), "--treatment and --strata both name 'arm'"),
        (("--strata", "site", "--features", "x0,site"), "--strata and --features both name 'site'"),
    ],
)
def test_wrong_strata_on_the_command_line(monkeypatch, capsys, path, options, message):
    assert select(monkeypatch, path, *options) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert len(complaint.strip().splitlines()) == 1

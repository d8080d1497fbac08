"""Weights, clusters, strata and groups of tables that are processed in pieces; failures and interrupts there."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from conftest import four_sd, runs
from modifind import ModifierSelector
from modifind.data.sources import FrameSource, open_files
from modifind.engine import job
from modifind.engine.features import Analysis
from modifind.inference import RowSums, analytic_test, sums_test
from modifind.nuisance.conditional import GaussianSampler
from streams import FAST, close

SITES = {"north": 0.3, "south": 0.5, "east": 0.6}


def table(seed=0, n=1200, n_clusters=60, effect=0.5):
    """Clinics of their own level, sites that treat more or fewer, and rows that stand for more or fewer."""
    rng = np.random.default_rng(seed)
    clinic, site = rng.integers(0, n_clusters, n), rng.choice(list(SITES), n)
    arms = (rng.random(n) < pd.Series(site).map(SITES).to_numpy()).astype(int)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["dose", "age", "weight"]).assign(sex=rng.choice(["f", "m"], n))
    y = X["age"] + rng.normal(size=n_clusters)[clinic] + (site == "south") + effect * arms * X["dose"]
    rows = {"sample_weight": rng.exponential(size=n) + 0.2, "clusters": [f"c{own}" for own in clinic], "strata": site}
    return X, y + rng.normal(size=n), arms, rows


def fit(X, y, arms, piece_rows=None, **given):
    rows = {name: given.pop(name) for name in ("sample_weight", "clusters", "strata") if name in given}
    adjusted = given.pop("adjust_for", None)
    selector = ModifierSelector(**FAST | {"propensity": "auto", "max_train_rows": 600} | given)
    source = FrameSource.of(X, y, arms, per_row=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = dataclasses.replace(source, piece_rows=piece_rows or len(X))
        return selector.fit(source, adjust_for=adjusted).result_


@pytest.mark.parametrize(
    "names", [("sample_weight",), ("clusters",), ("strata",), ("sample_weight", "clusters", "strata")]
)
def test_answer_does_not_depend_on_the_cut(names):
    X, y, arms, rows = table()
    rows = {name: rows[name] for name in names} | {"explain": len(names) > 1}
    whole = fit(X, y, arms, **rows)
    # Shares of strata are sums of weights, which scores and curves follow to the last digits.
    close(fit(X, y, arms, 137, **rows), whole, 1e-9, rtol=1e-9)
    assert whole.table["p_value"].idxmin() == "dose"
    recorded = {"sample_weight": "sample_weight", "clusters": "clusters", "strata": "n_strata"}
    assert all(recorded[name] in whole.settings for name in names)
    assert list(whole.table.index.sort_values()) == ["age", "dose", "sex", "weight"]


def test_few_rows_are_those_of_a_table_in_memory():
    X, y, arms, rows = table()
    selector = ModifierSelector(**FAST | {"propensity": "auto", "max_train_rows": 1200})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = selector.fit(X, y, arms, **rows).result_
    close(fit(X, y, arms, 137, **rows, max_train_rows=1200), whole)


def test_weights_that_are_all_alike_change_nothing():
    X, y, arms, _ = table()
    plain, alike = (fit(X, y, arms, explain=False, **own) for own in ({}, {"sample_weight": np.full(len(X), 7.0)}))
    np.testing.assert_allclose(alike.table["statistic"], plain.table["statistic"], rtol=0.02, atol=0.02)
    # Bandwidths of weighted rows are those of 1000 that stand for them.
    np.testing.assert_allclose(alike.table["importance"], plain.table["importance"], rtol=0.02)


def test_rows_of_weight_zero_count_for_nothing():
    X, y, arms, _ = table()
    weights = np.where(np.arange(len(X)) % 4, 1.0, 0.0)
    odd = y.where(weights > 0, 1e3)
    one, two = (fit(X, own, arms, sample_weight=weights, explain=False) for own in (y, odd))
    np.testing.assert_allclose(one.table["likelihood_gain"], two.table["likelihood_gain"], rtol=0.05, atol=1e-4)
    np.testing.assert_allclose(one.table["p_value"], two.table["p_value"], rtol=0.05, atol=1e-4)
    assert "dose" in two.selected


def test_sums_of_clusters_are_those_of_rows_in_memory():
    rng = np.random.default_rng(0)
    n, clusters = 6000, rng.integers(0, 80, 6000)
    values, weights = rng.normal(size=(n, 5)), rng.dirichlet(np.ones(5), n)
    values -= np.einsum("ij,ij->i", values, weights)[:, None]
    observed = values[:, 0] + 0.3 * rng.normal(size=80)[clusters]
    cuts = [slice(0, 1), slice(1, 2500), slice(2500, n)]
    parts = [RowSums.of(observed[cut], values[cut], weights[cut], clusters[cut], 80)[0] for cut in cuts]
    found = sums_test(parts[0] + parts[1] + parts[2], 3.0)
    whole = analytic_test(observed, values, weights, shared_variance=3.0, clusters=clusters)
    assert found.statistic == pytest.approx(whole.statistic, rel=1e-9)
    assert (found.gain_low, found.gain_high) == pytest.approx((whole.gain_low, whole.gain_high), rel=1e-9)
    assert found.p_value == pytest.approx(whole.p_value, rel=0.02)
    alone, _ = RowSums.of(observed, values, weights)
    assert found.p_value > 1.5 * sums_test(alone, 3.0).p_value  # rows that are not independent tell less


@pytest.mark.parametrize("dated", [str, pd.Timestamp])
def test_strata_may_be_dates(dated):
    X, y, arms, rows = table()
    days = pd.Series([dated(f"2020-0{1 + code}-01") for code in pd.factorize(rows["strata"], sort=True)[0]])
    found, plain = (fit(X, y, arms, strata=own, explain=False) for own in (days, rows["strata"]))
    assert found.table.equals(plain.table)


def test_strata_tell_the_scores():
    X, y, arms, rows = table()
    found = fit(X, y, arms, strata=rows["strata"])
    assert found.settings["propensity_model"].startswith("share of treated rows in each of 3 strata")
    assert found.settings["null_hypothesis"].endswith("and the stratum")
    shares = pd.Series(arms).groupby(rows["strata"]).mean()
    assert found.overlap["expected_share"] == pytest.approx(arms.mean())
    assert len(found.score_histogram.query("treated > 0")) == len(shares)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: {"sample_weight": np.where(np.arange(1200) == 700, -1.0, 1.0)},
            "sample_weight has 1 negative value",
        ),
        (lambda rows: {"sample_weight": np.where(np.arange(1200) == 700, np.nan, 1.0)}, "sample_weight has 1 missing"),
        (lambda rows: {"sample_weight": np.zeros(1200)}, "sample_weight is zero in every row"),
        (lambda rows: {"clusters": np.where(np.arange(1200) == 700, None, "a")}, "clusters has 1 missing label"),
        (lambda rows: {"clusters": np.arange(1200) % 4}, "clusters has 4 labels; variances between clusters need"),
        (lambda rows: {"strata": np.where(np.arange(1200) < 7, "tiny", "rest")}, "every stratum needs at least 5 rows"),
        (lambda rows: {"strata": ["one"] * 1200}, "strata has one value only"),
        (lambda rows: {"strata": [None, *rows["strata"][1:]]}, "strata has 1 missing value; drop such rows"),
        (lambda rows: {"strata": table()[0]["sex"]}, "strata has the same content as the feature 'sex'"),
        (lambda rows: {"sample_weight": pd.array([None] + [1] * 1199, dtype="Int64")}, "sample_weight has 1 missing"),
    ],
)
def test_what_is_wrong_is_told(change, said):
    X, y, arms, rows = table()
    with pytest.raises(ValueError, match=said):
        fit(X, y, arms, 137, **change(rows))


def of_clusters(seed, effect, n=1500, n_clusters=60):
    """Patients of clinics that have a size; the effect follows the size, or nothing does but the clinic."""
    rng = np.random.default_rng(seed)
    clinic = np.repeat(np.arange(n_clusters), n // n_clusters)
    size, level = rng.normal(size=n_clusters), rng.normal(size=(n_clusters, 2))
    arms = rng.integers(0, 2, n)
    X = pd.DataFrame({"size": size[clinic], "age": rng.normal(size=n), "girls": rng.normal(size=n_clusters)[clinic]})
    y = X["age"] + level[clinic, 0] + arms * (effect * X["size"] + level[clinic, 1]) + rng.normal(size=n)
    return X, y, arms, clinic


def test_features_of_clusters_are_tested_by_the_clusters_of_the_sample():
    X, y, arms, clinic = of_clusters(0, effect=2.0)
    given = {"clusters": clinic, "explain": False}
    pieces = fit(X, y, arms, 137, max_train_rows=1200, **given)
    memory = fit(X, y, arms, max_train_rows=1500, **given)
    for found in (pieces, memory):
        assert found.selected == ["size"]
        assert found.diagnostics.loc["size", "n_clusters"] == found.diagnostics.loc["girls", "n_clusters"] == 60
    close(fit(X, y, arms, 500, max_train_rows=1200, **given), pieces, 1e-9, rtol=1e-9)
    assert abs(pieces.table.loc["girls", "statistic"] - memory.table.loc["girls", "statistic"]) < 1.5


@pytest.mark.study
def test_level_of_features_of_clusters_in_pieces_holds():
    p_values = []
    for seed in range(runs(40, 8)):
        X, y, arms, clinic = of_clusters(seed, effect=0.0)
        p_values += fit(X, y, arms, clusters=clinic, max_train_rows=1200, explain=False).table["p_value"].tolist()
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + four_sd(0.05, len(p_values))


def test_sets_of_rows_that_nobody_told_of_are_refused():
    X, y, arms, _ = of_clusters(0, effect=2.0)
    with pytest.raises(ValueError, match=r"size, girls: constant within the same 60 sets .* as clusters="):
        fit(X, y, arms, 137, max_train_rows=1200)


def test_files_bring_weights_clusters_and_strata(tmp_path):
    X, y, arms, rows = table()
    X.assign(y=y, arm=arms, **rows).to_csv(tmp_path / "all.csv", index=False)
    own = {name: name for name in rows}
    source = open_files(str(tmp_path / "all.csv"), list(X.columns), "y", "arm", own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = FAST | {"propensity": "auto", "max_train_rows": 600, "explain": False}
        found = ModifierSelector(**settings).fit(dataclasses.replace(source, piece_rows=137)).result_
    expected = fit(X, y, arms, 137, **rows, explain=False).table
    assert_frame_equal(found.table, expected, rtol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in (tmp_path / "all.csv", [str(tmp_path / "a*.csv")]):
            assert_frame_equal(
                ModifierSelector(**settings).fit(path, "y", "arm", **own).result_.table, expected, rtol=1e-8
            )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("y", np.zeros(3)), "X is a file, so treatment must be the name of one of its columns"),
        (("y",), "X is a file, so treatment must be the name"),
        (("y", "group"), "treatment names 'group', which is not a column of X"),
    ],
)
def test_columns_of_a_file_have_names(tmp_path, arguments, said):
    pd.DataFrame({"age": [1, 2], "y": [1, 2], "arm": [0, 1]}).to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(ValueError, match=said):
        ModifierSelector().fit(tmp_path / "all.csv", *arguments)


@pytest.mark.study
@pytest.mark.parametrize("names", [("clusters",), ("sample_weight", "strata")])
def test_null_features_are_found_no_more_often_than_they_may(names):
    """Clusters of their own level, which features that differ little within them share in part."""
    p = []
    for seed in range(runs(12, 8)):  # at most 6 of 32 p-values, instead of 8 of 48
        X, y, arms, rows = table(seed, effect=0.0)
        found = fit(X, y, arms, **{name: rows[name] for name in names}, explain=False, random_state=seed)
        p += found.table["p_value"].tolist()
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + four_sd(0.05, len(p))


def test_partitions_on_a_cluster_bring_them_too():
    dd = pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")
    X, y, arms, rows = table()
    frame = dd.from_pandas(X.assign(y=y, arm=arms, **rows), npartitions=3)
    selector = ModifierSelector(**FAST | {"propensity": "auto", "max_train_rows": 600, "explain": False})
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = selector.fit(frame, "y", "arm", **{name: name for name in rows}).result_
    assert_frame_equal(found.table, fit(X, y, arms, 400, **rows, explain=False).table, rtol=1e-8)


def test_labels_are_the_same_however_they_are_written():
    X, y, arms, rows = table()
    codes = pd.factorize(np.array(rows["clusters"]))[0]
    mixed = np.array([code if k < 700 else str(code) for k, code in enumerate(codes)], dtype=object)
    for own, most in ((codes, 600), (mixed, 600), (mixed, 5000), (codes + 2**60, 600), (codes + 2**60, 5000)):
        found = fit(X, y, arms, clusters=own, max_train_rows=most, explain=False)
        assert found.settings["clusters"] == {"n_clusters": 60}
    sites = pd.factorize(rows["strata"])[0]
    mixed = np.array([code if k < 700 else str(code) for k, code in enumerate(sites)], dtype=object)
    numbered = fit(X, y, arms, strata=mixed, explain=False)
    assert numbered.overlap == pytest.approx(fit(X, y, arms, strata=rows["strata"], explain=False).overlap)


def test_weights_as_text_and_rows_without_one():
    X, y, arms, _ = table()
    weights = pd.array([None, *np.where(np.arange(1199) % 4, 1, 0)], dtype="Int64")
    found = fit(X, y, arms, sample_weight=weights, missing="drop", explain=False)
    assert found.settings["n_rows"] == 1200 - 1 - 300
    text = fit(X[1:], y[1:], arms[1:], sample_weight=weights[1:].astype(str), explain=False)
    assert text.settings["n_rows"] == 899


# Groups of columns.


GROUPS = {"body": ["age", "weight"], "one": ["sex"]}


def pair(seed=0, n=1500):
    """The effect follows the difference of two columns that hide each other."""
    rng = np.random.default_rng(seed)
    low = rng.normal(size=n)
    X = pd.DataFrame({"low": low, "alone": rng.normal(size=n), "high": low + 0.1 * rng.normal(size=n)})
    arms = pd.Series(rng.integers(0, 2, n), name="arm")
    y = X["alone"] + arms * (X["low"] + X["high"]) / 2 + rng.normal(size=n)
    return X, y.rename("y"), arms


@pytest.mark.parametrize("names", [(), ("sample_weight", "clusters", "strata")])
def test_groups_do_not_depend_on_the_cut(names):
    X, y, arms, rows = table()
    rows = {name: rows[name] for name in names} | {"feature_groups": GROUPS, "adjust_for": ["dose"]}
    whole = fit(X, y, arms, **rows)
    close(fit(X, y, arms, 137, **rows), whole, 1e-9, rtol=1e-9)
    assert whole.table["kind"].to_dict() == {"body": "group", "one": "group"}
    assert set(whole.curves) == {"age", "weight", "sex"}
    assert whole.settings["feature_groups"] == {"body": ["age", "weight"], "one": ["sex"]}
    assert "the columns of a group counting as one feature" in whole.settings["null_hypothesis"]


def test_groups_in_pieces_find_what_they_find_in_memory():
    X, y, arms = pair()
    groups = {"feature_groups": {"both": ["low", "high"]}}
    pieces = fit(X, y, arms, 400, **groups)
    memory = fit(X, y, arms, **groups, max_train_rows=2000)
    for found in (pieces, memory):
        assert found.selected == ["both"]
        assert list(found.table.index) == ["both", "alone"]
    np.testing.assert_allclose(pieces.table["statistic"], memory.table["statistic"], rtol=0.3, atol=1.5)
    assert list(pieces.bounds) == list(memory.bounds) == ["low", "high"]


def test_groups_of_a_dask_table_are_those_of_pieces():
    dd = pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")
    X, y, arms = pair()
    groups = {"feature_groups": {"both": ["low", "high"]}}
    frame = dd.from_pandas(X.assign(y=y, arm=arms), npartitions=3)
    selector = ModifierSelector(**FAST | {"propensity": "auto", "max_train_rows": 600} | groups)
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(selector.fit(frame, "y", "arm").result_, fit(X, y, arms, 400, **groups), 1e-9, rtol=1e-9)


@pytest.mark.study
def test_level_of_groups_in_pieces_holds():
    """Null shares of groups and columns where the outcome follows both in both arms alike."""
    p_values = []
    for seed in range(runs(30, 6)):
        X, y, arms, _ = table(seed, effect=0.0)
        found = fit(X, y + X["weight"] * X["dose"], arms, 500, feature_groups=GROUPS, explain=False)
        p_values += found.table["p_value"].tolist()
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + four_sd(0.05, len(p_values))


# Files of few rows take everything that a table in memory takes.


@pytest.mark.parametrize(
    "given",
    [
        {"feature_groups": {"both": ["low", "high"]}},
        {"statistic": "wcmmd", "n_resamples": 19},
        {"placebo_runs": 2},
        {"missing_outcome": "weight"},
        {"missing_outcome": "weight", "missing": "drop"},
    ],
)
def test_few_rows_of_a_file_take_everything(tmp_path, given):
    X, y, arms = pair(n=400)
    if "missing_outcome" in given:
        y = y.where(np.arange(400) % 5 > 0)
    if "missing" in given:
        X.loc[3, "low"] = np.nan
    X.assign(y=y, arm=arms).to_csv(tmp_path / "few.csv", index=False)
    settings = {name: own for name, own in FAST.items() if name != "statistic" or "statistic" not in given}
    selector = ModifierSelector(**settings | {"propensity": "auto", "explain": False} | given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = selector.fit(tmp_path / "few.csv", "y", "arm").result_
        frame = selector.fit(X, y, arms).result_
    close(file, frame)
    assert (file.placebo is None) == ("placebo_runs" not in given)


# What goes wrong costs as little as in memory.


class Fails(GaussianSampler):
    """A sampler that breaks over one feature, when it is fitted or when rows are added up."""

    def __init__(self, feature=1, late=False):
        super().__init__()
        self.feature, self.late = feature, late

    def rule(self, feature):
        """The distribution, or none."""
        if feature != self.feature:
            return super().rule(feature)
        if not self.late:
            raise ZeroDivisionError("no rule")
        return BrokenRule(super().rule(feature))


@dataclasses.dataclass(frozen=True)
class BrokenRule:
    """A rule that takes no table of fewer rows than it was fitted to."""

    rule: object

    @property
    def calibration(self):
        """That of the rule."""
        return self.rule.calibration

    def conditional(self, table, treatment, parts):
        """The distribution of many rows."""
        if table.n_rows < 600:
            raise ZeroDivisionError("too few")
        return self.rule.conditional(table, treatment, parts)


@pytest.mark.parametrize("late", [False, True])
def test_a_distribution_that_fails_costs_one_feature(late):
    X, y, arms, _ = table()
    settings = FAST | {"propensity": "auto", "max_train_rows": 600, "sampler": Fails(late=late), "explain": False}
    selector = ModifierSelector(**settings)
    source = dataclasses.replace(FrameSource.of(X, y, arms), piece_rows=400)
    with pytest.warns(
        UserWarning, match=r"feature 'age': its test failed \(ZeroDivisionError: .*\); not tested, p = 1"
    ):
        found = selector.fit(source).result_
    assert found.table.loc["age", "p_value"] == 1.0
    assert found.selected == ["dose"]
    assert found.checks.query("name == 'failed'")["passed"].tolist() == [False]


def test_an_interrupt_while_features_are_explained_keeps_all_tests(monkeypatch):
    X, y, arms, _ = table()
    explained = Analysis.explained

    def interrupted(self, unit, *given):
        if unit.name == "weight":
            raise KeyboardInterrupt
        return explained(self, unit, *given)

    expected = fit(X, y, arms)
    monkeypatch.setattr(Analysis, "explained", interrupted)
    selector = ModifierSelector(**FAST | {"propensity": "auto", "max_train_rows": 600})
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="2 of 4 not explained"):
        selector.fit(X, y, arms)
    assert_frame_equal(selector.result_.table.iloc[:, :6], expected.table.iloc[:, :6])
    assert len(selector.result_.curves["dose"]) > 0
    assert len(selector.result_.curves["weight"]) == 0


def test_clusters_that_the_sample_has_no_row_of_do_not_count(monkeypatch):
    X, y, arms, _ = table()
    clusters, tables, fit_table = np.arange(1200) // 2, [], job.fit_table
    monkeypatch.setattr(job, "fit_table", lambda run, own, *more: tables.append(own) or fit_table(run, own, *more))
    fit(X, y, arms, 500, clusters=clusters, max_train_rows=300, explain=False)
    numbers, found = tables[0].data.first_pass.numbers, tables[0].block.clusters
    assert found.count == np.unique(clusters[numbers]).size < 300
    assert np.unique(np.stack((found.codes, clusters[numbers])), axis=1).shape[1] == found.count
    assert tables[0].data.schema.n_clusters == 600

"""The benchmark beside tests by hand: its joint Wald test, its verdicts, its files of runs, and a small run of it."""

import importlib
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f

from conftest import ROOT

RNG = np.random.default_rng(5)
N = 300


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        names = ("atlas", "by_hand", "by_hand_peers", "by_hand_tables", "halves", "interaction_tests", "placebo")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def trial():
    frame = pd.DataFrame({"x": RNG.standard_normal(N), "group": RNG.choice([*"abcd"], N, p=[0.4, 0.3, 0.2, 0.1])})
    a = RNG.integers(0, 2, N)
    y = frame["x"] + a * (frame["group"] == "b") + RNG.standard_normal(N) * np.exp(0.3 * frame["x"])
    return frame, a, y.to_numpy()


def by_formula(frame, a, y):
    """F statistics of the interactions, HC3, by their textbook formula."""
    levels = pd.get_dummies(frame["group"], drop_first=True).to_numpy(float)
    main = np.column_stack((frame["x"], levels))
    design = np.column_stack((np.ones(N), main, a, main * a[:, None]))
    bread = np.linalg.inv(design.T @ design)
    beta = bread @ design.T @ y
    hat = np.diag(design @ bread @ design.T)
    covariance = bread @ (design.T * ((y - design @ beta) / (1 - hat)) ** 2) @ design @ bread
    p = []
    for place in ([6], [7, 8, 9]):
        wald = beta[place] @ np.linalg.inv(covariance[np.ix_(place, place)]) @ beta[place]
        p.append(f.sf(wald / len(place), len(place), N - design.shape[1]))
    return p


def test_the_joint_test_is_that_of_the_formula(bench, trial):
    tests = bench["interaction_tests"].joint_tests(*trial)
    np.testing.assert_allclose(tests["p_value"], by_formula(*trial), rtol=1e-8)
    assert tests["df"].tolist() == [1, 3]


def test_the_joint_test_is_that_of_statsmodels(bench, trial):
    models = pytest.importorskip("statsmodels.formula.api", reason="statsmodels is not installed")
    frame, a, y = trial
    fitted = models.ols("y ~ a * (x + group)", frame.assign(a=a, y=y)).fit(cov_type="HC3", use_t=True)
    tests = bench["interaction_tests"].joint_tests(frame, a, y)
    terms = fitted.wald_test_terms(skip_single=False, scalar=True).table["pvalue"]
    np.testing.assert_allclose(tests["p_value"], terms[["a:x", "a:group"]].astype(float), rtol=1e-6)


def test_numbers_alone_have_the_p_values_of_the_other_function(bench):
    X, a = RNG.standard_normal((N, 3)), RNG.integers(0, 2, N)
    y = (RNG.random(N) < 0.5).astype(float)
    module = bench["interaction_tests"]
    for kind, scale in (("binary", "odds_ratio"), ("ordinal", "odds_ratio")):
        joint = module.joint_tests(pd.DataFrame(X), a, y, kind, scale)["p_value"]
        np.testing.assert_allclose(joint, module.interaction_p_values(X, a, y, kind, scale), rtol=1e-6)


def test_gaps_rare_levels_and_copies_leave_finite_p_values(bench, trial):
    frame, a, y = trial
    messy = frame.assign(copy=frame["x"], constant=1.0, rare=["z"] + ["y"] * (N - 1))
    messy.loc[:40, "x"] = np.nan
    messy.loc[5:20, "group"] = None
    p = bench["interaction_tests"].joint_tests(messy, a, y)["p_value"]
    assert ((p >= 0) & (p <= 1)).all()
    assert p["constant"] == 1.0


def test_rare_levels_are_pooled_and_signs_mean_the_same_in_both_halves(bench):
    a = np.tile([0, 1], N // 2)
    group = np.repeat(["female", "male", "neither", "other"], [141, 151, 5, 3])
    y = RNG.standard_normal(N) + a * (group == "male")
    test = bench["interaction_tests"].joint_tests
    rows = [np.arange(k, N, 3) for k in range(3)]
    z = [test(pd.DataFrame({"group": group[part]}), a[part], y[part]).loc["group"] for part in (*rows, np.arange(N))]
    assert all(one["df"] == 1 and one["z"] > 0 for one in z)


def test_clusters_of_one_row_change_errors_little_and_copies_of_rows_a_lot(bench, trial):
    frame, a, y = trial
    test = bench["interaction_tests"].joint_tests
    z = test(frame, a, y)["z"]["x"]
    assert test(frame, a, y, clusters=np.arange(N))["z"]["x"] == pytest.approx(z, rel=1e-9)
    twice = pd.concat([frame, frame]), np.tile(a, 2), np.tile(y, 2)
    copies = test(*twice, clusters=np.tile(np.arange(N), 2))["z"]["x"]
    assert copies == pytest.approx(z, rel=0.05)  # the correction for leverage is smaller
    assert abs(test(*twice)["z"]["x"]) > 1.3 * abs(z)


def test_products_of_pairs_are_those_of_a_loop(bench):
    from designs import Table

    x, a = RNG.standard_normal((N, 4)), RNG.integers(0, 2, N)
    y = a * x[:, 0] * x[:, 1] + RNG.standard_normal(N)
    p = bench["by_hand_peers"].pairs(Table(pd.DataFrame(x), a, y, [], []), 0)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    effect = 2 * (2 * a - 1) * (y - y.mean())
    effect -= effect.mean()
    z = []
    for j in (0, 2, 3):
        product = scaled[:, 1] * scaled[:, j]
        centred = product - product.mean()
        z.append(abs(centred @ effect) / math.sqrt((centred**2) @ (effect**2)))
    from scipy.stats import norm

    assert p[1] == pytest.approx(min(3 * 2 * norm.sf(max(z)), 1.0))


def test_verdicts(bench):
    module = bench["by_hand_tables"]
    none = module.NOTHING

    def judged(target, figure, difference=none):
        return module.verdict(target, figure, difference, 100)

    assert judged(module.LEVEL, module.Estimate(0.05, 0.01)) == "meets"
    assert judged(module.LEVEL, module.Estimate(0.09, 0.0)) == "within 2 SE"  # the error at the target counts
    assert judged(module.LEVEL, module.Estimate(0.10, 0.01)) == "misses"
    assert judged(module.Target("least", 0.6), module.Estimate(0.4, 0.05)) == "misses"
    figure = module.Estimate(0.5, 0.05)
    assert judged(module.AS_PEER, figure, module.Estimate(0.0, 0.01)) == "meets"
    assert judged(module.ABOVE_PEER, figure, module.Estimate(0.0, 0.01)) == "within 2 SE"
    assert judged(module.AS_PEER, figure, module.Estimate(-0.05, 0.02)) == "misses"
    assert judged(module.AS_PEER, figure, none) == "-"


def test_a_ratio_counts_groups(bench):
    ratio = bench["by_hand_tables"].ratio
    apart = ratio((k, k % 2, 1) for k in range(8))
    together = ratio((k % 4 // 2, k // 2 % 2, 1) for k in range(8))
    assert apart.value == together.value == 0.5
    assert together.error > apart.error
    assert math.isnan(ratio([]).value)


def test_a_small_trial_has_finite_columns_and_goes_on_where_it_was(bench, tmp_path, capsys, monkeypatch):
    file = tmp_path / "runs.jsonl"
    arguments = ["--study", "trial", "--only", "line 0.34", "--runs", "1", "--jobs", "1", "--out", str(file)]
    bench["by_hand"].main(arguments)
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record["methods"]) == {"modifind", "least squares"}
    for marks in record["methods"].values():
        assert marks["score"] in (0.0, 1.0)
        assert marks["null"][1] == 7
        assert np.isfinite(marks["p"]).all()
    assert record["seconds"] > 0
    assert "| line 0.34 x1 | 400 | 1 |" in capsys.readouterr().out

    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"study": "trial", "cut')  # as a kill leaves it
    monkeypatch.setattr(bench["by_hand"], "one_run", lambda *_: pytest.fail("it has been run"))
    bench["by_hand"].main(arguments)
    assert "| line 0.34 x1 | 400 | 1 |" in capsys.readouterr().out


def test_versions_are_compared_by_label(bench, tmp_path, capsys):
    file = tmp_path / "runs.jsonl"
    for label, score in (("old", 0.0), ("new", 1.0)):
        for seed in range(3):
            marks = {"score": score, "null": [0, 7], "fdp": None, "any": 0}
            record = {
                "study": "trial",
                "design": "line 0.34 x1",
                "n": 400,
                "seed": seed,
                "label": label,
                "seconds": 1.0,
            }
            bench["by_hand"].write(file, {**record, "methods": {"modifind": marks}})
    arguments = ["--study", "trial", "--runs", "0", "--out", str(file), "--label", "new", "--before", "old"]
    bench["by_hand"].main(arguments)
    assert "| line 0.34 x1 | 3 | 0.000 (0.000) | 1.000 (0.000) | 1.000 (0.000) |" in capsys.readouterr().out


def test_real_tables_are_skipped_with_a_reason(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("MODIFIND_DATA", raising=False)
    assert list(bench["atlas"].read_experiments()) == []
    assert "MODIFIND_DATA names no folder" in capsys.readouterr().out
    monkeypatch.setenv("MODIFIND_DATA", str(tmp_path))
    assert list(bench["atlas"].read_experiments()) == []
    assert "is not in the folder" in capsys.readouterr().out


@pytest.fixture
def atlas_folder(tmp_path, monkeypatch):
    """An atlas of one experiment in clusters of two rows with three arms and a missing outcome."""
    n, rng = 60, np.random.default_rng(2)
    frame = pd.DataFrame({"arm": np.tile([1, 1, 2, 2, 3, 3], n // 6), "age": rng.normal(size=n)})
    frame["sick"], frame["site"] = rng.integers(0, 2, n), np.arange(n) // 2
    frame["ward"], frame["late"] = rng.choice(["east", "west"], n), rng.normal(size=n)
    frame["sick"] = frame["sick"].astype(float)
    frame.loc[0, "sick"] = np.nan
    (tmp_path / "atlas").mkdir()
    frame.to_csv(tmp_path / "atlas" / "one.csv", index=False)
    outcomes = [{"column": "sick", "kind": "binary"}]
    treatment = {"column": "arm", "reference": "1", "treated": "2"}
    entry = {"name": "one", "file": "one.csv", "treatment": treatment, "outcomes": outcomes, "features": ["age"]}
    entry |= {"adjust": ["ward"], "discrete": [], "clusters": "site", "strata": None, "propensity": 0.5}
    entry |= {"quality": "good", "randomised": "cluster"}
    times = {**entry, "outcomes": [{"column": "late", "kind": "time"}]}
    tables = [entry, times, {**entry, "name": "gone", "file": "gone.csv"}]
    (tmp_path / "atlas" / "atlas.json").write_text(json.dumps({"tables": tables}), encoding="utf-8")
    monkeypatch.setenv("MODIFIND_DATA", str(tmp_path))


@pytest.mark.usefixtures("atlas_folder")
def test_an_experiment_is_read_by_its_design(bench, capsys):
    (one,) = bench["atlas"].read_experiments()
    assert "no file gone.csv" in capsys.readouterr().out
    assert (one.name, len(one.y), one.treatment.sum(), one.features) == ("one sick", 39, 20, ["age"])
    assert one.settings(coin=False) == {
        "outcome": "binary",
        "effect_scale": "difference",
        "missing": "category",
        "propensity": 0.5,
    }
    rng = np.random.default_rng(0)
    sites = [one.clusters[rows] for rows in bench["halves"].split(one, rng)]
    assert not set(sites[0]) & set(sites[1])
    coins = pd.Series(bench["placebo"].coins(one, rng)).groupby(one.clusters)
    assert (coins.nunique() == 1).all()
    assert set(coins.first()) == {0, 1}
    assert len(bench["atlas"].some_rows(one, 10, rng).y) <= 10


def test_finds_are_repeated_in_their_direction(bench):
    first = pd.DataFrame({"p_value": [0.001] * 4, "z": [3.0, 3.0, -3.0, np.nan], "df": [1, 1, 1, 3]})
    second = pd.DataFrame({"p_value": [0.08, 0.08, 0.12, 0.04], "z": [1.75, -1.75, -1.55, np.nan], "df": [1, 1, 1, 3]})
    assert bench["halves"].repeated(first, second).tolist() == [True, False, False, True]

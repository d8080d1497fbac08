"""'wcmmd' and statistics of users on tables in pieces: p-values from resampled features."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from conftest import four_sd, runs
from modifind import WCMMD, ConditionalRandomizationTest, ModifierSelector, PropensityModel
from modifind.data.clusters import RowPlan
from modifind.data.sources import FrameSource
from modifind.engine import resampling
from modifind.engine.resampling import ColumnMeasure
from modifind.inference.randomisation import CRTOutcome
from modifind.statistics import Statistic
from streams import close

SITES = {"north": 0.3, "south": 0.5, "east": 0.6}


def table(seed=0, n=900, effect=0.8):
    """A modifier, a prognostic feature and some that do nothing, one of them with long tails and one of levels."""
    rng = np.random.default_rng(seed)
    site = rng.choice(list(SITES), n)
    arms = (rng.random(n) < pd.Series(site).map(SITES).to_numpy()).astype(int)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["dose", "age"])
    X = X.assign(tails=rng.normal(size=n) ** 5, sex=rng.choice(["f", "m", "x"], n))
    y = X["age"] + (site == "south") + effect * arms * X["dose"] + rng.normal(size=n)
    return X, y, arms, {"sample_weight": rng.exponential(size=n) + 0.2, "strata": site}


def row_plan_numbers(n, n_sample):
    """Numbers of the rows of the sample of seed 0."""
    plan = RowPlan.of(np.random.SeedSequence(0).spawn(7)[0], 5, 1)
    return np.argsort(plan.words(np.arange(n)))[:n_sample]


def fit(X, y, arms, piece_rows=None, **given):
    rows = {name: given.pop(name) for name in ("sample_weight", "clusters", "strata") if name in given}
    settings = {"statistic": "wcmmd", "sampler": "marginal", "random_state": 0, "n_resamples": 60, "explain": False}
    selector = ModifierSelector(**settings | {"max_train_rows": 400} | given)
    source = dataclasses.replace(FrameSource.of(X, y, arms, per_row=rows), piece_rows=piece_rows or len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return selector.fit(source).result_


CASES = ("plain", "sample_weight", "strata", "missing", "horvitz_thompson", "fixed", "trees", "splines")


@pytest.mark.parametrize("case", CASES)
def test_answer_does_not_depend_on_the_cut(case):
    X, y, arms, rows = table()
    given = {case: rows[case]} if case in rows else {}
    if case == "missing":
        X["dose"] = X["dose"].where(np.random.default_rng(1).random(len(X)) > 0.15)
        given = {"missing": "category"}
    if case == "horvitz_thompson":
        given = {"statistic": WCMMD(weighting=case, weight_cap=None)}
    if case == "fixed":
        given = {"statistic": WCMMD(resample_weights="fixed")}
    if case == "trees":
        given = {"propensity": PropensityModel(HistGradientBoostingClassifier(max_iter=5))}
    if case == "splines":
        given = {"sampler": "splines"}
    given["n_resamples"] = 25
    whole = fit(X, y, arms, **given)
    close(fit(X, y, arms, 237, **given), whole, 1e-9)
    assert whole.table["p_value"].idxmin() == "dose"
    assert whole.settings["n_train_rows"] == 400
    assert whole.settings["n_resamples_used"] == 25


def test_answer_depends_on_no_processes_batches_or_blocks(monkeypatch):
    X, y, arms, _ = table()
    X = X[["dose", "sex"]]
    whole = fit(X, y, arms, n_resamples=25)
    close(fit(X, y, arms, 450, n_jobs=2, n_resamples=25), whole, 1e-9)
    monkeypatch.setattr(resampling, "FIRST_BATCH", 3)
    monkeypatch.setattr(resampling, "MAX_BATCH", 9)
    close(fit(X, y, arms, n_resamples=25), whole, 1e-12)
    few = fit(X, y, arms, n_resamples=5)
    monkeypatch.setattr(resampling, "BATCH_BYTES", 1)  # one resample at a time
    close(fit(X, y, arms, n_resamples=5), few, 1e-12)


def test_resamples_stop_early_as_in_memory():
    X, y, arms, _ = table(effect=0.0)
    test = ConditionalRandomizationTest(stop_after=5)
    early = fit(X, y, arms, test=test).table["p_value"]
    late = fit(X, y, arms, test=ConditionalRandomizationTest(stop_after=None)).table["p_value"]
    assert all(round(5 / p, 6) == round(5 / p) for p in early if p > 6 / 61)  # five of some number of resamples
    # The same resamples: their share in the first of them and in all.
    assert (np.abs(early - late) < four_sd(0.5, 10)).all()


def test_sequential_rule_does_not_depend_on_how_values_come():
    rng = np.random.default_rng(0)
    test = ConditionalRandomizationTest(stop_after=4)
    for observed in (0.2, 0.9, 0.99):
        values = rng.random(50)
        whole, _ = test.looked_at(observed, values, 50)
        for step in (1, 7, 50):
            state, outcome = (0, 0), None
            for start in range(0, 50, step):
                outcome, state = test.looked_at(observed, values[start : start + step], 50, state)
                if outcome is not None:
                    break
            assert outcome == whole
    assert test.looked_at(2.0, values[:10], 50)[0] is None
    assert test.looked_at(2.0, values, 50)[0] == CRTOutcome(2.0, 1 / 51, 50, 0)


def test_p_values_are_those_in_memory_but_for_the_resamples():
    # The sample is all rows but one, so that models and statistics differ little; scores and folds are known.
    X, y, arms, _ = table(seed=3, n=500, effect=0.25)
    X = X.drop(columns="tails")  # resampled values repeat in memory, so that fewer are isolated
    given = {"propensity": 0.5, "n_resamples": 400, "test": ConditionalRandomizationTest(stop_after=None)}
    memory = fit(X, y, arms, max_train_rows=500, **given)
    pieces = fit(X, y, arms, 137, max_train_rows=499, **given)
    assert "n_train_rows" not in memory.settings
    p, q = memory.table["p_value"], pieces.table["p_value"]
    # Two shares of 400 resamples: 4 sd of their difference, and the row that distributions do not know.
    assert (np.abs(p - q) <= 4 * np.sqrt(2 * p * (1 - p) / 400) + 0.02).all(), (p, q)


def test_level_holds():
    found = []
    for seed in range(runs(40, 10)):
        X, y, arms, _ = table(seed, n=500, effect=0.0)
        # Of a long tail the 250 rows do not tell how far the others reach, and isolated rows weigh most.
        X = X.drop(columns="tails")
        found += fit(X, y, arms, 250, max_train_rows=250, n_resamples=39).table["p_value"].tolist()
    share = (np.array(found) <= 0.1).mean()
    assert share <= 0.1 + four_sd(0.1, len(found)), share


def test_explanations_come_from_the_sample():
    X, y, arms, _ = table()
    found = fit(X, y, arms, 300, explain=True)
    assert found.changes.loc["dose", "mean_p"] < 0.01
    assert len(found.curves["dose"]) > 5
    assert found.overall["mean_effect"] == pytest.approx(0.0, abs=0.4)


def test_feature_that_is_the_same_in_the_sample_has_a_p_value_of_one():
    X, y, arms, _ = table()
    numbers = row_plan_numbers(len(X), 400)
    X["rare"] = np.where(np.isin(np.arange(len(X)), numbers), 0.0, np.arange(len(X)))
    found = fit(X, y, arms)
    assert found.table.loc["rare", "p_value"] == 1.0
    assert found.table.loc["rare", "importance"] > 0


class Slope(Statistic):
    """Difference between the arms' regressions of the outcome on the feature, from one pass."""

    name = "slope"
    in_pieces = True
    takes_weights = True

    def prepare(self, nuisances):
        return PreparedSlope(nuisances.outcome, nuisances.arms)


@dataclasses.dataclass(frozen=True)
class PreparedSlope:
    outcome: np.ndarray
    arms: np.ndarray

    def value(self, column):
        return self.value_of((self.sums(column),))

    def at(self, rows):
        return PreparedSlope(rows.outcome, rows.arms)

    def sums(self, column, known=()):
        x, y = column.values, self.outcome
        return np.array([[f[self.arms == a].sum() for f in (x**0, x, x * x, x * y, y)] for a in (0, 1)])

    def value_of(self, known):
        n, x, xx, xy, y = known[0].T
        slopes = (xy - x * y / n) / (xx - x * x / n)
        return abs(float(slopes[1] - slopes[0]))


def test_statistic_of_a_user_may_have_sums():
    X, y, arms, _ = table()
    X = X[["dose", "age"]]
    whole = fit(X, y, arms, statistic=Slope())
    close(fit(X, y, arms, 137, statistic=Slope()), whole, 1e-9)
    assert whole.selected == ["dose"]
    assert whole.table["importance"].idxmax() == "dose"


class Bare(Slope):
    def prepare(self, nuisances):
        return object()


class Memory(Slope):
    in_pieces = False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"statistic": Memory()}, "'slope' needs the table in memory"),
        ({"statistic": Bare()}, "'slope' has in_pieces = True, but what it prepares, object, has no at and no sums"),
        ({"clusters": np.arange(900) % 50}, "clusters needs statistic='effect_likelihood'; resampled .* 'wcmmd'"),
        ({"feature_groups": {"both": ["dose", "age"]}}, "feature_groups need statistic='effect_likelihood'"),
        ({"statistic": WCMMD("rff")}, "estimator='rff'. needs the table in memory, and this one is processed in"),
    ],
)
def test_what_has_no_sums_is_refused_by_name(given, said):
    X, y, arms, _ = table()
    with pytest.raises(ValueError, match=said):
        fit(X, y, arms, 300, **given)


def test_gaps_are_refused_for_a_statistic_that_takes_none():
    X, y, arms, _ = table()
    X["dose"] = X["dose"].where(np.arange(900) % 9 > 0)
    with pytest.raises(ValueError, match=r"'slope' does not support missing values \(found in dose\);"):
        fit(X[["dose", "age"]], y, arms, statistic=Slope(), missing="category")


def test_distribution_that_fails_for_some_rows_costs_one_feature(monkeypatch):
    X, y, arms, _ = table()
    resampled = ColumnMeasure.columns

    def failing(self, rows, numbers):
        if self.rule is not None and self.feature == 1 and rows.block.start > 0:
            raise RuntimeError("no such rows")
        return resampled(self, rows, numbers)

    monkeypatch.setattr(ColumnMeasure, "columns", failing)
    found = fit(X, y, arms, 300)
    assert found.table.loc["age", "p_value"] == 1.0
    assert any("'age'" in own and "no such rows" in own for own in found.warnings)
    assert found.table.loc["dose", "p_value"] == 1 / 61

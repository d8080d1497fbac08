"""Sample weights and clusters: reading, learners, the test and the selector."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from conftest import four_sd, runs
from modifind import EffectLikelihood, ModifierSelector
from modifind.cli.app import main
from modifind.data.clusters import cluster_folds
from modifind.data.weights import Weights
from modifind.engine import fitting
from modifind.engine.job import Job
from modifind.engine.preparation import Models, PreparedTable, fit_scores
from modifind.engine.reading import Given
from modifind.inference import analytic_test
from modifind.nuisance.outcome.additive import AdditiveLearner, ArmLocations, BoostingLearner
from modifind.nuisance.outcome.columns import screened_columns
from modifind.nuisance.outcome.generalised import AdditiveClassifier
from modifind.nuisance.outcome.neural import NeuralLearner
from modifind.nuisance.outcome.stacking import OutcomeRows, arm_shapes, cross_fit
from modifind.nuisance.propensity.scores import PropensityModel, arm_folds
from modifind.nuisance.regression.penalised import ScaleModel, best_shape
from modifind.result.selection_result import SelectionResult
from modifind.statistics.families import StudentT

LINEAR = EffectLikelihood(learner="linear")


def simple(n=300, d=3, seed=0):
    """X1 modifies the effect."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, d)), columns=[f"X{j + 1}" for j in range(d)])
    a = rng.integers(0, 2, n)
    y = a * (1 + X["X1"].to_numpy()) + rng.standard_normal(n)
    return X, y, a, rng


def read(X, y, a, **rows):
    """The table as it is read, and what is to be done with it."""
    return Job.of(ModifierSelector(LINEAR, sampler="gaussian", random_state=0).get_params(deep=False)).checked(
        Given(X, y, a, **rows)
    )


def fitted(X, y, a, **given):
    settings = {name: given.pop(name) for name in ("n_jobs", "propensity", "statistic", "cv") if name in given}
    selector = ModifierSelector(
        **{"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": False, **settings}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return selector.fit(X, y, treatment=a, **given).result_


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 59, "sample_weight has 59 rows but X has 60"),
        ([np.nan] * 2 + [1.0] * 58, "sample_weight has 2 missing values; "),
        ([np.inf] + [1.0] * 59, "sample_weight has 1 infinite value; "),
        ([-1.0] * 3 + [1.0] * 57, "sample_weight has 3 negative"),
        ([0.0] * 60, "sample_weight is zero in every row"),
        ([1e120] + [1.0] * 59, "rescale it"),
        (["many"] * 60, "sample_weight must be numeric"),
        (pd.Series(pd.date_range("2020", periods=60)), "sample_weight must be numeric; found dates or times"),
        (pd.Series(pd.to_timedelta(range(60), unit="D")), "sample_weight must be numeric; found durations"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message):
    X, y, a, _ = simple(60)
    with pytest.raises(ValueError, match=message):
        read(X, y, a, sample_weight=weights)


def test_clusters_are_any_labels_but_missing_ones():
    X, y, a, _ = simple(80)
    labels = [*"ba", *(f"c{k % 40}" for k in range(77)), "b"]
    codes = read(X, y, a, clusters=pd.Series(labels, dtype="category"))[0].block.clusters.codes
    np.testing.assert_array_equal(codes, pd.factorize(np.array(labels))[0])
    assert codes[[0, 1, -1]].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="clusters has 2 missing labels"):
        read(X, y, a, clusters=["a", None, np.nan, *labels[3:]])
    with pytest.raises(ValueError, match="clusters has 79 rows but X has 80"):
        read(X, y, a, clusters=labels[1:])


def test_few_clusters_are_refused_and_not_many_are_warned_of():
    X, y, a, _ = simple(120)
    with pytest.raises(ValueError, match=r"clusters has 9 labels.*at least 10"):
        read(X, y, a, clusters=np.arange(120) % 9)
    with pytest.warns(UserWarning, match="clusters has only 12 labels"):
        read(X, y, a, clusters=np.arange(120) % 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(X, y, a, clusters=np.arange(120) % 40)[0].block.clusters.count == 40


def test_rows_of_weight_zero_are_left_out_with_a_count():
    X, y, a, rng = simple()
    weights = rng.uniform(0.5, 2.0, 300)
    weights[::10] = 0.0
    kept = weights > 0
    known = np.where(X["X2"] > 0, 0.6, 0.4)
    clusters = np.arange(300) % 50
    with pytest.warns(UserWarning, match="30 of 300 rows have a weight of 0"):
        ModifierSelector(LINEAR, sampler="gaussian", random_state=0).fit(X, y, treatment=a, sample_weight=weights)
    found = fitted(X, y, a, sample_weight=weights, clusters=clusters, propensity=known)
    without = fitted(
        X[kept], y[kept], a[kept], sample_weight=weights[kept], clusters=clusters[kept], propensity=known[kept]
    )
    pd.testing.assert_frame_equal(found.table, without.table)
    assert found.settings["n_rows"] == 270
    assert any("30 of 300" in message for message in found.warnings)
    with pytest.raises(ValueError, match="propensity array must have one score per row"):
        fitted(X, y, a, sample_weight=weights, propensity=known[:200])
    with pytest.raises(ValueError, match="treatment has 299 rows but X has 300"):
        fitted(X, y, a[:299], sample_weight=weights)


def test_result_records_weights_and_clusters():
    X, y, a, _ = simple()
    weights = np.where(np.arange(300) < 150, 1.0, 3.0)
    found = fitted(X, y, a, sample_weight=weights, clusters=np.arange(300) % 60)
    assert found.settings["clusters"] == {"n_clusters": 60}
    assert found.settings["sample_weight"]["effective_rows"] == pytest.approx(600**2 / 1500)
    assert SelectionResult.from_dict(found.to_dict()) == found
    assert not {"sample_weight", "clusters"} & set(fitted(X, y, a).settings)


def test_only_ratios_of_weights_matter():
    X, y, a, rng = simple()
    weights = rng.uniform(0.2, 3.0, 300)
    one, two, three = (fitted(X, y, a, sample_weight=factor * weights) for factor in (1.0, 2.0, 3.0))
    pd.testing.assert_frame_equal(one.table, two.table)
    pd.testing.assert_frame_equal(one.table, three.table, rtol=1e-4)
    assert not np.allclose(one.table["p_value"], fitted(X, y, a).table["p_value"])


def test_equal_weights_leave_likelihood_gains_and_widen_nothing_but_variances():
    X, y, a, _ = simple()
    plain, equal = fitted(X, y, a).table, fitted(X, y, a, sample_weight=np.full(300, 7.0)).table
    np.testing.assert_allclose(equal["likelihood_gain"], plain["likelihood_gain"], rtol=1e-4, atol=1e-7)
    assert (equal["statistic"].abs() <= plain["statistic"].abs() * (1 + 1e-4)).all()


def test_same_result_for_every_number_of_jobs():
    X, y, a, rng = simple(200, 3)
    given = {"sample_weight": rng.uniform(0.2, 3.0, 200), "clusters": np.arange(200) % 45}
    assert fitted(X, y, a, n_jobs=1, **given) == fitted(X, y, a, n_jobs=2, **given)


def test_counts_as_weights_are_close_to_repeated_rows():
    X, y, a, rng = simple(600, seed=3)
    counts = rng.integers(1, 3, 600)
    rows = np.repeat(np.arange(600), counts)
    # Copies of a row must share a fold, or models would have seen what they are judged on.
    repeated = fitted(X.iloc[rows].reset_index(drop=True), y[rows], a[rows], clusters=rows).table
    weighted = fitted(X, y, a, sample_weight=counts, clusters=np.arange(600)).table
    # Folds differ, and with them effect sizes: by less than half a standard error, which is an eighth of the interval's
    # width, for the modifier, and by a hundredth of a nat for the others.
    width = (repeated["gain_high"] - repeated["gain_low"]).to_numpy()
    assert (np.abs(weighted["likelihood_gain"] - repeated["likelihood_gain"]) < np.maximum(width / 8, 0.01)).all()
    assert (weighted["gain_high"] - weighted["gain_low"])["X1"] == pytest.approx(width[0], rel=0.2)


def test_parts_of_learners_equal_those_of_repeated_rows():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 4, 80)
    rows = np.repeat(np.arange(80), counts)
    own = counts.astype(float)
    terms = np.column_stack((np.ones(80), rng.standard_normal((80, 3))))
    residual = rng.standard_t(4, 80) * np.exp(0.5 * terms[:, 1])
    groups = np.arange(4)
    for link in ("exp", "softplus"):
        weighted, repeated = ScaleModel(link, groups), ScaleModel(link, groups)
        weighted.unit = repeated.unit = 1.0
        weighted.fit(terms, residual, 6.0, 8, Weights.of(own))
        repeated.fit(terms[rows], residual[rows], 6.0, 8, Weights.alike(rows.size))
        np.testing.assert_allclose(weighted.coefficients, repeated.coefficients, rtol=1e-6)
        assert weighted.criterion == pytest.approx(repeated.criterion)
    first, second = ArmLocations(groups, groups[:2]), ArmLocations(groups, groups[:2])
    precision = rng.uniform(0.5, 2.0, 80)
    first.fit_least_squares([(terms, residual, own * precision), (terms, -residual, own)], 5)
    second.fit_least_squares(
        [(terms[rows], residual[rows], precision[rows]), (terms[rows], -residual[rows], np.ones(rows.size))], 5
    )
    np.testing.assert_allclose(first.coefficients, second.coefficients, rtol=1e-6)
    heavy = np.where(np.arange(80) < 40, residual, 8 * residual)
    assert best_shape(heavy, own) == best_shape(heavy[rows])
    arms = np.arange(80) % 2
    place, scale = np.zeros((80, 2)), np.ones((80, 2))
    shapes = arm_shapes(heavy, arms, place, scale, family=StudentT(), weights=Weights.of(own))
    copies = arm_shapes(
        heavy[rows], arms[rows], place[rows], scale[rows], family=StudentT(), weights=Weights.alike(rows.size)
    )
    np.testing.assert_array_equal(shapes[rows], copies)


LEARNERS = {
    "linear": AdditiveLearner(0, products=False),
    "splines": AdditiveLearner(),
    "boosting": BoostingLearner(),
    "neural": NeuralLearner(members=2, hidden=8, max_epochs=30),
    "binary": AdditiveClassifier(),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_follow_the_rows_that_count(name):
    if name == "neural":
        pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    X = rng.standard_normal((600, 2))
    a = rng.integers(0, 2, 600)
    slope = np.where(np.arange(600) < 300, 1.0, -1.0)  # rows of the second half say the contrary
    y = slope * X[:, 0] * (1 + a) + 0.3 * rng.standard_normal(600)
    if name == "binary":
        y = (y > 0).astype(float)
    weights = np.where(np.arange(600) < 300, 1.0, 1e-3)
    learner = LEARNERS[name].fit(X, a, y, sample_weight=weights)
    first = y[:300] - learner.predict(X[:300])[0][np.arange(300), a[:300]]
    second = y[300:] - learner.predict(X[300:])[0][np.arange(300), a[300:]]
    assert np.mean(first**2) < 0.4 * np.mean(second**2)
    same = LEARNERS[name].fit(X, a, y, sample_weight=np.full(600, 5.0)).predict(X)[0]
    np.testing.assert_allclose(same, LEARNERS[name].fit(X, a, y).predict(X)[0], rtol=1e-3, atol=2e-3)


def test_screening_and_stack_follow_the_rows_that_count():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 80))
    a, half = rng.integers(0, 2, 400), np.arange(400) < 200
    y = np.where(half, 3 * X[:, 0], 3 * X[:, 1]) * a + rng.standard_normal(400)
    weights = np.where(half, 1.0, 1e-4)
    kept = screened_columns(X, a, y, binary=False, weights=Weights.of(weights))
    alone = screened_columns(X[half], a[half], y[half], binary=False, weights=Weights.alike(200))
    assert 0 in kept
    assert len(set(kept) & set(alone)) >= 0.6 * alone.size
    few = X[:, :4]
    candidates = {"linear": AdditiveLearner(0, products=False), "splines": AdditiveLearner()}
    folds = arm_folds(a, 4, 0)
    stack = cross_fit(candidates, OutcomeRows(few, a, y, folds, weights), StudentT())
    plain = cross_fit(candidates, OutcomeRows(few, a, y, folds), StudentT())
    assert stack.log_scores["linear"] > plain.log_scores["linear"] + 0.2  # means over the rows that follow one line


def test_variance_of_clusters_is_that_of_their_sums():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(50), 6)
    centre = rng.standard_normal(50)[clusters]  # what rows of a cluster share
    values = np.tile(norm.ppf((np.arange(15) + 0.5) / 15), (300, 1))
    weights = np.full(values.shape, 1 / 15)
    found = analytic_test(centre, values, weights, clusters=clusters)
    sums = np.bincount(clusters, centre)
    robust = 50 * sums.var(ddof=1)
    variance = float((values[0] ** 2).mean() * 300)
    assert robust > 4 * variance
    assert found.statistic == pytest.approx(centre.sum() / np.sqrt(robust))
    assert found.p_value == pytest.approx(student.sf(centre.sum() / np.sqrt(robust), 49), rel=0.05)
    half = student.ppf(0.975, 49) * np.sqrt(robust) / 300
    assert found.gain_high - found.gain == pytest.approx(half)
    assert analytic_test(centre, values, weights).p_value < found.p_value or centre.sum() < 0


def test_rows_that_vary_more_than_their_distribution_widen_the_null():
    rng = np.random.default_rng(0)
    values = np.tile([-1.0, 1.0], (200, 1))
    weights = np.full(values.shape, 0.5)
    observed = 3.0 * rng.standard_normal(200) + 0.4
    found = analytic_test(observed, values, weights)
    assert found.statistic == pytest.approx(observed.sum() / np.sqrt(200 * observed.var(ddof=1)))
    assert found.p_value > 10 * norm.sf(observed.sum() / np.sqrt(200))
    calm = 0.1 * observed  # rows that vary less than their distribution leave it as it is
    assert analytic_test(calm, values, weights).statistic == pytest.approx(calm.sum() / np.sqrt(200))


@pytest.mark.parametrize("kind", ["rows", "clusters", "uneven"])
def test_cluster_folds_keep_clusters_whole_and_hold_both_arms(kind):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 40, 30) if kind == "uneven" else np.full(30, 10)
    clusters = rng.permutation(np.repeat(np.arange(30), sizes))
    a = clusters % 2 if kind == "clusters" else rng.integers(0, 2, clusters.size)
    folds = cluster_folds(a, clusters, 5, 1)
    assert all(np.unique(folds[clusters == cluster]).size == 1 for cluster in range(30))
    for arm in (0, 1):
        counts = np.bincount(folds[a == arm], minlength=5)
        assert counts.min() > 0.6 * counts.max()
    assert not np.array_equal(folds, cluster_folds(a, clusters, 5, 2))


def test_fewer_folds_where_an_arm_has_few_clusters():
    clusters = np.repeat(np.arange(20), 5)
    a = (clusters < 3).astype(int)
    assert np.unique(cluster_folds(a, clusters, 5, 0)).size == 3
    with pytest.raises(ValueError, match="each arm needs rows in two or more"):
        cluster_folds((clusters == 0).astype(int), clusters, 5, 0)


def test_clusters_stay_in_one_fold_everywhere(monkeypatch):
    X, y, a, _ = simple(240)
    clusters = np.arange(240) // 6
    found, fit = [], Models.fit
    monkeypatch.setattr(fitting.Models, "fit", lambda *given: found.append(fit(*given)) or found[-1])
    fitted(X, y, a, clusters=clusters, statistic=EffectLikelihood(learner="linear", cv_repeats=2))
    models = found[0]
    crosses = [fit.cross.folds for fit in models.prepared.fits]
    assert not np.array_equal(*crosses)
    for folds in (*crosses, models.propensity.folds, models.sampler.folds_):
        assert np.unique(np.stack((clusters, folds)), axis=1).shape[1] == 40
        assert np.unique(folds).size == 5


def test_penalty_of_the_propensity_is_chosen_by_clusters():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(40), 10)
    X = rng.standard_normal((40, 12))[clusters]  # columns that tell clusters apart and nothing else
    y, arms = rng.standard_normal(400), rng.permutation(np.arange(40) % 2)[clusters]
    data, _ = read(X, y, arms, clusters=clusters)
    given, seed = (data.block.table, data.arms), np.random.SeedSequence(0)
    by_cluster = PropensityModel().fit(*given, seed=seed, clusters=data.block.clusters)
    by_row = PropensityModel().fit(*given, seed=np.random.SeedSequence(0))
    assert by_row.auc > 0.75  # rows of the cluster tell its treatment
    assert by_cluster.auc < 0.65
    assert by_cluster.models[0].C <= 0.01  # as good as none of the columns


class NoWeights:
    """A learner of the user's own."""

    def fit(self, X, a, y):
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.full((X.shape[0], 2), self.mean_), np.ones((X.shape[0], 2))


class Weighted(NoWeights):
    """The same with weights."""

    def fit(self, X, a, y, sample_weight=None):
        assert sample_weight is not None
        return super().fit(X, a, y)


class OwnSampler:
    """A sampler of the user's own, without weights or folds."""

    def fit(self, table, treatment, seed):
        return self

    def rule(self, feature):
        raise AssertionError


def test_parts_that_take_no_weights_are_refused():
    X, y, a, _ = simple(100)
    with pytest.raises(ValueError, match="learner NoWeights does not support sample_weight"):
        fitted(X, y, a, sample_weight=np.ones(100), statistic=EffectLikelihood(learner=NoWeights()))
    found = fitted(X, y, a, sample_weight=np.ones(100), statistic=EffectLikelihood(learner=Weighted()))
    assert found.settings["sample_weight"]["effective_rows"] == pytest.approx(100)
    own = ModifierSelector(LINEAR, sampler=OwnSampler(), random_state=0)
    with pytest.raises(ValueError, match="sampler OwnSampler does not support weights"):
        own.fit(X, y, treatment=a, sample_weight=np.ones(100))
    with pytest.raises(ValueError, match="OwnSampler has no assign_folds"):
        own.fit(X, y, treatment=a, clusters=np.arange(100) % 50)


def test_resampled_clusters_are_refused():
    X, y, a, _ = simple(300)
    with pytest.raises(ValueError, match="clusters needs statistic='effect_likelihood'"):
        ModifierSelector("wcmmd").fit(X, y, treatment=a, clusters=np.arange(300) % 50)


def test_wcmmd_takes_weights_and_says_when_they_hold():
    X, y, a, rng = simple(150, 2)
    selector = ModifierSelector("wcmmd", sampler="gaussian", n_resamples=39, random_state=0)
    with pytest.warns(UserWarning, match="'wcmmd' with sample weights"):
        result = selector.fit(X, y, treatment=a, sample_weight=rng.uniform(0.5, 2, 150)).result_
    assert result.table["p_value"].between(0, 1).all()


def test_command_line_takes_weights_and_clusters(tmp_path, monkeypatch, capsys):
    X, y, a, rng = simple(200, 3)
    table = X.assign(arm=a, y=y, w=rng.uniform(0.5, 2.0, 200), clinic=np.arange(200) % 50)
    table.to_csv(tmp_path / "data.csv", index=False)
    options = ["--treatment", "arm", "--outcome", "y", "--weight", "w", "--clusters", "clinic"]
    options += ["--learner", "linear", "--sampler", "gaussian", "--out", str(tmp_path / "result.json")]

    def run(*more):
        monkeypatch.setattr("sys.argv", ["modifind", "select", str(tmp_path / "data.csv"), *options, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    assert run()[0] == 0
    result = SelectionResult.from_json(tmp_path / "result.json")
    assert list(result.table.index) == ["X1", "X2", "X3"]
    assert result.settings["clusters"] == {"n_clusters": 50}
    assert result.settings["sample_weight"]["effective_rows"] < 200
    assert run("--stream")[0] == 0
    pd.testing.assert_frame_equal(SelectionResult.from_json(tmp_path / "result.json").table, result.table)
    assert "--outcome and --weight both name 'y'" in run("--weight", "y")[1]
    assert "--clusters and --features both name 'clinic'" in run("--features", "X1,clinic")[1]
    assert "--clusters: no column 'site'" in run("--clusters", "site")[1]


def clustered(seed, n=480, n_clusters=48):
    """Whole clusters are treated, outcomes have random intercepts, X4 is constant within clusters; nothing modifies."""
    rng = np.random.default_rng([seed, 29])
    clusters = np.repeat(np.arange(n_clusters), n // n_clusters)
    x = (rng.standard_normal((n_clusters, 4))[clusters] + rng.standard_normal((n, 4))) / np.sqrt(2)
    x[:, 3] = rng.standard_normal(n_clusters)[clusters]
    a = rng.permutation(np.arange(n_clusters) % 2)[clusters]
    y = a + x[:, 0] + rng.standard_normal(n_clusters)[clusters] + rng.standard_normal(n)
    return pd.DataFrame(x, columns=["X1", "X2", "X3", "X4"]), y, a, clusters


def surveyed(seed, n=480):
    """X3 and the noise of the outcome decide together who is sampled, which makes them dependent in the sample."""
    rng = np.random.default_rng([seed, 23])
    x, noise = rng.standard_normal((20 * n, 4)), rng.standard_normal(20 * n)
    a = rng.integers(0, 2, 20 * n)
    y = a + x[:, 0] + noise
    score = 0.8 * (x[:, 2] + noise) / np.sqrt(2)
    rows = np.argsort(-(score + rng.gumbel(size=score.size)))[:n]
    frame = pd.DataFrame(x[rows], columns=["X1", "X2", "X3", "X4"])
    return frame, y[rows], a[rows], np.exp(-score[rows])


@pytest.mark.study
def test_null_features_of_clusters_and_surveys_are_seldom_small():
    clusters = [clustered(seed) for seed in range(runs(10, 4))]
    told = np.array([fitted(X, y, a, clusters=g, propensity=0.5).table["p_value"] for X, y, a, g in clusters])
    untold = np.array([fitted(X.drop(columns="X4"), y, a, propensity=0.5).table["p_value"] for X, y, a, _ in clusters])
    # X1 is prognostic; three p-values of the others from a table, which are smaller if rows are taken as independent.
    assert (told[:, 1:] <= 0.05).mean() <= 0.05 + four_sd(0.05, told[:, 1:].size)
    assert np.median(untold[:, 1:] / told[:, 1:3]) < 1
    with pytest.raises(ValueError, match=r"X4: determines the treatment.*say so with clusters="):
        fitted(*clusters[0][:3], propensity=0.5)
    samples = [surveyed(seed) for seed in range(runs(10, 4))]
    weighted = np.array([fitted(X, y, a, sample_weight=w, propensity=0.5).table["p_value"] for X, y, a, w in samples])
    assert (weighted[:, 1:] <= 0.05).mean() <= 0.05 + four_sd(0.05, weighted[:, 1:].size)


def test_strata_go_with_weights_and_clusters():
    X, y, a, rng = simple(240)
    strata = np.where(rng.random(240) < 0.5, "north", "south")
    weights = rng.uniform(0.5, 2.0, 240)
    weights[:12] = 0.0
    found = fitted(X, y, a, sample_weight=weights, clusters=np.arange(240) // 4, strata=strata)
    assert list(found.table.index) == ["X1", "X2", "X3"]
    assert found.settings["n_strata"] == 2
    assert found.settings["clusters"] == {"n_clusters": 57}
    kept = weights > 0
    north = kept & (strata == "north")
    share = weights[north] @ a[north] / weights[north].sum()
    data, run = read(X[kept], y[kept], a[kept], sample_weight=weights[kept], strata=strata[kept])
    scores = fit_scores(run, PreparedTable.of(run, data), np.random.SeedSequence(0)).scores
    np.testing.assert_allclose(scores[strata[kept] == "north"], share)

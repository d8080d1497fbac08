import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from conftest import FrozenLogit, OracleSampler, confounded_table, four_sd, raw_p_values, runs
from modifind import WCMMD, ConditionalRandomizationTest
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import GaussianSampler, MarginalSampler


class Stream:
    """Resampled 'columns' of one number each; the statistic is that number."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)
        self.at = 0
        self.asked = []

    def draw(self, k):
        self.asked.append(k)
        block = self.values[self.at : self.at + k, None]
        self.at += k
        return block


def run(test, values, observed, n_resamples=None):
    stream = Stream(values)
    outcome = test.run(observed, stream.draw, lambda column: float(column[0]), n_resamples or len(values))
    return outcome, stream


VALUES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def test_valid_p_value_adds_one_to_both_counts():
    outcome, _ = run(ConditionalRandomizationTest(stop_after=None), VALUES, 4.5)
    assert (outcome.n_exceeding, outcome.n_resamples) == (4, 10)
    assert outcome.p_value == 5 / 11
    assert outcome.statistic == 4.5


def test_count_p_value_is_the_plain_share_and_may_be_zero():
    test = ConditionalRandomizationTest("count", stop_after=1)
    assert run(test, VALUES, 4.5)[0].p_value == 4 / 10
    outcome, stream = run(test, VALUES, 100.0)
    assert outcome.p_value == 0.0
    assert stream.at == 10


def test_smallest_valid_p_value_is_one_over_one_plus_the_resamples():
    assert run(ConditionalRandomizationTest(), VALUES, 100.0)[0].p_value == 1 / 11


def test_ties_count_as_exceeding():
    assert run(ConditionalRandomizationTest(stop_after=None), VALUES, 5.0)[0].n_exceeding == 4
    assert run(ConditionalRandomizationTest(stop_after=None), [2.0] * 9, 2.0)[0].p_value == 1.0


def test_early_stop_divides_the_number_wanted_by_the_resamples_drawn():
    outcome, _ = run(ConditionalRandomizationTest(stop_after=3), VALUES, 3.0)
    assert (outcome.n_exceeding, outcome.n_resamples, outcome.p_value) == (3, 5, 3 / 5)
    at_once, _ = run(ConditionalRandomizationTest(stop_after=3), VALUES, 0.0)
    assert (at_once.n_resamples, at_once.p_value) == (3, 1.0)


def test_stop_on_the_very_last_resample_uses_the_full_formula():
    outcome, _ = run(ConditionalRandomizationTest(stop_after=2), [0, 1, 0, 1], 1.0)
    assert outcome.p_value == 3 / 5


@pytest.mark.parametrize("stop_after", [None, 1, 3, 20])
def test_outcome_does_not_depend_on_block_size(stop_after):
    values = np.random.default_rng(0).normal(size=200)
    outcomes = {
        run(ConditionalRandomizationTest(stop_after=stop_after, block_size=size), values, 1.0)[0]
        for size in (None, 1, 7, 64, 1000)
    }
    assert len(outcomes) == 1


def test_no_more_resamples_are_drawn_than_asked_for():
    for size in (None, 1, 7, 64):
        _, stream = run(ConditionalRandomizationTest(stop_after=None, block_size=size), np.zeros(50), 1.0)
        assert sum(stream.asked) == 50


def test_wide_columns_are_drawn_in_small_blocks():
    asked = []

    def draw(k):
        asked.append(k)
        return np.zeros((k, 2**20))

    ConditionalRandomizationTest(stop_after=None).run(1.0, draw, lambda column: 0.0, 9)
    assert max(asked) == 4


@pytest.mark.parametrize(
    "settings",
    [{"p_value": "exact"}, {"stop_after": 0}, {"stop_after": 2.5}, {"block_size": 0}, {"block_size": -1}],
)
def test_settings_without_meaning_are_refused(settings):
    with pytest.raises(ValueError, match=r"must be"):
        ConditionalRandomizationTest(**settings).validate()


@pytest.mark.parametrize("n_resamples", [0, -5, 2.5, "many", True])
def test_number_of_resamples_must_be_a_positive_integer(n_resamples):
    with pytest.raises(ValueError, match="n_resamples must be"):
        ConditionalRandomizationTest().resolve_resamples(n_resamples, 10, 0.05)


def test_auto_resamples_make_a_single_bh_discovery_possible():
    test = ConditionalRandomizationTest()
    for d in (1, 30, 100, 1000):
        n_resamples = test.resolve_resamples("auto", d, 0.05)
        p_values = np.ones(d)
        p_values[0] = 1 / (1 + n_resamples)
        assert adjust_p_values(p_values, "bh")[0] <= 0.05


def test_number_needed_is_the_smallest_that_makes_a_discovery_possible():
    test = ConditionalRandomizationTest()
    needed = test.needed_resamples(30, 0.05)
    assert needed == 599
    assert adjust_p_values([1 / (1 + needed)] + [1.0] * 29, "bh")[0] <= 0.05
    assert adjust_p_values([1 / needed] + [1.0] * 29, "bh")[0] > 0.05
    assert test.resolve_resamples(598, 30, 0.05) == 598
    assert ConditionalRandomizationTest("count").needed_resamples(30, 0.05) == 0


def prognostic_only(seed, n=200, d=4):
    """Y depends on A and on X1 but X1 moves both arms alike; X2..X4 are null given the rest."""
    rng = np.random.default_rng(seed)
    X, treatment = confounded_table(rng, n, d)
    y = treatment + X[:, 0] + rng.normal(size=n)
    return X, y, treatment


def null_p_values(n_sets, *, features=(1, 2, 3), **settings):
    """P-values of the features that Y does not depend on."""
    found = []
    for seed in range(n_sets):
        X, y, treatment = prognostic_only(seed)
        found.append(raw_p_values(X, y, treatment, random_state=seed, **settings)[list(features)])
    return np.concatenate(found)


@pytest.mark.study
@pytest.mark.parametrize("propensity", [FrozenLogit(), DummyClassifier()], ids=["re-evaluated", "constant"])
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
def test_null_p_values_are_uniform_when_the_sampler_knows_the_distribution(weighting, propensity):
    p_values = null_p_values(
        runs(70, 25),
        statistic=WCMMD(weighting=weighting),
        sampler=OracleSampler(),
        propensity=propensity,
        n_resamples=99,
        test=ConditionalRandomizationTest(stop_after=None),
    )
    # 210 p-values of all runs, uniform on 0.01, 0.02, ..., 1 whatever the propensity. The Kolmogorov distance exceeds
    # 1.95 / sqrt(210) = 0.135 with probability 0.001; three features of one data set are nearly independent.
    grid = np.arange(1, 101) / 100
    share = (p_values[:, None] <= grid + 1e-9).mean(axis=0)
    assert np.abs(share - grid).max() < 1.95 / np.sqrt(p_values.size)
    # Share at 0.05: sd 0.015, tolerance four of those.
    assert abs((p_values <= 0.05).mean() - 0.05) < four_sd(0.05, p_values.size)


@pytest.mark.study
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
def test_early_stopped_null_p_values_are_super_uniform(weighting):
    p_values = null_p_values(
        runs(100, 30),
        statistic=WCMMD(weighting=weighting),
        sampler=OracleSampler(),
        propensity=FrozenLogit(),
        n_resamples=99,
        test=ConditionalRandomizationTest(stop_after=5),
    )
    # 300 p-values of all runs; P(p <= t) <= t, each share with four binomial standard deviations.
    for level in (0.02, 0.05, 0.1, 0.2, 0.5):
        assert (p_values <= level).mean() <= level + four_sd(level, p_values.size)
    # and not so conservative that the test says nothing: P(p <= 0.2) is between 0.15 and 0.2.
    assert (p_values <= 0.2).mean() > 0.15 - four_sd(0.2, p_values.size)


def test_oracle_p_values_are_small_for_a_modifier():
    rng = np.random.default_rng(4)
    X, treatment = confounded_table(rng, 300, 4)
    y = 3 * treatment * X[:, 2] + rng.normal(size=300)
    settings = {"statistic": "wcmmd", "sampler": OracleSampler(), "propensity": FrozenLogit(), "n_resamples": 99}
    p_values = raw_p_values(X, y, treatment, **settings, random_state=0)
    assert p_values[2] == 0.01


def neighbour_rejections(sampler, n_sets):
    """Share of raw p <= 0.05 of a null feature whose neighbour (correlation 0.8) is a strong modifier."""
    rejected = 0
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        first = rng.normal(size=200)
        X = np.column_stack([first, 0.8 * first + 0.6 * rng.normal(size=200), rng.normal(size=200)])
        treatment = rng.integers(0, 2, size=200)
        y = 2 * treatment * first + rng.normal(size=200)
        settings = {"statistic": "wcmmd", "sampler": sampler, "propensity": 0.5, "n_resamples": 59}
        p_values = raw_p_values(X, y, treatment, **settings, random_state=seed)
        rejected += p_values[1] <= 0.05
    return rejected / n_sets


@pytest.mark.study
def test_marginal_sampler_rejects_the_null_neighbour_of_a_modifier():
    assert neighbour_rejections(MarginalSampler(), runs(20, 8)) > 0.8


@pytest.mark.study
def test_conditional_sampler_spares_the_null_neighbour_of_a_modifier():
    # 50 data sets of all runs: 0.05 with sd 0.031, tolerance four of those.
    n_sets = runs(50, 16)
    assert neighbour_rejections(GaussianSampler(), n_sets) < 0.05 + four_sd(0.05, n_sets)


@pytest.mark.parametrize("stop_after", [None, 3])
def test_blocks_of_statistics_give_the_same_as_single_ones(stop_after):
    test = ConditionalRandomizationTest(stop_after=stop_after, block_size=4)
    for observed in (2.0, 4.5, 100.0):
        blocks = test.run(observed, Stream(VALUES).draw, lambda columns: columns[:, 0], 10, batched=True)
        assert blocks == run(test, VALUES, observed)[0]

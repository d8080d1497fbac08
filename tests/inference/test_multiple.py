import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import quiet_fit, runs
from modifind.inference import adjust_p_values

METHODS = ("bh", "by", "holm", "bonferroni", "none")
SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)
P_VALUES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=25)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # p = 0.01, 0.02, 0.03, 0.5 in another order; d = 4, harmonic sum 25/12.
        ("bh", [0.5, 0.04, 0.04, 0.04]),
        ("by", [1.0, 0.04 * 25 / 12, 0.04 * 25 / 12, 0.04 * 25 / 12]),
        ("holm", [0.5, 0.04, 0.06, 0.06]),
        ("bonferroni", [1.0, 0.04, 0.12, 0.08]),
        ("none", [0.5, 0.01, 0.03, 0.02]),
    ],
)
def test_adjusted_values_equal_a_computation_by_hand(method, expected):
    np.testing.assert_allclose(adjust_p_values([0.5, 0.01, 0.03, 0.02], method), expected)


def test_bh_takes_the_smallest_of_later_steps():
    # d p_(k) / k: 0.10, 0.0525, 0.0367, 0.9 (d = 5 below), running minimum from the right.
    adjusted = adjust_p_values([0.02, 0.021, 0.022, 0.9, 0.9], "bh")
    np.testing.assert_allclose(adjusted, [5 * 0.022 / 3] * 3 + [0.9] * 2)


@SETTINGS
@given(P_VALUES, st.sampled_from(METHODS))
def test_adjustment_keeps_order_and_never_lowers_a_p_value(p_values, method):
    p = np.array(p_values)
    adjusted = adjust_p_values(p, method)
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= -1e-12).all()
    assert (adjusted >= p - 1e-12).all()
    assert (adjusted <= 1.0).all()


@SETTINGS
@given(P_VALUES, st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_adjustment_follows_a_permutation(p_values, method, random):
    p = np.array(p_values)
    order = np.array(random.sample(range(p.size), p.size))
    np.testing.assert_allclose(adjust_p_values(p[order], method), adjust_p_values(p, method)[order])


@SETTINGS
@given(P_VALUES)
def test_methods_are_ordered_from_lenient_to_strict(p_values):
    none, bh, by, holm, bonferroni = (adjust_p_values(p_values, m) for m in ("none", "bh", "by", "holm", "bonferroni"))
    tiny = 1e-12
    assert (none <= bh + tiny).all()
    assert (bh <= by + tiny).all()
    assert (bh <= holm + tiny).all()
    assert (holm <= bonferroni + tiny).all()


def test_unknown_method_is_refused():
    with pytest.raises(ValueError, match="adjust must be one of"):
        adjust_p_values([0.5], "fdr")


def test_bh_false_discovery_rate_equals_its_theoretical_value():
    # Independent nulls: FDR = (20/30) alpha exactly. The false discovery proportion of one run has sd below 0.12
    # at alpha = 0.2, so the mean of 1000 has sd 0.004; tolerance four of those.
    rng = np.random.default_rng(1)
    proportions = []
    for _ in range(1000):
        p = np.concatenate((rng.random(20), rng.random(10) * 1e-3))
        selected = adjust_p_values(p, "bh") <= 0.2
        proportions.append(selected[:20].sum() / max(selected.sum(), 1))
    assert np.mean(proportions) == pytest.approx(0.2 * 20 / 30, abs=0.016)


@pytest.mark.parametrize("method", ["holm", "bonferroni"])
def test_family_wise_error_is_held(method):
    # P(any of 20 nulls selected) <= 0.1; 2000 runs give sd 0.0067; tolerance four of those.
    rng = np.random.default_rng(2)
    p = np.concatenate((rng.random((2000, 20)), np.full((2000, 5), 1e-9)), axis=1)
    wrong = np.mean([(adjust_p_values(row, method)[:20] <= 0.1).any() for row in p])
    assert wrong < 0.1 + 4 * np.sqrt(0.1 * 0.9 / 2000)
    assert wrong > 0.05


@pytest.mark.study
def test_false_discovery_rate_is_held_from_table_to_selection():
    # Six features, two modifiers, alpha = 0.2: FDR <= 0.2 * 4/6 = 0.133. The proportion of one run lies in
    # [0, 0.67] with sd at most 0.2; 40 runs give 0.032, tolerance three of those.
    proportions, found, n_sets = [], 0, runs(40, 12)
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 6))
        treatment = rng.integers(0, 2, size=200)
        y = treatment * (2 * X[:, 0] - 2 * X[:, 1]) + X[:, 2] + rng.normal(size=200)
        selector = quiet_fit(
            X,
            y,
            treatment,
            statistic="wcmmd",
            sampler="gaussian",
            propensity=0.5,
            alpha=0.2,
            n_resamples=99,
            random_state=seed,
        )
        support = selector.get_support()
        proportions.append(support[2:].sum() / max(support.sum(), 1))
        found += support[:2].sum()
    assert np.mean(proportions) < 0.2 * 4 / 6 + 3 * 0.2 / np.sqrt(n_sets)
    assert found > n_sets

"""One p-value for several contrasts, and which of them it is."""

import numpy as np
import pytest
from scipy.stats import norm

from modifind.inference import adjust_p_values
from modifind.inference.adjust import adjust_contrasts, simes_p_values


def null_p_values(m, k, correlation, rng):
    shared = rng.standard_normal((m, 1))
    z = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.standard_normal((m, k))
    return norm.sf(z)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [2, 4])
def test_simes_keeps_its_level_where_contrasts_share_the_reference(k, correlation):
    p = simes_p_values(null_p_values(40_000, k, correlation, np.random.default_rng(k)))
    for level in (0.05, 0.01):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level / p.size)  # three standard errors
    if correlation == 0:
        assert abs((p <= 0.05).mean() - 0.05) < 3 * np.sqrt(0.05 / p.size)


def test_a_contrast_that_was_not_reached_counts_as_one_and_a_feature_without_any_has_no_p_value():
    assert simes_p_values([[0.01, np.nan], [np.nan, np.nan]]).tolist()[0] == 0.02
    assert np.isnan(simes_p_values([[0.01, np.nan], [np.nan, np.nan]])[1])


@pytest.mark.parametrize("method", ["bh", "by", "holm", "bonferroni", "none"])
def test_contrasts_are_selected_within_selected_features_only(method):
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = rng.uniform(size=(6, 2)) ** rng.choice([1, 4], size=(6, 1))
        features = adjust_p_values(simes_p_values(p), method)
        found = adjust_contrasts(p, features, 0.05, method) <= 0.05
        assert not found[features > 0.05].any()
        if method != "holm":  # whose last steps have a larger level than single contrasts get
            assert found[features <= 0.05].any(axis=1).all()


def test_contrasts_of_selected_features_get_the_level_of_the_selected_share():
    p = np.array([[0.001, 0.02], [0.002, 0.6], [0.5, 0.7], [0.4, 0.9]])
    features = adjust_p_values(simes_p_values(p))
    assert (features <= 0.05).tolist() == [True, True, False, False]
    # Level 0.05 * 2 / 4 within: both contrasts of the first feature (0.02 <= 0.025), one of the second.
    assert (adjust_contrasts(p, features, 0.05) <= 0.05).tolist() == [
        [True, True],
        [True, False],
        [False] * 2,
        [False] * 2,
    ]


def test_the_average_share_of_wrong_contrasts_over_selected_features_is_held():
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(600):
        p = null_p_values(20, 3, 0.5, rng)
        p[:8, 0] = norm.sf(rng.standard_normal(8) + 3)  # the first contrast of eight features
        features = adjust_p_values(simes_p_values(p))
        found = adjust_contrasts(p, features, 0.05) <= 0.05
        chosen = np.flatnonzero(features <= 0.05)
        wrong = found.copy()
        wrong[:8, 0] = False
        share = wrong[chosen].sum(axis=1) / np.maximum(found[chosen].sum(axis=1), 1)
        shares.append(share.mean() if chosen.size else 0.0)
    assert np.mean(shares) <= 0.05 + 3 * np.std(shares) / np.sqrt(len(shares))


def test_hochberg_within_features_holds_any_false_contrast():
    rng = np.random.default_rng(2)
    p = [null_p_values(5, 2, 0.5, rng) for _ in range(4000)]
    found = [adjust_contrasts(own, adjust_p_values(simes_p_values(own), "holm"), 0.05, "holm") <= 0.05 for own in p]
    assert np.mean([own.any() for own in found]) <= 0.05 + 3 * np.sqrt(0.05 / 4000)

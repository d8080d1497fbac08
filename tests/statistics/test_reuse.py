"""The variance that folds share because each has taught the models of the others."""

import numpy as np
import pytest

from modifind.statistics.row_terms import Reuse


def patterns(agreement, n_folds=5):
    """Inner products of patterns of length 1, any two of which agree as far."""
    return np.full((n_folds, n_folds), agreement) + (1 - agreement) * np.eye(n_folds)


def between_folds(variances):
    """Sum of the products of two folds' standard deviations."""
    sd = np.sqrt(variances)
    return float(sd.sum() ** 2 - variances.sum())


@pytest.mark.parametrize("n_folds", [3, 5, 10])
def test_what_models_learned_from_noise_is_shared_in_full(n_folds):
    variances = np.linspace(1.0, 2.0, n_folds)
    chance = (n_folds - 2) / (n_folds - 1)  # the rows that two models have in common
    shared = Reuse((patterns(chance, n_folds),)).variance([variances])
    assert shared == pytest.approx(between_folds(variances) / (n_folds - 1))
    # Folds of equal size: as much again as the variance of independent rows.
    equal = Reuse((patterns(chance, n_folds),)).variance([np.ones(n_folds)])
    assert equal == pytest.approx(n_folds)


def test_nothing_is_shared_where_models_agree_fully_or_not_at_all():
    variances = [np.linspace(1.0, 2.0, 5)]
    assert Reuse((patterns(1.0),)).variance(variances) == pytest.approx(0.0, abs=1e-12)
    assert Reuse((patterns(0.0),)).variance(variances) == 0.0
    assert Reuse((patterns(-0.2),)).variance(variances) == 0.0
    assert Reuse((np.zeros((5, 5)),)).variance(variances) == 0.0
    assert Reuse((patterns(0.75),)).variance([np.zeros(5)]) == 0.0


def test_between_noise_and_full_agreement_the_share_falls_evenly():
    noise, half, little = (Reuse((patterns(own),)).variance([np.ones(5)]) for own in (0.75, 0.875, 0.375))
    assert half == pytest.approx(noise / 2)
    assert little == pytest.approx(noise / 2)


def test_patterns_count_by_their_direction_and_repeats_are_averaged():
    size = np.array([1.0, 5.0, 0.2, 3.0, 2.0])
    scaled = patterns(0.75) * np.outer(size, size)
    # Agreement is weighted by the sizes of patterns and sums, and here alike for all pairs.
    assert Reuse((scaled,)).variance([np.ones(5)]) == pytest.approx(5.0)
    both = Reuse((patterns(0.75), patterns(1.0))).variance([np.ones(5), np.ones(5)])
    assert both == pytest.approx(2.5)


def test_shared_variance_is_the_larger_the_more_rows_taught():
    whole, third = (Reuse((patterns(0.75),), share=share).variance([np.ones(5)]) for share in (1.0, 1 / 3))
    assert third == pytest.approx(whole / 3)

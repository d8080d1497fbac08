"""scikit-learn's own checks of an estimator, and the tags that they go by."""

import pytest
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from modifind import EffectLikelihood, ModifierSelector
from modifind.baselines import SIEM

FEW = "its table has fewer than 50 rows, from which nothing can be told"
ARMS = "it passes no treatment"
WORDS = "our message names the column and the remedy in words of our own"
EXPECTED = {
    "check_complex_data": WORDS,
    "check_dict_unchanged": FEW,
    "check_dont_overwrite_parameters": FEW,
    "check_dtype_object": ARMS,
    "check_estimator_sparse_array": WORDS,
    "check_estimator_sparse_matrix": WORDS,
    "check_estimators_dtypes": FEW,
    "check_estimators_empty_data_messages": WORDS,
    "check_estimators_fit_returns_self": FEW,
    "check_estimators_nan_inf": FEW,
    "check_estimators_overwrite_params": FEW,
    "check_estimators_pickle": FEW,
    "check_f_contiguous_array_estimator": FEW,
    "check_fit2d_1feature": FEW,
    "check_fit2d_1sample": WORDS,
    "check_fit2d_predict1d": FEW,
    "check_fit_check_is_fitted": ARMS,
    "check_fit_idempotent": ARMS,
    "check_fit_score_takes_y": FEW,
    "check_methods_sample_order_invariance": FEW,
    "check_methods_subset_invariance": FEW,
    "check_all_zero_sample_weights_error": ARMS,
    "check_n_features_in": ARMS,
    "check_n_features_in_after_fitting": FEW,
    "check_pipeline_consistency": FEW,
    "check_positive_only_tag_during_fit": FEW,
    "check_readonly_memmap_input": FEW,
    "check_requires_y_none": WORDS,
    "check_sample_weight_equivalence_on_dense_data": "it passes cv as a list of splits; ours is a number of folds",
    "check_sample_weights_list": FEW,
    "check_sample_weights_not_an_array": FEW,
    "check_sample_weights_not_overwritten": FEW,
    "check_sample_weights_pandas_series": FEW,
    "check_sample_weights_shape": FEW,
    "check_transformer_data_not_an_array": FEW,
    "check_transformer_general": FEW,
    "check_transformer_preserve_dtypes": FEW,
}


@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn_fail_only_where_a_reason_is_given():
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=0)
    done = check_estimator(selector.set_params(explain=False), on_fail=None, on_skip=None)
    by_status = {
        status: {run["check_name"] for run in done if run["status"] == status} for status in ("failed", "passed")
    }
    assert by_status["failed"] == set(EXPECTED)
    # Among those that hold: cloning, no changes in __init__, parameters that can be set, repr, tags.
    assert {"check_no_attributes_set_in_init", "check_get_params_invariance", "check_set_params"} <= by_status["passed"]


def test_tags_say_what_is_taken():
    for selector in (ModifierSelector(), SIEM()):
        tags = get_tags(selector)
        assert tags.target_tags.required
        assert tags.input_tags.string
        assert tags.input_tags.categorical
        assert not tags.input_tags.sparse
        assert not tags.input_tags.allow_nan
    for missing in ("category", "drop"):
        assert get_tags(ModifierSelector(missing=missing)).input_tags.allow_nan

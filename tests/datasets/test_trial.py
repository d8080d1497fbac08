import pandas as pd
from pandas.testing import assert_frame_equal

from modifind.datasets import load_trial, make_trial


def test_embedded_table_is_what_its_recipe_makes():
    # Values are rounded in the recipe, so that the text of a number gives it back.
    assert_frame_equal(load_trial().frame, make_trial(), check_exact=True, check_dtype=False)


def test_truth_names_features():
    trial = load_trial()
    assert set(trial.truth) == set(trial.modifiers) <= set(trial.X.columns)
    assert isinstance(trial.X, pd.DataFrame)
    assert set(trial.treatment) == {"drug", "placebo"}

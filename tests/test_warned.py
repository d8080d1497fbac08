"""Warnings point at the line of the user, each once per fit."""

import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector


def messy(n=120):
    """A table with a constant column, a code for missing, a count of resamples without use and few rows in an arm."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=n), "dose": rng.normal(size=n), "site": 1.0})
    frame["score"] = np.where(np.arange(n) % 7 == 0, -999.0, rng.normal(size=n))
    arms = (np.arange(n) % 4 == 0).astype(int)
    return frame, rng.normal(size=n), arms


SETTINGS = {"sampler": "gaussian", "random_state": 0, "explain": False, "n_resamples": 99, "placebo_runs": 1}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("pieces", [False, True])
def test_every_warning_points_here_and_comes_once(n_jobs, pieces):
    frame, y, arms = messy(1200 if pieces else 120)
    selector = ModifierSelector(EffectLikelihood("linear"), n_jobs=n_jobs, **SETTINGS)
    selector.set_params(max_train_rows=600 if pieces else 200_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selector.fit(frame, y, treatment=arms); line = sys._getframe().f_lineno  # fmt: skip  # noqa: E702
    told = [warning for warning in caught if issubclass(warning.category, UserWarning)]
    texts = [str(warning.message) for warning in told]
    assert len(texts) > 2
    assert len(set(texts)) == len(texts)
    assert {(warning.filename, warning.lineno) for warning in told} == {(__file__, line)}


def test_the_second_fit_of_a_line_warns_again():
    frame, y, arms = messy()
    counts = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            ModifierSelector(EffectLikelihood("linear"), **SETTINGS).fit(frame, y, treatment=arms)
        counts.append(len(caught))
    assert counts[0] == counts[1] > 2


def test_several_arms_warn_once_of_what_they_share():
    frame, y, _ = messy(240)
    arms = np.array(["placebo", "low", "high"])[np.arange(240) % 3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ModifierSelector(EffectLikelihood("linear"), **SETTINGS).fit(frame, y, treatment=arms, reference="placebo")
    texts = [str(warning.message) for warning in caught]
    assert len(set(texts)) == len(texts)
    assert {warning.filename for warning in caught} == {__file__}


def test_a_user_can_turn_a_warning_into_an_error():
    frame, y, arms = messy()
    selector = ModifierSelector(EffectLikelihood("linear"), **SETTINGS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="looks like a code for missing")
        with pytest.raises(UserWarning, match="code for missing"):
            selector.fit(frame, y, treatment=arms)

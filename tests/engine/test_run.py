"""One engine: every table comes to it, those of few rows as tables in memory."""

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.sources import FrameSource
from modifind.engine import job

SETTINGS = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "explain": False}


@pytest.fixture
def tables(monkeypatch):
    """The tables that the engine is given."""
    found, fit = [], job.fit_table
    monkeypatch.setattr(job, "fit_table", lambda run, table, *more: found.append(table) or fit(run, table, *more))
    return found


def rows(n):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    arms = np.arange(n) % 2
    return X, arms * X["a"].to_numpy() + rng.normal(size=n), arms


@pytest.mark.parametrize(("n", "whole"), [(250, True), (350, False)])
def test_a_table_is_one_of_two_whatever_it_comes_as(tables, tmp_path, n, whole):
    X, y, arms = rows(n)
    file = tmp_path / "table.csv"
    X.assign(y=y, arm=arms).to_csv(file, index=False)
    selector = ModifierSelector(**SETTINGS, max_train_rows=300, random_state=0)
    results = [
        selector.fit(X, y, arms).result_,
        selector.fit(str(file), "y", "arm").result_,
        selector.fit(FrameSource.of(X, y, arms)).result_,
    ]
    assert [(table.whole, table.pieces is None) for table in tables] == 3 * [(whole, whole)]
    assert all(table.block.y.size == min(n, 300) and table.data.schema.n_rows == n for table in tables)
    for other in results[1:]:
        np.testing.assert_allclose(other.table["p_value"], results[0].table["p_value"], rtol=1e-9)
    assert results[0].selected == ["a"]


def test_both_kinds_of_tables_record_the_same_of_a_run():
    X, y, arms = rows(350)
    both = [
        ModifierSelector(**SETTINGS, max_train_rows=most, random_state=0).fit(X, y, arms).result_.settings
        for most in (300, 400)
    ]
    assert set(both[0]) - set(both[1]) == {"n_train_rows", "n_explained_rows"}
    assert set(both[1]) <= set(both[0])

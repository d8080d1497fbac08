"""A statistic of one's own with an analytic tail, as docs/extending.md has it, takes what the default takes."""

import re

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from modifind import ModifierSelector
from modifind.statistics import PreparedTerms, Statistic, Terms

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "class InteractionScore" in block)
CODE = BLOCK[: BLOCK.index("\n\n\nselector = ")]


@pytest.fixture(scope="module")
def statistic():
    scope = {"np": np}
    exec("from modifind.statistics import Nuisances, Statistic\n" + CODE, scope)
    return scope["InteractionScore"]


def table(seed, slope=0.6, n=400, shared=0.0):
    """Rows in clusters of four, of which `age` modifies the effect; arms and residuals share what clusters have."""
    rng = np.random.default_rng([seed, 67])
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "dose", "size"])
    X["dose"] += 0.5 * X["age"]
    sites = np.repeat(np.arange(n // 4), 4)
    X["size"] = rng.normal(size=n // 4)[sites]
    arms = rng.integers(0, 2, n)
    y = arms * (1 + slope * X["age"]) + X["dose"] + rng.normal(size=n)
    return X, y + shared * arms * rng.normal(size=n // 4)[sites], arms, sites


def p_values(statistic, X, y, arms, clusters=None, **settings):
    selector = ModifierSelector(statistic(), "gaussian", 0.5, explain=False, random_state=0, **settings)
    return selector.fit(X, y, arms, clusters=clusters).result_.table["p_value"]


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("settings", [{}, {"max_train_rows": 300}, {"feature_groups": {"age": ["age"]}}])
def test_it_finds_a_modifier_in_memory_in_pieces_and_among_clusters(statistic, settings, clustered):
    X, y, arms, sites = table(0)
    found = p_values(statistic, X, y, arms, sites if clustered else None, **settings)
    assert found["age"] < 1e-4
    assert found.drop("age").min() > 0.01


def test_it_takes_groups_of_columns_weights_and_explanations(statistic):
    X, y, arms, sites = table(1)
    settings = {"feature_groups": {"both": ["age", "dose"]}, "random_state": 0}
    selector = ModifierSelector(statistic(), "gaussian", 0.5, **settings)
    result = selector.fit(X, y, arms, clusters=sites, sample_weight=np.linspace(0.5, 2, 400)).result_
    assert result.table["p_value"]["both"] < 1e-4
    assert result.changes.loc["both", "mean_p"] < 1e-3  # by models of the outcome that explain what it found


def test_a_modification_downwards_is_found_where_the_statistic_is_two_sided(statistic):
    X, y, arms, _ = table(2, slope=-0.6)

    class Upwards(statistic):
        two_sided = False

    assert p_values(statistic, X, y, arms)["age"] < 1e-3
    assert p_values(Upwards, X, y, arms)["age"] > 0.99
    up = table(2, slope=0.6)[:3]
    assert p_values(statistic, *up)["age"] == pytest.approx(2 * p_values(Upwards, *up)["age"], rel=1e-9)


def test_clusters_hold_the_level_that_rows_alone_would_not(statistic):
    # 40 tables of three null features: the standard error of a share of 0.05 is 0.02.
    found = []
    for seed in range(40):
        X, y, arms, sites = table(100 + seed, slope=0.0, n=200, shared=1.5)
        found.append(p_values(statistic, X, y, arms, sites))
    assert (np.array(found) <= 0.05).mean() <= 0.05 + 2 * 0.02


def test_the_example_is_short():
    lines = [line for line in CODE.splitlines() if line.strip() and not line.startswith(("from", "import"))]
    assert len(lines) <= 30


class NoTerms(PreparedTerms):
    def at(self, rows):
        return self

    def terms(self, feature, distribution):
        return Terms(np.zeros(400), np.zeros((400, 1)), np.ones((400, 1)))


class Nothing(Statistic):
    name, tail, in_pieces = "nothing", "analytic", True

    def prepare(self, nuisances):
        return NoTerms()


def test_a_sum_that_no_row_adds_to_finds_nothing():
    X, y, arms, _ = table(3)
    assert (p_values(Nothing, X, y, arms) == 1.0).all()


@pytest.mark.parametrize("settings", [{}, {"max_train_rows": 300}])
@pytest.mark.parametrize(
    ("observed", "values", "weights", "message"),
    [
        (np.nan, 0.0, 1.0, "feature 'age': what rows add must be finite numbers"),
        (0.0, np.inf, 1.0, "feature 'age': what rows add must be finite numbers"),
        (0.0, 0.0, 2.0, "feature 'age': the weights of the points must sum to 1"),
        (0.0, 0.0, np.nan, "feature 'age': the weights of the points must sum to 1"),
    ],
)
def test_terms_that_are_none_are_refused_and_not_taken_for_nothing(observed, values, weights, message, settings):
    class Wrong(Nothing):
        def prepare(self, nuisances):
            return WrongTerms(nuisances, observed, values, weights)

    X, y, arms, _ = table(3)
    with pytest.raises(ValueError, match=message):
        p_values(Wrong, X, y, arms, **settings)


class WrongTerms(PreparedTerms):
    def __init__(self, rows, *numbers):
        self.rows, self.numbers = rows, numbers

    def at(self, rows):
        return WrongTerms(rows, *self.numbers)

    def terms(self, feature, distribution):
        n, (observed, values, weights) = self.rows.outcome.size, self.numbers
        return Terms(np.full(n, observed), np.full((n, 1), values), np.full((n, 1), weights))


def test_terms_of_other_rows_are_refused():
    X, y, arms, _ = table(3)
    with pytest.raises(ValueError, match=r"feature 'age': what rows add must have the shapes \(200,\)"):
        p_values(Nothing, X[:200], y[:200], arms[:200])


def test_what_needs_clusters_is_refused_where_the_statistic_takes_none():
    X, y, arms, sites = table(3)
    with pytest.raises(ValueError, match="'nothing' assumes independent rows; set takes_clusters = True"):
        p_values(Nothing, X, y, arms, sites)

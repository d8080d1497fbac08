"""Tables in pieces that would give a wrong answer are refused, and odd ones are read as they are in memory."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from modifind import ModifierSelector
from modifind.data.clusters import RowPlan
from modifind.data.schema import Schema, read_features
from modifind.data.sources import FrameSource, Piece
from modifind.data.summary import Summary
from modifind.nuisance.conditional import AutoSampler, GaussianSampler

N = 900


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["age", "dose"])
    return X, rng.normal(size=N), rng.integers(0, 2, N)


@dataclass(frozen=True)
class Odd:
    """A source that says or does what it should not."""

    whole: FrameSource
    n_rows: int | None = None
    shift: int = 0

    def pieces(self):
        for piece in self.whole.pieces():
            yield replace(piece, start=piece.start + self.shift)


def test_a_source_must_know_its_length():
    source = Odd(FrameSource.of(*table()), n_rows=10 * N)
    with pytest.raises(ValueError, match="900 rows but says 9000"):
        ModifierSelector(max_train_rows=2000).fit(source)


def test_pieces_must_follow_each_other():
    with pytest.raises(ValueError, match="starts at row 5, after 0 rows"):
        ModifierSelector(max_train_rows=200).fit(Odd(FrameSource.of(*table()), shift=5))


def test_scores_of_a_source_come_with_it():
    with pytest.raises(ValueError, match="must come with it"):
        ModifierSelector(propensity=np.full(N, 0.5)).fit(FrameSource.of(*table()))


def test_an_outcome_that_the_sample_does_not_vary_in_is_refused():
    X, _, a = table()
    y = np.zeros(N)
    words = RowPlan.of(np.random.SeedSequence(0).spawn(5)[0], 5, 1).words(np.arange(N))
    y[np.argsort(words)[-3:]] = 1.0  # outside the sample
    with pytest.raises(ValueError, match="y is the same in all rows of the sample"):
        ModifierSelector(max_train_rows=200, random_state=0).fit(X, y, treatment=a)


def test_large_integers_stay_apart():
    X, y, a = table()
    X["code"] = 2**53 + np.random.default_rng(0).integers(0, 3, N)
    piece = Piece(0, X, pd.Series(y), pd.Series(a))
    schema = Schema.of(Summary.of(piece, "auto"), None, None)
    whole = read_features(X)
    assert schema.categories == whole.categories
    np.testing.assert_array_equal(schema.read(piece).table.values, whole.values)


def test_declared_orders_that_agree_are_kept():
    X, y, a = table()
    X["stage"] = pd.Categorical(np.where(X["age"] > 0, "low", "high"), ["low", "mid", "high"], ordered=True)
    first = Piece(0, X[:450], pd.Series(y[:450]), pd.Series(a[:450]))
    second = Piece(450, X[450:], pd.Series(y[450:]), pd.Series(a[450:]))
    second.X["stage"] = second.X["stage"].cat.remove_unused_categories()
    schema = Schema.of(Summary.of(first, "auto") + Summary.of(second, "auto"), None, None)
    assert schema.categories[2] == ("low", "high")


@pytest.mark.parametrize("sampler", [GaussianSampler, AutoSampler])
def test_rules_of_wide_tables_score_rows_by_lines_that_have_not_seen_them(sampler):
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(300, 80)), rng.integers(0, 2, 300)
    x[:, 0] += x[:, 1] + a
    X = pd.DataFrame(x, columns=[f"x{j}" for j in range(80)])
    X["group"] = np.where(x[:, 2] + rng.normal(size=300) > 0, "u", "v")
    whole = read_features(X)
    folds = RowPlan.of(np.random.SeedSequence(0), 5, 1).folds(np.arange(300))[0]
    fitted = sampler()
    fitted.assign_folds(folds)
    fitted.fit(whole, a, np.random.SeedSequence(0))
    conditional, rule = fitted.conditional(0), fitted.rule(0)
    np.testing.assert_allclose(rule.conditional(whole, a, folds).mean, conditional.mean, atol=1e-12)
    # The trees or classifiers of a fold's outside: its own rows change nothing for them.
    moved = x.copy()
    moved[folds == 0, 2] += 100.0
    other = sampler()
    other.assign_folds(folds)
    changed = replace(whole, values=np.column_stack((moved, whole.values[:, 80])), reference=whole.scaling)
    other.fit(changed, a, np.random.SeedSequence(0))
    inside = np.flatnonzero(folds == 0)
    original = replace(whole, reference=whole.scaling)
    first = fitted.rule(80).conditional(original, a, folds).grid(inside)[1]
    second = other.rule(80).conditional(original, a, folds).grid(inside)[1]
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_folds_of_other_rows_are_not_used():
    X, _, a = table()
    sampler = GaussianSampler()
    sampler.assign_folds(np.zeros(7, dtype=np.int64))
    fitted = sampler.fit(read_features(X), a, np.random.SeedSequence(0))
    plain = GaussianSampler().fit(read_features(X), a, np.random.SeedSequence(0))
    np.testing.assert_array_equal(fitted.folds_, plain.folds_)

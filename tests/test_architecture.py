"""The house is as it is described: import rules, the picture of the packages, where things are, contracts."""

import ast
import re
from importlib import import_module

import grimp
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from conftest import ROOT
from modifind import EffectLikelihood, GaussianSampler, ModifierSelector
from modifind.datasets import make_modifiers
from modifind.engine.record import stable_repr
from modifind.nuisance.outcome import RegressorLearner
from modifind.statistics import Statistic

SOURCES = ROOT / "src" / "modifind"
APART = ("statistics", "nuisance.conditional", "nuisance.propensity", "inference")


def home(module):
    """Which of the parts that stand apart a module belongs to; contracts belong to all."""
    if module.endswith(".contract"):
        return None
    return next((part for part in APART if f"{module}.".startswith(f"modifind.{part}.")), None)


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("modifind", cache_dir=None)


def test_only_the_engine_puts_parts_together(graph):
    found = {}
    for module in graph.modules:
        parts = {home(module)} | {home(other) for other in graph.find_modules_directly_imported_by(module)}
        parts.discard(None)
        if len(parts) > 1 and not module.startswith("modifind.engine."):
            found[module] = parts
    assert found == {}


def test_no_module_asks_for_the_class_of_a_part_of_another_package():
    kinds = re.compile(r"(Statistic|WCMMD|EffectLikelihood|Sampler|Learner)$")
    owners = ("statistics/", "nuisance/conditional/", "nuisance/outcome/")
    found = []
    for file in SOURCES.rglob("*.py"):
        place = file.relative_to(SOURCES).as_posix()
        if place.startswith(owners):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = [name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)]
                found += [f"{place}:{node.lineno}" for name in classes if kinds.search(name)]
    assert found == []


@pytest.fixture
def tools(monkeypatch):
    """Scripts of tools/, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return import_module


def test_every_module_is_imported_by_another(tools):
    orphans = tools("orphans")
    assert orphans.orphans(SOURCES, orphans.commands()) == []


def test_an_orphan_is_found_and_imports_of_every_kind_count(tools, tmp_path):
    files = {
        "__init__.py": "",
        "__init__.pyi": "from house.stubbed import name",
        "__main__.py": "from house.entry import main",
        "entry.py": "def main():\n    from .rooms import kitchen\n    import house.cellar",
        "stubbed.py": "name = 1",
        "cellar.py": "from . import attic",
        "attic.py": "",
        "command.py": "",
        "rooms/__init__.py": "",
        "rooms/kitchen.py": "from ..rooms import kitchen",
        "rooms/shed.py": "import house.rooms.shed",
    }
    package = tmp_path / "house"
    (package / "rooms").mkdir(parents=True)
    for place, text in files.items():
        (package / place).write_text(text, encoding="utf-8")
    assert tools("orphans").orphans(package, ["house.command"]) == ["house.rooms.shed"]
    assert tools("orphans").orphans(package) == ["house.command", "house.rooms.shed"]


def test_docstrings_comments_and_blank_lines_are_no_code(tools):
    text = '"""What it is,\n\nat length."""\n\n# why\ndef f():\n    """Docs."""\n    return """a\nb"""  # said\n'
    assert tools("corridors").code_lines(text) == 3


def test_a_trace_has_lines_of_functions_of_the_engine_alone(tools, tmp_path):
    (tmp_path / "engine").mkdir()
    traced, aside = tmp_path / "engine" / "room.py", tmp_path / "aside.py"
    traced.write_text("def f(x):\n    if x:\n        return 1\n    return 2\n", encoding="utf-8")
    aside.write_text("def g(x):\n    return f(x)\n", encoding="utf-8")
    scope = {}
    trace = tools("corridors").Trace(tmp_path)
    with trace.recording(tails=False):
        for file in (traced, aside):
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), scope)
        scope["g"](True)
    assert trace.lines == {("engine.room", 2), ("engine.room", 3)}


def test_the_picture_of_the_walk_shows_what_a_fit_does(tools):
    walk = tools("walk")
    assert walk.PICTURE.read_text(encoding="utf-8") == walk.draw(walk.walk()), "run `python tools/walk.py`"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (lambda walk: (walk.STAGES[0], ("nothing", walk.draw)), "no row passes walk:draw"),
        (lambda walk: walk.STAGES[1::-1], r"in another order: \['selector:ModifierSelector.fit', 'data"),
    ],
)
def test_a_stage_that_no_row_passes_in_its_place_is_an_error(tools, monkeypatch, stages, message):
    walk = tools("walk")
    monkeypatch.setattr(walk, "STAGES", stages(walk))
    with pytest.raises(ValueError, match=message):
        walk.walk()


def test_every_place_that_contributing_names_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    answers = re.search(r"\| I want to .*?\n\n", text, re.S).group(0).strip().split("\n")[2:]
    assert len(answers) >= 10
    for answer in answers:
        places = [place for place in re.findall(r"`([\w./]+)`", answer) if "/" in place]
        assert places, answer
        for place in places:
            assert (SOURCES / place).exists() or (ROOT / place).exists(), f"{place} of: {answer}"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)


def test_the_examples_of_the_page_on_extending_run(capsys, tmp_path):
    scope = {}
    for block in blocks("extending.md"):
        exec(compile(block, "extending.md", "exec"), scope)
    data = scope["data"]
    scope["selector"].result_.report(tmp_path / "report.html")
    assert "and the statistic InteractionScore." in (tmp_path / "report.html").read_text(encoding="utf-8")
    found = ModifierSelector(scope["SlopeInPieces"](), "gaussian", n_resamples=199, explain=False, random_state=0)
    p_values = found.set_params(max_train_rows=300).fit(data.X, data.y, data.treatment).result_.table["p_value"]
    assert p_values[data.modifiers].max() <= 0.05 < p_values.drop(data.modifiers).min()
    assert "['x0']" in capsys.readouterr().out


class Slopes(Statistic):
    def prepare(self, nuisances):
        return self

    def value(self, column):
        return float(np.var(column.values))


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({}, {"sample_weight": np.arange(1.0, 201)}, "Slopes does not support sample weights; leave sample_weight out"),
        ({}, {"clusters": np.arange(200) // 2}, "clusters needs statistic='effect_likelihood'; resampled .* Slopes"),
        ({"feature_groups": {"both": ["X1", "X2"]}}, {}, "feature_groups need .* Slopes looks at one column"),
    ],
)
def test_what_a_statistic_does_not_say_that_it_takes_is_refused(settings, rows, message):
    data = make_modifiers("LinMean", n_samples=200, n_features=5, random_state=0)
    with pytest.raises(ValueError, match=message):
        ModifierSelector(Slopes(), **settings).fit(data.X, data.y, data.treatment, **rows)


class Sums(Statistic):
    tail = "analytic"

    def prepare(self, nuisances):
        return self


class Groups(Slopes):
    takes_feature_groups = True


class Endless(Slopes):
    def value(self, column):
        return np.nan


class Wide(Slopes):
    def value(self, column):
        return np.zeros(2)


class OneArray:
    def fit(self, X, a, y):
        return self

    def predict(self, X):
        return np.zeros((len(X), 2))


class Bare:
    def fit(self, table, treatment, seed):
        return self

    def rule(self, feature):
        return object()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"statistic": object()}, "not object, which has no method prepare"),
        ({"statistic": Sums()}, "Sums has tail = 'analytic', but what it prepares, Sums, is not derived from"),
        ({"statistic": "slope"}, "statistic must be one of 'effect_likelihood', 'wcmmd' or a statistic, not 'slope'"),
        ({"statistic": EffectLikelihood(object())}, "object has no fit and no predict"),
        ({"sampler": object()}, "object has no fit and no rule"),
        ({"statistic": Sums}, "statistic must be an object, Sums(...), not the class"),
        ({"statistic": EffectLikelihood(LinearRegression)}, "learner must be an object, LinearRegression(...)"),
        ({"sampler": GaussianSampler}, "sampler must be an object, GaussianSampler(...)"),
        (
            {"statistic": EffectLikelihood(LogisticRegression())},
            "a classifier, which needs an outcome of two values",
        ),
        ({"statistic": EffectLikelihood(OneArray())}, "OneArray.predict must return a pair (location, scale)"),
        ({"statistic": Groups()}, "takes_clusters and takes_feature_groups must be False"),
        ({"statistic": Endless()}, "feature 'X1': Endless is nan for the feature as observed; it must be finite"),
        ({"statistic": Wide()}, "feature 'X1': Wide: value must be a number; found shape (2,)"),
        ({"sampler": Bare()}, "feature 'X1': what Bare.rule returns, object, has no calibration and no conditional"),
    ],
)
def test_parts_that_lack_a_method_are_refused_by_its_name(part, message):
    data = make_modifiers("LinMean", n_samples=100, n_features=5, random_state=0)
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "explain": False, "random_state": 0}
    with pytest.raises(ValueError, match=re.escape(message)):
        ModifierSelector(**settings | part).fit(data.X, data.y, data.treatment)


class Offset:
    """A learner and a sampler that are told apart by what they hold alone."""

    def __init__(self, offset):
        self.offset = offset

    def fit(self, X, a, y):
        return self

    def predict(self, X):
        location = np.column_stack([np.zeros(len(X)), self.offset * X[:, 0]])
        return location, np.ones_like(location)


def test_a_checkpoint_of_another_object_of_the_same_class_is_refused(tmp_path):
    data = make_modifiers("LinMean", n_samples=100, n_features=5, random_state=0)
    settings = {"sampler": "gaussian", "explain": False, "random_state": 0, "checkpoint": tmp_path / "saved"}

    def fit(learner):
        return ModifierSelector(EffectLikelihood(learner), **settings).fit(data.X, data.y, data.treatment).result_

    first = fit(Offset(1.0))
    assert fit(Offset(1.0)) == first
    with pytest.raises(ValueError, match=r"learner='Offset\(offset=1.0\)'|Offset\(offset=1.0\)"):
        fit(Offset(2.0))
    assert stable_repr(lambda x: x + 1) != stable_repr(lambda x: x + 2)
    assert stable_repr(Offset(np.arange(30))) != stable_repr(Offset(np.arange(30) + 1))


def test_missing_values_are_refused_for_statistics_that_do_not_take_them():
    data = make_modifiers("LinMean", n_samples=100, n_features=5, random_state=0)
    gaps = data.X.assign(X1=data.X["X1"].where(data.X["X1"] > -1))
    with pytest.raises(ValueError, match=r"Slopes does not support missing values \(found in X1\); fill them"):
        ModifierSelector(Slopes(), missing="category").fit(gaps, data.y, data.treatment)


def test_an_arm_without_events_has_a_chance_of_zero():
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(60, 2)), np.arange(60) % 2
    for model in (LogisticRegression(), RandomForestClassifier(n_estimators=5, random_state=0)):
        chance, _ = RegressorLearner(model).fit(X, a, (a * (X[:, 0] > 0)).astype(float)).predict(X)
        assert (chance[:, 0] == 0).all()
        assert chance[:, 1].max() > 0.5


def test_a_statistic_of_one_s_own_has_the_level_that_resamples_have():
    """Under the null 40 p-values of 20 tables; at most 5 at or below 0.05 (more have a probability of 0.014)."""
    p_values = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, a = rng.normal(size=(80, 3)), np.arange(80) % 2
        selector = ModifierSelector(Curious(), "gaussian", 0.5, n_resamples=39, explain=False, random_state=seed)
        p_values += (
            selector.fit(X, a + X[:, 0] + rng.normal(size=80), treatment=a).result_.table["p_value"].tolist()[1:]
        )
    assert np.mean(np.array(p_values) <= 0.05) <= 5 / 40


class Curious(Statistic):
    """Looks at everything that it is given, at the largest outcomes only."""

    def prepare(self, nuisances):
        self.top_ = nuisances.outcome >= np.quantile(nuisances.outcome, 0.9)
        self.arms_ = nuisances.arms
        return self

    def value(self, column):
        return float(abs(column.values[self.top_ & (self.arms_ == 1)].sum()))


def test_a_binary_outcome_takes_a_classifier():
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    y = (rng.random(400) < 1 / (1 + np.exp(-2 * a * X[:, 0]))).astype(float)
    selector = ModifierSelector(EffectLikelihood(LogisticRegression()), "gaussian", 0.5, explain=False, random_state=0)
    assert selector.fit(X, y, treatment=a).result_.selected == ["x0"]


def test_a_spread_that_follows_the_features_is_found():
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(600, 2)), np.arange(600) % 2
    y = np.exp(0.8 * a * X[:, 1]) * rng.normal(size=600)
    learner = RegressorLearner(LinearRegression(), spread=LinearRegression())
    _, scale = learner.fit(X, a, y).predict(np.array([[0.0, -1.0], [0.0, 1.0]]))
    assert scale[1, 1] / scale[0, 1] == pytest.approx(np.exp(1.6), rel=0.35)
    assert scale[1, 0] / scale[0, 0] == pytest.approx(1.0, rel=0.35)
    doubled = RegressorLearner(LinearRegression()).fit(X, a, y, np.full(600, 2.0)).predict(X)
    plain = RegressorLearner(LinearRegression()).fit(X, a, y).predict(X)
    np.testing.assert_allclose(doubled, plain)

"""Any table gives a valid result or an error that names a column or an argument, and nothing else.

``make fuzz`` runs the same with 3,000 tables in Python and 400 on the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pandas.testing import assert_frame_equal

from messy import MessyTable, Written, messy_tables, ways_of_writing
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.data.words import printable
from modifind.inference import ConditionalRandomizationTest
from modifind.statistics import WCMMD

N_TABLES = int(os.environ.get("MODIFIND_FUZZ_TABLES", "14"))
N_COMMANDS = int(os.environ.get("MODIFIND_FUZZ_COMMANDS", "2"))
ARGUMENTS = (
    *("X", "y", "treatment", "outcome", "alpha", "adjust", "cv", "sampler", "statistic", "learner", "propensity"),
    *("missing", "discrete_features", "feature_groups", "sample_weight", "clusters", "strata", "outcome_transform"),
    *("n_resamples", "--weight", "--clusters", "--strata", "--missing", "--propensity", "--features", "data file"),
    *("--separator", "--decimal", "--encoding", "--row-names", "the table has"),
)
HOW = {
    "deadline": None,
    "derandomize": "MODIFIND_FUZZ_TABLES" not in os.environ,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "phases": [Phase.explicit, Phase.generate],  # shrinking a table takes longer than reading it
}


def selector_of(table: MessyTable) -> ModifierSelector:
    """The selector with the table's settings; statistics are kept small."""
    own = dict(table.settings)
    statistic = own.pop("statistic")
    if statistic in ("linear", "splines"):
        return ModifierSelector(EffectLikelihood(statistic), random_state=0, **own)
    if statistic == "wcmmd":
        test = ConditionalRandomizationTest(stop_after=5)
        return ModifierSelector(WCMMD(), n_resamples=19, test=test, random_state=0, **own)
    return ModifierSelector(statistic, random_state=0, **own)


def assert_valid(result: SelectionResult) -> None:
    """Every number a user may read is one."""
    table = result.table
    assert len(table) > 0
    for name in ("p_value", "p_adjusted"):
        assert table[name].between(0, 1).all(), name
    assert (np.isfinite(table["importance"]) & (table["importance"] >= 0)).all()
    assert table["selected"].dtype == bool
    for value in result.overlap.values():
        assert np.isfinite(value)
    assert_round_trip(result)


def assert_round_trip(result: SelectionResult) -> None:
    """A result that was written and read is the same, in its frames to the type of every column."""
    with tempfile.TemporaryDirectory() as folder:
        result.to_json(Path(folder) / "result.json")
        back = SelectionResult.from_json(Path(folder) / "result.json")
    assert back == result
    assert back.settings == json.loads(json.dumps(dict(result.settings), default=str))
    assert list(back.curves) == list(result.curves)
    pairs = [(back.table, result.table), (back.checks, result.checks)]
    for one, two in pairs + [(back.curves[name], curve) for name, curve in result.curves.items()]:
        assert_frame_equal(one, two, check_exact=True)


def assert_names(message: str, table: MessyTable) -> None:
    """The message names a column of the table or an argument."""
    shown = " ".join(message.split())
    named = [
        name
        for name in table.names
        if repr(name) in message or (name.strip() and (" ".join(name.split()) in shown or printable(name) in shown))
    ]
    assert named or any(argument in shown for argument in ARGUMENTS), message


@settings(max_examples=N_TABLES, **HOW)
@given(messy_tables())
def test_python(table: MessyTable) -> None:
    selector = selector_of(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        refused = ""
        try:
            selector.fit(table.X, table.y, table.treatment, **table.fit)
        except ValueError as error:
            refused = str(error) or repr(error)
    if refused:
        assert_names(refused, table)
    else:
        assert_valid(selector.result_)
    stray = [
        f"{w.category.__name__}: {w.message} ({w.filename}:{w.lineno})" for w in caught if w.category is not UserWarning
    ]
    assert not stray, stray


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=N_COMMANDS, **HOW)
@given(table=messy_tables(), how=ways_of_writing())
def test_command_line(folder: Path, table: MessyTable, how: Written) -> None:
    frame = table.frame.copy()
    frame["arm of the trial"], frame["result of it"] = np.asarray(table.treatment), np.asarray(table.y)
    data, out, report = folder / f"data{how.ending}", folder / "result.json", folder / "report.html"
    for path in (out, report):
        path.unlink(missing_ok=True)
    data.write_bytes(how.content(frame))
    command = [*("select", str(data), "--treatment", "arm of the trial", "--outcome", "result of it")]
    command += [*("--out", str(out), "--report", str(report), *options_of(table), *how.options)]
    code = "import sys; from modifind.cli.app import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=900, check=False
    )
    said = ran.stderr
    assert "Traceback" not in said, said
    assert "RuntimeWarning" not in said, said
    assert not {"\x1b", "\u202e", "\ufeff", "\0"} & {*said, *ran.stdout}, said
    if ran.returncode in (0, 3):
        assert_valid(SelectionResult.from_json(out))
        assert report.stat().st_size > 1000
    else:
        assert ran.returncode == 2, (ran.returncode, said)
        last = [line for line in said.splitlines() if line.strip()][-1]
        assert last.startswith("modifind: error: "), said
        if data.name not in last:
            assert_names(last, MessyTable(frame, None, None, tuple(map(str, frame.columns))))
        assert not any(path.exists() for path in (out, report))
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def options_of(table: MessyTable) -> list[str]:
    """The table's settings as the command line takes them."""
    own: dict[str, Any] = table.settings
    options = ["--sampler", str(own["sampler"]), "--missing", str(own["missing"]), f"--alpha={own['alpha']}"]
    options += ["--adjust", str(own["adjust"])]
    if own["statistic"] in ("linear", "splines"):
        options += ["--learner", own["statistic"]]
    else:
        options += ["--statistic", own["statistic"], "--resamples", "19"]
    if isinstance(own["propensity"], float | str):
        options += ["--propensity", str(own["propensity"])]
    return options + ["--strict"] * (own["cv"] == 5)

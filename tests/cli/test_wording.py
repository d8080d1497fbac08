"""One of each thing is told in the singular, in warnings, the report and on the command line."""

import html
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from modifind import EffectLikelihood, ModifierSelector
from modifind.cli.app import main

N = 300
PLURALS = re.compile(
    r"(?<![\d.,+\N{MINUS SIGN}-])\b1 (?:[a-z]+ )?(?!less|is\b|has\b|was\b|does\b|plus|this)[a-z]+s\b(?! to \d)"
)
OLD = ("consider to", "the table has not", "take missing=")


@pytest.fixture(scope="module")
def table():
    """One feature to test, which modifies, with one missing value, and one column to adjust for with one rare level."""
    rng = np.random.default_rng(0)
    age = rng.normal(50, 9, N)
    treatment = np.arange(N) % 2
    frame = pd.DataFrame({"age": age, "site": np.where(np.arange(N) < 4, "rare", np.where(age > 50, "a", "b"))})
    frame["change"] = (age - 50) / 6 * treatment + rng.normal(size=N)
    frame["arm"] = treatment
    frame.loc[0, "age"] = np.nan
    return frame


def plurals(text):
    """What is told of one thing as if it were several."""
    words = " ".join(text.split())
    found = [words[max(m.start() - 40, 0) : m.end() + 40] for m in PLURALS.finditer(words)]
    return found + [old for old in OLD if old in words]


def shown(page):
    """The text of a report."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    hidden = r"<td.*?</td>|<svg.*?</svg>|<dl class=\"settings\".*?</dl>|<[^>]+>"
    return html.unescape(re.sub(hidden, " ", page, flags=re.DOTALL))


def test_the_search_finds_what_it_should():
    bad = ("1 rows are", "1 values do not", "0 of 1 placebo treatments found", "(1 features)")
    assert all(plurals(text) for text in bad)
    assert not any(
        plurals(text) for text in ("1 row is", "0.1 units", "11 rows", "1 is", "1 of 300 rows has", "-1 days")
    )


def test_messages_tell_of_one_thing_in_the_singular():
    lines = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8").splitlines()
    found = [wrong for line in lines if line.startswith("| ") for wrong in plurals(line)]
    assert not found


def test_one_of_each_is_told_in_the_singular(table, tmp_path):
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=0)
    selector.set_params(missing="drop", placebo_runs=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        selector.fit(table[["age", "site"]], table["change"], treatment=table["arm"], adjust_for=["site"])
    result, said = selector.result_, [str(w.message) for w in caught]
    assert result.selected == ["age"]
    assert "1 of 300 rows has a missing value and is left out: age (1)" in said
    assert any("'rare'" in text for text in said)
    result.report(tmp_path / "report.html")
    page = shown((tmp_path / "report.html").read_text(encoding="utf-8"))
    for text in (*said, page, repr(result), result.placebo.text, *result.checks["text"], *result.checks["remedy"]):
        assert not plurals(text)
    assert "1 feature tested." in page
    assert "1 row with a missing value was left out." in page


def test_one_of_each_is_told_in_the_singular_on_the_command_line(table, tmp_path, monkeypatch, capsys):
    table.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    line = [
        "select",
        "table.csv",
        "--treatment",
        "arm",
        "--outcome",
        "change",
        "--features",
        "age",
        "--missing",
        "drop",
    ]
    line += ["--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain", "--placebo", "1"]
    for more in ([], ["--dry-run"]):
        monkeypatch.setattr(sys, "argv", ["modifind", *line, *more])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert not end.value.code
        assert not plurals(said.err)
        assert not plurals(said.out)

"""The page of trust: figures, errors and verdicts of its rows, and that it is written as a whole or not at all."""

import importlib
import re
from datetime import date

import numpy as np
import pytest

import modifind
from conftest import ROOT


@pytest.fixture(scope="module")
def trust():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("trust")


@pytest.fixture
def quick(trust, monkeypatch):
    """Parts that end at once."""
    monkeypatch.setattr(trust, "PARTS", {"null": ("Null features", lambda _: iter([row(trust, [[0], [1]])]))})


def row(trust, answers, target=None):
    return trust.Row("design", "1,000, 30", "counted", target or trust.LEVEL, [np.array(own) for own in answers])


def ended(trust, arguments):
    with pytest.raises(SystemExit) as stop:
        trust.main(arguments)
    return stop.value.code


def test_the_small_version_writes_every_part(trust, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MODIFIND_DATA", raising=False)
    ended(trust, ["--small", "--jobs", "1", "--seed", "0", "--out", str(tmp_path / "trust.md")])
    text = (tmp_path / "trust.md").read_text(encoding="utf-8")
    assert f"modifind {modifind.__version__}, {date.today().isoformat()}; seeds from 0;" in text
    assert "The small version" in text
    assert "Skipped all real tables: MODIFIND_DATA names no folder." in text
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    assert [own.split("\n")[0] for own in sections] == [title for title, _ in trust.PARTS.values()]
    for name, own in zip(trust.PARTS, sections, strict=True):
        assert f"python benchmarks/trust.py --parts {name} --seed 0 --small\n" in own
        shares = [float(line.split(" | ")[4]) for line in own.splitlines() if re.search(r"\d of \d|mean, \d", line)]
        assert shares
        assert all(0 <= share <= 1 for share in shares)
    assert "nan" not in text


def test_the_page_of_the_repository_is_of_these_parts(trust):
    text = trust.PAGE.read_text(encoding="utf-8")
    assert re.search(r"^modifind \d+\.\d+\.\d+\S*, \d{4}-\d\d-\d\d; seeds from \d+;", text, re.M)
    assert re.findall(r"^## (.*)$", text, re.M) == [title for title, _ in trust.PARTS.values()]


def test_errors_take_answers_of_one_table_to_go_together(trust):
    together = row(trust, [[0] * 10] * 9 + [[1] * 10])
    apart = row(trust, [[0] * 9 + [1]] * 10)
    assert together.error() == pytest.approx(0.1)  # as of ten answers, one of them yes
    assert apart.error() == 0.0
    assert together.cells()[4:7] == ["0.100", "0.100", "10 of 100, 10"]


@pytest.mark.parametrize(
    ("yes", "of", "sign", "share", "verdict"),
    [
        (4, 100, 1, 0.05, "yes"),
        (8, 100, 1, 0.05, "within 2 errors"),
        (11, 100, 1, 0.05, "**no**"),  # a chance of 0.01
        (20, 100, 1, 0.05, "**broken**"),
        (90, 100, -1, 0.8, "yes"),
        (75, 100, -1, 0.8, "within 2 errors"),
        (50, 100, -1, 0.8, "**no**"),
        (10, 100, -1, 0.8, "**no**"),  # a test of little power is not a broken one
        (94, 100, 0, 0.95, "yes"),
        (92, 100, 0, 0.95, "within 2 errors"),
        (100, 100, 0, 0.95, "**no**"),  # too wide is wrong as well
        (80, 100, 0, 0.95, "**broken**"),
    ],
)
def test_a_row_is_judged_by_its_target_and_its_error(trust, yes, of, sign, share, verdict):
    answers = [[int(k < yes)] for k in range(of)]
    assert row(trust, answers, trust.Target(sign, share)).cells()[-1] == verdict


def test_answers_that_go_together_tell_less(trust):
    together = [[1] * 5] * 2 + [[0] * 5] * 10
    assert row(trust, together).cells()[-1] == "within 2 errors"  # as of twelve answers, two of them yes
    assert row(trust, [[1]] * 10 + [[0]] * 50).cells()[-1] == "**broken**"


def test_nothing_is_written_before_the_last_part_has_ended(trust, tmp_path, monkeypatch):
    def stopped(budget):
        yield row(trust, [[0, 1]])
        raise KeyboardInterrupt

    page = tmp_path / "trust.md"
    page.write_text("of last time", encoding="utf-8")
    monkeypatch.setattr(trust, "PAGE", page)
    monkeypatch.setattr(
        trust, "PARTS", {"null": ("Null", lambda _: iter([row(trust, [[0]])])), "coins": ("C", stopped)}
    )
    with pytest.raises(KeyboardInterrupt):
        trust.main([])
    assert page.read_text(encoding="utf-8") == "of last time"
    assert [own.name for own in tmp_path.iterdir()] == ["trust.md"]


def test_part_of_the_work_writes_no_page(trust, quick, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trust, "PAGE", tmp_path / "trust.md")
    assert ended(trust, ["--only", "no effect"]) == 0
    assert not trust.PAGE.exists()
    assert ended(trust, ["--only", "no effect", "--out", str(trust.PAGE)]) == 2
    assert "--out needs every part and every design" in capsys.readouterr().err
    assert ended(trust, []) == 0
    assert "Of 1 rows 0 meet their target, 0 are on" in trust.PAGE.read_text(encoding="utf-8")


def test_a_broken_row_ends_with_1(trust, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "PAGE", tmp_path / "trust.md")
    monkeypatch.setattr(trust, "PARTS", {"null": ("Null", lambda _: iter([row(trust, [[1]] * 20)]))})
    assert ended(trust, []) == 1
    assert "- design: counted, 1.000 (at most 0.05)\n" in trust.PAGE.read_text(encoding="utf-8")

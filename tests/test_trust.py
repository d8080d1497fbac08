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
    return trust.Row("design", "counted", target or trust.LEVEL, [np.array(own) for own in answers])


def test_the_small_version_writes_every_part(trust, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MODIFIND_DATA", raising=False)
    trust.main(["--small", "--jobs", "1", "--seed", "0", "--out", str(tmp_path / "trust.md")])
    text = (tmp_path / "trust.md").read_text(encoding="utf-8")
    assert f"modifind {modifind.__version__}, {date.today().isoformat()}; seeds from 0;" in text
    assert "The small version" in text
    assert "Skipped all real tables: MODIFIND_DATA names no folder." in text
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    assert [own.split("\n")[0] for own in sections] == [title for title, _ in trust.PARTS.values()]
    for name, own in zip(trust.PARTS, sections, strict=True):
        assert f"python benchmarks/trust.py --parts {name} --seed 0 --small\n" in own
        shares = [float(line.split(" | ")[3]) for line in own.splitlines() if re.search(r"\d of \d|mean, \d", line)]
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
    assert together.cells()[3:6] == ["0.100", "0.100", "10 of 100, 10"]


@pytest.mark.parametrize(
    ("yes", "of", "sign", "share", "verdict"),
    [
        (4, 100, 1, 0.05, "yes"),
        (8, 100, 1, 0.05, "within 2 errors"),
        (20, 100, 1, 0.05, "**no**"),
        (90, 100, -1, 0.8, "yes"),
        (75, 100, -1, 0.8, "within 2 errors"),
        (50, 100, -1, 0.8, "**no**"),
        (93, 100, 0, 0.95, "yes"),
        (100, 100, 0, 0.95, "**no**"),  # too wide is wrong as well
        (80, 100, 0, 0.95, "**no**"),
    ],
)
def test_a_row_is_judged_by_its_target_and_its_error(trust, yes, of, sign, share, verdict):
    answers = [[int(k < yes)] for k in range(of)]
    assert row(trust, answers, trust.Target(sign, share)).cells()[-1] == verdict


def test_nothing_is_written_before_the_last_part_has_ended(trust, tmp_path, monkeypatch):
    def stopped(budget):
        yield row(trust, [[0, 1]])
        raise KeyboardInterrupt

    page = tmp_path / "trust.md"
    page.write_text("of last time")
    monkeypatch.setattr(trust, "PAGE", page)
    monkeypatch.setattr(
        trust, "PARTS", {"null": ("Null", lambda _: iter([row(trust, [[0]])])), "coins": ("C", stopped)}
    )
    with pytest.raises(KeyboardInterrupt):
        trust.main([])
    assert page.read_text() == "of last time"
    assert [own.name for own in tmp_path.iterdir()] == ["trust.md"]


def test_part_of_the_work_writes_no_page(trust, quick, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trust, "PAGE", tmp_path / "trust.md")
    trust.main(["--only", "no effect"])
    assert not trust.PAGE.exists()
    with pytest.raises(SystemExit):
        trust.main(["--only", "no effect", "--out", str(trust.PAGE)])
    assert "--out needs every part and every design" in capsys.readouterr().err
    trust.main([])
    assert "1 are within two standard errors of it, and 0 miss it" in trust.PAGE.read_text(encoding="utf-8")

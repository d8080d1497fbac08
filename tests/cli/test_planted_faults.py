"""Faults planted in random tables are reported, and clean tables are not accused; ``make fuzz`` runs many more."""

import importlib

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT

with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(str(ROOT / "benchmarks"))
    planted = importlib.import_module("planted_faults")
    tables = importlib.import_module("planted_tables")
    clean = importlib.import_module("clean_tables")

SLOW = {"--preset uai2022", "mixed codes in a long file"}
# Nothing reports these yet, in the variant that is tried here; whoever adds a guard takes its line away.
QUICK_KINDS = ("trial, numeric", "binary", "a dozen cells", "strong baseline", "heavy ties", "times without censoring")


@pytest.fixture
def table():
    return tables.draw(np.random.default_rng(0), 200, 4)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(tables, "SIZES", (200, 300))
    monkeypatch.setattr(tables, "OFTEN", (0.5, 0.5))
    monkeypatch.setattr(tables, "MAX_FEATURES", 6)


@pytest.mark.parametrize("name", [name for name in planted.FAULTS if name not in SLOW])
def test_a_planted_fault_is_reported(name):
    for case, reply, way in planted.replies(name, 1):
        assert way, planted.described(case, reply)


@pytest.mark.parametrize("kind", [*QUICK_KINDS, "decimal commas", "clusters declared", "ids excluded"])
def test_a_clean_table_is_not_accused(kind):
    for case, reply in planted.clean_replies(kind, 1):
        assert not reply.accusations, planted.described(case, reply)


@pytest.mark.parametrize("file", ["", ".csv", ".ssv"])
def test_cases_are_run_and_read(table, file, tmp_path):
    reply = table.case(file).run(tmp_path)
    assert sorted(reply.result.table.index) == sorted(table.features)
    assert reply.result.settings["n_rows"] == 200


@pytest.mark.parametrize("file", ["", ".csv"])
def test_a_refusal_for_another_reason_is_no_report(table, file, tmp_path):
    table = table.with_column(np.random.default_rng(1), "leak", table.a * 2.5)
    case = table.case(file, words=[tables.named("someone")])
    reply = case.run(tmp_path)
    assert "leak" in reply.refused
    assert reply.accusations
    assert not tables.reported(case, reply)
    case.words = [tables.named("leak")]
    assert tables.reported(case, reply) == "refused"


def test_a_note_counts_only_where_it_is_enough():
    case = tables.Case(pd.DataFrame(), "a", "y", words=[tables.named("age"), "code"])
    reply = tables.Reply(notes=["looks like a code for missing: 999 in 'age'"])
    assert not tables.reported(case, reply)
    case.note = True
    assert tables.reported(case, reply) == "note"
    assert not reply.accusations


def test_checks_of_models_are_neither_reports_nor_accusations():
    case = tables.Case(pd.DataFrame(), "a", "y", words=[tables.named("age")])
    reply = tables.Reply(failing=[("conditional_fit", "age fits poorly")])
    assert not reply.accusations
    assert not tables.reported(case, reply)
    reply.failing += [("arms_differ", "the arms differ in age")]
    assert tables.reported(case, reply) == "check"
    assert reply.accusations == ["arms_differ: the arms differ in age"]


def test_names_are_whole_words_in_any_unicode_form():
    assert tables.says("column 'Größe' is odd", [tables.named("Gro\u0308ße")])
    assert not tables.says("an identifier", [tables.named("id")])


def test_a_variant_is_the_same_whatever_else_is_run():
    one, other = (planted.FAULTS["copied rows"](planted.stream("copied rows", 0, 3)) for _ in range(2))
    pd.testing.assert_frame_equal(one.frame, other.frame)
    assert not one.frame.equals(planted.FAULTS["copied rows"](planted.stream("copied rows", 0, 4)).frame)


def test_the_command_prints_both_tables(monkeypatch, capsys):
    monkeypatch.setattr(planted, "FAULTS", {"visits": planted.FAULTS["copied rows"]})
    monkeypatch.setattr(clean, "KINDS", {"trial": clean.trial})
    monkeypatch.setattr(planted, "run", lambda case: tables.Reply(refused="clusters"))
    monkeypatch.delenv("MODIFIND_DATA", raising=False)
    planted.main(["--variants", "2", "--tables", "3"])
    printed = capsys.readouterr().out
    assert "| visits | 2 | 2 | refused 2 | 100% |" in printed
    assert "| trial | 3 | 3 | refused 3 |" in printed
    assert "2 of 2 faults reported (100.0%)" in printed
    assert "3 of 3 clean tables accused (100.0%)" in printed

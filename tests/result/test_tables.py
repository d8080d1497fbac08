"""The table of features as Markdown, LaTeX and HTML."""

from dataclasses import replace

import pytest

from explained import SCRIPT, explained_result


@pytest.fixture(scope="module")
def result():
    return explained_result((SCRIPT, "a_b|c", "flat"), (SCRIPT,))


def test_summary_has_p_values_as_printed_and_what_changes(result):
    table = result.summary()
    assert list(table.columns) == ["p", "adjusted p", "what changes"]
    assert table.loc[SCRIPT, "p"] == "<0.001"
    assert table.loc["a_b|c", "what changes"] == "No change found."
    plain = replace(result, settings={**result.settings, "adjust": "none"})
    assert "adjusted p" not in plain.summary()


def test_text_of_the_user_has_no_meaning_in_markdown_latex_and_html(result):
    assert r"| a\_b\|c |" in result.to_markdown()
    assert r"a\_b|c & " in result.to_latex()
    assert result.to_latex().count(r"\\") == 4  # one line of headings and three features
    shown = result._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.startswith("<p><b>On average, ")


def test_selectors_show_their_answer_once_they_have_one(result):
    from modifind import ModifierSelector

    selector = ModifierSelector()
    assert "ModifierSelector" in selector._repr_html_()
    selector.result_ = result
    assert selector._repr_html_() == result._repr_html_()

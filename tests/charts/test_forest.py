"""The forest plot, and figures as files."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student_t

from explained import explained_result


@pytest.fixture(scope="module")
def result():
    return explained_result(("age", "smoker", "dose", "flat"), ("age", "smoker"))


def test_forest_draws_selected_features_first_and_every_limit(result):
    display = result.plot.forest()
    rows = result.subgroups
    chosen = result.selected
    assert list(dict.fromkeys(display.subgroups["feature"]))[: len(chosen)] == chosen
    texts = [text.get_text() for text in display.ax_.texts]
    assert texts[0] == "All rows"
    assert all(f"★ {name}" in texts for name in chosen)
    assert len(display.subgroups) == len(rows)
    sure, few = (line.get_xdata() for line in display.ax_.lines[:2])
    assert np.isfinite(sure).sum() == 1 + (rows["n_treated"] >= 20).sum()
    assert np.isfinite(few).sum() == (rows["n_treated"] < 20).sum()


def test_simultaneous_limits_of_a_forest_are_wider_by_bonferroni(result):
    one, all_at_once = (result.plot.forest(simultaneous=own) for own in (False, True))
    plain, wide = one.limits(), all_at_once.limits()
    n = plain["effect"].notna().sum()
    reach = student_t.isf(0.025 / n, plain["df"]) * plain["se"]
    np.testing.assert_allclose(wide["high"], plain["effect"] + reach)
    assert (wide["high"] - wide["low"]).gt(plain["high"] - plain["low"]).all()


def test_a_forest_of_ratios_is_drawn_on_the_logarithm_about_one(result):
    ratios = np.exp(result.subgroups[["effect", "low", "high"]] / 10)
    words = {"outcome_kind": "count", "effect_scale": "ratio"}
    own = replace(result, subgroups=result.subgroups.assign(**ratios), settings={**result.settings, **words})
    one, all_at_once = (own.plot.forest(simultaneous=wide) for wide in (False, True))
    assert one.ax_.get_xscale() == "log"
    assert one.ax_.get_xlabel().endswith("rate ratio, treatment / control")
    assert "1" in [tick.get_text() for tick in one.ax_.get_xticklabels()]
    assert any(text.get_text() == "rate ratio (95% limits)" for text in one.ax_.texts)
    wide = all_at_once.limits()
    np.testing.assert_allclose(wide["high"] * wide["low"], wide["effect"] ** 2)  # even on the logarithm
    assert wide["high"].gt(wide["effect"]).all()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_all_figures_are_saved_by_one_call(result, tmp_path, ending):
    if ending != "svg":  # of the other formats a few
        result = replace(result, table=result.table.assign(selected=False))
    files = result.plot.save_all(tmp_path / "figures", ending)
    assert files[0].name == f"01-forest.{ending}"
    assert len(files) == len({*files}) > 1
    assert all(path.stat().st_size > 1000 for path in files)


def test_a_figure_of_another_format_is_refused(result, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.svg, \.png or \.pdf; found .*forest\.txt"):
        result.plot.forest().savefig(tmp_path / "forest.txt")
    with pytest.raises(ValueError, match="figures are saved as svg, png or pdf, not 'bmp'"):
        result.plot.save_all(tmp_path, "bmp")

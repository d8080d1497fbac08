import re
from dataclasses import replace

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit
from modifind.charts import CurveDisplay, ImportanceDisplay
from modifind.charts.matplotlib import PLAIN, SELECTED
from modifind.report import headline, methods
from modifind.result.concerns import concerns

HOSTILE = "<script>alert(1)</script>"


def features_of(html):
    """What stands between the heading of the table and the checks."""
    return html.partition('id="features"')[2].partition('id="checks"')[0].lower()


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(1)
    n = 300
    frame = pd.DataFrame({"age": rng.normal(size=n), HOSTILE: rng.normal(size=n), "sex$": rng.choice(["f", "m"], n)})
    treatment = np.tile(["drug & co", "placebo"], n // 2)
    y = np.where(treatment == "placebo", 0.0, 2 * frame["age"]) + rng.normal(size=n)
    return quiet_fit(frame, y, treatment, sampler="gaussian", propensity=0.5, random_state=0, explain=True).result_


@pytest.fixture(scope="module")
def resampled():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.normal(size=80), "flat": 1.0})
    with pytest.warns(UserWarning, match="constant"):
        return quiet_fit(
            frame,
            rng.normal(size=80),
            np.arange(80) % 2,
            statistic="wcmmd",
            sampler="gaussian",
            propensity=0.5,
            n_resamples=9,
            random_state=0,
        ).result_


def test_report_is_one_file_without_network_and_escapes_names(result, tmp_path):
    result.report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "drug &amp; co" in html
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)
    assert html.count('<details class="panel chosen"') == len(result.selected) == 1


def test_report_shows_the_gain_with_its_interval_where_the_test_has_one(result, resampled, tmp_path):
    result.report(tmp_path / "likelihood.html")
    html = (tmp_path / "likelihood.html").read_text(encoding="utf-8")
    size, low, high = result.table.loc["age", ["likelihood_gain", "gain_low", "gain_high"]]
    assert 0 < low < size < high
    assert f">{size:.3f} ({low:.3f} to {high:.3f})</td>" in html
    before = features_of(html)
    assert "nats per row" not in before  # what the test works with has a table of its own, further down
    resampled.report(tmp_path / "resampled.html")
    assert "nats" not in features_of((tmp_path / "resampled.html").read_text(encoding="utf-8"))


def test_feature_that_was_not_tested_has_no_interval_in_the_report(result, tmp_path):
    table = result.table.copy()
    table.loc["age", ["likelihood_gain", "gain_low", "gain_high"]] = np.nan
    replace(result, table=table).report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count(">not tested</td>") == 1
    assert not re.search(r"\bnan\b", re.sub(r"base64,[^\"]*", "", html), re.IGNORECASE)


def test_what_scrolls_can_be_reached_by_keys_and_has_a_name(result, tmp_path):
    result.report(tmp_path / "report.html")
    regions = re.findall(r'<div class="scroll"[^>]*>', (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(regions) > 3
    assert all('tabindex="0"' in region and re.search(r'aria-label="[^"]+"', region) for region in regions)


def test_p_values_are_written_as_journals_print_them(result, tmp_path):
    table = result.table.copy()
    table.loc["age", ["p_value", "p_adjusted"]] = [2.4e-17, 7.2e-17]
    replace(result, table=table).report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'data-sort="2.4e-17">&lt;0.001</td>' in html
    assert 'data-sort="7.2e-17">&lt;0.001</td>' in html


def test_methods_say_which_test_was_made_and_on_which_scale(result, resampled):
    text = methods(result)
    assert "held-out student-t scores of the contrasts between the arms, from a 5-fold cross-fitted model" in text
    assert f"mean weights: {result.settings['model']['stack']})" in text
    assert "(GaussianSampler), by a saddlepoint approximation with the rows' own variance where it is larger. " in text
    assert "log scale" not in text
    assert "repeated" not in text
    statistic = {**result.settings["statistic"], "cv_repeats": 3}
    changed = replace(result, settings={**result.settings, "outcome_transform": "log", "statistic": statistic})
    assert "in both arms, repeated 3 times (learners" in methods(changed)
    assert "The outcome was analysed on the log scale. The treatment was" in methods(changed)
    text = methods(resampled)
    assert "by a conditional randomisation test with up to 9 resamples of the feature (GaussianSampler)" in text
    assert "likelihood" not in text


def test_headline_tells_the_average_effect_and_the_selected_features(result):
    said = headline(result)
    assert said.startswith("No effect on the average of outcome was found: ")
    assert said.endswith(" However, the effect depends on age.")
    clear = replace(result, tests=result.tests.assign(p_value=0.001), table=result.table.assign(selected=False))
    assert headline(clear).startswith("On average, drug & co lowers outcome by ")
    assert headline(clear).endswith("No feature was found to change that effect.")


def test_concerns_of_the_checks_are_in_the_report_once(result, tmp_path):
    checks = result.checks.copy()
    place = checks.index[(checks["name"] == "conditional_fit") & (checks["feature"] == "age")][0]
    checks.loc[place, ["value", "passed"]] = [0.3, False]
    (concern,) = concerns(checks)
    assert "1 feature (age): the estimated conditional distribution given the other features does not fit" in concern
    replace(result, checks=checks, warnings=(concern,)).report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("1 feature (age)") == 1
    assert (
        '<span aria-hidden="true">!</span> <span class="away">failed: </span>conditional distribution of the feature'
        in html
    )


def test_importance_display_draws_what_the_table_says(result):
    display = ImportanceDisplay.from_result(result).plot()
    widths = [bar.get_width() for bar in display.ax_.patches]
    assert widths == sorted(result.table["importance"], reverse=True)
    colours = [matplotlib.colors.to_hex(bar.get_facecolor()).upper() for bar in display.ax_.patches]
    expected = [SELECTED if chosen else PLAIN for chosen in display.selected]
    assert colours == [c.upper() for c in expected]


def test_curve_display_names_categories(result):
    display = CurveDisplay.from_result(result, "sex$").plot()
    assert [tick.get_text() for tick in display.axes_[0].get_xticklabels()] == ["f", "m"]
    drawn = display.axes_[0].lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, result.curve("sex$")["mean_effect"])

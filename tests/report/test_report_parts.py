"""Parts of the report: the page's policy, its data, the pictures, what is left out and what old results show."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from explained import CATEGORIES, CHOSEN, NAMES, SCRIPT, curve_of, explained_result
from modifind.charts.frame import Drawing, Scale
from modifind.charts.labels import Words, text_width
from modifind.charts.spec import Places, spanning
from modifind.charts.svg import MAX_CHART_ROWS
from modifind.report import Abstract, headline, render_report
from modifind.report.content import methods, references, table_columns, verdict
from modifind.report.page import curve_charts, density_charts, island, make_panels, numbers
from modifind.result.selection_result import SelectionResult, no_changes, no_subgroups, no_tests

WORDS = Words("drug", "placebo")
SELECTIVE = {
    "model": None,
    "sided": "two",
    "penalty": 1.0,
    "penalty_factor": 1.1,
    "outcome_learner": "forest",
    "n_active": 1,
    "n_columns": 1,
}


@pytest.fixture(scope="module")
def result():
    return explained_result()


@pytest.fixture(scope="module")
def html(result):
    return render_report(result)


def parsed(svg):
    """The picture as a tree: it is well formed, whatever names are in it."""
    return ElementTree.fromstring(str(svg))


def by_class(svg, name):
    return [mark for mark in parsed(svg).iter() if name in mark.get("class", "").split()]


def places_of(path):
    """Points of a line."""
    numbers = [float(text) for text in re.findall(r"-?\d*\.?\d+", path.get("d"))]
    return np.cumsum(np.reshape(numbers, (-1, 2)), axis=0).round(1)


def charts_of(frame, *, discrete=False, overall=None, words=WORDS):
    return curve_charts("age", frame, discrete, overall or {}, words)


def average(frame, **settings):
    return charts_of(frame, **settings)[0]


def bare(result):
    """As results of earlier versions are: curves without bands and nothing else."""
    known = ["value", "d2", "mean_effect", "sd_ratio", *(f"q{q}_effect" for q in (10, 25, 50, 75, 90))]
    return replace(
        result,
        curves={name: curve[known] for name, curve in result.curves.items()},
        changes=no_changes(),
        densities={},
        bounds={},
        bound_tests={},
        overall={},
        tests=no_tests(),
        subgroups=no_subgroups(),
        score_histogram=result.score_histogram.iloc[:0],
        pit_histogram=result.pit_histogram.iloc[:0],
    )


# The page.


def test_policy_names_the_script_and_the_style_of_the_page_and_nothing_else(html):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"\sstyle=", re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL))


def test_script_makes_text_and_never_markup(html):
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)[0]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "http:",
    ):
        assert word not in script.replace("http://www.w3.org/2000/svg", "")


def test_data_are_read_back_as_they_were():
    data = {"name": "</script>\u2028 & <!-- \U0001f600"}
    assert json.loads(island(data)) == data
    assert not set("<>&\u2028") & set(island(data))


def test_every_chart_has_its_readout(html):
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])["charts"]
    drawn = set(re.findall(r'class="plot" id="([^"]+)"', html))
    assert drawn == set(data)
    assert len(drawn) > 90
    for said in data.values():
        assert len(said["at"]) == len(said["labels"]) == len(said["texts"]) == len(said["marks"])
        assert said["at"] == sorted(said["at"])


def test_half_letters_of_broken_files_do_not_stop_the_report(tmp_path):
    explained_result(notices=["look at caf\udce9"]).report(tmp_path / "r.html")
    assert "caf?" in (tmp_path / "r.html").read_text(encoding="utf-8")


# What it says.


def part(result, title):
    return dict(Abstract.of(result).parts).get(title, "")


def with_p(result, mean, distribution=0.5):
    return replace(result, tests=result.tests.assign(p_value=[mean, distribution, 0.001]))


def test_headline_of_nothing_of_one_and_of_many():
    names = ("flat", *(f"x{k}" for k in range(12)))
    nothing, one = explained_result(names, ()), explained_result(names, ("x3",))
    assert headline(nothing).endswith("by 2.00 (1.70 to 2.30). No feature was found to change that effect.")
    assert headline(one).endswith("The effect depends on x3.")
    many = headline(explained_result(names, names[1:]))
    assert many.endswith("The effect depends on x0, x1, x2, x3, x4, x5, x6, x7 and 4 more features.")
    assert headline(with_p(nothing, 0.4)) == (
        "No effect on the average of outcome was found: \u22122.00 (\u22122.30 to \u22121.70). No feature was found to "
        "change it."
    )
    assert "The distribution of outcome differs" in headline(with_p(nothing, 0.4, 0.01))
    assert headline(with_p(one, 0.4)).endswith(". However, the effect depends on x3.")
    assert headline(bare(nothing)) == "No feature was found to change the effect of the treatment."


def test_abstract_gives_the_average_effect_with_its_limits_and_p(result):
    assert part(result, "Average effect").startswith("\u22122.00 (\u22122.30 to \u22121.70); p < 0.001.")
    assert not part(bare(result), "Average effect")
    told = replace(result, settings={**result.settings, "unit": "mmHg", "better": "lower"})
    assert part(told, "Average effect").startswith("\u22122.00 mmHg (\u22122.30 to \u22121.70), a benefit; p < 0.001.")
    assert "Outcome: outcome (mmHg, lower is better)." in part(told, "Data")


def test_effect_of_an_outcome_on_the_log_scale_is_a_ratio(result):
    overall = {"mean_effect": np.log(0.5), "mean_effect_low": np.log(0.25), "mean_effect_high": 0.0}
    shown = replace(result, overall=overall, settings={**result.settings, "outcome_transform": "log"})
    assert part(shown, "Average effect").startswith("0.50 times (0.25 to 1.00); p < 0.001.")


def test_subgroups_are_told_by_whether_their_effect_is_clear(result):
    groups = {own.title: own.lines for own in Abstract.of(result).groups}
    assert list(groups) == ["Clear decrease", "No clear effect"]
    assert any(line.startswith("smoker = never: ") for line in groups["Clear decrease"])
    better = replace(result, settings={**result.settings, "better": "lower"})
    assert [own.title for own in Abstract.of(better).groups] == ["Clear benefit", "No clear effect"]


def test_subgroups_without_an_outcome_to_compare_have_no_ratio(result):
    groups = result.subgroups.copy()
    numbers = ["effect", "low", "high", "se"]
    groups[numbers] = np.exp(groups[numbers])
    lost = groups["column"].isin(["smoker", "age"]) & ~groups.duplicated("column")
    groups.loc[lost, numbers] = np.nan
    shown = replace(result, subgroups=groups, settings={**result.settings, "effect_scale": "ratio"})
    found = {own.title: own.lines for own in Abstract.of(shown).groups}
    expected = {"smoker = never: no outcome to compare", "age up to \u22121.5: no outcome to compare"}
    assert set(found["No ratio"]) == expected


def test_next_steps_follow_what_was_found(result):
    assert any("placebo" in step for step in Abstract.of(replace(result, placebo=None)).steps)
    assert any(step.startswith("Confirm age") for step in Abstract.of(result).steps)


def test_features_that_were_not_tested_do_not_count_as_tested(result):
    size = len(result.table)
    assert f"{size} features tested." in part(result, "Data")
    row = {"name": "rare", "feature": NAMES[-1], "value": 1.0, "threshold": 0.0, "passed": False, "text": "too rare"}
    row |= {"validity": False, "remedy": ""}
    rare = replace(result, checks=pd.concat([result.checks, pd.DataFrame([row])], ignore_index=True))
    assert f"{size - 1} features tested." in part(rare, "Data")


def test_features_that_were_not_reached_are_in_the_table_and_have_no_panel(result):
    table, name = result.table.copy(), NAMES[-1]
    assert not table.loc[name, "selected"]
    table.loc[name, ["importance", "p_value", "p_adjusted"]] = np.nan
    partial = replace(result, table=table, curves={key: c for key, c in result.curves.items() if key != name})
    assert name not in [panel.name for panel in make_panels(partial)]
    page = render_report(partial)
    assert "To keep this file small" not in page
    assert f">{name}</th>" in page


def test_p_value_of_what_was_not_tested_is_not_told(result):
    changes = result.changes.copy()
    changes.loc[NAMES[-1], "verdict"] = "Not tested."
    page = render_report(replace(result, changes=changes))
    assert '<span class="verdict-short">Not tested.</span>' in page


def test_p_values_are_called_adjusted_only_where_they_are(result, html):
    assert "adjusted p-values" in html
    plain = render_report(replace(bare(result), settings={**result.settings, "adjust": "none"}))
    page = re.sub(r"<(script|style).*?</\1>", "", plain.partition('id="methods"')[0], flags=re.DOTALL)
    assert "adjusted p" not in page.replace("not adjusted", "")
    assert "pointwise 95% limits" in html
    assert "pointwise 95% limits" not in page


def test_arms_that_say_nothing_are_named_by_the_treatment(result):
    settings = {**result.settings, "treated_label": "yes", "control_label": "no", "treatment_name": "smoker"}
    assert headline(replace(result, settings=settings)).startswith("On average, smoker = yes lowers ")
    settings["treated_label"], settings["control_label"] = "drug", "placebo"
    assert headline(replace(result, settings=settings)).startswith("On average, drug lowers ")


def test_higher_outcomes_are_not_called_a_gain(html):
    assert "Share with a higher outcome" in html
    assert " gain" not in html.lower().replace("gain per row", "").partition('id="checks"')[0]


def test_verdict_without_tests_of_what_changes_says_no_more_than_that_it_does(result):
    old = bare(result)
    assert verdict(old, "smoker") == "Changes the effect."
    assert verdict(old, "pressure") == "No change found."
    untested = replace(old, table=old.table.assign(p_value=np.nan, selected=False))
    assert verdict(untested, "age") == "Not tested."


def test_parts_that_no_feature_was_tested_for_have_no_column(result):
    keys = [head["key"] for head in table_columns(result)]
    assert keys[4:7] == ["mean", "spread", "shape"]
    binary = replace(result, changes=result.changes.assign(spread_adjusted=np.nan, shape_adjusted=np.nan))
    assert [key for key in keys if key not in ("spread", "shape")] == [head["key"] for head in table_columns(binary)]


def test_methods_and_references_name_what_was_done_and_nothing_else(result):
    text, cited = methods(result), " ".join(references(result))
    assert (
        "of doubly robust scores of the cross-fitted models, with pointwise 95% bands from a weighted bootstrap" in text
    )
    without = replace(result, settings={**result.settings, "method": "si_em", **SELECTIVE}, changes=no_changes())
    assert "of inversely weighted outcomes, with pointwise 95% bands" in methods(without)
    assert "bounded sharply from the outcome distributions" in text
    for work in ("Chikahara", "Hochberg", "Kennedy", "Fan Y, Park"):
        assert work in cited
    old = bare(result)
    assert "bootstrap" not in methods(old)
    assert "Kennedy" not in " ".join(references(old))
    assert "Fan Y, Park" not in " ".join(references(old))


# Panels.


def test_selected_features_come_first_and_others_fill_the_room(result):
    panels = make_panels(result)
    assert [panel.name for panel in panels[:4]] == list(result.selected)
    assert {panel.name for panel in panels} == set(NAMES)
    few = make_panels(result, most_characters=sum(panel.size for panel in panels[:5]) + 10)
    assert [panel.name for panel in few] == [panel.name for panel in panels[:5]]
    assert len(make_panels(result, most_characters=1)) == 1


def test_page_says_that_selected_features_were_left_out(result, monkeypatch):
    monkeypatch.setattr("modifind.report.page.make_panels", lambda result: make_panels(result, 1))
    assert f"it has figures for 1 of {len(CHOSEN)} selected features" in render_report(result)
    meanings = render_report(result).partition('class="meanings"')[2].partition("</ul>")[0]
    assert meanings.count("<li>") == len(CHOSEN)  # what they change is said of all
    assert meanings.count("<a ") == 1


def test_size_of_panels_is_that_of_their_part_of_the_page(result, html):
    panels = make_panels(result)
    around = len(render_report(replace(result, curves={}, densities={}, bounds={})))
    assert 0.8 < sum(panel.size for panel in panels) / (len(html) - around) < 1.6


def test_results_of_earlier_versions_have_pictures_without_bands(result):
    panels = {panel.name: panel for panel in make_panels(bare(result))}
    charts = panels["age"].columns[0].charts
    assert [chart.title for chart in charts] == [
        "Average effect",
        "Spread",
        "Low, middle and high outcomes",
        "Distance between the arms",
    ]
    assert not by_class(charts[0].svg, "average-band")
    assert by_class(charts[0].svg, "average")
    assert "95% band" not in dict(charts[0].keys).values()
    assert render_report(bare(result)).count('<details class="panel chosen"') == len(CHOSEN)


def test_old_file_is_reported(result, tmp_path):
    bare(result).to_json(tmp_path / "old.json")
    data = json.loads((tmp_path / "old.json").read_text(encoding="utf-8"))
    for name in (
        "checks",
        "changes",
        "densities",
        "bounds",
        "bound_tests",
        "overall",
        "score_histogram",
        "pit_histogram",
    ):
        del data[name]
    text = render_report(SelectionResult.from_dict(data))
    assert "Why the answer may be wrong" not in text
    assert 'id="all-checks"' not in text


def test_constant_feature_has_nothing_to_draw(html):
    after = html.partition('id="feature=flat"')[2]
    assert "Nothing to draw." in after.partition("</section>")[0]
    assert not re.search(r"\bnan\b", html, re.IGNORECASE)


# Pictures.


def test_line_and_band_lie_where_the_numbers_say():
    frame = curve_of(np.linspace(0.0, 10.0, 5)).assign(low_support=False)
    chart = average(frame, overall={"mean_effect": -2.0})
    (line,), (band,) = by_class(chart.svg, "average"), by_class(chart.svg, "average-band")
    at = chart.readout["at"]
    heights = np.interp(at, *places_of(line).T)
    slope = (heights[-1] - heights[0]) / (frame["mean_effect"].iloc[-1] - frame["mean_effect"].iloc[0])
    assert slope < 0  # upwards is less in a drawing
    edge = places_of(band)
    turn = int(np.argmax(edge[:, 0])) + 1
    np.testing.assert_allclose(np.interp(at, *edge[:turn].T), heights + 0.3 * slope, atol=0.2)
    np.testing.assert_allclose(np.interp(at, *edge[turn:][::-1].T), heights - 0.3 * slope, atol=0.2)
    (overall,) = by_class(chart.svg, "overall")
    np.testing.assert_allclose(places_of(overall)[:, 1], heights[2], atol=0.11)


def test_stretches_with_few_rows_are_grey_and_do_not_set_the_scale():
    frame = curve_of(np.linspace(0.0, 10.0, 9))
    plain = average(frame)
    assert by_class(plain.svg, "unsure")
    assert [mark.get("class") for mark in by_class(plain.svg, "average")] == ["average low", "average"]
    assert ("key-unsure", "too few rows") in plain.keys
    assert plain.readout["texts"][0].endswith("too few rows")
    frame.loc[0, ["mean_effect", "mean_effect_high"]] = 1e6
    ticks = [mark.text for mark in by_class(average(frame).svg, "tick")]
    assert not [text for text in ticks if len(text) > 5]


@pytest.mark.parametrize(("far", "arrow"), [(50.0, "→"), (-50.0, "←")])
def test_levels_of_few_rows_beyond_the_axis_are_arrows_and_not_points_at_its_edge(far, arrow):
    frame = curve_of(CATEGORIES)
    sides = ["mean_effect", "mean_effect_low", "mean_effect_high"]
    assert len(by_class(average(frame, discrete=True).svg, "average-mark")) == 3
    frame.loc[0, sides] += far
    chart = average(frame, discrete=True)
    assert len(by_class(chart.svg, "average-mark")) == len(by_class(chart.svg, "average-band")) == 2
    assert [mark.text for mark in by_class(chart.svg, "note")] == [arrow]
    assert [len(marks) for marks in chart.readout["marks"]] == [0, 1, 1]
    frame.loc[0, "mean_effect_low" if far > 0 else "mean_effect_high"] = -2.0
    assert len(by_class(average(frame, discrete=True).svg, "average-band")) == 3


def test_missing_values_have_a_place_of_their_own():
    chart = average(curve_of([1.0, 2.0, 3.0, np.nan]))
    assert chart.readout["labels"] == ["1", "2", "3", "missing"]
    assert [mark.text for mark in by_class(chart.svg, "tick")][-1] == "missing"
    assert len(by_class(chart.svg, "average-mark")) == 1


def test_categories_are_rows_with_their_names():
    chart = average(curve_of(CATEGORIES), discrete=True)
    names = by_class(chart.svg, "category")
    assert names[1].text == "<b>often</b>"
    assert names[2].find("{*}title").text == CATEGORIES[2]
    assert names[2].find("{*}title").tail == "a category…t goes on"
    assert chart.readout["axis"] == "y"


def test_names_of_lines_do_not_lie_on_the_marks_of_missing_values():
    frame = curve_of(np.append(np.linspace(0.0, 1.0, 6), np.nan))
    svg = charts_of(frame)[2].svg
    (gap,) = by_class(svg, "gap")
    names = by_class(svg, "end")
    assert [name.text for name in names] == ["10%", "50%", "90%"]
    assert all(float(name.get("x")) + text_width(name.text) <= places_of(gap)[0, 0] + 2 for name in names)


def test_very_many_categories_are_cut_to_the_largest():
    frame = curve_of([f"level {k}" for k in range(50)])
    frame["rows_treated"] = np.arange(50.0)
    chart = average(frame, discrete=True)
    assert chart.readout["labels"] == [f"level {k}" for k in range(50 - MAX_CHART_ROWS, 50)]
    assert f"The {MAX_CHART_ROWS} largest of 50 categories" in chart.note
    assert len(numbers(frame, WORDS)["rows"]) == 50


def test_outcomes_of_few_levels_are_bars_and_of_many_are_curves():
    few = explained_result(("age", "flat"), ("age",), binary=True)
    charts = density_charts("age", few.densities["age"], Words.of(few))
    assert [label for label, _ in charts] == ["20", "50", "80"]
    assert len(by_class(charts[1][1].svg, "treated-bar")) == 2
    many = explained_result(("age", "flat"), ("age",))
    charts = density_charts("age", many.densities["age"], Words.of(many))
    assert by_class(charts[1][1].svg, "treated")
    assert not by_class(charts[1][1].svg, "treated-bar")
    assert charts[0][1].unsure
    assert not charts[1][1].unsure


def test_outcome_of_two_values_is_known_without_a_model_of_it():
    few = explained_result(("age", "flat"), ("age",), binary=True)
    assert Words.of(replace(few, settings={**few.settings, "model": None})).binary
    assert not Words.of(explained_result(("age", "flat"), ("age",))).binary


def test_outcome_of_two_values_has_no_spread_and_no_quantiles():
    charts = charts_of(curve_of([1.0, 2.0, 3.0]), words=replace(WORDS, binary=True))
    assert [chart.title for chart in charts] == ["Average effect", "Distance between the arms"]


@pytest.mark.parametrize("name", NAMES)
def test_pictures_of_any_name_are_well_formed(result, name):
    for panel in make_panels(result):
        if panel.name == name:
            for part in panel.columns:
                for chart in part.all_charts:
                    assert SCRIPT not in chart.svg
                    if name != "two\nlines\u2028more":
                        parsed(chart.svg)


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0], [1e-300, 2e-300], [-1e15, 1e15], [np.nan], [7.0, np.inf]])
def test_scales_of_odd_values_have_ticks(values):
    scale = Scale(*spanning(values), 0.0, 100.0)
    assert scale.low < scale.high
    assert all(np.isfinite(scale(value)) for value, _ in scale.ticks())


def test_scale_keeps_within_its_limits():
    assert spanning([0.0, 1.0], within=(0.0, 1.0)) == (0.0, 1.0)


def test_labels_are_cut_and_keep_their_text():
    drawing = Drawing(100, 100)
    drawing.text(0, 0, "<b>" + "x" * 100, "tick", room=50)
    (label,) = by_class(drawing.svg("a & b"), "tick")
    assert label.find("{*}title").text == "<b>" + "x" * 100
    assert parsed(drawing.svg('a & "b"')).get("aria-label") == 'a & "b"'


def test_points_of_numbers_that_are_text_in_old_files():
    points = Places.along("x", pd.DataFrame({"value": ["1.5", "2", "unknown"]}, dtype=object), discrete=False)
    assert points.at[:2].tolist() == [1.5, 2.0]
    assert points.missing.tolist() == [False, False, True]


@pytest.mark.parametrize("binary", [False, True])
def test_values_that_one_arm_does_not_have_are_left_out_of_the_densities(binary):
    result = explained_result(("age", "smoker", "flat"), ("age", "smoker"), binary=binary)
    densities = result.densities["smoker"].copy()
    numbers = densities.columns.drop(["value", "outcome", "low_support"])
    densities.loc[densities["value"] == CATEGORIES[0], numbers] = np.nan
    few = replace(result, densities={**result.densities, "smoker": densities})
    charts = density_charts("smoker", few.densities["smoker"], Words.of(few))
    assert [label for label, _ in charts] == list(CATEGORIES[1:])
    assert "NaN" not in render_report(few)
    densities[numbers] = np.nan
    assert density_charts("smoker", densities, Words.of(few)) == []
    assert "NaN" not in render_report(few)

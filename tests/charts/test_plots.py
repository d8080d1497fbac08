import calendar
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from conftest import ROOT, quiet_fit
from modifind import SelectionResult
from modifind.charts import (
    BoundsDisplay,
    CalibrationDisplay,
    ChangesDisplay,
    CurveDisplay,
    D2Display,
    DensityDisplay,
    ImportanceDisplay,
    OverlapDisplay,
    QuantileDisplay,
)
from modifind.charts.labels import shown, tick_labels
from modifind.charts.matplotlib import FAINT, SELECTED, SPREAD
from modifind.charts.spec import HALF_PAGE, Bars, Line
from modifind.charts.svg import chart
from modifind.explain import bounds_test, effect_bounds
from modifind.result.checks import as_frame
from modifind.result.concerns import Check
from modifind.result.selection_result import PIT_COLUMNS, p_text

QUANTILES = [f"q{q}_effect" for q in (10, 25, 50, 75, 90)]
MONTHS = list(calendar.month_name)[1:]
SCHOOLS = [
    "Less than secondary school",
    "Secondary school, no further degree",
    "Vocational training after secondary school",
    "University or university of applied sciences",
    "Doctorate",
]
HOSTILE = ["$x_", "<script>alert(1)</script>", "two\nlines", "_hidden", r"\frac{$", "n" * 200]
ARMS = ("treated", "control", "witness")
ALONG = ("curve", "d2", "quantiles", "densities", "bounds")


def curve_of(values, *, weak=(), bands=True, seed=0):
    rng = np.random.default_rng(seed)
    n = len(values)
    curve = pd.DataFrame({"value": values, "d2": rng.uniform(0.02, 0.1, n), "mean_effect": rng.normal(-3, 1, n)})
    curve["sd_ratio"] = rng.uniform(0.8, 1.6, n)
    curve[QUANTILES] = np.sort(rng.normal(-3, 2, (n, 5)), axis=1)
    if not bands:
        return curve
    for name in ["d2", "mean_effect", "sd_ratio", *QUANTILES]:
        width = 0.2 * rng.uniform(0.5, 1, n) * (0.1 if name == "d2" else 1)
        curve[f"{name}_low"], curve[f"{name}_high"] = curve[name] - width, curve[name] + width
    curve["d2_null_low"], curve["d2_null_high"] = 0.01, 0.03
    curve["rows_treated"], curve["rows_control"] = 50.0, 40.0
    curve["low_support"] = np.isin(np.arange(n), weak)
    return curve


def densities_of(values, outcome, *, weak=()):
    rng = np.random.default_rng(0)
    frames = []
    for value in values:
        frame = pd.DataFrame({"value": [value] * len(outcome), "outcome": outcome})
        for name in ARMS:
            frame[name] = rng.uniform(0.1, 1.0, len(outcome)) - (name == "witness") * 0.5
            frame[f"{name}_low"], frame[f"{name}_high"] = frame[name] - 0.05, frame[name] + 0.05
        frame["low_support"] = value in weak
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def result():
    """A number with gaps, few and many categories, one category and a group; every part of a result."""
    rng = np.random.default_rng(0)
    kinds = {"age": "continuous", "sex": "discrete", "month": "discrete", "one": "discrete", "body": "group"}
    index = pd.Index(kinds, name="feature")
    table = pd.DataFrame({"kind": list(kinds.values()), "importance": [0.3, 0.2, 0.1, 0.0, 0.05]}, index=index)
    table["p_value"] = [1e-9, 0.01, 0.2, 1.0, 0.5]
    table = table.assign(statistic=1.0, p_adjusted=table["p_value"], selected=[True, True, False, False, False])
    curves = {
        "age": curve_of([*np.linspace(20, 80, 13), np.nan], weak=(0, 1)),
        "sex": curve_of(["female", "male"]),
        "month": curve_of(MONTHS, weak=(11,)),
        "one": curve_of(["only"]),
        "height": curve_of(np.linspace(150.0, 200, 9)),
        "weight": curve_of(np.linspace(50.0, 100, 9)),
    }
    grid = np.linspace(-10, 10, 21)
    values = {"age": [20.0, 35.0, 50.0, 65.0, 80.0, np.nan], "sex": ["female", "male"], "month": MONTHS[:8]}
    x, y, a = rng.choice(["female", "male"], 400), rng.normal(size=400), np.arange(400) % 2
    bounds = effect_bounds(x, y, a, 0.5, discrete=True, n_bootstrap=20, random_state=0)
    tests = bounds_test(x, y, a, 0.5, discrete=True, n_bootstrap=20, random_state=0)
    numbers = effect_bounds(rng.normal(50, 9, 400), y, a, 0.5, n_bootstrap=20, random_state=0)
    parts = {
        f"{part}_{kind}": rng.uniform(size=5) for kind in ("p", "adjusted") for part in ("mean", "spread", "shape")
    }
    changes = pd.DataFrame({**parts, "verdict": "No change found."}, index=index)
    changes.loc["age", "mean_adjusted"] = 1e-30
    pits = pd.DataFrame(rng.dirichlet(np.full(10, 99.0), 5), index=index, columns=list(PIT_COLUMNS))
    pits.loc[["sex", "month", "one", "body"]] = np.nan
    edges = np.linspace(0, 1, 21)
    scores = {"low": edges[:-1], "high": edges[1:], "treated": rng.dirichlet(np.ones(20))}
    return SelectionResult(
        table=table,
        diagnostics=pd.DataFrame({"pit_distance": [0.02, np.nan, np.nan, np.nan, 0.07]}, index=index),
        curves=curves,
        overlap={},
        settings={
            "alpha": 0.05,
            "n_rows": 400,
            "treated_label": "_drug$",
            "control_label": "placebo",
            "propensity_clip": [0.01, 0.99],
            "feature_groups": {"body": ["height", "weight"]},
            "group_column_kinds": {"height": "continuous", "weight": "continuous"},
        },
        versions={},
        checks=as_frame([Check("conditional_fit", "age", 0.02, 0.05, True, "fits")]),
        changes=changes,
        densities={name: densities_of(shown, grid, weak=(20.0, "male")) for name, shown in values.items()},
        bounds={"sex": bounds, "age": numbers},
        bound_tests={"sex": tests},
        overall={"mean_effect": -2.9, "sd_ratio": 1.2},
        score_histogram=pd.DataFrame({**scores, "control": rng.dirichlet(np.ones(20))}),
        pit_histogram=pits,
    )


@pytest.fixture(scope="module")
def old(result):
    """What a result of an earlier version has."""
    bare = {name: curve.loc[:, : QUANTILES[-1]] for name, curve in result.curves.items()}
    return SelectionResult(result.table, result.diagnostics, bare, {}, result.settings, {})


def texts_of(axes):
    return [label.get_text() for label in axes]


def vertices(collection):
    """Lowest and highest ordinate by abscissa of a filled band."""
    points = np.concatenate([path.vertices for path in collection.get_paths()])
    return {x: (points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max()) for x in set(points[:, 0])}


def assert_readable(figure):
    """Text of 7 points and more inside the figure, and tick labels of an axis that do not touch."""
    renderer = figure.canvas.get_renderer()
    figure.draw_without_rendering()
    frame, unseen = figure.bbox.padded(2.0), set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = axis.get_major_ticks() + axis.get_minor_ticks()
        seen = [tick.label1 for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_text()]
        unseen |= {id(label) for tick in ticks for label in (tick.label1, tick.label2) if label not in seen}
        side = 0 if axis.axis_name == "x" else 1
        spans = sorted(tuple(label.get_window_extent(renderer).get_points()[:, side]) for label in seen)
        assert all(first[1] <= second[0] + 1 for first, second in pairwise(spans)), (axis, seen)
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and id(text) not in unseen:
            box = text.get_window_extent(renderer)
            assert text.get_fontsize() >= 7, text
            assert frame.x0 <= box.x0 < box.x1 <= frame.x1, (text, box)
            assert frame.y0 <= box.y0 < box.y1 <= frame.y1, (text, box)


def below_the_legend(legend, figure):
    """Texts of the figure that lie on a legend or touch it."""
    figure.draw_without_rendering()
    own, box = {id(text) for text in legend.get_texts()}, legend.get_window_extent().padded(-1.0)
    others = [text for text in figure.findobj(Text) if text.get_text() and id(text) not in own]
    return [text.get_text() for text in others if text.get_window_extent().overlaps(box)]


# What is drawn is what the result has.


def test_curve_draws_effects_bands_and_the_overall_effect(result):
    display = result.plot.curve("age")
    curve = result.curve("age")[:-1]
    for ax, name, colour in zip(display.axes_, ("mean_effect", "sd_ratio"), (SELECTED, SPREAD), strict=True):
        line, weak = ax.lines[:2]
        strong = ~curve["low_support"].to_numpy()
        np.testing.assert_array_equal(line.get_xdata(), curve["value"])
        np.testing.assert_array_equal(line.get_ydata(), curve[name].where(strong))
        assert line.get_color() == colour
        assert weak.get_color() == FAINT
        np.testing.assert_array_equal(weak.get_ydata()[:2], curve[name][:2])
        assert np.isnan(weak.get_ydata()[3:]).all()
        band = vertices(ax.collections[0])
        drawn = curve[strong]
        for value, low, high in zip(drawn["value"], drawn[f"{name}_low"], drawn[f"{name}_high"], strict=True):
            assert band[value] == (low, high)
        assert not set(curve["value"][:2]) & set(band)
        levels = [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]
        assert levels == [0.0 if name == "mean_effect" else 1.0, result.overall[name]]
    assert texts_of(display.figure_.legends[0].get_texts()) == ["95% band", "all rows", "few rows"]


def test_rows_without_a_value_have_a_tick_of_their_own(result):
    for display in (result.plot.curve("age"), result.plot.d2("age"), result.plot.quantiles("age")):
        ax = display.figure_.axes[0]
        assert texts_of(ax.get_xticklabels())[-1] == "missing"
        assert ax.get_xticks()[-1] > 80
        assert ax.get_xlim()[1] > ax.get_xticks()[-1]
    curve, ax = result.curve("age"), result.plot.curve("age").axes_[0]
    points = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert [line.get_ydata()[0] for line in points] == [curve["mean_effect"].iloc[-1]]


def test_categories_are_points_in_their_order(result):
    display = result.plot.curve("sex")
    curve = result.curve("sex")
    ax = display.axes_[0]
    assert texts_of(ax.get_xticklabels()) == ["female", "male"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve["mean_effect"])
    bars = np.array(ax.collections[0].get_segments())
    np.testing.assert_array_equal(bars[:, :, 1], curve[["mean_effect_low", "mean_effect_high"]])


def test_many_or_long_categories_stand_one_below_the_other(result):
    ax, beside = result.plot.curve("month").axes_
    assert texts_of(ax.get_yticklabels()) == MONTHS
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    np.testing.assert_array_equal(ax.lines[0].get_xdata()[:11], result.curve("month")["mean_effect"][:11])
    assert np.isnan(ax.lines[0].get_xdata()[11])
    assert ax.lines[1].get_xdata()[11] == result.curve("month")["mean_effect"][11]
    assert ax.lines[1].get_markerfacecolor() == "white"
    assert ax.get_ylim() == beside.get_ylim()
    long = CurveDisplay("school", curve_of(SCHOOLS), discrete=True).plot()
    labels = texts_of(long.axes_[0].get_yticklabels())
    assert [label.replace("\n", " ") for label in labels[:2]] == SCHOOLS[:2]
    assert labels[2].startswith("Vocational")
    assert "…" in labels[2]


def test_d2_is_drawn_over_its_null_band(result):
    display = result.plot.d2("age")
    curve = result.curve("age")[:-1]
    np.testing.assert_array_equal(display.ax_.lines[0].get_ydata()[2:], curve["d2"][2:])
    bands = [vertices(part) for part in display.ax_.collections if part.get_paths()]
    assert any(band.get(20.0) == band.get(80.0) == (0.01, 0.03) for band in bands)
    assert display.ax_.get_ylim()[0] == 0
    boxes = result.plot.d2("sex").ax_.patches
    assert [(box.get_y(), round(box.get_y() + box.get_height(), 6)) for box in boxes] == [(0.01, 0.03)] * 2


def test_quantile_fan_has_three_lines_of_different_style(result):
    lines = result.plot.quantiles("height").ax_.lines[:3]
    for line, name in zip(lines, QUANTILES[::2], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), result.curve("height")[name])
    assert len({line.get_color() for line in lines}) == 3
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 3
    points = result.plot.quantiles("sex").ax_.lines[:3]
    assert len({line.get_marker() for line in points}) == 3
    assert np.all(np.diff([line.get_xdata()[0] for line in points]) > 0)


def test_densities_of_both_arms_stand_above_the_witness(result):
    display = result.plot.densities("sex")
    assert display.values_ == ["female", "male"]
    known = result.density("sex")
    for k, value in enumerate(display.values_):
        part = known[known["value"] == value]
        upper, lower = display.axes_[k], display.axes_[2 + k]
        assert upper.get_title() == f"sex = {value}"
        for line, name in zip((*upper.lines, lower.lines[0]), ARMS, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), part["outcome"])
            np.testing.assert_array_equal(line.get_ydata(), part[name])
            assert (line.get_color() == FAINT) == (value == "male")
        band = vertices(upper.collections[0])
        assert band[part["outcome"].iloc[3]] == tuple(part[["treated_low", "treated_high"]].iloc[3])
    assert texts_of(display.figure_.legends[0].get_texts()) == ["_drug$", "placebo", "few rows"]
    assert len({ax.get_ylim() for ax in display.axes_[:2]}) == 1


def test_densities_are_drawn_at_chosen_values(result):
    assert result.plot.densities("age").values_[:3] == [35.0, 65.0, 80.0]  # 20 has few rows
    assert result.plot.densities("age").axes_[3].get_title() == "age = missing"
    assert DensityDisplay("systolic blood pressure", result.density("sex")).plot().axes_[0].get_title() == (
        "systolic bl…pressure\n= female"
    )
    assert result.plot.densities("age", values=[22, 79]).values_ == [20.0, 80.0]
    assert result.plot.densities("month", values=["March"]).axes_[0].get_title() == "month = March"
    assert len(result.plot.densities("month").axes_) == 16
    with pytest.raises(ValueError, match="no densities of 'month' at 'Brumaire'; available: January, Feb"):
        result.plot.densities("month", values=["Brumaire"])
    with pytest.raises(ValueError, match="'age' has numbers; 'old' is not one"):
        result.plot.densities("age", values=["old"])
    with pytest.raises(ValueError, match="at least one value of 'sex': female, male"):
        result.plot.densities("sex", values=[])


def test_outcomes_with_few_values_are_bars(result):
    levels = {"sex": densities_of(["female", "male"], [0.0, 1.0], weak=("male",))}
    settings = {**result.settings, "outcome_levels": True}
    display = replace(result, densities=levels, settings=settings).plot.densities("sex")
    part = levels["sex"][:2]
    heights = [bar.get_height() for bar in display.axes_[0].patches]
    assert heights == [*part["treated"], *part["control"]]
    assert [bar.get_height() for bar in display.axes_[2].patches] == list(part["witness"])
    assert texts_of(display.axes_[0].get_xticklabels()) == ["0", "1"]
    assert display.axes_[0].get_ylabel() == "share"
    assert all(bar.get_facecolor()[3] == 0 for bar in display.axes_[1].patches)  # few rows: hollow
    assert_readable(display.figure_)


def test_overlap_shows_one_arm_above_and_one_below(result):
    ax = result.plot.overlap().ax_
    heights = [bar.get_height() for bar in ax.patches]
    expected = result.score_histogram
    np.testing.assert_array_equal(heights, [*expected["treated"], *-expected["control"]])
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [0.01, 0.99]
    assert ax.get_xlabel() == "probability of _drug$ given the features"


def test_calibration_shows_distances_or_histograms(result):
    display = result.plot.calibration()
    assert texts_of(display.axes_[0].get_yticklabels()) == ["body", "age"]
    assert list(display.axes_[0].lines[0].get_xdata()) == [0.07, 0.02]
    assert display.axes_[0].lines[1].get_xdata()[0] == 0.05
    display = result.plot.calibration("age")
    heights = [bar.get_height() for bar in display.axes_[0].patches[:10]]
    np.testing.assert_array_equal(heights, result.pit_histogram.loc["age"])
    with pytest.raises(ValueError, match="no calibration histograms of 'sex'; available: 'age'"):
        result.plot.calibration(["age", "sex"])


def test_bounds_are_boxes_or_bands_with_their_limits(result):
    display = result.plot.bounds("sex")
    bounds = result.bounds["sex"]
    for ax, name in zip(display.axes_, ("sd", "corr", "benefit"), strict=True):
        for box, low, high in zip(ax.patches, bounds[f"{name}_low"], bounds[f"{name}_high"], strict=True):
            assert (box.get_y(), box.get_y() + box.get_height()) == pytest.approx((low, high))
        below, above = (np.array(part.get_segments())[:, :, 1] for part in ax.collections[:2])
        np.testing.assert_array_equal(below[:, 0], bounds[f"{name}_low_ci_low"])
        np.testing.assert_array_equal(above[:, 1], bounds[f"{name}_high_ci_high"])
    p_value = result.bound_tests["sex"].set_index(["quantity", "part"])["p_value"]["corr", "midpoint"]
    assert f"midpoint {p_text(p_value)}" in display.axes_[1].texts[0].get_text()
    ax = result.plot.bounds("age", quantities=["var"]).axes_[0]
    enough = ~result.bounds["age"]["low_support"].to_numpy()
    assert enough.any()
    assert not enough.all()
    for line, end in zip(ax.lines[::2], ("low", "high"), strict=False):  # each is followed by its greyed part
        np.testing.assert_array_equal(line.get_ydata()[enough], result.bounds["age"][f"var_{end}"][enough])
    swapped = BoundsDisplay("sex", bounds, discrete=True, quantities=["benefit"], higher_is_better=False).plot()
    assert swapped.axes_[0].get_ylabel() == "share with a lower\noutcome if treated"
    with pytest.raises(ValueError, match="quantities must be some of sd, var, corr, benefit, no_harm"):
        result.plot.bounds("sex", quantities=["skew"])


def test_changes_are_three_points_a_feature_on_a_log_scale(result):
    display = result.plot.changes()
    assert display.changes.index[0] == "age"
    for line, part in zip(display.ax_.lines, ("mean", "spread", "shape"), strict=False):
        expected = result.changes[f"{part}_adjusted"].loc[display.changes.index].clip(lower=1e-6)
        np.testing.assert_array_equal(line.get_xdata(), expected)
    assert display.ax_.get_xscale() == "log"
    assert display.ax_.lines[3].get_xdata()[0] == 0.05
    assert len({line.get_marker() for line in display.ax_.lines[:3]}) == 3


def test_log_outcomes_are_called_so(result):
    logged = replace(result, settings={**result.settings, "outcome_transform": "log"})
    assert logged.plot.curve("age").axes_[0].get_ylabel() == "mean effect on log outcome\n(_drug$ minus placebo)"


# Any result, any name, any axes.


def test_every_picture_is_readable_at_half_a_page(result):
    plot = result.plot
    drawn = [plot.importance(), plot.changes(), plot.overlap(), plot.calibration(), plot.calibration(["age"])]
    for name in result.curves:
        drawn += [getattr(plot, kind)(name) for kind in ALONG[:3]]
    drawn += [plot.densities(name) for name in result.densities] + [plot.bounds(name) for name in result.bounds]
    for display in drawn:
        assert display.figure_.get_figwidth() == HALF_PAGE
        assert_readable(display.figure_)


@pytest.mark.parametrize("categories", [HOSTILE, SCHOOLS], ids=["hostile", "long"])
def test_names_are_plain_text_that_fits(result, categories):
    name = categories[-1]
    table = result.table.rename({"sex": name})
    hostile = replace(
        result,
        table=table,
        curves={name: curve_of(categories, weak=(1,))},
        densities={name: densities_of(categories, np.linspace(0, 1, 9))},
        changes=result.changes.rename({"sex": name}),
        bounds={},
        settings={**result.settings, "treated_label": name, "control_label": categories[0]},
    )
    plot = hostile.plot
    for display in (plot.importance(), plot.changes(), *(getattr(plot, kind)(name) for kind in ALONG[:4])):
        assert_readable(display.figure_)
        labels = [text for text in display.figure_.findobj(Text) if any(c[:4] in text.get_text() for c in categories)]
        assert labels
        assert not any(text.get_parse_math() or text.get_usetex() for text in labels)


def test_long_names_one_below_the_other_keep_apart(result):
    names = {name: f"{name}: a very long name of a measurement of the laboratory" for name in result.table.index}
    long = replace(
        result,
        table=result.table.rename(index=names),
        changes=result.changes.rename(index=names),
        diagnostics=result.diagnostics.rename(index=names),
    )
    for display in (long.plot.importance(), long.plot.changes(), long.plot.calibration()):
        assert_readable(display.figure_)


@pytest.mark.parametrize("levels", [SCHOOLS[:3], SCHOOLS, ["few", "names", "of levels", "that are short"]])
@pytest.mark.parametrize("display", [CurveDisplay, D2Display, QuantileDisplay])
def test_long_names_beside_categories_do_not_run_into_the_legend(display, levels):
    name = "highest level of education that the patient has completed"
    figure = display(name, curve_of(levels, weak=(0,)), discrete=True).plot().figure_
    assert not below_the_legend(figure.legends[0], figure)


def test_legend_on_axes_that_are_passed_lies_below_titles_and_remarks(result):
    for method, name, n in (("densities", "sex", 4), ("bounds", "sex", 3)):
        figure, axes = plt.subplots(n, 1, figsize=(4, 3 * n), layout="constrained")
        getattr(result.plot, method)(name, axes=axes)
        assert not below_the_legend(axes[0].get_legend(), figure)
        plt.close(figure)


def test_curve_of_an_outcome_of_two_values_has_no_ratio_of_standard_deviations(result):
    model = {"likelihood": "bernoulli"}
    display = replace(result, settings={**result.settings, "model": model}).plot.curve("sex")
    assert [ax.get_ylabel().split("\n")[0] for ax in display.axes_] == ["mean effect on outcome"]
    assert len(result.plot.curve("sex").axes_) == 2


def test_shortened_names_stay_different():
    names = [f"{'a very long name ' * 5}{end} of them all, which is the same" for end in "xy"]
    first, second = tick_labels(names, 12)
    assert first != second
    assert shown("x" * 30, 10).count("\n") == 1
    assert tick_labels(["nan", np.nan, True, 3, 22861.4]) == ["nan", "missing", "True", "3", "22,861"]


def test_results_without_explanations_are_drawn_as_far_as_they_go(old, result):
    for name in ("age", "sex", "month", "one"):
        for kind in ALONG[:3]:
            assert_readable(getattr(old.plot, kind)(name).figure_)
    ax = old.plot.curve("height").axes_[0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.curve("height")["mean_effect"])
    assert not ax.collections
    assert not old.plot.curve("height").figure_.legends
    for kind, message in {
        "overlap": "no histogram of propensity scores",
        "changes": "does not say what features change",
    }.items():
        with pytest.raises(ValueError, match=message):
            getattr(old.plot, kind)()
    with pytest.raises(ValueError, match="no calibration histograms of 'age'; available: none"):
        old.plot.calibration("age")
    with pytest.raises(ValueError, match="no densities of 'age'; available: none"):
        old.plot.densities("age")
    with pytest.raises(ValueError, match=r"no bounds of 'age'; available: none.*effect_bounds"):
        old.plot.bounds("age")
    with pytest.raises(ValueError, match="no calibration of distributions"):
        replace(old, diagnostics=old.diagnostics.iloc[1:4]).plot.calibration()


@pytest.mark.parametrize("kind", ALONG)
def test_groups_are_drawn_column_by_column(result, kind):
    with pytest.raises(ValueError, match=r"'body' is a group; draw the [a-z ]+ of its columns: height, weight"):
        getattr(result.plot, kind)("body")
    with pytest.raises(ValueError, match="no feature 'nobody'; features are 'age', 'sex', 'month', 'one', 'body'"):
        getattr(result.plot, kind)("nobody")
    if kind in ALONG[:3]:
        assert getattr(result.plot, kind)("weight").feature == "weight"


def test_axes_that_are_passed_are_drawn_on(result):
    figure, axes = plt.subplots(2, 2)
    try:
        display = CurveDisplay.from_result(result, "age").plot(axes[0])
        assert display.axes_ == list(axes[0])
        assert display.figure_ is figure
        assert not figure.legends
        assert axes[0, 0].get_legend() is not None
        assert display._repr_png_() is None
        assert result.plot.d2("age", ax=axes[1, 0]).ax_ is axes[1, 0]
        assert result.plot.importance(ax=axes[1, 1]).figure_ is figure
        with pytest.raises(ValueError, match="DensityDisplay draws on 4 axes, not 2"):
            result.plot.densities("sex", axes=axes[0])
        assert result.plot.densities("sex", axes=axes.ravel()).axes_ == list(axes.ravel())
        figure.canvas.draw()
    finally:
        plt.close(figure)


def test_displays_open_no_windows_and_show_themselves_in_notebooks(result):
    before = plt.get_fignums()
    picture, size = result.plot.curve("age")._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert size["width"] == round(120 * HALF_PAGE)
    assert plt.get_fignums() == before
    assert repr(result.plot).startswith("PlotAccessor(bounds, calibration, changes, curve, d2")


def test_points_without_neighbours_are_not_lost():
    curve = curve_of([1.0, 2.0, 3.0], weak=(0, 2))
    line = D2Display("x", curve, discrete=False).plot().ax_.lines[0]
    assert line.get_marker() == "o"
    assert line.get_markevery() == [1]
    only_gaps = curve_of([np.nan])
    assert texts_of(D2Display("x", only_gaps, discrete=False).plot().ax_.get_xticklabels()) == ["missing"]


@pytest.mark.parametrize(
    "values", [list(np.linspace(0, 1, 9)), MONTHS, ["a", "b", "c"]], ids=["numbers", "many", "few"]
)
def test_bands_of_few_rows_do_not_hide_the_rest(values):
    curve = curve_of(values, weak=(0,))
    curve.loc[0, ["mean_effect_low", "mean_effect_high"]] = [-500, 500]
    display = CurveDisplay("x", curve, discrete=isinstance(values[0], str)).plot()
    display.figure_.canvas.draw()
    ax = display.axes_[0]
    reach = ax.get_xlim() if len(values) == 12 else ax.get_ylim()
    assert -10 < min(reach) < curve["mean_effect_low"][1:].min()
    assert curve["mean_effect_high"][1:].max() < max(reach) < 10
    limits = ax.get_ylim() if len(values) == 12 else ax.get_xlim()
    assert min(limits) <= 0
    assert max(limits) >= (1 if values[0] == 0 else len(values) - 1)


def test_bounds_of_many_or_long_categories_are_readable():
    rng = np.random.default_rng(0)
    for names in (MONTHS, SCHOOLS):
        x = np.repeat(names, 40)
        bounds = effect_bounds(
            x, rng.normal(size=x.size), np.arange(x.size) % 2, 0.5, discrete=True, n_bootstrap=20, random_state=0
        )
        assert_readable(BoundsDisplay("x", bounds, discrete=True).plot().figure_)


@pytest.mark.parametrize("gap", [[], [np.nan]], ids=["complete", "gap"])
@pytest.mark.parametrize("scale", [1e-5, 98765.0, 1e9])
def test_ticks_of_numbers_of_any_size_keep_apart(scale, gap):
    for values in (np.linspace(-1, 0.95, 8), [0.5]):
        display = D2Display("x", curve_of([*(scale * np.asarray(values)), *gap]), discrete=False).plot()
        assert_readable(display.figure_)
        low, high = display.ax_.get_xlim()
        assert sum(low <= tick <= high for tick in display.ax_.get_xticks()) >= (2 if len(values) > 1 else 1)


def test_a_band_that_misses_its_estimate_is_drawn_as_it_is():
    curve = curve_of(["a", "b"]).assign(mean_effect=5.0)
    ax = CurveDisplay("x", curve, discrete=True).plot().axes_[0]
    bars = np.array(ax.collections[0].get_segments())
    np.testing.assert_array_equal(bars[:, :, 1], curve[["mean_effect_low", "mean_effect_high"]])
    assert list(ax.lines[0].get_ydata()) == [5.0, 5.0]


def test_arms_stay_apart_in_grey_print(result):
    treated, control = result.plot.densities("sex").axes_[0].lines
    assert treated.get_linestyle() != control.get_linestyle()
    bars = result.plot.overlap().ax_.patches
    assert (bars[0].get_hatch() or "") != (bars[20].get_hatch() or "")
    assert matplotlib.colors.to_hex(bars[0].get_facecolor()).upper() == SELECTED


def test_a_fit_is_drawn():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame({"age": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    treatment = np.arange(n) % 2
    y = (rng.random(n) < 0.3 + 0.4 * treatment * (frame["age"] > 0)).astype(float)
    selector = quiet_fit(frame, y, treatment, sampler="gaussian", propensity=0.5, random_state=0, explain=True)
    for display in (ImportanceDisplay, CalibrationDisplay):
        assert_readable(display.from_estimator(selector).plot().figure_)
    for display in (CurveDisplay, D2Display, QuantileDisplay):
        for name in frame:
            assert_readable(display.from_estimator(selector, name).plot().figure_)


def test_the_gallery_shows_figures_that_exist_and_are_small():
    docs = ROOT / "docs"
    figures = re.findall(r"!\[[^]]+]\(([^)]+)\)", (docs / "plots.md").read_text(encoding="utf-8"))
    assert len(figures) == len(list((docs / "images").glob("plot-*.png"))) == 13
    assert all((docs / path).stat().st_size < 100_000 for path in figures)


def test_every_figure_is_drawn_by_both_renderers(result):
    """What is described once has the same numbers in matplotlib's axes and in SVG."""
    displays = [kind.from_result(result) for kind in (ImportanceDisplay, ChangesDisplay, OverlapDisplay)]
    displays += [CalibrationDisplay.from_result(result), CalibrationDisplay.from_result(result, features="age")]
    for name in ("age", "sex", "month"):
        displays += [kind.from_result(result, name) for kind in (CurveDisplay, D2Display, QuantileDisplay)]
    displays += [DensityDisplay.from_result(result, "age"), BoundsDisplay.from_result(result, "sex")]
    for display in displays:
        figure = display.spec()
        for panel, ax in zip(figure.panels, display.plot().figure_.axes, strict=True):
            drawn = chart(panel)
            root = ElementTree.fromstring(str(drawn.svg))
            assert root.get("aria-label") == panel.caption.about
            marks = [mark for mark in panel.marks if isinstance(mark, Line)]
            known = sum(int(np.isfinite(mark.values).sum()) for mark in marks)
            bars = sum(int(np.isfinite(mark.values).sum()) for mark in panel.marks if isinstance(mark, Bars))
            assert sum(map(len, drawn.readout["marks"])) == known + bars
            ends = ax.get_xlim() if panel.places.sideways else ax.get_ylim()
            assert ends == pytest.approx(panel.reach)


def test_displays_are_made_from_estimators_too(result):
    class Fitted:
        result_ = result

    for display in (ImportanceDisplay, CalibrationDisplay, ChangesDisplay, OverlapDisplay):
        assert display.from_estimator(Fitted).plot().figure_ is not None
    for display in (DensityDisplay, BoundsDisplay):
        assert display.from_estimator(Fitted, "sex").plot().feature == "sex"

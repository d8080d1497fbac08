"""The report in a browser: reading, sorting, choosing and pointing, by mouse and by keys, with and without its script.

Needs playwright and Chromium (MODIFIND_CHROMIUM names another one); without them the tests are skipped, unless
MODIFIND_BROWSER=required.
"""

import os
import re
import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from explained import CHOSEN, NAMES, SCRIPT, explained_result
from modifind.charts.labels import MINUS, with_limits
from modifind.report import render_report

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    sync_playwright = None

CHROMIUM = os.environ.get("MODIFIND_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "playwright" if sync_playwright is None else "chromium" if CHROMIUM is None else None
REQUIRED = os.environ.get("MODIFIND_BROWSER") == "required"
PATIENCE = 30_000  # milliseconds: pages answer in a few, unless the machine has other work


@pytest.fixture(scope="module")
def browser():
    if MISSING:
        pytest.fail(f"{MISSING} is required") if REQUIRED else pytest.skip(f"{MISSING} is not installed")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def result():
    return explained_result()


@pytest.fixture(scope="module")
def address(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    result.report(path)
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Open the report; what it asks of the network, says to the console or shows as a dialog fails the test."""
    contexts, troubles = [], []

    def open_page(url=address, *, width=1400, hash="", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or troubles.append(request.url))
        page.goto(url + hash)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def shown_names(page):
    return page.locator("#table tbody tr:visible th").evaluate_all(
        "rows => rows.map(row => (row.querySelector('a') || row).textContent)"
    )


def panel_of(page, name):
    return page.locator(".panel").filter(has=page.locator("h3, .name", has_text=name)).first


def expect_names(page, names):
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(names))
    assert shown_names(page) == names


def expect_ground(page, colour):
    expect(page.locator("body")).to_have_css("background-color", colour)


def expect_value(plot, start):
    expect(plot).to_have_attribute("aria-valuetext", re.compile(f"^{re.escape(start)}"))


def wait_for_focus(page, *, name):
    """Until the focus has come to the panel of a feature."""
    expected = panel_of(page, name)
    expect(expected.locator("summary").first).to_be_focused()
    return expected


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_answer_and_verdicts_are_on_the_first_screen(opened):
    page = opened()
    answer = page.locator(".answer")
    assert answer.is_visible()
    assert answer.bounding_box()["y"] < 300
    assert answer.text_content().startswith(f"On average, pill {SCRIPT} lowers outcome by 2.00 (1.70 to 2.30). ")
    assert f"The effect depends on age, smoker, {SCRIPT} and very_long_very_" in answer.text_content()
    assert page.locator(".meanings li").count() == len(CHOSEN)
    headings = page.locator(".abstract dt").all_text_contents()
    assert headings[:4] == ["Data", "Average effect", "Distribution", "Effect modification"]
    assert headings[-3:] == ["For whom", "Certainty", "Next steps"]


def test_table_sorts_by_click_and_by_key(opened, result):
    page = opened()
    table = result.table
    heads = {head.get_attribute("data-key"): head for head in page.locator("#table thead th").all()}
    assert heads["p_value"].get_attribute("aria-sort") == "ascending"
    heads["p_value"].locator("button").click()
    expect(heads["p_value"]).to_have_attribute("aria-sort", "descending")
    assert shown_names(page)[0] == table["p_value"].idxmax()
    heads["kind"].locator("button").press("Enter")
    expect(heads["kind"]).to_have_attribute("aria-sort", "ascending")
    assert heads["p_value"].get_attribute("aria-sort") is None
    heads["p_adjusted"].locator("button").focus()
    page.keyboard.press("Space")
    expect(page.locator("#live")).to_have_text("Sorted by adjusted p, ascending")
    values = page.locator("#table tbody td:nth-child(4)").evaluate_all("cells => cells.map(cell => +cell.dataset.sort)")
    assert values == sorted(values)


def test_names_are_found(opened):
    page = opened()
    page.locator("#filter").fill("SMOK")
    expect_names(page, ["smoker"])
    expect(page.locator("#found")).to_have_text(f"1 of {len(NAMES)}")
    page.locator("#filter").fill("")
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(NAMES))


def test_feature_is_chosen_by_mouse_in_the_table(opened):
    page = opened()
    panel = panel_of(page, "pressure")
    assert panel.get_attribute("open") is None
    page.locator("#table").get_by_role("link", name="pressure", exact=True).click()
    wait_for_focus(page, name="pressure")
    assert panel.get_attribute("open") is not None
    assert panel.locator("h4.column").all_text_contents() == ["pressure: sbp", "pressure: dbp"]
    assert page.url.endswith("#feature=pressure")


def test_feature_is_chosen_by_keys_in_the_list(opened):
    page = opened()
    page.locator("#pick").focus()
    page.keyboard.press("ArrowDown")
    assert wait_for_focus(page, name="age").get_attribute("id") == "feature=age"
    assert page.url.endswith("#feature=age")
    page.locator("#pick").select_option(label="100% #1 & more")
    wait_for_focus(page, name="100% #1 & more")


def test_address_opens_a_feature(opened):
    page = opened(hash="#feature=100%25%20%231%20%26%20more")
    panel = panel_of(page, "100% #1")
    expect(panel).to_have_attribute("open", "")
    expect(panel.locator(".plot").first).to_be_visible()


def test_pointing_shows_the_values_in_all_pictures_of_a_feature(opened, result):
    page = opened(hash="#feature=age")
    plots = panel_of(page, "age").locator(".plot[role=slider]")
    box = plots.nth(0).bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    readouts = panel_of(page, "age").locator(".readout")
    row = result.curve("age").iloc[4]
    for place, (title, name) in enumerate((("average effect", "mean_effect"), ("spread", "sd_ratio"))):
        told = with_limits(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))
        expect(readouts.nth(place)).to_have_text(f"age 50 {title} {told}; about 40 + 50 rows")
    expect(plots.nth(1).locator(".cross")).to_have_count(1)
    page.mouse.move(5, box["y"])
    expect(readouts.nth(0)).to_have_text("")


def test_arrow_keys_walk_along_a_picture(opened):
    page = opened(hash="#feature=age")
    plot = panel_of(page, "age").locator(".plot[role=slider]").first
    plot.focus()
    expect_value(plot, f"age 20: average effect {MINUS}2.40 ({MINUS}2.70 to {MINUS}2.10)")
    assert "too few rows" in plot.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    expect_value(plot, "age 27.5: average effect")
    page.keyboard.press("End")
    expect_value(plot, f"age missing: average effect {MINUS}1.60")
    page.keyboard.press("ArrowLeft")
    expect_value(plot, "age 80:")


def test_categories_are_named_and_pointed_at(opened):
    page = opened(hash="#feature=smoker")
    panel = panel_of(page, "smoker")
    assert panel.locator("svg").first.locator(".category").nth(1).text_content() == "<b>often</b>"
    plot = panel.locator(".plot[role=slider]").first
    plot.focus()
    page.keyboard.press("ArrowDown")
    expect_value(plot, f"smoker <b>often</b>: average effect {MINUS}2.00 ({MINUS}2.30 to {MINUS}1.70)")


def test_value_of_the_outcome_pictures_is_chosen_by_mouse_and_keys(opened):
    page = opened(hash="#feature=age")
    choices = panel_of(page, "age").locator(".choices")
    assert choices.locator(".frame:visible").count() == 1
    assert choices.locator("label").all_text_contents() == ["20", "50", "80"]
    choices.locator("label").first.click()
    shown = choices.locator(".frame:visible svg")
    expect(shown).to_have_attribute("aria-label", re.compile(r"^Outcomes of both arms where age is 20\."))
    page.keyboard.press("ArrowRight")
    expect(shown).to_have_attribute("aria-label", re.compile(r"^Outcomes of both arms where age is 50\."))


def test_hostile_names_are_text_and_nothing_runs(opened):
    page = opened()
    assert sorted(shown_names(page)) == sorted(NAMES)
    for name in NAMES:
        shown = " ".join(name.split())
        page.locator("#pick").select_option(label=f"★ {shown}" if name in CHOSEN else shown)
        panel = wait_for_focus(page, name=shown)
        assert panel.locator("h3, .name").first.text_content().removeprefix("★ ") == name
    assert page.locator("img").count() == 0
    assert page.locator("main script").count() == 0


def test_injected_scripts_are_refused(result, tmp_path, browser):
    """Should a name ever get through, the page still does not run it."""
    harmed = tmp_path / "harmed.html"
    html = render_report(result)
    harmed.write_text(
        html.replace(
            "<main>", "<main><script>document.title = 'harmed'</script><img src=x onerror=\"document.title='harmed'\">"
        ),
        encoding="utf-8",
    )
    context = browser.new_context()
    page = context.new_page()
    page.goto(harmed.as_uri())
    assert page.title() != "harmed"
    assert page.locator("#table thead button").count() > 3
    context.close()


def test_download_is_the_table_as_csv(opened, result, tmp_path):
    page = opened(accept_downloads=True)
    with page.expect_download() as download:
        page.locator("#csv").click()
    assert download.value.suggested_filename == "modifind-features.csv"
    result.to_csv(tmp_path / "expected.csv")
    read = pd.read_csv(download.value.path(), keep_default_na=False)
    known = pd.read_csv(tmp_path / "expected.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(read[known.columns], known)
    assert read.columns[-1] == "what_changes"
    np.testing.assert_allclose(pd.to_numeric(read["mean_adjusted"]), result.changes["mean_adjusted"])


def test_methods_are_copied(opened):
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_have_text("Copied.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "effect-likelihood test" in copied
    assert "Benjamini Y, Hochberg Y." in copied
    assert "Seed 0." in copied


# Texts whose colour is too near to that of their ground.
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = rgb(getComputedStyle(element).backgroundColor);
      if (colour[3] === 255) return colour;
    }
  };
  const low = [];
  for (const element of document.querySelectorAll('main *, .bar *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest('.away, title')) continue;
    const style = getComputedStyle(element);
    const shown = light(rgb(element instanceof SVGElement ? style.fill : style.color)), under = light(ground(element));
    const ratio = (Math.max(shown, under) + 0.05) / (Math.min(shown, under) + 0.05);
    if (ratio < 4.5) low.push([element.outerHTML.slice(0, 80), ratio]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(opened, scheme):
    page = opened(color_scheme=scheme)
    expect_ground(page, {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme])
    assert page.evaluate(CONTRAST) == []


def test_dark_is_chosen_by_a_button_and_kept(opened):
    page = opened(color_scheme="light")
    page.locator("#theme").click()
    expect_ground(page, "rgb(20, 24, 28)")
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize("width", [390, 1400])
def test_page_does_not_scroll_sideways(opened, width):
    page = opened(width=width)
    for panel in page.locator("details").all():
        panel.evaluate("panel => { panel.open = true; }")
    assert overflow(page) == 0
    widest = page.locator(".panel .plot svg").first.bounding_box()["width"]
    assert 300 < widest < 480


def test_print_shows_all_selected_panels_and_no_controls(opened):
    page = opened(width=800)
    page.emulate_media(media="print")
    expect(page.locator("details.chosen:visible")).to_have_count(len(CHOSEN))
    for hidden in (".bar", ".tools", "#copy", ".choices label", ".others"):
        expect(page.locator(f"{hidden}:visible")).to_have_count(0)
    expect(panel_of(page, "age").locator(".frame:visible")).to_have_count(3)
    expect_ground(page, "rgb(255, 255, 255)")
    assert len(page.pdf()) > 20_000


def test_features_fold_on_a_phone_and_not_on_paper(opened):
    page = opened(width=390)
    expect(page.locator("details.chosen[open]")).to_have_count(0)
    expect(page.locator(".forest.narrow")).to_be_visible()
    expect(page.locator(".forest.wide")).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("details.chosen[open]")).to_have_count(len(CHOSEN))


def test_dark_pages_print_light(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    expect_ground(page, "rgb(255, 255, 255)")


def test_page_works_without_its_script(opened, result):
    page = opened(java_script_enabled=False)
    assert page.locator(".answer").is_visible()
    assert page.locator("#table tbody tr").count() == len(NAMES)
    assert panel_of(page, "age").locator("svg:visible").count() >= 8
    for control in ("#pick", "#theme", "#filter", "#copy"):
        assert not page.locator(control).is_visible()
    other = panel_of(page, "pressure")
    other.locator("summary").first.click()
    expect(other.locator("svg:visible").nth(6)).to_be_visible()
    with page.expect_download() as download:
        page.locator("#csv").click()
    assert download.value.path().read_text(encoding="utf-8").startswith("feature,kind,importance")


def test_every_picture_and_control_has_a_name(opened):
    page = opened()
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    unnamed = page.locator("button, select, input, a").evaluate_all(
        "all => all.filter(e => !(e.textContent.trim() || e.labels?.length || e.ariaLabel)).map(e => e.outerHTML)"
    )
    assert unnamed == []
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(e => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_page_of_very_many_features_is_small_and_says_what_is_left_out(opened, tmp_path):
    names = ("age", "smoker", "flat", *(f"x{k}" for k in range(300)))
    explained_result(names, ("age", "smoker")).report(tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < 5_000_000
    page = opened((tmp_path / "many.html").as_uri())
    assert page.locator("#table tbody tr").count() == 303
    assert "features with the smallest p-values; for the others" in page.locator("#others").text_content()
    page.locator("#filter").fill("x29")
    expect_names(page, ["x29", *(f"x29{k}" for k in range(10))])

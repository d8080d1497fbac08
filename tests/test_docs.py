"""The documentation: the site builds without a warning, needs no network, and shows what the examples print."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from conftest import ROOT

EXAMPLES = ("quickstart", "nhefs", "legislators", "nhanes", "hillstrom", "star", "randhie", "thornton")
FROM_FOLDER = {
    "nhanes": "the NHANES tables",
    **dict.fromkeys(("hillstrom", "star", "randhie", "thornton"), "the table of this example"),
}


@pytest.fixture(scope="module")
def run_examples():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("run_examples")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    loads = re.compile(
        r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//[^"]+"|<link[^>]+href="(?:https?:)?//[^"]+"'
    )
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert {page.name: loads.findall(page.read_text(encoding="utf-8")) for page in pages} == {
        page.name: [] for page in pages
    }


def test_formulas_are_drawn_by_the_browser(site):
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") > 50
    assert 'display="block"' in page
    assert "arithmatex" not in page


def commands_shown():
    """Every call of modifind in blocks of shell commands, by where it stands."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0].rpartition("/")[2] == "modifind":
                    yield f"{path.stem}: {line}", words[1:]


def test_commands_that_pages_show_are_understood():
    import typer

    from modifind.cli.app import app

    group, shown = typer.main.get_command(app), list(commands_shown())
    assert len(shown) > 30
    for where, (name, *words) in shown:
        with group.commands[name].make_context(name, words) as context:
            assert context.params, where


def test_results_have_the_keys_that_r_users_are_told_of(tmp_path):
    from modifind import EffectLikelihood, ModifierSelector
    from modifind.datasets import load_trial

    trial = load_trial()
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    selector.fit(trial.X[["age", "smoker"]], trial.y, treatment=trial.treatment)
    selector.result_.to_json(tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "r-users.md").read_text(encoding="utf-8")
    for part in re.findall(r"as_table\(result\$([\w$]+)\)", page):
        found = result
        for key in part.split("$"):
            found = found[key]
        assert {"index", "types", "columns"} <= set(found), part
    for part, told in re.findall(r"^\| `(\w+)` \| (.*) \|$", page, flags=re.MULTILINE):
        known = {"curves": result["curves"]["age"], "overall": {"columns": result["overall"]}}.get(part, result[part])
        names = set(re.findall(r"`([a-z]\w*)`", told)) - set(known.get("index", ()))
        assert names <= set(known["columns"]), part
    assert {"mean_effect", "mean_effect_low", "mean_effect_high"} <= set(result["overall"])


def test_every_option_of_the_command_line_is_listed(site):
    import typer

    from modifind.cli.app import app

    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        options = [flag for one in command.params for flag in one.opts if flag.startswith("--") and flag != "--help"]
        assert f"modifind {name}" in page
        assert [flag for flag in options if f"<code>{flag}</code>" not in page] == []
    assert re.search(r"<code>--seed</code></td>\s*<td>[^<]*</td>\s*<td><code>0</code>", page)


def test_every_public_name_and_method_has_a_heading(site):
    """A method that a class inherits may be shown where it is written."""
    import test_reference as reference

    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    paths = [path.split(".") for path in re.findall(r'<h[2-6] id="(modifind[\w.]+)"', pages)]
    shown = {".".join(path[-length:]) for path in paths for length in (1, 2)}
    assert set(reference.LISTED) - shown == set()
    for name, own in reference.LISTED.items():
        if isinstance(own, type):
            bases = [base.__name__ for base in own.__mro__]
            hidden = [one for one in reference.members(own) if not shown & {f"{base}.{one}" for base in bases}]
            assert hidden == [], name


def test_the_gallery_shows_every_example(run_examples):
    gallery = ROOT / "docs" / "examples" / "index.md"
    cards = re.findall(r"\[!\[\]\((\S+)\)\]\((\S+)\)", gallery.read_text(encoding="utf-8"))
    assert {(gallery.parent / page).resolve() for _, page in cards} == set(run_examples.pages().values())
    assert all((gallery.parent / picture).is_file() for picture, _ in cards)


def test_search_works_from_files(site):
    """The index is a script, which pages opened from a disk may load."""
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index")


def test_hosting_builds_the_same_site():
    import yaml

    hosting = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (ROOT / hosting["mkdocs"]["configuration"]).is_file()
    assert set(hosting["python"]["install"][0]["extra_requirements"]) <= set(project["optional-dependencies"])
    assert project["urls"]["Documentation"].endswith(".readthedocs.io")


@pytest.mark.parametrize("name", EXAMPLES)
def test_pages_show_the_code_of_their_scripts(run_examples, name):
    page = run_examples.pages()[name].read_text(encoding="utf-8")
    shown = {cell for _, kind, cell, _, _ in run_examples.BLOCK.findall(page) if kind == "cell"}
    assert run_examples.filled(page, run_examples.cells(name), None) == page
    assert len(shown) >= 5


def test_every_example_has_a_page_and_a_test(run_examples):
    assert set(run_examples.pages()) == set(EXAMPLES) == {path.stem for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_pages_show_what_their_scripts_print(run_examples, name, tmp_path):
    if name in ("nhefs", "legislators"):
        pytest.importorskip("causaldata", reason="the examples extra is not installed")
    if name in ("legislators", *FROM_FOLDER) and os.environ.get("MODIFIND_EXAMPLES") != "1":
        pytest.skip("takes long; MODIFIND_EXAMPLES=1 runs it")
    if name in FROM_FOLDER and not os.environ.get("MODIFIND_DATA"):
        pytest.skip(f"MODIFIND_DATA names no folder with {FROM_FOLDER[name]}")
    page = run_examples.pages()[name].read_text(encoding="utf-8")
    assert run_examples.filled(page, run_examples.cells(name), run_examples.run(name, tmp_path)) == page


def test_a_block_of_an_unknown_cell_is_refused(run_examples):
    page = "<!-- printed: nothing -->\n```text\n```\n"
    with pytest.raises(ValueError, match="no cell 'nothing'; it has data"):
        run_examples.filled(page, {"data": ""}, {"data": ""})


def test_what_a_cell_warns_of_is_printed(run_examples):
    code = compile("import warnings\nwarnings.warn('look out')\nprint('done   ')\n", "cell", "exec")
    assert run_examples._run_cell(code, {}) == "UserWarning: look out\ndone\n"

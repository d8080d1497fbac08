"""Options are declared once, in groups that commands take whole."""

import inspect
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import modifind
from modifind.cli.app import app
from modifind.cli.options import arguments_of, with_options

OTHER_WORDS = {"out", "strict", "help"}  # they say of each command what it writes, and when it fails


@dataclass(frozen=True)
class Greeting:
    name: Annotated[str, typer.Option(help="Whom to greet.")]
    times: Annotated[int, typer.Option("--often", help="How often.", min=1)] = 1


@pytest.fixture
def command():
    made = typer.Typer()

    @made.command()
    @with_options
    def greet(
        word: Annotated[str, typer.Argument(help="What to say.")],
        greeting: Greeting,
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Greet somebody."""
        assert isinstance(greeting, Greeting)
        print(f"{word} {greeting.name} {greeting.times} {loud}")

    return made


def test_a_group_of_options_reaches_a_command_whole(command):
    ran = CliRunner().invoke(command, ["hello", "--name", "Ada", "--often", "3", "--loud"])
    assert ran.output == "hello Ada 3 True\n"
    assert CliRunner().invoke(command, ["hello", "--name", "Ada"]).output == "hello Ada 1 False\n"
    help_text = CliRunner().invoke(command, ["--help"]).output
    assert all(text in help_text for text in ("Greet somebody.", "Whom to greet.", "--often", "What to say."))


@pytest.mark.parametrize("arguments", [["hello"], ["hello", "--name", "Ada", "--often", "0"]])
def test_options_of_a_group_are_checked_as_others_are(command, arguments):
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_select_and_placebo_say_the_same_of_the_options_that_they_share():
    select, placebo = (
        {one.name: one for one in typer.main.get_command(app).commands[name].params if one.param_type_name == "option"}
        for name in ("select", "placebo")
    )
    shared = select.keys() & placebo.keys() - OTHER_WORDS
    assert len(shared) == 35
    for name in shared:
        one, other = select[name], placebo[name]
        assert (one.opts, one.help, one.default, one.required) == (
            other.opts,
            other.help,
            other.default,
            other.required,
        )


@pytest.mark.parametrize("command", ["select", "placebo", "demo", "simulate", "report", "reproduce"])
def test_help_fits_80_columns(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_the_unit_and_the_direction_of_the_outcome_belong_to_the_report():
    panels = {option.name: option.rich_help_panel for option in typer.main.get_command(app).commands["select"].params}
    assert panels["unit"] == panels["better"] == "Effects and report"


@pytest.mark.parametrize(
    ("name", "method"),
    [("ModifierSelector", "__init__"), ("ModifierSelector", "fit"), ("EffectLikelihood", "__init__")],
)
def test_arguments_read_from_the_source_are_those_of_the_class(name, method):
    signature = inspect.signature(getattr(getattr(modifind, name), method))
    defaults = {own.name: own.default for own in signature.parameters.values() if own.default is not own.empty}
    found = arguments_of(name, method)
    assert {argument: default for argument, (_, default, _) in found.items()} == defaults
    assert all(about for _, _, about in found.values())


def test_help_is_the_first_sentence_of_the_documentation():
    option = next(one for one in typer.main.get_command(app).commands["select"].params if one.name == "unit")
    assert option.help == "Unit of the outcome, for the report and figures."
    assert option.help in modifind.ModifierSelector.__doc__


def test_help_needs_no_folder_of_sources(tmp_path):
    packages = Path(modifind.__file__).parents[1]
    archive = shutil.make_archive(str(tmp_path / "modifind"), "zip", packages, "modifind")
    environment = os.environ | {"PYTHONPATH": archive, "COLUMNS": "100"}
    command = [sys.executable, "-m", "modifind", "select", "--help"]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr
    assert "the same command then continues" in " ".join(run.stdout.replace("│", " ").split())

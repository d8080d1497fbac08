"""What the documentation site is given while it is built: formulas as MathML and the pages of the command line.

Formulas become MathML here, which browsers draw by themselves, so that pages need no script and no network.
"""

from __future__ import annotations

import html
import re
import textwrap
from typing import Any

from latex2mathml.converter import convert

CLI_MARK = "<!-- command-line -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the options of every command where a page asks for them."""
    return markdown.replace(CLI_MARK, command_line()) if CLI_MARK in markdown else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Turn the formulas of a page into MathML."""
    return FORMULA.sub(_formula, content)


def _formula(found: re.Match[str]) -> str:
    latex = html.unescape(found[2]).strip()
    display = "block" if found[1] == "div" else "inline"
    mathml = convert(latex[2:-2].strip(), display=display)  # without \( \) or \[ \]
    return f'<{found[1]} class="formula">{mathml}</{found[1]}>'


def command_line() -> str:
    """Markdown with one section per command, made of what ``--help`` says."""
    import typer

    from modifind.cli.app import app

    group: Any = typer.main.get_command(app)
    sections = []
    for name, command in group.commands.items():
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
        usage = " ".join([f"modifind {name}", *(_shown(one) for one in arguments), "[OPTIONS]"])
        rows = [f"| `{_shown(one)}` | {_cell(one.help)} | required |" for one in arguments]
        rows += [f"| `{', '.join(one.opts)}` | {_cell(one.help)} | {_default(one)} |" for one in options]
        table = "\n".join(["| | what it is | default |", "|---|---|---|", *rows])
        about = textwrap.dedent(command.help or "").strip()
        sections.append(f"## modifind {name}\n\n{about}\n\n```text\n{usage}\n```\n\n{table}\n")
    return "\n".join(sections)


def _shown(argument: Any) -> str:
    return str(argument.name).upper()


def _cell(text: str | None) -> str:
    return html.escape(text or "", quote=False).replace("|", "\\|")


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default == "":
        return ""
    return f"`{option.default}`"

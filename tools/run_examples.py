"""Run the examples and put their code, what they print and their pictures into the documentation.

    python tools/run_examples.py                  # every page whose data are at hand
    python tools/run_examples.py nhefs            # one of them
    python tools/run_examples.py --check          # change nothing; say what differs, and end with 1 if anything does

An example is a script of cells, each under a line ``# %% name``. A page that starts with ``<!-- example: name -->``
shows cells of ``examples/name.py``: the block after ``<!-- cell: x -->`` is the code of cell x, the block after
``<!-- printed: x -->`` what it prints. Pictures that a script writes into its working folder go to
``docs/images/examples``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
PICTURES = ROOT / "docs" / "images" / "examples"
PAGE = re.compile(r"\A<!-- example: ([a-z0-9_]+) -->")
CELL = re.compile(r"^# %% (\w+)$", re.MULTILINE)
BLOCK = re.compile(r"(<!-- (cell|printed): (\w+) -->\n```\w+\n)(.*?)(```\n)", re.DOTALL)


def pages() -> dict[str, Path]:
    """Pages that show an example, by its name."""
    found = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = PAGE.match(path.read_text(encoding="utf-8"))
        if name:
            found[name[1]] = path
    return found


def cells(name: str) -> dict[str, str]:
    """Code of the cells of one script; what stands above the first is left out."""
    parts = CELL.split((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"))
    return {cell: code.strip() + "\n" for cell, code in zip(parts[1::2], parts[2::2], strict=True)}


def run(name: str, folder: Path) -> dict[str, str]:
    """What each cell prints, warnings included, when the script runs in `folder`."""
    import matplotlib

    matplotlib.use("Agg")
    here, space, printed = Path.cwd(), {"__name__": "__main__"}, {}
    os.chdir(folder)
    try:
        for cell, code in cells(name).items():
            printed[cell] = _run_cell(compile(code, f"examples/{name}.py: {cell}", "exec"), space)
    finally:
        os.chdir(here)
    return printed


def _run_cell(code: Any, space: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        exec(code, space)
    told = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    said = [textwrap.fill(f"UserWarning: {text}", WIDTH, subsequent_indent="  ") + "\n" for text in told]
    lines = [line.rstrip() + "\n" for line in ("".join(said) + out.getvalue()).splitlines()]
    return "".join(lines)


def filled(page: str, code: dict[str, str], printed: dict[str, str] | None) -> str:
    """The page with the code of the script and, unless None, what was printed."""
    known = {"cell": code, "printed": printed}

    def block(found: re.Match[str]) -> str:
        texts = known[found[2]]
        if texts is None:
            return found[0]
        if found[3] not in texts:
            raise ValueError(f"the script has no cell {found[3]!r}; it has {', '.join(texts)}")
        return found[1] + texts[found[3]] + found[5]

    return BLOCK.sub(block, page)


def refresh(name: str, path: Path, *, check: bool) -> list[str]:
    """Run one example and bring its page up to date; what differed, or, with `check`, what differs."""
    old = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        new = filled(old, cells(name), run(name, Path(folder)))
        if not check:
            for picture in sorted(Path(folder).glob("*.png")):
                PICTURES.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(picture, PICTURES / picture.name)
    if new != old and not check:
        path.write_text(new, encoding="utf-8")
    return [f"{path.relative_to(ROOT)} differs from what examples/{name}.py gives"] if new != old else []


def main() -> int:
    """Command line; see the top of this file."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help="examples to run; default all")
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    arguments = parser.parse_args()
    found, differences = pages(), []
    for name in arguments.names or found:
        if name not in found:
            parser.error(f"no page shows an example {name!r}; there are {', '.join(found)}")
        try:
            differences += refresh(name, found[name], check=arguments.check)
        except FileNotFoundError as missing:
            if arguments.names:
                raise
            print(f"{name}: left as it is, its data are not here ({missing})", file=sys.stderr)
    for line in differences:
        print(line)
    return int(bool(differences) and arguments.check)


if __name__ == "__main__":
    sys.exit(main())

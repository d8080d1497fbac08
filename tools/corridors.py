"""How far a table in memory and a table in pieces walk the same way through the engine.

    python tools/corridors.py                              # this repository
    python tools/corridors.py --sources ../other/src       # another version of the package
    python tools/corridors.py --modules --frames           # also module by module, and the deepest way to a tail

The small fits of tests/golden_cases.py run once in memory and once in pieces, in this process, and the lines of
`modifind.engine` that they execute are compared: those in functions, whatever an import executes aside. Frames are
functions of the package that are at work while the tail of the default statistic is computed, `ModifierSelector.fit`
and `tail` included; comprehensions are not counted.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from orphans import commands, orphans

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("", "weights", "clusters", "strata", "missing", "groups")
WAYS_OF_WCMMD = ("", "weights")
SAMPLE_ROWS = 200  # of 300, so that the table is read in pieces
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
Line = tuple[str, int]


class Trace:
    """Lines of the engine that were executed, and the deepest way from `fit` to a tail.

    Parameters
    ----------
    package : Path
        Folder of the package.

    Attributes
    ----------
    lines : set of (str, int)
        Module and number of each line.
    frames : list of str
        Functions of the deepest way, the outermost first.
    """

    def __init__(self, package: Path) -> None:
        self.package = str(package)
        self.lines: set[Line] = set()
        self.frames: list[str] = []
        self.follows_tails = True
        self._names: dict[CodeType, str] = {}

    @contextmanager
    def recording(self, *, tails: bool) -> Iterator[None]:
        """Record what is executed inside; ways to a tail on demand."""
        self.follows_tails = tails
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _name(self, code: CodeType) -> str:
        """Function with its module, empty where it is not the package's."""
        if code not in self._names:
            inside = code.co_filename.startswith(self.package)
            place = code.co_filename[len(self.package) + 1 :].removesuffix(".py").replace("\\", "/").replace("/", ".")
            self._names[code] = f"{place}:{code.co_qualname}" if inside else ""
        return self._names[code]

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        name = self._name(frame.f_code)
        if self.follows_tails and name == "inference.sums:tail":
            self._follow(frame)
        in_function = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
        return self._executed if name.startswith("engine.") and in_function else None

    def _executed(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            self.lines.add((self._name(frame.f_code).split(":")[0], frame.f_lineno))
        return self._executed

    def _follow(self, frame: FrameType) -> None:
        way: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            name = self._name(above.f_code)
            if name and above.f_code.co_name not in COMPREHENSIONS:
                way.append(name)
            if name == "selector:ModifierSelector.fit":
                break
            above = above.f_back
        if above is not None and len(way) > len(self.frames):
            self.frames = way[::-1]


def traced(package: Path, **settings: Any) -> Trace:
    """What the fits execute with these settings of the selector."""
    from golden_cases import fit
    from modifind.statistics import WCMMD

    trace = Trace(package)
    fits = [(None, way) for way in WAYS] + [(WCMMD(), way) for way in WAYS_OF_WCMMD]
    for statistic, way in fits:
        with warnings.catch_warnings(), trace.recording(tails=statistic is None):
            warnings.simplefilter("ignore")
            try:
                fit(statistic, way=way, explain=True, **settings)
            except ValueError as error:
                print(f"{type(statistic).__name__} {way} {settings} is refused: {error}", file=sys.stderr)
    return trace


def import_all(folder: Path, name: str) -> None:
    """Import every module of a package, so that tracing sees no imports; those that need what is missing stay out."""
    for module in pkgutil.walk_packages([str(folder)], f"{name}."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            print(f"{module.name} is left out: {error}", file=sys.stderr)


def code_lines(text: str) -> int:
    """Lines that are neither blank nor all comment nor part of a docstring."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            said = node.body[0]
            left_out |= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    numbered = enumerate(text.split("\n"), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and i not in left_out for i, line in numbered)


def measured(sources: Path, *, by_module: bool, with_frames: bool) -> list[tuple[str, str]]:
    """Rows of the table: what is measured, and the figure."""
    package = sources / "modifind"
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))}
    memory, pieces = traced(package), traced(package, max_train_rows=SAMPLE_ROWS)
    both, alone, apart = memory.lines & pieces.lines, memory.lines - pieces.lines, pieces.lines - memory.lines
    settings = sources.parent / "pyproject.toml"
    unreached = orphans(package, commands(settings) if settings.exists() else commands())
    unweighted = sum(text.count("weights is None") + text.count("weights is not None") for text in texts.values())
    rows = [
        ("engine lines that both execute", str(len(both))),
        ("engine lines in memory only", str(len(alone))),
        ("engine lines in pieces only", str(len(apart))),
        ("frames from fit to tail, in memory", str(len(memory.frames))),
        ("frames from fit to tail, in pieces", str(len(pieces.frames))),
        ("uses of .resamples", str(sum(text.count(".resamples") for text in texts.values()))),
        ("weights is None, is not None", str(unweighted)),
        ("orphan modules", " ".join([str(len(unreached)), *unreached])),
        ("code lines", str(sum(map(code_lines, texts.values())))),
        ("modules", str(len(texts))),
    ]
    if by_module:
        counts = [Counter(module for module, _ in lines) for lines in (both, alone, apart)]
        rows.append(("module", "both, memory, pieces"))
        for module in sorted(set().union(*counts)):
            rows.append((module, "".join(f"{count[module]:6}" for count in counts)))
    if with_frames:
        for name, trace in (("in memory", memory), ("in pieces", pieces)):
            rows += [(f"{name}, frame {i}", frame) for i, frame in enumerate(trace.frames, 1)]
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, default=ROOT / "src", help="folder that holds the package")
    parser.add_argument("--modules", action="store_true", help="lines module by module too")
    parser.add_argument("--frames", action="store_true", help="the deepest ways to a tail too")
    args = parser.parse_args()
    sources = args.sources.resolve()
    sys.path[:0] = [str(sources), str(ROOT / "tests")]
    import modifind

    if not Path(modifind.__file__).is_relative_to(sources):
        parser.error(f"modifind was imported from {Path(modifind.__file__).parent}, not from {sources}")
    import_all(sources / "modifind" / "engine", "modifind.engine")
    rows = measured(sources, by_module=args.modules, with_frames=args.frames)
    width = max(len(what) for what, _ in rows)
    print("\n".join(f"{what:{width}}  {figure}" for what, figure in rows))


if __name__ == "__main__":
    main()

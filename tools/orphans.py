"""Modules that no other module of the package imports: code that no user can reach.

    python tools/orphans.py            # names them, and exits with 1 if there are any

Imports inside functions count, and so do those of stubs, which name what a package imports on first use. Packages
themselves, `__main__` and the commands of pyproject.toml are where programs start.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commands(settings: Path = ROOT / "pyproject.toml") -> set[str]:
    """Modules of the commands that pyproject.toml installs."""
    scripts = tomllib.loads(settings.read_text(encoding="utf-8"))["project"].get("scripts", {})
    return {target.split(":")[0] for target in scripts.values()}


def modules(package: Path) -> dict[str, Path]:
    """Files of a package by the names of their modules, an `__init__` under that of its package."""
    named = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return named


def imported(file: Path, name: str) -> Iterator[str]:
    """Names that a module imports, those that may be attributes of a module included."""
    home = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def orphans(package: Path, entries: Iterable[str] = ()) -> list[str]:
    """Modules of a package that none of its other modules imports, entry points aside."""
    named = modules(package)
    reached = set(entries)
    for name, file in named.items():
        stub = file.with_suffix(".pyi")
        for source in (file, stub) if stub.exists() else (file,):
            reached |= set(imported(source, name)) - {name}
    starts = {name for name, file in named.items() if file.stem in ("__init__", "__main__")}
    return [name for name in named if name not in reached | starts]


if __name__ == "__main__":
    unreached = orphans(ROOT / "src" / "modifind", commands())
    for module in unreached:
        print(f"{module}: no other module imports it")
    sys.exit(bool(unreached))

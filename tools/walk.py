"""The walk of a row through the packages, drawn from their imports.

    python tools/walk.py            # writes docs/images/walk.svg

An arrow points from a package to one that it imports from; packages stand on the floors that pyproject.toml gives them.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "walk.svg"
WIDTH, HEIGHT, GAP, LEFT = 118, 30, 22, 130
ROLES = {
    "cli": "commands and what they print",
    "paper": "the paper's experiments, rerun",
    "presets": "the paper's settings",
    "report": "one HTML file",
    "charts": "displays",
    "datasets": "data to try it on",
    "selector": "the estimator",
    "baselines": "SI-EM",
    "base": "what estimators share",
    "engine": "the run: everything below, put together",
    "explain": "curves, bounds, sentences; no p-values",
    "result": "what was found, checks, files",
    "statistics": "effect likelihood, WCMMD",
    "nuisance": "scores, outcome models, conditional distributions",
    "inference": "tails, resamples, adjustment",
    "data": "tables, columns, rows, files",
}


def floors() -> list[list[str]]:
    """Packages by floor, the top one first, as the import rules have them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[name.strip().removeprefix("modifind.") for name in floor.split("|")] for floor in layers]


def arrows(names: set[str]) -> set[tuple[str, str]]:
    """Pairs of packages of which the first imports from the second."""
    graph = grimp.build_graph("modifind", cache_dir=None)
    found = set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            pair = tuple(name.split(".")[1] if "." in name else "" for name in (module, other))
            if pair[0] != pair[1] and set(pair) <= names:
                found.add((pair[0], pair[1]))
    return found


def draw() -> str:
    """The picture."""
    places: dict[str, tuple[int, int]] = {}
    rows = floors()
    for i, row in enumerate(rows):
        for j, name in enumerate(row):
            places[name] = (LEFT + j * (WIDTH + GAP), 12 + i * (HEIGHT + GAP))
    across = max(len(row) for row in rows) * (WIDTH + GAP)
    width, height = LEFT + across + 330, 12 + len(rows) * (HEIGHT + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z" fill="#33507a"/></marker>',
    ]
    for upper, lower in sorted(arrows(set(places))):
        (x1, y1), (x2, y2) = places[upper], places[lower]
        floors_down = (y2 - y1) // (HEIGHT + GAP)
        if x1 == x2 and floors_down > 1:  # around the left of what lies between
            bulge = x1 - 10 * floors_down
            curve = f"M{x1} {y1 + HEIGHT / 2:g} C{bulge} {y1 + HEIGHT:g} {bulge} {y2:g} {x2} {y2 + HEIGHT / 2:g}"
        else:
            top, bottom, bend = x1 + WIDTH // 2, x2 + WIDTH // 2, (y2 - y1 - HEIGHT) / 2
            low = y1 + HEIGHT
            curve = f"M{top} {low} C{top} {low + bend:g} {bottom} {y2 - bend:g} {bottom} {y2}"
        faint = 1.0 if floors_down == 1 else 0.4
        lines.append(
            f'<path d="{curve}" fill="none" stroke="#33507a" stroke-opacity="{faint}" marker-end="url(#tip)"/>'
        )
    for name, (x, y) in places.items():
        lines.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#eef3fa" stroke="#33507a"/>'
        )
        lines.append(f'<text x="{x + WIDTH / 2:g}" y="{y + 20}" text-anchor="middle">{name}</text>')
    for i, row in enumerate(rows):
        said = "; ".join(ROLES[name] for name in row)
        lines.append(
            f'<text x="{LEFT + across}" y="{12 + i * (HEIGHT + GAP) + 20}" fill="#444444">{escape(said)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))

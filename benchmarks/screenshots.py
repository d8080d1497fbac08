"""Screenshots of a report for the README: `make screenshots`, or

python benchmarks/screenshots.py demo-report/report.html docs/images
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from modifind.result.files import write_bytes

SHOTS = {"report-wide": (1400, 1150.0), "report-narrow": (390, 925.0)}  # width, and how much of a panel
GAP = 30


def screenshot(report: Path, folder: Path) -> list[Path]:
    """Write a wide and a narrow picture of a report: the answer, and the panel of a number that is pointed at."""
    chromium = os.environ.get("MODIFIND_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, most) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
            page.goto(report.resolve().as_uri())
            page.evaluate("document.querySelector('.bar').style.position = 'static'")
            answer = _clipped(page, 0.0, _box(page, "#answer", "y") + _box(page, "#answer", "height"), width)
            panel, charts = "details.panel:has(path.average)", "details.panel:has(path.average) .charts"
            page.locator(panel).first.evaluate("panel => { panel.open = true; }")  # folded where the page is narrow
            page.locator(f"{panel} .plot").first.hover()
            top = _box(page, panel, "y")
            height = _box(page, charts, "y") + _box(page, charts, "height") - top
            picture = _stacked(answer, _clipped(page, top, min(height, most), width))
            buffer = io.BytesIO()
            few = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
            few.save(buffer, format="png", optimize=True)
            written.append(folder / f"{name}.png")
            write_bytes(written[-1], buffer.getvalue())
            page.close()
        browser.close()
    return written


def _box(page: Any, selector: str, side: str) -> float:
    """Where the first such element is on the whole page."""
    box = page.locator(selector).first.bounding_box()
    if box is None:
        raise ValueError(f"the report has no {selector}")
    return float(box[side] + (page.evaluate("scrollY") if side == "y" else 0.0))


def _clipped(page: Any, top: float, height: float, width: int) -> Image.Image:
    clip = {"x": 0.0, "y": top, "width": float(width), "height": height}
    return Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")


def _stacked(above: Image.Image, below: Image.Image) -> Image.Image:
    whole = Image.new("RGB", (above.width, above.height + GAP + below.height), "white")
    whole.paste(above, (0, 0))
    whole.paste(below, (0, above.height + GAP))
    return whole


if __name__ == "__main__":
    for path in screenshot(Path(sys.argv[1]), Path(sys.argv[2])):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")

"""Screenshots of a report for the README: `make screenshots`, or

python benchmarks/screenshots.py demo-report/report.html docs/images
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from modifind.result import write_bytes

COLOURS = 128
SHOTS = {"report-wide": (1400, 1500, 1.0), "report-narrow": (390, 1500, 1.0)}  # width, height, pixels per point


def screenshot(report: Path, folder: Path) -> list[Path]:
    """Write a wide and a narrow picture of the top of a report and of its first panel, in few colours."""
    chromium = os.environ.get("MODIFIND_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, height, density) in SHOTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height // 2},
                device_scale_factor=density,
                reduced_motion="reduce",
                color_scheme="light",
            )
            page.goto(report.resolve().as_uri())
            top = Image.open(io.BytesIO(page.screenshot()))
            page.evaluate("document.querySelector('.bar').style.position = 'static'")
            panel = page.locator("article.panel").first
            panel.scroll_into_view_if_needed()
            box = panel.bounding_box()
            if box is None:
                raise ValueError(f"{report} has no panel to show")
            clip = {"x": 0.0, "y": box["y"] + page.evaluate("scrollY"), "width": float(width), "height": height / 2}
            below = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))
            whole = Image.new("RGB", (top.width, top.height + below.height), "white")
            whole.paste(top, (0, 0))
            whole.paste(below, (0, top.height))
            buffer = io.BytesIO()
            whole.quantize(COLOURS).save(buffer, format="png", optimize=True)
            written.append(folder / f"{name}.png")
            write_bytes(written[-1], buffer.getvalue())
            page.close()
        browser.close()
    return written


if __name__ == "__main__":
    for path in screenshot(Path(sys.argv[1]), Path(sys.argv[2])):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")

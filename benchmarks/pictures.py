"""The figures of docs/plots.md: every display of the demo's trial.

    python benchmarks/pictures.py --out docs/images

fits the trial that travels with the package and writes one PNG for each display.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from PIL import Image

from modifind import ModifierSelector, SelectionResult
from modifind.datasets import load_trial


def pictures(result: SelectionResult) -> dict[str, Any]:
    """Displays by the name of their file."""
    plot = result.plot
    return {
        "forest": plot.forest(),
        "importance": plot.importance(),
        "changes": plot.changes(),
        "curve": plot.curve("age"),
        "curve-categories": plot.curve("smoker"),
        "d2": plot.d2("age"),
        "quantiles": plot.quantiles("age"),
        "quantiles-categories": plot.quantiles("smoker"),
        "densities": plot.densities("smoker"),
        "bounds": plot.bounds("smoker"),
        "overlap": plot.overlap(),
        "calibration": plot.calibration(),
        "calibration-histograms": plot.calibration(["age", "bmi", "cholesterol"]),
    }


def write_small(figure: Any, path: Path) -> None:
    """A PNG of 128 colours, a third of the size of one of millions."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    Image.open(buffer).convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    trial = load_trial()
    selector = ModifierSelector(random_state=0, n_jobs=options.jobs)
    result = selector.fit(trial.X, trial.y, treatment=trial.treatment).result_
    for name, display in pictures(result).items():
        path = options.out / f"plot-{name}.png"
        write_small(display.figure_, path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

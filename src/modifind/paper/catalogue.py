"""The paper's experiments by name, and how one is rerun."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from modifind.paper import paper
from modifind.paper.runs import Archive, Record
from modifind.paper.studies import FIRST_SEED, SIZES, NhanesStudy, Order, RatesStudy, Study, TimeStudy
from modifind.presets import PROPENSITY_UNITS, SAMPLER_UNITS
from modifind.result.writing import make_folder, write_bytes, write_text

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        RatesStudy(
            "fig-synthetic",
            "True and false positive rates on synthetic data",
            ("default", "wcmmd", "preset", "si-em", "naive"),
            quick={"": 2, "wcmmd": 1, "preset": 1},
            sizes=SIZES,
            quick_sizes=(500, 1000),
            published=paper.SYNTHETIC,
        ),
        TimeStudy(
            "fig-runtime",
            "Total run time on LinMean",
            ("default", "preset", "preset-sums", "si-em", "exact"),
            full={"": 3},
            quick={"": 1},
        ),
        NhanesStudy(
            "table-nhanes",
            "Modifiers of the effect of a BMI above 25 on C-reactive protein, NHANES 2007-2010",
            ("preset", "default", "si-em", "wcmmd", "preset-hajek"),
            full={"wcmmd": 5, "preset-hajek": 10},
            quick={"": 1, "wcmmd": 0, "preset-hajek": 0},
            permuted_too=("preset", "preset-hajek"),
        ),
        RatesStudy(
            "table-counterexamples",
            "Data whose modifiers move only what no data show",
            ("default", "preset", "si-em"),
            quick={"": 1},
            kinds=("LinCovar", "NonlinCovar"),
            sizes=(2000,),
            published=paper.COUNTEREXAMPLES,
        ),
        RatesStudy(
            "table-propensity-neurons",
            "The paper's preset by the number of neurons of its propensity network",
            ("preset", "preset-short"),
            quick={"preset": 1, "preset-short": 0},
            option="propensity_units",
            values=(25, 50, 100, 200),
            usual=PROPENSITY_UNITS,
            published=paper.PROPENSITY_NEURONS,
        ),
        RatesStudy(
            "table-cvae-neurons",
            "The paper's preset by the number of neurons of its autoencoder",
            ("preset", "preset-short"),
            quick={"preset": 1, "preset-short": 0},
            option="sampler_units",
            values=(16, 64, 128, 256),
            usual=SAMPLER_UNITS,
            published=paper.CVAE_NEURONS,
        ),
    )
}
NAMES = (*STUDIES, "all")


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    order: Order | None = None,
    *,
    jobs: int = 1,
    device: str = "cpu",
    data_home: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> list[Path]:
    """Rerun a table or figure of the paper.

    Runs that lie in ``out/runs`` already are not repeated, so the same call continues what was interrupted.

    Parameters
    ----------
    name : str
        One of `NAMES`; "all" is every study in turn.
    out : path
        Folder for NAME.csv, NAME.png, NAME.md and the runs.
    order : Order, optional
        How many runs, of which methods, from which seed.
    jobs : int, default=1
        Runs at a time. Timed runs are made one by one.
    device : {"cpu", "cuda"}, default="cpu"
        Where autoencoders are trained.
    data_home : path, optional
        Folder of the NHANES tables; see `modifind.datasets.fetch_nhanes_crp`.
    progress : bool, default=False
        Show a bar with the time left.

    Returns
    -------
    list of Path
        The files written.
    """
    if name not in NAMES:
        raise ValueError(f"no study {name!r}; studies are {', '.join(NAMES)}")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', not {device!r}")
    order = Order() if order is None else order
    strange = [] if name == "all" else [m for m in order.methods or () if m not in STUDIES[name].methods]
    if strange:
        raise ValueError(f"{name} has no method {', '.join(strange)}; it has {', '.join(STUDIES[name].methods)}")
    studies = list(STUDIES.values()) if name == "all" else [STUDIES[name]]
    if not any(study.runs(order) for study in studies):
        quick = " with quick" if order.quick else ""
        raise ValueError(f"{name} has no runs of {', '.join(order.methods or ())}{quick}; ask for more runs or methods")
    folder = Path(out)
    make_folder(folder)
    archive = Archive(folder / "runs", device, None if data_home is None else os.fspath(data_home))
    written: list[Path] = []
    for study in studies:
        runs = study.runs(order)
        if not runs:  # none of the methods asked for belongs here
            continue
        try:
            missing = archive.prepare(runs)
        except (OSError, ValueError) as error:
            if name != "all":
                raise
            # The other studies need no download, so they are not held up by one that does.
            note = folder / f"{study.name}.md"
            write_text(note, f"# {study.title}\n\nNot run: {error}\n")
            warnings.warn(f"{study.name} was not run: {error}", UserWarning, stacklevel=2)
            written.append(note)
            continue
        records = archive.complete(runs, jobs=jobs, title=study.name, progress=progress, missing=missing)
        written += _publish(study, order, records, folder)
    return written


def _publish(study: Study, order: Order, records: list[Record], folder: Path) -> list[Path]:
    """Table, figure and text of the runs."""
    table = study.table(records)
    picture = io.BytesIO()
    study.figure(table).savefig(picture, format="png", dpi=150)
    paths = [folder / f"{study.name}.{suffix}" for suffix in ("csv", "png", "md")]
    write_text(paths[0], table.to_csv(index=False, float_format="%.6g"))
    write_bytes(paths[1], picture.getvalue())
    command = f"Seeds {order.seed} and up. `{_command(study, order)}`"
    elsewhere = sum(record.device != "cpu" for record in records)
    if elsewhere:
        command += f"\n\nIn {elsewhere} of {len(records)} runs autoencoders were trained on a GPU."
    picture_line = f"![{study.title}]({study.name}.png)"
    write_text(paths[2], f"# {study.title}\n\n{command}\n\n{study.text(table)}\n\n{picture_line}\n")
    return paths


def _command(study: Study, order: Order) -> str:
    """The command line that asks for the same."""
    words = ["modifind reproduce", study.name]
    if order.quick:
        words.append("--quick")
    if isinstance(order.runs, Mapping):
        words.append("--runs " + ",".join(f"{method}={n}" if method else f"{n}" for method, n in order.runs.items()))
    elif order.runs is not None:
        words.append(f"--runs {order.runs}")
    if order.methods is not None:
        words.append("--methods " + ",".join(study.chosen(order)))
    if order.seed != FIRST_SEED:
        words.append(f"--seed {order.seed}")
    return " ".join(words)

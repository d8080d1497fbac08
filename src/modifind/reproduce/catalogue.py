"""The paper's experiments by name, and how one is rerun."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

from modifind.presets import PROPENSITY_UNITS, SAMPLER_UNITS
from modifind.reproduce import paper
from modifind.reproduce.runs import Archive
from modifind.reproduce.studies import SIZES, NhanesStudy, Order, RatesStudy, Study, TimeStudy
from modifind.result import write_bytes, write_text

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
            full={"default": 10, "si-em": 10, "wcmmd": 5, "preset-hajek": 10},
            quick={"": 1, "wcmmd": 0, "preset-hajek": 0},
            scales={
                "CRP": ("preset", "default", "si-em", "wcmmd", "preset-hajek"),
                "log CRP": ("preset", "default", "si-em", "wcmmd", "preset-hajek"),
                "permuted CRP": ("preset", "preset-hajek"),
            },
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
            "The paper's preset by the number of neurons of its propensity network, n = 1000",
            ("preset",),
            quick={"": 1},
            option="propensity_units",
            values=(25, 50, 100, 200),
            usual=PROPENSITY_UNITS,
            published=paper.PROPENSITY_NEURONS,
        ),
        RatesStudy(
            "table-cvae-neurons",
            "The paper's preset by the number of neurons of its autoencoder, n = 1000",
            ("preset",),
            quick={"": 1},
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
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    archive = Archive(folder / "runs", device, None if data_home is None else os.fspath(data_home))
    written: list[Path] = []
    for study in STUDIES.values() if name == "all" else [STUDIES[name]]:
        try:
            written += _publish(study, order, archive, jobs, progress)
        except OSError as error:
            if name != "all" or not isinstance(study, NhanesStudy):
                raise
            # The other studies need no download, so they are not held up by one that does.
            note = folder / f"{study.name}.md"
            write_text(note, f"# {study.title}\n\nNot run: {error}\n")
            warnings.warn(f"{study.name} was not run: {error}", UserWarning, stacklevel=2)
            written.append(note)
    return written


def _publish(study: Study, order: Order, archive: Archive, jobs: int, progress: bool) -> list[Path]:
    runs = study.runs(order)
    if not runs:  # none of the methods asked for belongs here
        return []
    records = archive.complete(runs, jobs=jobs, title=study.name, progress=progress)
    table = study.table(records)
    picture = io.BytesIO()
    study.figure(table).savefig(picture, format="png", dpi=150)
    paths = [archive.folder.parent / f"{study.name}.{suffix}" for suffix in ("csv", "png", "md")]
    write_text(paths[0], table.to_csv(index=False))
    write_bytes(paths[1], picture.getvalue())
    seeds = f"Seeds {order.seed} and up. `modifind reproduce {study.name}{' --quick' if order.quick else ''}`"
    write_text(paths[2], f"# {study.title}\n\n{seeds}\n\n{study.text(table)}\n\n![{study.title}]({study.name}.png)\n")
    return paths

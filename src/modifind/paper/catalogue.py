"""The paper's experiments by name, its reported figures, and how to rerun them.

Reported are figures of Chikahara, Yamada and Kashima (UAI 2022). Rates are TPR, its standard deviation, FPR and its
standard deviation over 50 runs.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from modifind._system import make_folder
from modifind._warned import warn
from modifind.paper.runs import BATCHES, FIRST_SEED, Archive, Order, Record, StudyRun
from modifind.paper.studies import SIZES, TIMED_RUNS, NhanesStudy, RatesStudy, Study, TimeStudy
from modifind.presets import PROPENSITY_UNITS, SAMPLER_UNITS
from modifind.result.files import write_bytes, write_text

Rates = tuple[float, float, float, float]


def _by_neurons(neurons: tuple[int, ...], **kinds: list[Rates]) -> dict[tuple[str, int], Rates]:
    return {(kind, n): rates for kind, row in kinds.items() for n, rates in zip(neurons, row, strict=True)}


# Tables 5 and 6, in the appendix: n = 1000, by the number of neurons.
PROPENSITY_NEURONS = _by_neurons(
    (25, 50, 100, 200),
    LinMean=[(0.80, 0.21, 0.06, 0.06), (0.79, 0.22, 0.06, 0.07), (0.84, 0.14, 0.08, 0.06), (0.84, 0.16, 0.08, 0.06)],
    NonlinMean=[(0.95, 0.10, 0.04, 0.04), (0.94, 0.12, 0.04, 0.04), (0.98, 0.06, 0.03, 0.03), (0.97, 0.08, 0.05, 0.04)],
    LinVar=[(0.71, 0.19, 0.08, 0.07), (0.73, 0.19, 0.07, 0.08), (0.77, 0.16, 0.10, 0.07), (0.76, 0.18, 0.09, 0.07)],
    NonlinVar=[(0.64, 0.25, 0.04, 0.04), (0.62, 0.25, 0.04, 0.04), (0.63, 0.26, 0.04, 0.04), (0.64, 0.25, 0.04, 0.04)],
)
CVAE_NEURONS = _by_neurons(
    (16, 64, 128, 256),
    LinMean=[(0.82, 0.18, 0.08, 0.06), (0.82, 0.17, 0.07, 0.06), (0.79, 0.22, 0.06, 0.07), (0.83, 0.16, 0.10, 0.07)],
    NonlinMean=[(0.96, 0.09, 0.04, 0.04), (0.98, 0.06, 0.03, 0.03), (0.94, 0.12, 0.04, 0.04), (0.94, 0.05, 0.05, 0.04)],
    LinVar=[(0.68, 0.19, 0.07, 0.05), (0.66, 0.17, 0.06, 0.05), (0.73, 0.19, 0.07, 0.08), (0.70, 0.16, 0.08, 0.07)],
    NonlinVar=[(0.58, 0.25, 0.02, 0.03), (0.56, 0.25, 0.03, 0.03), (0.62, 0.25, 0.04, 0.04), (0.60, 0.20, 0.04, 0.05)],
)
# Its figure of synthetic data is not tabulated; n = 1000 is the column of 50 neurons above.
SYNTHETIC: dict[tuple[str, int], Rates] = {
    (kind, 1000): rates for (kind, neurons), rates in PROPENSITY_NEURONS.items() if neurons == 50
}
# Table 4, in the appendix: n = 2000.
COUNTEREXAMPLES: dict[tuple[str, int], Rates] = {
    ("LinCovar", 2000): (0.02, 0.06, 0.02, 0.02),
    ("NonlinCovar", 2000): (0.04, 0.08, 0.02, 0.02),
}
# Run times in the text, n = 2000, LinMean, in seconds on its authors' machine.
SECONDS = {"preset-sums": 10_360.0, "si-em": 27.0}
# Table 2: mean and standard deviation of the adjusted p-value over 50 runs.
NHANES_P = {"age": (0.0075, 0.0305), "female": (0.0046, 0.0269), "cigarettes_month": (0.0, 0.0)}
NHANES_SIEM = ("age", "female")


def _neurons_study(
    name: str, network: str, option: str, usual: int, published: Mapping[tuple[str, int], Rates]
) -> Study:
    values = tuple(dict.fromkeys(neurons for _, neurons in published))
    title = f"The paper's preset by the number of neurons of its {network}"
    study = RatesStudy(name, title, ("preset",), quick={"preset": 1}, published=published)
    return replace(study, option=option, values=values, usual=usual)


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
            published=SYNTHETIC,
        ),
        TimeStudy(
            "fig-runtime",
            "Total run time on LinMean",
            ("default", "preset", "preset-sums", "si-em", "exact"),
            full={"": TIMED_RUNS},
            quick={"": 1},
            published=SECONDS,
        ),
        NhanesStudy(
            "table-nhanes",
            "Modifiers of the effect of a BMI above 25 on C-reactive protein, NHANES 2007-2010",
            ("preset", "default", "si-em", "wcmmd"),
            full={"wcmmd": 5},
            quick={"": 1, "wcmmd": 0},
            permuted_too=("preset",),
            published=NHANES_P,
            published_siem=NHANES_SIEM,
        ),
        RatesStudy(
            "table-counterexamples",
            "Data whose modifiers move only what no data show",
            ("default", "preset", "si-em"),
            quick={"": 1},
            kinds=("LinCovar", "NonlinCovar"),
            sizes=(2000,),
            published=COUNTEREXAMPLES,
        ),
        _neurons_study(
            "table-propensity-neurons",
            "propensity network",
            "propensity_units",
            PROPENSITY_UNITS,
            PROPENSITY_NEURONS,
        ),
        _neurons_study("table-cvae-neurons", "autoencoder", "sampler_units", SAMPLER_UNITS, CVAE_NEURONS),
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

    Runs already stored in ``out/runs`` are not repeated, so that the same call continues an interrupted one. Quick
    versions are stored in ``out/quick`` and share no files with full ones.

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
    order = order or Order()
    planned = _planned(name, order)
    folder = Path(out) / "quick" if order.quick else Path(out)
    make_folder(folder)
    archive = Archive(folder / "runs", device, None if data_home is None else os.fspath(data_home))
    written: list[Path] = []
    for study, runs in planned:
        try:
            missing = archive.prepare(runs)
        except (OSError, ValueError) as error:
            if name != "all":
                raise
            # The other studies need no download, so they are not held up by one that does.
            written.append(folder / f"{study.name}.md")
            write_text(written[-1], f"# {study.title}\n\nNot run: {error}\n")
            warn(f"{study.name} was not run: {error}")
            continue
        records = archive.complete(runs, jobs=jobs, title=study.name, progress=progress, missing=missing)
        written += _publish(study, order, records, folder)
    return written


def _planned(name: str, order: Order) -> list[tuple[Study, list[StudyRun]]]:
    """Requested studies that use any of the methods, with their runs."""
    studies, methods = list(STUDIES.values()) if name == "all" else [STUDIES[name]], order.methods or ()
    strange = [method for method in methods if name != "all" and method not in studies[0].methods]
    if strange:
        raise ValueError(f"{name} has no method {', '.join(strange)}; it has {', '.join(studies[0].methods)}")
    planned = [(study, runs) for study in studies if (runs := study.runs(order))]
    if not planned:
        quick = " with quick" * order.quick
        raise ValueError(f"{name} has no runs of {', '.join(methods)}{quick}; ask for more runs or methods")
    return planned


def _publish(study: Study, order: Order, records: list[Record], folder: Path) -> list[Path]:
    """Write table, figure and text of a study's runs."""
    table = study.table(records)
    picture = io.BytesIO()
    study.figure(table).savefig(picture, format="png", dpi=150)
    paths = [folder / f"{study.name}.{suffix}" for suffix in ("csv", "png", "md")]
    write_text(paths[0], table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    write_bytes(paths[1], picture.getvalue())
    command = f"Seeds {order.seed} and up. `{_command(study, order)}`"
    for device, how in {"cuda": "had autoencoders trained on a GPU", BATCHES: "were made in batches on a GPU"}.items():
        elsewhere = sum(record.device == device for record in records)
        if elsewhere:
            command += f"\n\n{elsewhere} of {len(records)} runs {how}."
    picture_line = f"![{study.title}]({study.name}.png)"
    write_text(paths[2], f"# {study.title}\n\n{command}\n\n{study.text(table)}\n\n{picture_line}\n")
    return paths


def _command(study: Study, order: Order) -> str:
    """Command line equivalent to the request."""
    runs = ",".join(f"{method}={n}" if method else f"{n}" for method, n in order.by_method.items())
    words = {
        f"modifind reproduce {study.name}": True,
        "--quick": order.quick,
        f"--runs {runs}": runs,
        f"--methods {','.join(study.chosen(order))}": order.methods is not None,
        f"--seed {order.seed}": order.seed != FIRST_SEED,
    }
    return " ".join(word for word, said in words.items() if said)

"""Options of the command line, each declared once: dataclasses of what belongs together, which commands take whole."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import BadParameter, Option

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

DEFAULT_STATISTIC = "effect_likelihood"
OBSERVED = "observed"  # the share of a trial where none is given
FIGURE_FORMATS = ("svg", "png", "pdf")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer, which takes options one by one, of one whose parameters may be dataclasses of options."""
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    classes: dict[str, Callable[..., Any]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        groups[name], kind = {name: parameter}, parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name], classes[name] = dict(inspect.signature(kind, eval_str=True).parameters), kind
            for option in groups[name].values():
                about = option.annotation.__metadata__[0]
                about.rich_help_panel = getattr(kind, "title", None)
                if option.annotation.__origin__ is int:
                    about.metavar = "N"  # a range would take the room of the help

    @wraps(command)
    def taking(**values: Any) -> None:
        given = {name: {option: values[option] for option in options} for name, options in groups.items()}
        command(**{name: classes[name](**own) if name in classes else own[name] for name, own in given.items()})

    options = [option for own in groups.values() for option in own.values()]
    signature = inspect.Signature([option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options])
    taking.__signature__ = signature  # type: ignore[attr-defined]
    return taking


def _file(text: str) -> Path:
    """A file to write; a name that ends in a slash is one of a folder."""
    if text.endswith(("/", os.sep)):
        raise BadParameter(f"{text} is a folder; name a file")
    return Path(text)


def file_option(name: str, about: str) -> Any:
    """An option that names a file to write."""
    return Option(name, help=f"{about} Missing folders are created.", parser=_file, metavar="FILE")


Jobs = Annotated[int, Option(help="Number of processes.", min=1)]
Seed = Annotated[int, Option(help="Random seed.", min=0)]


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are."""

    title: ClassVar[str] = "Columns"
    treatment: Annotated[str, Option(help="Column with two values, or more with --reference or --arms.")]
    outcome: Annotated[str, Option(help="Numeric column, or one of 0 and 1.")]
    features: Annotated[
        list[str] | None, Option(help="Columns to test, comma-separated or one per option; default all.")
    ] = None
    adjust_for: Annotated[
        list[str] | None,
        Option(
            help="Columns to adjust for without testing them, comma-separated or one per option; with --features also "
            "all others."
        ),
    ] = None
    exclude: Annotated[list[str] | None, Option(help="Columns to leave out, comma-separated or one per option.")] = None
    discrete: Annotated[list[str] | None, Option(help="Numeric columns that are categories, comma-separated.")] = None
    feature_group: Annotated[
        list[str] | None, Option(help="Columns tested as one, such as 'blood pressure=sbp,dbp'; may be repeated.")
    ] = None
    treated: Annotated[str | None, Option(help="Label of the treated arm; needed unless it is obvious.")] = None
    reference: Annotated[
        str | None, Option(help="Label that all others are compared with; needed with more than two.")
    ] = None
    arms: Annotated[
        list[str] | None, Option(help="Two labels to compare, comma-separated or one per option; others are left out.")
    ] = None
    propensity: Annotated[
        str, Option(help="auto, mlp, a number, shares such as 'a=0.5,b=0.25,c=0.25', or a column with known scores.")
    ] = "auto"
    randomised: Annotated[
        str | None,
        Option(
            metavar="[SHARE]",
            help="The treatment was randomised, by default with the observed share; or shares 'a=0.5,b=0.25,c=0.25'.",
        ),
    ] = None
    observational: Annotated[bool, Option("--observational", help="The treatment was not randomised.")] = False
    strata: Annotated[str | None, Option(help="Column with the strata that a trial was randomised in.")] = None
    weight: Annotated[str | None, Option(help="Column with sample weights.")] = None
    clusters: Annotated[str | None, Option(help="Column that says which rows belong together, such as a clinic.")] = (
        None
    )


@dataclass(frozen=True)
class Method:
    """How effects are looked for, by whatever command."""

    title: ClassVar[str] = "Method"
    learner: Annotated[str, Option(help="Of effect_likelihood: auto, linear, splines, boosting or neural.")] = "auto"
    outcome_kind: Annotated[str, Option(help="auto, numeric, binary, count, ordinal or amount (often zero).")] = "auto"
    effect_scale: Annotated[str, Option(help="How arms are compared: difference, ratio or odds_ratio.")] = "difference"
    log_outcome: Annotated[bool, Option("--log-outcome", help="Analyse the logarithm of the outcome.")] = False
    sampler: Annotated[str, Option(help="auto, gaussian, splines, boosting, cvae or marginal.")] = "auto"
    alpha: Annotated[float, Option(help="Level of the adjusted p-values.")] = 0.05
    adjust: Annotated[str, Option(help="bh, by, holm, bonferroni or none.")] = "bh"
    missing: Annotated[
        str, Option(help="Missing values: error, category (a separate level) or drop (leave out the rows).")
    ] = "error"
    missing_outcome: Annotated[
        str, Option(help="Rows without an outcome: error, drop or weight (reweight the others).")
    ] = "error"
    train_rows: Annotated[
        int, Option(help="Maximum number of rows to fit models to; all rows are scored.", min=200)
    ] = 200_000


@dataclass(frozen=True)
class Select:
    """How features are tested, where they are selected."""

    title: ClassVar[str] = "Test"
    statistic: Annotated[str, Option(help="effect_likelihood or wcmmd.")] = DEFAULT_STATISTIC
    repeats: Annotated[int, Option(help="Cross-fits of effect_likelihood to average.", min=1)] = 1
    check: Annotated[int, Option(help="Resamples to check effect_likelihood's tail.", min=0)] = 0
    preset: Annotated[str, Option(help="uai2022: the paper's configuration.")] = ""
    resamples: Annotated[str, Option(help="Resamples per feature of wcmmd, or auto.")] = "auto"
    device: Annotated[str | None, Option(help="Device for networks and resamples: cpu, cuda, cuda:1, ...")] = None


@dataclass(frozen=True)
class Effects:
    """How effects are described and checked once features are selected."""

    title: ClassVar[str] = "Effects and report"
    better: Annotated[str | None, Option(help="Which outcomes are better: higher or lower.")] = None
    unit: Annotated[str | None, Option(help="Unit of the outcome, for the report and figures.")] = None
    population: Annotated[
        str, Option(help="Population of the effects: all rows, or overlap (rows with a counterpart).")
    ] = "all"
    explain: Annotated[bool, Option(help="Also estimate effects along features, with bands and bounds.")] = True
    placebo_runs: Annotated[int, Option("--placebo", help="Also run this many placebo treatments.", min=0)] = 0


@dataclass(frozen=True)
class Text:
    """How a file of text is read; the fields are those of `Dialect`."""

    title: ClassVar[str] = "Text files"
    separator: Annotated[str | None, Option(help="Field separator: one character, tab or space.")] = None
    decimal: Annotated[str | None, Option(help="Decimal mark: . or ,")] = None
    encoding: Annotated[str | None, Option(help="Character encoding, such as latin-1.")] = None
    row_names: Annotated[
        bool, Option("--row-names", help="Lines begin with a row name, as R's write.table writes them.")
    ] = False


@dataclass(frozen=True)
class Pieces:
    """Where the rows of a table are that is not read at once."""

    title: ClassVar[str] = "Large tables"
    stream: Annotated[bool, Option("--stream", help="Read the table in batches: files larger than memory.")] = False
    dask: Annotated[
        str, Option(help="Work on the Dask cluster at this address; without one, start a local cluster.")
    ] = ""


@dataclass(frozen=True)
class Run:
    """What changes no answer but by its seed."""

    title: ClassVar[str] = "Running"
    seed: Seed = 0
    jobs: Jobs = 1
    checkpoint: Annotated[str | None, Option(help="Folder to save progress in; the same command then continues.")] = (
        None
    )


@dataclass(frozen=True)
class Output:
    """What is left of a selection."""

    title: ClassVar[str] = "Output"
    out: Annotated[Path | None, file_option("--out", "Result as .json (all of it) or .csv (table).")] = None
    report: Annotated[Path | None, file_option("--report", "HTML report to write.")] = None
    figures: Annotated[Path | None, Option(help="Folder for all figures of the selected features.")] = None
    figure_format: Annotated[str, Option(help="svg, png or pdf.")] = "svg"
    dry_run: Annotated[bool, Option("--dry-run", help="Only say how the table is read and what would be run.")] = False
    strict: Annotated[
        bool, Option("--strict", help="End with exit code 3 if a check that bears on validity failed.")
    ] = False

    def check(self) -> None:
        """Refuse a format that figures cannot have, before anything is fitted."""
        if self.figure_format not in FIGURE_FORMATS:
            raise ValueError(f"--figure-format must be svg, png or pdf, not {self.figure_format!r}")

    def write_figures(self, result: SelectionResult) -> list[str]:
        """Write the figures, if they are asked for; what could not be written, and why."""
        if self.figures is None:
            return []
        try:
            result.plot.save_all(self.figures, self.figure_format)
        except (OSError, ValueError) as error:
            return [f"--figures: {error}"]
        return []


@dataclass(frozen=True)
class Study:
    """How much of a study of the paper is run."""

    title: ClassVar[str] = "Study"
    runs: Annotated[
        str,
        Option(help="Runs per method, such as 50, or 50,preset=8 for some of them; default 50, fewer in slow studies."),
    ] = ""
    quick: Annotated[bool, Option("--quick", help="A small version that takes minutes.")] = False
    methods: Annotated[
        str,
        Option(help="Only these methods, comma-separated: default, wcmmd, preset, preset-sums, naive, exact, si-em."),
    ] = ""
    seed: Annotated[int, Option(help="Seed of the first run.", min=0)] = 1000

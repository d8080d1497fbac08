"""Options of the command line, each declared once, in groups that commands share.

Description, type and default of library arguments are read from the library's docstrings; only what is special to the
command line is written here.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from functools import cache, wraps
from pathlib import Path
from pkgutil import get_data
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from typer import BadParameter, Option

import modifind

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

OBSERVED = "observed"  # the share of a trial where none is given
FIGURE_FORMATS = ("svg", "png", "pdf")
OPTIONS = {  # of arguments whose options have another name
    "sample_weight": "--weight",
    "max_train_rows": "--train-rows",
    "feature_groups": "--feature-group",
    "discrete_features": "--discrete",
    "n_resamples": "--resamples",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "check_resamples": "--check",
    "cv_repeats": "--repeats",
    "placebo_runs": "--placebo",
    "outcome_transform": "--log-outcome",
    "outcome": "--outcome-kind",
}
Names: TypeAlias = list[str] | None
Text: TypeAlias = str | None
File: TypeAlias = Path | None
OF_LIKELIHOOD = ("learner", "cv_repeats", "check_resamples")
_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool}


def option_name(argument: str) -> str:
    """The option that sets an argument of the library."""
    return OPTIONS.get(argument, "--" + argument.replace("_", "-"))


@cache
def arguments_of(name: str, method: str = "__init__") -> dict[str, tuple[Any, Any, str]]:
    """Type of the option, default and first sentence of the description, for every argument of a method.

    They are read from the source because importing the class would take seconds.
    """
    source = get_data("modifind", f"{modifind._HOME[name].replace('.', '/')}.py")  # from a zip file as well
    nodes = ast.walk(ast.parse(source or b""))
    owner = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    function = next(node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == method)
    about = _first_sentences(ast.get_docstring(owner if method == "__init__" else function) or "")
    arguments, defaults = function.args.args + function.args.kwonlyargs, function.args.defaults
    described = {}
    for node, default in zip(reversed(arguments), reversed([*defaults, *function.args.kw_defaults]), strict=False):
        value = ast.literal_eval(default) if default else None
        kind = _TYPES.get(ast.unparse(node.annotation) if node.annotation else "", str)
        described[node.arg] = (str | None if value is None else kind), value, about.get(node.arg, "")
    return described


def _first_sentences(docstring: str) -> dict[str, str]:
    r"""First sentence about every parameter in a numpydoc docstring, with the choices if it does not name them.

    Examples
    --------
    >>> _first_sentences('Parameters\n---\nadjust : {"bh", "none"}\n    Adjustment of `p`. Or not.\n')
    {'adjust': 'Adjustment of p: bh or none.'}
    """
    parameters = re.split(r"\n\n\w.*\n---", docstring.partition("Parameters\n")[2])[0]
    sentences = {}
    for name, kind, text in re.findall(r"^(\w+) : (.*)\n((?: +.*\n?)+)", parameters, re.M):
        sentence = re.split(r"(?<=\.) (?=[A-Z\"])", " ".join(text.split()))[0]
        choices = re.findall(r'"([^"]+)"', kind.partition("{")[2].partition("}")[0])
        if choices and f'"{choices[-1]}"' not in sentence:
            listed = f"{', '.join(choices)}, ..." if "..." in kind else f"{', '.join(choices[:-1])} or {choices[-1]}."
            sentence = f"{sentence.removesuffix('.')}: {listed}"
        sentences[name] = re.sub(r'[`"]', "", sentence)
    return sentences


class SettingOptions:
    """A group of options that set library arguments; a command takes them as a dict.

    Parameters
    ----------
    title : str
        Heading in the help.
    names : str
        Arguments of `ModifierSelector` and `EffectLikelihood`.
    **special : dict
        What is special to the option of an argument: arguments of typer's `Option`, and the `type` and the `default`
        where those of the library do not suit.
    """

    def __init__(self, title: str, names: str, **special: dict[str, Any]) -> None:
        self.title = title
        known = {**arguments_of("EffectLikelihood"), **arguments_of("ModifierSelector")}
        new = str, "", ""  # an option that only the command line has
        self.options = {name: _option(name, *known.get(name, new), special.get(name, {})) for name in names.split()}


def _option(argument: str, kind: Any, default: Any, about: str, special: dict[str, Any]) -> inspect.Parameter:
    look = {"help": about, **special}
    kind, default, name = look.pop("type", kind), look.pop("default", default), option_name(argument)
    # A flag that is off by default needs no second name.
    switch = f"{name}/--no-{name[2:]}" if kind is bool and default else name
    parameter = inspect.Parameter(name[2:].replace("-", "_"), inspect.Parameter.KEYWORD_ONLY)
    return parameter.replace(default=default, annotation=Annotated[kind, Option(switch, **look)])


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand groups of options in a command's parameters into single ones, as typer requires."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups = {name: _group(parameter) for name, parameter in parameters.items()}

    @wraps(command)
    def taking(**values: Any) -> None:
        given = {}
        for name, (make, options) in groups.items():
            given[name] = make(**{key: values[option.name] for key, option in options.items()})
        command(**given)

    options = [option.replace(kind=option.KEYWORD_ONLY) for _, group in groups.values() for option in group.values()]
    taking.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return taking


def _group(parameter: inspect.Parameter) -> tuple[Callable[..., Any], dict[str, inspect.Parameter]]:
    """Constructor of a parameter that is a group, and its options by constructor argument."""
    kind = parameter.annotation
    group = next((one for one in getattr(kind, "__metadata__", ()) if isinstance(one, SettingOptions)), kind)
    if not isinstance(group, SettingOptions) and not is_dataclass(group):
        return (lambda **value: value[parameter.name]), {parameter.name: parameter}
    options = group.options if isinstance(group, SettingOptions) else inspect.signature(kind, eval_str=True).parameters
    for option in options.values():
        look = option.annotation.__metadata__[0]
        look.rich_help_panel = getattr(group, "title", None)
        if option.annotation.__origin__ is int:
            look.metavar = "N"  # a range would take the room of the help
    return dict if isinstance(group, SettingOptions) else kind, dict(options)


def _file(text: str) -> Path:
    """Parse the path of a file to write; a name with a trailing slash would be a folder."""
    if text.endswith(("/", os.sep)):
        raise BadParameter(f"{text} is a folder; name a file")
    return Path(text)


def file_option(name: str, about: str) -> Any:
    """Declare an option that names a file to write."""
    return Option(name, help=f"{about} Missing folders are created.", parser=_file, metavar="FILE")


def _about(argument: str, method: str = "__init__") -> str:
    """First sentence of an argument's description in `ModifierSelector`."""
    return arguments_of("ModifierSelector", method)[argument][2]


Jobs = Annotated[int, Option(help=_about("n_jobs"), min=1)]
Seed = Annotated[int, Option(help="Random seed.", min=0)]
METHOD = SettingOptions(
    "Method",
    "learner outcome effect_scale outcome_transform sampler alpha adjust missing missing_outcome max_train_rows",
    learner={"help": "Of effect_likelihood: auto, linear, splines, boosting or neural."},
    outcome_transform={"type": bool, "default": False, "help": "Analyse the logarithm of the outcome."},
    max_train_rows={"min": 200, "help": "Maximum number of rows to fit models to; all rows are scored."},
)
TEST = SettingOptions(
    "Test",
    "statistic cv_repeats check_resamples preset n_resamples device",
    cv_repeats={"min": 1},
    check_resamples={"min": 0, "help": "Resamples to check effect_likelihood's tail."},
    preset={"help": "uai2022: the paper's configuration."},
)
EFFECTS = SettingOptions("Effects and report", "better unit population explain placebo_runs", placebo_runs={"min": 0})


@dataclass(frozen=True)
class Columns:
    """Roles of the columns of a table."""

    title: ClassVar[str] = "Columns"
    treatment: Annotated[str, Option(help="Column with two values, or more with --reference or --arms.")]
    outcome: Annotated[str, Option(help="Numeric column, or one of 0 and 1.")]
    features: Annotated[Names, Option(help="Columns to test, comma-separated or one per option; default all.")] = None
    adjust_for: Annotated[
        Names,
        Option(
            help="Columns to adjust for without testing them, comma-separated or one per option; with --features also "
            "all others."
        ),
    ] = None
    exclude: Annotated[Names, Option(help="Columns to leave out, comma-separated or one per option.")] = None
    discrete: Annotated[Names, Option(help="Numeric columns that are categories, comma-separated.")] = None
    feature_group: Annotated[
        Names, Option(help="Columns tested as one, such as 'blood pressure=sbp,dbp'; may be repeated.")
    ] = None
    treated: Annotated[Text, Option(help=_about("treated", "fit"))] = None
    reference: Annotated[Text, Option(help=_about("reference", "fit"))] = None
    arms: Annotated[
        Names, Option(help="Two labels to compare, comma-separated or one per option; others are left out.")
    ] = None
    propensity: Annotated[
        str, Option(help="auto, mlp, a number, shares such as 'a=0.5,b=0.25,c=0.25', or a column with known scores.")
    ] = "auto"
    randomised: Annotated[
        Text,
        Option(
            metavar="[SHARE]",
            help="The treatment was randomised, by default with the observed share; or shares 'a=0.5,b=0.25,c=0.25'.",
        ),
    ] = None
    observational: Annotated[bool, Option("--observational", help="The treatment was not randomised.")] = False
    strata: Annotated[Text, Option(help="Column with the strata that a trial was randomised in.")] = None
    weight: Annotated[Text, Option(help="Column with sample weights.")] = None
    clusters: Annotated[Text, Option(help="Column that says which rows belong together, such as a clinic.")] = None


@dataclass(frozen=True)
class Roles:
    """Resolved roles of the columns of one table.

    `features` are the columns of X, `adjusted` those of them that are not tested, `scores` the known propensity scores;
    the next three are arguments of `fit`; `treated`, `reference` and `arms` are treatment labels; `named` are the
    columns named by `--features` and `--adjust-for`.
    """

    features: list[str]
    outcome: str
    treatment: str
    adjusted: list[str]
    scores: str | None = None
    strata: str | None = None
    weight: str | None = None
    clusters: str | None = None
    treated: str | None = None
    reference: str | None = None
    arms: tuple[str, ...] | None = None
    named: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `fit` besides the table."""
        from modifind.data.roles import ValidatedColumns

        tested = (name for name in self.features if name not in self.adjusted)
        columns = {
            "features": ValidatedColumns(tested, self.named),
            "adjust_for": ValidatedColumns(self.adjusted, self.named),
        }
        rows = {"sample_weight": self.weight, "clusters": self.clusters, "strata": self.strata}
        labels = {"treated": self.treated, "reference": self.reference, "arms": self.arms}
        return {"outcome": self.outcome, "treatment": self.treatment, **columns, **rows, **labels}


@dataclass(frozen=True)
class TextFormat:
    """Options for reading text files; the fields are those of `Dialect`."""

    title: ClassVar[str] = "Text files"
    separator: Annotated[Text, Option(help="Field separator: one character, tab or space.")] = None
    decimal: Annotated[Text, Option(help="Decimal mark: . or ,")] = None
    encoding: Annotated[Text, Option(help="Character encoding, such as latin-1.")] = None
    row_names: Annotated[
        bool, Option("--row-names", help="Lines begin with a row name, as R's write.table writes them.")
    ] = False


@dataclass(frozen=True)
class LargeTable:
    """Options for tables that are too large for memory."""

    title: ClassVar[str] = "Large tables"
    stream: Annotated[bool, Option("--stream", help="Read the table in batches: files larger than memory.")] = False
    dask: Annotated[
        str, Option(help="Work on the Dask cluster at this address; without one, start a local cluster.")
    ] = ""


@dataclass(frozen=True)
class Execution:
    """Options for how a run is executed: seed, processes and checkpoint."""

    title: ClassVar[str] = "Running"
    seed: Seed = 0
    jobs: Jobs = 1
    checkpoint: Annotated[Text, Option(help="Folder to save progress in; the same command then continues.")] = None


@dataclass(frozen=True)
class Output:
    """Options for the files that a selection writes, and its exit code."""

    title: ClassVar[str] = "Output"
    out: Annotated[File, file_option("--out", "Result as .json (all of it) or .csv (table).")] = None
    report: Annotated[File, file_option("--report", "HTML report to write.")] = None
    figures: Annotated[File, Option(help="Folder for all figures of the selected features.")] = None
    figure_format: Annotated[str, Option(help="svg, png or pdf.")] = "svg"
    dry_run: Annotated[bool, Option("--dry-run", help="Only say how the table is read and what would be run.")] = False
    strict: Annotated[
        bool, Option("--strict", help="End with exit code 3 if a check that bears on validity failed.")
    ] = False

    def check(self) -> None:
        """Refuse an unknown figure format before fitting."""
        if self.figure_format not in FIGURE_FORMATS:
            raise ValueError(f"--figure-format must be svg, png or pdf, not {self.figure_format!r}")

    def write_figures(self, result: SelectionResult) -> list[str]:
        """Write the requested figures; return which could not be written, and why."""
        if self.figures is None:
            return []
        try:
            result.plot.save_all(self.figures, self.figure_format)
        except (OSError, ValueError) as error:
            return [f"--figures: {error}"]
        return []


@dataclass(frozen=True)
class StudySize:
    """Options for how much of a study of the paper is run."""

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

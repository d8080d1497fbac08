"""Command line: ``modifind demo | simulate | select | placebo | report | reproduce``."""

from __future__ import annotations

import glob
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from modifind.cli.outputs import check_outputs, write_outputs
from modifind.cli.terminal import complain, lasting_streams, print_checks, print_result, strict_line
from modifind.cli.typed import as_typed
from modifind.data.wording import meant, printable

app = typer.Typer(
    help="Find the features that change how a treatment works.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _file(text: str) -> Path:
    """A file to write; a name that ends in a slash is one of a folder."""
    if text.endswith(("/", os.sep)):
        raise typer.BadParameter(f"{text} is a folder; name a file")
    return Path(text)


Jobs = Annotated[int, typer.Option("--jobs", help="Processes to use.", min=1)]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
TreatmentColumn = Annotated[str, typer.Option("--treatment", help="Column with two values.")]
OutcomeColumn = Annotated[str, typer.Option("--outcome", help="Numeric column, or one of 0 and 1.")]
Features = Annotated[
    list[str] | None,
    typer.Option("--features", help="Columns to test, comma-separated or one per option; default all."),
]
AdjustFor = Annotated[
    list[str] | None,
    typer.Option(
        "--adjust-for",
        help="Columns to adjust for without testing them, comma-separated or one per option; with --features also all "
        "others.",
    ),
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", help="Columns to leave out, comma-separated or one per option.")
]
Separator = Annotated[
    str | None, typer.Option("--separator", help="What separates fields of text: one character, tab or space.")
]
Decimal = Annotated[str | None, typer.Option("--decimal", help="What separates decimals in text: . or ,")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="How letters of text are written, such as latin-1.")]
RowNames = Annotated[
    bool, typer.Option("--row-names", help="Lines begin with the name of their row, as those of R's write.table do.")
]
Discrete = Annotated[
    list[str] | None, typer.Option("--discrete", help="Numeric columns that are categories, comma-separated.")
]
FeatureGroup = Annotated[
    list[str] | None,
    typer.Option("--feature-group", help="Columns tested as one, such as 'blood pressure=sbp,dbp'; may be repeated."),
]
Treated = Annotated[str | None, typer.Option("--treated", help="Label that means treated; needed unless it is plain.")]
Propensity = Annotated[str, typer.Option("--propensity", help="auto, mlp, a number, or a column with known scores.")]
Strata = Annotated[str | None, typer.Option("--strata", help="Column with the strata that a trial was randomised in.")]
Weight = Annotated[str | None, typer.Option("--weight", help="Column with sample weights.")]
Clusters = Annotated[
    str | None, typer.Option("--clusters", help="Column with labels of rows that belong together, such as a clinic.")
]
Learner = Annotated[
    str, typer.Option("--learner", help="Of effect_likelihood: auto, linear, splines, boosting or neural.")
]
LogOutcome = Annotated[bool, typer.Option("--log-outcome", help="Analyse the logarithm of the outcome.")]
Sampler = Annotated[str, typer.Option("--sampler", help="auto, gaussian, boosting, cvae or marginal.")]
Alpha = Annotated[float, typer.Option("--alpha", help="Level of the adjusted p-values.")]
Adjust = Annotated[str, typer.Option("--adjust", help="bh, by, holm, bonferroni or none.")]
Missing = Annotated[
    str,
    typer.Option(
        "--missing", help="Missing values: error, category (a level of its own) or drop (leave out the rows)."
    ),
]
MissingOutcome = Annotated[
    str,
    typer.Option("--missing-outcome", help="Rows without an outcome: error, drop or weight (others stand for them)."),
]
CheckpointFolder = Annotated[
    str | None,
    typer.Option("--checkpoint", help="Folder to save every feature in; the same command then continues."),
]
DATA_SUFFIXES = (".csv", ".parquet")
RESULT_SUFFIXES = (".json", ".csv")
DEFAULT_STATISTIC = "effect_likelihood"
UNPRINTED = 1
INTERRUPTED = 130


def main() -> None:
    """Run the command line; wrong input is one line on stderr and exit code 2."""
    with lasting_streams() as out:
        code = _run()
        out.flush()
        if out.failure is not None and not isinstance(out.failure, BrokenPipeError) and not code:
            _complain(f"cannot print: {out.failure.strerror}; files are written all the same")
            code = UNPRINTED
    sys.exit(code)


def _run() -> int:
    try:
        code = app(_with_local_cluster(sys.argv[1:]), standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # typer makes the one of the other
        code = INTERRUPTED
    except (ValueError, OSError, ImportError) as error:
        code = _complain(str(error))
    except MemoryError as error:
        from modifind._memory import out_of_memory

        code = _complain(str(out_of_memory(error)))
    except Exception as error:
        from modifind._workers import WorkerError

        if hasattr(error, "format_message"):  # typer's own complaint about the arguments
            code = _complain(error.format_message())
        elif isinstance(error, WorkerError):
            code = _complain(str(error))
        else:
            raise
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    return code if isinstance(code, int) else 0


def _with_local_cluster(arguments: list[str]) -> list[str]:
    """``--dask`` without an address means a local cluster, which an option with a value cannot say by itself."""
    filled = []
    for place, argument in enumerate(arguments, start=1):
        filled.append(argument)
        if argument == "--dask" and (place == len(arguments) or arguments[place].startswith("-")):
            filled.append("local")
    return filled


def _complain(message: str) -> int:
    complain(f"modifind: error: {as_typed(' '.join(message.split()))}")
    return 2


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from modifind._version import __version__

        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("modifind-demo"),
    jobs: Jobs = 1,
) -> None:
    """Analyse an embedded table of 1500 simulated patients and leave a report."""
    from modifind import ModifierSelector
    from modifind.charts import ImportanceDisplay
    from modifind.datasets import load_trial
    from modifind.result.checks import concerns
    from modifind.result.writing import make_folder, write_bytes

    trial = load_trial()
    make_folder(out)
    print("1500 simulated patients: drug or placebo, change of blood pressure, nine features.\n")
    selector = ModifierSelector(random_state=0, n_jobs=jobs, progress=True)
    with _warnings_as_lines() as lines:
        result = selector.fit(trial.X, trial.y, treatment=trial.treatment).result_
        lines.told = concerns(result.checks)
    result.to_json(out / "result.json")
    result.to_csv(out / "result.csv")
    result.report(out / "report.html")
    picture = io.BytesIO()
    ImportanceDisplay.from_result(result).plot().figure_.savefig(picture, format="png")
    write_bytes(out / "importance.png", picture.getvalue())
    print_result(result, truth=trial.truth)
    print_checks(result)
    print(f"\nReport: {out / 'report.html'}")


@app.command()
def simulate(
    kind: Annotated[str, typer.Argument(help="LinMean, NonlinMean, LinVar, NonlinVar, LinCovar or NonlinCovar.")],
    out: Annotated[Path, typer.Option("--out", help="CSV or Parquet file to write.", parser=_file, metavar="FILE")],
    n: Annotated[int, typer.Option("--n", help="Rows.", min=2)] = 1000,
    d: Annotated[int, typer.Option("--d", help="Features; the first five are modifiers.", min=5)] = 30,
    seed: Seed = 0,
) -> None:
    """Write one of the paper's synthetic data sets, with columns treatment and outcome."""
    from modifind.cli.tables import write_file
    from modifind.datasets import make_modifiers

    check_outputs({"--out": (out, DATA_SUFFIXES)})
    data = make_modifiers(kind, n_samples=n, n_features=d, random_state=seed)
    frame = data.X.copy()
    frame.insert(0, "outcome", data.y)
    frame.insert(0, "treatment", data.treatment)
    _complain_of(write_outputs({"--out": (out, lambda path: write_file(frame, path))}))
    print(f"{out}: {n} rows, {d} features; the modifiers are {', '.join(data.modifiers)}")


@app.command()
def select(
    data: Annotated[
        str, typer.Argument(help="CSV, TSV or Parquet file; with --stream or --dask also a pattern of several.")
    ],
    treatment: TreatmentColumn,
    outcome: OutcomeColumn,
    features: Features = None,
    adjust_for: AdjustFor = None,
    exclude: Exclude = None,
    discrete: Discrete = None,
    feature_group: FeatureGroup = None,
    treated: Treated = None,
    propensity: Propensity = "auto",
    strata: Strata = None,
    weight: Weight = None,
    clusters: Clusters = None,
    statistic: Annotated[str, typer.Option("--statistic", help="effect_likelihood or wcmmd.")] = DEFAULT_STATISTIC,
    learner: Learner = "auto",
    repeats: Annotated[int, typer.Option("--repeats", help="Cross-fits of effect_likelihood to average.", min=1)] = 1,
    check: Annotated[int, typer.Option("--check", help="Resamples to check effect_likelihood's tail.", min=0)] = 0,
    log_outcome: LogOutcome = False,
    sampler: Sampler = "auto",
    preset: Annotated[str, typer.Option("--preset", help="uai2022: the paper's configuration.")] = "",
    alpha: Alpha = 0.05,
    adjust: Adjust = "bh",
    resamples: Annotated[str, typer.Option("--resamples", help="Resamples per feature of wcmmd, or auto.")] = "auto",
    device: Annotated[
        str | None, typer.Option("--device", help="Where networks and resamples are computed: cpu, cuda, cuda:1, ...")
    ] = None,
    missing: Missing = "error",
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    row_names: RowNames = False,
    missing_outcome: MissingOutcome = "error",
    seed: Seed = 0,
    jobs: Jobs = 1,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the table in batches: files larger than memory.")
    ] = False,
    dask: Annotated[
        str,
        typer.Option("--dask", help="Work on the Dask cluster at this address; without one, start a local cluster."),
    ] = "",
    train_rows: Annotated[
        int, typer.Option("--train-rows", help="Most rows that models are fitted to; all rows are scored.", min=200)
    ] = 200_000,
    checkpoint: CheckpointFolder = None,
    explain: Annotated[bool, typer.Option(help="Also explain features: bands, what changes, bounds.")] = True,
    population: Annotated[
        str,
        typer.Option("--population", help="Whom effects are about: all rows, or overlap (those with a counterpart)."),
    ] = "all",
    placebo_runs: Annotated[
        int, typer.Option("--placebo", help="Also run this many treatments that do nothing.", min=0)
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Result as .json (all of it) or .csv (table).", parser=_file, metavar="FILE"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="HTML report to write.", parser=_file, metavar="FILE")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how the table is read and what would be run.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 3 if a check that bears on validity failed.")
    ] = False,
) -> None:
    """Find the features of a table that modify the effect of a treatment on an outcome."""
    from modifind.cli.tables import open_table
    from modifind.result.checks import concerns

    wanted = {"--out": (out, RESULT_SUFFIXES), "--report": (report, (".html",))}
    check_outputs(wanted, _inputs(data, checkpoint))
    if stream and dask:
        raise ValueError("--stream and --dask exclude each other")
    how = _dialect(separator, decimal, encoding, row_names)
    with _warnings_as_lines() as lines, open_table(data, dialect=how, stream=stream, dask=dask, jobs=jobs) as table:
        scores, known = _propensity(propensity, table.columns)
        roles = _roles(table, treatment, outcome, known, strata, weight, clusters, features, adjust_for, exclude)
        lines.columns, lines.roles = table.columns, roles
        if preset and known is not None:
            raise ValueError("--preset fixes the propensity; leave --propensity out")
        own = {"learner": learner, "cv_repeats": repeats, "check_resamples": check}
        selector = _selector(preset, statistic, own, sampler, scores, alpha, adjust, resamples, device)
        _tell(selector, table.columns, roles, discrete, feature_group, log_outcome, missing, seed, jobs, checkpoint)
        selector.set_params(missing_outcome=missing_outcome)
        selector.set_params(max_train_rows=train_rows, explain=explain)
        selector.set_params(placebo_runs=placebo_runs, population=population)
        if dry_run:
            _print_dry_run(table, selector, roles, treated)
            return
        _print_adjusted(roles.adjusted)
        interrupted = False
        try:
            result = table.fit(selector, roles, treated)
        except KeyboardInterrupt:
            if not hasattr(selector, "result_"):
                print("modifind: interrupted before there was a result; nothing was written", file=sys.stderr)
                raise
            result, interrupted = selector.result_, True
        lines.told = concerns(result.checks)
        saved = result.to_json if out is not None and out.suffix.lower() == ".json" else result.to_csv
        failures = write_outputs({"--out": (out, saved), "--report": (report, result.report)})
    print_result(result)
    print_checks(result, lines.typed)
    _complain_of(failures)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if strict and not result.ok:
        complain(strict_line(result))
        raise typer.Exit(3)


@app.command()
def placebo(
    data: Annotated[str, typer.Argument(help="CSV, TSV or Parquet file.")],
    treatment: TreatmentColumn,
    outcome: OutcomeColumn,
    n: Annotated[int, typer.Option("--n", help="Number of placebo treatments.")] = 20,
    features: Features = None,
    adjust_for: AdjustFor = None,
    exclude: Exclude = None,
    discrete: Discrete = None,
    feature_group: FeatureGroup = None,
    treated: Treated = None,
    propensity: Propensity = "auto",
    strata: Strata = None,
    weight: Weight = None,
    clusters: Clusters = None,
    learner: Learner = "auto",
    log_outcome: LogOutcome = False,
    sampler: Sampler = "auto",
    alpha: Alpha = 0.05,
    adjust: Adjust = "bh",
    missing: Missing = "error",
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    row_names: RowNames = False,
    missing_outcome: MissingOutcome = "error",
    seed: Seed = 0,
    jobs: Jobs = 1,
    checkpoint: CheckpointFolder = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="P-values of all runs as .csv.", parser=_file, metavar="FILE")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 3 if more is found than chance allows.")
    ] = False,
) -> None:
    """Analyse a table with treatments that do nothing: what is found then is false."""
    from modifind.cli.tables import open_table
    from modifind.result.safe_csv import safe_csv
    from modifind.result.writing import write_text

    check_outputs({"--out": (out, (".csv",))}, _inputs(data, checkpoint))
    if n < 1:
        raise ValueError(f"--n must be at least 1, not {n}")
    how = _dialect(separator, decimal, encoding, row_names)
    with _warnings_as_lines() as lines, open_table(data, dialect=how) as table:
        scores, known = _propensity(propensity, table.columns)
        roles = _roles(table, treatment, outcome, known, strata, weight, clusters, features, adjust_for, exclude)
        lines.columns, lines.roles = table.columns, roles
        selector = _selector("", DEFAULT_STATISTIC, {"learner": learner}, sampler, scores, alpha, adjust, "auto", None)
        _tell(selector, table.columns, roles, discrete, feature_group, log_outcome, missing, seed, jobs, checkpoint)
        selector.set_params(missing_outcome=missing_outcome)
        _print_adjusted(roles.adjusted)
        interrupted = False
        try:
            found = selector.placebo(**table.arguments(selector, roles, "placebo"), n=n, treated=treated)
        except KeyboardInterrupt:
            if not hasattr(selector, "placebo_") or not selector.placebo_.n_runs:
                print("modifind: interrupted before a run was done; nothing was written", file=sys.stderr)
                raise
            found, interrupted = selector.placebo_, True
        content = safe_csv(found.table.set_index("run"))
        failures = write_outputs({"--out": (out, lambda path: write_text(path, content))})
    print(f"{found.text}\n{found.drawn[0].upper()}{found.drawn[1:]}.")
    smallest = found.table.sort_values("p_value").head(3)
    for row in smallest.itertuples():
        print(
            f"  run {row.run}, {printable(str(row.feature))}: p = {row.p_value:.2g}{' (selected)' * bool(row.selected)}"
        )
    if found.warning:
        complain(f"modifind: warning: {lines.typed(found.warning)}")
    _complain_of(failures)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.warning and strict:
        raise typer.Exit(3)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="Result that `modifind select --out` wrote, .json.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file; default: beside the result.", parser=_file, metavar="FILE")
    ] = None,
) -> None:
    """Write the report of a saved result."""
    from modifind.result.selection_result import SelectionResult

    if not result.is_file():
        raise ValueError(f"no file {result}")
    target = result.with_suffix(".html") if out is None else out
    check_outputs({"--out": (target, (".html",))}, [result])
    saved = SelectionResult.from_json(result)
    _complain_of(write_outputs({"--out": (target, saved.report)}))
    print(target)


def _print_dry_run(table: Any, selector: Any, roles: Any, treated: str | None) -> None:
    from modifind.engine.dry_run import describe

    lines = describe(selector, **table.arguments(selector, roles, "--dry-run"), treated=treated)
    others = [name for name in table.columns if name not in roles.features]
    lines.insert(3, ("other columns", ", ".join(others)))
    width = max(len(heading) for heading, _ in lines)
    for heading, line in lines:
        print(f"{heading:<{width}}  {printable(line)}")
    print("\nNothing was fitted; leave --dry-run out to run it.")


def _print_adjusted(names: list[str]) -> None:
    if names:
        print(f"adjusted for: {printable(', '.join(names))}; --exclude leaves a column out\n")


def _roles(
    table: Any,
    treatment: str,
    outcome: str,
    known: str | None,
    strata: str | None,
    weight: str | None,
    clusters: str | None,
    features: list[str] | None,
    adjust_for: list[str] | None,
    exclude: list[str] | None,
) -> Any:
    """What the columns of a table are."""
    from modifind.cli.tables import Roles
    from modifind.data.unnamed import unusable

    columns = table.columns
    others = {"--propensity": known, "--strata": strata, "--weight": weight, "--clusters": clusters}
    tested, named, unnamed = _tested(columns, treatment, outcome, others, features, adjust_for, exclude)
    unfit = unusable(table.rows(unnamed))
    if unfit:
        shown = ", ".join(f"{name} ({reason})" for name, reason in unfit.items())
        warnings.warn(
            f"not adjusted for: {shown}. --adjust-for names a column that should be, --exclude one that should not",
            UserWarning,
            stacklevel=3,
        )
    adjusted = [name for name in columns if name in named or (name in unnamed and name not in unfit)]
    # In the order of the table, so that a test does not depend on which of the other columns are tested.
    used = [name for name in columns if name in tested or name in adjusted] if adjusted else tested
    return Roles(used, outcome, treatment, adjusted, known, strata, weight, clusters)


def _tell(
    selector: Any,
    columns: list[str],
    roles: Any,
    discrete: list[str] | None,
    feature_group: list[str] | None,
    log_outcome: bool,
    missing: str,
    seed: int,
    jobs: int,
    checkpoint: str | None,
) -> None:
    """Tell a selector what options say of the table and of the run."""
    from modifind.data.feature_matrix import AlsoDiscrete

    categories = _columns(discrete, columns, "--discrete")
    if not set(categories) <= set(roles.features):
        strangers = ", ".join(sorted(set(categories) - set(roles.features)))
        raise ValueError(f"--discrete names {strangers}, which is neither tested nor adjusted for")
    selector.set_params(
        discrete_features=AlsoDiscrete(tuple(categories)) if categories else "auto",
        feature_groups=_feature_groups(
            feature_group or [], [name for name in roles.features if name not in roles.adjusted]
        )
        or None,
        outcome_transform="log" if log_outcome else None,
        missing=missing,
        random_state=seed,
        n_jobs=jobs,
        progress=True,
        checkpoint=checkpoint,
    )


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="fig-synthetic, fig-runtime, table-nhanes, table-counterexamples, table-propensity-neurons, "
            "table-cvae-neurons or all."
        ),
    ],
    runs: Annotated[
        str,
        typer.Option(
            "--runs",
            help="Runs per method, such as 50, or 50,preset=8 for some of them; default 50, fewer in slow studies.",
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small version that ends in minutes.")] = False,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help="Only these methods, comma-separated: default, wcmmd, preset, preset-short, preset-hajek, "
            "preset-sums, naive, exact, si-em.",
        ),
    ] = "",
    out: Annotated[Path, typer.Option("--out", help="Folder for results and finished runs.")] = Path("reproduction"),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the NHANES tables; default: download them.")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Where autoencoders are trained and drawn from: cpu or cuda.")
    ] = "cpu",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the first run.", min=0)] = 1000,
    jobs: Jobs = 1,
) -> None:
    """Rerun a table or figure of the UAI 2022 paper; the same command continues an interrupted one."""
    from modifind.paper import Order
    from modifind.paper import reproduce as rerun

    chosen = [method.strip() for method in methods.split(",") if method.strip()] or None
    order = Order(_counts(runs), quick, chosen, seed)
    with _warnings_as_lines():
        paths = rerun(name, out, order, jobs=jobs, device=device, data_home=data, progress=True)
    for path in paths:
        print(path)


def _counts(text: str) -> dict[str, int] | None:
    """``50,preset=8`` as runs by method, those of all others under the empty name."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        method, _, number = part.rpartition("=")
        if not number.strip().isdecimal():
            raise ValueError(f"--runs must be a number, or numbers by method such as 50,preset=8; found {text!r}")
        if method.strip() in counts:
            raise ValueError(f"--runs has two numbers for {method.strip() or 'all methods'}: {text!r}")
        counts[method.strip()] = int(number)
    return counts or None


def _selector(
    preset: str,
    statistic: str,
    own: dict[str, Any],
    sampler: str,
    scores: Any,
    alpha: float,
    adjust: str,
    resamples: str,
    device: str | None,
) -> Any:
    from modifind import EffectLikelihood, ModifierSelector
    from modifind.presets import uai2022

    if resamples != "auto" and not resamples.isdigit():
        raise ValueError(f"--resamples must be auto or a whole number, not {resamples!r}")
    likelihood = EffectLikelihood(**own, device=device or "cpu")
    plain = own.items() <= EffectLikelihood().get_params().items()
    if not plain and (preset or statistic != DEFAULT_STATISTIC):
        raise ValueError("--learner, --repeats and --check belong to --statistic effect_likelihood")
    if preset:
        if preset != "uai2022":
            raise ValueError(f"--preset must be uai2022, not {preset!r}")
        if statistic != DEFAULT_STATISTIC or sampler != "auto" or not (isinstance(scores, str) and scores == "auto"):
            raise ValueError("--preset fixes the statistic, the sampler and the propensity; leave those options out")
        count = {} if resamples == "auto" else {"n_resamples": int(resamples)}
        return uai2022(alpha=alpha, adjust=adjust, device=device, **count)
    return ModifierSelector(
        statistic=statistic if plain else likelihood,
        sampler=sampler,
        propensity=scores,
        alpha=alpha,
        adjust=adjust,
        n_resamples="auto" if resamples == "auto" else int(resamples),
        device=device,
    )


def _tested(
    columns: list[str],
    treatment: str,
    outcome: str,
    others: dict[str, str | None],
    features: list[str] | None,
    adjust_for: list[str] | None,
    exclude: list[str] | None,
) -> tuple[list[str], list[str], list[str]]:
    """The columns to test, those named to be adjusted for, and those that nobody named where others were.

    `others` are columns that are no features either, by their options.
    """
    given = {option: name for option, name in others.items() if name is not None}
    roles = {"--treatment": treatment, "--outcome": outcome, **given}
    for option, name in roles.items():
        _known_columns([name], columns, option)
    owners: dict[str, str] = {}
    for option, name in roles.items():
        if name in owners:
            raise ValueError(f"{owners[name]} and {option} are both {name!r}")
        owners[name] = option
    taken = set(owners)
    chosen, named = _columns(features, columns, "--features"), _columns(adjust_for, columns, "--adjust-for")
    for option, own in (("--features", chosen), ("--adjust-for", named)):
        if taken & set(own):
            raise ValueError(f"{option} names {', '.join(sorted(taken & set(own)))}, which is no feature here")
    both = [name for name in chosen if name in named]
    if both:
        raise ValueError(f"--features and --adjust-for both name {', '.join(both)}; a column is tested or adjusted for")
    excluded = _columns(exclude, columns, "--exclude")
    both = [name for name in named if name in excluded]
    if both:
        raise ValueError(f"--adjust-for and --exclude both name {', '.join(both)}; a column is used or left out")
    left_out = taken | set(excluded)
    tested = [column for column in chosen or columns if column not in left_out and column not in named]
    if not tested:
        raise ValueError("no feature is left to test; --features, --adjust-for and --exclude decide which are")
    unnamed = [column for column in columns if chosen and column not in (*left_out, *chosen, *named)]
    return tested, named, unnamed


def _dialect(separator: str | None, decimal: str | None, encoding: str | None, row_names: bool) -> Any:
    from modifind.data.files.text import Dialect

    return Dialect(separator, decimal, encoding, row_names)


def _propensity(value: str, columns: list[str]) -> tuple[Any, str | None]:
    """The propensity as a setting or a number, and the column of known scores if one is named."""
    if value in ("auto", "mlp"):
        return value, None
    try:
        return float(value), None
    except ValueError:
        if value in columns:
            return "auto", value
    close = meant(value, ["auto", "mlp", *columns])
    raise ValueError(f"--propensity must be auto, mlp, a number or a column; {value!r} is none of them{close}")


def _columns(texts: list[str] | None, columns: list[str], option: str) -> list[str]:
    """The columns that an option names, each once."""
    names = list(dict.fromkeys(name for text in texts or [] for name in _split(text, columns)))
    if texts and not names:
        raise ValueError(f"{option} names no column; name some or leave it out")
    _known_columns(names, columns, option)
    return names


def _split(text: str, columns: list[str]) -> list[str]:
    """``age,dose, mg`` as columns: the longest text up to a comma that is a column's name, commas included."""
    parts, names = text.split(","), []
    while parts:
        texts = [",".join(parts[:end]) for end in range(len(parts), 0, -1)]
        found = next((text for text in texts if text in columns or text.strip() in columns), texts[-1])
        names.append(found if found in columns else found.strip())
        parts = parts[found.count(",") + 1 :]
    return [name for name in names if name]


def _feature_groups(options: list[str], tested: list[str]) -> dict[str, list[str]]:
    """``blood pressure=sbp,dbp``, once for every group, as columns by group."""
    groups: dict[str, list[str]] = {}
    for text in options:
        name, equals, listed = (part.strip() for part in text.partition("="))
        columns = _split(listed, tested)
        if not (name and equals and columns):
            raise ValueError(
                f"--feature-group must be a name and columns, such as 'blood pressure=sbp,dbp'; found {text!r}"
            )
        if name in groups:
            raise ValueError(f"--feature-group has two groups called {name!r}")
        strangers = [column for column in columns if column not in tested]
        if strangers:
            close = meant(strangers[0], tested)
            raise ValueError(
                f"--feature-group {name!r} names {', '.join(map(repr, strangers))}, which is not tested{close}"
            )
        groups[name] = columns
    return groups


def _known_columns(names: list[str], columns: list[str], option: str) -> None:
    unknown = [name for name in names if name not in columns]
    if unknown:
        shown = ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
        close = meant(unknown[0], columns) or f"; columns: {shown}"
        raise ValueError(f"{option}: no column {', '.join(map(repr, unknown))}{close}")


def _inputs(data: str, checkpoint: str | None) -> list[Path]:
    """Files that no result may replace."""
    run = [] if not checkpoint else [Path(checkpoint) / "run.json"]
    return [*map(Path, glob.glob(data)), Path(data), *run]


def _complain_of(failures: list[str]) -> None:
    """End with an error if something could not be written."""
    if failures:
        raise ValueError("; ".join(failures))


@dataclass
class Lines:
    """Warnings that were shown, those that need not be because the checks tell them, and the user's words for both."""

    shown: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    roles: Any = None

    def typed(self, message: str) -> str:
        """A message in the words of the command line."""
        return as_typed(" ".join(message.split()), self.columns, self.roles)


@contextmanager
def _warnings_as_lines() -> Iterator[Lines]:
    """Warnings as single lines on stderr instead of Python's two, each once."""
    lines = Lines()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield lines
        except Exception as error:
            from modifind._workers import WorkerError

            if not isinstance(error, ValueError | OSError | WorkerError):
                raise
            raise ValueError(lines.typed(str(error))) from error
        finally:  # what was warned of may explain an error
            messages = [str(w.message) for w in caught if str(w.message) not in lines.told]
            lines.shown += dict.fromkeys(map(lines.typed, messages))
            for line in lines.shown:
                complain(f"modifind: warning: {line}")

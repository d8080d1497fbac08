"""Command line: ``modifind demo | simulate | select | placebo | report | reproduce``."""

from __future__ import annotations

import glob
import re
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from modifind._system import is_broken_pipe
from modifind.cli import options
from modifind.cli import output as terminal
from modifind.cli.messages import as_typed, warnings_as_lines
from modifind.cli.output import check_folders, check_outputs, write_outputs

app = typer.Typer(
    help="Find the features that change the effect of a treatment.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
DATA_SUFFIXES = (".csv", ".parquet")
RESULT_SUFFIXES = (".json", ".csv")
SHARES = re.compile(r"[.\d]|[^-].*=")  # what `--randomised` may be followed by
Data = Annotated[
    str, typer.Argument(help="CSV, TSV or Parquet file; with --stream or --dask also a pattern of several.")
]
UNPRINTED = 1
EXIT_DOUBTFUL = 3
INTERRUPTED = 130


def main() -> None:
    """Run the command line; wrong input is one line on stderr and exit code 2."""
    with terminal.lasting_streams() as out:
        code = _run()
        out.flush()
        if out.failure is not None and not is_broken_pipe(out.failure) and not code:
            _complain(f"cannot print: {out.failure.strerror}; files were written nevertheless")
            code = UNPRINTED
    sys.exit(code)


def _run() -> int:
    try:
        code = app(_with_defaults(sys.argv[1:]), standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # typer makes the one of the other
        code = INTERRUPTED
    except (ValueError, OSError, ImportError) as error:
        code = _complain(str(error))
    except MemoryError as error:
        from modifind._system import out_of_memory

        code = _complain(str(out_of_memory(error)))
    except Exception as error:
        from modifind._workers import WorkerError

        format_message = getattr(error, "format_message", None)  # typer's own complaint about the arguments
        if format_message is None and not isinstance(error, WorkerError):
            raise
        code = _complain(format_message() if format_message else str(error))
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    return code if isinstance(code, int) else 0


def _with_defaults(arguments: list[str]) -> list[str]:
    """Fill in defaults of options that may be given without a value, which typer cannot express.

    ``--dask`` without an address means a local cluster, and ``--randomised`` without a share the observed one.
    """
    filled = []
    for argument, following in zip(arguments, [*arguments, "-"][1:], strict=True):
        filled.append(argument)
        if argument == "--dask" and following.startswith("-"):
            filled.append("local")
        if argument == "--randomised" and not SHARES.match(following):
            filled.append(options.OBSERVED)
    return filled


def _complain(message: str) -> int:
    terminal.complain(f"modifind: error: {as_typed(' '.join(message.split()))}")
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
    jobs: options.Jobs = 1,
) -> None:
    """Analyse a bundled table of 1500 simulated patients; write the table, a report and a forest plot."""
    from modifind import ModifierSelector
    from modifind._system import make_folder
    from modifind.cli.table import write_file
    from modifind.datasets import load_trial

    check_folders({"--out": out})
    trial = load_trial()
    make_folder(out)
    write_file(trial.frame, out / "trial.csv")
    print("1500 simulated patients: drug or placebo, change of blood pressure, nine features.\n")
    selector = ModifierSelector(better="lower", unit="mmHg", random_state=0, n_jobs=jobs, progress=True)
    with warnings_as_lines() as lines:
        result = selector.fit(trial.X, trial.y, treatment=trial.treatment).result_
        lines.shown = result.concerns()
    result.to_json(out / "result.json")
    result.to_csv(out / "result.csv")
    result.report(out / "report.html")
    result.plot.forest().savefig(out / "forest.png")
    terminal.print_result(result, truth=trial.truth)
    terminal.print_checks(result)
    print(f"report: {out / 'report.html'}")


@app.command()
def simulate(
    kind: Annotated[str, typer.Argument(help="LinMean, NonlinMean, LinVar, NonlinVar, LinCovar or NonlinCovar.")],
    out: Annotated[Path, options.file_option("--out", "CSV or Parquet file to write.")],
    n: Annotated[int, typer.Option("--n", help="Rows.", min=2)] = 1000,
    d: Annotated[int, typer.Option("--d", help="Features; the first five are modifiers.", min=5)] = 30,
    seed: options.Seed = 0,
) -> None:
    """Write one of the paper's synthetic data sets, with columns treatment and outcome."""
    from modifind.cli.table import write_file
    from modifind.datasets import make_modifiers

    check_outputs({"--out": (out, DATA_SUFFIXES)})
    data = make_modifiers(kind, n_samples=n, n_features=d, random_state=seed)
    frame = data.X.copy()
    frame.insert(0, "outcome", data.y)
    frame.insert(0, "treatment", data.treatment)
    _complain_of(write_outputs({"--out": (out, lambda path: write_file(frame, path))}))
    print(f"{out}: {n} rows, {d} features; the modifiers are {', '.join(data.modifiers)}")


@app.command()
@options.with_options
def select(
    data: Data,
    columns: options.Columns,
    method: Annotated[dict[str, Any], options.METHOD],
    test: Annotated[dict[str, Any], options.TEST],
    effects: Annotated[dict[str, Any], options.EFFECTS],
    text: options.TextFormat,
    run: options.Execution,
    rows: options.LargeTable,
    output: options.Output,
) -> None:
    """Find the features of a table that modify the effect of a treatment on an outcome."""
    from modifind.cli.table import open_analysis, until_interrupted

    output.check()
    out, report = output.out, output.report
    check_outputs({"--out": (out, RESULT_SUFFIXES), "--report": (report, (".html",))}, _inputs(data, run))
    check_folders({"--figures": output.figures, "--checkpoint": run.checkpoint})
    settings = method | test | effects
    with open_analysis(data, columns, text, run, rows, settings) as (table, roles, selector, lines):
        if output.dry_run:
            terminal.print_dry_run(selector, table, roles)
            return
        terminal.print_adjusted(roles.adjusted)
        result, interrupted = until_interrupted(
            lambda: selector.fit(table, **roles.arguments).result_,
            lambda: getattr(selector, "result_", None),
            "there was a result",
        )
        lines.shown = result.concerns()
        saved = result.to_json if out is not None and out.suffix.lower() == ".json" else result.to_csv
        failures = write_outputs({"--out": (out, saved), "--report": (report, result.report)})
        failures += output.write_figures(result)
    terminal.print_result(result)
    terminal.print_checks(result, lines.typed)
    _complain_of(failures)
    for name, path in (("result", out), ("report", report), ("figures", output.figures)):
        if path is not None:
            print(f"{name}: {path}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if output.strict and not result.ok:
        terminal.complain(terminal.strict_line(result))
        raise typer.Exit(EXIT_DOUBTFUL)


@app.command()
@options.with_options
def placebo(
    data: Data,
    columns: options.Columns,
    method: Annotated[dict[str, Any], options.METHOD],
    text: options.TextFormat,
    run: options.Execution,
    rows: options.LargeTable,
    n: Annotated[int, typer.Option(help="Number of placebo treatments.")] = 20,
    out: Annotated[Path | None, options.file_option("--out", "P-values of all runs as .csv.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 3 if more is found than chance allows.")
    ] = False,
) -> None:
    """Analyse a table with placebo treatments, which have no effect: every discovery is a false positive."""
    from modifind.cli.table import open_analysis, until_interrupted
    from modifind.result.files import write_text
    from modifind.result.presentation import safe_csv

    check_outputs({"--out": (out, (".csv",))}, _inputs(data, run))
    check_folders({"--checkpoint": run.checkpoint})
    if n < 1:
        raise ValueError(f"--n must be at least 1, not {n}")
    with open_analysis(data, columns, text, run, rows, method) as (table, roles, selector, lines):
        terminal.print_adjusted(roles.adjusted)
        result, interrupted = until_interrupted(
            lambda: selector.placebo(table, **roles.arguments, n=n),
            lambda: result if (result := getattr(selector, "placebo_", None)) and result.n_runs else None,
            "a run was done",
        )
        content = safe_csv(result.table.set_index("run"))
        failures = write_outputs({"--out": (out, lambda path: write_text(path, content))})
    terminal.print_placebo(result, lines.typed)
    _complain_of(failures)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.warning and strict:
        raise typer.Exit(EXIT_DOUBTFUL)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="Result that `modifind select --out` wrote, .json.")],
    out: Annotated[Path | None, options.file_option("--out", "HTML file; default: beside the result.")] = None,
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


@app.command()
@options.with_options
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="fig-synthetic, fig-runtime, table-nhanes, table-counterexamples, table-propensity-neurons, "
            "table-cvae-neurons or all."
        ),
    ],
    study: options.StudySize,
    out: Annotated[Path, typer.Option(help="Folder for results and finished runs.")] = Path("reproduction"),
    data: Annotated[Path | None, typer.Option(help="Folder with the NHANES tables; default: download them.")] = None,
    device: Annotated[str, typer.Option(help="Where autoencoders are trained and drawn from: cpu or cuda.")] = "cpu",
    jobs: options.Jobs = 1,
) -> None:
    """Rerun a table or figure of the UAI 2022 paper; the same command continues an interrupted one."""
    from modifind.paper import Order
    from modifind.paper import reproduce as rerun

    check_folders({"--out": out})
    chosen = [method.strip() for method in study.methods.split(",") if method.strip()] or None
    order = Order(_counts(study.runs), study.quick, chosen, study.seed)
    with warnings_as_lines():
        paths = rerun(name, out, order, jobs=jobs, device=device, data_home=data, progress=True)
    for path in paths:
        print(path)


def _counts(text: str) -> dict[str, int] | None:
    """Parse ``50,preset=8`` as numbers of runs by method, with the default under the empty name."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        method, _, number = part.rpartition("=")
        if not number.strip().isdecimal():
            raise ValueError(f"--runs must be a number, or numbers by method such as 50,preset=8; found {text!r}")
        if method.strip() in counts:
            raise ValueError(f"--runs has two numbers for {method.strip() or 'all methods'}: {text!r}")
        counts[method.strip()] = int(number)
    return counts or None


def _inputs(data: str, run: options.Execution) -> list[Path]:
    """Input files, which no output may overwrite."""
    record = [Path(run.checkpoint) / "run.json"] if run.checkpoint else []
    return [*map(Path, glob.glob(data)), Path(data), *record]


def _complain_of(failures: list[str]) -> None:
    """Raise a ValueError if any output could not be written."""
    if failures:
        raise ValueError("; ".join(failures))

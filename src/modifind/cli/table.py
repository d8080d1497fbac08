"""Shared start of `select` and `placebo`: open the table, resolve column roles, configure the selector."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from modifind import EffectLikelihood, ModifierSelector
from modifind.cli import options
from modifind.cli.messages import WarningLines, warnings_as_lines
from modifind.cli.options import Roles
from modifind.data.features import AdditionalDiscrete
from modifind.data.files.opening import open_file, open_matching, refuse_folder
from modifind.data.files.text import Dialect
from modifind.data.guards import refuse_unusable
from modifind.data.roles import (
    FITTED_SCORES,
    column_names,
    first_rows,
    in_table_order,
    refuse_two_roles,
    usable_columns,
)
from modifind.data.sources import refuse_more_columns
from modifind.data.words import listed, meant
from modifind.presets import uai2022
from modifind.result.files import write_bytes


@contextmanager
def open_table(
    data: str, *, dialect: Dialect | None = None, stream: bool = False, dask: str = "", jobs: int = 1
) -> Iterator[Any]:
    """Open a table as a DataFrame, a Dask DataFrame, or files that are read in batches.

    Parameters
    ----------
    data : str
        A file of text or Parquet; with `stream` or `dask` also a pattern of several.
    dialect : Dialect, optional
        How text is read.
    stream : bool, default=False
        Read the files in batches.
    dask : str, default=""
        Address of a Dask scheduler, or "local" for a cluster of `jobs` processes that is started and stopped again.
    jobs : int, default=1
        Processes of a local cluster.
    """
    if stream and dask:
        raise ValueError("--stream and --dask exclude each other")
    refuse_folder(Path(data))
    if dask:
        from modifind.data.files.opening import read_table
        from modifind.engine.dask import connect, short_cluster_errors, silence_logs

        silence_logs()
        with connect(None if dask == "local" else dask, jobs) as client, short_cluster_errors(client):
            yield read_table(data, dialect)
    elif stream:
        files = open_matching(data, dialect)
        refuse_more_columns(files)
        yield files
    else:
        frame = open_file(Path(data), dialect).read()
        if frame.empty:
            raise ValueError(f"{data} has no rows")
        yield frame


def write_file(frame: pd.DataFrame, path: Path) -> None:
    """Write a DataFrame as CSV or Parquet, atomically."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".csv":
        frame.to_csv(buffer, index=False, lineterminator="\n")
    else:
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise ValueError('writing Parquet needs pyarrow: pip install "modifind[parquet]"') from None
    write_bytes(path, buffer.getvalue())


def read_roles(asked: options.Columns, table: Any, scores: str | None) -> Roles:
    """Resolve the roles of a table's columns; `scores` is the column of known propensity scores, if any."""
    columns = column_names(table)
    tested, named, unnamed = _tested(asked, columns, scores)
    refuse_unusable(first_rows(table, tested if asked.features else []), "--features")
    refuse_unusable(first_rows(table, named), "--adjust-for")
    remedy = "--adjust-for names a column that should be, --exclude one that should not"
    adjusted = [*named, *usable_columns(table, unnamed, remedy)]
    used = in_table_order(columns, tested, adjusted)
    per_row = asked.strata, asked.weight, asked.clusters
    labels = asked.treated, asked.reference, _read_arms(asked.arms)
    adjusted = [name for name in used if name in adjusted]
    known = [*named, *(tested if asked.features else ())]
    return Roles(list(used), asked.outcome, asked.treatment, adjusted, scores, *per_row, *labels, known)


def _read_arms(texts: list[str] | None) -> tuple[str, ...] | None:
    """Parse ``low,placebo``, or one option per label, which may then contain commas."""
    if not texts:
        return None
    return tuple(part.strip() for part in (texts[0].split(",") if len(texts) == 1 else texts))


def _tested(asked: options.Columns, columns: list[str], scores: str | None) -> tuple[list[str], list[str], list[str]]:
    """Columns to test, columns named for adjustment and, where features are named, the remaining columns."""
    roles = {"--treatment": asked.treatment, "--outcome": asked.outcome, "--propensity": scores}
    roles |= {"--strata": asked.strata, "--weight": asked.weight, "--clusters": asked.clusters}
    taken = {option: [name] for option, name in roles.items() if name is not None}
    for option, names in taken.items():
        _check_known(names, columns, option)
    chosen, named = _columns(asked.features, columns, "--features"), _columns(asked.adjust_for, columns, "--adjust-for")
    excluded = _columns(asked.exclude, columns, "--exclude")
    refuse_two_roles(taken | {"--features": chosen, "--adjust-for": named})
    refuse_two_roles({"--adjust-for": named, "--exclude": excluded})
    left_out = {*excluded, *named, *(name for names in taken.values() for name in names)}
    tested = [column for column in chosen or columns if column not in left_out]
    if not tested:
        raise ValueError("no feature is left to test; --features, --adjust-for and --exclude decide which are")
    unnamed = [column for column in columns if chosen and column not in {*left_out, *chosen}]
    return tested, named, unnamed


def read_design(asked: options.Columns, columns: list[str]) -> tuple[str | None, Any, str | None]:
    """Parse design and propensity as settings, and name the column of known scores, if any."""
    if asked.observational and asked.randomised is not None:
        raise ValueError("--randomised and --observational contradict each other; leave one of them out")
    if asked.randomised is None:
        return ("observational" if asked.observational else None, *_read_propensity(asked.propensity, columns))
    if asked.propensity != "auto":
        raise ValueError("--propensity and --randomised both say what share was treated; leave --propensity out")
    share = FITTED_SCORES[0] if asked.randomised == options.OBSERVED else _read_share(asked.randomised)
    return "randomised", share, None


def _read_share(text: str) -> float | dict[str, float]:
    """Parse the treated share of a trial, or the shares of its arms by label."""
    if "=" in text:
        return _read_shares(text, "--randomised")
    with suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise ValueError(f"--randomised takes no value or a share between 0 and 1, such as 0.5, not {text!r}")


def _read_propensity(value: str, columns: list[str]) -> tuple[Any, str | None]:
    """Parse the propensity as a number or shares by label; also return the column of known scores, if it names one."""
    if value in FITTED_SCORES:
        return value, None
    if value not in columns and "=" in value:
        return _read_shares(value, "--propensity"), None
    try:
        return float(value), None
    except ValueError:
        if value in columns:
            return value, value
    close = meant(value, ["auto", "mlp", *columns])
    raise ValueError(f"--propensity must be auto, mlp, a number or a column; {value!r} is none of them{close}")


def _read_shares(text: str, option: str) -> dict[str, float]:
    """Parse ``placebo=0.5,low=0.25,high=0.25`` as shares by label."""
    shares = {}
    for pair in text.split(","):
        label, _, share = pair.rpartition("=")
        try:
            shares[label.strip()] = float(share)
        except ValueError:
            raise ValueError(
                f"{option} must give a share for every label, such as 'placebo=0.5,drug=0.5'; found {pair!r}"
            ) from None
    return shares


def read_discrete(texts: list[str] | None, columns: list[str], roles: Roles) -> AdditionalDiscrete | str:
    """Numeric columns to treat as categories, as the selector takes them."""
    categories = _columns(texts, columns, "--discrete")
    if not set(categories) <= set(roles.features):
        strangers = listed(sorted(set(categories) - set(roles.features)))
        raise ValueError(f"--discrete names {strangers}, which is neither tested nor adjusted for")
    return AdditionalDiscrete(tuple(categories)) if categories else "auto"


def read_groups(options: list[str], tested: list[str]) -> dict[str, list[str]]:
    """Parse ``blood pressure=sbp,dbp``, once for every group, as columns by group name."""
    groups: dict[str, list[str]] = {}
    for text in options:
        name, equals, rest = (part.strip() for part in text.partition("="))
        columns = _split(rest, tested)
        if not (name and equals and columns):
            raise ValueError(
                f"--feature-group must be a name and columns, such as 'blood pressure=sbp,dbp'; found {text!r}"
            )
        if name in groups:
            raise ValueError(f"--feature-group has two groups called {name!r}")
        strangers = [column for column in columns if column not in tested]
        if strangers:
            close = meant(strangers[0], tested)
            raise ValueError(f"--feature-group {name!r} names {listed(strangers)}, which is not tested{close}")
        groups[name] = columns
    return groups


def _columns(texts: list[str] | None, columns: list[str], option: str) -> list[str]:
    """Columns named by an option, without duplicates."""
    names = list(dict.fromkeys(name for text in texts or [] for name in _split(text, columns)))
    if texts and not names:
        raise ValueError(f"{option} names no column; name some or leave it out")
    _check_known(names, columns, option)
    return names


def _split(text: str, columns: list[str]) -> list[str]:
    """Split ``age,dose, mg`` into columns, preferring the longest column name, commas included."""
    parts, names = text.split(","), []
    while parts:
        texts = [",".join(parts[:end]) for end in range(len(parts), 0, -1)]
        name = next((text for text in texts if text in columns or text.strip() in columns), texts[-1])
        names.append(name if name in columns else name.strip())
        parts = parts[name.count(",") + 1 :]
    return [name for name in names if name]


def _check_known(names: list[str], columns: list[str], option: str) -> None:
    unknown = [name for name in names if name not in columns]
    if unknown:
        close = meant(unknown[0], columns) or f"; columns: {listed(columns, most=12)}"
        raise ValueError(f"{option}: no column {listed(unknown)}{close}")


class OpenTable(NamedTuple):
    """A table with the planned analysis; `lines` collects its warnings."""

    table: Any
    roles: Roles
    selector: ModifierSelector
    lines: WarningLines


@contextmanager
def open_analysis(
    data: str,
    columns: options.Columns,
    text: options.TextFormat,
    run: options.Execution,
    rows: options.LargeTable,
    settings: dict[str, Any],
) -> Iterator[OpenTable]:
    """Open a table and configure the analysis; warnings become lines on exit."""
    opened = open_table(data, dialect=Dialect(**asdict(text)), jobs=run.jobs, **asdict(rows))
    with warnings_as_lines() as lines, opened as table:
        names = column_names(table)
        design, propensity, scores = read_design(columns, names)
        roles = read_roles(columns, table, scores)
        lines.columns, lines.roles = names, roles
        if settings.get("preset") and (scores is not None or columns.randomised is not None):
            raise ValueError("--preset fixes the propensity; leave --propensity and --randomised out")
        selector = _selector(settings | {"propensity": propensity})
        selector.set_params(
            discrete_features=read_discrete(columns.discrete, names, roles),
            feature_groups=read_groups(columns.feature_group or [], roles.arguments["features"]) or None,
            random_state=run.seed,
            n_jobs=run.jobs,
            progress=True,
            checkpoint=run.checkpoint,
            design=design,
        )
        yield OpenTable(table, roles, selector, lines)


def _selector(settings: dict[str, Any]) -> ModifierSelector:
    """Make a selector, or that of a preset, from option values by argument."""
    resamples = settings.pop("n_resamples", "auto")
    if resamples != "auto":
        if not resamples.isdigit():
            raise ValueError(f"--resamples must be auto or a whole number, not {resamples!r}")
        settings["n_resamples"] = int(resamples)
    settings["outcome_transform"] = "log" if settings["outcome_transform"] else None
    preset, usual = settings.pop("preset", ""), ModifierSelector().get_params(deep=False)
    likelihood = {name: settings.pop(name) for name in options.OF_LIKELIHOOD if name in settings}
    plain = likelihood.items() <= EffectLikelihood().get_params().items()
    changed = {name for name, value in settings.items() if value != usual[name]}
    if not plain and (preset or "statistic" in changed):
        raise ValueError("--learner, --repeats and --check belong to --statistic effect_likelihood")
    if preset not in ("", "uai2022"):
        raise ValueError(f"--preset must be uai2022, not {preset!r}")
    if preset:
        if changed & {"statistic", "sampler", "propensity"}:
            raise ValueError("--preset fixes the statistic, the sampler and the propensity; leave those options out")
        return uai2022(**{name: settings[name] for name in settings.keys() - {"statistic", "sampler", "propensity"}})
    if not plain:
        settings["statistic"] = EffectLikelihood(**likelihood, device=settings.get("device") or "cpu")
    return ModifierSelector(**settings)


def until_interrupted(call: Callable[[], Any], partial: Callable[[], Any], missing: str) -> tuple[Any, bool]:
    """Return the result of a call, or its partial result and True after Ctrl-C; `missing` names what is incomplete.

    Raises KeyboardInterrupt if there is no partial result.
    """
    try:
        return call(), False
    except KeyboardInterrupt:
        if (result := partial()) is None:
            print(f"modifind: interrupted before {missing}; nothing was written", file=sys.stderr)
            raise
        return result, True

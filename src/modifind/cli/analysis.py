"""The beginning of `select` and `placebo`: an open table, the roles of its columns, and a selector with options set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from modifind import EffectLikelihood, ModifierSelector
from modifind.cli import options
from modifind.cli.columns import read_design, read_discrete, read_groups, read_roles
from modifind.cli.options import Roles
from modifind.cli.tables import open_table
from modifind.cli.warned import WarningLines, warnings_as_lines
from modifind.data.files.text import Dialect
from modifind.data.roles import column_names
from modifind.presets import uai2022


class OpenTable(NamedTuple):
    """A table and what is to be done with it; `lines` are the warnings that it gets."""

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
    """Open a table, and set up what options say; warnings become lines when it is closed."""
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
    """A selector, or that of a preset, from the values of options by argument."""
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
    """Return the result of a call, or its partial result and True if Ctrl-C came; `missing` names what was not there.

    Raises KeyboardInterrupt where there is no partial result.
    """
    try:
        return call(), False
    except KeyboardInterrupt:
        if (result := partial()) is None:
            print(f"modifind: interrupted before {missing}; nothing was written", file=sys.stderr)
            raise
        return result, True

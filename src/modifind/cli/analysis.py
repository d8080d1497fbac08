"""What `select` and `placebo` begin with: an open table, what its columns are, and a selector as options set it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from modifind import EffectLikelihood, ModifierSelector
from modifind.cli import options
from modifind.cli.columns import read_design, read_discrete, read_groups, read_roles
from modifind.cli.tables import Roles, open_table
from modifind.cli.warned import Lines, warnings_as_lines
from modifind.data.files.text import Dialect
from modifind.data.roles import column_names
from modifind.presets import uai2022


class Analysis(NamedTuple):
    """A table and what is to be done with it; `lines` are the warnings that it gets."""

    table: Any
    roles: Roles
    selector: ModifierSelector
    lines: Lines


@contextmanager
def open_analysis(
    data: str,
    columns: options.Columns,
    method: options.Method,
    text: options.Text,
    run: options.Run,
    select: options.Select | None = None,
    effects: options.Effects | None = None,
    pieces: options.Pieces | None = None,
) -> Iterator[Analysis]:
    """Open a table, and set up what options say; warnings become lines when it is closed."""
    select, effects = select or options.Select(), effects or options.Effects()
    pieces = pieces or options.Pieces()
    opened = open_table(data, dialect=Dialect(**asdict(text)), jobs=run.jobs, **asdict(pieces))
    with warnings_as_lines() as lines, opened as table:
        names = column_names(table)
        design, propensity, scores = read_design(columns, names)
        roles = read_roles(columns, table, scores)
        lines.columns, lines.roles = names, roles
        if select.preset and (scores is not None or columns.randomised is not None):
            raise ValueError("--preset fixes the propensity; leave --propensity and --randomised out")
        selector = _selector(method, select, effects, propensity)
        selector.set_params(
            discrete_features=read_discrete(columns.discrete, names, roles),
            feature_groups=read_groups(columns.feature_group or [], roles.arguments["features"]) or None,
            random_state=run.seed,
            n_jobs=run.jobs,
            progress=True,
            checkpoint=run.checkpoint,
            design=design,
        )
        yield Analysis(table, roles, selector, lines)


def _selector(
    method: options.Method, select: options.Select, effects: options.Effects, propensity: Any
) -> ModifierSelector:
    settings = _settings(method, select) | asdict(effects)
    own: dict[str, Any] = {"learner": method.learner, "cv_repeats": select.repeats, "check_resamples": select.check}
    plain = own.items() <= EffectLikelihood().get_params().items()
    if not plain and (select.preset or select.statistic != options.DEFAULT_STATISTIC):
        raise ValueError("--learner, --repeats and --check belong to --statistic effect_likelihood")
    if select.preset not in ("", "uai2022"):
        raise ValueError(f"--preset must be uai2022, not {select.preset!r}")
    if select.preset:
        if (select.statistic, method.sampler, propensity) != (options.DEFAULT_STATISTIC, "auto", "auto"):
            raise ValueError("--preset fixes the statistic, the sampler and the propensity; leave those options out")
        return uai2022(**settings)
    statistic = select.statistic if plain else EffectLikelihood(**own, device=select.device or "cpu")
    return ModifierSelector(statistic, method.sampler, propensity, **settings)


def _settings(method: options.Method, select: options.Select) -> dict[str, Any]:
    """What every selector is told, presets too."""
    resamples = select.resamples
    if resamples != "auto" and not resamples.isdigit():
        raise ValueError(f"--resamples must be auto or a whole number, not {resamples!r}")
    settings: dict[str, Any] = {} if resamples == "auto" else {"n_resamples": int(resamples)}
    shared = ("alpha", "adjust", "missing", "missing_outcome", "effect_scale")
    settings |= {name: getattr(method, name) for name in shared}
    settings |= {"device": select.device, "max_train_rows": method.train_rows, "outcome": method.outcome_kind}
    return settings | {"outcome_transform": "log" if method.log_outcome else None}


def until_interrupted(call: Callable[[], Any], found: Callable[[], Any], missing: str) -> tuple[Any, bool]:
    """What a call gives, or what was `found` of it when Ctrl-C came, and whether it came.

    Where nothing was, `missing` is what there was not yet.
    """
    try:
        return call(), False
    except KeyboardInterrupt:
        if found() is None:
            print(f"modifind: interrupted before {missing}; nothing was written", file=sys.stderr)
            raise
        return found(), True

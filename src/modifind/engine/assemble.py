"""From what was found of every feature to one result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind._workers import WORKER_DIED
from modifind.data.feature_matrix import Kind
from modifind.engine.change_tests import Changes
from modifind.engine.record import hand_on, installed_versions
from modifind.engine.testers import Outcome
from modifind.explain.attempts import attempt, described
from modifind.explain.column_bounds import Bounds
from modifind.explain.marginal import MarginalView
from modifind.explain.verdict import verdict
from modifind.explain.views import no_curve
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import Calibration
from modifind.result.checks import cautions, concerns, run_checks
from modifind.result.selection_result import CHANGE_COLUMNS, PARTS, PIT_COLUMNS, SelectionResult, no_changes, no_scores

# Held-out share of a feature's distribution that the others explain, above which the data cannot tell it from them.
# What little is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the
# sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
MODIFIER, PROGNOSTIC = "modifier", "prognostic"
MOST_DENSITIES = 100  # features; a result of thousands would be too large to save
NO_SAMPLER = Calibration("none", float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Finding:
    """What is known of one feature; an outcome of None means that it could not be tested.

    A group of columns has the view of its most important column, and in `views` those of all by the column's name.

    Attributes
    ----------
    failure : str
        Why the test came to no end, empty where it did.
    reached : bool
        False for a feature whose turn did not come before the run was interrupted.
    bounds : dict of Bounds
        Bounds on the distribution of the effect by column; None where there are none.
    changes : Changes, optional
        P-values of what the feature changes.
    """

    view: MarginalView
    outcome: Outcome | None
    calibration: Calibration
    messages: tuple[str, ...] = ()
    views: Mapping[str, MarginalView] | None = None
    failure: str = ""
    reached: bool = True
    bounds: Mapping[str, Bounds] | None = None
    changes: Changes | None = None

    @property
    def untestable(self) -> str | None:
        """Why the feature was not tested, if it was not: the name of a check."""
        if self.outcome is not None:
            return None
        if not self.reached:
            return "unreached"
        if self.failure:
            return "failed"
        return "constant" if self.calibration.sampler == NO_SAMPLER.sampler else "determined"


_NOT_SEEN = MarginalView(float("nan"), float("nan"), no_curve())
UNTESTED = Finding(_NOT_SEEN, None, NO_SAMPLER, reached=False)
DIED = Finding(_NOT_SEEN, None, NO_SAMPLER, failure=WORKER_DIED)


def failed(error: Exception) -> Finding:
    """What is known of a feature whose test ended in an error.

    Examples
    --------
    >>> failed(MemoryError("no 8 GB")).failure
    'its test failed (MemoryError: no 8 GB)'
    """
    return replace(DIED, failure=f"its test failed ({described(error)})")


def tell(names: tuple[str, ...], findings: list[Finding]) -> None:
    """Hand on what workers were warned of, and name the features whose test came to no end."""
    hand_on([finding.messages for finding in findings])
    _warn_failed(names, findings)


def _warn_failed(names: tuple[str, ...], findings: list[Finding]) -> None:
    """Name the features whose test came to no end, and how many were not reached."""
    for failure in dict.fromkeys(f.failure for f in findings if f.failure):
        named = [repr(name) for name, f in zip(names, findings, strict=True) if f.failure == failure]
        many = f"{len(named)} features" if len(named) > 1 else "feature"
        warnings.warn(f"{many} {', '.join(named)}: {failure}; not tested, p = 1", UserWarning, stacklevel=4)
    n_tested = sum(f.reached for f in findings)
    if n_tested < len(findings):
        warnings.warn(f"interrupted: {n_tested} of {len(findings)} features tested", UserWarning, stacklevel=4)


def assemble(
    names: tuple[str, ...],
    kinds: list[Kind] | list[Kind | Literal["group"]],
    findings: list[Finding],
    alpha: float,
    adjust: str,
    overlap: dict[str, float],
    settings: dict[str, Any],
    messages: tuple[str, ...],
    named: frozenset[str] = frozenset(),
    overall: Mapping[str, float] | None = None,
    score_histogram: pd.DataFrame | None = None,
    columns: pd.DataFrame | None = None,
) -> SelectionResult:
    """The result of a fit, from what was found of every feature.

    Features in `named` cannot be tested, as one of the messages says. Bounds are those of features whose p-value is at
    most `alpha`, whatever the level was when they were found. `columns` has what columns were looked at for, see
    `review_columns`; a group of columns has the worst of its columns.
    """
    index = pd.Index(names, name="feature")
    p_values = np.array([1.0 if f.outcome is None else f.outcome.p_value for f in findings])
    reached = np.array([f.reached for f in findings])
    # Features that were not reached count as p = 1: what is selected among the others would be selected in any case.
    adjusted = np.where(reached, adjust_p_values(p_values, adjust), np.nan)
    p_values = np.where(reached, p_values, np.nan)
    if not reached.all():
        settings = {**settings, "n_tested": int(reached.sum()), "interrupted": True}
    table = {
        "kind": kinds,
        "importance": [f.view.importance for f in findings],
        "statistic": _column(findings, "statistic"),
        "p_value": p_values,
        "p_adjusted": adjusted,
        "selected": adjusted <= alpha,
    }
    diagnostics = pd.DataFrame([asdict(f.calibration) for f in findings], index=index).drop(columns="pit_histogram")
    if settings["model"] is not None:
        table["likelihood_gain"] = _column(findings, "gain")
        table["gain_low"] = _column(findings, "gain_low")
        table["gain_high"] = _column(findings, "gain_high")
        tails = ("likelihood_p_value", "tail_p_value", "prognostic_p_value", "normal_p_value", "check_p_value")
        for name in (*tails, "checked_p_value", "conditional_p_value", "n_repeats", "z_spread"):
            diagnostics[name] = _column(findings, name)
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = [0 if f.outcome is None else getattr(f.outcome, name) for f in findings]
    diagnostics["bandwidth"] = [f.view.bandwidth for f in findings]
    if columns is not None:
        diagnostics = diagnostics.join(_reviewed(names, columns, settings))
    features = pd.DataFrame(table, index=index)
    features.insert(list(table).index("selected") + 1, "role", _roles(adjusted <= alpha, diagnostics, alpha, adjust))
    untestable = {name: f.untestable for name, f in zip(names, findings, strict=True) if f.untestable is not None}
    for name, kind in zip(names, kinds, strict=True):
        if name in named and kind == "discrete" and untestable.get(name) == "constant":
            untestable[name] = "rare"  # pooling has left one level, as a message says
    untested = None if columns is None else columns.loc[list(settings.get("adjust_for") or ())]
    checks = run_checks(features, diagnostics, overlap, settings, untestable, untested)
    features["caution"] = cautions(checks, names)
    views = {name: dict(f.views or {name: f.view}) for name, f in zip(names, findings, strict=True)}
    by_column = {column: view for own in views.values() for column, view in own.items()}
    shown = (f.bounds or {} for f, p_value in zip(findings, p_values, strict=True) if p_value <= alpha)
    bounds = {column: own for found in shown for column, own in found.items()}
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={column: view.curve for column, view in by_column.items()},
        overlap=overlap,
        settings=settings,
        versions=installed_versions(),
        warnings=(*messages, *concerns(checks, named)),
        checks=checks,
        overall=overall or {},
        densities=_densities(features, views),
        bounds={column: own.table for column, own in bounds.items()},
        bound_tests={column: own.tests for column, own in bounds.items()},
        score_histogram=no_scores() if score_histogram is None else score_histogram,
        pit_histogram=_pit_histogram(index, findings),
        changes=_changes(features, findings, views, alpha, adjust, settings),
    )


def _reviewed(names: tuple[str, ...], columns: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """What every feature was looked at for; a group has what is worst of its columns."""
    given = settings.get("feature_groups")
    groups, rows = given if isinstance(given, Mapping) else {}, []  # without groups the argument as it was written
    for name in names:
        own = columns.loc[list(groups.get(name, [name]))]
        outside, differs = own["outside_share"].argmax(), int(own["arm_p_value"].fillna(1.0).to_numpy().argmin())
        worst = own.max(numeric_only=True).to_dict()
        worst |= {"outside_where": own["outside_where"].iloc[outside]}
        rows.append(worst | {part: own[part].iloc[differs] for part in ("arm_difference", "arm_p_value")})
    return pd.DataFrame(rows, index=pd.Index(names, name="feature"), columns=list(columns.columns))


def _roles(selected: Any, diagnostics: pd.DataFrame, alpha: float, adjust: str) -> list[str]:
    """What each feature is: a modifier, one that predicts the outcome without a difference found, or neither."""
    prognostic = np.zeros(len(diagnostics), dtype=bool)
    if "prognostic_p_value" in diagnostics:
        p_values = diagnostics["prognostic_p_value"].to_numpy(dtype=np.float64)
        prognostic = adjust_p_values(np.where(np.isnan(p_values), 1.0, p_values), adjust) <= alpha
    pairs = zip(selected, prognostic, strict=True)
    return [MODIFIER if chosen else PROGNOSTIC if predicts else "" for chosen, predicts in pairs]


def _densities(features: pd.DataFrame, views: Mapping[str, Mapping[str, MarginalView]]) -> dict[str, pd.DataFrame]:
    """Densities of all features, or of the most significant of many, in the order of the table."""
    first = features.sort_values(["p_value", "importance"], ascending=[True, False]).index[:MOST_DENSITIES]
    kept = features.index[features.index.isin(first) | features["selected"]]
    found = {column: view.densities for name in kept for column, view in views[name].items()}
    return {column: shown for column, shown in found.items() if shown is not None}


def _changes(
    features: pd.DataFrame,
    findings: list[Finding],
    views: Mapping[str, Mapping[str, MarginalView]],
    alpha: float,
    adjust: str,
    settings: Mapping[str, Any],
) -> pd.DataFrame:
    """What each feature changes; nothing where that was not tested at all."""
    if all(f.changes is None for f in findings):
        return no_changes()
    found: dict[str, Any] = {}
    for part in PARTS:
        p_values = np.array([float("nan") if f.changes is None else getattr(f.changes, part) for f in findings])
        known = ~np.isnan(p_values)
        found[f"{part}_p"] = p_values
        # As in the table, what could not be tested counts as p = 1.
        found[f"{part}_adjusted"] = np.where(known, adjust_p_values(np.where(known, p_values, 1.0), adjust), np.nan)
    changes = pd.DataFrame(found, index=features.index, columns=list(CHANGE_COLUMNS)[:-1])
    kinds = {**features["kind"].to_dict(), **settings.get("group_column_kinds", {})}
    densities = [view.densities for own in views.values() for view in own.values() if view.densities is not None]
    outcomes = sorted(densities[0]["outcome"].unique()) if densities and _is_binary(settings) else []
    changes["verdict"] = [
        attempt(
            f"feature {name!r}: its verdict",
            verdict,
            {column: view.curve for column, view in views[name].items()},
            changes.loc[name],
            percentiles={column: view.percentiles for column, view in views[name].items()},
            kinds=kinds,
            alpha=alpha,
            selected=bool(features.loc[name, "selected"]),
            tested=f.outcome is not None,
            log_outcome=settings.get("outcome_transform") == "log",
            two_values=outcomes,
        )
        or ""
        for name, f in zip(features.index, findings, strict=True)
    ]
    return changes


def _is_binary(settings: Mapping[str, Any]) -> bool:
    return (settings["model"] or {}).get("likelihood") == "bernoulli"


def _column(findings: list[Finding], name: str) -> list[float]:
    """One number of every outcome; NaN where a feature could not be tested."""
    return [float("nan") if f.outcome is None else getattr(f.outcome, name) for f in findings]


def _pit_histogram(index: pd.Index[Any], findings: list[Finding]) -> pd.DataFrame:
    """Tenths of the probability integral transform of every feature; NaN where there is none."""
    none = (float("nan"),) * len(PIT_COLUMNS)
    shares = [f.calibration.pit_histogram or none for f in findings]
    return pd.DataFrame(shares, index=index, columns=list(PIT_COLUMNS), dtype=np.float64)

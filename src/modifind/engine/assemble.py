"""From what was found of every feature to one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind._warned import warn
from modifind._workers import WORKER_DIED
from modifind.data.feature_matrix import Kind
from modifind.engine.record import hand_on, installed_versions
from modifind.engine.testing import Changes, Outcome
from modifind.explain.attempts import attempt, described
from modifind.explain.column_bounds import Bounds
from modifind.explain.global_tests import with_features
from modifind.explain.marginal import MarginalView
from modifind.explain.overview import Overview
from modifind.explain.verdict import ShownColumn, verdict
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import Calibration
from modifind.result.checks import run_checks
from modifind.result.concerns import cautions, concerns
from modifind.result.effect_names import scale_of
from modifind.result.selection_result import (
    CHANGE_COLUMNS,
    NOT_TESTED,
    PARTS,
    PIT_COLUMNS,
    SelectionResult,
    no_changes,
)
from modifind.statistics.reuse import Reuse

# Held-out share of a feature's distribution that the others explain, above which the data cannot tell it from them.
# What little is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the
# sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
MODIFIER, PROGNOSTIC = "modifier", "prognostic"
MOST_DENSITIES = 100  # features; a result of thousands would be too large to save
NO_SAMPLER = Calibration("none", float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Examined:
    """What one worker finds of a unit before it is explained.

    Attributes
    ----------
    calibration : Calibration
        How well its distribution fits.
    rule : object
        Its distribution, where it is tested by other rows than those at hand; otherwise None.
    reuse : mapping of Reuse
        What folds share about it.
    outcome : AnalyticOutcome or CRTOutcome, optional
        Its test; None where it could not be tested, or not yet.
    changes : Changes, optional
        What it changes; None where that is not known yet.
    messages, failure
        What was warned of, and why it could not be examined.
    """

    calibration: Calibration = NO_SAMPLER
    rule: Any = None
    reuse: Mapping[str, Reuse] = field(default_factory=dict)
    outcome: Outcome | None = None
    changes: Changes | None = None
    messages: tuple[str, ...] = ()
    failure: str = ""


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


@dataclass(frozen=True)
class Found:
    """What the tests of a table found.

    Attributes
    ----------
    names, kinds : tuple of str, list
        Features and groups, and what they are.
    findings : list of Finding
        What was found of each.
    named : frozenset of str
        Features that cannot be tested, as a warning has said.
    overlap : dict
        How far the arms overlap.
    overview : Overview
        What is said of all rows together.
    score_histogram : DataFrame
        Propensity scores by arm.
    columns : DataFrame
        What every column was looked at for; see `review_columns`. A group of columns has the worst of its columns.
    """

    names: tuple[str, ...]
    kinds: Sequence[Kind | Literal["group"]]
    findings: list[Finding]
    named: frozenset[str]
    overlap: dict[str, float]
    overview: Overview
    score_histogram: pd.DataFrame
    columns: pd.DataFrame


_NOT_SEEN = MarginalView(float("nan"), float("nan"))
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


def failure_of(error: Exception, name: str) -> str:
    """Why a feature could not be tested; an error that the user can mend is raised again instead, with its name."""
    mendable = isinstance(error, ValueError) and not isinstance(error, np.linalg.LinAlgError)
    if isinstance(error, Warning) or (mendable and repr(name) in str(error)):
        raise error
    if mendable:
        raise ValueError(f"feature {name!r}: {error}") from error
    return failed(error).failure


def tell(names: tuple[str, ...], findings: list[Finding]) -> None:
    """Hand on what workers were warned of, and name the features whose test came to no end or was not reached."""
    hand_on([finding.messages for finding in findings])
    for failure in dict.fromkeys(f.failure for f in findings if f.failure):
        named = [repr(name) for name, f in zip(names, findings, strict=True) if f.failure == failure]
        many = f"{len(named)} features" if len(named) > 1 else "feature"
        warn(f"{many} {', '.join(named)}: {failure}; not tested, p = 1")
    n_tested = sum(f.reached for f in findings)
    if n_tested < len(findings):
        warn(f"interrupted: {n_tested} of {len(findings)} features tested")


def assemble(
    found: Found, settings: dict[str, Any], messages: tuple[str, ...], alpha: float, adjust: str
) -> SelectionResult:
    """The result of a fit, from what was found of every feature.

    Bounds are those of features whose p-value is at most `alpha`, whatever the level was when they were found.
    """
    findings = found.findings
    n_tested = sum(f.reached for f in findings)
    if n_tested < len(findings):
        settings = {**settings, "n_tested": n_tested, "interrupted": True}
    diagnostics = _diagnostics(found, settings)
    features = _table(found, diagnostics, settings, alpha, adjust)
    untested = found.columns.loc[list(settings.get("adjust_for") or ())]
    checks = run_checks(features, diagnostics, found.overlap, settings, _untestable(found), untested)
    features["caution"] = cautions(checks, found.names)
    views = {name: dict(f.views or {name: f.view}) for name, f in zip(found.names, findings, strict=True)}
    bounds = _bounds(findings, features["p_value"] <= alpha)
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={column: view.curve for own in views.values() for column, view in own.items()},
        overlap=found.overlap,
        settings=settings,
        versions=installed_versions(),
        warnings=(*messages, *concerns(checks, found.named)),
        checks=checks,
        overall=found.overview.overall,
        tests=with_features(found.overview.tests, features["p_value"].fillna(1.0).to_numpy(dtype=np.float64)),
        subgroups=_subgroups(found.overview.subgroups, features),
        densities=_densities(features, views),
        bounds={column: own.table for column, own in bounds.items()},
        bound_tests={column: own.tests for column, own in bounds.items()},
        score_histogram=found.score_histogram,
        pit_histogram=_pit_histogram(features.index, findings),
        changes=_changes(features, findings, views, alpha, adjust, settings),
    )


def reselected(result: SelectionResult, adjusted: pd.Series[float], alpha: float, adjust: str) -> SelectionResult:
    """The same result with other adjusted p-values, such as those over several comparisons; what is said follows them.

    Parameters
    ----------
    result : SelectionResult
        As it is for itself.
    adjusted : Series
        Adjusted p-values of its features.
    alpha, adjust
        The level, and the adjustment of those tests that are adjusted over features alone.
    """
    table, changes = result.table.copy(), result.changes.copy()
    known = table["p_value"].notna()
    selected = known & (adjusted <= alpha)
    table["p_adjusted"] = adjusted.where(known)
    turned = [str(name) for name in table.index[selected != table["selected"]]]
    table["selected"] = selected
    table["role"] = _roles(selected, result.diagnostics, alpha, adjust)
    kind, scale = scale_of(result.settings)
    for name in turned if len(changes) else ():
        columns, row = result.groups.get(name, [name]), dict(zip(changes.columns, changes.loc[name], strict=True))
        changes.at[name, "verdict"] = verdict(
            {column: ShownColumn(result.curves[column], result.kind(column)) for column in columns},
            row,
            alpha=alpha,
            selected=bool(selected[name]),
            tested=row["verdict"] != NOT_TESTED,
            log_outcome=result.settings.get("outcome_transform") == "log",
            two_values=_two_values(result.densities, result.settings),
            kind=kind,
            effect_scale=scale,
        )
    return replace(result, table=table, changes=changes)


def _table(
    found: Found, diagnostics: pd.DataFrame, settings: Mapping[str, Any], alpha: float, adjust: str
) -> pd.DataFrame:
    """What each feature is and what its test says."""
    findings = found.findings
    p_values = np.array([1.0 if f.outcome is None else f.outcome.p_value for f in findings])
    reached = np.array([f.reached for f in findings])
    # Features that were not reached count as p = 1: what is selected among the others would be selected in any case.
    adjusted = np.where(reached, adjust_p_values(p_values, adjust), np.nan)
    table = {
        "kind": found.kinds,
        "importance": [f.view.importance for f in findings],
        "statistic": _column(findings, "statistic"),
        "p_value": np.where(reached, p_values, np.nan),
        "p_adjusted": adjusted,
        "selected": adjusted <= alpha,
        "role": _roles(adjusted <= alpha, diagnostics, alpha, adjust),
    }
    if settings["model"] is not None:
        table |= {"likelihood_gain": _column(findings, "gain")}
        table |= {name: _column(findings, name) for name in ("gain_low", "gain_high")}
    return pd.DataFrame(table, index=diagnostics.index)


def _diagnostics(found: Found, settings: Mapping[str, Any]) -> pd.DataFrame:
    """How well each feature's distribution fits, how its p-value came about, and what it was looked at for."""
    findings, index = found.findings, pd.Index(found.names, name="feature")
    diagnostics = pd.DataFrame([asdict(f.calibration) for f in findings], index=index).drop(columns="pit_histogram")
    if settings["model"] is not None:
        tails = ("likelihood_p_value", "direct_p_value", "prognostic_p_value", "normal_p_value", "check_p_value")
        for name in (*tails, "checked_p_value", "conditional_p_value", "n_repeats"):
            diagnostics[name] = _column(findings, name)
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = [0 if f.outcome is None else getattr(f.outcome, name) for f in findings]
    diagnostics["bandwidth"] = [f.view.bandwidth for f in findings]
    return diagnostics.join(_reviewed(found.names, found.columns, settings))


def _untestable(found: Found) -> dict[str, str]:
    """Why features were not tested: names of checks."""
    reasons = {}
    for name, kind, finding in zip(found.names, found.kinds, found.findings, strict=True):
        reason = finding.untestable
        if reason == "constant" and name in found.named and kind == "discrete":
            reason = "rare"  # pooling has left one level, as a message says
        if reason is not None:
            reasons[name] = reason
    return reasons


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


def _subgroups(known: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Effects by subgroup, with the p-value of the feature."""
    return known.assign(p_value=features["p_value"].reindex(known["feature"]).to_numpy(dtype=np.float64))


def _densities(features: pd.DataFrame, views: Mapping[str, Mapping[str, MarginalView]]) -> dict[str, pd.DataFrame]:
    """Densities of all features, or of the most significant of many, in the order of the table."""
    first = features.sort_values(["p_value", "importance"], ascending=[True, False]).index[:MOST_DENSITIES]
    kept = features.index[features.index.isin(first) | features["selected"]]
    found = {column: view.densities for name in kept for column, view in views[name].items()}
    return {column: shown for column, shown in found.items() if shown is not None}


def _bounds(findings: list[Finding], shown: Iterable[bool]) -> dict[str, Bounds]:
    """Bounds of the features that are shown, by column."""
    some = (f.bounds or {} for f, own in zip(findings, shown, strict=True) if own)
    return {column: bounds for own in some for column, bounds in own.items()}


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
    shown = {column: view.densities for own in views.values() for column, view in own.items()}
    outcomes, (kind, scale) = _two_values(shown, settings), scale_of(settings)
    changes["verdict"] = [
        attempt(
            f"feature {name!r}: its verdict",
            verdict,
            {
                column: ShownColumn(view.curve, kinds[column], tuple(view.percentiles))
                for column, view in views[name].items()
            },
            changes.loc[name],
            alpha=alpha,
            selected=bool(features.loc[name, "selected"]),
            tested=f.outcome is not None,
            log_outcome=settings.get("outcome_transform") == "log",
            two_values=outcomes,
            kind=kind,
            effect_scale=scale,
        )
        or ""
        for name, f in zip(features.index, findings, strict=True)
    ]
    return changes


def _two_values(densities: Mapping[str, pd.DataFrame | None], settings: Mapping[str, Any]) -> list[float]:
    """Both values of a binary outcome, none of any other."""
    if (settings["model"] or {}).get("likelihood") != "bernoulli":
        return []
    return next((sorted(own["outcome"].unique()) for own in densities.values() if own is not None), [])


def _column(findings: list[Finding], name: str) -> list[float]:
    """One number of every outcome; NaN where a feature could not be tested."""
    return [float("nan") if f.outcome is None else getattr(f.outcome, name) for f in findings]


def _pit_histogram(index: pd.Index[Any], findings: list[Finding]) -> pd.DataFrame:
    """Tenths of the probability integral transform of every feature; NaN where there is none."""
    none = (float("nan"),) * len(PIT_COLUMNS)
    shares = [f.calibration.pit_histogram or none for f in findings]
    return pd.DataFrame(shares, index=index, columns=list(PIT_COLUMNS), dtype=np.float64)

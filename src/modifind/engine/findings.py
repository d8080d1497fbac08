"""Findings about every feature of a run, and the result assembled from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind._warned import warn, warn_once
from modifind.data.features import Kind
from modifind.engine.record import installed_versions
from modifind.engine.sums import Changes, Outcome
from modifind.explain.bounds import Bounds
from modifind.explain.overview import Overview, attempt, with_features
from modifind.explain.verdict import ShownColumn, verdict
from modifind.explain.views import MarginalView
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import Calibration
from modifind.result.checks import run_checks
from modifind.result.concerns import cautions, concerns
from modifind.result.presentation import scale_of
from modifind.result.selection_result import (
    CHANGE_COLUMNS,
    NOT_TESTED,
    PARTS,
    PIT_COLUMNS,
    SelectionResult,
    by_significance,
    no_changes,
)
from modifind.statistics.row_terms import Reuse

NAN = float("nan")
NO_SAMPLER = Calibration("none", NAN, NAN, NAN)
MODIFIER, PROGNOSTIC = "modifier", "prognostic"
MAX_DENSITIES = 100  # features; a result of thousands would be too large to save
LIKELIHOOD_DIAGNOSTICS = (
    *("likelihood_p_value", "direct_p_value", "prognostic_p_value", "normal_p_value", "check_p_value"),
    *("checked_p_value", "conditional_p_value", "n_repeats"),
)
Views = Mapping[str, Mapping[str, MarginalView]]


@dataclass(frozen=True)
class Examination:
    """Test of a unit and what is needed to explain it, as one worker returns it.

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
        The warnings, and why it could not be examined.
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
    """Everything found about one feature; `outcome` is None if it could not be tested.

    A group of columns has the view of its most important column, and in `views` those of all its columns by name.

    Attributes
    ----------
    failure : str
        Why the test failed, empty where it did not.
    reached : bool
        False for a feature that the run had not come to when it was interrupted.
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
    def p_value(self) -> float:
        """The p-value; 1 if the feature could not be tested."""
        return 1.0 if self.outcome is None else self.outcome.p_value

    @property
    def untestable(self) -> str | None:
        """Name of the check that says why the feature was not tested; None if it was."""
        if self.outcome is not None:
            return None
        if not self.reached:
            return "unreached"
        if self.failure:
            return "failed"
        return "constant" if self.calibration.sampler == NO_SAMPLER.sampler else "determined"


UNTESTED = Finding(MarginalView(NAN, NAN), None, NO_SAMPLER, reached=False)


@dataclass(frozen=True)
class TableFindings:
    """Findings about all features of a table.

    Attributes
    ----------
    names, kinds : tuple of str, list
        Features and groups, and what they are.
    findings : list of Finding
        One for each.
    warned_of : frozenset of str
        Features that cannot be tested, as a warning has said.
    overlap : dict
        How far the arms overlap.
    overview : Overview
        Effects of all rows together.
    score_histogram : DataFrame
        Propensity scores by arm.
    columns : DataFrame
        Checks of every column; see `review_columns`. A group of columns has the worst of its columns.
    columns_in : tuple of str
        All columns of the table, tested or not.
    settings : dict
        What a result records beyond the selector's arguments.
    interrupted : bool
        Whether Ctrl-C came before the end.
    """

    names: tuple[str, ...]
    kinds: Sequence[Kind | Literal["group"]]
    findings: list[Finding]
    warned_of: frozenset[str]
    overlap: dict[str, float]
    overview: Overview
    score_histogram: pd.DataFrame
    columns: pd.DataFrame
    columns_in: tuple[str, ...]
    settings: dict[str, Any]
    interrupted: bool

    @property
    def n_reached(self) -> int:
        """Number of features that the run reached."""
        return sum(finding.reached for finding in self.findings)

    @property
    def by_name(self) -> dict[str, Finding]:
        """Findings by feature name."""
        return dict(zip(self.names, self.findings, strict=True))


def warn_of_findings(names: tuple[str, ...], findings: list[Finding]) -> None:
    """Reissue the warnings of workers, and warn of features whose test failed or was not reached."""
    warn_once(message for finding in findings for message in finding.messages)
    for failure in dict.fromkeys(finding.failure for finding in findings if finding.failure):
        failed = [repr(name) for name, finding in zip(names, findings, strict=True) if finding.failure == failure]
        many = f"{len(failed)} features" if len(failed) > 1 else "feature"
        warn(f"{many} {', '.join(failed)}: {failure}; not tested, p = 1")
    n_reached = sum(finding.reached for finding in findings)
    if n_reached < len(findings):
        warn(f"interrupted: {n_reached} of {len(findings)} features tested")


def assemble(
    found: TableFindings, settings: dict[str, Any], messages: tuple[str, ...], alpha: float, adjust: str
) -> SelectionResult:
    """Assemble the result of a fit from the findings about every feature.

    Bounds are kept for features with a p-value of at most `alpha`, whatever the level when they were computed.
    """
    findings = found.findings
    if found.n_reached < len(findings):
        settings = {**settings, "n_tested": found.n_reached, "interrupted": True}
    diagnostics = _diagnostics(found, settings)
    features = _table(found, diagnostics, settings, alpha, adjust)
    untested = found.columns.loc[list(settings.get("adjust_for") or ())]
    checks = run_checks(features, diagnostics, found.overlap, settings, _untestable(found), untested)
    features["caution"] = cautions(checks, found.names)
    views = {name: dict(finding.views or {name: finding.view}) for name, finding in found.by_name.items()}
    bounds = _bounds(findings, features["p_value"] <= alpha)
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={column: view.curve for by_column in views.values() for column, view in by_column.items()},
        overlap=found.overlap,
        settings=settings,
        versions=installed_versions(),
        warnings=(*messages, *concerns(checks, found.warned_of)),
        checks=checks,
        overall=found.overview.overall,
        tests=with_features(found.overview.tests, features["p_value"].fillna(1.0).to_numpy(dtype=np.float64)),
        subgroups=_subgroups(found.overview.subgroups, features),
        densities=_densities(features, views),
        bounds={column: shown.table for column, shown in bounds.items()},
        bound_tests={column: shown.tests for column, shown in bounds.items()},
        score_histogram=found.score_histogram,
        pit_histogram=_pit_histogram(features.index, findings),
        changes=_changes(features, findings, views, alpha, adjust, settings),
    )


def reselected(result: SelectionResult, adjusted: pd.Series[float], alpha: float, adjust: str) -> SelectionResult:
    """The same result with other adjusted p-values, such as over several comparisons, and updated verdicts.

    Parameters
    ----------
    result : SelectionResult
        The result by itself.
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
    scale = _verdict_scale(result.densities, result.settings)
    for name in turned if len(changes) else ():
        columns, row = result.groups.get(name, [name]), dict(zip(changes.columns, changes.loc[name], strict=True))
        shown = {column: ShownColumn(result.curves[column], result.kind(column)) for column in columns}
        tested = row["verdict"] != NOT_TESTED
        changes.at[name, "verdict"] = verdict(
            shown, row, alpha=alpha, selected=bool(selected[name]), tested=tested, **scale
        )
    return replace(result, table=table, changes=changes)


def _table(
    found: TableFindings, diagnostics: pd.DataFrame, settings: Mapping[str, Any], alpha: float, adjust: str
) -> pd.DataFrame:
    """Kind, test and role of each feature."""
    findings = found.findings
    p_values = np.array([finding.p_value for finding in findings])
    reached = np.array([finding.reached for finding in findings])
    # Features that were not reached count as p = 1: what is selected among the others would be selected in any case.
    adjusted = np.where(reached, adjust_p_values(p_values, adjust), np.nan)
    table = {
        "kind": found.kinds,
        "importance": [finding.view.importance for finding in findings],
        "statistic": _column(findings, "statistic"),
        "p_value": np.where(reached, p_values, np.nan),
        "p_adjusted": adjusted,
        "selected": adjusted <= alpha,
        "role": _roles(adjusted <= alpha, diagnostics, alpha, adjust),
    }
    if settings["model"] is not None:
        table["likelihood_gain"] = _column(findings, "gain")
        table |= {name: _column(findings, name) for name in ("gain_low", "gain_high")}
    return pd.DataFrame(table, index=diagnostics.index)


def _diagnostics(found: TableFindings, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Fit of each feature's distribution, details of its p-value, and the checks of its column."""
    findings, index = found.findings, pd.Index(found.names, name="feature")
    diagnostics = pd.DataFrame([asdict(f.calibration) for f in findings], index=index).drop(columns="pit_histogram")
    for name in LIKELIHOOD_DIAGNOSTICS if settings["model"] is not None else ():
        diagnostics[name] = _column(findings, name)
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = _column(findings, name, 0)
    diagnostics["bandwidth"] = [finding.view.bandwidth for finding in findings]
    return diagnostics.join(_reviewed(found.names, found.columns, settings))


def _column(findings: list[Finding], name: str, untested: float = NAN) -> list[float]:
    """One number from every outcome; `untested` for features that could not be tested."""
    return [untested if finding.outcome is None else getattr(finding.outcome, name) for finding in findings]


def _untestable(found: TableFindings) -> dict[str, str]:
    """Names of the checks that say why features were not tested."""
    reasons = {}
    for (name, finding), kind in zip(found.by_name.items(), found.kinds, strict=True):
        reason = finding.untestable
        if reason == "constant" and name in found.warned_of and kind == "discrete":
            reason = "rare"  # pooling has left one level, as a message says
        if reason is not None:
            reasons[name] = reason
    return reasons


def _reviewed(names: tuple[str, ...], columns: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """The checks of every feature's column; a group gets the worst of its columns."""
    given = settings.get("feature_groups")
    groups, rows = given if isinstance(given, Mapping) else {}, []  # without groups the argument as it was written
    for name in names:
        members = columns.loc[list(groups.get(name, [name]))]
        outside, differs = members["outside_share"].argmax(), int(members["arm_p_value"].fillna(1.0).argmin())
        worst = members.max(numeric_only=True).to_dict()
        worst |= {"outside_where": members["outside_where"].iloc[outside]}
        rows.append(worst | {column: members[column].iloc[differs] for column in ("arm_difference", "arm_p_value")})
    return pd.DataFrame(rows, index=pd.Index(names, name="feature"), columns=list(columns.columns))


def _roles(selected: Any, diagnostics: pd.DataFrame, alpha: float, adjust: str) -> list[str]:
    """Role of each feature: a modifier, prognostic without a detected modification, or neither."""
    prognostic = np.zeros(len(diagnostics), dtype=bool)
    if "prognostic_p_value" in diagnostics:
        prognostic = adjust_p_values(diagnostics["prognostic_p_value"].fillna(1.0).to_numpy(float), adjust) <= alpha
    pairs = zip(selected, prognostic, strict=True)
    return [MODIFIER if chosen else PROGNOSTIC if predicts else "" for chosen, predicts in pairs]


def _subgroups(known: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Effects by subgroup, with the p-value of the feature."""
    return known.assign(p_value=features["p_value"].reindex(known["feature"]).to_numpy(dtype=np.float64))


def _densities(features: pd.DataFrame, views: Views) -> dict[str, pd.DataFrame]:
    """Densities of all features, or of the most significant of many, in table order."""
    first = by_significance(features).index[:MAX_DENSITIES]
    kept = features.index[features.index.isin(first) | features["selected"]]
    shown = ((column, view.densities) for name in kept for column, view in views[name].items())
    return {column: densities for column, densities in shown if densities is not None}


def _bounds(findings: list[Finding], shown: Iterable[bool]) -> dict[str, Bounds]:
    """Bounds of the displayed features, by column."""
    some = (finding.bounds or {} for finding, is_shown in zip(findings, shown, strict=True) if is_shown)
    return {column: bounds for by_column in some for column, bounds in by_column.items()}


def _changes(
    features: pd.DataFrame,
    findings: list[Finding],
    views: Views,
    alpha: float,
    adjust: str,
    settings: Mapping[str, Any],
) -> pd.DataFrame:
    """What each feature changes; empty if that was not tested."""
    if all(finding.changes is None for finding in findings):
        return no_changes()
    columns: dict[str, Any] = {}
    for change in PARTS:
        p_values = np.array(
            [NAN if finding.changes is None else getattr(finding.changes, change) for finding in findings]
        )
        known = ~np.isnan(p_values)
        columns[f"{change}_p"] = p_values
        # As in the table, what could not be tested counts as p = 1.
        columns[f"{change}_adjusted"] = np.where(known, adjust_p_values(np.where(known, p_values, 1.0), adjust), np.nan)
    changes = pd.DataFrame(columns, index=features.index, columns=list(CHANGE_COLUMNS)[:-1])
    kinds = {**features["kind"].to_dict(), **settings.get("group_column_kinds", {})}
    densities = {column: view.densities for by_column in views.values() for column, view in by_column.items()}
    scale = _verdict_scale(densities, settings)
    verdicts = []
    for name, finding in zip(features.index, findings, strict=True):
        shown = {
            column: ShownColumn(view.curve, kinds[column], tuple(view.percentiles))
            for column, view in views[name].items()
        }
        state = {"selected": bool(features.loc[name, "selected"]), "tested": finding.outcome is not None}
        what = f"feature {name!r}: its verdict"
        verdicts.append(attempt(what, verdict, shown, changes.loc[name], alpha=alpha, **state, **scale) or "")
    changes["verdict"] = verdicts
    return changes


def _verdict_scale(densities: Mapping[str, pd.DataFrame | None], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of the outcome and its scale that verdicts need."""
    values: list[float] = []
    if (settings["model"] or {}).get("likelihood") == "bernoulli":
        values = next((sorted(shown["outcome"].unique()) for shown in densities.values() if shown is not None), [])
    kind, effect_scale = scale_of(settings)
    log_outcome = settings.get("outcome_transform") == "log"
    return {"log_outcome": log_outcome, "two_values": values, "kind": kind, "effect_scale": effect_scale}


def _pit_histogram(index: pd.Index[Any], findings: list[Finding]) -> pd.DataFrame:
    """Deciles of the probability integral transform of every feature; NaN if unavailable."""
    shares = [finding.calibration.pit_histogram or (NAN,) * len(PIT_COLUMNS) for finding in findings]
    return pd.DataFrame(shares, index=index, columns=list(PIT_COLUMNS), dtype=np.float64)

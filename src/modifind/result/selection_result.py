"""The result of a fit: frozen, serialisable, complete."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from modifind.data.words import counted
from modifind.result.checks import as_frame
from modifind.result.concerns import concerns, control_sentence
from modifind.result.files import ColumnType, decode, encode, parse_json, write_text
from modifind.result.placebo_result import PlaceboResult
from modifind.result.presentation import as_html, as_latex, as_markdown, merged_texts, safe_csv
from modifind.result.settings import Settings, check_consistency

FAMILY = "modifind-result-"
FORMAT = f"{FAMILY}1"
PARTS = ("mean", "spread", "shape")
# Columns that tables must have, with the types of their values.
Columns = dict[str, ColumnType | None]
TABLE_COLUMNS: Columns = {
    **{"kind": "text", "importance": "float", "statistic": "float"},
    **{"p_value": "float", "p_adjusted": "float", "selected": "bool"},
}
CHECK_COLUMNS: Columns = {
    **{"name": "text", "feature": None, "value": "float", "threshold": "float", "passed": "bool"},
    **{"validity": "bool", "text": "text", "remedy": "text"},
}
CHANGE_COLUMNS: Columns = {**{f"{part}_{of}": "float" for of in ("p", "adjusted") for part in PARTS}, "verdict": "text"}
TEST_COLUMNS: Columns = {"statistic": "float", "p_value": "float", "method": "text"}
SUBGROUP_COLUMNS: Columns = {
    **{"feature": "text", "column": "text", "level": "text", "n_treated": "int", "n_control": "int"},
    **dict.fromkeys(("effect", "low", "high", "se", "df", "p_value"), "float"),
}
SCORE_COLUMNS: Columns = dict.fromkeys(("low", "high", "treated", "control"), "float")
PIT_COLUMNS: Columns = {f"{tenth / 10:.1f}": "float" for tenth in range(10)}
CURVE_COLUMNS: Columns = {"value": None, "d2": "float", "mean_effect": "float", "sd_ratio": "float"}
DENSITY_COLUMNS: Columns = {"value": None, **dict.fromkeys(("outcome", "treated", "control", "witness"), "float")}
BOUND_COLUMNS: Columns = {
    "value": None,
    **{f"{name}_{end}": "float" for name in ("var", "sd", "corr", "benefit") for end in ("low", "high")},
}
BOUND_TEST_COLUMNS: Columns = {"quantity": "text", "part": "text", "p_value": "float"}


def no_changes() -> pd.DataFrame:
    """An empty table of changes."""
    return _empty(CHANGE_COLUMNS, "feature")


def no_tests() -> pd.DataFrame:
    """An empty table of tests."""
    return _empty(TEST_COLUMNS, "test")


def no_subgroups() -> pd.DataFrame:
    """An empty table of subgroups."""
    return _empty(SUBGROUP_COLUMNS)


def no_scores() -> pd.DataFrame:
    """An empty histogram of propensity scores."""
    return _empty(SCORE_COLUMNS)


def _empty(columns: Columns, index_name: str | None = None) -> pd.DataFrame:
    index = pd.Index([], dtype=object, name=index_name)
    types = {name: np.float64 if kind == "float" else object for name, kind in columns.items()}
    return pd.DataFrame({name: np.empty(0, dtype=dtype) for name, dtype in types.items()}, index=index)


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """Result of a `ModifierSelector`.

    Attributes
    ----------
    table : DataFrame
        One row per feature: kind, importance, statistic, p_value, p_adjusted, selected and role: "modifier" for a
        selected feature, "prognostic" for one that predicts the outcome without a difference between the arms being
        found (by a held-out likelihood test, adjusted over features), else empty. The effect-likelihood test adds
        likelihood_gain, the mean log-likelihood gain per row in nats, with its 95% interval gain_low to gain_high.
        The last column, caution, says in a few words which checks of the feature failed; mostly it is empty.
    diagnostics : DataFrame
        One row per feature: the sampler used and its held-out calibration, resamples drawn.
    curves : dict of DataFrame
        Effect curves by column; see `curve`.
    overlap : dict
        How comparable the arms are: effective sample sizes after inverse probability weighting
        (`effective_rows_...`) and in the overlap population (`overlap_rows_...`); the share of its rows that have no
        counterpart (`outside_share_...`), and so on.
    settings : dict
        Every setting, the seed, the treatment labels and the size of the data.
    versions : dict
        Versions of modifind and its dependencies.
    warnings : tuple of str
        What the user was warned of during the fit.
    checks : DataFrame
        One row per check: name, feature (None for the table as a whole), value, threshold, passed, validity (whether it
        decides `ok` or is a note), a text that says what was found and why it matters, and the remedy where it failed.
    changes : DataFrame
        What each feature changes: raw p-values `mean_p`, `spread_p` and `shape_p`, the same adjusted over features
        (`mean_adjusted`, ...) and a `verdict` of one sentence. Empty where features were not explained.
    densities : dict of DataFrame
        Outcome densities of both arms and the witness function at a few values of each column; see `density`.
    bounds, bound_tests : dict of DataFrame
        Bounds on the distribution of the effect along a column and tests of whether they change, see `effect_bounds`
        and `bounds_test`; of the columns whose p-value is at most alpha.
    tests : DataFrame
        Tests of the table as a whole, with `statistic`, `p_value` and `method`. "mean": the treatment changes the
        average outcome (the average effect in standard errors). "distribution": it changes the distribution of the
        outcome (the squared distance between the arms' distributions, in units of what chance alone would give).
        "modification": some feature modifies the effect. The first two are missing where nothing was explained.
    subgroups : DataFrame
        The average effect in every subgroup, adjusted for all features: one row for each level of a category, quarter
        of a number and set of rows without a value. `feature`, `column` (another name for a column of a group),
        `level`, `n_treated`, `n_control`, `effect` with its 95% limits `low` and `high`, standard error `se` and
        degrees of freedom `df`, and the p-value of the feature. Where effects are ratios, `se` is that of the
        logarithm. For a category with very many levels, the largest.
    overall : dict
        The effects of a curve, and their limits, for all rows together, or for the overlap population where
        ``settings["population"]`` says so.
    score_histogram : DataFrame
        Shares of each arm (`treated`, `control`) whose propensity score lies between `low` and `high`.
    pit_histogram : DataFrame
        One row per feature: shares of the rows by tenths of the probability integral transform of the feature's
        distribution, each 0.1 where the distribution is right. Missing for discrete features.
    placebo : PlaceboResult, optional
        What the same analysis found with placebo treatments, if they were requested.
    by_arm : dict of SelectionResult, optional
        With several arms, the comparison of each with the reference, by label: see `contrast`. The table then says
        whether a feature modifies any of them, and in `arms` which; importance and statistic are those of the
        comparison with the smallest p-value, and curves, changes, bounds and checks are those of the comparisons.

    Examples
    --------
    >>> from modifind import EffectLikelihood, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    >>> result = selector.fit(data.X, data.y, treatment=data.treatment).result_
    >>> sorted(result.selected)
    ['X1', 'X2', 'X3', 'X4', 'X5']
    >>> result.table.columns[:4].tolist()
    ['kind', 'importance', 'statistic', 'p_value']
    >>> result.curve("X1")[["value", "mean_effect"]].shape
    (25, 2)
    >>> result.ok, result.kind("X1")
    (True, 'continuous')
    """

    table: Annotated[pd.DataFrame, TABLE_COLUMNS]
    diagnostics: pd.DataFrame
    curves: Mapping[str, Annotated[pd.DataFrame, CURVE_COLUMNS]]
    overlap: Mapping[str, float]
    settings: Annotated[Mapping[str, Any], Settings]
    versions: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    checks: Annotated[pd.DataFrame, CHECK_COLUMNS] = field(default_factory=lambda: as_frame([]))
    changes: Annotated[pd.DataFrame, CHANGE_COLUMNS] = field(default_factory=no_changes)
    densities: Mapping[str, Annotated[pd.DataFrame, DENSITY_COLUMNS]] = field(default_factory=dict)
    bounds: Mapping[str, Annotated[pd.DataFrame, BOUND_COLUMNS]] = field(default_factory=dict)
    bound_tests: Mapping[str, Annotated[pd.DataFrame, BOUND_TEST_COLUMNS]] = field(default_factory=dict)
    overall: Mapping[str, float] = field(default_factory=dict)
    score_histogram: Annotated[pd.DataFrame, SCORE_COLUMNS] = field(default_factory=no_scores)
    pit_histogram: Annotated[pd.DataFrame, PIT_COLUMNS] = field(default_factory=lambda: _empty(PIT_COLUMNS))
    tests: Annotated[pd.DataFrame, TEST_COLUMNS] = field(default_factory=no_tests)
    subgroups: Annotated[pd.DataFrame, SUBGROUP_COLUMNS] = field(default_factory=no_subgroups)
    placebo: PlaceboResult | None = None
    by_arm: Mapping[str, SelectionResult] | None = None

    @property
    def contrasts(self) -> dict[str, pd.DataFrame]:
        """Tables like `table` for every arm against the reference, by label; empty with two arms.

        P-values are adjusted over features and arms: a feature that is not selected in `table` is selected in none of
        them.
        """
        return {label: result.table for label, result in (self.by_arm or {}).items()}

    def contrast(self, label: Any) -> SelectionResult:
        """The comparison of one arm with the reference, as a result of two arms."""
        by_arm = self.by_arm or {}
        if str(label) not in by_arm:
            raise ValueError(f"no contrast {str(label)!r}; available: {', '.join(map(repr, by_arm)) or 'none'}")
        return by_arm[str(label)]

    @property
    def ok(self) -> bool:
        """Whether every check that bears on validity passed.

        Notes, such as pooled levels, dropped rows or a feature that could not be tested, do not count.
        """
        return not self.cautions

    @property
    def cautions(self) -> list[str]:
        """Reasons to doubt the result: a text for every kind of failed check that bears on validity.

        If placebo treatments found more than chance allows, that comes last.
        """
        placebo = [] if self.placebo is None or not self.placebo.warning else [self.placebo.warning]
        return [*self.concerns(validity=True), *placebo]

    @property
    def notes(self) -> list[str]:
        """Further remarks: warnings of the fit and failed checks that do not bear on validity, without duplicates."""
        cautions = set(self.cautions)
        messages = (message for message in self.warnings if message not in cautions)
        return list(dict.fromkeys([*messages, *self.concerns(validity=False)]))

    def concerns(self, *, validity: bool | None = None) -> list[str]:
        """A text for every kind of failed check: those that bear on validity, those that do not, or both."""
        if self.by_arm is None:
            return concerns(self.checks, validity=validity)
        by_arm = {label: result.concerns(validity=validity) for label, result in self.by_arm.items()}
        return merged_texts(by_arm, self.settings["control_label"])

    @property
    def selected(self) -> list[str]:
        """Names of the selected features, most significant first."""
        return list(by_significance(self.table[self.table["selected"]]).index)

    def curve(self, feature: str) -> pd.DataFrame:
        """Effect along one feature: value, d2, mean_effect (on the scale of effects), sd_ratio and quantile effects.

        Parameters
        ----------
        feature : str
            Name of a feature, selected or not: a column, or a group of columns, whose curves then stand one above the
            other with their names in a leading "column".
        """
        feature = str(feature)
        columns = self.groups.get(feature, [])
        if columns and columns != [feature]:
            curves = [self.curves[column] for column in columns]
            stacked = pd.concat(curves, ignore_index=True)
            stacked.insert(0, "column", np.repeat(columns, [len(curve) for curve in curves]))
            return stacked
        self.two_arms("curves")
        if feature not in self.curves:
            raise ValueError(f"no feature {feature!r}; features are {', '.join(map(repr, self.table.index))}")
        return self.curves[feature].copy()

    def density(self, column: str) -> pd.DataFrame:
        """Outcome densities of both arms at a few values of one column.

        Returns
        -------
        DataFrame
            For every `value` of the feature and every `outcome`: the densities `treated` and `control`, the `witness`
            function (where it is above zero, outcomes are more common under treatment), each with `_low` and `_high`,
            and `low_support`. Of an outcome with few distinct values, these are shares.
        """
        self.two_arms("densities")
        if str(column) not in self.densities:
            raise ValueError(
                f"no densities of {str(column)!r}; available: {', '.join(map(repr, self.densities)) or 'none'}"
            )
        return self.densities[str(column)].copy()

    def two_arms(self, what: str) -> SelectionResult:
        """Return the result itself; raise a ValueError for several arms, where only contrasts have `what`."""
        if self.by_arm:
            label = next(iter(self.by_arm))
            raise ValueError(f"{what} are those of a contrast; use contrast({label!r}) of the result")
        return self

    def kind(self, column: str) -> str:
        """Kind of a column, "continuous" or "discrete", including columns tested in a group."""
        in_groups = self.settings.get("group_column_kinds", {})
        return str(in_groups[column] if column in in_groups else self.table.loc[column, "kind"])

    @property
    def groups(self) -> dict[str, list[str]]:
        """Columns of every feature group by its name."""
        return dict(self.settings.get("feature_groups") or {})

    @property
    def selected_columns(self) -> list[str]:
        """Columns of the selected features, most significant first; columns of a group are in table order."""
        return [column for name in self.selected for column in self.groups.get(name, [name])]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of lists, strings and numbers."""
        return {"format": FORMAT, **encode(self, SelectionResult)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SelectionResult:
        """Inverse of `to_dict`; raises a ValueError that names the invalid entry of `data`.

        Examples
        --------
        >>> SelectionResult.from_dict({"format": "modifind-result-7"})
        Traceback (most recent call last):
        ...
        ValueError: this result was written by another version of modifind, in the format 'modifind-result-7'; ...
        """
        version = data.get("format") if isinstance(data, Mapping) else None
        if not isinstance(version, str) or not version.startswith(FAMILY):
            raise ValueError(f"this is not a modifind result: expected format {FORMAT!r}")
        if version != FORMAT:
            raise ValueError(
                f"this result was written by another version of modifind, in the format {version[:40]!r}; this version "
                f"reads {FORMAT!r}. Open it with the version that wrote it, or repeat the fit with this one"
            )
        result: SelectionResult = decode({name: part for name, part in data.items() if name != "format"}, cls)
        check_consistency(result)
        return result

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the complete result to a JSON file, atomically."""
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> SelectionResult:
        """Read a result written by `to_json`, without loss."""
        content = Path(path).read_bytes()
        try:
            return cls.from_dict(parse_json(content))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table of features as CSV, atomically; several arms add columns for each contrast.

        Text that a spreadsheet would take for a formula gets a leading apostrophe.
        """
        write_text(path, safe_csv(self.wide_table))

    @property
    def wide_table(self) -> pd.DataFrame:
        """The table; with several arms also importance, p-values and selection of each contrast."""
        parts: list[Any] = [
            table[["importance", "p_value", "p_adjusted", "selected"]].add_suffix(f" ({label})")
            for label, table in self.contrasts.items()
        ]
        return self.table.join(parts) if parts else self.table

    def summary(self) -> pd.DataFrame:
        """The table of features for a paper, most significant first: p-values and what each feature changes."""
        rows = by_significance(self.table)
        shown = pd.DataFrame({"p": rows["p_value"].map(readable_p), "adjusted p": rows["p_adjusted"].map(readable_p)})
        if self.settings["adjust"] == "none":
            shown = shown.drop(columns="adjusted p")
        verdicts = self.changes["verdict"].reindex(rows.index) if len(self.changes) else None
        plain = np.where(rows["selected"], "Changes the effect.", "No change found.")
        shown["what changes"] = plain if verdicts is None else np.where(verdicts.fillna("") == "", plain, verdicts)
        by_arm = self.by_arm or {}
        sentences = {label: result.summary()["what changes"] for label, result in by_arm.items()}
        for name in self.selected if by_arm else ():
            chosen = [label for label, result in by_arm.items() if bool(result.table.loc[name, "selected"])]
            combined = " ".join(f"{label}: {sentences[label].to_dict()[name]}" for label in chosen)
            shown.at[name, "what changes"] = combined or "Changes the effect."
        return shown.rename_axis("feature")

    def to_markdown(self) -> str:
        """Format `summary` as Markdown, with a line below it if error rates are not controlled."""
        doubt = control_sentence(self.settings)
        return as_markdown(self.summary()) + (f"\n\n{doubt[0].upper()}{doubt[1:]}." if doubt else "")

    def to_latex(self) -> str:
        """Format `summary` as LaTeX, for the package booktabs."""
        return as_latex(self.summary())

    def _repr_html_(self) -> str:
        """The headline and the table of `summary` for notebooks."""
        headline = import_module("modifind.report").headline(self)
        doubt = control_sentence(self.settings)
        headline += f" However, {doubt}." if doubt else ""
        return f"<p><b>{escape(headline)}</b></p>{as_html(self.summary(), set(self.selected))}"

    @property
    def plot(self) -> Any:
        """Figures by name, ``result.plot.curve("age")``: see `modifind.charts.PlotAccessor`."""
        return import_module("modifind.charts").PlotAccessor(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML report."""
        write_text(path, import_module("modifind.report").render_report(self))

    def __eq__(self, other: object) -> bool:
        """Whether every number, label and setting is equal."""
        return self.to_dict() == other.to_dict() if isinstance(other, SelectionResult) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        chosen = ", ".join(self.selected) or "none"
        arms = f"{counted(len(self.by_arm), 'contrast')}, " if self.by_arm else ""
        return f"SelectionResult({arms}{counted(len(self.table), 'feature')}, selected: {chosen})"


def by_significance(table: pd.DataFrame) -> pd.DataFrame:
    """Sort features by p-value, and ties by importance."""
    return table.sort_values(["p_value", "importance"], ascending=[True, False])


def readable_p(p_value: float) -> str:
    """A p-value as journals print it.

    Examples
    --------
    >>> [readable_p(p) for p in (0.0000123, 0.0471, 0.853, 1.0, float("nan"))]
    ['<0.001', '0.047', '0.85', '>0.99', 'not tested']
    """
    if math.isnan(p_value):
        return "not tested"
    if p_value < 0.001:
        return "<0.001"
    return ">0.99" if p_value > 0.99 else f"{p_value:.{3 if p_value < 0.0995 else 2}f}"


def p_text(p_value: float, name: str = "p") -> str:
    """A named p-value for use in a sentence.

    Examples
    --------
    >>> p_text(0.03), p_text(1e-7), p_text(0.4, "adjusted p")
    ('p = 0.030', 'p < 0.001', 'adjusted p = 0.40')
    """
    shown = readable_p(p_value)
    return f"{name} {shown[0]} {shown[1:]}" if shown[0] in "<>" else f"{name} = {shown}"


NOT_TESTED = "Not tested."

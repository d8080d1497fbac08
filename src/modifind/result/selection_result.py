"""What a fit found: frozen, serialisable, complete."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.wording import counted
from modifind.result.checks import as_frame, concerns
from modifind.result.placebo_result import PlaceboResult
from modifind.result.safe_csv import safe_csv
from modifind.result.schema import BY_COLUMN, FORMAT, OPTIONAL_FRAMES, parse_json, validate
from modifind.result.writing import write_text

PARTS = ("mean", "spread", "shape")
CHANGE_COLUMNS = (*(f"{part}_p" for part in PARTS), *(f"{part}_adjusted" for part in PARTS), "verdict")
SCORE_COLUMNS = ("low", "high", "treated", "control")
PIT_COLUMNS = tuple(f"{tenth / 10:.1f}" for tenth in range(10))


def no_changes() -> pd.DataFrame:
    """What is known of changes where none were tested."""
    return _empty(CHANGE_COLUMNS, "feature").astype({"verdict": object})


def no_scores() -> pd.DataFrame:
    """A histogram of propensity scores where none was made."""
    return _empty(SCORE_COLUMNS)


def _empty(columns: tuple[str, ...], index_name: str | None = None) -> pd.DataFrame:
    return pd.DataFrame({name: np.empty(0) for name in columns}, index=pd.Index([], dtype=object, name=index_name))


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
        How comparable the arms are: rows that each is worth after weighting, by the inverse of the chance to be in it
        (`effective_rows_...`) and in the overlap population (`overlap_rows_...`); the share of its rows that have no
        counterpart (`outside_share_...`), and so on.
    settings : dict
        Every setting, the seed, the treatment labels and the size of the data.
    versions : dict
        Versions of modifind and what it stands on.
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
    overall : dict
        The effects of a curve, and their limits, for all rows together, or for the overlap population where
        ``settings["population"]`` says so.
    score_histogram : DataFrame
        Shares of each arm (`treated`, `control`) whose propensity score lies between `low` and `high`.
    pit_histogram : DataFrame
        One row per feature: shares of the rows by tenths of the probability integral transform of the feature's
        distribution, each 0.1 where the distribution is right. Missing for discrete features.
    placebo : PlaceboResult, optional
        What the same analysis found with placebo treatments, where they were asked for.
    """

    table: pd.DataFrame
    diagnostics: pd.DataFrame
    curves: Mapping[str, pd.DataFrame]
    overlap: Mapping[str, float]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    checks: pd.DataFrame = field(default_factory=lambda: as_frame([]))
    changes: pd.DataFrame = field(default_factory=no_changes)
    densities: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    bounds: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    bound_tests: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    overall: Mapping[str, float] = field(default_factory=dict)
    score_histogram: pd.DataFrame = field(default_factory=no_scores)
    pit_histogram: pd.DataFrame = field(default_factory=lambda: _empty(PIT_COLUMNS))
    placebo: PlaceboResult | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing puts the answer in doubt: every check that bears on validity passed.

        Notes, such as pooled levels, rows that were left out or a feature that could not be tested, do not count.
        """
        return not self.cautions

    @property
    def cautions(self) -> list[str]:
        """What puts the answer in doubt: a text for every kind of check that bears on validity and failed.

        Where placebo treatments found more than chance allows, that is the last.
        """
        placebo = [] if self.placebo is None or not self.placebo.warning else [self.placebo.warning]
        return [*concerns(self.checks, validity=True), *placebo]

    @property
    def notes(self) -> list[str]:
        """What else there is to know: warnings of the fit and checks that do not bear on validity, each once."""
        cautions = set(self.cautions)
        told = (message for message in self.warnings if message not in cautions)
        return list(dict.fromkeys([*told, *concerns(self.checks, validity=False)]))

    @property
    def selected(self) -> list[str]:
        """Names of the selected features, most significant first."""
        chosen = self.table[self.table["selected"]]
        return list(chosen.sort_values(["p_value", "importance"], ascending=[True, False]).index)

    def curve(self, feature: str) -> pd.DataFrame:
        """Effect along one feature: value, d2, mean_effect, sd_ratio and quantile effects.

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
        if str(column) not in self.densities:
            raise ValueError(
                f"no densities of {str(column)!r}; there are those of {', '.join(map(repr, self.densities)) or 'none'}"
            )
        return self.densities[str(column)].copy()

    def kind(self, column: str) -> str:
        """Kind of one column, also of one that was tested in a group: continuous or discrete."""
        in_groups = self.settings.get("group_column_kinds", {})
        return str(in_groups[column] if column in in_groups else self.table.loc[column, "kind"])

    @property
    def groups(self) -> dict[str, list[str]]:
        """Columns of every group that was tested as one feature, by the group's name."""
        return dict(self.settings.get("feature_groups") or {})

    @property
    def selected_columns(self) -> list[str]:
        """Columns of the selected features, most significant first; those of a group in the order of the table."""
        return [column for name in self.selected for column in self.groups.get(name, [name])]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary of lists, strings and numbers."""
        return {
            "format": FORMAT,
            "table": _frame_to_dict(self.table),
            "diagnostics": _frame_to_dict(self.diagnostics),
            "curves": {name: _frame_to_dict(frame) for name, frame in self.curves.items()},
            "overlap": _plain(dict(self.overlap)),
            "settings": _plain(dict(self.settings)),
            "versions": dict(self.versions),
            "warnings": list(self.warnings),
            "checks": _frame_to_dict(self.checks),
            **{name: _frame_to_dict(getattr(self, name)) for name in OPTIONAL_FRAMES},
            **{name: {key: _frame_to_dict(frame) for key, frame in getattr(self, name).items()} for name in BY_COLUMN},
            "overall": _plain(dict(self.overall)),
            **({} if self.placebo is None else {"placebo": _placebo_to_dict(self.placebo)}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SelectionResult:
        """Inverse of `to_dict`; a ValueError names the place in `data` that is not as it should be."""
        validate(data)
        later: dict[str, Any] = {
            name: _frame_from_dict(data[name]) for name in ("checks", *OPTIONAL_FRAMES) if name in data
        }
        for name in BY_COLUMN:
            later[name] = {key: _frame_from_dict(frame) for key, frame in data.get(name, {}).items()}
        return cls(
            table=_frame_from_dict(data["table"]),
            diagnostics=_frame_from_dict(data["diagnostics"]),
            curves={name: _frame_from_dict(frame) for name, frame in data["curves"].items()},
            overlap={name: float(value) for name, value in data["overlap"].items()},
            settings=dict(data["settings"]),
            versions=dict(data.get("versions", {})),
            warnings=tuple(data.get("warnings", ())),
            overall={name: float(value) for name, value in data.get("overall", {}).items()},
            placebo=_placebo_from_dict(data["placebo"]) if "placebo" in data else None,
            **later,
        )

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a JSON file, whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> SelectionResult:
        """Read what `to_json` wrote; nothing is lost on the way."""
        content = Path(path).read_bytes()
        try:
            return cls.from_dict(parse_json(content))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table of features as CSV, whole or not at all.

        Text that a spreadsheet would take for a formula gets a leading apostrophe.
        """
        write_text(path, safe_csv(self.table))

    @property
    def plot(self) -> Any:
        """Pictures by name, ``result.plot.curve("age")``: see `modifind.charts.PlotAccessor`."""
        return import_module("modifind.charts").PlotAccessor(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML report."""
        write_text(path, import_module("modifind.report").render_report(self))

    def __eq__(self, other: object) -> bool:
        """Equal in every number, label and setting."""
        return self.to_dict() == other.to_dict() if isinstance(other, SelectionResult) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        chosen = ", ".join(self.selected) or "none"
        return f"SelectionResult({counted(len(self.table), 'feature')}, selected: {chosen})"


def readable_p(p_value: float) -> str:
    """A p-value as people write it: four decimals, or a power of ten."""
    if math.isnan(p_value):
        return "not tested"
    return f"{p_value:.4f}" if p_value >= 0.0001 else f"{p_value:.0e}"


def readable_number(value: float) -> str:
    """A number in three digits; nothing where it is not known."""
    return "" if math.isnan(value) else f"{value:.3g}"


def _plain(value: Any) -> Any:
    """JSON-ready copy; numbers that JSON lacks become the strings "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _placebo_to_dict(placebo: PlaceboResult) -> dict[str, Any]:
    facts = {"n_asked": int(placebo.n_asked), "chance": float(placebo.chance), "drawn": placebo.drawn}
    return {**facts, "table": _frame_to_dict(placebo.table)}


def _placebo_from_dict(data: Mapping[str, Any]) -> PlaceboResult:
    return PlaceboResult(_frame_from_dict(data["table"]), data["n_asked"], data["chance"], data["drawn"])


def _frame_to_dict(frame: pd.DataFrame) -> dict[str, Any]:
    types = {name: _column_type(frame[name]) for name in frame.columns}
    return {
        "index": _plain(list(frame.index)),
        "index_name": frame.index.name,
        "types": types,
        "columns": {name: _plain(frame[name].tolist()) for name in frame.columns},
    }


def _column_type(column: pd.Series[Any]) -> str:
    if pd.api.types.is_bool_dtype(column):
        return "bool"
    if pd.api.types.is_integer_dtype(column):
        return "int"
    if pd.api.types.is_float_dtype(column):
        return "float"
    return "text" if pd.api.types.infer_dtype(column, skipna=False) == "string" else "object"


def _frame_from_dict(data: Mapping[str, Any]) -> pd.DataFrame:
    # Text is left to pandas, whose type for it differs between versions.
    dtypes: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64, "text": None, "object": object}
    columns = {}
    for name, values in data["columns"].items():
        kind = data["types"][name]
        parsed = [float(v) for v in values] if kind == "float" else values
        columns[name] = pd.Series(parsed, dtype=dtypes[kind], index=data["index"])
    frame = pd.DataFrame(columns, index=pd.Index(data["index"]))
    frame.index.name = data["index_name"]
    return frame


NOT_TESTED = "Not tested."

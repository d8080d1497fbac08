"""One panel per feature: its verdict, its pictures and its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from modifind.report.charts import Column, Terms, bound_charts
from modifind.report.content import KINDS, anchor, change_marks, verdict
from modifind.report.distributions import density_charts
from modifind.report.layers import MISSING, Chart
from modifind.result.selection_result import NOT_TESTED, readable_p

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

MOST_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class ColumnPanel:
    """Pictures of one column.

    Parameters
    ----------
    title : str
        Empty where the feature is the column itself.
    charts, bounds : list of Chart
        Pictures along the values.
    densities : list of (str, Chart)
        Outcomes of both arms by value of the feature.
    numbers : dict
        The curves as a table of texts.
    """

    title: str
    charts: list[Chart]
    densities: list[tuple[str, Chart]]
    bounds: list[Chart]
    numbers: dict[str, Any]

    @property
    def shown(self) -> int:
        """Place of the value whose outcomes are shown first: the last with enough rows, missing values aside."""
        sure = [k for k, (label, chart) in enumerate(self.densities) if not chart.unsure and label != MISSING]
        return sure[-1] if sure else 0

    @property
    def all_charts(self) -> list[Chart]:
        """Every picture, in the order of the page."""
        return [*self.charts, *(chart for _, chart in self.densities), *self.bounds]


@dataclass(frozen=True)
class Panel:
    """All that the report says of one feature."""

    number: int
    name: str
    anchor: str
    kind: str
    selected: bool
    verdict: str
    p_adjusted: str
    caution: str
    marks: list[dict[str, Any]]
    columns: list[ColumnPanel]

    @property
    def tested(self) -> bool:
        """Whether the p-value is that of a test, and not 1 because there was nothing to test."""
        return self.verdict != NOT_TESTED

    @property
    def readouts(self) -> dict[str, dict[str, Any]]:
        """What the pictures say when pointed at, by the identifier of the picture."""
        return {chart.id: chart.readout for column in self.columns for chart in column.all_charts}

    @property
    def size(self) -> int:
        """About how many characters of the page the panel takes."""
        drawn = sum(len(chart.svg) + 600 for column in self.columns for chart in column.all_charts)
        cells = sum(40 * len(column.numbers["titles"]) * len(column.numbers["rows"]) for column in self.columns)
        return drawn + cells + len(json.dumps(self.readouts)) + 1500


def make_panels(result: SelectionResult, most_characters: int = MOST_CHARACTERS) -> list[Panel]:
    """Panels of the selected features and, most significant first, of as many others as the file has room for.

    Features that an interrupted run did not reach have none.
    """
    table = result.table.sort_values(["p_value", "importance"], ascending=[True, False])
    reached = table["p_value"].notna() & ~table["selected"].to_numpy(dtype=bool)
    others = [str(name) for name in table.index[reached]]
    panels: list[Panel] = []
    used = 0
    for panel in _panels(result, [*map(str, result.selected), *others]):
        used += panel.size
        if panels and used > most_characters:
            break
        panels.append(panel)
    return panels


def _panels(result: SelectionResult, names: list[str]) -> Iterator[Panel]:
    terms = Terms.of(result)
    for place, name in enumerate(names, start=1):
        row: Any = result.table.loc[name]
        columns = result.groups.get(name, [name])
        yield Panel(
            place,
            name,
            anchor(name),
            KINDS.get(str(row["kind"]), str(row["kind"])),
            bool(row["selected"]),
            verdict(result, name),
            readable_p(float(row["p_adjusted"])),
            str(row.get("caution", "")),
            change_marks(result, name),
            [
                _column(result, f"{place}-{k}", "" if column == name else f"{name}: {column}", column, terms)
                for k, column in enumerate(columns)
                if column in result.curves
            ],
        )


def _column(result: SelectionResult, key: str, title: str, name: str, terms: Terms) -> ColumnPanel:
    discrete = result.kind(name) == "discrete"
    column = Column(name, result.curves[name], discrete, result.overall, terms)
    charts = column.charts()
    densities = density_charts(name, result.densities[name], terms) if name in result.densities else []
    bounds = []
    if name in result.bounds:
        bounds = bound_charts(name, result.bounds[name], result.bound_tests.get(name), discrete, terms)
    numbered = iter(range(1000))
    return ColumnPanel(
        title,
        [_named(chart, key, next(numbered), f"along-{key}") for chart in charts],
        [
            (label, _named(chart, key, next(numbered), f"outcome-{key}-{k}"))
            for k, (label, chart) in enumerate(densities)
        ],
        [_named(chart, key, next(numbered), f"bounds-{key}") for chart in bounds],
        column.numbers(),
    )


def _named(chart: Chart, key: str, place: int, link: str) -> Chart:
    """With an identifier, and the name of those that are pointed at together."""
    return replace(chart, id=f"c{key}-{place}", readout={**chart.readout, "link": link})


def worst_ranks(result: SelectionResult, most: int = 12) -> list[tuple[str, Any, str]]:
    """Features whose distribution fits worst, and the selected ones: name, shares by tenths, distance as text."""
    known = result.pit_histogram.dropna(how="all")
    if not len(known):
        return []
    distance = result.diagnostics.get("pit_distance")
    far = {
        str(name): float(distance[name]) if distance is not None and name in distance else math.nan
        for name in known.index
    }
    chosen = set(map(str, result.selected))
    order = sorted(far, key=lambda name: (name not in chosen, -np.nan_to_num(far[name])))[:most]
    return [
        (name, known.loc[name].to_numpy(dtype=float), "" if math.isnan(far[name]) else f"off by {far[name]:.3f}")
        for name in order
    ]

"""What is tested, columns and groups of them: what they need, and what a result says and records of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modifind._warned import warn
from modifind.data.feature_groups import Unit, column_kinds
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import named
from modifind.engine.assemble import Found
from modifind.nuisance.conditional import BaseSampler
from modifind.result.effect_names import effect_name
from modifind.statistics import Statistic

GIVEN_OTHERS = " given the other features"
GIVEN_ADJUSTED = " and what is adjusted for"
GIVEN_STRATUM = " and the stratum"
GIVEN_TREATMENT = " and the treatment"
GIVEN_GROUPS = " (the columns of a group counting as one feature)"


@dataclass(frozen=True)
class Tested(Found):
    """What the tests of a table found.

    Attributes
    ----------
    columns_in : tuple of str
        All columns of the table, tested or not.
    settings : dict
        What a result records beyond the selector's arguments.
    interrupted : bool
        Whether Ctrl-C came before the end.
    """

    columns_in: tuple[str, ...]
    settings: dict[str, Any]
    interrupted: bool


def null_hypothesis(
    statistic: Statistic,
    sampler: BaseSampler,
    *,
    adjusted: bool,
    strata: bool,
    groups: bool,
    kind: str = "numeric",
    effect_scale: str = "difference",
) -> str:
    """What the p-values are about, in words."""
    on_treatment = statistic.resamples and getattr(sampler, "condition_on_treatment", True)
    compared = statistic.null_hypothesis
    if effect_scale != "difference":
        compared = f"the {effect_name(kind, effect_scale)} between the arms does not depend on the feature"
        if kind == "amount":
            compared = "the arms' risk ratio of any and ratio of amounts above zero do not depend on the feature"
    return (
        compared
        + GIVEN_OTHERS
        + GIVEN_ADJUSTED * adjusted
        + GIVEN_STRATUM * strata
        + GIVEN_TREATMENT * on_treatment
        + GIVEN_GROUPS * groups
    )


def group_settings(
    groups: Mapping[str, tuple[str, ...]], table: FeatureTable, units: tuple[Unit, ...]
) -> dict[str, Any]:
    """What a result records of groups; nothing where there are none."""
    if not groups:
        return {}
    columns = {name: list(columns) for name, columns in groups.items()}
    return {"feature_groups": columns, "group_column_kinds": column_kinds(table, units)}


def check_groups(sampler: BaseSampler, table: FeatureTable, units: tuple[Unit, ...]) -> None:
    """Refuse groups that have no distribution which the sampler can give."""
    together = [unit for unit in units if len(unit.members) > 1]
    if not any(unit.group for unit in units):
        return
    if not getattr(sampler, "learns", False):
        raise ValueError(
            f"{type(sampler).__name__} does not say that it learns from any columns (learns = True), which "
            "feature_groups need; use another sampler or leave the groups out"
        )
    gaps = [table.names[m] for unit in together for m in unit.members if m in table.incomplete]
    if gaps:
        raise ValueError(
            "feature_groups: continuous columns of a group must have no missing values, which there are in "
            f"{named(gaps)}; fill them, use missing='drop', or leave the columns out of the group"
        )


def warn_constant_members(table: FeatureTable, units: tuple[Unit, ...]) -> set[str]:
    """Name the constant columns of groups in a warning; returns the groups that have no other."""
    still = [table.names[m] for unit in units if unit.group for m in unit.members if table.is_constant(m)]
    if still:
        warn(f"constant columns cannot modify anything: {named(still)}")
    return {unit.name for unit in units if unit.group and unit.is_constant(table)}

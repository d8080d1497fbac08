"""Levels that are the same but for what people do not see: capitals, blanks, the form of letters in Unicode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import listed, respelled, warn_of_any


def alike(labels: Iterable[Any]) -> list[list[str]]:
    """Sets of labels that are spelled alike.

    Examples
    --------
    >>> alike(["male", "Male ", "female", "FEMALE", "other"])
    [['male', 'Male '], ['female', 'FEMALE']]
    """
    sets: dict[str, list[str]] = {}
    for label in labels:
        if isinstance(label, str):
            sets.setdefault(respelled(label), []).append(label)
    return [same for same in sets.values() if len(same) > 1]


def warn_alike(table: FeatureTable) -> None:
    """Warn once of all levels of features that differ in nothing that people see."""
    shown = [
        f"{name}: {listed(same)}"
        for name, labels in zip(table.names, table.categories, strict=True)
        for same in alike(labels or ())
    ]
    warn_of_any(
        shown,
        "levels that differ only in capitals, blanks or the form of letters count as different: {}. Write them alike "
        "if they mean the same",
        between="; ",
    )

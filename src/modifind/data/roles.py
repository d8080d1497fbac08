"""Roles of columns: outcome, treatment, other per-row arguments, and features.

Arguments of `ModifierSelector.fit` are resolved here, for frames of any library, files and Dask tables alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from modifind._warned import warn
from modifind.data.containers import as_frame, check_names, check_same_rows, estimator_of, is_distributed
from modifind.data.features import column_mask
from modifind.data.guards import refuse_censored, refuse_unusable, unusable
from modifind.data.repeated_rows import id_names, refuse_repeated_ids
from modifind.data.sources import FileSource, is_files, is_source, opened_files
from modifind.data.words import listed, meant, printable, repeated

FIRST_ROWS = 10_000
FITTED_SCORES = ("auto", "mlp")  # settings of the propensity that no column can be called


def assign_roles(
    X: Any,
    y: Any = None,
    treatment: Any = None,
    *,
    outcome: str | None = None,
    features: Any = None,
    adjust_for: Any = None,
    propensity: Any = None,
    **per_row: Any,
) -> dict[str, Any]:
    """Arguments of `fit`, with column names replaced by columns.

    Parameters
    ----------
    X : table, path, pattern, list of paths, or Source
        The table; a source has its outcome and treatment with it.
    y, treatment, **per_row : array or str
        Values of every row, or the name of a column of X, which is then no feature.
    outcome : str, optional
        Name of the outcome, in the place of `y`.
    features, adjust_for : list, optional
        Names, positions or a mask of columns that are tested, and of those that are adjusted for only. Without
        `features` all other columns are tested; with `features` alone, all other columns are adjusted for.
    propensity : object, optional
        As the selector has it. If it is the name of a column, that has known scores.

    Returns
    -------
    dict
        X as a pandas or Dask DataFrame or as a source, the other arguments but `outcome` and `features`, and `named`,
        the columns that the user has named as features or for adjustment; None where X has no names yet.

    Examples
    --------
    >>> table = {"age": [40, 50], "bmi": [21, 30], "change": [1, 2]}
    >>> found = assign_roles(table, outcome="change", treatment=[0, 1], features=["age"])
    >>> list(found["X"]), found["adjust_for"], found["y"].tolist()
    (['age', 'bmi'], ['bmi'], [1, 2])
    >>> assign_roles(table, outcome="chang", treatment=[0, 1])
    Traceback (most recent call last):
    ...
    ValueError: outcome names 'chang', which is not a column of X; did you mean 'change'?
    """
    _check_outcome(y, outcome)
    word, values = ("y", y) if outcome is None else ("outcome", outcome)
    per_row = {word: values, "treatment": treatment, **per_row}
    if is_source(X):
        _refuse_beside_source(per_row | {"features": features})
        return {"X": X, "adjust_for": adjust_for, "propensity": propensity, "named": None}
    check_same_rows(X=X, **per_row, propensity=estimator_of(propensity))
    table = opened_files(X) if is_files(X) else X if is_distributed(X) else as_frame(X)
    named = {argument: column for argument, column in per_row.items() if isinstance(column, str)}
    if isinstance(table, tuple):
        _refuse_values(per_row)
    elif named and not _has_names(X):
        argument = next(iter(named))
        raise ValueError(
            f"{argument}={named[argument]!r} names a column, but those of X have no names; pass one value per row, or "
            "X as a DataFrame"
        )
    if isinstance(propensity, str) and propensity not in FITTED_SCORES and propensity in column_names(table):
        named["propensity"], propensity = propensity, FITTED_SCORES[0]
    _refuse_several_rows(table, per_row | named, features, adjust_for)
    columns: dict[str, Any] = {}
    X, known = table, named_columns(column_names(table), features, adjust_for)
    if named or features is not None:
        used, adjust_for = _chosen(table, named, features, adjust_for)
        _refuse_unused_flag(table, used, named)
        X, columns = _taken(table, used, named)
    arguments = {"X": X, **per_row, "propensity": propensity, **columns, "adjust_for": adjust_for, "named": known}
    return arguments | {"y": arguments.pop(word)}


class ValidatedColumns(list[str]):
    """Columns that the command line has validated, of which the user named only some.

    Attributes
    ----------
    named : frozenset of str
        Those that the user has named.
    """

    def __init__(self, columns: Iterable[str], named: Iterable[str]) -> None:
        super().__init__(columns)
        self.named = frozenset(named)


def named_columns(names: Sequence[str], features: Any, adjust_for: Any) -> frozenset[str]:
    """Columns that the user has named as features or for adjustment."""
    some: set[str] = set()
    for argument, columns in (("features", features), ("adjust_for", adjust_for)):
        listed = _listed(tuple(names), columns, argument) or ()
        some |= getattr(columns, "named", frozenset(listed))
    return frozenset(some)


def _refuse_several_rows(table: Any, per_row: Mapping[str, Any], features: Any, adjust_for: Any) -> None:
    """Refuse several rows per person, as shown by an identifier column, unless clusters are given.

    For a table that is not in memory the first rows are examined, and only columns named like identifiers.
    """
    if per_row.get("clusters") is not None:
        return
    names = column_names(table)
    roles = [column for role, column in per_row.items() if isinstance(column, str) and role != "treatment"]
    looked, tested = names, [] if features is None else [str(name) for name in (*features, *(adjust_for or ()))]
    if not isinstance(table, pd.DataFrame):
        if not id_names(names, roles):
            return
        looked = [name for name in names if name in {*tested, *id_names(names, roles)}] if tested else names
    check_names(tuple(names))
    frame = first_rows(table, looked)
    refuse_repeated_ids(frame, roles, tested or names)


def _refuse_unused_flag(table: Any, used: Collection[str], named: Mapping[str, str]) -> None:
    """Refuse a censored time whose event indicator is among the unused columns; leaving it out changes nothing."""
    outcome = named.get("outcome", named.get("y"))
    beside = [name for name in column_names(table) if name not in {*used, *named.values()}]
    if outcome is not None and beside:
        rows = first_rows(table, [*beside, outcome])
        refuse_censored(rows.iloc[:, :-1], rows.iloc[:, -1])


def _check_outcome(y: Any, outcome: Any) -> None:
    if outcome is None:
        return
    if not isinstance(outcome, str):
        raise ValueError(f"outcome must be the name of a column of X, not {type(outcome).__name__}; pass values as y")
    if y is not None:
        raise ValueError("y and outcome are both given; pass values as y, or the name of their column as outcome")


def _refuse_beside_source(arguments: Mapping[str, Any]) -> None:
    if given := [argument for argument, value in arguments.items() if value is not None]:
        raise ValueError(f"X is a source, whose columns have their roles already; leave out {', '.join(given)}")


def _refuse_values(per_row: Mapping[str, Any]) -> None:
    """Refuse arrays passed with a file, whose rows are not known."""
    for argument, column in per_row.items():
        needed = argument in ("y", "outcome", "treatment") or column is not None
        if needed and not isinstance(column, str):
            raise ValueError(f"X is a file, so {argument} must be the name of one of its columns")


def _has_names(X: Any) -> bool:
    """Whether a table in memory has column names; arrays and lists of rows do not."""
    return not isinstance(X, np.ndarray | list | tuple) or getattr(X, "dtype", np.dtype(float)).names is not None


def column_names(table: Any) -> list[str]:
    """Names of the columns of a frame, of a Dask table or of opened files."""
    return list(table[0].names) if isinstance(table, tuple) else [str(name) for name in table.columns]


def _chosen(
    table: Any, roles: Mapping[str, str], features: Any, adjust_for: Any
) -> tuple[tuple[str, ...], list[str] | None]:
    """The columns used, in table order, and those of them that are not tested."""
    names = tuple(column_names(table))
    check_names(names)
    for argument, name in roles.items():
        if name not in names:
            raise ValueError(f"{argument} names {name!r}, which is not a column of X{meant(name, names)}")
    tested, adjusted = _listed(names, features, "features"), _listed(names, adjust_for, "adjust_for")
    for argument, columns, listing in (("features", features, tested), ("adjust_for", adjust_for, adjusted)):
        if listing is not None and not isinstance(columns, ValidatedColumns):
            refuse_unusable(first_rows(table, listing), argument)
    owned = {argument: [name] for argument, name in roles.items()}
    refuse_two_roles(owned | {"features": tested or [], "adjust_for": adjusted or []})
    taken = {*roles.values(), *(tested or ()), *(adjusted or ())}
    others = [name for name in names if name not in taken]
    if tested is None:
        tested = others
    elif adjusted is None:
        adjusted = usable_columns(table, others, "Name them in adjust_for if they should be, or leave them out of X")
    if not tested:
        raise ValueError("no column of X is left to test; features and adjust_for say which are")
    return in_table_order(names, tested, adjusted or ()), adjusted


def _listed(names: tuple[str, ...], columns: Any, argument: str) -> list[str] | None:
    """Names of the columns that an argument gives as names, positions or a mask."""
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not hasattr(columns, "__iter__"):
        raise ValueError(f"{argument} must be a list of columns, not {columns!r}")
    columns = columns if isinstance(columns, np.ndarray) else list(columns)
    if argument == "features" and not len(columns):
        raise ValueError("features names no column; name some or leave it out")
    mask = column_mask(names, columns, argument)
    if np.asarray(columns).dtype != bool and (twice := repeated(map(str, columns))):
        raise ValueError(f"{argument} names {listed(twice)} twice")
    return [name for name, is_meant in zip(names, mask, strict=True) if is_meant]


def refuse_two_roles(owned: Mapping[str, Collection[str]]) -> None:
    """Refuse a column named by two arguments."""
    owners: dict[str, str] = {}
    for argument, columns in owned.items():
        for name in columns:
            if (owner := owners.setdefault(name, argument)) != argument:
                raise ValueError(f"{owner} and {argument} both name {name!r}; a column has one role")


def usable_columns(table: Any, names: list[str], remedy: str) -> list[str]:
    """The columns that models can condition on; warns of dates, identifiers and free text."""
    if unfit := unusable(first_rows(table, names)):
        shown = ", ".join(f"{name} ({reason})" for name, reason in unfit.items())
        warn(f"not adjusted for: {printable(shown)}. {remedy}")
    return [name for name in names if name not in unfit]


def first_rows(table: Any, names: list[str]) -> pd.DataFrame:
    """Some columns of a frame, or of the first rows of a Dask table or of files."""
    if not names:
        return pd.DataFrame()
    if isinstance(table, tuple):
        return next(iter(table[0].batches(names, FIRST_ROWS)), pd.DataFrame(columns=names))
    some = table[_originals(table, names)]
    return some if isinstance(some, pd.DataFrame) else some.head(FIRST_ROWS, npartitions=-1)


def in_table_order(names: Collection[str], tested: Collection[str], adjusted: Collection[str]) -> tuple[str, ...]:
    """The columns used, in table order: a test must not depend on which other features are tested."""
    used = {*tested, *adjusted}
    return tuple(name for name in names if name in used)


def _taken(table: Any, used: tuple[str, ...], named: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """The features and the columns named for other roles; files deliver both from one source."""
    if isinstance(table, tuple):
        (_, outcome), (_, treatment), *more = named.items()
        nowhere_else = dict.fromkeys(argument for argument in named if argument != "propensity")
        return FileSource(table, used, outcome, treatment, dict(more)), nowhere_else
    columns = {argument: table[_originals(table, [name])[0]] for argument, name in named.items()}
    if isinstance(table, pd.DataFrame) and "propensity" in columns:
        columns["propensity"] = columns["propensity"].to_numpy()
    return table[_originals(table, used)], columns


def _originals(table: Any, names: Collection[str]) -> list[Any]:
    """Column names as the table has them, which may be numbers."""
    originals = dict(zip(column_names(table), table.columns, strict=True))
    return [originals[name] for name in names]

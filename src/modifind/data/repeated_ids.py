"""Columns that say whose row it is, with several rows of each person, where nobody has said that rows belong together.

Such a column is known by its name, or, where it has no role, by what its rows share: all of a person's rows agree in
what was measured once, and those of the next number do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from modifind._typing import Ints
from modifind.data.clusters import joint_codes, numbered, tied_pairs
from modifind.data.repeated_rows import agreement, is_step
from modifind.data.time_names import is_person_identifier_name, is_person_name, is_place_name
from modifind.data.wording import printable, shortened

MIN_IDS = 15
MIN_ROWS_EACH, MAX_ROWS_EACH = 1.15, 30
MAX_UNKNOWN = 0.1  # of the rows have no identifier
MIN_EXCESS = 6.0  # standard errors, of pairs of rows with one identifier that agree
MIN_SHARED = 2  # columns, and half of all, that agree for a column which is not called an identifier
MIN_CONSTANT = 0.95  # of the pairs with one identifier agree in a column that is constant,
MAX_NEIGHBOURS = 0.85  # and at most so many of those with neighbouring ones
N_BINS = 10
SHOWN = 3


def refuse_repeated_ids(frame: pd.DataFrame, roles: Collection[str], features: Collection[str]) -> None:
    """Refuse several rows per person, told by a column that identifies them.

    Parameters
    ----------
    frame : DataFrame
        The table, or its first rows, with the columns that are left out of the analysis as far as they are known.
    roles : collection of str
        Outcome, weights, strata and other columns that are no features; the treatment is not among them.
    features : collection of str
        Columns that are tested or adjusted for.

    Raises
    ------
    ValueError
        Names the column.

    Examples
    --------
    >>> person, rng = np.repeat(np.arange(40), 3), np.random.default_rng(0)
    >>> table = pd.DataFrame({"person": person, "age": rng.integers(20, 80, 40)[person], "dose": rng.normal(size=120)})
    >>> refuse_repeated_ids(table, [], ["age", "dose"])
    Traceback (most recent call last):
    ...
    ValueError: person looks like an identifier: 40 values in 120 rows, of which those with one value agree in age. ...
    """
    names = [str(name) for name in frame.columns]
    for position, name in enumerate(names):
        known = is_person_name(name)
        if name in roles or not (known or (name not in features and _may_identify(frame.iloc[:, position], name))):
            continue
        codes = _codes(frame.iloc[:, position])
        if not _several_each(codes):
            continue
        others = [k for k in range(len(names)) if k != position and names[k] not in roles]
        shared = [names[k] for k in others if _is_shared(codes, frame.iloc[:, k], known)]
        if is_person_identifier_name(name) or len(shared) >= (1 if known else max(MIN_SHARED, len(others) / 2)):
            size, n_rows = np.unique(codes[codes >= 0]).size, int((codes >= 0).sum())
            agree = f", of which those with one value agree in {shortened(shared, SHOWN)}" * bool(shared)
            raise ValueError(
                f"{printable(name)} looks like an identifier: {size} values in {n_rows} rows{agree}. Rows of one "
                f"person are not independent: pass clusters={name!r}, or keep one row of each; rename the column if it "
                "is something else"
            )


def id_names(names: Sequence[str], roles: Collection[str]) -> list[str]:
    """Columns without a role whose name says that they identify persons."""
    return [name for name in names if name not in roles and is_person_name(name)]


def _may_identify(column: pd.Series, name: str) -> bool:
    """Whether whole numbers, or text with digits, could be identifiers."""
    if is_place_name(name) or pd.api.types.is_bool_dtype(column):
        return False
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.dropna().to_numpy(dtype=np.float64)
        return bool(np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all())
    distinct = column.dropna().astype(str).drop_duplicates()
    return bool(len(distinct) and distinct.str.contains(r"\d").mean() > 0.9)


def _several_each(codes: Ints) -> bool:
    """Whether a column has several rows of each of many values, and only some of each."""
    counts = np.bincount(codes[codes >= 0])
    if counts.size < MIN_IDS or np.mean(codes < 0) > MAX_UNKNOWN:
        return False
    return bool(counts.mean() >= MIN_ROWS_EACH and counts.max() <= MAX_ROWS_EACH)


def _is_shared(ids: Ints, column: pd.Series, known: bool) -> bool:
    """Whether rows with one identifier agree in a column: in general if it is called one, and always if not."""
    codes = _codes(column)
    both = (ids >= 0) & (codes >= 0)
    key, target = numbered(ids[both]), numbered(codes[both])
    if not target.size or target.max() < 1:
        return False
    if not known:
        return target.max() + 1 < target.size and _is_constant(key, target)
    if target.max() >= N_BINS:
        target = target * N_BINS // (int(target.max()) + 1)
    tied, pairs, chance = map(tied_pairs, (key, joint_codes(key, target), target))
    share = chance / max(target.size * (target.size - 1) / 2.0, 1.0)
    return pairs - tied * share > MIN_EXCESS * np.sqrt(tied * share * (1.0 - share) + 1.0)


def _is_constant(key: Ints, target: Ints) -> bool:
    """Whether a column has one value for each of a key, but another for the next; not if it is a group of keys."""
    tied, pairs = tied_pairs(key), tied_pairs(joint_codes(key, target))
    if tied < MIN_IDS or pairs < MIN_CONSTANT * tied or is_step(target, key):
        return False
    return agreement(key, target).expected <= MAX_NEIGHBOURS * tied


def _codes(column: pd.Series) -> Ints:
    """Values numbered in their order, -1 where there is none."""
    values = column if pd.api.types.is_numeric_dtype(column) else column.astype(str).where(column.notna())
    return pd.factorize(values, sort=True)[0].astype(np.int64)

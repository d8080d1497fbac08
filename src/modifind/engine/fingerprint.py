"""Digests of data: the same table has the same ones, and where they differ they say which column does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.feature_matrix import FeatureTable
from modifind.data.pieces import Piece

SIZE = 16


def digest(*texts: bytes) -> str:
    """One hexadecimal number of some bytes.

    Examples
    --------
    >>> digest(b"age") == digest(b"age"), digest(b"age") == digest(b"sex")
    (True, False)
    """
    hasher = hashlib.blake2b(digest_size=SIZE)
    for text in texts:
        hasher.update(len(text).to_bytes(8, "little"))
        hasher.update(text)
    return hasher.hexdigest()


def table_digests(table: FeatureTable) -> dict[str, str]:
    """A digest of every column: its kind, its labels and its values."""
    digests = {}
    for m, name in enumerate(table.names):
        labels = json.dumps([[type(label).__name__, str(label)] for label in table.categories[m] or ()])
        values = np.ascontiguousarray(table.values[:, m]).tobytes()
        digests[name] = digest(table.kind(m).encode(), labels.encode(), values)
    return digests


def row_digests(**rows: Any) -> dict[str, str]:
    """A digest of every argument that has one value per row; those of None are left out.

    Examples
    --------
    >>> list(row_digests(y=[1.0, 2.0], treatment=["a", "b"], propensity=None))
    ['y', 'treatment']
    """
    return {name: digest(_row_bytes(values)) for name, values in rows.items() if values is not None}


def _row_bytes(values: Any) -> bytes:
    """Bytes that follow the values, whatever their type."""
    column = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values).ravel())
    return pd.util.hash_pandas_object(column, index=False).to_numpy(dtype="<u8").tobytes()


def piece_digests(piece: Piece) -> dict[str, dict[str, str]]:
    """A digest of every column of a piece, and of everything else that has one value per row."""
    rows = {field.name: getattr(piece, field.name) for field in fields(piece)}
    return {
        "columns": row_digests(**{str(name): piece.X[name] for name in piece.X.columns}),
        "rows": row_digests(**{name: column for name, column in rows.items() if isinstance(column, pd.Series)}),
    }


def joined_digests(pieces: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Digests of columns from those of their pieces; the same rows cut otherwise have others.

    Examples
    --------
    >>> whole, halves = [row_digests(y=[1, 2])], [row_digests(y=[1]), row_digests(y=[2])]
    >>> joined_digests(halves) == joined_digests(halves), joined_digests(whole) == joined_digests(halves)
    (True, False)
    """
    names = dict.fromkeys(name for digests in pieces for name in digests)
    return {name: digest(*(digests[name].encode() for digests in pieces if name in digests)) for name in names}

"""A writer of SAS transport files (version 5), enough to stand in for those that CDC serves."""

from __future__ import annotations

import struct

import numpy as np
import pandas as pd

RECORD = 80
STAMP = "01JAN10:00:00:00"
MISSING = int.from_bytes(b"." + bytes(7), "big")


def _header(kind, numbers="0" * 30):
    return f"HEADER RECORD*******{kind:<8}HEADER RECORD!!!!!!!{numbers}  ".encode()


def _padded(content):
    return content + b" " * (-len(content) % RECORD)


def ibm_floats(values):
    """IBM/370 doubles as big-endian words: sign, exponent of 16 in excess 64, 56 bits of fraction; '.' for missing."""
    values = np.asarray(values, dtype=np.float64)
    known = np.nan_to_num(values)
    fraction, exponent = np.frexp(np.abs(known))
    hexadecimal = -(-exponent // 4)
    mantissa = np.ldexp(fraction, exponent - 4 * hexadecimal + 56).astype(np.uint64)
    words = (np.signbit(known).astype(np.uint64) << 63) | ((hexadecimal + 64).astype(np.uint64) << 56) | mantissa
    words[known == 0] = 0
    words[np.isnan(values)] = MISSING
    return words.astype(">u8")


def xport_bytes(table, name="TABLE"):
    """The transport file of one table; text columns get 8 bytes."""
    described, columns = b"", []
    for position, column in enumerate(table.columns):
        numeric = pd.api.types.is_numeric_dtype(table[column])
        described += struct.pack(
            ">hhhh8s40s8shhh2s8shhl52s",
            1 if numeric else 2, 0, 8, position + 1, f"{column:<8}".encode(), b" " * 40, b" " * 8,
            0, 0, 0, b"  ", b" " * 8, 0, 0, 8 * position, bytes(52),
        )  # fmt: skip
        if numeric:
            columns.append(ibm_floats(table[column]).view("S8"))
        else:
            columns.append(np.array([f"{text:<8}".encode() for text in table[column]], dtype="S8"))
    # Bytes rather than "S8", whose items lose the zeros at their end.
    rows = np.stack([np.ascontiguousarray(column).view(np.uint8).reshape(-1, 8) for column in columns], axis=1)
    return b"".join(
        [
            _header("LIBRARY"),
            f"{'SAS     SAS     SASLIB  9.1     XP_PRO':<64}{STAMP}".encode(),
            f"{STAMP:<80}".encode(),
            _header("MEMBER", "000000000000000001600000000140"),
            _header("DSCRPTR"),
            f"{f'SAS     {name:<8}SASDATA 9.1     XP_PRO':<64}{STAMP}".encode(),
            f"{STAMP:<80}".encode(),
            _header("NAMESTR", f"000000{len(columns):04d}{'0' * 20}"),
            _padded(described),
            _header("OBS"),
            _padded(rows.tobytes()),
        ]
    )

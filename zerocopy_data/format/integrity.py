"""Checksums, and the checks that keep damaged or hostile bytes from being handed on as views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ShardDamagedError


def crc32c_each(values: Iterable[Any]) -> npt.NDArray[np.uint32]:
    """CRC-32C of each buffer."""
    return np.fromiter((_native.crc32c(value) for value in values), dtype=np.uint32)


def crc32c_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """CRC-32C of each row of a C-contiguous array [rows, …]."""
    if rows.size == 0:
        return np.full(len(rows), _native.crc32c(b""), np.uint32)
    return _native.crc32c_rows(rows.reshape(-1).view(np.uint8).data, rows.nbytes // len(rows))


def check_offsets(offsets: npt.NDArray[Any], items: int, shard: str, column: str) -> None:
    """Every slice `offsets[i]:offsets[i + 1]` must lie within `items` items.

    Raises:
        ShardDamagedError: some offset is negative, out of order or beyond the data.
    """
    if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > items:
        raise ShardDamagedError(shard, f"offsets of column {column!r} point outside its data")
    if len(offsets) > 1:
        backwards = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(backwards):
            raise ShardDamagedError(
                shard, f"offsets of column {column!r} run backwards at row {int(backwards[0])} of a row group"
            )


def utf8_problem(data: memoryview) -> str | None:
    """What is wrong with bytes that should be UTF-8, None when nothing is."""
    try:
        str(data, "utf-8")
    except UnicodeDecodeError as error:
        return f"text that is no UTF-8 ({error.reason} at byte {error.start})"
    return None

"""Checksums, and the checks that keep damaged or hostile bytes from being handed on as views."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ShardDamagedError


def crc32c_each(values: Iterable[Any]) -> npt.NDArray[np.uint32]:
    """CRC-32C of each buffer."""
    return np.fromiter((_native.crc32c(value) for value in values), dtype=np.uint32)


def crc32c_rows(data: Any, row_bytes: int) -> npt.NDArray[np.uint32]:
    """CRC-32C of each run of `row_bytes` in a buffer."""
    view = memoryview(data).cast("B")
    return crc32c_each(view[start : start + row_bytes] for start in range(0, len(view), row_bytes))


def crc32c_slices(data: Any, offsets: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """CRC-32C of each `data[offsets[i]:offsets[i + 1]]`; offsets count bytes."""
    view = memoryview(data).cast("B")
    places = offsets.tolist()
    return crc32c_each(view[start:stop] for start, stop in pairwise(places))


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

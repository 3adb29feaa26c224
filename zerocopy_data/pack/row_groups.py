"""Gathers samples into row groups: payload in one buffer, filled in place, never one object per byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _native
from ..format.columns import MAX_COLUMN_BYTES, image_array, scalar_arrays, tensor_array, text_arrays
from ..format.probe import BadImageError


class EncodedGroup:
    """A row group of encoded images. `space` hands out room in the buffer, `add` makes a row of it.

    Args:
        capacity: Payload bytes; a single larger image gets a group of its own.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = np.empty(capacity, np.uint8)
        self.clear()

    def clear(self) -> None:
        """Empties the group for reuse, keeping the buffer: fresh pages cost more than the copy into them."""
        if len(self._buffer) > self._capacity:
            self._buffer = np.empty(self._capacity, np.uint8)
        self._view = self._buffer.data
        self._ends = [0]
        self._columns: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.rows: list[int] = []

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes fit; an empty group takes anything."""
        return not self.rows or self._ends[-1] + size <= self._capacity

    def space(self, size: int) -> memoryview:
        """Room for the next image; it becomes part of the group with `add`.

        Raises:
            BadImageError: more than a row group can hold.
        """
        if size > MAX_COLUMN_BYTES:
            raise BadImageError(f"the file has {size} bytes; a row holds at most 2^31 - 1")
        start = self._ends[-1]
        if start + size > len(self._buffer):  # only when the group is empty, see `fits`
            self._buffer = np.empty(size, np.uint8)
            self._view = self._buffer.data
        return self._view[start : start + size]

    def add(self, row: int, data: memoryview, width: int, height: int) -> None:
        """Takes the image that lies in the room handed out by `space`."""
        widths, heights, checksums = self._columns
        widths.append(width)
        heights.append(height)
        checksums.append(_native.crc32c(data))
        self._ends.append(self._ends[-1] + len(data))
        self.rows.append(row)

    def arrays(self) -> list[pa.Array]:
        """image, image.width, image.height, image.crc32c; they view the buffer until `clear`."""
        offsets = np.array(self._ends, np.int32)
        widths, heights, checksums = self._columns
        return [
            image_array(self._buffer[: self._ends[-1]], offsets),
            pa.array(np.array(widths, np.int32)),
            pa.array(np.array(heights, np.int32)),
            pa.array(np.array(checksums, np.uint32)),
        ]


class RawGroup:
    """A row group of decoded squares, uint8 [rows, side, side, 3]."""

    def __init__(self, capacity: int, side: int) -> None:
        self._pixels = np.empty((max(1, capacity // (side * side * 3)), side, side, 3), np.uint8)
        self._kind = pa.fixed_shape_tensor(pa.uint8(), [side, side, 3])
        self.clear()

    def clear(self) -> None:
        self._checksums: list[int] = []
        self.rows: list[int] = []

    @property
    def full(self) -> bool:
        return len(self.rows) == len(self._pixels)

    def add(self, row: int, pixels: npt.NDArray[np.uint8]) -> None:
        place = self._pixels[len(self.rows)]
        place[...] = pixels
        self._checksums.append(_native.crc32c(place.reshape(-1)))
        self.rows.append(row)

    def arrays(self) -> list[pa.Array]:
        """image, image.crc32c; they view the buffer until `clear`."""
        stored = self._pixels[: len(self.rows)]
        return [tensor_array(self._kind, stored), pa.array(np.array(self._checksums, np.uint32))]


def label_arrays(labels: npt.NDArray[np.int64]) -> list[pa.Array]:
    """label, label.crc32c."""
    return scalar_arrays(labels)


def key_arrays(keys: Sequence[str]) -> list[pa.Array]:
    """key, key.crc32c: keys as UTF-8; a file name that is none keeps its bytes visible as \\xNN."""
    return text_arrays([key.encode(errors="surrogateescape").decode(errors="backslashreplace") for key in keys])

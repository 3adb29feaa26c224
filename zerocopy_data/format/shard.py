"""One mapped shard: its columns as zero-copy chunks, checked before they are handed on."""

from __future__ import annotations

import errno
import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _native
from ..errors import ShardDamagedError, ZcdError
from ..memory.mapping import MAP_NORESERVE, advise, map_file
from .columns import arrow_columns, stored_dtype
from .fields import Bytes, Field, Image, Json, Scalar, Tensor, Text, Tokens
from .integrity import check_offsets
from .manifest import ShardEntry


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column of one row group, as views of the map.

    Attributes:
        rows: Rows in this row group.
        data: The values' bytes, C-contiguous and writable (copy-on-write: the file never changes). Of
            fixed-size columns exactly rows * row_bytes.
        offsets: int32 of rows + 1 entries for columns of varying length, else None. They count items of
            `itemsize` bytes from the start of `data`, and have been checked against its size.
        large: Whether offsets are int64; our own writer makes int32.
        itemsize: Bytes per item: 1 for binary and text, the dtype's size for lists, a row's for fixed size.
    """

    rows: int
    data: memoryview
    offsets: memoryview | None
    large: bool
    itemsize: int

    def slice(self, row: int) -> memoryview:
        """The bytes of one row."""
        if self.offsets is None:
            start, stop = row, row + 1
        else:
            start, stop = self.offsets[row], self.offsets[row + 1]
        return self.data[start * self.itemsize : stop * self.itemsize]


class Shard:
    """A shard mapped MAP_PRIVATE, readable and writable (copy-on-write), for as long as any view lives.

    Opening checks the file's size and its structure; `chunks` checks a column's offsets at first use.
    Payload bytes are checked against their checksums where they are decoded.

    Raises:
        ShardDamagedError: anything about the file that is not what was written.
    """

    def __init__(self, folder: Path, entry: ShardEntry, fields: Mapping[str, Field]) -> None:
        self.path = folder / entry.file
        self.num_rows = entry.rows
        self.fields = fields
        mapped = _map_file(self.path, entry.bytes)
        self._address = mapped.address
        self._view = memoryview(mapped).cast("B")
        # The parts that are read here are small and far apart: what lies around each is not needed.
        self.read_at_random(True)
        expected = [column for name, field in fields.items() for column in arrow_columns(name, field)]
        try:
            # use_threads would start Arrow's pool, which does not survive a fork.
            options = pa.ipc.IpcReadOptions(use_threads=False)
            reader = pa.ipc.open_file(pa.BufferReader(mapped), options=options)
            same_columns = reader.schema.equals(pa.schema(expected))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except Exception as error:  # whatever pyarrow makes of hostile bytes: always this one error
            raise ShardDamagedError(self.path, f"it is no Arrow file that can be read ({error})") from error
        if not same_columns:
            raise ShardDamagedError(self.path, "its columns are not those of the manifest")
        self._batches = batches
        self._column_index = {column.name: index for index, column in enumerate(expected)}
        self._starts = (0, *accumulate(batch.num_rows for batch in self._batches))
        if self._starts[-1] != entry.rows:
            raise ShardDamagedError(self.path, f"it has {self._starts[-1]} rows, the manifest says {entry.rows}")
        self._chunks: dict[str, list[Chunk]] = {}
        self.read_at_random(False)

    def read_at_random(self, random: bool) -> None:
        """Whether a page that is touched and not in memory comes alone, without its neighbours on the disk."""
        advise(self._address, len(self._view), random)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the stored columns, a field's own first: 'image', 'image.width', …"""
        return tuple(self._column_index)

    @property
    def row_group_starts(self) -> tuple[int, ...]:
        """First row of each row group within the shard, and the end."""
        return self._starts

    def chunks(self, column: str) -> list[Chunk]:
        """One chunk per row group, nothing copied.

        Args:
            column: A stored column: a field's name or one of its companions ('image.width').

        Raises:
            KeyError: there is no such column.
            ShardDamagedError: its buffers or offsets do not fit.
        """
        chunks = self._chunks.get(column)
        if chunks is None:
            index = self._column_index[column]
            chunks = [self._chunk(column, batch.column(index)) for batch in self._batches]
            self._chunks[column] = chunks
        return chunks

    def locate(self, row: int) -> tuple[int, int]:
        """Row group and row within it."""
        if not 0 <= row < self.num_rows:
            raise IndexError(f"row {row} of {self.path}, which has {self.num_rows} rows")
        group = bisect_right(self._starts, row) - 1
        return group, row - self._starts[group]

    def value(self, name: str, row: int) -> Any:
        """One value: numbers as numpy scalars, arrays as views (copy-on-write), text as str, Json parsed.

        An encoded Image or Bytes gives a read-only memoryview of the stored bytes, a raw Image its pixels.
        """
        group, local = self.locate(row)
        chunk = self.chunks(name)[group]
        field = self.fields[name]
        data = chunk.slice(local)
        match field:
            case Image(encoding="raw", shape=shape) if shape is not None:
                return np.frombuffer(data, np.uint8).reshape(shape)
            case Image() | Bytes():
                return data.toreadonly()
            case Scalar():
                return np.frombuffer(data, stored_dtype(field.dtype)).view(field.dtype)[0]
            case Tokens():
                return np.frombuffer(data, field.dtype)
            case Tensor(ragged=False):
                shape_of = tuple(n or 0 for n in field.shape)
                return np.frombuffer(data, stored_dtype(field.dtype)).view(field.dtype).reshape(shape_of)
            case Tensor():
                return self._ragged(name, field, group, local, data)
            case Text() | Json():
                return self._text(field, row, data)

    def number(self, column: str, row: int) -> int:
        """One value of a companion column ('image.width', 'image.crc32c')."""
        group, local = self.locate(row)
        kind = self._batches[group].schema.field(column).type.to_pandas_dtype()
        return int(np.frombuffer(self.chunks(column)[group].slice(local), kind)[0])

    def checksum_problem(self, name: str, row: int) -> str | None:
        """What is wrong with the stored bytes of a value, None when their CRC-32C is the one that was written."""
        group, local = self.locate(row)
        data = self.chunks(name)[group].slice(local)
        actual = _native.crc32c(data)
        field = self.fields[name]
        if isinstance(field, Tensor) and field.ragged:
            actual = _native.crc32c(self.chunks(f"{name}.shape")[group].slice(local), actual)
        stored = self.number(f"{name}.crc32c", row)
        if actual == stored:
            return None
        return f"checksum mismatch: CRC-32C of the {len(data)} stored bytes is {actual:08x}, written was {stored:08x}"

    def _ragged(self, name: str, field: Tensor, group: int, local: int, data: memoryview) -> npt.NDArray[Any]:
        sizes = np.frombuffer(self.chunks(f"{name}.shape")[group].slice(local), np.int32).tolist()
        array = np.frombuffer(data, stored_dtype(field.dtype)).view(field.dtype)
        if any(size < 0 for size in sizes) or int(np.prod(sizes, dtype=np.float64)) != array.size:
            raise ShardDamagedError(
                self.path,
                f"field {name!r}, row {self._starts[group] + local}: {array.size} items, shape {sizes}",
            )
        return array.reshape(sizes)

    def _text(self, field: Text | Json, row: int, data: memoryview) -> Any:
        try:
            text = str(data, "utf-8")
            return json.loads(text) if isinstance(field, Json) else text
        except ValueError as error:
            raise ShardDamagedError(self.path, f"row {row} holds text that cannot be read ({error})") from error

    def _chunk(self, column: str, array: pa.Array) -> Chunk:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array, kind = array.storage, kind.storage_type
        rows = len(array)
        if pa.types.is_struct(kind):  # an encoded image: its bytes, beside a path that is always null
            if array.null_count:
                raise ShardDamagedError(self.path, f"column {column!r} has empty values")
            array, kind = array.field(0), kind.field(0).type
        if array.offset:  # our files have none; an IPC file cannot express one
            raise ShardDamagedError(self.path, f"column {column!r} starts at an offset")
        buffers = array.buffers()
        if array.null_count:
            raise ShardDamagedError(self.path, f"column {column!r} has empty values")
        if pa.types.is_fixed_size_list(kind):
            itemsize = kind.list_size * kind.value_type.bit_width // 8
            return self._fixed(column, rows, itemsize, buffers[-1])
        if pa.types.is_primitive(kind):
            return self._fixed(column, rows, kind.bit_width // 8, buffers[-1])
        itemsize = kind.value_type.bit_width // 8 if pa.types.is_list(kind) else 1
        data = self._bytes(column, buffers[-1])
        offsets = self._fixed(column, rows + 1, 4, buffers[1]).data.cast("i")
        check_offsets(np.frombuffer(offsets, np.int32), len(data) // itemsize, str(self.path), column)
        return Chunk(rows, data, offsets, False, itemsize)

    def _fixed(self, column: str, rows: int, itemsize: int, buffer: pa.Buffer | None) -> Chunk:
        data = self._bytes(column, buffer)
        if len(data) < rows * itemsize:
            raise ShardDamagedError(self.path, f"column {column!r} is shorter than its {rows} rows")
        return Chunk(rows, data[: rows * itemsize], None, False, itemsize)

    def _bytes(self, column: str, buffer: pa.Buffer | None) -> memoryview:
        """The part of the map that an Arrow buffer covers: writable, and keeping the map alive."""
        if buffer is None or buffer.size == 0:
            return self._view[:0]
        start = buffer.address - self._address
        if start < 0 or start + buffer.size > len(self._view):
            raise ShardDamagedError(self.path, f"column {column!r} lies outside the file")
        return self._view[start : start + buffer.size]


def _map_file(path: Path, size: int) -> pa.Buffer:
    """The file's bytes, copy-on-write; the map ends when the last view of the buffer has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ShardDamagedError(path, "the file is missing") from None
    except OSError as error:
        raise _refused(path, error) from error
    try:
        actual = os.fstat(descriptor).st_size
        if actual != size:
            raise ShardDamagedError(path, f"it has {actual} bytes, the manifest says {size}")
        if size == 0:
            raise ShardDamagedError(path, "it is empty")
        # Without MAP_NORESERVE the kernel counts the whole map as memory that may be written to.
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_NORESERVE
        try:
            mapped = map_file(descriptor, size, protection, flags)
        except OSError as error:
            raise _refused(path, error) from error
    finally:
        os.close(descriptor)
    return pa.py_buffer(mapped)


def _refused(path: Path, error: OSError) -> ZcdError:
    """The operating system's refusal: of resources, which says nothing about the shard, or of the file."""
    match error.errno:
        case errno.EMFILE:
            return ZcdError(
                f"shard {path} cannot be opened: this process has as many files open as it may. "
                "Close some, or raise the limit with: ulimit -n"
            )
        case errno.ENFILE:
            return ZcdError(f"shard {path} cannot be opened: the machine has as many files open as it may.")
        case errno.ENOMEM | errno.EAGAIN:
            return ZcdError(
                f"shard {path} cannot be mapped: the system gives this process no more memory or address space. "
                "Look at: ulimit -v, and sysctl vm.max_map_count"
            )
    return ShardDamagedError(path, f"it cannot be opened ({error.strerror})")

"""Where token streams lie: flat files of integers, and Tokens columns of shards."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import BadSampleError, ConfigError, DatasetChangedError
from ..format.fields import Tokens
from ..format.shard import Chunk
from ..memory.mapping import MAP_NORESERVE, advise_random, map_file
from ..order.windows import DocumentWindows, StreamWindows, WindowPlaces
from .dataset import ShardDataset
from .samples import bad_sample

# uint64 is none of them: half of its values are no int64.
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")


class TokenSource(Protocol):
    """Tokens that can be addressed as one stream.

    Attributes:
        native: The stream as the core reads it.
        dtype: Of the stored tokens.
    """

    native: _native.TokenStream
    dtype: np.dtype[Any]

    def places(self, reach: int, stride: int, across_documents: bool) -> WindowPlaces:
        """Where its windows begin."""

    def piece(self, start: int, count: int) -> npt.NDArray[Any]:
        """As many of these tokens as lie in one run, at least the first: a read-only view of the map."""

    def bad_sample(self, start: int, count: int, window: int, reason: str) -> BadSampleError:
        """The error for a window of which a document is damaged."""


class FlatTokens:
    """A file that is nothing but tokens, as nanoGPT's train.bin. It must not be shortened while it is open.

    Args:
        path: The file.
        dtype: Of its tokens, in the machine's byte order.

    Raises:
        ConfigError: the file is absent or empty, or does not hold a whole number of tokens.
    """

    def __init__(self, path: str | os.PathLike[str], dtype: npt.DTypeLike | None) -> None:
        self.path = Path(path).absolute()
        self.dtype = _flat_dtype(dtype)
        self._open()

    def _open(self) -> None:
        item = self.dtype.itemsize
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be opened ({error.strerror}). Give a file of tokens.") from None
        try:
            if self.path.is_dir():
                raise ConfigError(f"{self.path} is a folder: open a dataset with zcd.open, and give what it returns.")
            self._size = size = os.fstat(descriptor).st_size
            if size == 0 or size % item:
                raise ConfigError(
                    f"{self.path} has {size} bytes, no whole number of {self.dtype.name} tokens of {item} bytes: it is "
                    "cut short, or of another dtype. Copy it again from its origin, or give the dtype that it was "
                    "written with."
                )
            if os.pread(descriptor, 6, 0) == b"\x93NUMPY":
                raise ConfigError(f"{self.path} is a .npy file, which begins with a header: write it with tofile().")
            mapped = map_file(descriptor, size, mmap.PROT_READ, mmap.MAP_SHARED | MAP_NORESERVE)
            advise_random(mapped)  # the core asks for what it needs
        finally:
            os.close(descriptor)
        self._data = memoryview(mapped).cast("B").toreadonly()
        self.native = _native.TokenStream(self.dtype.name, [(self._data, None, None)])

    def places(self, reach: int, stride: int, across_documents: bool) -> StreamWindows:
        """See `TokenSource`. The file is one document."""
        return StreamWindows(len(self.native), reach, stride)

    def piece(self, start: int, count: int) -> npt.NDArray[Any]:
        """See `TokenSource`."""
        return np.frombuffer(self._data, self.dtype, count, start * self.dtype.itemsize)

    def bad_sample(self, start: int, count: int, window: int, reason: str) -> BadSampleError:
        """Does not happen: a flat file has no checksums."""
        return BadSampleError(self.path, None, window, None, reason)

    def __getstate__(self) -> tuple[Path, np.dtype[Any], int]:
        return self.path, self.dtype, self._size

    def __setstate__(self, state: tuple[Path, np.dtype[Any], int]) -> None:
        self.path, self.dtype, size = state
        self._open()
        if self._size != size:
            raise DatasetChangedError(f"{self.path} had {size} bytes when it was opened, and has {self._size} now.")

    def __repr__(self) -> str:
        return f"{str(self.path)!r}, dtype={self.dtype.name}"


class ShardTokens:
    """The Tokens column of a dataset in shards: one run a row group, one document a row.

    All shards are mapped here, and their offsets read; no token is.

    Args:
        dataset: Whose rows, in their order on disk, are the stream.
        column: A Tokens column.

    Raises:
        ConfigError: there is no such column, or it holds what int64 can't.
        ShardDamagedError: a shard is not what was written.
    """

    def __init__(self, dataset: ShardDataset, column: str) -> None:
        field = dataset.fields.get(column)
        if not isinstance(field, Tokens):
            there = [name for name, other in dataset.fields.items() if isinstance(other, Tokens)]
            raise ConfigError(
                f"{dataset.path} has no Tokens column {column!r}. Its Tokens columns: {', '.join(there) or 'none'}. "
                "Give column=."
            )
        if field.dtype not in DTYPES:
            raise ConfigError(f"column {column!r} of {dataset.path} holds {field.dtype}: tokens come out as int64.")
        self.dataset = dataset.select(column)
        self.column = column
        self.dtype = np.dtype(field.dtype)
        self._open()

    def _open(self) -> None:
        reader, verify = self.dataset.reader, self.dataset.options.verify
        self._chunks: list[Chunk] = []
        parts: list[tuple[memoryview, memoryview | None, memoryview | None]] = []
        for index in range(reader.num_shards):
            shard = reader.shard(index)
            for chunk, sums in zip(shard.chunks(self.column), shard.chunks(f"{self.column}.crc32c"), strict=True):
                self._chunks.append(chunk)
                parts.append((chunk.data, chunk.offsets, sums.data if verify else None))
        self.native = _native.TokenStream(self.dtype.name, parts)
        self._starts = (0, *accumulate(_last(chunk) - _first(chunk) for chunk in self._chunks))

    def places(self, reach: int, stride: int, across_documents: bool) -> WindowPlaces:
        """See `TokenSource`.

        Raises:
            ConfigError: a stream across the documents of a subset.
        """
        chosen = self.dataset.selection.chosen
        whole = isinstance(chosen, range) and chosen == range(self.dataset.reader.num_rows)
        if across_documents:
            if not whole:
                raise ConfigError(
                    f"{self.dataset!r} is a subset; across_documents=True reads all rows as one stream, in their order "
                    "on disk. Take windows of the whole dataset, and a subset() of those."
                )
            return StreamWindows(len(self.native), reach, stride)
        offsets = [_offsets(chunk) for chunk in self._chunks]
        none = np.empty(0, np.int64)
        lengths = np.concatenate([none, *map(np.diff, offsets)])
        firsts = np.concatenate(
            [none, *(o[:-1] - o[0] + start for o, start in zip(offsets, self._starts[:-1], strict=True))]
        )
        if not whole:
            rows = self.dataset.rows(np.arange(len(self.dataset), dtype=np.int64))
            firsts, lengths = firsts[rows], lengths[rows]
        return DocumentWindows(firsts, lengths, reach, stride)

    def piece(self, start: int, count: int) -> npt.NDArray[Any]:
        """See `TokenSource`."""
        number = bisect_right(self._starts, start) - 1
        chunk, item = self._chunks[number], self.dtype.itemsize
        local = start - self._starts[number]
        inside = min(count, self._starts[number + 1] - start)
        return np.frombuffer(chunk.data.toreadonly(), self.dtype, inside, (_first(chunk) + local) * item)

    def bad_sample(self, start: int, count: int, window: int, reason: str) -> BadSampleError:
        """The error for the first damaged document among those that a window touches."""
        reader = self.dataset.reader
        firsts = [0, *accumulate(chunk.rows for chunk in self._chunks)]
        row = None
        for number, chunk in enumerate(self._chunks):
            begin, end = self._starts[number], self._starts[number + 1]
            if end <= start or begin >= start + count:
                continue
            places = _offsets(chunk) - _first(chunk) + begin
            touched = np.flatnonzero((places[1:] > start) & (places[:-1] < start + count)) + firsts[number]
            for row in touched.tolist():
                problem = reader.checksum_problem(self.column, row)
                if problem is not None:
                    return bad_sample(reader, row, f"column {self.column!r}, window {window}: {problem}")
        return BadSampleError(reader.path, None, row, None, f"column {self.column!r}, window {window}: {reason}")

    def __getstate__(self) -> tuple[ShardDataset, str, np.dtype[Any]]:
        return self.dataset, self.column, self.dtype

    def __setstate__(self, state: tuple[ShardDataset, str, np.dtype[Any]]) -> None:
        self.dataset, self.column, self.dtype = state
        self._open()

    def __repr__(self) -> str:
        return f"{str(self.dataset.path)!r}, column={self.column!r}"


def _flat_dtype(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        made = np.dtype(dtype)
    except TypeError:
        made = None
    if dtype is None or made is None or made.name not in DTYPES or not made.isnative:
        raise ConfigError(f"a flat file of tokens needs its dtype, one of {', '.join(DTYPES)}; got dtype={dtype!r}.")
    return made


def _offsets(chunk: Chunk) -> npt.NDArray[np.int64]:
    assert chunk.offsets is not None  # a Tokens column has them
    return np.frombuffer(chunk.offsets, np.int32).astype(np.int64)


def _first(chunk: Chunk) -> int:
    assert chunk.offsets is not None
    return int(chunk.offsets[0])


def _last(chunk: Chunk) -> int:
    assert chunk.offsets is not None
    return int(chunk.offsets[chunk.rows])

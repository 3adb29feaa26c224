"""zcd.windows: sliding windows over token streams as a map-style torch dataset."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from .. import _native
from ..errors import BadSampleError, ConfigError
from ..format.fields import Field, Tensor
from ..image.program import ImageProgram, ViewValues
from .dataset import ShardDataset
from .native import Faults, JoinedColumns, ThreadServed
from .samples import ImageOptions
from .selection import Selection
from .token_sources import FlatTokens, ShardTokens, TokenSource


def windows(
    source: ShardDataset | str | os.PathLike[str],
    length: int,
    stride: int | None = None,
    *,
    column: str = "tokens",
    across_documents: bool = False,
    target: bool = True,
    dtype: npt.DTypeLike | None = None,
) -> WindowDataset:
    """Sliding windows over token streams, for language models: `{"input": int64 [length], "target": int64 [length]}`.

    The target is the input one token later, made in the same pass over `length + 1` stored tokens: next-token pairs as
    nanoGPT (`data[i:i+L]`, `data[i+1:i+1+L]`) and, with the default stride, Megatron make them, whose neighbours share
    one token. Over a zcd.DataLoader batches are made natively straight into its slots, without worker processes;
    `shuffle=True, seed=…` shuffles any number of windows in no memory.

    Tokens stay in the mapped file until a window is read: a stream of any size opens at once. Of a dataset's documents
    sixteen bytes each are kept, of a stream nothing. Pages of the file that are not in memory are asked for a batch at
    a time, and those further on where windows are read in their order; the kernel drops them when it needs the room.

    A document's checksum is checked when a window touches the document for the first time in a process, over the
    document as a whole: no window has a sum of its own. Later windows of it are not checked again.
    `zcd.open(verify=False)` never checks. A flat file has no checksums.

    Args:
        source: A dataset with a Tokens column, one document a row; or the path of a flat file that is nothing but
            tokens (nanoGPT's train.bin).
        length: Tokens of a window.
        stride: Tokens from the beginning of one window to that of the next; `length` by default.
        column: The Tokens column of a dataset.
        across_documents: Whether all rows are one stream, in their order on disk. Else each window lies within one
            document, and what is left at a document's end, too short for one more, is left out; so are documents
            shorter than a window and its target. A flat file is one document.
        target: Whether samples have a target.
        dtype: Of a flat file's tokens ('uint16').

    Raises:
        ConfigError: an argument makes no sense, the file is damaged, or no window fits in any document.
        ShardDamagedError: a shard is not what was written.
    """
    length = _positive(length, "length")
    stride = length if stride is None else _positive(stride, "stride")
    tokens: TokenSource
    if isinstance(source, ShardDataset):
        if dtype is not None:
            raise ConfigError(f"dtype={dtype!r} is for flat files; {source!r} knows its own.")
        tokens = ShardTokens(source, column)
    elif isinstance(source, str | os.PathLike):
        tokens = FlatTokens(source, dtype)
    else:
        raise ConfigError(f"windows are of a zcd.open dataset or of a file's path, not of {type(source).__name__}.")
    return WindowDataset(tokens, length, stride, across_documents, target)


class WindowDataset(ThreadServed, Dataset[Any]):
    """Windows over token streams. Made by `zcd.windows`; immutable.

    `ds[i]` is a dict of int64 tensors [length] (a tuple after `as_tuple`), `ds[a:b]` a batch of them. Pickles to a path
    and a few numbers, and may be used in forked and spawned workers of any DataLoader.

    Attributes:
        length: Tokens of a window.
        stride: Tokens from the beginning of one window to that of the next.
        across_documents: Whether documents are one stream.
    """

    def __init__(self, source: TokenSource, length: int, stride: int, across_documents: bool, target: bool) -> None:
        self.source = source
        self.length = length
        self.stride = stride
        self.across_documents = across_documents
        self.columns: tuple[str, ...] = ("input", "target") if target else ("input",)
        self._fields: Mapping[str, Field] = {name: Tensor("int64", (length,)) for name in self.columns}
        self.tupled = False
        self.seed = 0
        self.options = ImageOptions()
        self._places = source.places(self.reach, stride, across_documents)
        if not len(self._places):
            what = "the stream" if across_documents or isinstance(source, FlatTokens) else "every document"
            raise ConfigError(
                f"{source!r}: {what} is shorter than a window of {length} tokens"
                f"{' and its target, one token more' if target else ''}. Give a smaller length."
            )
        self.selection = Selection(range(len(self._places)))

    @property
    def reach(self) -> int:
        """Tokens that a window is made of: with a target one more than its length."""
        return self.length + len(self.columns) - 1

    @property
    def fields(self) -> Mapping[str, Field]:
        """What a sample has."""
        return self._fields

    @property
    def transforms(self) -> Mapping[str, Any]:
        """None: tokens are as they are stored."""
        return {}

    def as_tuple(self) -> WindowDataset:
        """Samples as tuples: `for x, y in loader`."""
        made = copy.copy(self)
        made.tupled = True
        return made

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> WindowDataset:
        """These windows, in this order: see `ShardDataset.subset`."""
        made = copy.copy(self)
        made.selection = self.selection.subset(indices)
        return made

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of windows in the dataset that `zcd.windows` made, by positions in this one."""
        return self.selection.rows(indices)

    def starts(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The first token of windows, by `rows`, counted from the beginning of all stored tokens."""
        return self._places.starts(rows)

    def view(self, index: int) -> npt.NDArray[Any]:
        """A window's tokens as they are stored, the target's last one included: read-only, and nothing is copied.

        Where a window crosses from one row group to the next its tokens don't lie together, and are copied. No checksum
        is checked.

        Returns:
            [length + 1], or [length] without targets, of the stored dtype.
        """
        start = int(self.starts(np.array([self.selection.row(index)], np.int64))[0])
        pieces = [self.source.piece(start, self.reach)]
        while (done := sum(map(len, pieces))) < self.reach:
            pieces.append(self.source.piece(start + done, self.reach - done))
        if len(pieces) == 1:
            return pieces[0]
        joined = np.concatenate(pieces)
        joined.flags.writeable = False
        return joined

    def native_column(self, name: str) -> WindowColumns:
        """Both columns at once."""
        return WindowColumns(self)

    def bad_sample(self, column: str, row: int, reason: str, misfit: bool = False) -> BadSampleError:
        """The error for a window: it names the document."""
        start = int(self.starts(np.array([row], np.int64))[0])
        return self.source.bad_sample(start, self.reach, row, reason)

    def plain(self, column: str, row: int) -> torch.Tensor:
        """One column of one window."""
        return self._sample(row)[self.columns.index(column)]

    def program(self, column: str) -> ImageProgram:
        """Is for images."""
        raise TypeError("tokens are no images")

    def deferred(self, column: str) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
        """Is for images."""
        raise TypeError("tokens are no images")

    def encoded(self, column: str, row: int) -> bytes:
        """Is for images."""
        raise TypeError("tokens are no images")

    def random_key(self) -> tuple[int, int]:
        """Nothing here is random."""
        return 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Nothing here depends on the epoch."""

    def __len__(self) -> int:
        return len(self.selection)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            from .batch import batch_of_slice

            return batch_of_slice(self, np.arange(*index.indices(len(self)), dtype=np.int64))
        made = self._sample(self.selection.row(index))
        return made if self.tupled else dict(zip(self.columns, made, strict=True))

    def _sample(self, row: int) -> tuple[torch.Tensor, ...]:
        outs = [np.empty(self.length, np.int64) for _ in self.columns]
        for _, _, reason in WindowColumns(self).gather_all(np.array([row], np.int64), [out.data for out in outs]):
            raise self.bad_sample("input", row, reason)
        return tuple(map(torch.from_numpy, outs))

    def __copy__(self) -> WindowDataset:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)  # not by way of __getstate__: copies share the places
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}  # found again by the source: it may be an array by document

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._places = self.source.places(self.reach, self.stride, self.across_documents)

    def __repr__(self) -> str:
        shape = f"windows={len(self)}, length={self.length}, stride={self.stride}"
        return f"WindowDataset({self.source!r}, {shape}{', as tuples' if self.tupled else ''})"


class WindowColumns(JoinedColumns):
    """Input and target of windows, filled in one pass."""

    def __init__(self, dataset: WindowDataset) -> None:
        self.names = dataset.columns
        self._native: _native.TokenStream = dataset.source.native
        self._starts = dataset.starts
        self._length = dataset.length

    def gather_all(
        self, rows: npt.NDArray[np.int64], outs: list[memoryview], places: npt.NDArray[np.int64] | None = None
    ) -> Faults:
        """See `native.JoinedColumns`."""
        targets = outs[1] if len(outs) > 1 else None
        return self._native.gather(self._starts(rows), self._length, outs[0], targets, places)

    def extents(self, rows: npt.NDArray[np.int64], gap: int) -> list[_native.Extents]:
        """See `read_ahead.Locatable`."""
        return [self._native.extents(self._starts(rows), self._length + len(self.names) - 1, gap)]

    def read_at_random(self, random: bool) -> None:
        """Flat files are always read so; the stream asks for what it needs of shards."""


def _positive(value: int, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name}={value!r}: a number of tokens, 1 or more.")
    return number

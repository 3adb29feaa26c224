"""Collation of samples whose lengths differ: padded to one tensor, in the memory in which the batch travels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from ..errors import ConfigError
from . import batch_memory
from .packed import as_tensor


class Padded(NamedTuple):
    """A padded column of a batch.

    Attributes:
        values: [samples, length], of the samples' dtype.
        lengths: int64 [samples], what is no padding.
    """

    values: torch.Tensor
    lengths: torch.Tensor


class PadCollate:
    """A `collate_fn` that pads what differs in length: 1-D tensors and arrays become a `Padded` (values, lengths).

        zcd.DataLoader(ds, 32, collate_fn=zcd.PadCollate())                                     # to the batch's longest
        zcd.DataLoader(ds, batch_sampler=sampler, collate_fn=zcd.PadCollate(to=sampler.edges))  # to the bucket's edge

    Samples are such values themselves, or dicts, tuples or lists of them, and come out as torch's default collation
    has them; so do the columns that are not padded.

    Values keep the dtype that is stored: `.values.long()` where a model wants int64.

    In worker processes a large result is written straight into the slot that carries it to the training process.

    Args:
        pad_value: What is behind a sample's end; by column where it is a dict, 0 for those that it leaves out.
        multiple_of: Lengths are rounded up to a multiple of this, as kernels may want it.
        to: 'batch' for the longest of the batch; or ascending lengths, of which the first that is long enough is taken:
            few different shapes, as compiled models want them. A batch that is longer than all has its own length.
        columns: Names (of dicts) or places (of tuples and lists) that are padded, which may then be lists of numbers
            too. None: those that are 1-D tensors or arrays in the batch's first sample, whatever their lengths are.

    Raises:
        ConfigError: an argument makes no sense; when called, a sample has no such column, or one that is not 1-D or
            of another dtype than the sample before.
    """

    def __init__(
        self,
        pad_value: float | Mapping[Any, float] = 0,
        *,
        multiple_of: int = 1,
        to: str | Sequence[int] = "batch",
        columns: Collection[Any] | None = None,
    ) -> None:
        if multiple_of < 1:
            raise ConfigError(f"multiple_of={multiple_of}: at least 1.")
        if isinstance(to, str):
            if to != "batch":
                raise ConfigError(f"to={to!r}: 'batch', or lengths, such as the edges of a BucketBatchSampler.")
            to = ()
        if any(low >= high for low, high in pairwise(to)):
            raise ConfigError(f"to={list(to)}: lengths in ascending order.")
        self.pad_value = pad_value
        self.multiple_of = multiple_of
        self.edges = tuple(int(edge) for edge in to)
        self.columns = columns

    def __call__(self, batch: Sequence[Any]) -> Any:
        """The batch of these samples."""
        first = batch[0]
        if isinstance(first, Mapping):
            return {name: self._column(name, _values(batch, name)) for name in self._names(first)}
        if isinstance(first, (tuple, list)):
            if any(len(sample) != len(first) for sample in batch):
                raise ConfigError(f"samples of {sorted({len(sample) for sample in batch})} values in one batch.")
            columns = [self._column(place, _values(batch, place)) for place in self._names(first)]
            # As torch's: a list, or the samples' own named tuple.
            return type(first)(*columns) if isinstance(first, tuple) and hasattr(first, "_fields") else columns
        return self._column(None, batch)

    def _names(self, sample: Any) -> Collection[Any]:
        names = sample.keys() if isinstance(sample, Mapping) else range(len(sample))
        missing = [name for name in self.columns or () if name not in names]
        if missing:
            raise ConfigError(f"columns={list(self.columns or ())}: the samples have {list(names)}.")
        return names

    def _column(self, name: Any, values: Sequence[Any]) -> Any:
        if self.columns is None or name is None:
            ragged = isinstance(values[0], (torch.Tensor, np.ndarray)) and values[0].ndim == 1
        else:
            ragged = name in self.columns
        return self._pad(name, [as_tensor(value) for value in values]) if ragged else default_collate(list(values))

    def _pad(self, name: Any, values: list[torch.Tensor]) -> Padded:
        # What a list without numbers would be is unknown.
        dtype = next((value.dtype for value in values if value.numel()), values[0].dtype)
        for number, value in enumerate(values):
            if value.ndim != 1 or (value.numel() and value.dtype != dtype):
                what = "samples" if name is None else f"column {name!r}"
                raise ConfigError(
                    f"sample {number} of a batch has {what} of shape {list(value.shape)} and {value.dtype}; to be "
                    f"padded they are 1-D and of one dtype, here {dtype}. Name the columns to pad: columns=."
                )
        lengths = [len(value) for value in values]
        out = batch_memory.empty((len(values), self._length(max(lengths))), dtype)
        fill = self.pad_value.get(name, 0) if isinstance(self.pad_value, Mapping) else self.pad_value
        for row, value, length in zip(out, values, lengths, strict=True):
            row[:length] = value
            row[length:] = fill
        return Padded(out, torch.tensor(lengths))

    def _length(self, longest: int) -> int:
        place = bisect_left(self.edges, longest)
        length = self.edges[place] if place < len(self.edges) else longest
        return -(-length // self.multiple_of) * self.multiple_of


def _values(batch: Sequence[Any], name: Any) -> list[Any]:
    """A column of the samples."""
    try:
        return [sample[name] for sample in batch]
    except (KeyError, IndexError):
        raise ConfigError(f"column {name!r} of the batch's first sample is missing in another.") from None

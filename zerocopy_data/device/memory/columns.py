"""What a cache keeps: columns of tensors, one row a sample, that can be read from host memory at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from ...errors import ConfigError
from ...format.fields import Image

_ALIGNED = 16  # bytes: a view as any dtype needs no more


@dataclass(frozen=True)
class Column:
    """One tensor a row.

    Attributes:
        dtype: Of its values.
        shape: Of one row.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        count = 1
        for n in self.shape:
            count *= n
        return count * self.dtype.itemsize


class Rows:
    """The rows of a source.

    Args:
        source: A tensor, a sequence or a dict of tensors, all with one row a sample and in host memory; a
            TensorDataset; or a ShardDataset (`ds.subset(indices)[:]` is a batch) whose columns are all of one size.

    Raises:
        ConfigError: It is none of these, is empty, or gives other values at each reading.
    """

    def __init__(self, source: Any) -> None:
        self._dataset: Any = None
        self._tensors: list[torch.Tensor] = []
        if isinstance(source, TensorDataset):
            source = tuple(source.tensors)
        if callable(getattr(source, "subset", None)):
            self._dataset = source
            _refuse_random(source)
            self._length = len(source)
            first = source.subset([0])[:] if self._length else {}
        else:
            first = source
        self._names = tuple(first) if isinstance(first, Mapping) else None
        self._single = isinstance(first, torch.Tensor)
        tensors = self._values(first)
        for name, value in zip(self._names or range(len(tensors)), tensors, strict=True):
            if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.dim() < 1:
                what = f"a {type(value).__name__}" if not isinstance(value, torch.Tensor) else f"on {value.device}"
                raise ConfigError(
                    f"DeviceCache: column {name!r} is {what}, not a tensor in host memory with one row a sample. Leave "
                    "it out: ds.select([...])."
                )
        if self._dataset is None:
            self._tensors = tensors
            self._length = len(tensors[0]) if tensors else 0
            if any(len(tensor) != self._length for tensor in tensors):
                raise ConfigError(f"DeviceCache: columns of different lengths: {[len(t) for t in tensors]}.")
        if not self._length:
            raise ConfigError("DeviceCache: there are no rows to keep.")
        self.columns = tuple(Column(tensor.dtype, tuple(tensor.shape[1:])) for tensor in tensors)

    def __len__(self) -> int:
        return self._length

    @property
    def row_bytes(self) -> int:
        """Bytes of all columns of one row."""
        return sum(column.row_bytes for column in self.columns)

    def read(self, indices: npt.NDArray[np.int64]) -> list[torch.Tensor]:
        """The columns of these rows, in host memory.

        Raises:
            ConfigError: A dataset's rows are not all of one size.
        """
        if self._dataset is None:
            return [tensor.index_select(0, torch.from_numpy(indices)) for tensor in self._tensors]
        values = self._values(self._dataset.subset(indices)[:])
        for column, value in zip(self.columns, values, strict=True):
            if not isinstance(value, torch.Tensor) or (value.dtype, value.shape[1:]) != (column.dtype, column.shape):
                raise ConfigError(
                    f"DeviceCache: the first row is {list(column.shape)} of {column.dtype}, others are not: bring all "
                    "to one size with a transform, or leave the column out."
                )
        return values

    def batch(self, values: Sequence[torch.Tensor]) -> Any:
        """Columns in the form in which the source has them."""
        if self._single:
            return values[0]
        return tuple(values) if self._names is None else dict(zip(self._names, values, strict=True))

    def _values(self, batch: Any) -> list[Any]:
        if isinstance(batch, torch.Tensor):
            return [batch]
        if isinstance(batch, Mapping):
            return list(batch.values())
        if isinstance(batch, Sequence) and not isinstance(batch, str):
            return list(batch)
        raise ConfigError(
            f"DeviceCache: a {type(batch).__name__} is no tensor, dict or sequence of tensors, TensorDataset or "
            "ShardDataset."
        )


class Packing:
    """How columns of `count` rows lie one after the other in bytes.

    Args:
        columns: Which.
        count: Rows.
    """

    def __init__(self, columns: Sequence[Column], count: int) -> None:
        self._columns = columns
        self._count = count
        self._starts = []
        self.bytes = 0
        for column in columns:
            self._starts.append(self.bytes)
            self.bytes += -(-count * column.row_bytes // _ALIGNED) * _ALIGNED

    def views(self, contents: torch.Tensor, start: int = 0) -> list[torch.Tensor]:
        """The columns over uint8 [at least start + bytes]."""
        made = []
        for column, begin in zip(self._columns, self._starts, strict=True):
            size = self._count * column.row_bytes
            flat = contents[start + begin : start + begin + size].view(column.dtype)
            made.append(flat.view(self._count, *column.shape))
        return made


def _refuse_random(dataset: Any) -> None:
    for name, field in getattr(dataset, "fields", {}).items():
        if isinstance(field, Image) and dataset.program(name).random:
            raise ConfigError(
                f"DeviceCache: the transform of {name!r} is random, and a cached row would be the same in every epoch. "
                "Keep the images as they are, and augment batches on the device."
            )

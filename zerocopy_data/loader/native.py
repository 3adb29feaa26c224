"""What a dataset offers so that the thread engine can make its batches: shards and folders of files meet here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from .copies import Indices, parted, sample_keys
from .selection import Selection, integers

if TYPE_CHECKING:
    from .. import _native
    from ..errors import BadSampleError
    from ..format.fields import Field
    from ..image.program import ImageProgram, ViewValues
    from .samples import ImageOptions

Self_ = TypeVar("Self_", bound="NativeDataset")
Faults = list[tuple[int, int, str]]


class RandomKey(NamedTuple):
    """What the random parameters of a batch are keyed by.

    Attributes:
        samples: int64 [n], a number for each sample; None: its row. See `loader.copies`.
    """

    seed: int
    epoch: int
    samples: npt.NDArray[np.int64] | None = None

    def of(self, index: int, row: int) -> tuple[int, int, int]:
        """(seed, epoch, sample) of the one with this place and row, as the 64 bits each that the core takes."""
        return self.seed, self.epoch, row if self.samples is None else int(self.samples[index]) % 2**64

    def only(self, places: slice | npt.NDArray[np.int64]) -> RandomKey:
        """The key of these samples of the batch."""
        return self if self.samples is None else self._replace(samples=self.samples[places])


class NativeColumn(Protocol):
    """A column as the core reads it: by row number, without a Python object per row. Any thread may read it."""

    def decode(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: RandomKey,
        outs: list[memoryview],
        pooled: bool,
        cancel: _native.Cancel | None,
        places: npt.NDArray[np.int64] | None = None,
    ) -> Faults:
        """Decodes images into their places, in order unless `places` says others.

        Returns:
            Faults as `_native.Column.decode` gives them, by turn in `rows`.
        """

    def gather(
        self, rows: npt.NDArray[np.int64], item: int, out: memoryview, places: npt.NDArray[np.int64] | None = None
    ) -> Faults:
        """Copies values of `item` bytes each, likewise."""

    def gather_encoded(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: RandomKey,
        block: memoryview,
        offsets: npt.NDArray[np.int64],
        geometry: npt.NDArray[np.int32],
        cancel: _native.Cancel | None,
    ) -> tuple[int, Faults]:
        """Copies encoded images: see `_native.Column.gather_encoded`."""


class JoinedColumns:
    """Base of a native column that is several of a batch's columns, filled together: input and target of one read.

    Attributes:
        names: The columns, in the dataset's order. `NativeDataset.native_column` gives an object like this for each.
    """

    names: tuple[str, ...]

    def gather_all(
        self, rows: npt.NDArray[np.int64], outs: list[memoryview], places: npt.NDArray[np.int64] | None = None
    ) -> Faults:
        """Fills one buffer a column, as `NativeColumn.gather` fills one."""
        raise NotImplementedError


class SampleNumbers:
    """A native column that stores nothing: int64, what the samples' random parameters are keyed by."""


class ThreadServed:
    """Base of the datasets whose batches the thread engine may make: each is a `NativeDataset` in full.

    A class of its own, so that a loader can ask without importing what reads shards or decodes images: processes
    that load other datasets are spared the memory.
    """

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See `NativeDataset`."""
        raise NotImplementedError

    def picks(self, indices: Indices) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """The rows of a batch's samples, and what keys the random parameters of each: None where it is the row.

        Raises:
            IndexError: an index is outside the dataset.
            TypeError: one is no integer.
        """
        plain, copies = parted(indices)
        rows = self.rows(integers(plain))
        return rows, None if copies is None else sample_keys(rows, copies)


class OwnOrder:
    """Base of the datasets whose samples come in an order of their own, which loaders take where none is given."""

    def sampler(self, rank: int | None = None, world_size: int | None = None, uneven: str = "pad") -> Any:
        """The order as a torch Sampler, shared among ranks."""
        raise NotImplementedError


def own_order(dataset: Any) -> OwnOrder | None:
    """The dataset, or that which a torch Subset of it selects from, where it has an order of its own."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset if isinstance(dataset, OwnOrder) else None


class NativeDataset(Protocol):
    """A map-style dataset whose per-sample work is native. Positions count within it, rows are its source's own."""

    columns: tuple[str, ...]
    tupled: bool
    seed: int
    options: ImageOptions
    selection: Selection

    @property
    def fields(self) -> Mapping[str, Field]: ...
    @property
    def transforms(self) -> Mapping[str, Any]: ...
    def program(self, column: str) -> ImageProgram: ...
    def deferred(self, column: str) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
        """The program of a column's geometry, and what is left to be done to its bytes."""

    def subset(self: Self_, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> Self_: ...
    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    def picks(self, indices: Indices) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]: ...
    def native_column(self, name: str) -> NativeColumn | JoinedColumns | SampleNumbers:
        """Makes a column's reader."""

    def encoded(self, column: str, row: int) -> bytes | memoryview:
        """The bytes of an image, for Pillow. Raises ImageError when they can't be read."""

    def plain(self, column: str, row: int) -> Any:
        """A value that is no image, as `ds[i]` has it. Raises BadSampleError, ShardDamagedError."""

    def bad_sample(self, column: str, row: int, reason: str, misfit: bool = False) -> BadSampleError:
        """The error for one row, with all that identifies it. `misfit` says that the transform is to blame."""

    def random_key(self) -> tuple[int, int]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...


def same_samples(one: NativeDataset, other: NativeDataset) -> bool:
    """Whether both are one dataset, or equal subsets of one: their samples are the same then."""
    if one is other:
        return True
    if type(one) is not type(other) or one.__dict__.keys() != other.__dict__.keys():
        return False
    mine, theirs = dict(one.__dict__), dict(other.__dict__)
    rows, other_rows = mine.pop("selection"), theirs.pop("selection")
    return all(mine[name] is theirs[name] for name in mine) and rows.same_as(other_rows)

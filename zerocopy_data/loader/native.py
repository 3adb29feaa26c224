"""What a dataset offers so that the thread engine can make its batches: shards and folders of files meet here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .. import _native
    from ..errors import BadSampleError
    from ..format.fields import Field
    from ..image.program import ImageProgram, ViewValues
    from .samples import ImageOptions
    from .selection import Selection

Self_ = TypeVar("Self_", bound="NativeDataset")
Faults = list[tuple[int, int, str]]


class NativeColumn(Protocol):
    """A column as the core reads it: by row number, without a Python object per row. Any thread may read it."""

    def decode(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: tuple[int, int],
        outs: list[memoryview],
        pooled: bool,
        cancel: _native.Cancel | None,
    ) -> Faults:
        """Decodes images into their places. Returns faults as `_native.Column.decode` does."""

    def gather(self, rows: npt.NDArray[np.int64], item: int, out: memoryview) -> Faults:
        """Copies values of `item` bytes each."""

    def gather_encoded(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: tuple[int, int],
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

    def gather_all(self, rows: npt.NDArray[np.int64], outs: list[memoryview]) -> Faults:
        """Fills one buffer a column, as `NativeColumn.gather` fills one."""
        raise NotImplementedError


class ThreadServed:
    """Base of the datasets whose batches the thread engine may make: each is a `NativeDataset` in full.

    A class of its own, so that a loader can ask without importing what reads shards or decodes images: processes
    that load other datasets are spared the memory.
    """


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
    def native_column(self, name: str) -> NativeColumn | JoinedColumns:
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

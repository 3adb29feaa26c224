"""CompiledDataset: a folder of image files as the thread engine reads it, without packing."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from .. import _native
from ..errors import BadSampleError, ZcdError
from ..format.fields import Field, Image, Scalar
from ..image.ops import ImageOp
from ..image.program import ImageProgram, Levels, ViewValues, compile_program, deferred
from .copies import copy_of, sample_key
from .native import Faults, RandomKey, ThreadServed
from .samples import ImageOptions, image_views, random_key
from .selection import Selection

_DAMAGED = "Replace or remove the file, or go on without bad samples: DataLoader(on_error='skip')"
_MISFIT = "The image is sound: the transform doesn't fit it"


def common_start(paths: Sequence[bytes]) -> bytes:
    """The bytes that all paths begin with."""
    if not paths:
        return b""
    low, high = min(paths), max(paths)  # all others lie between, and share what these two do
    same = (index for index, (left, right) in enumerate(zip(low, high, strict=False)) if left != right)
    return low[: next(same, min(len(low), len(high)))]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Paths and labels of many files in a few arrays: nothing per file is a Python object.

    Attributes:
        root: The folder that error messages name.
        prefix: What all paths begin with.
        rest: What follows the prefix, one path after another.
        offsets: int64 [files + 1], where each begins in `rest`.
        labels: [files], of the smallest integer dtype that holds them.
        rows: int64 [files], rising: the row that each file is; None where it is its place.
    """

    root: Path
    prefix: bytes
    rest: bytes
    offsets: npt.NDArray[np.int64]
    labels: npt.NDArray[Any]
    rows: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls, root: Path, paths: Sequence[bytes], labels: npt.NDArray[np.int64], rows: npt.NDArray[np.int64] | None
    ) -> ImageFiles:
        """Lists files; `rows` is None when they are all of a dataset's, in its order."""
        prefix = common_start(paths)
        lengths = np.fromiter(map(len, paths), np.int64, len(paths)) - len(prefix)
        low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
        dtype = np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high))
        small = labels.astype(dtype if dtype.kind in "iu" else np.int64)
        return cls(root, prefix, b"".join(path[len(prefix) :] for path in paths), _summed(lengths), small, rows)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def native(self) -> _native.FileColumn:
        """The files as the core reads them."""
        return _native.FileColumn(self.prefix, self.rest, self.offsets, self.rows)

    def path(self, row: int) -> str:
        """The path of a row's file."""
        return os.fsdecode(self.native.path(row))

    def label(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The labels of rows that are here."""
        return self.labels[rows if self.rows is None else np.searchsorted(self.rows, rows)]

    def read(self, row: int) -> bytes:
        """A file's content.

        Raises:
            ImageError: it can't be read, or is no file.
            ZcdError: the process can't open files any more.
        """
        try:
            return self.native.read(row)
        except OSError as error:
            raise ZcdError(f"{self.path(row)} {error}. Close files, or raise the limit: ulimit -n") from None

    def only(self, rows: npt.NDArray[np.int64]) -> ImageFiles:
        """The same rows, without the files of all others. `rows` rise."""
        places = rows if self.rows is None else np.searchsorted(self.rows, rows)
        starts, ends = self.offsets[places], self.offsets[places + 1]
        rest = b"".join(self.rest[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
        return ImageFiles(self.root, self.prefix, rest, _summed(ends - starts), self.labels[places], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        lengths = np.diff(self.offsets)
        short = lengths.astype(np.min_scalar_type(int(lengths.max(initial=0))))
        return _unpickled, (self.root, self.prefix, self.rest, short, self.labels, self.rows)


def _summed(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64, copy=False)


def _unpickled(root: Path, prefix: bytes, rest: bytes, lengths: npt.NDArray[Any], labels: Any, rows: Any) -> ImageFiles:
    return ImageFiles(root, prefix, rest, _summed(lengths), labels, rows)


class _Pictures:
    """The image column: `native.NativeColumn` over files."""

    def __init__(self, files: ImageFiles) -> None:
        self._native = files.native

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
        return self._native.decode(program.native, rows, *key, outs, pooled, cancel, places)

    def gather(self, *_: Any) -> Faults:
        raise TypeError("files are decoded, not gathered")

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
        return self._native.gather_encoded(program.native, rows, *key, block, offsets, geometry, cancel)


class _Labels:
    """The label column: `native.NativeColumn` over an array."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = files

    def decode(self, *_: Any) -> Faults:
        raise TypeError("labels are gathered, not decoded")

    def gather(
        self, rows: npt.NDArray[np.int64], item: int, out: memoryview, places: npt.NDArray[np.int64] | None = None
    ) -> Faults:
        np.frombuffer(out, np.int64)[slice(None) if places is None else places] = self._files.label(rows)
        return []

    def gather_encoded(self, *_: Any) -> tuple[int, Faults]:
        raise TypeError("labels are not encoded")


class CompiledDataset(ThreadServed, Dataset[Any]):
    """The images of a torchvision dataset, decoded and transformed natively. Made by `zcd.compile`.

    `ds[i]` is (tensor [3, H, W], class index), as the dataset it was compiled from gives it; `ds[a:b]` is a batch of
    them where sizes allow, else two lists. Files are read when a sample is asked for; their list, the labels and the
    transform are those of the moment of compilation, and can't be changed afterwards.

    Random operations are keyed by (seed, epoch, sample), as a ShardDataset's: torchvision's distribution, not its
    numbers. Until `set_epoch` is called the epoch is drawn from torch's generator at each access. A sample keeps its
    random parameters in every subset.

    Pickles to its samples' paths and labels and little more, and may be used in forked and spawned workers of any
    DataLoader.

    Attributes:
        classes: Class names as the original dataset has them, None where it has none.
        class_to_idx: Their numbers, likewise.
    """

    columns: tuple[str, ...] = ("image", "label")
    tupled = True

    def __init__(
        self,
        files: ImageFiles,
        selection: Selection,
        ops: Sequence[ImageOp | Levels],
        seed: int,
        options: ImageOptions,
        classes: Sequence[Any] | None = None,
        class_to_idx: Mapping[Any, int] | None = None,
    ) -> None:
        self.files = files
        self.selection = selection
        self.seed = seed
        self.options = options
        self.epoch: int | None = None
        self.classes = classes
        self.class_to_idx = class_to_idx
        self._ops = tuple(ops)
        self._programs: dict[str, ImageProgram] = {}
        self.program("image")  # what can't work is refused now, not in a worker

    @property
    def root(self) -> str:
        """The folder of the files."""
        return str(self.files.root)

    @property
    def fields(self) -> Mapping[str, Field]:
        """The two columns, as a ShardDataset would have them."""
        return {"image": Image(), "label": Scalar("int64")}

    @property
    def transforms(self) -> Mapping[str, Any]:
        """The operations that run on images."""
        return {"image": self._ops}

    @property
    def transform(self) -> tuple[ImageOp | Levels, ...]:
        """The same. To change the transform, compile a dataset that has the other one."""
        return self._ops

    @property
    def targets(self) -> list[int]:
        """The class index of every sample, a list that is made anew at each call."""
        labels: list[int] = self.files.label(self.rows(np.arange(len(self)))).tolist()
        return labels

    def path(self, index: int) -> str:
        """The file of a sample."""
        return self.files.path(self.selection.row(index))

    def program(self, column: str) -> ImageProgram:
        """The program that makes an image's pixels."""
        made = self._programs.get(column)
        if made is None:
            made = compile_program(self._ops, self.options.orient, self.options.pixel_limit)
            self._programs[column] = made
        return made

    def deferred(self, column: str) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
        """The program of the geometry alone, and what is left to be done to the bytes."""
        return deferred(self._ops, self.options.orient, self.options.pixel_limit)

    def set_epoch(self, epoch: int) -> None:
        """Fixes the epoch that random operations are keyed by."""
        self.epoch = int(epoch)

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> CompiledDataset:
        """These samples, in this order: see `ShardDataset.subset`."""
        made = copy.copy(self)
        made.selection = self.selection.subset(indices)
        return made

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Rows of the original dataset, by positions in this one."""
        return self.selection.rows(indices)

    def native_column(self, name: str) -> _Pictures | _Labels:
        """A column as the core reads it."""
        return _Pictures(self.files) if name == "image" else _Labels(self.files)

    def encoded(self, column: str, row: int) -> bytes:
        """A file's content."""
        return self.files.read(row)

    def plain(self, column: str, row: int) -> int:
        """A row's class index."""
        return int(self.files.label(np.array([row]))[0])

    def bad_sample(self, column: str, row: int, reason: str, misfit: bool = False) -> BadSampleError:
        """The error for one row; its key is the file's path."""
        hint = _MISFIT if misfit else _DAMAGED
        return BadSampleError(self.files.root, None, row, self.files.path(row), reason, hint=hint)

    def random_key(self) -> tuple[int, int]:
        """(seed, epoch) for the next access: see the class."""
        return random_key(self.seed, self.epoch, self.program("image").random)

    def __len__(self) -> int:
        return len(self.selection)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            from .batch import batch_of_slice

            return batch_of_slice(self, np.arange(*index.indices(len(self)), dtype=np.int64))
        row = self.selection.row(index)
        sample = sample_key(row, copy_of(index))
        try:
            image = image_views(self.files.read(row), self.program("image"), sample, self.random_key(), self.options)
        except _native.ImageError as error:
            raise self.bad_sample("image", row, str(error), isinstance(error, _native.ImageMisfit)) from None
        return image, self.plain("label", row)

    def __copy__(self) -> CompiledDataset:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)  # not by way of __getstate__: copies share files and programs
        return made

    def __getstate__(self) -> dict[str, Any]:
        files = self.files
        if not isinstance(self.selection.chosen, range) or len(self) < len(files):
            files = files.only(np.unique(np.asarray(self.selection.chosen, np.int64)))
        return {**self.__dict__, "files": files, "_programs": {}}  # programs are rebuilt: native objects don't pickle

    def __repr__(self) -> str:
        return f"CompiledDataset({self.root!r}, samples={len(self)})"

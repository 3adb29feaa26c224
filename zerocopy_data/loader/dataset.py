"""ShardDataset: a dataset on disk as a map-style torch dataset."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from .. import _native
from ..errors import BadSampleError, ConfigError
from ..format.fields import Field, Image, Scalar
from ..format.reader import DatasetReader
from ..image.ops import OPS, ImageOp
from ..image.program import ImageProgram, ViewValues, compile_program, deferred
from ..order.seed import seed_number
from .columns import ShardColumn
from .copies import copy_of, sample_key
from .native import NativeColumn, SampleNumbers, ThreadServed
from .samples import ImageOptions, bad_sample, image_views, plain_value, random_key
from .selection import Selection

Transform: TypeAlias = Sequence[ImageOp] | Callable[[Any], Any]


def open_dataset(
    path: str | Path,
    transform: Mapping[str, Transform] | Transform | None = None,
    *,
    columns: Sequence[str] | None = None,
    seed: int = 0,
    orient: bool = True,
    verify: bool = True,
    pixel_limit: int = _native.DEFAULT_PIXEL_LIMIT,
) -> ShardDataset:
    """Opens a dataset that `zcd pack` made. Reads its manifest only; shards are mapped as they are used.

    Args:
        path: The dataset's folder, the one with dataset.json in it ('imagenet.zcd/train').
        transform: By column, either a list of zcd's image operations, which run natively, or one callable that gets
            the column's value (an image as a uint8 tensor [3, H, W]). Without a mapping: for the only Image column.
        columns: Which columns a sample has, and in what order; all by default.
        seed: Of the random operations when samples are taken one by one (a `zcd.DataLoader` has its own).
        orient: Whether images are turned upright by their EXIF orientation.
        verify: Whether each value's checksum is checked at every read.
        pixel_limit: Images with more pixels are refused, as Pillow refuses decompression bombs.

    Raises:
        NotADatasetError: there is no dataset; UnfinishedPackError: its pack has not finished.
        ManifestError: its manifest is damaged, or (ManifestVersionError) newer than this library.
        ConfigError: the transform or the columns don't fit the dataset.
    """
    reader = DatasetReader(path)
    options = ImageOptions(orient, verify, pixel_limit)
    if isinstance(columns, str):
        columns = (columns,)
    names = tuple(reader.fields) if columns is None else tuple(columns)
    return ShardDataset(reader, names, _by_column(reader, transform), seed_number(seed), options)


open_dataset.__name__ = open_dataset.__qualname__ = "open"  # as errors about its arguments shall name it


class ShardDataset(ThreadServed, Dataset[Any]):
    """Samples of a dataset on disk. Made by `zcd.open`; immutable except for the epoch.

    `ds[i]` is a dict by column (a tuple after `as_tuple`): an Image as a tensor [3, H, W], a list of them under
    MultiCrop; int64 and bool scalars as Python numbers, other dtypes as numpy scalars; a Tensor as a tensor; Text as
    str, Bytes as bytes, Json as what it holds. `ds[a:b]` is a batch: the same with tensors stacked where shapes allow,
    lists elsewhere.

    Pickles in a few hundred bytes (plus explicit indices after `subset`), and may be used in forked and spawned
    workers of any DataLoader.

    Random operations are keyed by (seed, epoch, sample). Until `set_epoch` is called, the epoch is drawn from torch's
    generator at each access: so other people's DataLoaders get new crops in every epoch, persistent workers included,
    reproducible by `torch.manual_seed`, as torchvision's are.
    """

    def __init__(
        self,
        reader: DatasetReader,
        columns: tuple[str, ...],
        transforms: Mapping[str, Transform],
        seed: int,
        options: ImageOptions,
    ) -> None:
        self.reader = reader
        self.columns = _checked_columns(reader, columns)
        self.transforms = dict(transforms)
        self.seed = seed
        self.options = options
        self.epoch: int | None = None
        self.tupled = False
        self.number_column: str | None = None
        self.selection = Selection(range(reader.num_rows))
        self._programs: dict[str, ImageProgram] = {}
        for name in self.columns:
            if isinstance(reader.fields[name], Image):
                self.program(name)  # a transform that can't work is refused now, not in a worker

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of the selected columns."""
        return {name: self._field(name) for name in self.columns}

    def _field(self, column: str) -> Field:
        return Scalar("int64") if column == self.number_column else self.reader.fields[column]

    def classes(self, column: str = "label") -> tuple[str, ...] | None:
        """Class names of a column in the order of their numbers, None where it has none."""
        field = self._field(column)
        return field.classes if isinstance(field, Scalar) else None

    def program(self, column: str) -> ImageProgram:
        """The program that makes an Image column's pixels."""
        made = self._programs.get(column)
        if made is None:
            made = self._programs[column] = compile_program(*self._chain(column))
        return made

    def deferred(self, column: str) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
        """The program of an Image column's geometry alone, and what is left to be done to its bytes."""
        return deferred(*self._chain(column))

    def _chain(self, column: str) -> tuple[Sequence[ImageOp], bool, int, tuple[int, int] | None]:
        """What `compile_program` takes."""
        transform = self.transforms.get(column, ())
        ops = () if callable(transform) else transform
        field = self.reader.fields[column]
        size = field.shape[:2] if isinstance(field, Image) and field.shape is not None else None
        return ops, self.options.orient, self.options.pixel_limit, size

    def set_epoch(self, epoch: int) -> None:
        """Fixes the epoch that random operations are keyed by."""
        self.epoch = int(epoch)

    def select(self, columns: Sequence[str] | str) -> ShardDataset:
        """The same rows with these columns only; the others are not read."""
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        return self._with(columns=_checked_columns(self.reader, names, self.number_column), tupled=False)

    def as_tuple(self, *columns: str) -> ShardDataset:
        """Samples as tuples of these columns (all, if none is named) in this order."""
        names = columns or self.columns
        return self._with(columns=_checked_columns(self.reader, tuple(names), self.number_column), tupled=True)

    def numbered(self, column: str = "index") -> ShardDataset:
        """The same samples with one more column: each one's row on disk, int64, the same in any order and subset.

        Augmentation on the device keys its random parameters by it: see `zcd.device.augment.Augment.on`. A sample that
        a sampler serves again in an epoch (`RepeatedSampler`, `WeightedSampler`) has a number of its own then, below 0.

        Raises:
            ConfigError: the dataset has a column of that name.
        """
        if column in self.reader.fields or self.number_column is not None:
            taken = f"a column {column!r}" if column in self.reader.fields else f"numbers, as {self.number_column!r}"
            raise ConfigError(f"{self.path} has {taken} already. Its columns: {', '.join(self.columns)}.")
        return self._with(columns=(*self.columns, column), number_column=column)

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> ShardDataset:
        """These samples, in this order; an index may occur more than once. Indices count within this dataset.

        A sample keeps its random parameters: they are keyed by its row on disk.

        Raises:
            IndexError: an index is outside the dataset.
        """
        return self._with(selection=self.selection.subset(indices))

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row numbers on disk of positions in this dataset; negative positions count from the end.

        Raises:
            IndexError: a position is outside the dataset.
        """
        return self.selection.rows(indices)

    def raw(self, index: int) -> dict[str, Any]:
        """A sample as it is stored: Image and Bytes columns as read-only views of the mapped file, nothing copied.

        Arrays are read-only views too, scalars and text are as in `ds[i]`. Nothing is decoded, no checksum is checked.
        """
        row = self.selection.row(index)
        out: dict[str, Any] = {}
        for name in self.columns:
            value = row if name == self.number_column else self.reader.value(name, row)
            if name in self.reader.fields and isinstance(self.reader.fields[name], Scalar):
                value = plain_value(self.reader, name, row, verify=False)
            elif isinstance(value, np.ndarray):
                value = value.view()
                value.flags.writeable = False
            out[name] = value
        return out

    def __len__(self) -> int:
        return len(self.selection)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            from .batch import batch_of_slice

            return batch_of_slice(self, np.arange(*index.indices(len(self)), dtype=np.int64))
        row = self.selection.row(index)
        return self._sample(row, sample_key(row, copy_of(index)), self.random_key())

    def random_key(self) -> tuple[int, int]:
        """(seed, epoch) for the next access: see the class."""
        random = any(self.program(n).random for n, field in self.fields.items() if isinstance(field, Image))
        return random_key(self.seed, self.epoch, random)

    def native_column(self, name: str) -> NativeColumn | SampleNumbers:
        """A column as the core reads it."""
        if name == self.number_column:
            return SampleNumbers()
        return ShardColumn(self.reader, name, self.options.verify)

    def encoded(self, column: str, row: int) -> Any:
        """The stored bytes of an image, a view of the mapped file."""
        return self.reader.value(column, row)

    def plain(self, column: str, row: int) -> Any:
        """A stored value that is no image."""
        return plain_value(self.reader, column, row, self.options.verify)

    def bad_sample(self, column: str, row: int, reason: str, misfit: bool = False) -> BadSampleError:
        """The error for one row: see `samples.bad_sample`."""
        return bad_sample(self.reader, row, f"column {column!r}: {reason}", misfit)

    def _sample(self, row: int, sample: int, key: tuple[int, int]) -> Any:
        values = [self._value(name, row, sample, key) for name in self.columns]
        return tuple(values) if self.tupled else dict(zip(self.columns, values, strict=True))

    def _value(self, name: str, row: int, sample: int, key: tuple[int, int]) -> Any:
        if name == self.number_column:
            return sample if sample < 1 << 63 else sample - (1 << 64)
        value = self._image(name, row, sample, key) if isinstance(self._field(name), Image) else self.plain(name, row)
        transform = self.transforms.get(name)
        if not callable(transform):
            return value
        try:
            return transform(value)
        except Exception as error:
            got = f"a uint8 tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            error.add_note(f"The transform of column {name!r} of {self.path} was given {got}, not a PIL image.")
            raise

    def _image(self, name: str, row: int, sample: int, key: tuple[int, int]) -> Any:
        stored = self.reader.value(name, row)
        problem = self.reader.checksum_problem(name, row) if self.options.verify else None
        if problem is not None:
            raise self.bad_sample(name, row, problem)
        try:
            return image_views(stored, self.program(name), sample, key, self.options)
        except _native.ImageError as error:
            raise self.bad_sample(name, row, str(error), isinstance(error, _native.ImageMisfit)) from None

    def _with(self, **changes: Any) -> ShardDataset:
        made = copy.copy(self)
        made.__dict__.update(changes)
        return made

    def __copy__(self) -> ShardDataset:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)  # not by way of __getstate__: copies share the programs
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}}  # programs are rebuilt: native objects don't pickle

    def __repr__(self) -> str:
        shape = f"samples={len(self)}, columns={list(self.columns)}"
        return f"ShardDataset({str(self.path)!r}, {shape}{', as tuples' if self.tupled else ''})"


def _checked_columns(reader: DatasetReader, names: tuple[str, ...], numbers: str | None = None) -> tuple[str, ...]:
    there = [*reader.fields] if numbers is None else [*reader.fields, numbers]
    for name in names:
        if name not in there:
            raise ConfigError(f"{reader.path} has no column {name!r}. It has: {', '.join(there)}.")
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"columns must be named once each, at least one; got {list(names)}.")
    return names


def _by_column(reader: DatasetReader, transform: Mapping[str, Transform] | Transform | None) -> dict[str, Transform]:
    images = [name for name, field in reader.fields.items() if isinstance(field, Image)]
    if transform is None:
        return {}
    if not isinstance(transform, Mapping):
        if len(images) != 1:
            raise ConfigError(
                f"a transform without a column's name needs exactly one Image column; {reader.path} has {images}. "
                "Give transform={'column': …}."
            )
        transform = {images[0]: transform}
    # One operation by itself means a list of it.
    transform = {name: [value] if isinstance(value, OPS) else value for name, value in transform.items()}
    for name, value in transform.items():
        if name not in reader.fields:
            raise ConfigError(f"transform names column {name!r}; {reader.path} has: {', '.join(reader.fields)}.")
        if not callable(value):
            if name not in images:
                raise ConfigError(f"column {name!r} is no Image: its transform must be one callable, not a list.")
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise ConfigError(f"the transform of {name!r} is a list of operations or a callable, not {value!r}.")
    return dict(transform)

"""A mix whose batches threads make: the columns of its sources as one, each sample read where it lies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import BadSampleError, ConfigError
from ..format.fields import Field
from ..image.program import ImageProgram, ViewValues
from ..order.mixture import Mixture
from .copies import CopyIndex, Indices, parted, sample_keys
from .mix import MixedDataset
from .native import Faults, JoinedColumns, NativeDataset, RandomKey, SampleNumbers, ThreadServed
from .read_ahead import Locatable
from .samples import ImageOptions
from .selection import integers

Numbers = npt.NDArray[np.int64]


class NativeMix(ThreadServed, MixedDataset):
    """See `MixedDataset`. `mixed[a:b]` is a batch of the epoch's samples.

    A row is a source's own row behind all those of the sources before it.

    Attributes:
        seed: Of the random operations when samples are taken one by one (a `zcd.DataLoader` has its own).
    """

    def __init__(self, sources: Sequence[Any], mixture: Mixture, num_samples: int) -> None:
        super().__init__(sources, mixture, num_samples)
        _check_alike(self.sources)
        self.columns: tuple[str, ...] = self._first.columns
        self.tupled: bool = self._first.tupled
        self.options: ImageOptions = self._first.options
        self.seed = self._first.seed
        ends = [int(np.max(np.asarray(source.selection.chosen), initial=-1)) + 1 for source in self.sources]
        self._starts = np.cumsum([0, *ends[:-1]])

    @property
    def _first(self) -> NativeDataset:
        first: NativeDataset = self.sources[0]
        return first

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of every source."""
        return self._first.fields

    @property
    def transforms(self) -> Mapping[str, Any]:
        """What is done to every source's values."""
        return self._first.transforms

    def program(self, column: str) -> ImageProgram:
        """The program that makes an image column's pixels."""
        return self._first.program(column)

    def deferred(self, column: str) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
        """The program of the geometry alone, and what is left to be done to the bytes."""
        return self._first.deferred(column)

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> NativeMix:
        """These of an epoch's samples, in this order."""
        made = super().subset(indices)
        assert isinstance(made, NativeMix)
        return made

    def picks(self, indices: Indices) -> tuple[Numbers, Numbers | None]:
        """See `ThreadServed.picks`."""
        plain, copies = parted(indices)
        which, samples, times = self.places(integers(plain), copies)
        rows, own = np.empty_like(samples), np.empty_like(samples)
        for number, here in _by_source(which):
            own[here] = self.sources[number].rows(samples[here])
            rows[here] = own[here] + self._starts[number]
        return rows, sample_keys(own, times)

    def rows(self, indices: Numbers) -> Numbers:
        """Rows of the samples at indices of the epoch."""
        return self.picks(indices)[0]

    def native_column(self, name: str) -> MixedColumn | JoinedMixedColumns | SampleNumbers:
        """A column as the core reads it."""
        columns = [source.native_column(name) for source in self.sources]
        if isinstance(columns[0], SampleNumbers):
            return columns[0]
        if isinstance(columns[0], JoinedColumns):
            return JoinedMixedColumns(columns, self.parts)
        return MixedColumn(columns, self.parts)

    def parts(self, rows: Numbers) -> list[tuple[int, Numbers, Numbers]]:
        """By source: its number, the places of its rows in `rows`, and its own rows."""
        which = np.searchsorted(self._starts, rows, side="right") - 1
        return [(number, here, rows[here] - self._starts[number]) for number, here in _by_source(which)]

    def encoded(self, column: str, row: int) -> bytes | memoryview:
        """The bytes of an image."""
        source, own = self._whose(row)
        return source.encoded(column, own)

    def plain(self, column: str, row: int) -> Any:
        """A value that is no image."""
        source, own = self._whose(row)
        return source.plain(column, own)

    def bad_sample(self, column: str, row: int, reason: str, misfit: bool = False) -> BadSampleError:
        """The error for one row: its source's."""
        source, own = self._whose(row)
        return source.bad_sample(column, own, reason, misfit)

    def random_key(self) -> tuple[int, int]:
        """(seed, epoch) for the next access."""
        return self._keyed(0).random_key()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            from .batch import batch_of_slice

            return batch_of_slice(self, np.arange(*index.indices(len(self)), dtype=np.int64))
        source, sample, time = self.place(index)
        return self._keyed(source)[CopyIndex(sample, time)]

    def _keyed(self, number: int) -> NativeDataset:
        """A source with this dataset's seed and epoch."""
        source: NativeDataset = copy.copy(self.sources[number])
        source.seed = self.seed
        if self.epoch is not None:
            source.set_epoch(self.epoch)
        return source

    def _whose(self, row: int) -> tuple[NativeDataset, int]:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.sources[number], row - int(self._starts[number])


class _Sources:
    """Columns of all sources, filled together; as one that knows where rows lie: `read_ahead.Locatable`.

    Args:
        columns: One a source.
        parts: See `NativeMix.parts`.
    """

    def __init__(self, columns: Sequence[Any], parts: Callable[[Numbers], list[tuple[int, Numbers, Numbers]]]) -> None:
        self._columns = columns
        self._parts = parts

    def extents(self, rows: Numbers, gap: int) -> list[_native.Extents]:
        """Those of each source that can say it."""
        found: list[_native.Extents] = []
        for number, _, own in self._parts(rows):
            column = self._columns[number]
            if isinstance(column, Locatable):
                found += column.extents(own, gap)
        return found

    def read_at_random(self, random: bool) -> None:
        """Likewise."""
        for column in self._columns:
            if isinstance(column, Locatable):
                column.read_at_random(random)

    def _filled(
        self, rows: Numbers, places: Numbers | None, fill: Callable[[Any, Numbers, Numbers, Numbers], Faults]
    ) -> Faults:
        """Has each source fill its part: `fill` gets its column, its own rows, their turns in `rows`, and places."""
        faults: Faults = []
        for number, here, own in self._parts(rows):
            found = fill(self._columns[number], own, here, here if places is None else places[here])
            faults += [(int(here[turn]), kind, text) for turn, kind, text in found]
        return faults


class MixedColumn(_Sources):
    """One column of all sources: a `native.NativeColumn`."""

    def decode(
        self,
        program: ImageProgram,
        rows: Numbers,
        key: RandomKey,
        outs: list[memoryview],
        pooled: bool,
        cancel: _native.Cancel | None,
        places: Numbers | None = None,
    ) -> Faults:
        """See `native.NativeColumn`."""
        return self._filled(
            rows,
            places,
            lambda column, own, here, to: column.decode(program, own, key.only(here), outs, pooled, cancel, to),
        )

    def gather(self, rows: Numbers, item: int, out: memoryview, places: Numbers | None = None) -> Faults:
        """See `native.NativeColumn`."""
        return self._filled(rows, places, lambda column, own, here, to: column.gather(own, item, out, to))

    def gather_encoded(self, *_: Any) -> tuple[int, Faults]:
        """Is refused before."""
        raise TypeError("a mix's images are decoded on the CPU")


class JoinedMixedColumns(_Sources, JoinedColumns):
    """Columns that are filled together, of all sources."""

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns, in the dataset's order."""
        names: tuple[str, ...] = self._columns[0].names
        return names

    def gather_all(self, rows: Numbers, outs: list[memoryview], places: Numbers | None = None) -> Faults:
        """See `native.JoinedColumns`."""
        return self._filled(rows, places, lambda column, own, here, to: column.gather_all(own, outs, to))


def _by_source(which: Numbers) -> list[tuple[int, Numbers]]:
    return [(number, np.flatnonzero(which == number)) for number in np.unique(which).tolist()]


def _check_alike(sources: tuple[NativeDataset, ...]) -> None:
    first = sources[0]
    for number, source in enumerate(sources[1:], 1):
        for what, mine, theirs in (
            ("columns", first.columns, source.columns),
            ("samples as tuples", first.tupled, source.tupled),
            ("fields", dict(first.fields), dict(source.fields)),
            ("transforms", _comparable(first), _comparable(source)),
            ("options", first.options, source.options),
        ):
            if mine != theirs:
                raise ConfigError(
                    f"mix(): the datasets differ in {what}: {mine!r} in the first, {theirs!r} in number {number}. Open "
                    "them alike, with select() for the columns that all have."
                )


def _comparable(dataset: NativeDataset) -> dict[str, Any]:
    out = {}
    for name in dataset.columns:
        transform = dataset.transforms.get(name, ())
        out[name] = transform if callable(transform) else tuple(transform)
    return out

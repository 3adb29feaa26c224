"""Makes one batch: states once where every column lies in a slot, then fills slots by row numbers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .. import _native
from ..device.levelled import Levelled
from ..errors import BadSampleError, ConfigError, ShardDamagedError, ZcdError
from ..format.fields import Bytes, Field, Image, Scalar, Tensor, Text
from ..image.pillow import decode_with_pillow
from ..image.program import ImageProgram, ViewValues
from ..memory.arena import PAGE, Arena
from .copies import Indices
from .native import Faults, JoinedColumns, NativeColumn, NativeDataset, RandomKey, SampleNumbers, same_samples
from .skipped import Skipped

UNSUPPORTED, CANCELLED, MISFIT, SYSTEM = 1, 4, 5, 6  # fault kinds of Column.decode
Slot = ctypes.Array  # ctypes.Array[ctypes.c_ubyte]


@dataclass(frozen=True)
class Leaf:
    """One tensor of a batch: `size` bytes a sample, from `offset` in the slot on."""

    dtype: str
    shape: tuple[int, ...]
    channels_last: bool
    size: int
    offset: int

    def tensor(self, slot: Slot[Any], count: int) -> torch.Tensor:
        """The first `count` samples as a tensor over the slot: it holds the slot's lease."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        if count == 0 or self.size == 0:
            out = torch.empty((count, *self.shape), dtype=dtype)
        else:
            items = count * self.size // dtype.itemsize
            flat = torch.frombuffer(slot, dtype=dtype, count=items, offset=self.offset)
            out = flat.view(count, *self.shape)
        return out.permute(0, 3, 1, 2) if self.channels_last else out

    def bytes(self, slot: Slot[Any], count: int) -> memoryview:
        return memoryview(slot).cast("B")[self.offset : self.offset + count * self.size]


@dataclass(frozen=True)
class Layout:
    """Where every column of a batch of at most `capacity` samples lies, and the slots that are laid out so."""

    capacity: int
    leaves: dict[str, list[Leaf]]
    arena: Arena


@dataclass(frozen=True, eq=False)
class Call:
    """How one batch is asked for: see `BatchPlan.make`."""

    key: RandomKey
    pooled: bool
    cancel: _native.Cancel | None
    helpers: Executor | None


class BatchPlan:
    """How batches of a dataset are made. Everything is checked and laid out here, nothing at run time.

    Args:
        dataset: What to read.
        batch_size: Samples that slots have room for at first; a larger batch gets slots of its size.
        keep: Free slots that are kept for reuse.
        on_error: 'raise', 'skip' or 'substitute'.
        device: Whether batches go to a device: then images stay bytes, as `Levelled`s that get their values there.
        deferred: Whether they stay so in any case.

    Raises:
        ConfigError: samples cannot be stacked, with the reason in words.
    """

    def __init__(
        self,
        dataset: NativeDataset,
        batch_size: int,
        keep: int,
        on_error: str,
        device: bool = False,
        deferred: bool = False,
    ) -> None:
        reason = why_not_stackable(dataset)
        if reason is not None:
            raise ConfigError(reason)
        self.dataset = dataset
        self.on_error = on_error
        self._keep = keep
        self._device = device
        self._columns: dict[str, NativeColumn | JoinedColumns | SampleNumbers] = {}
        self._programs: dict[str, ImageProgram] = {}
        self._values: dict[str, tuple[ViewValues, ...]] = {}
        for name, field in dataset.fields.items():
            if isinstance(field, Text | Bytes):
                continue
            self._columns[name] = dataset.native_column(name)
            if isinstance(field, Image):
                self._programs[name] = dataset.program(name)
                if device or deferred:
                    self._programs[name], self._values[name] = dataset.deferred(name)
        self._growing = threading.Lock()
        self.layout = self._lay_out(batch_size)

    def serves(self, dataset: NativeDataset, keep: int, on_error: str, device: bool = False) -> bool:
        """Whether this plan makes the same batches as a new one would."""
        same = (self._keep, self.on_error, self._device) == (keep, on_error, device)
        return same and same_samples(self.dataset, dataset)

    def _lay_out(self, capacity: int) -> Layout:
        leaves: dict[str, list[Leaf]] = {name: [] for name in self._columns}
        offset = 0
        for name, of_column in leaves.items():
            for dtype, shape, channels_last in _leaf_types(self.dataset.fields[name], self._programs.get(name)):
                size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
                of_column.append(Leaf(dtype, shape, channels_last, size, offset))
                offset += -(-capacity * size // PAGE) * PAGE
        return Layout(capacity, leaves, Arena(offset, self._keep, self._device))

    def _layout_for(self, count: int) -> Layout:
        """The layout, replaced by a roomier one when a batch is larger than any before it."""
        if count > self.layout.capacity:
            with self._growing:
                if count > self.layout.capacity:
                    # A quarter more than asked for: sizes that creep up would otherwise make new slots each time.
                    # Memory that no batch reaches is never touched, and costs nothing.
                    self.layout = self._lay_out(count + count // 4)
        return self.layout

    def make(
        self,
        indices: Indices,
        key: tuple[int, int],
        pooled: bool,
        cancel: _native.Cancel | None = None,
        helpers: Executor | None = None,
    ) -> tuple[Any, list[Skipped]]:
        """Makes the batch of these positions of the dataset.

        Args:
            indices: Positions within the dataset.
            key: (seed, epoch) of random operations.
            pooled: Whether the process's decoding threads do the work, or the caller.
            cancel: Ends the call early with CancelledError.
            helpers: Runs Pillow for several samples at once.

        Returns:
            The batch, collated as torch's default collation would, and the samples that were bad.

        Raises:
            BadSampleError: a sample is bad and `on_error` is 'raise'.
            IndexError: a position is outside the dataset.
            TypeError: a position is no integer.
        """
        rows, samples = self.dataset.picks(indices)
        call = Call(RandomKey(*key, samples), pooled, cancel, helpers)
        layout = self._layout_for(len(rows))
        slot: Slot[Any] = layout.arena.lease()
        bad: dict[int, ZcdError] = {}
        values: dict[str, list[Any]] = {}
        for name in self.dataset.columns:
            self._column(name, rows, call, layout, slot, bad, values)
        count = len(rows)
        if bad:
            if self.on_error == "raise":
                try:
                    raise bad[min(bad)]
                finally:  # its traceback holds this frame, which must hold neither the error nor the slot
                    bad.clear()
                    del slot
            kept = self._replacements(count, bad)
            _rearrange(layout, slot, count, kept)
            values = {name: [column[i] for i in kept] for name, column in values.items()}
            count = len(kept)
        return self._collate(layout, slot, count, values), [Skipped(int(rows[i]), bad[i]) for i in sorted(bad)]

    def _column(
        self,
        name: str,
        rows: npt.NDArray[np.int64],
        call: Call,
        layout: Layout,
        slot: Slot[Any],
        bad: dict[int, ZcdError],
        values: dict[str, list[Any]],
    ) -> None:
        if name in self._programs:
            self._decode(name, rows, call, _outs(layout, name, slot), bad)
        elif name in self._columns:
            self._gather(name, rows, call.key, layout, slot, bad)
        else:
            values[name] = self._python_values(name, rows, bad)

    def _decode(
        self,
        name: str,
        rows: npt.NDArray[np.int64],
        call: Call,
        outs: list[memoryview],
        bad: dict[int, ZcdError],
    ) -> None:
        program, column = self._programs[name], self._columns[name]
        assert not isinstance(column, JoinedColumns | SampleNumbers)  # which are no images
        faults = column.decode(program, rows, call.key, outs, call.pooled, call.cancel)
        asked = [index for index, kind, _ in faults if kind == UNSUPPORTED]
        self._refuse(name, rows, [fault for fault in faults if fault[1] != UNSUPPORTED], bad)

        def ask_pillow(index: int) -> None:
            row = int(rows[index])
            options = self.dataset.options
            pixels = decode_with_pillow(self.dataset.encoded(name, row), options.orient, options.pixel_limit)
            program.native.place_pixels(pixels, *call.key.of(index, row), outs, index)

        for index, (text, misfit) in _each(ask_pillow, asked, call.helpers).items():
            bad.setdefault(index, self.dataset.bad_sample(name, int(rows[index]), text, misfit))

    def _refuse(self, name: str, rows: npt.NDArray[np.int64], faults: Faults, bad: dict[int, ZcdError]) -> None:
        """Adds the samples with these faults to the bad ones; raises for what is no fault of a sample."""
        if any(kind == CANCELLED for _, kind, _ in faults):
            raise CancelledError
        for index, kind, text in faults:
            if kind == SYSTEM:  # no fault of the sample: to skip it would lose sound ones
                raise ZcdError(
                    f"row {int(rows[index])} of {self.dataset!r} {text}. Close files, or raise the limit: ulimit -n"
                )
            bad.setdefault(index, self.dataset.bad_sample(name, int(rows[index]), text, kind == MISFIT))

    def _gather(
        self,
        name: str,
        rows: npt.NDArray[np.int64],
        key: RandomKey,
        layout: Layout,
        slot: Slot[Any],
        bad: dict[int, ZcdError],
    ) -> None:
        column = self._columns[name]
        if isinstance(column, SampleNumbers):
            out = np.frombuffer(layout.leaves[name][0].bytes(slot, len(rows)), np.int64)
            out[:] = rows if key.samples is None else key.samples
            return
        if isinstance(column, JoinedColumns):
            if name != column.names[0]:
                return  # filled with the first of them
            outs = [layout.leaves[joined][0].bytes(slot, len(rows)) for joined in column.names]
            faults = column.gather_all(rows, outs)
        else:
            leaf = layout.leaves[name][0]
            faults = column.gather(rows, leaf.size, leaf.bytes(slot, len(rows)))
        for index, _, text in faults:
            bad.setdefault(index, self.dataset.bad_sample(name, int(rows[index]), text))

    def _python_values(self, name: str, rows: npt.NDArray[np.int64], bad: dict[int, ZcdError]) -> list[Any]:
        out: list[Any] = []
        for index, row in enumerate(rows.tolist()):
            try:
                out.append(self.dataset.plain(name, row))
            except (BadSampleError, ShardDamagedError) as error:
                # Tracebacks would keep the frames above, and with them the slot, for as long as `skipped` is kept.
                error.__context__ = None
                bad.setdefault(index, error.with_traceback(None))
                out.append(None)
        return out

    def _replacements(self, count: int, bad: dict[int, ZcdError]) -> list[int]:
        """For each place of the batch that goes on, the place whose sample it gets."""
        good = [i for i in range(count) if i not in bad]
        if self.on_error == "skip" or not good:
            return good
        return [i if i not in bad else good[i % len(good)] for i in range(count)]

    def _collate(self, layout: Layout, slot: Slot[Any], count: int, values: dict[str, list[Any]]) -> Any:
        out: dict[str, Any] = {}
        for name in self.dataset.columns:
            if name in values:
                # torch's collation leaves strings in what it took them together with: for tuples a tuple.
                out[name] = tuple(values[name]) if self.dataset.tupled else values[name]
                continue
            tensors: list[Any] = [leaf.tensor(slot, count) for leaf in layout.leaves[name]]
            if name in self._values:
                tensors = list(map(with_values, tensors, self._values[name]))
            program = self._programs.get(name)
            out[name] = tensors if program is not None and program.multi else tensors[0]
        return list(out.values()) if self.dataset.tupled else out


class CancelledError(Exception):
    """The batch was given up because its loader is being closed."""


def _outs(layout: Layout, name: str, slot: Slot[Any]) -> list[memoryview]:
    return [leaf.bytes(slot, layout.capacity) for leaf in layout.leaves[name]]


def _rearrange(layout: Layout, slot: Slot[Any], count: int, kept: list[int]) -> None:
    for leaves in layout.leaves.values():
        for leaf in leaves:
            samples = np.frombuffer(leaf.bytes(slot, count), np.uint8).reshape(count, leaf.size)
            samples[: len(kept)] = samples[kept]


def _each(task: Callable[[int], None], indices: list[int], helpers: Executor | None) -> dict[int, tuple[str, bool]]:
    """Runs `task` for each index; of those that failed the message, and whether the transform didn't fit."""

    def attempt(index: int) -> tuple[str, bool] | None:
        try:
            task(index)
        except _native.ImageError as error:
            return str(error), isinstance(error, _native.ImageMisfit)
        return None

    run = map if helpers is None or len(indices) < 2 else helpers.map
    failures = zip(indices, run(attempt, indices), strict=True)
    return {index: failure for index, failure in failures if failure is not None}


def _leaf_types(field: Field, program: ImageProgram | None) -> list[tuple[str, tuple[int, ...], bool]]:
    """(dtype, shape in memory order, channels last) of each tensor that a column becomes."""
    if program is not None:
        out: list[tuple[str, tuple[int, ...], bool]] = []
        for spec in program.views:
            assert spec.stored_shape is not None  # why_not_stackable
            out.append((spec.dtype, spec.stored_shape, spec.channels_last))
        return out
    match field:
        case Tensor(shape=shape, dtype=dtype):
            return [(dtype, tuple(n or 0 for n in shape), False)]
        case Scalar(dtype=dtype):
            return [(dtype, (), False)]
    raise AssertionError(field)


def with_values(images: torch.Tensor, values: ViewValues) -> Levelled:
    """What makes of the bytes what the CPU path would have made of them."""
    memory_format = torch.channels_last if values.memory_format == "channels_last" else torch.contiguous_format
    table = None if values.table is None else torch.from_numpy(values.table)
    return Levelled(images, table, getattr(torch, values.dtype), memory_format)


def why_not_stackable(dataset: NativeDataset) -> str | None:
    """Why samples of this dataset don't make one tensor a column, in words for the user; None when they do."""
    for name, field in dataset.fields.items():
        if callable(dataset.transforms.get(name)):
            return f"column {name!r} has a Python callable as its transform"
        if isinstance(field, Image):
            for spec in dataset.program(name).views:
                if spec.size is None:
                    return (
                        f"the images of column {name!r} come out in different sizes and can't be stacked. End the "
                        "transform with a fixed size, for example zcd.RandomResizedCrop(224), or zcd.Resize(256) and "
                        "zcd.CenterCrop(224); or give the DataLoader a collate_fn."
                    )
        elif not isinstance(field, Scalar | Text | Bytes) and (not isinstance(field, Tensor) or field.ragged):
            return (
                f"column {name!r} ({type(field).__name__}) varies in length and can't be stacked. Leave it out with "
                "select() or as_tuple(), or give the DataLoader a collate_fn."
            )
    return None


def batch_of_slice(dataset: NativeDataset, positions: npt.NDArray[np.int64]) -> Any:
    """`ds[a:b]`: a batch where the samples stack, else lists by column."""
    key = dataset.random_key()
    if why_not_stackable(dataset) is None:
        batch, _ = BatchPlan(dataset, max(len(positions), 1), 1, "raise").make(positions, key, pooled=False)
        return tuple(batch) if dataset.tupled else batch
    samples = [dataset[int(i)] for i in positions]
    if dataset.tupled:
        return tuple(list(column) for column in zip(*samples, strict=True)) or tuple([] for _ in dataset.columns)
    return {name: [sample[name] for sample in samples] for name in dataset.columns}

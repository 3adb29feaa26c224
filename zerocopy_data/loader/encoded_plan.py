"""Makes batches whose images are still encoded, for a decoder on a device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .. import _native
from ..device.decode.encoded import EncodedImages
from ..device.decode.split import BusyTime
from ..errors import ConfigError, ZcdError
from ..format.fields import Image
from ..memory.arena import Arena
from .batch import CANCELLED, UNSUPPORTED, BatchPlan, Call, Layout, Slot, with_values
from .copies import Indices
from .native import Faults, JoinedColumns, NativeDataset, RandomKey, SampleNumbers
from .skipped import Skipped

_GEOMETRY = 9  # int32 values a view of an image: see device.decode.encoded
_FIRST_BYTES = 64 << 10  # guess of an image's bytes before any is known


class EncodedPlan(BatchPlan):
    """A BatchPlan whose Image columns come out as EncodedImages, one a view; all other columns are as they were.

    Images that are stored as pixels come out as `Levelled`s: values are left to whoever finishes the batch.

    Args: as BatchPlan.
        share: How many images of a batch of so many go to the decoder; the CPU decodes the others. None: all.
        interpolations: Those that the decoder has.

    Raises:
        ConfigError: no image column is stored encoded, or a transform resizes in a way that the decoder does not; and
            as BatchPlan.

    Attributes:
        busy: The time that the CPU has spent on its share.
    """

    def __init__(
        self,
        dataset: NativeDataset,
        batch_size: int,
        keep: int,
        on_error: str,
        device: bool = False,
        share: Callable[[int], int] | None = None,
        interpolations: tuple[str, ...] = ("bilinear",),
    ) -> None:
        super().__init__(dataset, batch_size, keep, on_error, device, deferred=True)
        self.busy = BusyTime()
        self._share = share
        self._encoded = {
            name: _interpolations(dataset, name, len(self._programs[name].views))
            for name, field in dataset.fields.items()
            if isinstance(field, Image) and field.shape is None
        }
        if not self._encoded:
            raise ConfigError(
                "no column of the dataset holds encoded images: there is nothing to decode. Use decode='cpu'."
            )
        for name, used in self._encoded.items():
            for one in used:
                if one not in interpolations:
                    raise ConfigError(
                        f"column {name!r} is resized with interpolation={one!r}, and the decoder's pixels differ from "
                        f"the CPU's there; it has {', '.join(interpolations)}. Use that, or decode='cpu'."
                    )
        self._blocks = {name: Arena(max(batch_size, 1) * _FIRST_BYTES, keep) for name in self._encoded}
        self._growing_blocks = threading.Lock()

    def make(
        self,
        indices: Indices,
        key: tuple[int, int],
        pooled: bool,
        cancel: _native.Cancel | None = None,
        helpers: Executor | None = None,
    ) -> tuple[Any, list[Skipped]]:
        """Makes the batch of these positions: see BatchPlan.make."""
        rows, samples = self.dataset.picks(indices)
        call = Call(RandomKey(*key, samples), pooled, cancel, helpers)
        skipped: list[Skipped] = []

        def remake() -> tuple[Any, list[Skipped]]:
            known = {sample.row for sample in skipped}
            batch, bad = super(EncodedPlan, self).make(indices, key, pooled, cancel)
            return batch, [sample for sample in bad if sample.row not in known]

        while True:
            batch, bad = self._make_rows(rows, call, remake)
            if not bad:
                return batch, skipped
            if self.on_error == "raise":
                try:
                    raise bad[min(bad)]
                finally:  # its traceback holds this frame, which must hold neither the error nor the batch
                    bad.clear()
                    del batch, remake
            skipped += [Skipped(int(rows[i]), bad[i]) for i in sorted(bad)]
            # Parameters are keyed by sample: made again, those that are left are what they were.
            left = np.array(self._replacements(len(rows), bad), np.int64)
            rows, call = rows[left], replace(call, key=call.key.only(left))

    def _make_rows(
        self,
        rows: npt.NDArray[np.int64],
        call: Call,
        remake: Callable[[], tuple[Any, list[Skipped]]],
    ) -> tuple[Any, dict[int, ZcdError]]:
        layout = self._layout_for(len(rows))
        slot: Slot[Any] = layout.arena.lease()
        bad: dict[int, ZcdError] = {}
        values: dict[str, list[Any]] = {}
        images: dict[str, list[EncodedImages]] = {}
        for name in self.dataset.columns:
            if name in self._encoded:
                images[name] = self._images(name, rows, call, layout, slot, bad, remake)
            else:
                self._column(name, rows, call, layout, slot, bad, values)
        out = self._collate(layout, slot, len(rows), values)
        for place, name in enumerate(self.dataset.columns):
            if name in images:
                views = images[name]
                out[place if self.dataset.tupled else name] = views if self._programs[name].multi else views[0]
        return out, bad

    def _images(
        self,
        name: str,
        rows: npt.NDArray[np.int64],
        call: Call,
        layout: Layout,
        slot: Slot[Any],
        bad: dict[int, ZcdError],
        remake: Callable[[], tuple[Any, list[Skipped]]],
    ) -> list[EncodedImages]:
        count = len(rows)
        share = count if self._share is None else min(max(self._share(count), 0), count)
        block, offsets, geometry, faults = self._gather_encoded(
            name, rows[:share], call.key.only(slice(share)), call.cancel
        )
        if any(kind == CANCELLED for _, kind, _ in faults):
            self._refuse(name, rows, faults, bad)
        here = [index for index, kind, _ in faults if kind == UNSUPPORTED] + list(range(share, count))
        self._refuse(name, rows, [fault for fault in faults if fault[1] != UNSUPPORTED], bad)
        pixel_places = np.array(here, np.int64)
        if here:
            found: dict[int, ZcdError] = {}
            outs = [leaf.bytes(slot, len(here)) for leaf in layout.leaves[name]]
            with self.busy.of(len(here)):
                self._decode(name, rows[pixel_places], replace(call, key=call.key.only(pixel_places)), outs, found)
            for index, error in found.items():
                bad.setdefault(here[index], error)
        # Faulty rows take no bytes: what is left of the offsets is where the others begin.
        away = np.setdiff1d(np.arange(share), [index for index, _, _ in faults])
        offsets = np.append(offsets[away], offsets[share])
        program = self._programs[name]
        made = []
        for view, (spec, interpolation) in enumerate(zip(program.views, self._encoded[name], strict=True)):
            assert spec.size is not None  # why_not_stackable
            leaf = layout.leaves[name][view]
            pixels = leaf.tensor(slot, len(here)).permute(0, 2, 3, 1)
            made.append(
                EncodedImages(
                    block=block,
                    offsets=offsets,
                    geometry=np.ascontiguousarray(geometry[away, view]),
                    places=away,
                    pixels=pixels,
                    pixel_places=pixel_places,
                    height=spec.size[0],
                    width=spec.size[1],
                    interpolation=interpolation,
                    rows=rows,
                    remake=remake,
                    wrap=functools.partial(with_values, values=self._values[name][view]),
                )
            )
        return made

    def _gather_encoded(
        self, name: str, rows: npt.NDArray[np.int64], key: RandomKey, cancel: _native.Cancel | None
    ) -> tuple[torch.Tensor, npt.NDArray[np.int64], npt.NDArray[np.int32], Faults]:
        program = self._programs[name]
        offsets = np.empty(len(rows) + 1, np.int64)
        geometry = np.empty((len(rows), len(program.views), _GEOMETRY), np.int32)
        column = self._columns[name]
        assert not isinstance(column, JoinedColumns | SampleNumbers)  # which are no images
        while True:
            arena = self._blocks[name]
            slot = arena.lease()
            needed, faults = column.gather_encoded(program, rows, key, memoryview(slot), offsets, geometry, cancel)
            if needed <= arena.slot_bytes:
                flat = torch.frombuffer(slot, dtype=torch.uint8)[:needed]
                return flat, offsets, geometry, faults
            with self._growing_blocks:
                if self._blocks[name].slot_bytes < needed:
                    # A quarter more than needed: sizes that creep up would otherwise make new slots each time.
                    self._blocks[name] = Arena(needed + needed // 4, self._keep)


def _interpolations(dataset: NativeDataset, name: str, views: int) -> list[str]:
    """By view, how the last operation that resizes does it."""
    ops = dataset.transforms.get(name, ())
    chains = ops[0].views if len(ops) == 1 and hasattr(ops[0], "views") else (ops,)
    assert len(chains) == views
    return [["bilinear", *(op.interpolation for op in chain if hasattr(op, "interpolation"))][-1] for chain in chains]

"""Rows that stay on the device, where batches are gathered."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...errors import ConfigError, DeviceMemoryError, ZcdError
from ..accelerator import Event
from .columns import Column, Packing, Rows
from .limits import HostMemory, SystemMemory
from .moves import Link, Place
from .pinned import PinnedBuffers
from .swap import HOST_MARGIN
from .watch import real_device

_INDEX = Column(torch.int64, ())


@dataclass(frozen=True)
class CacheState:
    """A cache at one moment.

    Attributes:
        rows: Of the source.
        resident: Rows that are on the device.
        bytes: What they take there.
        hits: Rows that batches found there, so far; `misses` those read from the host.
    """

    rows: int
    resident: int
    bytes: int
    hits: int
    misses: int


class DeviceCache:
    """Keeps a dataset, or its hot part, on a device. `batch(indices)` gathers rows there: a relief for a `Governor`.

    Rows come to the device in chunks, hot ones first, as far as the budget and the device allow. Those that are not
    there are read from the source and copied. Batches are tensors of their own, on the current stream.

    Args:
        source: What is kept: a tensor, a sequence or a dict of tensors, all with one row a sample and in host memory; a
            TensorDataset; or a ShardDataset whose columns are all of one size. `batch` gives tensors in the same form.
        device: As torch takes it; not the CPU.
        budget: Bytes of device memory at most.
        hot: Row numbers, the hottest first; rows that are not named are never kept. By default all in their order.
        chunks: In how many parts the rows that fit are kept: what is spilled and refilled at a time.
        host: What knows the host's memory, for page-locked buffers: `host_margin` bytes stay free.
        host_margin: Bytes.

    Raises:
        ConfigError: An argument makes no sense.
    """

    name = "device cache"

    def __init__(
        self,
        source: Any,
        device: str | int | torch.device,
        *,
        budget: int,
        hot: Sequence[int] | npt.NDArray[Any] | None = None,
        chunks: int = 8,
        host: HostMemory | None = None,
        host_margin: int = HOST_MARGIN,
    ) -> None:
        if budget < 0 or chunks < 1:
            raise ConfigError(f"DeviceCache: budget >= 0 bytes and chunks >= 1, not budget={budget}, chunks={chunks}.")
        self._accelerator = real_device(device)
        self.device = self._accelerator.device
        self._rows = Rows(source)
        order = np.arange(len(self._rows)) if hot is None else self._checked(hot)
        if len(np.unique(order)) != len(order):
            raise ConfigError("DeviceCache: hot= names a row twice.")
        width = max(1, self._rows.row_bytes)
        slack = 16 * len(self._rows.columns)  # alignment of each chunk
        per_chunk = max(1, min(-(-len(order) // chunks), max(0, budget // chunks - slack) // width))
        self._packing = Packing(self._rows.columns, per_chunk)
        fitting = min(-(-len(order) // per_chunk), budget // max(1, self._packing.bytes))
        self._hot = order[: fitting * per_chunk].astype(np.int64)
        self._slots = np.full(len(self._rows), -1, np.int64)
        self._slots[self._hot] = np.arange(len(self._hot))
        self._per_chunk, self._most = per_chunk, fitting
        self._link = Link(self._accelerator)
        self._buffers = PinnedBuffers(self._accelerator, host or SystemMemory(), host_margin)
        self._chunks: list[tuple[Place, list[torch.Tensor]]] = []
        self._going: list[tuple[list[Event], int]] = []  # (last uses, bytes) of what was spilled
        self._lock = threading.RLock()
        self._closed = False
        self._hits = self._misses = 0
        while len(self._chunks) < self._most and self._fill():
            pass

    def __len__(self) -> int:
        """Rows of the source."""
        return len(self._rows)

    def batch(self, indices: Sequence[int] | npt.NDArray[Any] | torch.Tensor) -> Any:
        """Rows as the source has them, on the device: fresh tensors [n, ...], ready for the current stream.

        Args:
            indices: Row numbers in host memory; negative ones count from the end. Rows may come twice.

        Raises:
            IndexError: There is no such row.
            DeviceMemoryError: The host has no page-locked memory for what must be copied.
            ZcdError: The cache is closed.
        """
        wanted = self._checked(indices)
        with self._lock:
            if self._closed:
                raise ZcdError("The DeviceCache is closed.")
            slots = self._slots[wanted]
            slots[slots >= len(self._chunks) * self._per_chunk] = -1
            chunk = np.where(slots < 0, len(self._chunks), slots // self._per_chunk)
            order = np.argsort(chunk, kind="stable")  # by chunk, those from the host last
            hits = int((slots >= 0).sum())
            self._hits += hits
            self._misses += len(wanted) - hits
            return self._rows.batch(self._gather(wanted[order], slots[order], chunk[order], order, hits))

    def state(self) -> CacheState:
        """What is where."""
        with self._lock:
            resident = min(len(self._hot), len(self._chunks) * self._per_chunk)
            taken = len(self._chunks) * self._packing.bytes
            return CacheState(len(self._rows), resident, taken, self._hits, self._misses)

    def close(self) -> None:
        """Frees the device's memory and page-locked buffers. Batches that were handed out stay what they are."""
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._going.clear()
            self._buffers.close()

    def __enter__(self) -> DeviceCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For a governor

    def relieve(self, bytes_wanted: int) -> int:
        """Spills the coldest chunks; their rows come from the host from now on."""
        with self._lock:
            freed = 0
            while self._chunks and freed < bytes_wanted:
                place, _ = self._chunks.pop()
                events = [self._accelerator.record(stream) for stream in place.users]
                self._going.append(([*events, *(event for _, event in place.copies)], place.size))
                freed += place.size
            return freed

    def restore(self, bytes_allowed: int) -> int:
        """Refills chunks: one at most, since its rows must be read from the source."""
        with self._lock:
            room = not self._closed and len(self._chunks) < self._most and self._packing.bytes <= bytes_allowed
            return self._packing.bytes if room and self._fill() else 0

    def pending(self) -> int:
        """Bytes that were spilled and may still be read."""
        with self._lock:
            self._going = [(events, size) for events, size in self._going if not all(e.query() for e in events)]
            return sum(size for _, size in self._going)

    # Moves

    def _fill(self) -> bool:
        """Brings the next chunk to the device; False where there is no memory for it on either side."""
        first = len(self._chunks) * self._per_chunk
        indices = self._hot[first : first + self._per_chunk]
        try:
            place = self._link.empty(self._packing.bytes)
            buffer = self._buffers.take(self._packing.bytes)
        except (torch.OutOfMemoryError, DeviceMemoryError):
            return False
        done: Event | None = None
        try:
            for target, value in zip(self._packing.views(buffer), self._rows.read(indices), strict=True):
                target[: len(indices)].copy_(value)
            done = self._link.home(buffer, place)
        finally:
            self._buffers.give(buffer, done)
        self._chunks.append((place, self._packing.views(place.bytes)))
        return True

    def _gather(
        self,
        wanted: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        chunk: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
        hits: int,
    ) -> list[torch.Tensor]:
        """The columns of rows that are given by chunk, put back into the order in which they were asked for."""
        count = len(wanted)
        back = np.empty(count, np.int64)
        back[order] = np.arange(count)
        missing = self._rows.read(wanted[hits:]) if hits < count else []
        local, back_there, rest = self._upload(slots[:hits] % self._per_chunk, back, missing)
        parts: list[list[torch.Tensor]] = [[] for _ in self._rows.columns]
        stream = self._accelerator.stream()
        begin = 0
        with self._accelerator.on(stream), torch.no_grad():
            while begin < hits:
                number = int(chunk[begin])
                end = int(np.searchsorted(chunk[:hits], number, side="right"))
                place, columns = self._chunks[number]
                place.order(stream)
                place.idle()
                place.users.add(stream)
                for part, column in zip(parts, columns, strict=True):
                    part.append(column.index_select(0, local[begin:end]))
                begin = end
            for part, values in zip(parts, rest, strict=False):
                part.append(values)
            if not count:
                return [
                    torch.empty((0, *column.shape), dtype=column.dtype, device=self.device)
                    for column in self._rows.columns
                ]
            in_order = bool((order == np.arange(count)).all())
            whole = [part[0] if len(part) == 1 else torch.cat(part) for part in parts]
            if in_order:  # what was copied shares the memory of one upload: not a tensor of its own yet
                return [value.clone() if hits == 0 else value for value in whole]
            return [value.index_select(0, back_there) for value in whole]

    def _upload(
        self, local: npt.NDArray[np.int64], back: npt.NDArray[np.int64], missing: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """Index numbers and missing rows on the device, by one copy on the current stream."""
        numbers, rest = len(local) + len(back), len(missing[0]) if missing else 0
        first = Packing((_INDEX,), numbers)
        second = Packing(self._rows.columns, rest)
        size = first.bytes + (second.bytes if missing else 0)
        if not numbers:
            empty = torch.empty(0, dtype=torch.int64, device=self.device)
            return empty, empty, []
        buffer = self._buffers.take(size)
        done: Event | None = None
        try:
            first.views(buffer)[0].copy_(torch.from_numpy(np.concatenate([local, back])))
            if missing:
                for target, value in zip(second.views(buffer, first.bytes), missing, strict=True):
                    target.copy_(value)
            stream = self._accelerator.stream()
            with self._accelerator.on(stream), torch.no_grad():
                there = torch.empty(size, dtype=torch.uint8, device=self.device)
                there.copy_(buffer[:size], non_blocking=True)
                done = self._accelerator.record(stream)
        finally:
            self._buffers.give(buffer, done)
        indices = first.views(there)[0]
        return indices[: len(local)], indices[len(local) :], second.views(there, first.bytes) if missing else []

    def _checked(self, indices: Any) -> npt.NDArray[np.int64]:
        numbers = np.asarray(indices.tolist() if isinstance(indices, torch.Tensor) else indices)
        if numbers.size == 0:
            return np.empty(0, np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ConfigError(f"DeviceCache: indices are a flat list of integers, not {numbers.dtype} {numbers.shape}.")
        rows = len(self._rows)
        wrong = numbers[(numbers < -rows) | (numbers >= rows)]
        if wrong.size:
            raise IndexError(f"DeviceCache: row {int(wrong[0])} of {rows}.")
        return np.where(numbers < 0, numbers + rows, numbers).astype(np.int64)

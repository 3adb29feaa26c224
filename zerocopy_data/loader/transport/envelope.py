"""Turns a batch into a pickle and the memory beside it, and back: pickle protocol 5, out of band.

Large tensors and arrays stay where they are, or are copied once, into a slot each; small ones travel in the message
and are the consumer's own. Everything else is torch's way: its reductions say what a tensor is made of, and only the
storage at the end is replaced. What cannot travel in a slot (CUDA tensors, storages that are shared already) goes by
torch's own means.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from ...memory.slots import Slot, SlotPool

# From this size on a leaf gets a slot of its own. Below, two copies cost less than a lease (about ten
# microseconds), and a small leaf that is kept pins no slot.
SLOT_BYTES = 64 << 10

# Storages are cut to what their tensors need, in steps that keep every dtype aligned.
_ALIGNMENT = 64

Lend = Callable[[int], Any]


class _Storage:
    """A storage in the making: what of it is needed is known when the whole batch has been pickled."""

    def __init__(self, number: int, storage: torch.UntypedStorage) -> None:
        self.number = number
        self.storage = storage
        self.low, self.high = storage.nbytes(), 0

    def need(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low - low % _ALIGNMENT), max(self.high, high)

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_storage, (self.number,)


@dataclass
class _Loaded(threading.local):
    """The buffers of the message that this thread is unpickling."""

    buffers: Sequence[Any] = ()
    lows: Sequence[int] = ()


_loaded = _Loaded()


def _load_storage(number: int) -> tuple[torch.UntypedStorage, int]:
    buffer, low = _loaded.buffers[number], _loaded.lows[number]
    if not len(buffer):
        return torch.UntypedStorage(0), low  # type: ignore[no-untyped-call]
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage(), low


def _load_tensor(
    source: tuple[torch.UntypedStorage, int], dtype: torch.dtype, offset: int, size: torch.Size, stride: tuple[int, ...]
) -> torch.Tensor:
    storage, low = source
    empty = torch.empty((0,), dtype=dtype)
    return empty.set_(storage, offset - low // dtype.itemsize, size, stride)


def _load_whole_storage(source: tuple[torch.UntypedStorage, int]) -> torch.UntypedStorage:
    return source[0]


class _Pickler(ForkingPickler):
    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, 5, True, buffers.append)
        self.storages: dict[int, _Storage] = {}

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is torch.Tensor:
            return self._tensor(value)
        if kind is np.ndarray:
            return _array(value)
        if kind is torch.UntypedStorage and _is_private(value):
            storage = self._storage(value)
            storage.need(0, value.nbytes())
            return _load_whole_storage, (storage,)
        return NotImplemented

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_nested:
            return NotImplemented
        if tensor.is_quantized:  # torch's reduction for processes forgets the scales, its ordinary one does not
            return NotImplemented if tensor.requires_grad else tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
        if tensor.is_conj() or tensor.is_neg():
            # torch's reduction forgets both bits, and the consumer would get other numbers.
            if tensor.requires_grad:
                return NotImplemented
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.requires_grad:
            return NotImplemented
        untyped = tensor.untyped_storage()
        if not _is_private(untyped):
            return NotImplemented
        storage = self._storage(untyped)
        offset, size, stride = int(tensor.storage_offset()), tensor.size(), tensor.stride()
        if tensor.numel():
            last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            storage.need(offset * tensor.itemsize, (last + 1) * tensor.itemsize)
        else:
            storage.need(min(offset * tensor.itemsize, untyped.nbytes()), 0)
        return _load_tensor, (storage, tensor.dtype, offset, size, stride)

    def _storage(self, untyped: torch.UntypedStorage) -> _Storage:
        key = untyped._cdata
        found = self.storages.get(key)
        if found is None:
            found = self.storages[key] = _Storage(len(self.storages), untyped)
        return found


def _array(value: np.ndarray[Any, Any]) -> Any:
    """How an array is pickled so that it arrives as by an ordinary pickle: writable, in this machine's byte order."""
    if value.dtype.hasobject or not value.nbytes:
        return NotImplemented
    if value.dtype.byteorder not in "=|":
        return value.astype(value.dtype.newbyteorder("=")).__reduce_ex__(5)
    if value.flags.writeable or not value.flags.forc:  # what is not contiguous is copied into the pickle
        return NotImplemented
    # Out of band, numpy passes on that an array can't be written (`np.asarray` of a Pillow image, say). Nobody writes
    # through this view of it.
    view = np.asarray(_AsWritable(value.ravel("K").view(np.uint8)))
    return np.ndarray(value.shape, value.dtype, view, strides=value.strides).__reduce_ex__(5)


class _AsWritable:
    """Gives numpy the memory of an array without its flag, and keeps the array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _is_private(storage: torch.UntypedStorage) -> bool:
    return storage.device.type == "cpu" and not storage.is_shared()


def as_bytes(storage: torch.UntypedStorage) -> memoryview:
    """The memory of a storage on the CPU, for as long as the caller holds the storage."""
    array: Any = torch.empty((0,), dtype=torch.uint8).set_(storage).numpy()
    return memoryview(array)


@dataclass
class Packed:
    """A batch ready to be sent.

    Attributes:
        parts: Table, pickle and small leaves: back to back they are the body that `unpack` reads.
        size: Bytes of the body.
        slots: The slots that the body refers to, once for each reference.
        leases: What keeps those slots held until the message has been sent.
    """

    parts: list[bytes | memoryview]
    size: int
    slots: list[Slot]
    leases: list[Any]


def pack(value: Any, pool: SlotPool) -> Packed:
    """Pickles a value; large leaves are put into slots unless they lie in one already."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler = _Pickler(file, buffers)
    pickler.dump(value)
    packed = Packed([], 0, [], [])
    # Per leaf: slot or -1, where it begins, its length, and the bytes of the storage that lie before it.
    table = array("q", [len(buffers), len(pickler.storages), file.tell()])
    small: list[memoryview | bytes] = []
    place = 0

    def put(leaf: memoryview, low: int) -> None:
        nonlocal place
        size = leaf.nbytes
        if size >= SLOT_BYTES:
            # With too few descriptors or too little memory the leaf goes in the body, whose one slot may still fit.
            with contextlib.suppress(OSError):
                slot, lease = pool.lease(size)
                memoryview(lease)[:size] = leaf
                packed.leases.append(lease)
                packed.slots.append(slot)
                table.extend((slot.number, 0, size, low))
                return
        small.append(leaf)
        table.extend((-1, place, size, low))
        padding = -size % 8
        small.append(b"\0" * padding)
        place += size + padding

    for buffer in buffers:
        put(buffer.raw(), 0)
    for storage in pickler.storages.values():
        low, high = storage.low, storage.high
        if high <= low:
            table.extend((-1, 0, 0, low))
            continue
        slot_of = pool.at(storage.storage.data_ptr())
        if slot_of is not None and high - low >= SLOT_BYTES:
            packed.slots.append(slot_of)
            packed.leases.append(storage.storage)
            table.extend((slot_of.number, low, high - low, low))
        else:
            put(as_bytes(storage.storage)[low:high], low)
    packed.parts = [table.tobytes(), file.getbuffer(), *small]
    packed.size = sum(memoryview(part).nbytes for part in packed.parts)
    return packed


def unpack(body: memoryview, lend: Lend) -> Any:
    """Rebuilds a value. `lend(slot number)` gives the buffer over a slot of the sender's."""
    arrays, storages, length = array_from(body[:24])
    entries = array_from(body[24 : 24 + 32 * (arrays + storages)])
    start = 24 + 32 * (arrays + storages)
    payload, leaves = body[start : start + length], body[start + length :]
    buffers: list[Any] = []
    for i in range(0, len(entries), 4):
        slot, place, size, _ = entries[i : i + 4]
        if slot < 0 and len(buffers) < arrays:
            buffers.append(bytearray(leaves[place : place + size]))
        elif slot < 0:
            own = torch.empty(size, dtype=torch.uint8).numpy()  # aligned as torch aligns
            own[:] = np.frombuffer(leaves[place : place + size], np.uint8)
            buffers.append(own)
        else:
            buffers.append(memoryview(lend(slot))[place : place + size])
    before = _loaded.buffers, _loaded.lows
    _loaded.buffers, _loaded.lows = buffers[arrays:], entries[3 + 4 * arrays :: 4]
    try:
        return pickle.loads(payload, buffers=buffers[:arrays])
    finally:
        _loaded.buffers, _loaded.lows = before


def array_from(data: memoryview) -> array[int]:
    """Signed 64-bit numbers out of bytes."""
    numbers = array("q")
    numbers.frombytes(data)
    return numbers

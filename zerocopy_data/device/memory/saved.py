"""Activations that autograd saves, moved out while the forward pass is short of memory."""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConfigError, DeviceMemoryError, ZcdError
from .governor import MemorySource
from .limits import HostMemory, SystemMemory
from .parcel import Mover, Parcel
from .registration import Layout, plain
from .swap import HOST_MARGIN
from .watch import TorchMemory, real_device


@dataclass(frozen=True)
class SavedState:
    """Activations at one moment.

    Attributes:
        alive: Storages that graphs have saved and not let go.
        bytes: Of these.
        resident: Bytes of those on the device to stay, or on their way to it.
        out: Copies to the host so far; `home` those to the device.
        late: Uses in a backward pass that found theirs away.
        refused: Why one could not move out the last time that happened.
    """

    alive: int
    bytes: int
    resident: int
    out: int
    home: int
    late: int
    refused: str | None


class _Saved:
    """A storage that a graph saved; several saved tensors may lie in it. Its end is the graph's."""

    def __init__(self, parcel: Parcel, alias: torch.Tensor, number: int) -> None:
        self.parcel = parcel
        self.alias: torch.Tensor | None = alias  # until it leaves: shares the version counter of what was saved
        self.number = number


@dataclass(frozen=True, eq=False)
class _Packed:
    """What autograd holds in place of a tensor."""

    saved: _Saved
    layout: Layout
    version: int


class SavedActivations(AbstractContextManager["SavedActivations"]):
    """Inside, what autograd saves may leave the device: `with saved: loss = model(x)`, and `loss.backward()` anywhere.

    Whenever free memory is below `low` as a tensor is saved, the tensors that were saved first, which the backward
    pass needs last, move to page-locked host memory until the middle of the marks is free; where less than half of
    `low` is left, the host waits for copies that are under way. In the backward pass they
    come back ahead of use on a side stream, as long as that leaves `low` bytes free. One object serves all steps: it
    keeps its page-locked memory. Parameters, small tensors and what is still in use elsewhere stay where they are;
    so does what the host has no memory for.

    Args:
        device: As torch takes it; not the CPU.
        low: Bytes of free device memory below which activations move out.
        high: Bytes; as much is freed as lies in the middle.
        min_bytes: Smaller tensors stay.
        ahead: Copies to the device that may be under way before they are needed.
        source: What is read; the device's own memory by default.
        host: What knows the host's memory: nothing moves out where that would leave less than `host_margin` bytes.
        host_margin: Bytes.

    Raises:
        ConfigError: An argument makes no sense.
    """

    def __init__(
        self,
        device: str | int | torch.device,
        *,
        low: int,
        high: int,
        min_bytes: int = 1 << 20,
        ahead: int = 2,
        source: MemorySource | None = None,
        host: HostMemory | None = None,
        host_margin: int = HOST_MARGIN,
    ) -> None:
        if not 0 <= low < high or min_bytes < 1 or ahead < 0:
            raise ConfigError(
                f"SavedActivations: 0 <= low < high, min_bytes >= 1 and ahead >= 0, not low={low}, high={high}, "
                f"min_bytes={min_bytes}, ahead={ahead}."
            )
        self._accelerator = real_device(device)
        self._low, self._middle = low, (low + high) // 2
        self._min_bytes = min_bytes
        self._ahead = ahead
        self._source = source or TorchMemory(self._accelerator)
        self._mover = Mover(self._accelerator, host or SystemMemory(), host_margin)
        self._lock = threading.RLock()  # the backward pass runs in a thread of its own
        self._alive: dict[int, weakref.ref[_Saved]] = {}  # by number: in the order of saving
        self._lately: dict[int, weakref.ref[_Saved]] = {}  # by storage: what was saved there last
        self._moving: dict[Parcel, None] = {}  # something is to be done for these when a copy is done
        self._sent: set[int] = set()  # numbers of those that may be away, and of some that are back or have ended
        self._ended: list[tuple[int, int, Parcel]] = []
        self._numbers = 0
        self._hooks: list[Any] = []
        self._late = 0
        self._refused: str | None = None
        self._closed = False

    def __enter__(self) -> SavedActivations:
        if self._closed:
            raise ZcdError("These SavedActivations are closed. Make new ones.")
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._hooks.append(hooks)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.pop().__exit__(*error)

    def state(self) -> SavedState:
        """Where everything is."""
        with self._lock:
            parcels = [saved.parcel for saved in self._all()]
            return SavedState(
                alive=len(parcels),
                bytes=sum(p.size for p in parcels),
                resident=sum(p.size for p in parcels if p.resident),
                out=self._mover.out,
                home=self._mover.home,
                late=self._late,
                refused=self._refused,
            )

    def close(self) -> None:
        """Frees page-locked memory that no graph needs, and whatever comes back later as it comes.

        Graphs that are alive can still go backward.
        """
        with self._lock:
            self._closed = True
            self._collect()
            self._mover.buffers.close()

    # What autograd calls

    def _pack(self, tensor: torch.Tensor) -> Any:
        if not self._takes(tensor):
            return tensor
        with self._lock:
            self._collect()
            saved = self._known(tensor) or self._new(tensor)
            packed = _Packed(saved, Layout.of(tensor), tensor._version)
            self._relieve()
            return packed

    def _unpack(self, packed: Any) -> torch.Tensor:
        if not isinstance(packed, _Packed):
            kept: torch.Tensor = packed
            return kept
        with self._lock:
            self._collect()
            saved = packed.saved
            if saved.alias is not None and saved.alias._version != packed.version:
                raise RuntimeError(
                    "an activation that autograd saved was modified in place before the backward pass: its version is "
                    f"{saved.alias._version}, {packed.version} was saved. Leave in-place operations out, or clone()."
                )
            if saved.parcel.place is None:
                self._late += 1
                self._bring(saved)
            tensor = packed.layout.over(self._mover.use(saved.parcel))
            self._fetch_ahead(saved.number)
            return tensor

    def _takes(self, tensor: torch.Tensor) -> bool:
        return (
            tensor.device == self._accelerator.device
            and tensor.numel() * tensor.element_size() >= self._min_bytes
            and not (tensor.is_leaf and tensor.requires_grad)
            and plain(tensor)
            and not self._accelerator.capturing()
        )

    # Book-keeping

    def _known(self, tensor: torch.Tensor) -> _Saved | None:
        """The storage of a tensor, where another tensor in it has been saved already."""
        reference = self._lately.get(self._accelerator.storage_key(tensor))
        saved = None if reference is None else reference()
        if saved is None or saved.alias is None or saved.parcel.place is None:
            return None  # what was there has moved out or ended, and its address was given to this tensor
        saved.parcel.place.users.add(self._accelerator.stream())
        return saved

    def _new(self, tensor: torch.Tensor) -> _Saved:
        self._numbers += 1
        parcel = self._mover.parcel(tensor)
        key = self._accelerator.storage_key(tensor)
        saved = _Saved(parcel, tensor.detach(), self._numbers)
        weakref.finalize(saved, _end, (saved.number, key, parcel), self._ended).atexit = False
        self._alive[saved.number] = self._lately[key] = weakref.ref(saved)
        return saved

    def _all(self) -> list[_Saved]:
        return [saved for reference in self._alive.values() if (saved := reference()) is not None]

    def _collect(self) -> None:
        """Runs for each tensor that is saved or used: takes time for what has changed, not for all that is alive."""
        while self._ended:
            number, key, parcel = self._ended.pop()
            self._mover.drop(parcel)
            del self._alive[number]
            self._sent.discard(number)
            if (latest := self._lately.get(key)) is not None and latest() is None:
                del self._lately[key]
        for parcel in list(self._moving):
            self._mover.settle(parcel)
            if not parcel.leaving and parcel.copied is None and parcel.ready is None:
                del self._moving[parcel]

    # Moves

    def _relieve(self) -> None:
        """Sends away what was saved first."""
        free = self._source.read().free
        if free >= self._low:
            return
        alive = self._all()
        to_come = free + sum(s.parcel.size for s in alive if s.parcel.leaving)
        for saved in alive:
            if to_come >= self._middle:
                break
            if self._send(saved):
                to_come += saved.parcel.size
        # The allocator can't wait for copies: where the host is too far ahead of them, it waits here.
        for saved in alive:
            if free >= self._low // 2:
                return
            if saved.parcel.leaving and saved.parcel.copied is not None:
                saved.parcel.copied.synchronize()
                self._mover.settle(saved.parcel)
                free += saved.parcel.size

    def _send(self, saved: _Saved) -> bool:
        if not saved.parcel.movable(1 + (saved.alias is not None)):
            return False
        try:
            self._mover.send(saved.parcel)
        except DeviceMemoryError as error:
            self._refused = str(error)
            return False
        saved.alias = None  # nobody else has a tensor there who could modify it
        self._sent.add(saved.number)
        self._moving[saved.parcel] = None
        return True

    def _bring(self, saved: _Saved) -> None:
        self._moving[saved.parcel] = None
        try:
            self._mover.bring(saved.parcel)
        except torch.OutOfMemoryError:
            for other in self._all():
                if other is not saved:
                    self._send(other)
                    if other.parcel.leaving:
                        self._mover.part(other.parcel, wait=True)
            self._accelerator.synchronize()  # what was let go may wait for its users
            self._accelerator.release_cache()
            try:
                self._mover.bring(saved.parcel)
            except torch.OutOfMemoryError as error:
                there = {f"activation {s.number}": s.parcel.size for s in self._all() if s.parcel.place is not None}
                reading = self._source.read()
                raise self._mover.stuck(f"activation {saved.number}", saved.parcel, there, reading) from error

    def _fetch_ahead(self, number: int) -> None:
        """Brings back what was saved before this: it is needed next."""
        coming = sum(parcel.ready is not None for parcel in self._moving)
        for earlier in sorted((sent for sent in self._sent if sent < number), reverse=True):
            if coming >= self._ahead:
                return
            reference = self._alive.get(earlier)
            saved = None if reference is None else reference()
            if saved is None or saved.parcel.resident:
                self._sent.discard(earlier)
                continue
            if saved.parcel.place is not None:  # still leaving
                continue
            if self._source.read().free - saved.parcel.size < self._low:
                return
            try:
                self._mover.bring(saved.parcel)
            except torch.OutOfMemoryError:
                return
            self._moving[saved.parcel] = None
            coming += 1


def _end(what: tuple[int, int, Parcel], ended: list[tuple[int, int, Parcel]]) -> None:
    """A graph has let go, maybe under the lock: device memory goes now, the host's at the next call."""
    _, _, parcel = what
    parcel.place = None
    parcel.leaving = False
    ended.append(what)

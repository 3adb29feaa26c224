"""Tensors that leave the device when its memory gets scarce, and are back before they are used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ...errors import ConfigError, DeviceMemoryError, ZcdError
from .limits import HostMemory, SystemMemory
from .order import CyclicOrder
from .parcel import Mover, Parcel
from .registration import Layout, check_tensor
from .watch import TorchMemory, real_device

HOST_MARGIN = 256 << 20  # bytes of host memory that stay free unless another number is given
_FAR = 1 << 60  # the distance of what no recorded use is known of


@dataclass(frozen=True)
class SwapState:
    """A pool at one moment.

    Attributes:
        registered: Bytes of all tensors.
        resident: Bytes of those on the device to stay, or on their way to it.
        leaving: Bytes on the device whose copies to the host are not known to be done.
        pinned: Bytes of page-locked host memory.
        allowance: Bytes of tensors that may stay on the device; None: all.
        out: Copies to the host so far; `home` those to the device.
        late: Uses that found their tensor away: the computing stream waits for a whole copy.
        recalled: Moves to the host that a use overtook.
        refused: Why a tensor could not move out the last time that happened.
    """

    registered: int
    resident: int
    leaving: int
    pinned: int
    allowance: int | None
    out: int
    home: int
    late: int
    recalled: int
    refused: str | None


class Handle:
    """A tensor that a pool looks after. Made by `SwapPool.register`.

    `with handle as tensor:` is a use; so is `get()`. Work on the tensor is queued on the stream that is current then.
    While anybody holds the tensor, a view of it or a graph that saved it, its memory stays: a kept reference costs
    memory, never values.
    """

    def __init__(self, pool: SwapPool, name: str, layout: Layout, parcel: Parcel) -> None:
        self.name = name
        self.layout = layout
        self.parcel = parcel
        self.last_use = 0
        self._pool = pool
        self._held: list[torch.Tensor] = []  # of scopes that are open

    @property
    def bytes(self) -> int:
        """Of its storage."""
        return self.parcel.size

    def get(self) -> torch.Tensor:
        """The tensor, on the device. The computing stream waits where it must come back, the host does not.

        Raises:
            DeviceMemoryError: There is no room for it, even with all others moved out.
            ZcdError: The pool or the handle is closed, or a graph is being captured.
        """
        return self._pool._use(self)

    def offload(self) -> None:
        """Moves the tensor out now, whatever is free. Does nothing while somebody holds it.

        Raises:
            DeviceMemoryError: The host has no memory for it.
            ZcdError: The pool or the handle is closed.
        """
        self._pool._offload(self)

    def __enter__(self) -> torch.Tensor:
        tensor = self.get()
        self._held.append(tensor)
        return tensor

    def __exit__(self, *_: object) -> None:
        self._held.pop()

    def close(self) -> None:
        """Takes the tensor out of the pool and frees its memory on both sides."""
        self._pool._forget(self)

    def __repr__(self) -> str:
        where = "away" if self.parcel.place is None else "leaving" if self.parcel.leaving else "on the device"
        return f"Handle({self.name!r}, {self.bytes} bytes, {where})"


class SwapPool:
    """Moves registered tensors to page-locked host memory when a `Governor` asks it to: a relief.

    Tensors move out the least soon needed first: by the order that `record()` noted, without one the least recently
    used. From then on as many bytes stay on the device as the governor left, and tensors take turns: each comes back
    ahead of its use on a side stream, in place of one that is needed later (Belady's rule with prefetching that "does
    no harm": Cao, Felten, Karlin and Li, SIGMETRICS 1995). When the governor finds memory plentiful again, they return.

    Args:
        device: As torch takes it; not the CPU.
        ahead: Copies to the device that may be under way before they are needed.
        host: What knows the host's memory: no tensor moves out where that would leave less than `host_margin`.
        host_margin: Bytes.

    Raises:
        ConfigError: An argument makes no sense.
    """

    name = "swap pool"

    def __init__(
        self,
        device: str | int | torch.device,
        *,
        ahead: int = 4,
        host: HostMemory | None = None,
        host_margin: int = HOST_MARGIN,
    ) -> None:
        if ahead < 0 or host_margin < 0:
            raise ConfigError(f"SwapPool: ahead={ahead} and host_margin={host_margin} must not be negative.")
        self._accelerator = real_device(device)
        self.device = self._accelerator.device
        self._memory = TorchMemory(self._accelerator)
        self._mover = Mover(self._accelerator, host or SystemMemory(), host_margin)
        self._ahead = ahead
        self._lock = threading.RLock()
        self._handles: dict[int, Handle] = {}
        self._order: CyclicOrder[Handle] | None = None
        self._recording: list[Handle] | None = None
        self._allowance: int | None = None
        self._clock = 0
        self._closed = False
        self._late = 0
        self._refused: str | None = None

    # For users

    def register(self, tensor: torch.Tensor, *, name: str | None = None) -> Handle:
        """Gives a tensor into the pool's care. Drop your own reference: while you hold it, it can't move.

        Args:
            tensor: On the pool's device, the only tensor over its memory; needs no gradient. Its strides are kept.
            name: For messages.

        Returns:
            The way to it from now on.

        Raises:
            ConfigError: The tensor is not of that kind.
        """
        with self._lock:
            self._check()
            name = f"tensor {len(self._handles)}" if name is None else name
            layout = check_tensor(tensor, name, self.device)
            parcel = self._mover.parcel(tensor)
            assert parcel.place is not None
            others = self._accelerator.holders(parcel.place.bytes) - 2
            if others > 0:
                raise ConfigError(
                    f"SwapPool.register: {others} other tensor(s) share the memory of {name} (views, aliases, what a "
                    "graph saved, or another handle), which would not move with it. Register one tensor for all, or a "
                    "clone()."
                )
            handle = Handle(self, name, layout, parcel)
            if self._allowance is not None:
                self._allowance += handle.bytes  # what is free was read with this tensor there
            self._handles[id(handle)] = handle
            return handle

    @contextmanager
    def record(self) -> Iterator[None]:
        """Notes the order of uses inside: one round of what is repeated from then on, a training step as a rule."""
        with self._lock:
            self._check()
            self._recording = []
        try:
            yield
        except BaseException:
            self._recording = None
            raise
        with self._lock:
            uses, self._recording = self._recording, None
            self._order = CyclicOrder(uses) if uses else None

    def state(self) -> SwapState:
        """Where everything is."""
        with self._lock:
            return SwapState(
                registered=self._registered_bytes(),
                resident=self._resident_bytes(),
                leaving=self._leaving_bytes(),
                pinned=self._mover.buffers.bytes,
                allowance=self._allowance,
                out=self._mover.out,
                home=self._mover.home,
                late=self._late,
                recalled=self._mover.recalled,
                refused=self._refused,
            )

    def close(self) -> None:
        """Ends the pool: its tensors are gone on both sides. Waits for copies that page-locked memory is part of."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for handle in list(self._handles.values()):
                    self._forget(handle)
                self._order = self._recording = None
                self._mover.buffers.close()

    def __enter__(self) -> SwapPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For a governor

    def relieve(self, bytes_wanted: int) -> int:
        """Allows fewer bytes on the device, and sends tensors away to that measure.

        Returns:
            Bytes that will be free once the copies are done.
        """
        with self._lock:
            self._settle()
            before = min(self._allowed(), self._registered_bytes())
            target = max(0, before - bytes_wanted)
            after = target
            while self._resident_bytes() > target:
                if not self._evict_one():
                    break
                after = self._resident_bytes()
            after = max(after, self._resident_bytes())
            if after < before:
                self._allowance = after
            return max(0, before - after)

    def restore(self, bytes_allowed: int) -> int:
        """Allows more bytes on the device; tensors come back ahead of their next use.

        Returns:
            Bytes by which the allowance has grown.
        """
        with self._lock:
            if self._allowance is None or bytes_allowed <= 0:
                return 0
            room = max(0, self._registered_bytes() - self._allowance)
            grown = min(bytes_allowed, room)
            self._allowance = None if grown == room else self._allowance + grown
            self._settle()
            self._fetch_ahead()
            return grown

    def pending(self) -> int:
        """Bytes that are still leaving, less those that may come back and have not yet."""
        with self._lock:
            self._settle()
            to_come = min(self._allowed(), self._registered_bytes()) - self._resident_bytes()
            return self._leaving_bytes() - max(0, to_come)

    # Uses

    def _use(self, handle: Handle) -> torch.Tensor:
        with self._lock:
            self._check(handle)
            if self._accelerator.capturing():
                raise ZcdError(
                    f"{handle.name} was asked for while a graph is being captured. It has no fixed address: copy it "
                    "into a tensor of the graph's own before the capture and before each replay."
                )
            self._settle()
            if handle.parcel.place is None:
                self._late += 1
                self._bring(handle)
            recalled = handle.parcel.leaving
            tensor = handle.layout.over(self._mover.use(handle.parcel))
            # From here on `tensor` is held, and not the one to give way.
            self._note(handle)
            while self._resident_bytes() > self._allowed() and self._evict_one():
                pass
            if recalled:  # the host is a round ahead of the copies: without this, nothing would ever be gone
                self._part(self._allowed(), wait=True)
            self._fetch_ahead()
            return tensor

    def _note(self, handle: Handle) -> None:
        self._clock += 1
        handle.last_use = self._clock
        if self._recording is not None:
            self._recording.append(handle)
        elif self._order is not None:
            self._order.used(handle)

    # Moves

    def _evict_one(self, after: int = -1) -> bool:
        """Sends away the tensor that is needed last, if that is later than in `after` uses."""
        for handle in sorted(self._handles.values(), key=lambda h: (-self._distance(h), h.last_use)):
            if self._distance(handle) <= after:
                return False
            if not handle.parcel.movable():
                continue
            try:
                self._mover.send(handle.parcel)
            except DeviceMemoryError as error:  # a smaller one may fit
                self._refused = str(error)
                continue
            return True
        return False

    def _offload(self, handle: Handle) -> None:
        with self._lock:
            self._check(handle)
            self._settle()
            if handle.parcel.movable():
                self._mover.send(handle.parcel)

    def _distance(self, handle: Handle) -> int:
        distance = self._order.distance(handle) if self._order is not None else None
        return _FAR if distance is None else distance

    def _settle(self) -> None:
        for handle in self._handles.values():
            self._mover.settle(handle.parcel)

    def _fetch_ahead(self) -> None:
        """Brings back what is needed next, as long as only what is needed later must give way."""
        if self._order is None or self._recording is not None:
            return
        coming = sum(h.parcel.ready is not None for h in self._handles.values())
        for distance, handle in self._order.upcoming():
            if coming >= self._ahead:
                return
            if handle.parcel.place is not None:
                continue  # what is leaving is recalled by its use
            if not self._make_room(handle.bytes, distance):
                return
            try:
                self._mover.bring(handle.parcel)
            except torch.OutOfMemoryError:
                return
            coming += 1

    def _make_room(self, size: int, distance: int) -> bool:
        """Whether so many bytes more fit into the allowance, if need be in place of what is needed later."""
        allowed = self._allowed()
        while self._resident_bytes() + size > allowed:
            if not self._evict_one(distance):
                return False
        return self._part(allowed - size, wait=False)

    def _part(self, most: int, wait: bool) -> bool:
        """Gives up what is leaving until all that takes memory is no more than so many bytes; whether it is.

        Args:
            most: Bytes.
            wait: Whether the host may wait for copies out of memory that is not the homeward stream's own.
        """
        for handle in self._handles.values():
            if self._resident_bytes() + self._leaving_bytes() <= most:
                break
            if handle.parcel.leaving:
                self._mover.part(handle.parcel, wait)
        return self._resident_bytes() + self._leaving_bytes() <= most

    def _bring(self, handle: Handle) -> None:
        """For a use now: whatever is not in use itself gives way, first within the allowance, then altogether."""
        if not self._make_room(handle.bytes, -1):
            self._part(self._allowed() - handle.bytes, wait=True)
        try:
            self._mover.bring(handle.parcel)
        except torch.OutOfMemoryError:
            while self._evict_one():
                pass
            self._part(0, wait=True)
            self._accelerator.synchronize()  # what was let go may wait for its users
            self._accelerator.release_cache()
            try:
                self._mover.bring(handle.parcel)
            except torch.OutOfMemoryError as error:
                there = {h.name: h.bytes for h in self._handles.values() if h.parcel.place is not None}
                raise self._mover.stuck(handle.name, handle.parcel, there, self._memory.read()) from error

    # Book-keeping

    def _registered_bytes(self) -> int:
        return sum(h.bytes for h in self._handles.values())

    def _resident_bytes(self) -> int:
        return sum(h.bytes for h in self._handles.values() if h.parcel.resident)

    def _leaving_bytes(self) -> int:
        return sum(h.bytes for h in self._handles.values() if h.parcel.leaving)

    def _allowed(self) -> int:
        return self._registered_bytes() if self._allowance is None else self._allowance

    def _forget(self, handle: Handle) -> None:
        with self._lock:
            if self._handles.pop(id(handle), None) is None:
                return
            if self._order is not None:
                self._order = self._order.without(handle)
            if self._recording is not None:
                self._recording = [h for h in self._recording if h is not handle]
            if self._allowance is not None and handle.parcel.resident:
                self._allowance = max(0, self._allowance - handle.bytes)
            self._mover.drop(handle.parcel)

    def _check(self, handle: Handle | None = None) -> None:
        if self._closed:
            raise ZcdError("The SwapPool is closed, and its tensors are gone.")
        if handle is not None and id(handle) not in self._handles:
            raise ZcdError(f"{handle.name} is no longer in the pool: its handle was closed.")

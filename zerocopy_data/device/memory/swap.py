"""Tensors that leave the device when its memory gets scarce, and are back before they are used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConfigError, DeviceMemoryError, ZcdError
from ..accelerator import Event, accelerator_for
from .governor import Marks, hoards
from .limits import HostMemory
from .moves import Link, Place
from .order import CyclicOrder
from .pinned import PinnedBuffers
from .registration import Layout, check_tensor
from .watch import DeviceMemory, TorchMemory


@dataclass(frozen=True)
class SwapState:
    """A pool at one moment, in bytes and counts.

    Attributes:
        registered: Bytes of all tensors.
        resident: Bytes of those on the device, or on their way to it.
        leaving: Bytes on the device whose copies to the host are not known to be done.
        held: Bytes that can't move because somebody holds a tensor over them.
        pinned: Bytes of page-locked host memory.
        allowance: Bytes of tensors that may be on the device; None: all.
        out: Copies to the host; `home` those to the device.
        late: Uses that found their tensor away: the compute stream waits for a whole copy.
        cancelled: Moves to the host that a use overtook.
        reversals: Changes between giving up memory and taking it again.
    """

    registered: int
    resident: int
    leaving: int
    held: int
    pinned: int
    allowance: int | None
    out: int
    home: int
    late: int
    cancelled: int
    reversals: int


class Handle:
    """A tensor that a pool looks after. Made by `SwapPool.register`.

    `with handle as tensor:` is a use; so is `get()`. Work on the tensor is queued on the stream that is current then.
    While anybody holds the tensor, a view of it or a graph that saved it, its memory stays: a kept reference costs
    memory, never values.
    """

    def __init__(self, pool: SwapPool, name: str, layout: Layout, constant: bool, place: Place | None) -> None:
        self.name = name
        self.layout = layout
        self.constant = constant
        self.place = place  # None: on the host alone
        self.host: torch.Tensor | None = None  # page-locked copy
        self.copied: Event | None = None  # behind the copy that fills `host`, while that may not be done
        self.ready: Event | None = None  # behind the copy to `place`, while that may not be done
        self.leaving = False  # a copy to the host is queued, after which `place` is given up
        self.ahead = False  # came back and has not been used yet
        self.uses = 0  # scopes that are open
        self.fixed = False  # its address is part of a captured graph
        self.last_use = 0
        self.version: int | None = None  # of a constant tensor when it was given out
        self._pool = pool

    @property
    def bytes(self) -> int:
        return self.layout.bytes

    def place_size(self) -> int:
        """Bytes of device memory that it takes now."""
        return 0 if self.place is None else self.place.size

    def get(self) -> torch.Tensor:
        """The tensor, on the device. The compute stream waits for it where it must come back, the host does not.

        Raises:
            DeviceMemoryError: There is no room for it, even with all other tensors moved out.
            ZcdError: The pool is closed, belongs to another process, or a graph is being captured and it is away.
        """
        return self._pool._use(self)

    def __enter__(self) -> torch.Tensor:
        tensor = self._pool._use(self)
        self.uses += 1
        return tensor

    def __exit__(self, *_: object) -> None:
        self.uses -= 1

    def close(self) -> None:
        """Takes the tensor out of the pool and frees its memory on both sides."""
        self._pool._forget(self)

    def __repr__(self) -> str:
        where = "away" if self.place is None else "leaving" if self.leaving else "on the device"
        return f"Handle({self.name!r}, {self.bytes} bytes, {where})"


class SwapPool:
    """Moves registered tensors to page-locked host memory when free device memory falls below a mark.

    `step()` between batches reads what is free. Below `low`, tensors move out until the middle of the marks is reached,
    the least soon needed first: by the order that `record()` noted, without one the least recently used. They may all
    come back when memory has stayed above `high` for `dwell` steps. In between as many bytes stay on the device as
    before, and tensors take turns: each comes back ahead of its use, in place of one that is needed later.

    Copies run on two side streams. On the CPU the pool passes tensors through.

    Args:
        device: As torch takes it.
        low: Bytes of free memory (what torch's allocator has cached counts as free) below which tensors move out.
        high: Bytes above which they may come back for good. Neither: only a governor moves tensors.
        dwell: Steps above `high` before that.
        ahead: Seconds of copying by which tensors come back early at most, by the link's measured rate.
        source: Where readings come from; the device's own by default.
        host: Readings of host memory, for `host_margin`.
        host_margin: Bytes of host memory that stay free: no tensor moves out that would take them.

    Raises:
        ConfigError: An argument makes no sense.
    """

    name = "swap pool"

    def __init__(
        self,
        device: str | int | torch.device,
        *,
        low: int | None = None,
        high: int | None = None,
        dwell: int = 8,
        ahead: float = 0.05,
        source: DeviceMemory | None = None,
        host: HostMemory | None = None,
        host_margin: int = 0,
    ) -> None:
        if (low is None) != (high is None):
            raise ConfigError("SwapPool: give both low= and high=, or neither and let a Governor decide.")
        if host_margin and host is None:
            raise ConfigError("SwapPool: host_margin= needs host=, for example SystemMemory().")
        self._marks = Marks(low, high, dwell) if low is not None and high is not None else None
        self._accelerator = accelerator_for(device)
        self.device = torch.device("cpu") if self._accelerator is None else self._accelerator.device
        self._ahead_seconds = ahead
        self._host, self._host_margin = host, host_margin
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._handles: dict[str, Handle] = {}
        self._passed: dict[str, torch.Tensor] = {}  # on the CPU
        self._order: CyclicOrder[Handle] | None = None
        self._recording: list[Handle] | None = None
        self._allowance: int | None = None
        self._clock = 0
        self._closed = False
        self._direction = 0
        self._out = self._home = self._late = self._cancelled = self._reversals = 0
        if self._accelerator is not None:
            self._source = source or TorchMemory(self._accelerator)
            self._buffers = PinnedBuffers(self._accelerator)
            self._link = Link(self._accelerator)

    # For users

    def register(self, tensor: torch.Tensor, *, name: str | None = None, constant: bool = False) -> Handle:
        """Gives a tensor into the pool's care. Drop your own reference: while you hold it, it can't move.

        Args:
            tensor: On the pool's device, the only tensor over its memory; needs no gradient.
            name: For messages; unique.
            constant: It is never modified: moving it out again needs no copy.

        Returns:
            The way to it from now on.

        Raises:
            ConfigError: The tensor is not of that kind, or the name is taken.
        """
        with self._lock:
            self._check()
            name = name if name is not None else f"tensor {len(self._handles)}"
            if name in self._handles:
                raise ConfigError(f"SwapPool.register: the name {name!r} is taken. Give each tensor its own.")
            layout = check_tensor(tensor, name, self.device)
            place = None
            if self._accelerator is not None:
                contents = self._accelerator.contents(tensor)
                layout.check_alone(contents, self._accelerator.holders(contents) - 2, name)
                place = Place(self._accelerator, contents)
                place.streams.add(self._accelerator.stream())
            handle = Handle(self, name, layout, constant, place)
            if self._accelerator is None:
                self._passed[name] = tensor
            elif self._allowance is not None:
                self._allowance += handle.bytes  # what is free was read with this tensor there
            self._handles[name] = handle
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

    def step(self) -> None:
        """To be called between batches: reads what is free, moves tensors out or lets them back."""
        with self._lock:
            if not self._works():
                return
            assert self._accelerator is not None
            self._settle()
            if self._marks is not None:
                reading = self._source.read()
                wanted = self._marks.wanted(reading.free + self._leaving_bytes())
                if wanted > 0:
                    self.relieve(wanted)
                elif wanted < 0 and self._allowance is not None:
                    self.restore(-wanted)
                if hoards(reading, self._marks):
                    self._accelerator.release_cache()
            self._fetch_ahead()

    def relieve(self, bytes_wanted: int) -> int:
        """Allows fewer bytes on the device, and sends tensors away to that measure.

        Returns:
            Bytes that will be free once the copies are done.
        """
        with self._lock:
            if not self._works():
                return 0
            before = self._resident_bytes()
            self._allowance = max(0, min(before, self._allowance_or(before)) - bytes_wanted)
            while self._resident_bytes() > self._allowance and self._evict_one():
                pass
            self._settle()
            freed = before - self._resident_bytes()
            if freed:
                self._turn(-1)
            self._allowance = min(self._allowance_or(before), self._resident_bytes())
            return freed

    def restore(self, bytes_allowed: int) -> int:
        """Allows more bytes on the device; tensors come back ahead of their next use.

        Returns:
            Bytes by which the allowance has grown.
        """
        with self._lock:
            if not self._works() or self._allowance is None or bytes_allowed <= 0:
                return 0
            room = max(0, self._registered_bytes() - self._allowance)
            grown = min(bytes_allowed, room)
            self._allowance += grown
            if self._allowance >= self._registered_bytes():
                self._allowance = None
            if grown:
                self._turn(+1)
            self._fetch_ahead()
            return grown

    def saved_activations(self, min_bytes: int = 1 << 20) -> AbstractContextManager[None]:
        """Activations that autograd saves inside move to the host too: see `saved_activations`."""
        from .saved import saved_activations

        return saved_activations(self.device, min_bytes=min_bytes)

    def state(self) -> SwapState:
        """Where everything is."""
        with self._lock:
            away = self._accelerator is None
            held = sum(h.bytes for h in self._handles.values() if h.place is not None and h.place.held())
            return SwapState(
                registered=self._registered_bytes(),
                resident=self._registered_bytes() if away else self._resident_bytes(),
                leaving=self._leaving_bytes(),
                held=held,
                pinned=0 if away else self._buffers.bytes,
                allowance=self._allowance,
                out=self._out,
                home=self._home,
                late=self._late,
                cancelled=self._cancelled,
                reversals=self._reversals,
            )

    def close(self) -> None:
        """Ends the pool: its tensors are gone on both sides. Waits for copies that page-locked memory is part of."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if os.getpid() != self._process:
                return
            for handle in list(self._handles.values()):
                self._forget(handle)
            self._order = self._recording = None
            if self._accelerator is not None:
                self._buffers.close()

    def __enter__(self) -> SwapPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Uses

    def _use(self, handle: Handle) -> torch.Tensor:
        with self._lock:
            self._check()
            if self._handles.get(handle.name) is not handle:
                raise ZcdError(f"{handle.name!r} is no longer in the pool: its handle was closed.")
            if self._accelerator is None:
                self._note(handle)
                return self._passed[handle.name]
            if self._accelerator.capturing():
                return self._use_in_graph(handle)
            if handle.place is None:
                self._late += 1
                self._bring(handle)
            place = handle.place
            assert place is not None
            stream = self._accelerator.stream()
            if handle.leaving:
                handle.leaving = False
                self._cancelled += 1
                if not handle.constant:  # it may be written now, which must not change what is being copied
                    place.order(stream)
            if handle.ready is not None:
                stream.wait_event(handle.ready)
            if not handle.constant:
                self._discard_copy(handle)
            handle.ahead = False
            place.streams.add(stream)
            self._note(handle)
            handle.uses += 1  # not to be moved by what comes back ahead
            try:
                self._fetch_ahead()
            finally:
                handle.uses -= 1
            tensor = handle.layout.over(place.bytes)
            if handle.constant and handle.version is None:
                handle.version = place.bytes._version
            return tensor

    def _use_in_graph(self, handle: Handle) -> torch.Tensor:
        if handle.place is None or handle.leaving or handle.ready is not None:
            raise ZcdError(
                f"{handle.name!r} is on its way while a graph is captured, which can neither wait for it nor move it. "
                "Use it once, synchronize, and step() the pool before the capture."
            )
        handle.fixed = True
        assert self._accelerator is not None
        handle.place.streams.add(self._accelerator.stream())
        if not handle.constant:
            self._discard_copy(handle)
        return handle.layout.over(handle.place.bytes)

    def _note(self, handle: Handle) -> None:
        self._clock += 1
        handle.last_use = self._clock
        if self._recording is not None:
            self._recording.append(handle)
        elif self._order is not None:
            self._order.used(handle)

    def _discard_copy(self, handle: Handle) -> None:
        """What the host has will be out of date."""
        if handle.host is not None:
            self._buffers.give(handle.host, handle.ready or handle.copied)
        handle.host = handle.copied = None

    # Moves to the host

    def _evict_one(self, after: int = -1, spare: Handle | None = None) -> bool:
        """Sends away the tensor that is needed last, if that is later than in `after` uses."""
        for handle in sorted(self._handles.values(), key=self._keep_key):
            if handle is spare or not self._movable(handle):
                continue
            if after >= 0 and self._distance(handle) <= after:
                return False
            if self._evict(handle):
                return True
        return False

    def _keep_key(self, handle: Handle) -> tuple[int, int]:
        return -self._distance(handle), handle.last_use

    def _distance(self, handle: Handle) -> int:
        distance = self._order.distance(handle) if self._order is not None else None
        return 1 << 60 if distance is None else distance

    def _movable(self, handle: Handle) -> bool:
        place = handle.place
        if place is None or handle.leaving or handle.uses or handle.fixed or not handle.bytes:
            return False
        return not place.held()

    def _evict(self, handle: Handle) -> bool:
        place = handle.place
        assert place is not None
        if handle.constant and handle.version is not None and place.bytes._version != handle.version:
            raise ZcdError(f"{handle.name!r} was registered as constant and has been modified in place.")
        if handle.host is None:
            if not self._host_has_room(handle.bytes):
                return False
            try:
                handle.host = self._buffers.take(handle.bytes)
            except DeviceMemoryError:
                return False
            handle.copied = self._link.out(place, handle.host, handle.bytes)
            self._out += 1
        handle.leaving = True
        handle.ahead = False
        return True

    def _host_has_room(self, size: int) -> bool:
        return self._host is None or self._host.read().free - size >= self._host_margin

    def _settle(self) -> None:
        """Gives up the memory of tensors whose copies are done, and forgets events that have happened."""
        self._link.measure()
        for handle in self._handles.values():
            if handle.copied is not None and handle.copied.query():
                handle.copied = None
            if handle.ready is not None and handle.ready.query():
                handle.ready = None
            if handle.leaving and handle.place is not None and handle.place.settle():
                self._vacate(handle)

    def _vacate(self, handle: Handle) -> Place:
        place = handle.place
        assert place is not None
        handle.place = handle.ready = handle.version = None
        handle.leaving = False
        return place

    # Moves to the device

    def _fetch_ahead(self) -> None:
        """Brings back what is needed next, as long as only what is needed later must give way."""
        if self._order is None or self._recording is not None:
            return
        waiting = sum(h.bytes for h in self._handles.values() if h.ahead)
        depth = self._ahead_seconds * self._link.rate
        for distance, handle in self._order.upcoming():
            if handle.place is not None and not handle.leaving:
                continue
            if self._handles.get(handle.name) is not handle or (waiting and waiting + handle.bytes > depth):
                return
            if handle.leaving:  # it has not gone yet
                if self._resident_bytes() + handle.bytes > self._allowance_or(self._registered_bytes()):
                    return
                handle.leaving, handle.ahead = False, True
                self._cancelled += 1
            else:
                place = self._make_room(handle, distance)
                if place is None:
                    return
                self._come_home(handle, place)
                handle.ahead = True
            waiting += handle.bytes

    def _bring(self, handle: Handle) -> None:
        """For a use now: whatever is not in use itself gives way."""
        self._come_home(handle, self._make_room(handle, None) or self._last_resort(handle))

    def _come_home(self, handle: Handle, place: Place) -> None:
        assert handle.host is not None
        handle.ready = self._link.home(
            handle.host, place, handle.bytes, [handle.copied] if handle.copied is not None else []
        )
        handle.place = place
        self._home += 1

    def _make_room(self, handle: Handle, distance: int | None) -> Place | None:
        """A place for a tensor within the allowance.

        Args:
            handle: Which needs it.
            distance: Only tensors that are needed later than in so many uses give way; None: all.

        Returns:
            None where there is none without waiting, or the device is out of memory.
        """
        size = handle.bytes
        allowed = self._allowance_or(self._registered_bytes())
        while self._resident_bytes() + size > allowed:
            if not self._evict_one(-1 if distance is None else distance, handle):
                if distance is not None:
                    return None
                break
        # A leaving tensor's memory is taken over on the device: the copy home waits there for the copy out.
        fitting = [h for h in self._leaving() if size <= h.place_size() <= 2 * size]
        if fitting:
            return self._vacate(min(fitting, key=lambda h: (h.copied is not None, h.place_size())))
        if self._occupied_bytes() + size > allowed:
            self._settle()
            if distance is not None and self._occupied_bytes() + size > allowed:
                return None
            self._drop_leaving(lambda: self._occupied_bytes() + size <= allowed)
        try:
            return self._link.empty(size)
        except torch.OutOfMemoryError:
            return None

    def _drop_leaving(self, enough: Callable[[], bool]) -> None:
        """Gives up leaving tensors' memory before the host knows their copies done: later work waits on the device."""
        assert self._accelerator is not None
        for handle in self._leaving():
            if enough():
                return
            self._vacate(handle).order(self._accelerator.stream())

    def _last_resort(self, handle: Handle) -> Place:
        assert self._accelerator is not None
        while self._evict_one(spare=handle):
            pass
        self._drop_leaving(lambda: False)
        self._accelerator.release_cache()
        try:
            return self._link.empty(handle.bytes)
        except torch.OutOfMemoryError as error:
            raise self._no_room(handle) from error

    def _no_room(self, handle: Handle) -> DeviceMemoryError:
        reading = self._source.read()
        there = [h for h in self._handles.values() if h.place is not None]
        lines = [f"{h.name!r} {h.bytes} bytes ({'in use' if h.uses or h.fixed else 'held'})" for h in there]
        return DeviceMemoryError(
            f"No room on {self.device} to bring back {handle.name!r}: it needs {handle.bytes} bytes, the driver has "
            f"{reading.driver_free} of {reading.total} free and torch's allocator {reading.cached} more in pieces. "
            f"{len(self._handles)} tensors of {self._registered_bytes()} bytes are registered; still there: "
            f"{', '.join(lines) or 'none'}. Use fewer at a time, drop references to their tensors, or make batches "
            "smaller."
        )

    # Book-keeping

    def _leaving(self) -> list[Handle]:
        return [h for h in self._handles.values() if h.leaving]

    def _leaving_bytes(self) -> int:
        return sum(h.place_size() for h in self._leaving())

    def _resident_bytes(self) -> int:
        return sum(h.place_size() for h in self._handles.values() if not h.leaving)

    def _occupied_bytes(self) -> int:
        return sum(h.place_size() for h in self._handles.values())

    def _registered_bytes(self) -> int:
        return sum(h.bytes for h in self._handles.values())

    def _allowance_or(self, otherwise: int) -> int:
        return otherwise if self._allowance is None else self._allowance

    def _turn(self, direction: int) -> None:
        self._reversals += self._direction == -direction
        self._direction = direction

    def _forget(self, handle: Handle) -> None:
        with self._lock:
            if self._handles.get(handle.name) is not handle or os.getpid() != self._process:
                return
            del self._handles[handle.name]
            self._passed.pop(handle.name, None)
            if self._order is not None:
                self._order = self._order.without(handle)
            if handle.host is not None:
                self._buffers.give(handle.host, handle.ready or handle.copied)
            handle.place = handle.host = handle.ready = handle.copied = None
            if self._allowance is not None:
                self._allowance = max(0, self._allowance - handle.bytes)

    def _works(self) -> bool:
        """Whether there is anything to move, and it may be moved now."""
        if self._accelerator is None or self._closed or os.getpid() != self._process:
            return False
        return not self._accelerator.capturing()

    def _check(self) -> None:
        if self._closed:
            raise ZcdError("The SwapPool is closed, and its tensors are gone.")
        if os.getpid() != self._process:
            raise ZcdError(
                f"The SwapPool belongs to process {self._process}, not to its child {os.getpid()}: device memory can't "
                "be used behind a fork. Use it in the process that made it."
            )

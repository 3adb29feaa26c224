"""Bytes that lie on the device, in page-locked host memory, or are on their way between the two."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

from ...errors import DeviceMemoryError
from ..accelerator import Accelerator, Event
from .limits import HostMemory
from .moves import Link, Place
from .pinned import PinnedBuffers


class Parcel:
    """The storage of one tensor.

    A parcel that is dropped first waits for copies its page-locked memory is part of.

    Attributes:
        size: Bytes.
        place: Where it lies on the device; None: on the host alone.
        host: Page-locked copy, whole once `copied` has happened.
        copied: Behind the copy that fills `host`, while that may not be done.
        ready: Behind the copy to `place`, while that may not be done.
        leaving: A copy to the host is queued, after which `place` is given up.
    """

    def __init__(self, place: Place) -> None:
        self.size = place.size
        self.place: Place | None = place
        self.host: torch.Tensor | None = None
        self.copied: Event | None = None
        self.ready: Event | None = None
        self.leaving = False
        self._process = os.getpid()

    def __del__(self) -> None:
        if self.host is None or os.getpid() != self._process:  # a forked child: the device is the parent's
            return
        with contextlib.suppress(Exception):  # the device may be on its way out
            for event in (self.copied, self.ready):
                if event is not None:
                    event.synchronize()

    @property
    def resident(self) -> bool:
        """On the device to stay."""
        return self.place is not None and not self.leaving

    def movable(self, own: int = 1) -> bool:
        """On the device to stay, and no tensors lie over it but so many of the caller's own."""
        place = self.place
        return place is not None and not self.leaving and self.size > 0 and place.tensors() <= own


class Mover:
    """Moves parcels of one device. Its caller sees to it that one thread does so at a time.

    Args:
        accelerator: The device.
        host: What knows the host's memory.
        host_margin: Bytes of host memory that stay free.
    """

    def __init__(self, accelerator: Accelerator, host: HostMemory, host_margin: int) -> None:
        self.accelerator = accelerator
        self.link = Link(accelerator)
        self.buffers = PinnedBuffers(accelerator, host, host_margin)
        self.out = self.home = self.recalled = 0

    def parcel(self, tensor: torch.Tensor) -> Parcel:
        """A parcel of the whole storage of a tensor that was made and used on the current stream."""
        stream = self.accelerator.stream()
        place = Place(self.accelerator, self.accelerator.contents(tensor), stream)
        place.users.add(stream)
        return Parcel(place)

    def send(self, parcel: Parcel) -> None:
        """Queues a resident parcel's copy to the host.

        Raises:
            DeviceMemoryError: The host has no memory for it.
        """
        assert parcel.place is not None
        if parcel.host is None:  # else it has come back and not been used since
            host = self.buffers.take(parcel.size)
            try:
                parcel.copied = self.link.out(parcel.place, host)
            except BaseException:
                self.buffers.give(host)
                raise
            parcel.host = host
            self.out += 1
        parcel.leaving = True

    def settle(self, parcel: Parcel) -> None:
        """Gives up the memory of a leaving parcel whose copy is done, and forgets events that have happened."""
        if parcel.copied is not None and parcel.copied.query():
            parcel.copied = None
        if parcel.ready is not None and parcel.ready.query():
            parcel.ready = None
        if parcel.leaving and parcel.place is not None and parcel.place.idle():
            self._vacate(parcel)

    def part(self, parcel: Parcel, wait: bool) -> None:
        """Gives up a leaving parcel's memory before its copy is known to be done.

        Where it is the homeward stream's own, that stream waits on the device, and so does what gets the memory.
        Otherwise the host waits, if it may; else the parcel stays.
        """
        place = parcel.place
        assert parcel.leaving
        assert place is not None
        if place.owner is self.link.homeward:
            place.hand_over()
        elif wait and parcel.copied is not None:
            parcel.copied.synchronize()
        if not place.copies or place.idle():
            self._vacate(parcel)

    def _vacate(self, parcel: Parcel) -> None:
        parcel.place = parcel.ready = None
        parcel.leaving = False

    def bring(self, parcel: Parcel) -> None:
        """Queues the copy home of a parcel that is on the host alone.

        Raises:
            torch.OutOfMemoryError: The device has no memory for it.
        """
        assert parcel.place is None
        assert parcel.host is not None
        place = self.link.empty(parcel.size)
        # `host` is whole: its place was left when the copy was done, or handed to the homeward stream behind it.
        parcel.ready = self.link.home(parcel.host, place)
        parcel.place = place
        self.home += 1

    def use(self, parcel: Parcel) -> torch.Tensor:
        """The bytes, for reading and writing on the current stream, which waits for what is under way."""
        place, stream = parcel.place, self.accelerator.stream()
        assert place is not None
        if parcel.leaving:
            parcel.leaving = False
            self.recalled += 1
        if not place.idle():  # a copy home writes it, a copy out must not read what is written from now on
            place.order(stream)
        self._drop_copy(parcel)
        parcel.ready = None if place.idle() else parcel.ready
        place.users.add(stream)
        return place.bytes

    def _drop_copy(self, parcel: Parcel) -> None:
        """What the host has will be out of date."""
        if parcel.host is not None:
            self.buffers.give(parcel.host, parcel.ready or parcel.copied)
        parcel.host = parcel.copied = None

    def drop(self, parcel: Parcel) -> None:
        """Frees both sides, each when nothing reads or writes it any more."""
        self._drop_copy(parcel)
        parcel.place = parcel.ready = None
        parcel.leaving = False

    def stuck(self, name: str, parcel: Parcel, there: dict[str, int], free: Any) -> DeviceMemoryError:
        """The error for a parcel that can't come home."""
        listed = ", ".join(f"{other} of {size} bytes" for other, size in there.items()) or "none"
        return DeviceMemoryError(
            f"No room on {self.accelerator.device} to bring back {name}, {parcel.size} bytes: {free.free} are free, in "
            f"pieces perhaps. Still there, because they are in use or the host has no memory for them: {listed}. Use "
            "fewer at a time, drop references to their tensors, or make batches smaller."
        )

"""Page-locked slots that the training loop copies from itself: not written again before the device has read them."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Protocol

from .. import _native
from . import blocks
from .blocks import Block


class Event(Protocol):
    """A point in a stream's work: torch.cuda.Event, or what a test puts in its place."""

    def query(self) -> bool:
        """Whether the work before it is done."""

    def synchronize(self) -> None:
        """Waits until it is."""


class Pinner(blocks.Pinner, Protocol):
    """Where two devices meet: a real one, and the simulated one of the tests."""

    def stream(self) -> Any:
        """The stream that the calling thread queues its work on."""

    def record(self, stream: Any) -> Event:
        """An event behind all work that the stream has been given so far."""


class PinnedSlot(Block):
    """A slot's mapping, page-locked for as long as anything refers to it.

    torch's own pinned allocator delays reuse until the copies out of a block are done, but does nothing of the kind
    for memory that it did not allocate. So when a lease ends an event is recorded, on the stream that was current
    when the batch was handed out and on the one that is current where the lease ends. A copy on a third stream must
    be waited for by one of these (`stream.wait_stream`) before the batch is dropped, as for any tensor.
    """

    def __init__(self, mapping: _native.Mapping, pinner: Pinner) -> None:
        super().__init__(mapping, mapping.address, mapping.size)
        self._device = pinner
        self._last: list[Event] = []
        self._locked = self.lock(pinner)

    def reads(self, handed_out_on: Any) -> list[Event]:
        """Events behind everything that may still read the slot."""
        if not self._locked:
            return []  # a copy from pageable memory is over before torch returns
        streams = [handed_out_on]
        here = self._device.stream()
        if here != handed_out_on:
            streams.append(here)
        self._last = [self._device.record(stream) for stream in streams]
        return self._last

    def __del__(self) -> None:
        if getattr(self, "_last", None) and os.getpid() == self._pid:
            with contextlib.suppress(Exception):  # the interpreter, or the device, may be on its way out
                for event in self._last:
                    event.synchronize()
        super().__del__()

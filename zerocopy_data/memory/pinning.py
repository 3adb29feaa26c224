"""Page-locked slots: registered with CUDA once, and not written again before the device has read them."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch

from .. import _native


class Event(Protocol):
    """A point in a stream's work: torch.cuda.Event, or what a test puts in its place."""

    def query(self) -> bool:
        """Whether the work before it is done."""

    def synchronize(self) -> None:
        """Waits until it is."""


class Pinner(Protocol):
    """Where two devices meet: CUDA, and the simulated one of the tests."""

    def pin(self, address: int, size: int) -> bool:
        """Page-locks memory; False where the system refuses."""

    def unpin(self, address: int) -> None:
        """Ends that."""

    def stream(self) -> Any:
        """The stream that the calling thread queues its work on."""

    def record(self, stream: Any) -> Event:
        """An event behind all work that the stream has been given so far."""


class CudaPinner:
    """The CUDA runtime through torch. Made in the process that trains, after its device has been chosen."""

    _PORTABLE = 1  # cudaHostRegisterPortable: for every device of the process, not only the current one

    def pin(self, address: int, size: int) -> bool:
        """Registers memory."""
        return int(torch.cuda.cudart().cudaHostRegister(address, size, self._PORTABLE)) == 0  # type: ignore[no-untyped-call]

    def unpin(self, address: int) -> None:
        """Unregisters it."""
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]

    def stream(self) -> Any:
        """The current stream of this thread."""
        return torch.cuda.current_stream()

    def record(self, stream: Any) -> Event:
        """Records an event."""
        event: Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)  # type: ignore[attr-defined]
        return event


class PinnedSlot:
    """A slot's mapping, page-locked for as long as anything refers to it.

    torch's own pinned allocator delays reuse until the copies out of a block are done, but does nothing of the kind
    for memory that it did not allocate. So when a lease ends an event is recorded, on the stream that was current
    when the batch was handed out and on the one that is current where the lease ends. A copy on a third stream must
    be waited for by one of these (`stream.wait_stream`) before the batch is dropped, as for any tensor.
    """

    def __init__(self, mapping: _native.Mapping, pinner: Pinner) -> None:
        self.mapping = mapping
        self._pinner = pinner
        self._pinned = pinner.pin(mapping.address, mapping.size)
        self._last: list[Event] = []

    def reads(self, handed_out_on: Any) -> list[Event]:
        """Events behind everything that may still read the slot."""
        if not self._pinned:
            return []  # a copy from pageable memory is over before torch returns
        streams = [handed_out_on]
        here = self._pinner.stream()
        if here != handed_out_on:
            streams.append(here)
        self._last = [self._pinner.record(stream) for stream in streams]
        return self._last

    def __del__(self) -> None:
        if getattr(self, "_pinned", False):
            with contextlib.suppress(Exception):  # the interpreter, or the device, may be on its way out
                for event in self._last:
                    event.synchronize()
                self._pinner.unpin(self.mapping.address)

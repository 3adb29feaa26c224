"""A worker's slots: memory files that it writes batches into and that the consumer reads in place.

A slot holds one tensor's storage or one array, so that keeping the labels of a batch does not keep its images. It
is free for reuse once the consumer has dropped everything made from it and this process holds nothing of it either;
when no free slot fits and none comes back within a moment, one more is made. So nobody ever depends on memory that
somebody holds, and nothing is rewritten while it is held.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import _native

_PAGE = 4096
# A free slot that this many batches did not need goes back to the system.
_IDLE_BATCHES = 32
# So many files at most are open here: they go to the consumer before more are made, whatever the batch needs.
MAX_OPEN = 32
# New memory is faulted in at some 4 GB/s: to wait at 16 times that rate for a slot costs a sixteenth of making one.
# Smaller slots are made sooner than a sleep can be timed.
_WAIT_BYTES_PER_SECOND = 64e9
_WAIT_FROM_BYTES = 4 << 20
_LOOK_SECONDS = 0.0002
# The waste of a slot that serves a smaller need: an eighth, so that batches of changing size share slots.
_STEPS = 8


def capacity_for(size: int) -> int:
    """Bytes of the slot that serves `size` bytes: whole pages, in steps of an eighth of the power of two below."""
    if size <= 0:
        raise ValueError(f"a slot holds at least one byte, not {size}")
    step = max(_PAGE, (1 << (size.bit_length() - 1)) // _STEPS)
    return -(-size // step) * step


@dataclass(eq=False)
class Slot:
    """One memory file, mapped.

    Attributes:
        number: Its name in messages; never used twice by one pool.
        mapping: The map.
        descriptor: Its file, until the consumer has been given it; then None.
        remote: Messages that lent it to the consumer and have not been answered by a release.
        held: Whether something in this process refers to it.
    """

    number: int
    mapping: _native.Mapping
    descriptor: int | None
    remote: int = 0
    held: bool = False
    used: int = 0
    retired: bool = False

    def close(self) -> None:
        """Closes the descriptor, if it still has one."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class SlotPool:
    """The slots of one worker.

    Args:
        receive: Gives the releases that have come in since the last call: pairs of (slot number, whether the
            slot must not be used again).
        announce: Gives the consumer the files of these slots and closes them.
    """

    def __init__(self, receive: Callable[[], list[tuple[int, bool]]], announce: Callable[[list[Slot]], None]) -> None:
        self._receive = receive
        self._announce = announce
        self._unannounced: list[Slot] = []
        self._slots: dict[int, Slot] = {}
        self._by_address: dict[int, Slot] = {}
        self._clock = 0
        self._made = 0
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def at(self, address: int) -> Slot | None:
        """The slot that begins at this address."""
        return self._by_address.get(address)

    def lease(self, size: int) -> tuple[Slot, _native.Lease]:
        """A slot of at least `size` bytes and the buffer over it; the slot is held until the buffer is dropped."""
        slot = self._free(size) or self._soon_free(size) or self._make(capacity_for(size))
        slot.held = True
        slot.used = self._clock

        def end() -> None:
            slot.held = False

        return slot, _native.Lease(slot.mapping, end)

    def _fitting(self, size: int, lent: bool) -> list[Slot]:
        largest = 2 * capacity_for(size)
        return [
            slot
            for slot in self._slots.values()
            if not (slot.held or slot.retired) and bool(slot.remote) == lent and size <= slot.mapping.size <= largest
        ]

    def _free(self, size: int) -> Slot | None:
        self._collect()
        # The one used last: its pages are the likeliest to be in the cache, and the others grow old.
        return max(self._fitting(size, lent=False), key=lambda slot: slot.used, default=None)

    def _soon_free(self, size: int) -> Slot | None:
        """A slot that the consumer drops within a small part of the time that a new one's page faults would take.

        The consumer asks for the next batch and then drops the one before: work begins a moment before there is room.
        """
        if size < _WAIT_FROM_BYTES:
            return None
        end = time.monotonic() + size / _WAIT_BYTES_PER_SECOND
        while self._fitting(size, lent=True) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            slot = self._free(size)
            if slot is not None:
                return slot
        return None

    def take_unannounced(self) -> list[Slot]:
        """The slots whose files the consumer does not have yet; whoever asks hands them over."""
        made, self._unannounced = self._unannounced, []
        return made

    def tick(self) -> list[int]:
        """Counts a batch. Returns the numbers of the slots that are gone since the last call."""
        self._clock += 1
        self.trim(_IDLE_BATCHES)
        dropped, self._dropped = self._dropped, []
        return dropped

    def trim(self, idle: int) -> None:
        """Gives free slots back to the system that the last `idle` batches did not need."""
        self._collect()
        for slot in list(self._slots.values()):
            if not slot.held and not slot.remote and self._clock - slot.used > idle:
                self._drop(slot)

    def _make(self, capacity: int) -> Slot:
        if len(self._unannounced) >= MAX_OPEN:
            self._announce(self.take_unannounced())
        descriptor = os.memfd_create("zcd-slot", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, capacity)
            mapping = _native.Mapping(descriptor, capacity)
        except BaseException:
            os.close(descriptor)
            raise
        slot = Slot(self._made, mapping, descriptor)
        self._made += 1
        self._slots[slot.number] = slot
        self._unannounced.append(slot)
        self._by_address[mapping.address] = slot
        return slot

    def _collect(self) -> None:
        for number, retire in self._receive():
            slot = self._slots[number]
            slot.remote -= 1
            slot.retired |= retire
            if slot.retired and not slot.held and not slot.remote:
                self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        if slot.descriptor is not None:
            self._unannounced.remove(slot)
            slot.close()
        if not slot.retired:
            slot.mapping.punch()  # the consumer may have it mapped for a while yet
        del self._slots[slot.number]
        del self._by_address[slot.mapping.address]
        self._dropped.append(slot.number)  # a slot that was never announced is not missed

"""The memory of slots, as the device sees it: where it lies, and whether it is page-locked."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any, Protocol


class Pinner(Protocol):
    """What page-locks memory: `zerocopy_data.device.accelerator.Accelerator`."""

    def pin(self, address: int, size: int) -> bool:
        """Page-locks memory; False where the system refuses."""

    def unpin(self, address: int) -> None:
        """Ends that."""


class Block:
    """The memory of one slot. Locked when a device first reads it, and unlocked before it goes back to the system.

    Args:
        memory: What owns it; held for as long as this object lives.
        address: Where it begins, in this process.
        size: Bytes.
    """

    def __init__(self, memory: Any, address: int, size: int) -> None:
        self.memory = memory
        self.address = address
        self.size = size
        self._pinner: Pinner | None = None
        self._refused = False
        self._pid = os.getpid()
        _blocks[address] = self

    def lock(self, pinner: Pinner) -> bool:
        """Page-locks the block unless it is; False where that can't be done.

        Only the thread that hands batches to the device calls this: while a graph is being captured, no thread may.
        """
        if self._pinner is None and not self._refused:
            if pinner.pin(self.address, self.size):
                self._pinner = pinner
            else:
                self._refused = True
        return self._pinner is not None

    def __del__(self) -> None:
        pinner = getattr(self, "_pinner", None)
        if pinner is not None and os.getpid() == self._pid:  # a forked child has the memory, but no device
            with contextlib.suppress(Exception):  # the interpreter, or the device, may be on its way out
                pinner.unpin(self.address)


# By address. Weak: who holds a slot decides how long it lives.
_blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()


def block_of(address: int, size: int) -> Block | None:
    """The block that these bytes lie in, if a slot's memory is what they are."""
    for reference in _blocks.valuerefs():  # a list: other threads make slots meanwhile
        block = reference()
        if block is not None and block.address <= address and address + size <= block.address + block.size:
            return block
    return None

"""An arena of equal slots in anonymous memory, each leased to the tensors of one batch.

The lease is a ctypes array over the slot: every tensor made from it holds it, through views, `numpy()` and autograd,
and the slot comes back when it dies. numpy arrays would not do as the root: numpy lets a view of a view refer to the
innermost owner, so an array in between dies early (see the design, section 5).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from collections import deque

from .blocks import Block

PAGE = mmap.PAGESIZE


class Arena:
    """Slots of one size. Never blocks and never waits: when all are leased it makes one more.

    Args:
        slot_bytes: Size of a slot; rounded up to whole pages.
        keep: How many free slots are kept for reuse; further ones go back to the system when their lease ends.
        device: Whether a device reads the slots by itself. Then forks share them: a private page that is written
            after a fork moves, and the device would go on reading the old one.
    """

    def __init__(self, slot_bytes: int, keep: int, device: bool = False) -> None:
        self.slot_bytes = -(-max(slot_bytes, 1) // PAGE) * PAGE
        # Bounded, and its operations are atomic: leases end in any thread, also inside the garbage collector.
        self._free: deque[Block] = deque(maxlen=max(keep, 1))
        self._device = device
        self._made = 0

    @property
    def slots_made(self) -> int:
        """Slots allocated so far, those given back to the system included."""
        return self._made

    def lease(self) -> ctypes.Array[ctypes.c_ubyte]:
        """A slot as a writable buffer that belongs to its holder until the last reference to it dies."""
        try:
            block = self._free.pop()  # the latest: its pages are the likeliest to be in the cache
        except IndexError:
            block = _allocate(self.slot_bytes, self._device)
            self._made += 1
        root = (ctypes.c_ubyte * self.slot_bytes).from_buffer(block.memory)
        # A full deque drops its oldest slot, whose memory is unmapped as nothing refers to it.
        end = weakref.finalize(root, self._free.append, block)
        end.atexit = False
        return root


def _allocate(size: int, shared: bool) -> Block:
    # Private: after a fork the child's view of a batch stays what it was, whatever the parent writes.
    sharing = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    memory = mmap.mmap(-1, size, flags=sharing | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without transparent huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)  # one fault per 2 MiB instead of 512
    return Block(memory, ctypes.addressof(ctypes.c_ubyte.from_buffer(memory)), size)

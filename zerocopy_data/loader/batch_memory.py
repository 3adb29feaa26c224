"""Memory for a batch that is about to be made: in a worker process a slot, in which it also travels."""

from __future__ import annotations

import contextlib
import math
import os
import threading

import torch

from ..memory.slots import SlotPool
from .transport.envelope import SLOT_BYTES

# The pool has no locks: a thread of the dataset's could be given a slot that the worker's own is about to take, and a
# process that it forks, one that this process is using.
_pool: tuple[SlotPool, int, int] | None = None


def use_slots(pool: SlotPool) -> None:
    """Has `empty` give slots of this pool, to the calling thread of this process."""
    global _pool
    _pool = pool, os.getpid(), threading.get_ident()


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous CPU tensor with anything in it: in a slot, if it is large and this thread of a worker has some."""
    size = math.prod(shape) * dtype.itemsize
    if _pool is not None and size >= SLOT_BYTES and _pool[1:] == (os.getpid(), threading.get_ident()):
        # With too few descriptors or too little memory the batch goes another way.
        with contextlib.suppress(OSError):
            _, lease = _pool[0].lease(size)
            return torch.frombuffer(lease, dtype=torch.uint8, count=size).view(dtype).view(shape)
    return torch.empty(shape, dtype=dtype)

"""Device memory, given out and taken back as a caching allocator does it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .machine import Event, Machine, Operation, Stream

_ROUND = 512


class Block:
    """A piece of device memory. `bytes` is where the simulation keeps it."""

    def __init__(self, device: int, size: int, stream: Stream) -> None:
        self.device = device
        self.size = size
        self.stream = stream
        self.bytes = torch.empty(size, dtype=torch.uint8)
        self.writer: Operation | None = None
        self.readers: list[Operation] = []


class Storage:
    """What all views of a tensor share; when it dies its block goes back to the allocator."""

    def __init__(self, allocator: Allocator, block: Block, size: int) -> None:
        self.block = block
        self.size = size  # bytes asked for
        self.used_on: set[Stream] = set()
        weakref.finalize(self, allocator.free, block, self.used_on).atexit = False


class Allocator:
    """Blocks by stream: a freed one is for its own stream at once, unless another stream was recorded as a user."""

    def __init__(self, machine: Machine, device: int, total: int) -> None:
        self.machine = machine
        self.device = device
        self.total = total
        self.other_processes = 0  # bytes taken by others, as a test sets it
        self.allocated = 0
        self.peak = 0
        self.reserved = 0
        self.cached: list[Block] = []
        self.waiting: list[tuple[list[Event], Block]] = []

    def allocate(self, size: int) -> Storage:
        machine = self.machine
        with machine.lock:
            machine.touch(self.device)
            asked, size = size, -(-max(size, 1) // _ROUND) * _ROUND
            stream = machine.current_stream(self.device)
            self._collect()
            fitting = [b for b in self.cached if b.stream is stream and size <= b.size <= 2 * size]
            if fitting:
                block = fitting[-1]
                self.cached.remove(block)
            else:
                if self.reserved + self.other_processes + size > self.total:
                    self.empty_cache()
                if self.reserved + self.other_processes + size > self.total:
                    raise torch.OutOfMemoryError(f"sim: out of memory: {size} bytes asked for, {self.free_bytes} free")
                block = Block(self.device, size, stream)
                self.reserved += block.size
            self.allocated += block.size
            self.peak = max(self.peak, self.allocated)
            return Storage(self, block, asked)

    @property
    def free_bytes(self) -> int:
        return self.total - self.reserved - self.other_processes

    def free(self, block: Block, used_on: set[Stream]) -> None:
        machine = self.machine
        with machine.lock:
            self.allocated -= block.size
            others = [stream for stream in used_on if stream is not block.stream]
            if others:
                self.waiting.append(([stream.record_event() for stream in others], block))
            else:
                self.cached.append(block)

    def _collect(self) -> None:
        for entry in list(self.waiting):
            events, block = entry
            if self.machine.captures == 0 and all(event.query() for event in events):
                self.waiting.remove(entry)
                self.cached.append(block)

    def empty_cache(self) -> None:
        """Gives free blocks back, after what was queued on them."""
        self._collect()
        for block in self.cached:
            self.reserved -= block.size
        self.cached.clear()

    def stats(self) -> dict[str, Any]:
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.current": self.reserved,
            "inactive_split_bytes.all.current": 0,
        }

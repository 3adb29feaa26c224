"""Page-locked buffers that are used again."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

import torch

from ...errors import DeviceMemoryError
from ..accelerator import Accelerator, Event
from .limits import HostMemory

_STEPS = 8  # sizes between two powers of two: at most an eighth of a buffer lies idle
_SMALLEST = 4096
_WAITING = 4  # buffers of a size whose copies are not done: with more, the host is too far ahead


def rounded(size: int) -> int:
    """The size of buffer that is made for `size` bytes."""
    step = max(_SMALLEST, (1 << max(size - 1, 0).bit_length()) // (2 * _STEPS))
    return -(-max(size, 1) // step) * step


class PinnedBuffers:
    """Page-locking costs some 0.3 ms per MiB, so buffers that come back are kept for the next in need.

    A buffer that has come back outlives the copies it is part of, however this object ends.

    Args:
        accelerator: For whose copies.
        host: What knows the host's memory.
        margin: Bytes of host memory that stay free.
    """

    def __init__(self, accelerator: Accelerator, host: HostMemory, margin: int) -> None:
        self._accelerator = accelerator
        self._host = host
        self._margin = margin
        self._lock = threading.Lock()
        self._idle: dict[int, list[tuple[Event | None, torch.Tensor]]] = {}
        self._closed = False
        self.idle_bytes = 0
        self.bytes = 0  # of all that are out or idle
        weakref.finalize(self, _end, self._idle, os.getpid()).atexit = False

    def take(self, size: int) -> torch.Tensor:
        """A buffer of at least `size` bytes: uint8, what it holds is undefined.

        Raises:
            DeviceMemoryError: It would leave the host less than the margin, or the system gives no more page-locked
                memory.
        """
        length = rounded(size)
        with self._lock:
            idle = self._idle.get(length, [])
            if len(idle) > _WAITING and idle[0][0] is not None:
                idle[0][0].synchronize()
            for index, (event, buffer) in enumerate(idle):
                if event is None or event.query():
                    del idle[index]
                    self.idle_bytes -= length
                    return buffer
        self._check_host(length)
        try:
            buffer = self._accelerator.pinned_empty(length)
        except (RuntimeError, MemoryError) as error:
            self.trim()
            try:
                buffer = self._accelerator.pinned_empty(length)
            except (RuntimeError, MemoryError):
                raise DeviceMemoryError(
                    f"No page-locked host memory for {length} bytes beside the {self.bytes} already in use for swapped "
                    f"tensors: {str(error).splitlines()[0]}. Raise the limit (ulimit -l, the container's memory), or "
                    "register fewer tensors."
                ) from error
        with self._lock:
            self.bytes += length
        return buffer

    def _check_host(self, length: int) -> None:
        reading = self._host.read()
        if reading.free - length < self._margin:
            self.trim()  # buffers of other sizes may lie idle
            reading = self._host.read()
        if reading.free - length < self._margin:
            raise DeviceMemoryError(
                f"No page-locked host memory for {length} bytes: {reading.bound} leaves {reading.free} of "
                f"{reading.total}, of which {self._margin} stay free (host_margin=); {self.bytes} are page-locked for "
                "swapped tensors already. Give the process more memory, or swap fewer tensors."
            )

    def give(self, buffer: torch.Tensor, event: Event | None = None) -> None:
        """Takes a buffer back.

        Args:
            buffer: From `take`.
            event: Behind the last copy that reads or writes it, where that may not be done.
        """
        with self._lock:
            if self._closed:
                self.bytes -= buffer.numel()
                if event is not None:
                    event.synchronize()
                return
            self._idle.setdefault(buffer.numel(), []).append((event, buffer))
            self.idle_bytes += buffer.numel()

    def trim(self) -> None:
        """Frees idle buffers whose copies are done."""
        with self._lock:
            for length, idle in self._idle.items():
                busy = [entry for entry in idle if entry[0] is not None and not entry[0].query()]
                freed = (len(idle) - len(busy)) * length
                self.idle_bytes -= freed
                self.bytes -= freed
                idle[:] = busy

    def close(self) -> None:
        """Frees idle buffers now, others when they come back. Waits for copies that idle ones are still part of."""
        with self._lock:
            self._closed = True
            for idle in self._idle.values():
                for event, _ in idle:
                    if event is not None:
                        event.synchronize()
            self._idle.clear()
            self.bytes -= self.idle_bytes
            self.idle_bytes = 0


def _end(idle: dict[int, list[tuple[Event | None, torch.Tensor]]], process: int) -> None:
    if os.getpid() != process:  # a forked child: the device is the parent's
        return
    with contextlib.suppress(Exception):  # the device may be on its way out
        for buffers in idle.values():
            for event, _ in buffers:
                if event is not None:
                    event.synchronize()

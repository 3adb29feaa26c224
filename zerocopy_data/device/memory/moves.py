"""Device memory that moves: places on the device, and copies between them and the host on side streams."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ..accelerator import Accelerator, Event

_MOST_TIMED = 32


class Place:
    """Device memory of one tensor: `bytes` is uint8 [size].

    It knows who may still be at work on it. So it can be let go at any time, by whoever drops the last reference: the
    allocator is then told of the streams whose work is not known to be done, and gives the memory out only after it.

    Args:
        accelerator: The device.
        contents: The memory.
    """

    def __init__(self, accelerator: Accelerator, contents: torch.Tensor) -> None:
        self.bytes = contents
        self.size = contents.numel()
        self.streams: set[Any] = set()  # that the tensor has been used on
        self.pending: list[tuple[Any, Event]] = []  # copies on side streams
        self._accelerator = accelerator
        end = weakref.finalize(self, _let_go, accelerator, contents, self.streams, self.pending, os.getpid())
        end.atexit = False

    def settle(self) -> bool:
        """Whether all side streams are known to be done."""
        self.pending[:] = [(stream, event) for stream, event in self.pending if not event.query()]
        return not self.pending

    def order(self, stream: Any) -> None:
        """Makes a stream wait for the copies, so that what is queued on it later may have the memory."""
        for _, event in self.pending:
            stream.wait_event(event)
        self.pending.clear()

    def held(self) -> bool:
        """Whether somebody else has a tensor over this memory: a user, or a graph that saved one."""
        return self._accelerator.holders(self.bytes) > 1


def _let_go(
    accelerator: Accelerator,
    contents: torch.Tensor,
    streams: set[Any],
    pending: list[tuple[Any, Event]],
    process: int,
) -> None:
    if os.getpid() != process:  # a forked child: the device is the parent's
        return
    capturing = accelerator.capturing()
    for stream in {*streams, *(s for s, event in pending if capturing or not event.query())}:
        contents.record_stream(stream)


class Link:
    """The two directions between host and device, each on a stream of its own.

    Args:
        accelerator: The device.
        rate: Bytes per second that are assumed until copies to the device have been timed.
    """

    def __init__(self, accelerator: Accelerator, rate: float = 10e9) -> None:
        self.accelerator = accelerator
        self.outward = accelerator.new_stream()
        self.homeward = accelerator.new_stream()
        self.rate = rate
        self._timed: list[tuple[Any, Any, int]] = []

    def empty(self, size: int) -> Place:
        """Fresh memory for work queued on the current stream from here on."""
        with self.accelerator.active():
            return Place(self.accelerator, torch.empty(size, dtype=torch.uint8, device=self.accelerator.device))

    def out(self, place: Place, host: torch.Tensor, size: int) -> Event:
        """Copies to the host, after everything that the place's users have queued so far.

        Args:
            place: Source; must not be written before the event.
            host: Page-locked uint8, at least `size` bytes.
            size: Bytes.

        Returns:
            The event behind the copy.
        """
        for stream in place.streams:
            self.outward.wait_event(self.accelerator.record(stream))
        place.order(self.outward)
        with self.accelerator.on(self.outward), torch.no_grad():
            host[:size].copy_(place.bytes[:size], non_blocking=True)
        done = self.accelerator.record(self.outward)
        place.pending.append((self.outward, done))
        return done

    def home(self, host: torch.Tensor, place: Place, size: int, after: Iterable[Event] = ()) -> Event:
        """Copies to the device, after what the place's former users and the current stream have queued so far.

        Args:
            host: Page-locked uint8; must not be written before the event.
            place: Target.
            size: Bytes.
            after: Further events to wait for on the device: copies that write `host`.

        Returns:
            The event behind the copy.
        """
        # The current stream is waited for because the allocator gives it memory that its own earlier work may still use.
        for stream in {*place.streams, self.accelerator.stream()}:
            self.homeward.wait_event(self.accelerator.record(stream))
        place.order(self.homeward)
        for event in after:
            self.homeward.wait_event(event)
        begin, end = (self.accelerator.module.Event(enable_timing=True) for _ in range(2))
        with self.accelerator.on(self.homeward), torch.no_grad():
            begin.record(self.homeward)
            place.bytes[:size].copy_(host[:size], non_blocking=True)
            end.record(self.homeward)
        place.pending.append((self.homeward, end))
        if len(self._timed) < _MOST_TIMED:
            self._timed.append((begin, end, size))
        done: Event = end
        return done

    def measure(self) -> None:
        """Takes the times of copies that are done into `rate`."""
        left = []
        for begin, end, size in self._timed:
            if not end.query():
                left.append((begin, end, size))
                continue
            seconds = begin.elapsed_time(end) / 1000
            if seconds > 0:
                self.rate += 0.25 * (size / seconds - self.rate)
        self._timed = left

"""Device memory that moves: places on the device, and copies between them and the host on side streams."""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from ..accelerator import Accelerator, Event


class Place:
    """Device memory of one storage: `bytes` is uint8 [size].

    It knows who may still be at work on it. So it can be let go at any time, by whoever drops the last reference: the
    allocator is then told of the streams whose work is not known to be done, and gives the memory out only after it.

    Args:
        accelerator: The device.
        contents: The memory.
        owner: The stream whose pool it came from: its later work is what gets the memory next.
    """

    def __init__(self, accelerator: Accelerator, contents: torch.Tensor, owner: Any) -> None:
        self.bytes = contents
        self.size = contents.numel()
        self.owner = owner
        self.users: set[Any] = set()  # streams that the tensor has been used on
        self.copies: list[tuple[Any, Event]] = []  # on side streams, not known to be done
        self._accelerator = accelerator
        end = weakref.finalize(self, _let_go, accelerator, contents, self.users, self.copies, os.getpid())
        end.atexit = False

    def idle(self) -> bool:
        """Whether all copies are known to be done."""
        self.copies[:] = [(stream, event) for stream, event in self.copies if not event.query()]
        return not self.copies

    def order(self, stream: Any) -> None:
        """Makes what is queued on a stream from here on wait for all copies so far."""
        for _, event in self.copies:
            stream.wait_event(event)

    def hand_over(self) -> None:
        """Makes its owner wait, on the device, for everybody's work so far: let go now, it is free at once."""
        for stream in self.users:
            self.owner.wait_event(self._accelerator.record(stream))
        self.order(self.owner)
        self.users.clear()
        self.copies.clear()

    def tensors(self) -> int:
        """How many tensors lie over this memory, `bytes` included: users' own, and what graphs saved."""
        return self._accelerator.holders(self.bytes)


def _let_go(
    accelerator: Accelerator, contents: torch.Tensor, users: set[Any], copies: list[tuple[Any, Event]], process: int
) -> None:
    if os.getpid() != process:  # a forked child: the device is the parent's
        return
    for stream in users.union(stream for stream, _ in copies):
        contents.record_stream(stream)


class Link:
    """The two directions between host and device, each on a stream of its own.

    Memory for what comes home is from the homeward stream's own pool. So a copy home waits for the former users of its
    memory only, not for what the computing stream has queued, and memory handed over to that stream is reused without
    the host's waiting.

    Args:
        accelerator: The device.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.outward = accelerator.new_stream()
        self.homeward = accelerator.new_stream()

    def empty(self, size: int) -> Place:
        """Memory for a copy home.

        Raises:
            torch.OutOfMemoryError: There is none.
        """
        with self.accelerator.on(self.homeward):
            made = torch.empty(size, dtype=torch.uint8, device=self.accelerator.device)
        return Place(self.accelerator, made, self.homeward)

    def out(self, place: Place, host: torch.Tensor) -> Event:
        """Copies to the host, after everything that the place's users have queued so far.

        Args:
            place: Source; must not be written before the event.
            host: Page-locked uint8, at least the place's size.

        Returns:
            The event behind the copy.
        """
        for stream in place.users:
            self.outward.wait_event(self.accelerator.record(stream))
        place.order(self.outward)
        with self.accelerator.on(self.outward), torch.no_grad():
            host[: place.size].copy_(place.bytes, non_blocking=True)
        done = self.accelerator.record(self.outward)
        place.copies.append((self.outward, done))
        return done

    def home(self, host: torch.Tensor, place: Place) -> Event:
        """Copies to the device.

        Args:
            host: Page-locked uint8, whole by now or when the homeward stream gets there; not written before the event.
            place: Target, fresh from `empty`.

        Returns:
            The event behind the copy.
        """
        with self.accelerator.on(self.homeward), torch.no_grad():
            place.bytes.copy_(host[: place.size], non_blocking=True)
        done = self.accelerator.record(self.homeward)
        place.copies.append((self.homeward, done))
        return done

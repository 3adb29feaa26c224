"""The consumer's end of all workers' channels, with the face of the queue that torch's iterator reads from."""

from __future__ import annotations

import os
import queue
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from ... import _native
from ...memory.blocks import Block
from ...memory.pinning import Event, PinnedSlot, Pinner
from .channel import RELEASE, Message, receive
from .envelope import unpack

# How long a worker whose socket has closed may take to end.
_DEATH_SECONDS = 1.0

# Counts forks of this process. A child sees the same shared memory: what was lent when it was made must not be
# written again, since this process can't know when the child has dropped it.
_forks = 0
_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


def _count_fork() -> None:
    global _forks
    _forks += 1


def _close_in_child() -> None:
    # With a copy of our ends in a child, the workers would not notice that we are gone.
    for reader in list(_readers):
        reader.close()


os.register_at_fork(before=_count_fork, after_in_child=_close_in_child)


class Source:
    """One worker as the consumer sees it: its socket, its slots and what it was lent by them.

    Args:
        connection: The consumer's end of the worker's socket.
        process: The worker.
        pinner: Page-locks the slots, if given.
    """

    def __init__(self, connection: socket.socket, process: BaseProcess, pinner: Pinner | None) -> None:
        self.connection = connection
        self.process = process
        self._pinner = pinner
        self._pid = os.getpid()
        self._slots: dict[int, Block] = {}
        # Releases that wait for the device, and those that did not fit into the socket. Appending and popping are
        # atomic.
        self._reading: deque[tuple[list[Event], bytes]] = deque()
        self._unsent: deque[bytes] = deque()

    def lend(self, number: int) -> _native.Lease:
        """A buffer over a slot. The worker learns when nothing refers to it any more."""
        forks = _forks
        slot = self._slots[number]
        pinned = slot if isinstance(slot, PinnedSlot) else None
        stream = None if self._pinner is None else self._pinner.stream()

        # Runs in any thread, also inside the garbage collector: no locks, and it never waits. It holds the block.
        def end(slot: Block = slot) -> None:
            if os.getpid() != self._pid:
                return
            release = RELEASE.pack(number, forks != _forks)
            reads = [] if pinned is None else pinned.reads(stream)
            if reads:
                self._reading.append((reads, release))
            else:
                self._unsent.append(release)
            self.flush()

        return _native.Lease(slot.memory, end)

    def flush(self) -> None:
        """Sends the releases that are due, as far as the socket takes them."""
        for _ in range(len(self._reading)):
            try:
                reads, release = self._reading.popleft()
            except IndexError:  # another thread was faster
                break
            if all(event.query() for event in reads):
                self._unsent.append(release)
            else:
                self._reading.append((reads, release))
        while True:
            try:
                packet = self._unsent.popleft()
            except IndexError:
                return
            try:
                self.connection.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._unsent.appendleft(packet)
                return
            except OSError:  # closed, or the worker is gone: nobody needs to know
                return

    def take_slots(self, message: Message) -> None:
        """Keeps the slots that a message brings and forgets those that are gone; leases keep their memory."""
        for number in message.gone:
            self._slots.pop(number, None)
        for number, mapping in message.made:
            pinner = self._pinner
            block = Block(mapping, mapping.address, mapping.size) if pinner is None else PinnedSlot(mapping, pinner)
            self._slots[number] = block

    def close(self) -> None:
        """Closes the socket. What is lent stays valid."""
        self.connection.close()
        self._slots.clear()


class Reader:
    """Receives the batches of all workers.

    Args:
        expects: Whether a worker (by its number) still owes something, so that its end is a fault.
        pinner: Page-locks the workers' slots, if given.
    """

    def __init__(self, expects: Callable[[int], bool], pinner: Pinner | None = None) -> None:
        self._expects = expects
        self.pinner = pinner
        self._sources: dict[int, Source] = {}
        self._starting: socket.socket | None = None
        self._numbers: dict[int, int] = {}
        self._poll = select.poll()
        self._ready: deque[int] = deque()
        _readers.add(self)

    def starting(self, connection: socket.socket) -> None:
        """Says what the consumer's end will be of the worker that starts next: its fork closes its copy of that."""
        self._starting = connection

    def add(self, worker: int, connection: socket.socket, process: BaseProcess) -> None:
        """Takes over the consumer's end of a worker's socket."""
        self._starting = None
        self._sources[worker] = Source(connection, process, self.pinner)
        self._numbers[connection.fileno()] = worker
        self._poll.register(connection, select.POLLIN)

    def waiting(self, worker: int) -> bool:
        """Whether a message of this worker has come and not been read."""
        source = self._sources.get(worker)
        if source is None:
            return False
        poll = select.poll()
        poll.register(source.connection, select.POLLIN)
        return bool(poll.poll(0))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next value of any worker.

        Raises:
            queue.Empty: nothing came in time, or a worker that owes something has ended.
        """
        for source in self._sources.values():
            source.flush()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._ready:
                left = None if end is None else max(0.0, end - time.monotonic()) * 1000
                # poll rounds up to whole milliseconds and goes on after a signal whose handler raises nothing.
                self._ready.extend(descriptor for descriptor, _ in self._poll.poll(left if block else 0))
                if not self._ready:
                    raise queue.Empty
            worker = self._numbers.get(self._ready.popleft())
            if worker is None:
                continue
            source = self._sources[worker]
            try:
                message = receive(source.connection)
            except BlockingIOError:
                continue
            except ConnectionError:
                message = None
            if message is None:
                self._ended(worker, source)
                continue
            source.take_slots(message)
            if message.size:
                return self._open(source, message)

    def _open(self, source: Source, message: Message) -> Any:
        if message.slot < 0:
            return unpack(message.body, source.lend)
        return unpack(memoryview(source.lend(message.slot))[: message.size], source.lend)

    def _ended(self, worker: int, source: Source) -> None:
        self._poll.unregister(source.connection)
        del self._numbers[source.connection.fileno()]
        del self._sources[worker]
        source.close()
        if self._expects(worker):
            _await_death(source.process)  # its socket closes a moment before it can be seen to be dead
            raise queue.Empty

    def close(self) -> None:
        """Closes all sockets. Batches that were handed out stay what they are."""
        for source in self._sources.values():
            source.close()
        if self._starting is not None:
            self._starting.close()
            self._starting = None
        self._sources.clear()
        self._numbers.clear()
        self._ready.clear()

    def cancel_join_thread(self) -> None:
        """There is no thread: torch asks queues for this."""


def _await_death(process: Any) -> None:
    """Waits without reaping: torch's handler of SIGCHLD must still find how the worker died, to say it."""
    end = time.monotonic() + _DEATH_SECONDS
    try:
        while time.monotonic() < end:
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.001)
    except ChildProcessError:  # a fork server's child, or reaped already
        process.join(_DEATH_SECONDS)

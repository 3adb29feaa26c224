"""Time, streams, events and the order between them."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from .memory import Allocator, Block

Clock = dict[int, int]  # how far each stream's work is known to be done: stream number → operations


@dataclass(frozen=True)
class Fault:
    """Something that a real device would have punished with wrong data."""

    kind: str
    text: str


class VirtualClock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wait_until(self, moment: float) -> None:
        self.time = max(self.time, moment)


class WallClock:
    """Real time."""

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        left = moment - time.perf_counter()
        if left > 0:
            time.sleep(left)


@dataclass(eq=False)
class Operation:
    """Something queued on a stream."""

    name: str
    stream: Stream
    engine: str | None
    seconds: float
    run: Callable[[], None] | None
    queued: float
    after: list[Operation]
    clock: Clock
    index: int
    finished: float | None = None
    then: list[Callable[[], None]] = field(default_factory=list)  # to be called once it has run


class Stream:
    """Like torch.cuda.Stream."""

    def __init__(self, machine: Machine, device: torch.device, number: int) -> None:
        self.machine = machine
        self.device = device
        self.number = number
        self.queue: deque[Operation] = deque()
        self.last: Operation | None = None
        self.waits: list[Operation] = []  # for what is queued next
        self.clock: Clock = {}
        self.count = 0

    def wait_event(self, event: Event) -> None:
        self.machine.touch(self.device)
        if event.operation is not None:
            self.waits.append(event.operation)
            _join(self.clock, event.operation.clock)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.machine)
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.machine.may_not_capture("Stream.synchronize")
        if self.last is not None:
            self.machine.wait_for(self.last)

    def query(self) -> bool:
        self.machine.may_not_capture("Stream.query")
        self.machine.advance(self.machine.clock.now())
        return self.last is None or self.last.finished is not None

    def __repr__(self) -> str:
        return f"<sim stream {self.number} of {self.device}>"


class Event:
    """Like torch.cuda.Event."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.operation: Operation | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self.machine.current_stream()
        self.operation = self.machine.queue(stream, "event", None, 0.0, None)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self.machine.current_stream()).wait_event(self)

    def query(self) -> bool:
        machine = self.machine
        machine.may_not_capture("Event.query")
        with machine.lock:
            machine.advance(machine.clock.now())
            done = self.operation is None or self.operation.finished is not None
            if done and self.operation is not None:
                _join(machine.host_clock, self.operation.clock)
            return done

    def synchronize(self) -> None:
        self.machine.may_not_capture("Event.synchronize")
        if self.operation is not None:
            self.machine.wait_for(self.operation)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        assert self.operation is not None
        assert end.operation is not None
        assert self.operation.finished is not None
        assert end.operation.finished is not None
        return 1000 * (end.operation.finished - self.operation.finished)


class _Local(threading.local):
    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Stream] = {}


@dataclass
class Machine:
    """One computer with simulated devices.

    Attributes:
        devices: How many.
        memory: Bytes of memory of each.
        h2d: Bytes per second from host to device; d2h the other way.
        bandwidth: Bytes per second that kernels read and write.
        latency: Seconds before a copy moves its first byte.
        launch: Seconds that a kernel takes at least.
        clock: VirtualClock, or WallClock.
        check: Whether faults are looked for.
        rng: Decides between operations that could begin at the same time.
    """

    devices: int = 1
    memory: int = 1 << 40
    h2d: float = 20e9
    d2h: float = 20e9
    bandwidth: float = 2e12
    latency: float = 10e-6
    launch: float = 2e-6
    clock: Any = field(default_factory=VirtualClock)
    check: bool = True
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.local = _Local()
        self.faults: list[Fault] = []
        self.touched: set[int] = set()  # devices on which a context has been made
        self.host_clock: Clock = {}
        self.busy_until: dict[tuple[int, str], float] = {}
        self.busy: dict[tuple[int, str], float] = {}
        self.log: list[tuple[str, str, float, float]] = []  # (engine, name, begin, end)
        self.pinned: dict[int, int] = {}  # address → size
        self.refuses_to_pin = False
        self.host_writes: list[tuple[int, int, Operation]] = []  # (address, size, copy into it) that may not be done
        self.host_waits = 0.0
        self.captures = 0
        self._numbers = itertools.count()
        self.streams: list[Stream] = []
        self.defaults = [self.new_stream(i) for i in range(self.devices)]
        self.touched.clear()
        self.allocators = [Allocator(self, i, self.memory) for i in range(self.devices)]

    # Devices and streams

    def touch(self, device: torch.device | int | None = None) -> int:
        index = self.local.device if device is None else device if isinstance(device, int) else (device.index or 0)
        self.touched.add(index)
        return index

    def new_stream(self, device: int) -> Stream:
        with self.lock:
            stream = Stream(self, torch.device("sim", device), next(self._numbers))
            self.streams.append(stream)
            self.touched.add(device)
            return stream

    def current_stream(self, device: int | None = None) -> Stream:
        index = self.local.device if device is None else device
        return self.local.streams.get(index, self.defaults[index])

    # Queueing and running

    def queue(
        self,
        stream: Stream,
        name: str,
        engine: str | None,
        seconds: float,
        run: Callable[[], None] | None,
        reads: list[Block] | None = None,
        writes: list[Block] | None = None,
    ) -> Operation:
        """Puts something on a stream and checks that it is ordered after what it could disturb."""
        with self.lock:
            self.touch(stream.device)
            stream.count += 1
            _join(stream.clock, self.host_clock)
            clock = {**stream.clock, stream.number: stream.count}
            stream.clock = clock
            after = [*stream.waits, *([stream.last] if stream.last else [])]
            operation = Operation(
                name, stream, engine, seconds, run, self.clock.now(), after, dict(clock), stream.count
            )
            stream.waits = []
            stream.last = operation
            stream.queue.append(operation)
            for block in reads or ():
                self._access(block, operation, writes=False)
            for block in writes or ():
                self._access(block, operation, writes=True)
            return operation

    def _access(self, block: Block, operation: Operation, writes: bool) -> None:
        if not self.check:
            return
        others = [block.writer, *(block.readers if writes else ())]
        for other in others:
            if other is not None and other is not operation and not _before(other, operation):
                what = "written" if writes else "read"
                self.faults.append(
                    Fault("race", f"{operation.name} on {operation.stream}: {what} without waiting for {other.name} "
                                  f"on {other.stream}")
                )  # fmt: skip
        if writes:
            block.writer, block.readers = operation, []
        else:
            block.readers = [r for r in block.readers if not _before(r, operation)] + [operation]

    def advance(self, moment: float) -> None:
        """Runs everything that is done by this moment."""
        with self.lock:
            while (found := self._next()) is not None and found[0] + found[1].seconds <= moment:
                self._run(*found)

    def _next(self) -> tuple[float, Operation] | None:
        """The operation that begins first among the heads of all streams, and when."""
        best: list[tuple[float, Operation]] = []
        for stream in self.streams:
            if not stream.queue:
                continue
            head = stream.queue[0]
            if any(other.finished is None for other in head.after):
                continue
            begin = max([head.queued, *(other.finished or 0.0 for other in head.after)])
            if head.engine is not None:
                begin = max(begin, self.busy_until.get((stream.device.index, head.engine), 0.0))
            if not best or begin < best[0][0]:
                best = [(begin, head)]
            elif begin == best[0][0]:
                best.append((begin, head))
        return self.rng.choice(best) if best else None

    def _run(self, begin: float, operation: Operation) -> None:
        operation.stream.queue.popleft()
        operation.finished = begin + operation.seconds
        operation.after = []
        if operation.engine is not None:
            key = operation.stream.device.index, operation.engine
            self.busy_until[key] = operation.finished
            self.busy[key] = self.busy.get(key, 0.0) + operation.seconds
            self.log.append((operation.engine, operation.name, begin, operation.finished))
        if operation.run is not None:
            operation.run()
            operation.run = None
        for follow in operation.then:
            follow()
        operation.then = []

    def wait_for(self, operation: Operation) -> None:
        """The host waits until an operation is done."""
        start = self.clock.now()
        while operation.finished is None or operation.finished > self.clock.now():
            with self.lock:
                if operation.finished is None:
                    found = self._next()
                    assert found is not None, "the host waits for something that can't happen"
                    begin, head = found
                    moment = begin + head.seconds
                    if moment <= self.clock.now() or isinstance(self.clock, VirtualClock):
                        self.clock.wait_until(moment)
                        self._run(begin, head)
                        continue
                else:
                    moment = operation.finished
            self.clock.wait_until(moment)
        self.host_waits += self.clock.now() - start
        with self.lock:
            _join(self.host_clock, operation.clock)

    def synchronize(self, device: int | None = None) -> None:
        """Waits for all streams of a device."""
        self.may_not_capture("synchronize")
        index = self.local.device if device is None else device
        for stream in list(self.streams):
            if stream.device.index == index:
                stream.synchronize()

    def host(self, seconds: float) -> None:
        """The host is busy with something else."""
        self.clock.wait_until(self.clock.now() + seconds)
        self.advance(self.clock.now())

    def work(
        self, seconds: float, reads: tuple[torch.Tensor, ...] = (), writes: tuple[torch.Tensor, ...] = ()
    ) -> Operation:
        """A kernel of a given duration on the current stream of the current device."""
        blocks = [[t.block for t in tensors] for tensors in (reads, writes)]  # type: ignore[attr-defined]
        return self.queue(self.current_stream(), "work", "compute", seconds, None, *blocks)

    def host_written(self, address: int, size: int, operation: Operation) -> None:
        """A copy into page-locked memory has been queued."""
        self.host_writes = [w for w in self.host_writes if w[2].finished is None]
        self.host_writes.append((address, size, operation))

    def host_read(self, address: int, size: int, operation: Operation) -> Operation | None:
        """A copy out of page-locked memory has been queued: the last copy into it that has not run, if any."""
        last = None
        for start, length, other in self.host_writes:
            if other.finished is None and address < start + length and start < address + size:
                last = other
                if not _before(other, operation):
                    self.faults.append(
                        Fault("race", f"{operation.name} on {operation.stream}: reads host memory without waiting for "
                                      f"{other.name} on {other.stream}")
                    )  # fmt: skip
        return last

    # What else a driver has

    def pin(self, address: int, size: int) -> bool:
        self.may_not_capture("pin")
        self.touch()
        if self.refuses_to_pin:
            return False
        for start, length in self.pinned.items():
            assert address + size <= start or address >= start + length, "registered twice"
        self.pinned[address] = size
        return True

    def unpin(self, address: int) -> None:
        self.may_not_capture("unpin")
        del self.pinned[address]

    def is_pinned(self, address: int, size: int) -> bool:
        return any(s <= address and address + size <= s + n for s, n in list(self.pinned.items()))

    def may_not_capture(self, what: str) -> None:
        """CUDA's default capture mode ends a capture when any thread does one of these."""
        if self.captures:
            self.faults.append(Fault("capture", f"{what} while a graph is being captured"))
            raise RuntimeError(f"sim: {what} is not permitted while a stream is capturing")

    @contextmanager
    def capturing(self) -> Iterator[None]:
        self.captures += 1
        try:
            yield
        finally:
            self.captures -= 1


def _join(clock: Clock, other: Clock) -> None:
    for number, count in other.items():
        if count > clock.get(number, 0):
            clock[number] = count


def _before(one: Operation, other: Operation) -> bool:
    return other.clock.get(one.stream.number, 0) >= one.index

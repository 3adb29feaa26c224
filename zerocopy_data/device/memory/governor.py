"""Acts when memory becomes scarce, and undoes it when it has been plentiful for a while."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ...errors import ConfigError
from .marks import Marks
from .watch import DeviceReading, TorchMemory

_LOGGED = 256  # actions that are kept


class Relief(Protocol):
    """Something that can do with less memory."""

    @property
    def name(self) -> str: ...

    def relieve(self, bytes_wanted: int) -> int:
        """Sets about freeing memory; returns how many bytes that will free (0: nothing more to give)."""

    def restore(self, bytes_allowed: int) -> int:
        """Takes memory again, no more than allowed; returns how many bytes (0: nothing to take, or no room)."""

    def pending(self) -> int:
        """Bytes that were given up and are not free yet, less those that may be taken and are not taken yet."""


class Reading(Protocol):
    """What counts of a reading is how much is free."""

    @property
    def free(self) -> int: ...


class MemorySource(Protocol):
    """What is read: TorchMemory, SystemMemory, or a trace."""

    def read(self) -> Reading: ...


@dataclass(frozen=True)
class Action:
    """What a step did.

    Attributes:
        step: The number of the step, from 1.
        kind: "relieve", "restore", or "failed" where nothing could be read.
        free: Bytes that were free before, those that were pending included.
        parts: (name of a relief, bytes) in the order in which they were asked.
        failures: (name, what it raised). Training goes on.
    """

    step: int
    kind: Literal["relieve", "restore", "failed"]
    free: int
    parts: tuple[tuple[str, int], ...]
    failures: tuple[tuple[str, str], ...] = ()


class Governor:
    """Keeps free memory above a low mark.

    `step()` is called between batches, by the thread that trains; or `start()` runs it in a thread of its own. It
    reads how much is free. Below `low` it asks its reliefs, first to last, until the middle of the marks would be
    reached. When free memory has stayed above `high` for `dwell` steps, it lets them take memory again in the reverse
    order, down to the middle. What a relief or the source raises is noted in `log` and goes no further.

    Args:
        low: Bytes of free memory below which something is done.
        high: Bytes above which it is undone.
        reliefs: In the order in which they are to be asked: what costs least first. Fewer batches in flight, then
            device-resident caches, then swapped tensors.
        source: TorchMemory(device) for a device, SystemMemory() for the host.
        dwell: Steps.

    Attributes:
        log: The latest 256 actions; each an `Action`.

    Raises:
        ConfigError: The marks make no sense, or something is no relief or no source.
    """

    def __init__(self, *, low: int, high: int, reliefs: Sequence[Relief], source: MemorySource, dwell: int = 8) -> None:
        self.marks = Marks(low, high, dwell)
        self.reliefs = _checked(reliefs)
        if not callable(getattr(source, "read", None)):
            raise ConfigError(
                f"Governor(source={source!r}): TorchMemory(device), SystemMemory(), or another object with read()."
            )
        self.source = source
        self.log: deque[Action] = deque(maxlen=_LOGGED)
        self._accelerator = source.accelerator if isinstance(source, TorchMemory) else None
        self._given = [0] * len(self.reliefs)
        self._steps = 0
        self._lock = threading.RLock()
        self._watch: _Watch | None = None

    @property
    def given(self) -> dict[str, int]:
        """Bytes that each relief has given up and not taken again."""
        return {relief.name: given for relief, given in zip(self.reliefs, self._given, strict=True)}

    def step(self) -> Action | None:
        """Reads and acts. Does nothing while a graph is being captured on the current stream.

        Returns:
            What was done, if anything.
        """
        with self._lock:
            self._steps += 1
            action = self._step()
            if action is not None:
                self.log.append(action)
            return action

    def _step(self) -> Action | None:
        if self._accelerator is not None and self._accelerator.capturing():
            return None
        try:
            reading = self.source.read()
            free = reading.free + sum(relief.pending() for relief in self.reliefs)
        except Exception as error:
            return Action(self._steps, "failed", 0, (), (("source", _line(error)),))
        wanted = self.marks.wanted(free)
        action: Action | None = None
        if wanted > 0:
            action = self._relieve(wanted, free)
        elif wanted < 0:
            action = self._restore(-wanted, free)
        if self._accelerator is not None and isinstance(reading, DeviceReading) and self._hoards(reading):
            try:
                self._accelerator.release_cache()
            except Exception as error:
                return action or Action(self._steps, "failed", free, (), (("release_cache", _line(error)),))
        return action

    def _relieve(self, wanted: int, free: int) -> Action | None:
        parts, failures = [], []
        for index, relief in enumerate(self.reliefs):
            if wanted <= 0:
                break
            try:
                given = relief.relieve(wanted)
            except Exception as error:
                failures.append((relief.name, _line(error)))
                continue
            if given > 0:
                parts.append((relief.name, given))
                self._given[index] += given
                wanted -= given
        return Action(self._steps, "relieve", free, tuple(parts), tuple(failures)) if parts or failures else None

    def _restore(self, allowed: int, free: int) -> Action | None:
        parts, failures = [], []
        for index in reversed(range(len(self.reliefs))):
            given, relief = self._given[index], self.reliefs[index]
            if given <= 0:
                continue
            try:
                taken = relief.restore(min(allowed, given))
            except Exception as error:
                failures.append((relief.name, _line(error)))
                break
            if taken > 0:
                parts.append((relief.name, taken))
                allowed -= taken
                self._given[index] = max(0, given - taken)
            elif allowed >= given:
                self._given[index] = 0  # it declines what it gave up: it has no more use for it
            if self._given[index] > 0:
                break  # what was given up last comes back in full first
        return Action(self._steps, "restore", free, tuple(parts), tuple(failures)) if parts or failures else None

    def _hoards(self, reading: DeviceReading) -> bool:
        """Whether the driver has less than the low mark left although torch's allocator could give back a good part.

        A quarter of the distance of the marks at least: giving back costs the device a halt.
        """
        marks = self.marks
        return reading.driver_free < marks.low and reading.cached >= max(1, (marks.high - marks.low) // 4)

    # A thread of its own

    def start(self, seconds: float = 0.1) -> None:
        """Steps every so many seconds in a thread, until `stop()` or until nothing refers to the governor any more.

        The thread can't know that another one captures a graph: capture under `paused()`.

        Raises:
            ConfigError: It runs already, or `seconds` is not positive.
        """
        if not isinstance(seconds, int | float) or not 0 < seconds <= threading.TIMEOUT_MAX:
            raise ConfigError(f"Governor.start: seconds={seconds!r} between steps must be a positive, finite number.")
        if self._watch is not None:
            raise ConfigError("Governor.start: its thread runs already. stop() it first.")
        self._watch = _Watch(self, seconds)

    def stop(self) -> None:
        """Ends the thread, if there is one, and waits for its end."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No step is taken by another thread inside, and none is under way."""
        with self._lock:
            yield

    def __enter__(self) -> Governor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Watch:
    """The thread of a governor; it keeps the governor from dying only during a step."""

    def __init__(self, governor: Governor, seconds: float) -> None:
        self._end = threading.Event()
        weakref.finalize(governor, self._end.set)
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(governor), self._end, seconds), name="zcd memory governor", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _run(reference: weakref.ref[Governor], end: threading.Event, seconds: float) -> None:
    while not end.wait(seconds):
        governor = reference()
        if governor is None:
            return
        governor.step()
        del governor


def _checked(reliefs: Any) -> tuple[Relief, ...]:
    """Reliefs that can be asked. One that can't would be noted in the log at each step, and nothing ever freed."""
    asked = ("relieve", "restore", "pending")
    made = tuple(reliefs) if isinstance(reliefs, Iterable) else (None,)
    for relief in made:
        if isinstance(relief, type) or not all(callable(getattr(relief, name, None)) for name in asked):
            raise ConfigError(
                f"Governor(reliefs={reliefs!r}): a list of objects such as InFlight, DeviceCache and SwapPool, with "
                "relieve(), restore() and pending()."
            )
    return made


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"

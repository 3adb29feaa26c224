"""Acts when memory becomes scarce, and undoes it when it has been plentiful for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ...errors import ConfigError
from .watch import DeviceReading


class Relief(Protocol):
    """Something that can do with less memory."""

    @property
    def name(self) -> str: ...

    def relieve(self, bytes_wanted: int) -> int:
        """Sets about freeing memory; returns how many bytes that will free (0: nothing more to give)."""

    def restore(self, bytes_allowed: int) -> int:
        """Takes memory again, no more than allowed; returns how many bytes (0: nothing to take, or no room)."""


class FreeMemory(Protocol):
    """A reading of either kind: what counts is how much is free."""

    @property
    def free(self) -> int: ...


class MemorySource(Protocol):
    """What is read: TorchMemory, SystemMemory, or a trace."""

    def read(self) -> FreeMemory: ...


@dataclass(frozen=True)
class Action:
    """What a step did.

    Attributes:
        kind: "relieve" or "restore".
        free: Bytes that were free before.
        parts: (name of a relief, bytes) in the order in which they were asked.
    """

    kind: Literal["relieve", "restore"]
    free: int
    parts: tuple[tuple[str, int], ...]


@dataclass
class Marks:
    """Two marks and what lies between: the hysteresis that governor and swap pool share.

    Below `low` memory has to be given up until the middle is reached; only above `high`, for `dwell` readings in a
    row, may it be taken again, down to the middle. So to be turned round, free memory must move by half the distance
    of the marks without our doing: what hovers about one mark turns nothing.
    """

    low: int
    high: int
    dwell: int = 8
    above: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise ConfigError(f"low={self.low} and high={self.high}: the marks must be 0 <= low < high, in bytes.")
        if self.dwell < 1:
            raise ConfigError(f"dwell={self.dwell}: at least one step.")

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def wanted(self, free: int) -> int:
        """Bytes to give up (positive), or that may be taken (negative); 0 leaves all as it is."""
        if free < self.low:
            self.above = 0
            return self.middle - free
        if free <= self.high:
            self.above = 0
            return 0
        self.above += 1
        if self.above < self.dwell:
            return 0
        self.above = 0
        return self.middle - free


class Governor:
    """Keeps free memory above a low mark.

    `step()` is called between batches, by the thread that trains. It reads how much is free; below `low` it asks its
    reliefs, first to last, until the middle of the marks would be reached. When free memory has stayed above `high`
    for `dwell` steps it lets them take memory again in the reverse order, down to the middle.

    Reliefs may need time: memory that one has promised counts as free until it shows, for at most `settle` steps.

    Args:
        low: Bytes of free memory below which something is done.
        high: Bytes above which it is undone.
        reliefs: In the order in which they are to be asked: what costs least first. Fewer batches in flight, then
            device-resident caches, then swapped tensors.
        source: What is read: TorchMemory(device) for a device, SystemMemory() for the host. None: readings are given
            to `step`.
        dwell: Steps.
        settle: Steps.
        capturing: Whether a graph is being captured: then nothing is read or done. Taken from a TorchMemory.
        release_cache: Gives cached memory back to the driver when that has little left but torch's allocator much.
            Taken from a TorchMemory.

    Raises:
        ConfigError: The marks or a count make no sense.
    """

    def __init__(
        self,
        *,
        low: int,
        high: int,
        reliefs: Sequence[Relief],
        source: MemorySource | None = None,
        dwell: int = 8,
        settle: int = 8,
        capturing: Callable[[], bool] | None = None,
        release_cache: Callable[[], None] | None = None,
    ) -> None:
        if settle < 0:
            raise ConfigError(f"settle={settle}: steps, not negative.")
        self.marks = Marks(low, high, dwell)
        self.reliefs = tuple(reliefs)
        self.source = source
        self.settle = settle
        accelerator = getattr(source, "accelerator", None)
        self._capturing = capturing or (accelerator.capturing if accelerator is not None else None)
        self._release_cache = release_cache or (accelerator.release_cache if accelerator is not None else None)
        self._freed = [0] * len(self.reliefs)  # what each has given up and not taken back
        self._promised: tuple[int, int, int] | None = None  # (bytes that will be free, when that is, until which step)
        self._steps = 0
        self._direction: str | None = None
        self.reversals = 0

    @property
    def relieved(self) -> dict[str, int]:
        """Bytes that each relief has given up and not taken again."""
        return {relief.name: freed for relief, freed in zip(self.reliefs, self._freed, strict=True)}

    def step(self, reading: FreeMemory | None = None) -> Action | None:
        """Reads and acts.

        Args:
            reading: What is free; by default the source is asked.

        Returns:
            What was done, if anything.

        Raises:
            ConfigError: There is neither a reading nor a source.
        """
        self._steps += 1
        if self._capturing is not None and self._capturing():
            return None
        if reading is None:
            if self.source is None:
                raise ConfigError("Governor.step(): give it a reading, or the governor a source=.")
            reading = self.source.read()
        free = reading.free + self._outstanding(reading.free)
        wanted = self.marks.wanted(free)
        action: Action | None = None
        if wanted > 0:
            action = self._relieve(wanted, reading.free)
        elif wanted < 0:
            action = self._restore(-wanted, reading.free)
        self._mind_the_driver(reading)
        return action

    def _outstanding(self, free: int) -> int:
        """Bytes promised by reliefs that don't show yet."""
        if self._promised is None:
            return 0
        promised, then, until = self._promised
        left = promised - max(0, free - then)
        if left <= 0 or self._steps > until:
            self._promised = None
            return 0
        return left

    def _relieve(self, wanted: int, free: int) -> Action | None:
        parts = []
        outstanding = self._outstanding(free)
        for index, relief in enumerate(self.reliefs):
            if wanted <= 0:
                break
            freed = relief.relieve(wanted)
            if freed > 0:
                parts.append((relief.name, freed))
                self._freed[index] += freed
                wanted -= freed
        if not parts:
            return None
        promised = outstanding + sum(freed for _, freed in parts)
        self._promised = (promised, free, self._steps + self.settle)
        return self._did("relieve", free, parts)

    def _restore(self, allowed: int, free: int) -> Action | None:
        parts = []
        for index in reversed(range(len(self.reliefs))):
            if self._freed[index] <= 0:
                continue
            taken = self.reliefs[index].restore(min(allowed, self._freed[index]))
            if taken > 0:
                parts.append((self.reliefs[index].name, taken))
                self._freed[index] = max(0, self._freed[index] - taken)
                allowed -= taken
            elif allowed >= self._freed[index]:
                self._freed[index] = 0  # it declines what it gave up: it has no more use for it
            if self._freed[index] > 0:
                break  # what was given up later comes back in full first
        if not parts:
            return None
        self._promised = None
        return self._did("restore", free, parts)

    def _did(self, kind: Literal["relieve", "restore"], free: int, parts: list[tuple[str, int]]) -> Action:
        if self._direction not in (None, kind):
            self.reversals += 1
        self._direction = kind
        return Action(kind, free, tuple(parts))

    def _mind_the_driver(self, reading: FreeMemory) -> None:
        if self._release_cache is not None and isinstance(reading, DeviceReading) and hoards(reading, self.marks):
            self._release_cache()


def hoards(reading: DeviceReading, marks: Marks) -> bool:
    """Whether the driver has less than the low mark left although torch's allocator could give back a good part.

    A quarter of the distance of the marks at least: giving back costs the device a halt.
    """
    return reading.driver_free < marks.low and reading.cached >= max(1, (marks.high - marks.low) // 4)


class InFlight:
    """Fewer batches in flight, as a relief.

    Args:
        limit: Called with the number of batches that may be in flight from now on.
        most: That number without a shortage.
        bytes_each: What a batch in flight takes.
        least: How few there may be.

    Raises:
        ConfigError: The counts make no sense.
    """

    name = "batches in flight"

    def __init__(self, limit: Callable[[int], None], *, most: int, bytes_each: int, least: int = 1) -> None:
        if not 1 <= least <= most or bytes_each < 1:
            raise ConfigError(f"InFlight: 1 <= least <= most and bytes_each >= 1, not {least}, {most}, {bytes_each}.")
        self._limit = limit
        self.most = most
        self.least = least
        self.bytes_each = bytes_each
        self.now = most

    def relieve(self, bytes_wanted: int) -> int:
        """Takes as many batches out of flight as make the bytes, down to `least`."""
        return self._to(max(self.least, self.now + (-bytes_wanted // self.bytes_each)))

    def restore(self, bytes_allowed: int) -> int:
        """Lets as many fly again as the bytes hold."""
        return -self._to(min(self.most, self.now + bytes_allowed // self.bytes_each))

    def _to(self, count: int) -> int:
        before, self.now = self.now, count
        if count != before:
            self._limit(count)
        return (before - count) * self.bytes_each

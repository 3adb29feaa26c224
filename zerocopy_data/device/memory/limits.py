"""How much host memory this process may still take: the machine's, and what its cgroups allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...cgroups import NO_LIMIT, numbers, own_cgroups


@dataclass(frozen=True)
class HostReading:
    """Host memory at one moment.

    Attributes:
        free: Bytes that can still be taken before the tightest bound is met.
        total: Bytes that this bound allows altogether.
        bound: What bounds: a cgroup's folder, or /proc/meminfo.
    """

    free: int
    total: int
    bound: str


class HostMemory(Protocol):
    """What knows the host's memory: the system, or a trace in a test."""

    def read(self) -> HostReading: ...


@dataclass(frozen=True)
class SystemMemory:
    """Host memory as Linux tells it: MemAvailable, and every memory cgroup from this process's own up to the root.

    A limit of an outer cgroup holds for all that is inside it, so each is compared with its own usage and the one with
    the least room counts. File pages that the kernel drops when asked (inactive_file) don't count as used.

    Attributes:
        proc: Where /proc is.
        cgroups: Where the cgroup file systems are mounted.
    """

    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")

    def read(self) -> HostReading:
        """The tightest of all bounds now.

        Raises:
            OSError: /proc/meminfo can't be read.
        """
        machine = _table(self.proc / "meminfo")
        unit = 1024
        best = HostReading(
            machine.get("MemAvailable", machine.get("MemFree", 0)) * unit,
            machine.get("MemTotal", 0) * unit,
            str(self.proc / "meminfo"),
        )
        for folder in own_cgroups("memory", self.proc, self.cgroups):
            reading = _limit_of(folder)
            if reading is not None and reading.free < best.free:
                best = reading
        return best


def _limit_of(folder: Path) -> HostReading | None:
    """What one cgroup leaves; None where it has no limit."""
    # Beyond memory.high nothing is killed, but the kernel holds every process up until pages are free.
    limits = [n for name in ("memory.max", "memory.high", "memory.limit_in_bytes") for n in numbers(folder / name)]
    limit = min((n for n in limits if 0 <= n < NO_LIMIT), default=None)
    if limit is None:
        return None
    used = numbers(folder / "memory.current") or numbers(folder / "memory.usage_in_bytes")
    if not used:
        return None
    statistics = _table(folder / "memory.stat")
    droppable = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
    return HostReading(max(0, limit - max(0, used[0] - droppable)), limit, str(folder))


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        text = path.read_text()
    except OSError:
        if path.name == "meminfo":
            raise
        return {}
    return {name: int(value) for name, value in re.findall(r"^(\S+?):?\s+(\d+)", text, re.MULTILINE)}

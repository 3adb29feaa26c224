"""How much host memory this process may still take: the machine's, and what its cgroups allow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# cgroup v1 writes "no limit" as the largest page-aligned number of 63 bits.
_NO_LIMIT = 1 << 60


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
        for folder in self._folders():
            reading = _limit_of(folder)
            if reading is not None and reading.free < best.free:
                best = reading
        return best

    def _folders(self) -> Iterator[Path]:
        """This process's memory cgroups, v1 and v2, innermost first."""
        try:
            lines = (self.proc / "self" / "cgroup").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                # On a machine with both versions, the unified tree may be mounted beside the old ones.
                roots = [self.cgroups, self.cgroups / "unified"]
            elif "memory" in controllers.split(","):
                roots = [self.cgroups / "memory", self.cgroups / controllers]
            else:
                continue
            for root in dict.fromkeys(roots):
                inner = root / path.lstrip("/")
                # In a container the path may be that of the host, of which only the root is to be seen.
                for folder in (inner, *inner.parents):
                    if folder.is_relative_to(root) and folder.is_dir():
                        yield folder


def _limit_of(folder: Path) -> HostReading | None:
    """What one cgroup leaves; None where it has no limit."""
    # Beyond memory.high nothing is killed, but the kernel holds every process up until pages are free.
    limits = [_number(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    limit = min((n for n in limits if n is not None and n < _NO_LIMIT), default=None)
    if limit is None:
        return None
    used = _number(folder / "memory.current")
    if used is None:
        used = _number(folder / "memory.usage_in_bytes")
    if used is None:
        return None
    statistics = _table(folder / "memory.stat")
    droppable = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
    return HostReading(max(0, limit - max(0, used - droppable)), limit, str(folder))


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or 'max' in it."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        text = path.read_text()
    except OSError:
        if path.name == "meminfo":
            raise
        return {}
    return {name: int(value) for name, value in re.findall(r"^(\S+?):?\s+(\d+)", text, re.MULTILINE)}

"""What a tree of processes uses, read from /proc: CPU seconds and proportional memory."""

import os
import threading
from pathlib import Path
from types import TracebackType

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """A process and all its descendants; those that end meanwhile are left out."""
    found = [pid]
    for member in found:
        for task in _listing(Path(f"/proc/{member}/task")):
            try:
                found += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


def _listing(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def cpu_seconds(pid: int) -> float:
    """CPU seconds, user and system, of a process, its living descendants, and those it has waited for."""
    total = 0
    for member in tree(pid):
        try:
            text = Path(f"/proc/{member}/stat").read_text()
        except OSError:
            continue
        # The name in parentheses may hold spaces; utime, stime, cutime, cstime are fields 14 to 17 (proc(5)).
        total += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return total / TICKS_PER_SECOND


def memory(pid: int, keys: tuple[str, ...] = ("Pss",)) -> int:
    """Bytes under these keys of /proc/PID/smaps_rollup; 0 for a process that has ended."""
    total = 0
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    for line in lines[1:]:
        key, _, rest = line.partition(":")
        if key in keys:
            total += int(rest.split()[0]) * 1024
    return total


def shared_memory() -> int:
    """Bytes of tmpfs and memory files on this machine, mapped or not."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


class PeakMemory:
    """Samples the memory of a process tree in a thread; the peaks are there when the block ends.

    Reading it makes the kernel walk page tables, so nothing is timed while this runs.

    Attributes:
        peak_bytes: Peak of the tree's PSS, which counts a page shared by n processes as 1/n in each: the sum over a
            tree counts every mapped page once.
        peak_footprint_bytes: The same with shared memory that no process has mapped at the moment, such as a
            batch of torch's workers that waits in their queue: PSS without shared memory, plus what the system's
            shared memory (tmpfs and memory files) has grown by. So nobody else may be using it meanwhile.
    """

    def __init__(self, pid: int, interval: float = 0.05) -> None:
        self.peak_bytes = 0
        self.peak_footprint_bytes = 0
        self._shared_before = shared_memory()
        self._pid = pid
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while True:
            pss = shared = 0
            for member in tree(self._pid):
                pss += memory(member)
                shared += memory(member, ("Pss_Shmem",))
            footprint = pss - shared + shared_memory() - self._shared_before
            self.peak_bytes = max(self.peak_bytes, pss)
            self.peak_footprint_bytes = max(self.peak_footprint_bytes, footprint)
            if self._done.wait(self._interval):
                return

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

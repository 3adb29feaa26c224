"""What this machine, and the container around this process, allow: cores, memory, files, versions."""

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..cgroups import NO_LIMIT, numbers, own_cgroups


@dataclass(frozen=True)
class FileSystem:
    """Where a path lies."""

    kind: str  # as the kernel names it: ext4, xfs, nfs4, lustre, tmpfs, …
    mount: str
    total_bytes: int
    free_bytes: int


def cpu_model() -> str:
    """The processor's name as the kernel gives it, or the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next((name for name in names if name), platform.machine())


def cores_allowed() -> int:
    """Cores this process may run on (its affinity)."""
    return len(os.sched_getaffinity(0))


def cpu_quota() -> float | None:
    """Cores' worth of time that the cgroup allows (v2 cpu.max, v1 cfs quota); None without a limit."""
    quotas: list[float] = []
    for folder in own_cgroups("cpu"):
        both = numbers(folder / "cpu.max") or [
            *numbers(folder / "cpu.cfs_quota_us"),
            *numbers(folder / "cpu.cfs_period_us"),
        ]
        if len(both) == 2 and both[0] > 0 and both[1] > 0:
            quotas.append(both[0] / both[1])
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Bytes that the cgroup allows (v2 memory.max, v1 memory.limit_in_bytes); None without a limit."""
    limits: list[int] = []
    for folder in own_cgroups("memory"):
        limits += numbers(folder / "memory.max") or numbers(folder / "memory.limit_in_bytes")
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def memory_total() -> int:
    """Bytes of memory in the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shared_memory_size() -> int | None:
    """Bytes that /dev/shm holds; None where it is missing."""
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def open_files_limit() -> tuple[int, int]:
    """Soft and hard limit of open files (RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def file_system(path: Path) -> FileSystem:
    """The file system that holds `path` (or its nearest parent that exists)."""
    place = path.expanduser().resolve()
    while not place.exists():
        place = place.parent
    kind, mount = "unknown", "/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        # Later lines lie over earlier ones.
        if place.is_relative_to(point) and len(point) >= len(mount):
            kind, mount = after.split()[0], point
    usage = shutil.disk_usage(place)
    return FileSystem(kind, mount, usage.total, usage.free)


def package_version(*names: str) -> str | None:
    """Version of the first of these distributions that is installed; nothing is imported."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def dali_version() -> str | None:
    """Version of NVIDIA DALI, which comes as one distribution per CUDA version."""
    return package_version("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110")


def versions() -> dict[str, str | None]:
    """Versions of everything that bears on a measurement."""
    names = ("zerocopy-data", "numpy", "pyarrow", "pillow", "torch", "torchvision")
    found: dict[str, str | None] = {"python": platform.python_version()}
    found |= {name: package_version(name) for name in names}
    found["dali"] = dali_version()
    found["jpeg"], found["simd"] = native_core() or (None, None)
    return found


def native_core() -> tuple[str, str] | None:
    """JPEG library and instruction set of the compiled core; None where it cannot be loaded."""
    try:
        from .. import _native
    except ImportError:
        return None
    return _native.jpeg_library(), _native.simd()


def describe() -> dict[str, object]:
    """The machine, as it stands beside every measurement."""
    return {
        "cpu": cpu_model(),
        "cores": cores_allowed(),
        "cpu_quota": cpu_quota(),
        "memory_gb": round(memory_total() / 1e9, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def commit(folder: Path) -> str | None:
    """The commit that `folder` is at, followed by '+' when there are changes; None outside git."""

    def git(*arguments: str) -> str | None:
        try:
            command = ["git", "-C", str(folder), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    head = git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+" if git("status", "--porcelain") else "")

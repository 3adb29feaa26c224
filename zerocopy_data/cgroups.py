"""Where the kernel keeps the limits of the container around this process, cgroups of version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Version 1 writes "no limit" as the largest page-aligned number of 63 bits.
NO_LIMIT = 1 << 60


def own_cgroups(controller: str, proc: Path = Path("/proc"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[Path]:
    """The folders of this process's cgroups and of all above them, innermost first.

    Args:
        controller: 'cpu' or 'memory'.
        proc: Where /proc is.
        mounted: Where the cgroup file systems are.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            # On a machine with both versions, the unified tree may be mounted beside the old ones.
            roots = [mounted, mounted / "unified"]
        elif controller in controllers.split(","):
            roots = [mounted / controller, mounted / controllers]
        else:
            continue
        for root in dict.fromkeys(roots):
            inner = root / path.lstrip("/")
            # In a container the path may be that of the host, of which only the root is to be seen.
            for folder in (inner, *inner.parents):
                if folder.is_relative_to(root) and folder.is_dir():
                    yield folder


def numbers(file: Path) -> list[int]:
    """The whole numbers in a cgroup's file; empty where the file is missing; 'max' ends the list."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    found: list[int] = []
    for word in words:
        if not word.lstrip("-").isdigit():
            break
        found.append(int(word))
    return found

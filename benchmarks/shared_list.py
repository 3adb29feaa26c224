"""Do forked workers keep their memory to themselves: over a Python list, over `zcd.share` of it, over arrays?

    tools/dev run python benchmarks/shared_list.py [--strings N] [--rows N] [--json FILE]

1. Forked workers walk all of a list of strings (paths), then a list of dicts; each says how its private memory grew.
   Once over the list itself, once over `zcd.share(list)`.
2. A dataset of ten million rows that lie in numpy arrays, an epoch through `zcd.DataLoader` with eight workers, in
   shuffled order: the private memory of each worker at points of the epoch.

Private memory is Private_Dirty of /proc/PID/smaps_rollup: pages of its own that a process has written to. Measured on
a virtual machine with two cores of an AMD EPYC, 2026-12-01:

    growth per worker, 4 workers        list        zcd.share
    2,000,000 strings                   226.1 MB    0.1 to 0.2 MB
    500,000 dicts                       153.0 MB    0.0 to 0.1 MB
    10,000,000 rows, 8 workers: 12.0 MB each at a tenth of the epoch, 12.4 MB at its end; at most 0.3 MB of growth.
    (Before workers froze what they inherit, by gc.freeze, it was 12.5 MB to a quarter and 53 MB from the half on.)

(One run each, on a machine that had other work; the rows with --strings 20000 --dicts 5000.)

Exits with 1 when a claim does not hold: under 5 MB of growth per worker over a shared list, and between a tenth and
the end of an epoch over arrays.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

import zerocopy_data as zcd
from zerocopy_data.tuning import machine
from zerocopy_data.tuning.processes import memory, tree

GROWTH_CLAIM_MB = 5.0
PRIVATE = ("Private_Dirty",)
POINTS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.98)


def private_mb(pid: int) -> float:
    """Private memory of a process in MB."""
    return memory(pid, PRIVATE) / 1e6


def path(index: int) -> str:
    """What a path in a list of image files looks like."""
    return f"/data/imagenet/train/n{index % 1000:08d}/n{index % 1000:08d}_{index}.JPEG"


def walk(items: Sequence[Any], size: Callable[[Any], int], connection: Connection) -> None:
    """A worker: looks at every item, says how its private memory grew."""
    size(items[0])
    before = private_mb(os.getpid())
    for index in range(len(items)):
        size(items[index])
    connection.send(private_mb(os.getpid()) - before)


def growth(items: Sequence[Any], size: Callable[[Any], int], workers: int) -> list[float]:
    """MB by which each of the forked workers grew."""
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe() for _ in range(workers)]
    processes = [fork.Process(target=walk, args=(items, size, theirs)) for _, theirs in pipes]
    for process in processes:
        process.start()
    grown = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return grown


class Rows(Dataset[tuple[np.ndarray[Any, Any], int]]):
    """Rows of arrays: no Python object stands for a row."""

    def __init__(self, rows: int) -> None:
        self.x = np.zeros((rows, 4), np.float32)
        self.x[:, 0] = np.arange(rows)
        self.label = np.arange(rows) % 1000

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        return self.x[index], int(self.label[index])


def epoch(rows: int, workers: int) -> list[list[float]]:
    """Private MB of each worker, at each of POINTS."""
    loader = zcd.DataLoader(
        Rows(rows), batch_size=1000, shuffle=True, num_workers=workers, multiprocessing_context="fork"
    )
    at = {int(point * len(loader)) for point in POINTS}
    measured = []
    for number, _ in enumerate(loader):
        if number in at:
            measured.append([private_mb(pid) for pid in tree(os.getpid())[1:]])
    return measured


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strings", type=int, default=2_000_000)
    parser.add_argument("--dicts", type=int, default=500_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--list-workers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()

    results: list[dict[str, Any]] = []
    holds = True
    print(f"{machine.cpu_model()}")
    cases: list[tuple[str, Callable[[], list[Any]], Callable[[Any], int]]] = [
        (f"{options.strings:,} strings", lambda: [path(i) for i in range(options.strings)], len),
        (
            f"{options.dicts:,} dicts",
            lambda: [{"path": path(i), "label": i, "box": (i, i + 1, 2.5)} for i in range(options.dicts)],
            lambda item: len(item["path"]) + item["label"],
        ),
    ]
    for name, make, size in cases:
        items: Sequence[Any] = make()
        for kind in ("list", "zcd.share"):
            if kind == "zcd.share":
                items = zcd.share(items)
            grown = growth(items, size, options.list_workers)
            results.append({"loader": kind, "workload": name, "unit": "MB", "growth": grown})
            print(f"{name:<20}{kind:<12}a worker grows by {min(grown):6.1f} to {max(grown):6.1f} MB")
        holds &= max(grown) < GROWTH_CLAIM_MB
        del items

    measured = epoch(options.rows, options.workers)
    name = f"{options.rows:,} rows"
    for point, private in zip(POINTS, measured, strict=True):
        print(f"{name:<20}{point:>4.0%} of the epoch: a worker has {min(private):6.1f} to {max(private):6.1f} MB")
    results.append({"loader": "zcd", "workload": name, "unit": "MB", "points": POINTS, "private": measured})
    rise = max(late - early for early, late in zip(measured[1], measured[-1], strict=True))
    print(f"{name:<20}from {POINTS[1]:.0%} on, a worker grows by at most {rise:.1f} MB")
    holds &= rise < GROWTH_CLAIM_MB

    if options.json is not None:
        report = {
            "benchmark": "shared-list",
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "results": results,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{'holds' if holds else 'FAILS'}: under {GROWTH_CLAIM_MB:g} MB of growth each")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

"""What is reading ahead worth while data is not in memory?

    tools/dev run python benchmarks/read_ahead.py [--gigabytes 4] [--row 102400] [--repeats 5] [--out FOLDER]

Writes rows of random bytes into shards, and serves part of an epoch in a fresh process each time: shuffled fully and
in windows, with a training loop that takes no time and one that takes --step milliseconds a batch (asleep, as a loop
that waits for its device), with `DataLoader(read_ahead=0)` and with the default, in turn. Before each run the shards
are dropped from the page cache, and mincore is asked whether they are gone; --warm leaves them there.

Shown are medians, and the least and the greatest, of:

    seconds    for the batches, from iter() to the last one
    waited     of these, for batches
    faults     major ones of the process: pages that a thread has waited for, by itself
    MB/row     read from the disk, by the rows' own MB (1.0: nothing but the rows; /proc/self/io)
    asked      MB that the kernel has been asked for, some for batches beyond the last one served

Result of the defaults (two busy cores, a virtual disk of about 1 GB/s whose read_ahead_kb is 8,192, so a fault reads
8 MB; before no run was a page of the shards in memory):

    order    step    ahead     seconds               waited                faults   MB/row
    full     0 ms    no        3.47 (2.82 to 5.10)   3.14 (2.71 to 4.66)      846     4.01
    full     0 ms    yes       2.07 (1.42 to 2.41)   1.83 (1.32 to 1.91)      382     1.70
    full     20 ms   no        5.88 (5.50 to 5.93)   2.75 (2.40 to 2.80)      854     4.01
    full     20 ms   yes       4.20 (4.13 to 4.49)   1.06 (1.03 to 1.33)      371     1.66
    window   0 ms    no        2.38 (2.33 to 2.63)   2.21 (2.01 to 2.26)      510     2.50
    window   0 ms    yes       1.62 (1.50 to 1.72)   1.32 (1.27 to 1.53)      340     1.35
    window   20 ms   no        4.95 (4.92 to 5.40)   1.84 (1.83 to 2.23)      511     2.52
    window   20 ms   yes       4.01 (3.86 to 4.11)   0.87 (0.77 to 0.96)      295     1.35

The steps alone take 3.12 s. What is still waited for is mostly the opening of shards, by the first batches.

Rows of 3,072 bytes (--gigabytes 1 --row 3072 --batch-size 512 --window 100000 --repeats 3), where it helps little: a
quarter of all rows is needed, and 8 MB at a time bring the whole file, which fits in memory, as fast as small pieces
bring those rows. Without a step a full shuffle is slower with it:

    full     0 ms    no        1.29 (1.21 to 1.51)   1.12 (1.10 to 1.27)      218     4.02
    full     0 ms    yes       1.64 (1.37 to 1.77)   1.29 (1.17 to 1.43)    2,287     3.65
    full     20 ms   no        4.51 (4.45 to 4.68)   1.27 (1.18 to 1.40)      219     4.02
    full     20 ms   yes       4.49 (4.30 to 4.91)   0.96 (0.78 to 1.52)      118     3.24
    window   0 ms    no        1.63 (1.09 to 1.70)   1.44 (0.94 to 1.47)      191     3.92
    window   0 ms    yes       1.51 (1.36 to 1.72)   1.26 (1.12 to 1.34)      741     3.41
    window   20 ms   no        4.58 (4.49 to 4.69)   1.32 (1.25 to 1.45)      202     4.00
    window   20 ms   yes       4.11 (4.09 to 4.50)   0.80 (0.76 to 1.06)      190     2.89
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import zerocopy_data as zcd

COLUMNS = ("seconds", "waited", "faults", "MB/row", "asked")


def write(path: Path, rows: int, row: int) -> None:
    """Rows of random bytes, on the disk when this returns."""
    rng = np.random.default_rng(0)
    fields = {"data": zcd.Tensor("uint8", (row,)), "number": zcd.Scalar("int64")}
    with zcd.DatasetWriter(path, fields) as writer:
        for number in range(rows):
            writer.write({"data": rng.integers(0, 256, row, np.uint8), "number": number})
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def drop(path: Path) -> float:
    """Drops a dataset's shards from the page cache. Returns which part of them is still there."""
    resident = pages = 0
    libc = ctypes.CDLL(None, use_errno=True)
    for file in sorted(path.iterdir()):
        size = file.stat().st_size
        if file.name == "dataset.json" or not size:
            continue
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        # Writable and private only because ctypes wants an address of it; no page is touched.
        with mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            count = -(-size // mmap.PAGESIZE)
            found = (ctypes.c_ubyte * count)()
            first = ctypes.c_ubyte.from_buffer(mapped)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), found)
            del first
            if failed:
                raise OSError(ctypes.get_errno(), "mincore")
            resident += sum(state & 1 for state in found)
            pages += count
        os.close(descriptor)
    return resident / pages


def bytes_read() -> int:
    """That this process has had brought from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def serve(path: Path, order: str, step: float, budget: int, args: argparse.Namespace) -> dict[str, float]:
    """One run, in this process."""
    ds = zcd.open(path, columns=["data", "number"])
    window = args.window if order == "window" else None
    sampler = zcd.EpochSampler(len(ds), 1, shuffle=order, window=window)
    loader: Any = zcd.DataLoader(
        ds, args.batch_size, sampler=sampler, seed=1, num_workers=args.workers, read_ahead=budget
    )
    batches = max(1, int(len(loader) * args.share))
    faults, read = resource.getrusage(resource.RUSAGE_SELF).ru_majflt, bytes_read()
    waited, rows = 0.0, 0
    begin = time.perf_counter()
    iterator = iter(loader)
    for _ in range(batches):
        asked_for = time.perf_counter()
        batch = next(iterator)
        waited += time.perf_counter() - asked_for
        rows += len(batch["number"])
        time.sleep(step)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    ahead = iterator._ahead
    return {
        "seconds": seconds,
        "waited": waited,
        "faults": after - faults,
        "MB/row": (bytes_read() - read) / (rows * args.row),
        "asked": 0 if ahead is None else ahead.asked / 1e6,
    }


def measure(path: Path, args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """All runs, by name: each in a fresh process, those with and without reading ahead in turn."""
    found: dict[str, list[dict[str, float]]] = {}
    left = 0.0
    for _ in range(args.repeats):
        for order, step, budget in itertools.product(("full", "window"), (0.0, args.step / 1000), (0, args.budget)):
            if not args.warm:
                left = max(left, drop(path))
            command = [sys.executable, __file__, *sys.argv[1:], "--serve", json.dumps([str(path), order, step, budget])]
            made = subprocess.run(command, check=True, capture_output=True, text=True)
            name = f"{order}, step {step * 1000:g} ms, {'read_ahead=0' if not budget else 'ahead'}"
            found.setdefault(name, []).append(json.loads(made.stdout))
    if not args.warm:
        print(f"of the shards, {left:.2%} at most was in memory before a run (mincore)")
    return found


def show(found: dict[str, list[dict[str, float]]]) -> None:
    """Prints the table."""
    table = Table("order", *COLUMNS, title="median (least to greatest)")
    for name, runs in found.items():
        cells = []
        for column in COLUMNS:
            values = [run[column] for run in runs]
            digits = ".0f" if column in ("faults", "asked") else ".2f"
            middle, least, greatest = (format(v, digits) for v in (statistics.median(values), min(values), max(values)))
            cells.append(f"{middle} ({least} to {greatest})")
        table.add_row(name, *cells)
    Console(width=140).print(table)


def main() -> None:
    """Writes the data, measures, prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of rows to write")
    parser.add_argument("--row", type=int, default=102_400, help="bytes of a row")
    parser.add_argument("--share", type=float, default=0.25, help="of an epoch that is served")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--window", type=int, default=8192, help="samples of the window shuffle")
    parser.add_argument("--step", type=float, default=20.0, help="milliseconds of a training step")
    parser.add_argument("--budget", type=int, default=128 << 20, help="bytes to read ahead")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="an existing folder on the disk to measure (default: /var/tmp)")
    parser.add_argument("--warm", action="store_true", help="leave the shards in memory")
    parser.add_argument("--json", type=Path, help="write all runs there too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        path, order, step, budget = json.loads(args.serve)
        print(json.dumps(serve(Path(path), order, step, budget, args)))
        return
    folder = Path(tempfile.mkdtemp(prefix="zcd-read-ahead-", dir=args.out or "/var/tmp"))
    try:
        if subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True).stdout.strip() == "tmpfs":
            parser.error(f"{folder} is in memory: give a folder on a disk, --out")
        write(folder / "data", max(args.batch_size, int(args.gigabytes * 1e9 / args.row)), args.row)
        found = measure(folder / "data", args)
    finally:
        shutil.rmtree(folder)
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

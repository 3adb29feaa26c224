"""What does a dataset of a million small rows cost: to open, and in memory when eight forked workers walk it?

    tools/dev run python benchmarks/open_rows.py [--rows N] [--json FILE]

Opening is timed in fresh processes, after everything is imported, through `zcd.open` and the first row.
Private memory is Private_Clean + Private_Dirty of /proc/PID/smaps_rollup: pages that no other process shares.
It is read in each worker after the fork and again when all have walked their rows and none has ended, so that
pages of the map count as the shared ones that they are.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import zerocopy_data as zcd
from zerocopy_data.tuning import machine
from zerocopy_data.tuning.processes import memory
from zerocopy_data.tuning.statistics import estimate

OPEN_CLAIM_S = 0.3
GROWTH_CLAIM_MB = 20.0
PRIVATE = ("Private_Clean", "Private_Dirty")

OPEN = """
import sys, time
import zerocopy_data as zcd
zcd.ShardDataset  # imports torch, which `import zerocopy_data` puts off and every training script has anyway
start = time.perf_counter()
dataset = zcd.open(sys.argv[1])
opened = time.perf_counter()
dataset[len(dataset) - 1]
print(opened - start, time.perf_counter() - start)
"""


def write_rows(path: Path, rows: int) -> None:
    """A dataset of small rows: eight floats, a label and a few words each."""
    rng = np.random.default_rng(0)
    x, label, text = zcd.Tensor("float32", (8,)), zcd.Scalar("int64"), zcd.Text()
    with zcd.DatasetWriter(path, {"x": x, "label": label, "text": text}) as writer:
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            writer.write_columns(
                {
                    "x": rng.standard_normal((count, 8), dtype=np.float32),
                    "label": rng.integers(0, 1000, count),
                    "text": [f"row number {start + index}" for index in range(count)],
                }
            )


def time_open(path: Path) -> tuple[float, float]:
    """Seconds to open, and to have read a row, in a fresh process."""
    command = [sys.executable, "-c", OPEN, str(path)]
    opened, read = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(opened), float(read)


def walk(dataset: zcd.ShardDataset, first: int, step: int, connection: Connection) -> None:
    """A worker: reads every `step`-th row in random order, says how its private memory grew."""
    dataset[first]
    before = memory(os.getpid(), PRIVATE)
    order = np.arange(first, len(dataset), step)
    np.random.default_rng(first).shuffle(order)
    for row in order:
        dataset[int(row)]
    connection.send("walked")
    connection.recv()  # until all have
    connection.send(memory(os.getpid(), PRIVATE) - before)
    connection.recv()  # until all have been read


def growth(path: Path, workers: int) -> list[float]:
    """MB by which each of the forked workers grew."""
    fork = multiprocessing.get_context("fork")
    dataset = zcd.open(path)
    dataset[0]
    pipes = [fork.Pipe() for _ in range(workers)]
    processes = [fork.Process(target=walk, args=(dataset, first, workers, pipes[first][1])) for first in range(workers)]
    for process in processes:
        process.start()
    ours = [connection for connection, _ in pipes]
    for connection in ours:
        connection.recv()
    for connection in ours:
        connection.send("measure")
    grown = [connection.recv() / 1e6 for connection in ours]
    for connection in ours:
        connection.send("end")
    for process in processes:
        process.join()
    return grown


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="zcd-bench-") as folder:
        path = Path(folder) / "rows.zcd"
        write_rows(path, options.rows)
        times = [time_open(path) for _ in range(options.repeats)]
        grown = growth(path, options.workers)

    opened = estimate([first for first, _ in times])
    read = estimate([second for _, second in times])
    least, most = min(grown), max(grown)
    print(f"{machine.cpu_model()}, {options.rows:,} rows, {options.workers} workers")
    for text, time in (("zcd.open", opened), ("and the last row", read)):
        print(f"{text:<22}{1e3 * time.median:8.1f} ms  ({1e3 * time.low:.1f} to {1e3 * time.high:.1f})")
    print(f"private memory grows  {most:8.1f} MB  (the most of the workers; the least {least:.1f})")
    if options.json is not None:
        report = {
            "benchmark": "open-rows",
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "results": [
                {"loader": "zcd", "workload": "open", "unit": "s", **vars(opened)},
                {"loader": "zcd", "workload": "open-and-read", "unit": "s", **vars(read)},
                {"loader": "zcd", "workload": "walk", "unit": "MB", "growth": grown},
            ],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    holds = read.median < OPEN_CLAIM_S and most < GROWTH_CLAIM_MB
    print(f"{'holds' if holds else 'FAILS'}: under {OPEN_CLAIM_S} s, and under {GROWTH_CLAIM_MB:g} MB each")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

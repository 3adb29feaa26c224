"""Staging on the simulated device: how far copies overlap compute, and random training loops that look for torn data.

    tools/dev run python benchmarks/staging.py                      the step times, in simulated and in real time
    tools/dev run python benchmarks/staging.py --schedules 10000    the random loops (about 3 minutes on two cores)

The device is simulated (tests/support/simulated_device): its bus and its kernels take the time that they are told to.
So the figures say what order the copies and waits are in, not how fast a GPU is; tools/gpu_check measures that one.
Exits with 1 when a step takes more than 3 % over the longer of copy and compute in simulated time, more than 15 % in
real time, or when any loop has a problem.

Measured on 2026-12-03, two cores of a shared machine: 10,000 random loops, none with a problem (157 s). A step takes
1.000 times the longer of copy and compute in simulated time, for copies of a tenth to ten times the compute, with
ordinary and static batches; the loop by hand takes the sum. In real time, with a worker process, also 1.000 times
(20 ms, for 20 and 20, 10 and 20, 20 and 10 ms of copy and compute; medians of five epochs); the loop by hand takes
46.5, 38.5 and 37.0 ms.
"""

import argparse
import gc
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from simulated_device import Machine, WallClock, simulated, why_not
from staging_schedules import Schedule, run
from staging_steps import RATIOS, Step, serial, staged

import zerocopy_data as zcd

_BATCH = 64
_IMAGE = (3, 64, 64)


class Photos(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Cheap samples: a worker makes a batch in far less time than a step takes."""

    def __len__(self) -> int:
        return 30 * _BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(_IMAGE, index % 251, dtype=torch.uint8)


def simulated_time(table: Table) -> bool:
    """Adds the rows of the virtual clock."""
    good = True
    for ratio in RATIOS:
        step = Step(ratio * 1e-3, 1e-3)
        longer, both = max(step.copy, step.compute), serial(step)
        for static in (False, True):
            taken = staged(step, static)
            good &= taken < 1.03 * longer
            _row(table, "simulated", static, step, taken, both)
    return good


def _epoch(loader: Iterator[torch.Tensor], machine: Machine, compute: float, by_hand: bool) -> float:
    """Mean seconds per step from the sixth on."""
    ends = []
    for batch in loader:
        if by_hand:
            batch = batch.to("sim")
        ends.append(machine.work(compute, reads=(batch,)))
        if by_hand:
            machine.synchronize(0)
    machine.synchronize(0)
    return (ends[-1].finished - ends[5].finished) / (len(ends) - 6)


def real_time(table: Table, repeats: int) -> bool:
    """Adds the rows of the wall clock: a DataLoader with a worker process, whose batches really are made meanwhile."""
    good = True
    size = _BATCH * int(torch.tensor(_IMAGE).prod())
    for copy, compute in ((0.02, 0.02), (0.01, 0.02), (0.02, 0.01)):
        taken: dict[str, list[float]] = {"ordinary": [], "static": [], "serial": []}
        with simulated(Machine(h2d=size / copy, latency=0.0, check=False, clock=WallClock())) as machine:
            for _ in range(repeats):
                for name, times in taken.items():
                    asked = {} if name == "serial" else {"device": "sim:0", "static": name == "static"}
                    with_worker = zcd.DataLoader(Photos(), _BATCH, num_workers=1, **asked)
                    times.append(_epoch(iter(with_worker), machine, compute, name == "serial"))
                    del with_worker
                    gc.collect()
        middle = {name: statistics.median(times) for name, times in taken.items()}
        for static in (False, True):
            value = middle["static" if static else "ordinary"]
            good &= value < 1.15 * max(copy, compute)
            _row(table, "real", static, Step(copy, compute), value, middle["serial"])
    return good


def _row(table: Table, clock: str, static: bool, step: Step, taken: float, both: float) -> None:
    table.add_row(
        clock,
        "static" if static else "ordinary",
        *(f"{1e3 * seconds:.2f}" for seconds in (step.copy, step.compute, taken, both)),
        f"{taken / max(step.copy, step.compute):.3f}",
        f"{both / taken:.2f}",
    )


def _problems(seeds: range) -> list[tuple[int, list[str]]]:
    torch.set_num_threads(1)
    gc.freeze()  # each loop ends with a full collection
    found = ((seed, run(Schedule.draw(seed))) for seed in seeds)
    return [(seed, problems) for seed, problems in found if problems]


def random_loops(count: int, first: int, console: Console) -> bool:
    """Runs so many random training loops; prints those with a problem."""
    start = time.perf_counter()
    parts = [range(i, min(i + 50, first + count)) for i in range(first, first + count, 50)]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        done = track(pool.imap(_problems, parts), "random loops", len(parts), console=console)
        bad = [found for part in done for found in part]
    for seed, problems in bad:
        console.print(f"seed {seed}: {'; '.join(problems)}")
    console.print(
        f"{count} random training loops, seeds {first} to {first + count - 1}: {len(bad)} with a problem "
        f"({time.perf_counter() - start:.0f} s)"
    )
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=0, metavar="N", help="random training loops to run instead")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="seed of the first of them (default: 0)")
    parser.add_argument("--repeats", type=int, default=5, help="epochs of each kind in real time (default: 5; 0: none)")
    arguments = parser.parse_args()
    console = Console()
    if (reason := why_not()) is not None:
        print(f"no simulated device: {reason}", file=sys.stderr)
        return 2
    if arguments.schedules:
        return 0 if random_loops(arguments.schedules, arguments.first, console) else 1
    table = Table(
        "clock", "batches", "copy ms", "compute ms", "step ms", "loop by hand ms", "over the longer", "speed-up"
    )
    good = simulated_time(table)
    if arguments.repeats:
        good &= real_time(table, arguments.repeats)
    Console(width=max(console.width, 100)).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""How fast do batches travel from worker processes, beside torch's DataLoader, from 1 KB to 150 MB?

    tools/dev run python benchmarks/batches.py [--repeats 5] [--seconds 1] [--json FILE] [--plot FILE.png]

The dataset gives the same tensor again and again, so that nothing but making and moving batches is measured:
default collation, `persistent_workers=True`, every batch dropped before the next. Both classes run the same
script in processes of their own, taking turns. A batch of one sample of 1 KB measures latency: the fixed cost
of a message.

Memory is measured twice. The peak PSS of the loader's process and its workers, while batches are taken as fast as
they come; PSS leaves out what no process has mapped, such as batches that wait in torch's queue. And with pauses: the
consumer takes 1.2 times as long for a batch as the slower loader, as a training step does, so that all that may be
prefetched is; that figure counts shared memory whoever has mapped it (see `PeakMemory`).

Measured 2026-12-01 on two cores of an AMD EPYC, five rounds (results/batches.json; the plot is results/batches.png):

    batch   workers  times torch         ms a batch, torch's  PSS, torch's       with pauses, torch's (MB)
    1 KB    1        4.03 [3.81-4.32]      0.62    2.47         750     748        750     748
    1 KB    2        4.22 [4.21-5.34]      0.64    3.32       1,032   1,028        992   1,000
    64 KB   1        4.45 [3.73-6.15]      0.96    4.66         661     659        691     695
    64 KB   2        5.60 [3.31-10.60]     0.91    4.68       1,068   1,064      1,069   1,065
    1 MB    1        4.30 [4.01-6.26]      1.01    4.39         754     749        755     752
    1 MB    2        3.87 [3.65-4.82]      1.15    4.52       1,074   1,065      1,074   1,070
    8 MB    1        5.99 [4.86-6.44]      2.41   14.31         776     756        784     790
    8 MB    2        6.15 [5.36-6.52]      2.72   16.04       1,118   1,079      1,118   1,115
    39 MB   1        6.22 [5.70-6.63]      8.11   49.16         867     787        906     903
    39 MB   2        6.23 [5.67-7.64]      5.69   39.50       1,300   1,142      1,300   1,317
    150 MB  1        7.30 [5.77-7.54]     27.22  198.71       1,214     903      1,214   1,358
    150 MB  2        7.38 [6.76-8.27]     17.85  128.20       1,980   1,373      1,994   1,836

The claims of speed hold. That of memory does not from 8 MB on: a worker keeps its slots, three of them, mapped,
torch's batches are freed. In use with pauses it is the same memory, but for one batch of 150 MB with two workers: a
slot belongs to one worker, and the one that has a free slot is not always the one whose turn it is.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from zerocopy_data.tuning import machine
from zerocopy_data.tuning.harness import Arm, Plan, Result, measure, peak_memory, ratio

# Name, shape of a float32 sample, samples a batch, samples an epoch.
SIZES: tuple[tuple[str, tuple[int, ...], int, int], ...] = (
    ("1 KB", (256,), 1, 1000),
    ("64 KB", (1024,), 16, 8_000),
    ("1 MB", (8192,), 32, 4_000),
    ("8 MB", (65_536,), 32, 2_000),
    ("39 MB", (3, 224, 224), 64, 1_280),
    ("150 MB", (3, 224, 224), 256, 2_560),
)
WORKERS = (1, 2)
# What the project promises: the ratio to torch at each size.
CLAIMS = {"150 MB": 5.0, "8 MB": 1.5}
FLOOR = 0.95
# Processes of equal make differ by this much from run to run.
TOLERANCE = 1.02


class Same(Dataset[Any]):
    """The same tensor for every row, and its number."""

    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        self.sample = torch.rand(shape)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.sample, index


class LoaderRunner:
    """A loader; an epoch checks that every row came."""

    def __init__(
        self, ours: bool, shape: tuple[int, ...], batch_size: int, length: int, workers: int, step: float = 0
    ) -> None:
        if ours:
            from zerocopy_data import DataLoader
        else:
            from torch.utils.data import DataLoader  # type: ignore[assignment]
        self.length = length
        self.step = step
        self.loader = DataLoader(
            Same(shape, length), batch_size=batch_size, num_workers=workers, persistent_workers=True
        )

    def epoch(self) -> int:
        """One pass."""
        rows = last = 0
        for samples, numbers in self.loader:
            rows += len(samples)
            last = int(numbers[-1])
            if self.step:
                time.sleep(self.step)
        if rows != self.length or last != self.length - 1:
            raise AssertionError(f"{rows} rows came, the last was {last}, not {self.length - 1}")
        return rows


def arms(name: str, shape: tuple[int, ...], batch_size: int, length: int, workers: int, step: float = 0) -> list[Arm]:
    """Both loaders on one size. `step` is the pause after each batch, in seconds."""
    workload = f"{name}, {workers} workers"
    return [
        Arm(loader, workload, LoaderRunner, (loader == "zcd", shape, batch_size, length, workers, step))
        for loader in ("zcd", "torch")
    ]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="", help="comma-separated, such as '150 MB,8 MB'; default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="least time of one measurement")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--plot", type=Path, default=None, help="PNG or SVG; needs matplotlib")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.sizes.split(",") if part.strip()]
    plan = Plan(options.repeats, options.seconds)
    rows: list[tuple[str, int, int, Result, Result]] = []
    failed = False
    for name, shape, batch_size, length in SIZES:
        if wanted and name not in wanted:
            continue
        for workers in WORKERS:
            ours, theirs = measure(
                arms(name, shape, batch_size, length, workers),
                plan,
                lambda message: print(f"\r\033[K{message}", end="", file=sys.stderr, flush=True),
            )
            times = ratio(ours, theirs)
            seconds = [batch_size / torch.tensor(result.rates).median().item() for result in (ours, theirs)]
            shape_of = name, shape, batch_size, min(length, 100 * batch_size), workers
            # Slower than either loader, as a training step is: what was prefetched waits, whoever made it.
            paused = [peak_memory(arm, plan).peak_footprint_bytes for arm in arms(*shape_of, 1.2 * max(seconds))]
            verdict = "holds" if times.median >= CLAIMS.get(name, FLOOR) else "FAILS"
            pss = [result.peak_pss_bytes for result in (ours, theirs)]
            more = [what for what, (mine, other) in (("PSS", pss), ("memory", paused)) if mine > TOLERANCE * other]
            if more:
                verdict += f", more {' and '.join(more)} than torch"
            failed |= verdict != "holds"
            print(
                f"\r\033[K{name:>17}, {workers} workers: {times.median:6.2f}x torch "
                f"({times.low:.2f} to {times.high:.2f}); "
                f"a batch every {1000 * seconds[0]:.3f} ms, torch {1000 * seconds[1]:.3f} ms; "
                f"peak PSS {pss[0] / 1e6:,.0f} MB, torch {pss[1] / 1e6:,.0f} MB; "
                f"memory with pauses {paused[0] / 1e6:,.0f} MB, torch {paused[1] / 1e6:,.0f} MB; "
                f"at least {CLAIMS.get(name, FLOOR)}x: {verdict}",
                flush=True,
            )
            bytes_per_batch = 4 * batch_size * torch.Size(shape).numel()
            rows.append((name, bytes_per_batch, workers, ours, theirs))
    if options.json is not None:
        report = {
            "benchmark": "batches",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "results": [result.as_json() for *_, ours, theirs in rows for result in (ours, theirs)],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.plot is not None:
        plot(rows, options.plot)
    return 1 if failed else 0


def plot(rows: list[tuple[str, int, int, Result, Result]], path: Path) -> None:
    """Bytes per second over the size of a batch, both axes logarithmic."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("The plot needs matplotlib: pip install matplotlib (the JSON, if asked for, has been written).")
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for workers, style in zip(WORKERS, ("-", "--"), strict=True):
        for label, place, colour in (("zerocopy_data", 3, "tab:blue"), ("torch", 4, "tab:orange")):
            chosen = [row for row in rows if row[2] == workers]
            sizes = [row[1] for row in chosen]
            speeds: list[list[float]] = [[], [], []]
            for row in chosen:
                result = row[place]
                assert isinstance(result, Result)
                entry = result.as_json()
                share = row[1] / (result.arm.arguments[2] * 1e9)
                for values, key in zip(speeds, ("items_per_s", "low", "high"), strict=True):
                    values.append(entry[key] * share)
            axes.plot(
                sizes,
                speeds[0],
                style,
                color=colour,
                marker="o",
                label=f"{label}, {workers} worker{'s' * (workers > 1)}",
            )
            axes.fill_between(sizes, speeds[1], speeds[2], color=colour, alpha=0.15)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="bytes a batch",
        ylabel="GB/s delivered",
        title="Batches from worker processes (medians, 95% intervals)",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())

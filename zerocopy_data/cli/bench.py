"""`zcd bench`: loaders measured side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..tuning.images import Report
    from ..tuning.report import WorkloadReport

app = typer.Typer(help="Measure loaders side by side, on this machine.", no_args_is_help=True)

DEFAULT_PEERS = "zcd-native,torch,torchvision-decode,dali"
TABLE_WIDTH = 100
DEFAULT_WORKLOADS = "train-uint8,train-float32,eval-uint8"


@app.callback()
def _bench() -> None:
    """Measure loaders side by side, on this machine."""


def _names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@app.command()
def images(
    data: Annotated[Path, typer.Option(help="A folder of JPEGs, one folder per class.")],
    peers: Annotated[str, typer.Option(help="Loaders to measure beside zcd.")] = DEFAULT_PEERS,
    workloads: Annotated[
        str, typer.Option(help="Also: raw256-crop, raw256-rrc (decoded pixels in the shards).")
    ] = DEFAULT_WORKLOADS,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Decoding threads, or worker processes.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds in which every loader has its turn.")] = 5,
    seconds: Annotated[float, typer.Option(min=0, help="Least time of one measurement.")] = 2.0,
    epoch_items: Annotated[
        int,
        typer.Option(
            min=1,
            help="Images an epoch has at least: a smaller folder is gone over several times, so that start and "
            "end of an epoch don't count. Lower it for a quick look.",
        ),
    ] = 2000,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only this many images.")] = None,
    pin: Annotated[bool, typer.Option(help="Bind each loader to as many cores as threads.")] = True,
    scratch: Annotated[Path | None, typer.Option(help="Where the packed copy lies while this runs.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
) -> None:
    """Measure image loaders on a folder: decoding, augmenting, batching.

    Each loader runs in its own process; they take turns, round after round. A measurement is an epoch that is
    thrown away, then whole epochs until --seconds have passed. The figure is the median over the rounds, the
    interval its order statistics (95 %; with five rounds the smallest and the largest, 93.8 %).
    """
    from ..tuning.harness import Plan
    from ..tuning.images import Request, bench_images

    request = Request(
        data=data,
        loaders=tuple(dict.fromkeys(("zcd", *_names(peers)))),
        workloads=_names(workloads),
        batch_size=batch_size,
        threads=threads,
        epoch_items=epoch_items,
        limit=limit,
        scratch=scratch,
    )
    plan = Plan(repeats, seconds, threads if pin else None)
    _run(lambda progress: bench_images(request, plan, progress), json_file)


@app.command()
def arrays(
    peers: Annotated[str, typer.Option(help="What to measure beside zcd.")] = "zcd-unchecked,torch,indexing",
    rows: Annotated[int, typer.Option(min=1, help="Rows of an epoch.")] = 50_000,
    row_bytes: Annotated[int, typer.Option(min=1, help="uint8 values of a row.")] = 3072,
    batch_size: Annotated[int, typer.Option(min=1)] = 512,
    threads: Annotated[int, typer.Option(min=0, help="Threads, or torch's worker processes; 0: none.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds in which every loader has its turn.")] = 5,
    seconds: Annotated[float, typer.Option(min=0, help="Least time of one measurement.")] = 1.0,
    scratch: Annotated[Path | None, typer.Option(help="Where the packed rows lie while this runs.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
) -> None:
    """Measure shuffled batches of small rows of one size, such as pictures of 32 x 32 pixels.

    zcd reads packed shards and checks each row's checksum, zcd-unchecked does not; torch is its DataLoader over a
    TensorDataset in memory; indexing is no loader, but index_select by a random permutation.
    """
    from ..tuning.arrays import Request, bench_arrays
    from ..tuning.harness import Plan

    names = tuple(dict.fromkeys(("zcd", *_names(peers))))
    request = Request(names, rows, row_bytes, batch_size, threads, scratch)
    plan = Plan(repeats, seconds, max(threads, 1))
    _run(lambda progress: bench_arrays(request, plan, progress), json_file)


@app.command()
def tokens(
    peers: Annotated[str, typer.Option(help="What to measure beside zcd.")] = "torch,nanogpt,nanogpt-1-map",
    megabytes: Annotated[int, typer.Option(min=1, help="Size of the file of uint16 tokens, made for this.")] = 400,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a window.")] = 2048,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    threads: Annotated[int, typer.Option(min=0, help="Threads, or torch's worker processes; 0: none.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds in which every loader has its turn.")] = 5,
    seconds: Annotated[float, typer.Option(min=0, help="Least time of one measurement.")] = 1.0,
    scratch: Annotated[Path | None, typer.Option(help="Where the file lies while this runs.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
) -> None:
    """Measure next-token pairs, int64, out of a flat file of tokens in the page cache.

    torch is its DataLoader over slices of one memmap, nanogpt its training loop (a new memmap a batch), nanogpt-1-map
    the same with one memmap. Moved: bytes that each one's code reads and writes for a byte that it delivers.
    """
    from ..tuning.harness import Plan
    from ..tuning.tokens import Request, bench_tokens

    names = tuple(dict.fromkeys(("zcd", *_names(peers))))
    request = Request(names, megabytes, length, batch_size, threads, scratch)
    plan = Plan(repeats, seconds, max(threads, 1))
    _run(lambda progress: bench_tokens(request, plan, progress), json_file)


def _run(bench: Callable[[Callable[[str], None]], Report | WorkloadReport], json_file: Path | None) -> None:
    """Measures, saying what is under way, and prints and writes the report."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting") as status:
        report = bench(lambda text: status.update(Text(text)))
    print_report(report)
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n")


def print_report(report: Report | WorkloadReport) -> None:
    """The table, with zcd's ratio to each of the others."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ..tuning import machine
    from ..tuning.harness import ratio

    ours = {result.arm.workload: result for result in report.results if result.arm.loader == "zcd"}
    table = Table(title=report.title, box=box.SIMPLE)
    table.add_column("workload", no_wrap=True)
    table.add_column("loader", no_wrap=True)
    moved = ("moved",) if report.moved else ()
    counted = f"{report.unit}/s" if report.scale == 1 else f"M {report.unit}/s"
    for title in (counted, "low", "high", "CPU ms", "PSS MB", *moved, "zcd is"):
        table.add_column(title, justify="right", no_wrap=True)
    previous = None
    for result in report.results:
        arm = result.arm
        figures = result.as_json()
        if arm.workload != previous:
            table.add_section()
        faster = "" if arm.loader == "zcd" else f"{ratio(ours[arm.workload], result).median:.2f}x"
        table.add_row(
            arm.workload if arm.workload != previous else "",
            arm.loader,
            *(f"{figures[key] / report.scale:,.0f}" for key in ("items_per_s", "low", "high")),
            f"{figures['cpu_s_per_item'] * 1e3 * report.cpu_per:.2f}",
            f"{figures['peak_pss_mb']:,.0f}",
            *(f"{report.moved[arm.loader]:.2f}" for _ in moved),
            faster,
        )
        previous = arm.workload
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)  # narrower would cut figures, also in a pipe
    console.print(table)
    per = f"per {report.unit[:-1]}" if report.cpu_per == 1 else f"per {report.cpu_per:,} {report.unit}"
    console.print(f"CPU ms: CPU time of all processes {per}. PSS: peak memory. zcd is … times as fast.")
    if moved:
        console.print("Moved: bytes that a loader's code reads and writes for each byte that it delivers.")
    about = machine.describe()
    console.print(f"{about['cpu']}, {report.about}", markup=False)
    for loader, command in report.skipped.items():
        console.print(f"{loader} was left out, it is not installed: {command}", markup=False)

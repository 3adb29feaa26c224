"""The command: builds, runs the rows within a budget, prints the table and writes the JSON."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import report
from .report import Row

ROOT = Path(__file__).resolve().parents[2]
OK, FAILED, CANNOT = 0, 1, 2
_LEAST = 3.0  # seconds: with less left a row isn't begun

EPILOG = """
rows:
  build             the native core: as installed, or built without a network into build/gpu_check
  tests             tests/cuda with pytest
  bandwidth         host to device: from page-locked slots, against the bus and torch's pin_memory path
  overlap-balanced  copies beside work that takes as long as they do
  overlap-resnet50  a training step with DataLoader(device=), against its parts and a serial loop
  graph             a step captured over static batches and replayed for an epoch, against eager steps
  swap              tensors to host memory and back, alone and beside work
  normalize         the fused kernel against plain torch
  decode-cpu, decode-dali, decode-torchcodec
                    images a second of each decoder, on JPEGs that are made here

Each row runs in a process of its own with a limit of its own. One that crashes, takes too long or
lacks a library says so in the table, and the others go on. Nothing is downloaded.

exit status:
  0  every check holds (rows that lack a library are 'not available')
  1  a check failed, or a row crashed, took too long or did not fit into the budget
  2  nothing can be checked: no torch, no CUDA device, no native core
  130  stopped by Ctrl-C, after printing what there is

examples:
  tools/gpu_check                                  on a machine with a GPU: under four minutes
  tools/gpu_check --only bandwidth,decode-dali     some rows
  tools/gpu_check --device sim                     the same script on a simulated device: proves the script only
"""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="tools/gpu_check",
        description="Proves the device side of zerocopy_data on a fresh machine with torch and CUDA, without a "
        "network: builds the native core, runs tests/cuda, measures, prints one table and writes JSON.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, default=Path("gpu_check.json"), metavar="FILE",
                        help="where the figures go (default: %(default)s in the current folder)")  # fmt: skip
    parser.add_argument("--budget", type=float, default=230.0, metavar="SECONDS",
                        help="for everything together (default: %(default)g)")  # fmt: skip
    parser.add_argument("--only", default="", metavar="ROWS", help="names of rows, separated by commas")
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda",
                        help="'sim' checks this script on a simulated device, in simulated time")  # fmt: skip
    parser.add_argument("--tests", default="", metavar="EXPRESSION", help="which of tests/cuda: pytest's -k")
    parser.add_argument("--rebuild", action="store_true", help="builds the core even where it is installed")
    parser.add_argument("--plant", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


class Check:
    """One run of the script."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.end = time.monotonic() + options.budget
        self.machine: dict[str, Any] = {}
        self.rows: list[Row] = []

    def run(self) -> int:
        """Runs everything; returns the exit status."""
        from . import build, machine
        from .isolate import run_row
        from .rows import PLANTS, planned

        kind = self.options.device
        row, found = run_row("machine", functools.partial(machine.describe, kind), min(40, self.left), self.folder)
        self.machine = found.get("machine", {})
        if not self.machine:
            return self.cannot(f"the machine can't be looked at: {row.reason}")
        if kind == "cuda" and not self.machine["gpus"]:
            return self.cannot(
                "torch finds no CUDA device here. On a machine that has one: check nvidia-smi, and that torch is a "
                "build with CUDA. To try the script without one: tools/gpu_check --device sim"
            )
        rows = planned(kind, self.options.tests) + [PLANTS[name] for name in _names(self.options.plant)]
        wanted = _names(self.options.only)
        unknown = set(wanted) - {each.name for each in rows}
        if unknown:
            return self.cannot(f"--only: there is no row {', '.join(sorted(unknown))}; see --help")
        prepare = functools.partial(build.prepare, again=self.options.rebuild)
        row, found = run_row("build", prepare, min(100, self.left), self.folder)
        self.add(row)
        if row.status != "ok":
            return self.cannot(f"without the native core nothing can be checked: {row.reason}")
        if found.get("built"):
            build.use_build()
        for each in rows:
            if wanted and each.name not in wanted and not each.name.startswith("planted"):
                continue
            if self.left < _LEAST:
                reason = f"not run: the budget of {self.options.budget:g} s is used up"
                self.add(Row(each.name, "failed", reason))
                continue
            self.add(run_row(each.name, each.work, min(each.limit, self.left), self.folder)[0])
        report.write_json(self.options.json, self.machine, self.rows, complete=True)
        return FAILED if any(row.status == "failed" for row in self.rows) else OK

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return max(0.0, self.end - time.monotonic())

    def add(self, row: Row) -> None:
        """A row that is done: it is on the disk at once."""
        self.rows.append(row)
        report.write_json(self.options.json, self.machine, self.rows, complete=False)
        said = self.folder / f"{row.name}.txt"
        print(f"{row.name}: {row.status}{': ' + row.reason if row.reason else ''}", file=sys.stderr)
        if row.status == "failed" and said.exists():
            lines = said.read_text(errors="replace").splitlines()
            print("\n".join(f"    {line}" for line in lines[-25:]), file=sys.stderr)

    def cannot(self, reason: str) -> int:
        """Says why there is nothing to check."""
        print(f"gpu_check: {reason}", file=sys.stderr)
        return CANNOT

    def print(self) -> None:
        """The table."""
        if self.rows:
            from .machine import headline

            title = headline(self.machine)
            if self.options.device == "sim":
                title += " — SIMULATED: no figure here is a measurement of a device"
            report.print_table(title, self.rows, figures=self.options.device != "sim")
            print(f"written to {self.options.json.resolve()}")


def _names(listed: str) -> list[str]:
    return [name for name in listed.split(",") if name]


def main(arguments: list[str] | None = None) -> int:
    """See --help."""
    options = parse(arguments)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        import torch  # noqa: F401  # once, here: every row is a fork of this process
    except ImportError as error:
        own = ROOT / ".venv" / "bin" / "python"
        if own.exists() and Path(sys.prefix) != own.parents[1]:  # what tools/dev made has torch
            os.execv(
                own, [str(own), str(ROOT / "tools" / "gpu_check"), *(sys.argv[1:] if arguments is None else arguments)]
            )
        print(f"gpu_check: torch can't be imported with {sys.executable} ({error}). Run this with the Python that has "
              "it: PYTHON tools/gpu_check", file=sys.stderr)  # fmt: skip
        return CANNOT
    with tempfile.TemporaryDirectory(prefix="gpu_check.") as folder:
        check = Check(options, Path(folder))
        try:
            code = check.run()
        except KeyboardInterrupt:
            code = 130
        check.print()
    return code

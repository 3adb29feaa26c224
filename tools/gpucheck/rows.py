"""The rows, in the order in which they run: what matters most first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import bandwidth, decoding, graphs, kernels, overlap, suite, swapping
from .isolate import Work
from .report import NotAvailableError, Notes
from .target import Target, open_target


@dataclass(frozen=True)
class Planned:
    """A row to run.

    Attributes:
        name: Its name.
        limit: Seconds that it may take.
        work: What it does.
    """

    name: str
    limit: float
    work: Work


def planned(kind: str, tests: str) -> list[Planned]:
    """All rows for a kind of device.

    Args:
        kind: 'cuda' or 'sim'.
        tests: Which of tests/cuda, as pytest's -k takes it.
    """

    def on(check: Callable[[Target, Notes], None]) -> Work:
        def work(notes: Notes) -> None:
            with open_target(kind) as target:
                check(target, notes)

        return work

    rows = [
        Planned("tests", 75, lambda notes: suite.run_suite(notes, tests, kind == "cuda")),
        Planned("bandwidth", 40, on(bandwidth.measure)),
        Planned("overlap-balanced", 25, on(overlap.balance)),
        Planned("overlap-resnet50", 50, on(overlap.train)),
        Planned("graph", 30, on(graphs.replay)),
        Planned("swap", 25, on(swapping.swap)),
        Planned("normalize", 30, on(kernels.normalize)),
    ]
    for decoder in ("cpu", "Dali", "TorchCodec"):
        check = on(lambda target, notes, decoder=decoder: decoding.decode(target, notes, decoder))  # type: ignore[misc]
        rows.append(Planned(f"decode-{decoder.lower()}", 40, check))
    return rows


def _crash(notes: Notes) -> None:
    notes.measure("before the crash", 1, "thing")
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(notes: Notes) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notes.measure("before the hang", 1, "thing")
    if os.fork() == 0:  # what a row starts ends with it
        time.sleep(3600)
    time.sleep(3600)


def _fail(notes: Notes) -> None:
    notes.check("one is two", False)


def _raise(notes: Notes) -> None:
    raise ValueError("planted")


def _missing(notes: Notes) -> None:
    raise NotAvailableError("planted: no such library")


# For the test of this script: rows that go wrong.
PLANTS: dict[str, Planned] = {
    "crash": Planned("planted-crash", 10, _crash),
    "hang": Planned("planted-hang", 1, _hang),
    "fail": Planned("planted-fail", 10, _fail),
    "raise": Planned("planted-raise", 10, _raise),
    "missing": Planned("planted-missing", 10, _missing),
}

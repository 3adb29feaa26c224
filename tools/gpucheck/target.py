"""The device that is checked: CUDA, or the simulated one that stands for it where there is none."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .report import NotAvailableError

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"


class Target:
    """A CUDA device.

    Attributes:
        device: Its name for torch.
        small: Whether sizes are kept small: figures then mean nothing.
    """

    device = "cuda:0"
    small = False

    def __init__(self) -> None:
        self.module: Any = torch.cuda

    def now(self) -> float:
        """Seconds, when the device has done everything."""
        torch.cuda.synchronize()
        return time.perf_counter()

    def address(self, tensor: torch.Tensor) -> int:
        """Where a tensor lies."""
        return tensor.data_ptr()

    def pinned(self, size: int) -> torch.Tensor:
        """Page-locked memory, as torch makes it: uint8 [size]."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a training loop writes."""
        return tensor.to(self.device, non_blocking=True)

    def worker(self, seconds: float) -> Callable[[torch.Tensor], None]:
        """Makes what keeps the device busy for about so long, whatever it is given."""
        a = torch.randn(2048, 2048, device=self.device, dtype=torch.bfloat16)
        b = torch.empty_like(a)
        for _ in range(5):
            torch.mm(a, a, out=b)
        start = self.now()
        for _ in range(50):
            torch.mm(a, a, out=b)
        count = max(1, round(seconds / ((self.now() - start) / 50)))

        def work(_: torch.Tensor) -> None:
            for _ in range(count):
                torch.mm(a, a, out=b)

        return work

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Runs work, then captures it; gives what replays it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()  # libraries make their workspaces now, not during the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


class Simulated(Target):
    """torch device "sim", in simulated time."""

    device = "sim:0"
    small = True

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.module = torch.get_device_module("sim")

    def now(self) -> float:
        self.module.synchronize()
        return float(self.machine.clock.now())

    def address(self, tensor: Any) -> int:
        return int(tensor.address())

    def pinned(self, size: int) -> torch.Tensor:
        from zerocopy_data.device.accelerator import accelerator_for

        return accelerator_for(self.device).pinned_empty(size)

    def worker(self, seconds: float) -> Callable[[torch.Tensor], None]:
        return lambda tensor: self.machine.work(seconds, reads=(tensor,)) and None

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        with self.machine.capturing():
            work()
        return work


@contextmanager
def open_target(kind: str) -> Iterator[Target]:
    """The device, in this process."""
    if kind == "cuda":
        torch.cuda.set_device(0)
        torch.backends.cudnn.benchmark = False
        yield Target()
        torch.cuda.synchronize()
        return
    sys.path.insert(0, str(SUPPORT))
    from simulated_device import Machine, simulated, why_not

    if why_not() is not None:
        raise NotAvailableError(str(why_not()))
    torch.set_num_threads(1)
    machine = Machine(h2d=20e9, d2h=20e9)
    with simulated(machine):
        yield Simulated(machine)
        machine.synchronize(0)
    if machine.faults:
        raise AssertionError(f"on a device this gives wrong data: {machine.faults[0]}")


def seconds_of(target: Target, work: Callable[[], Any], rounds: int = 3) -> float:
    """The least time that some rounds of work take, after one to warm up."""
    work()
    best = float("inf")
    for _ in range(rounds):
        start = target.now()
        work()
        best = min(best, target.now() - start)
    return best


def drop(iterator: Any) -> None:
    """Ends an iterator that may have no `close`."""
    with contextlib.suppress(AttributeError):
        iterator.close()

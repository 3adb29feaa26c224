"""A device as the cases use it: what torch's generic API has no word for."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from zerocopy_data.device.accelerator import Cuda
from zerocopy_data.memory import blocks


class Handle(Protocol):
    """One device."""

    name: str
    module: Any

    def address(self, tensor: torch.Tensor) -> int:
        """Where a tensor lies."""

    def busy(self, batch_tensors: tuple[torch.Tensor, ...] = ()) -> None:
        """Queues some milliseconds of work that reads these."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Captures work in a graph; gives what replays it."""

    def capturing(self) -> Any:
        """Context: the current stream is being captured, into a graph that is thrown away."""

    def locked(self) -> dict[int, int]:
        """Memory that was page-locked through the library and still is: address to size."""

    def is_locked(self, address: int, size: int) -> bool:
        """Whether the driver says so too."""


class SimulatedHandle:
    """torch device "sim"."""

    name = "sim:0"

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.module: Any = torch.get_device_module("sim")

    def address(self, tensor: Any) -> int:
        return int(tensor.address())

    def busy(self, batch_tensors: tuple[torch.Tensor, ...] = ()) -> None:
        self.machine.work(5e-3, reads=batch_tensors)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        with self.machine.capturing():
            work()
        return work  # it reads and writes the memory that it did then

    def capturing(self) -> Any:
        return self.machine.capturing()

    def locked(self) -> dict[int, int]:
        return dict(self.machine.pinned)

    def is_locked(self, address: int, size: int) -> bool:
        return bool(self.machine.is_pinned(address, size))


class CudaHandle:
    """A CUDA device. What is locked is counted where the library asks the driver for it."""

    name = "cuda:0"

    def __init__(self) -> None:
        self.module: Any = torch.cuda
        self._locked: dict[int, int] = {}

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr()

    def busy(self, batch_tensors: tuple[torch.Tensor, ...] = ()) -> None:
        torch.cuda._sleep(5_000_000)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()  # what is made at the first call must not become part of the graph
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    @contextmanager
    def capturing(self) -> Iterator[None]:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            yield

    def locked(self) -> dict[int, int]:
        return dict(self._locked)

    def is_locked(self, address: int, size: int) -> bool:
        memory = (ctypes.c_ubyte * size).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8).is_pinned()

    @contextmanager
    def watching(self) -> Iterator[None]:
        pin, unpin, locked = Cuda.pin, Cuda.unpin, self._locked

        def watched_pin(accelerator: Cuda, address: int, size: int) -> bool:
            done = pin(accelerator, address, size)
            if done:
                locked[address] = size
            return done

        def watched_unpin(accelerator: Cuda, address: int) -> None:
            unpin(accelerator, address)
            locked.pop(address, None)

        Cuda.pin, Cuda.unpin = watched_pin, watched_unpin  # type: ignore[method-assign]
        try:
            yield
        finally:
            Cuda.pin, Cuda.unpin = pin, unpin  # type: ignore[method-assign]


def locked_slots() -> list[tuple[int, int]]:
    """Address and size of every slot that its block takes for page-locked."""
    found = [reference() for reference in blocks._blocks.valuerefs()]
    return [(block.address, block.size) for block in found if block is not None and block._pinner is not None]


@contextmanager
def open_handle(kind: str) -> Iterator[Any]:
    """A handle on 'cuda', or on a simulated machine in which nothing may go wrong that a device would punish."""
    if kind == "cuda":
        handle = CudaHandle()
        with handle.watching():
            yield handle
            torch.cuda.synchronize()
        return
    from simulated_device import Machine, simulated

    machine = Machine(devices=2, h2d=1e9, rng=random.Random(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its operations are tiny: waking a second thread takes longer than they do
    try:
        with simulated(machine):
            yield SimulatedHandle(machine)
            machine.synchronize(0)
    finally:
        torch.set_num_threads(threads)
    assert not machine.faults, f"on a device this gives wrong data: {machine.faults}"

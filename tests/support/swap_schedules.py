"""Random programs over a swap pool on the simulated device, and what must hold in every one of them."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from simulated_device import Machine, simulated

from zerocopy_data.device.memory import HostReading, SwapPool


@dataclass
class FakeHost:
    """Host memory as a test sets it."""

    free: int = 1 << 40

    def read(self) -> HostReading:
        return HostReading(self.free, 1 << 40, "a trace")


@dataclass
class FakeDevice:
    """Free device memory as a test sets it."""

    free: int = 1 << 40

    def read(self) -> FakeDevice:
        return self


def run(seed: int, make_pool: Callable[..., Any] = SwapPool, steps: int = 40) -> list[str]:
    """Runs a program. Returns what went wrong: lost writes, missing order, memory that is still taken at the end."""
    rng = random.Random(seed)
    machine = Machine(
        h2d=rng.choice([1e5, 1e6, 1e8]),
        d2h=rng.choice([1e5, 1e6, 1e8]),
        latency=rng.choice([0.0, 1e-4]),
        memory=rng.choice([1 << 40, 16 << 10]),
        bandwidth=1e7,
        rng=random.Random(seed),
    )
    problems: list[str] = []
    with simulated(machine):
        program = _Program(rng, machine, make_pool("sim", ahead=rng.randint(0, 4), host=FakeHost()))
        for _ in range(steps):
            program.step()
        problems += program.end()
        del program
        if machine.allocators[0].allocated or machine.pinned:
            gc.collect()  # takes longer than the program
        if machine.allocators[0].allocated:
            problems.append(f"{machine.allocators[0].allocated} bytes are still allocated")
        if machine.pinned:
            problems.append(f"{len(machine.pinned)} buffers are still page-locked")
    problems += sorted({f"{fault.kind}: {fault.text}" for fault in machine.faults})
    return problems


class _Program:
    """Adds 1 to tensors on one of two streams, which wait for one another as a user's must."""

    def __init__(self, rng: random.Random, machine: Machine, pool: Any) -> None:
        self.rng, self.machine, self.pool = rng, machine, pool
        self.module: Any = torch.get_device_module("sim")
        self.streams = [self.module.current_stream(), self.module.Stream(device="sim")]
        self.stream = self.streams[0]
        self.problems: list[str] = []
        self.kept: list[torch.Tensor] = []
        self.handles: list[Any] = []
        self.values: list[int] = []
        for _ in range(rng.randint(2, 6)):
            self._register()
        self.order = [rng.randrange(len(self.handles)) for _ in range(rng.randint(2, 8))]
        self.place = 0
        if rng.random() < 0.7:
            with pool.record():
                for number in self.order:
                    self._use(number)

    def step(self) -> None:
        rng = self.rng
        with self.module.stream(self.stream):
            draw = rng.random()
            if draw < 0.5:
                self._use(self.order[self.place % len(self.order)])
                self.place += 1
            elif draw < 0.6:
                self._use(rng.randrange(len(self.handles)))
            elif draw < 0.72:
                self.pool.relieve(rng.randint(1, 4096))
            elif draw < 0.8:
                self.pool.restore(rng.randint(1, 4096))
            elif draw < 0.86:
                self.machine.host(rng.choice([1e-6, 1e-3, 1e-1]))
            elif draw < 0.9:
                rng.choice(self.handles).offload()
            elif draw < 0.94:
                self.kept = [] if self.kept else [rng.choice(self.handles).get()]
            elif draw < 0.97:
                self._switch()
            else:
                self._register()

    def _register(self) -> None:
        size = self.rng.choice([64, 128, 256, 512])
        stride = (2, 1) if self.rng.random() < 0.7 else (1, size)
        tensor = self._with_room(lambda: torch.empty_strided((size, 2), stride, device="sim").zero_())
        self.handles.append(self.pool.register(tensor))
        self.values.append(0)

    def _use(self, number: int) -> None:
        with self.handles[number] as tensor:
            tensor.add_(1)
            if self.rng.random() < 0.3:
                self.machine.work(self.rng.choice([1e-6, 1e-2]), reads=(tensor,))
        self.values[number] += 1
        state = self.pool.state()
        allowed = max(state.allowance or 1 << 60, max(h.bytes for h in self.handles))
        if not self.kept and state.resident > allowed:
            self.problems.append(f"{state.resident} bytes are there, {state.allowance} are allowed")

    def _with_room(self, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What a governor spares its user: make room by hand where the device is full."""
        try:
            return make()
        except torch.OutOfMemoryError:
            self.pool.relieve(1 << 20)
            self.module.synchronize()
            self.pool.pending()
            return make()

    def _switch(self) -> None:
        other = next(stream for stream in self.streams if stream is not self.stream)
        other.wait_stream(self.stream)
        self.stream = other

    def end(self) -> list[str]:
        self.kept = []
        got = []
        with self.module.stream(self.stream):
            for number, handle in enumerate(self.handles):
                with handle as tensor:
                    low, high = self._with_room(tensor.amin), self._with_room(tensor.amax)
                    got.append((number, low, high, tensor.stride()))
        self.module.synchronize()
        for number, low, high, stride in got:
            if (float(low.inner), float(high.inner)) != (self.values[number],) * 2:
                self.problems.append(f"tensor {number} holds {float(low.inner)} to {float(high.inner)}, "
                                     f"not {self.values[number]}")  # fmt: skip
            if stride != self.handles[number].layout.stride:
                self.problems.append(f"tensor {number} has strides {stride}")
        self.pool.close()
        self.module.synchronize()
        return self.problems

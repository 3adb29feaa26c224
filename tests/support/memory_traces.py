"""Training steps over swapped layers while other processes take and give back device memory, beside an oracle.

Used by tests and by benchmarks/device_memory.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from simulated_device import Machine, simulated
from swap_schedules import FakeHost

from zerocopy_data.device.memory import Governor, SwapPool, TorchMemory

LAYERS = 12
LAYER = 64 << 10  # bytes
TOTAL = 2 * LAYERS * LAYER  # bytes of device memory
LOW, HIGH = 2 * LAYER, 6 * LAYER


def order() -> list[int]:
    """The layers in the order of a training step: forwards, and backwards again."""
    return [*range(LAYERS), *reversed(range(LAYERS))]


def ramp(steps: int) -> list[int]:
    """Others take memory up to three quarters of the device, stay a while, and give it back."""
    top, edge = TOTAL * 3 // 4, steps // 3
    return [top * min(t, edge, steps - t) // edge for t in range(steps)]


def noise(steps: int, seed: int) -> list[int]:
    """Others hover so that free memory is about the low mark when all layers are there."""
    rng = random.Random(seed)
    about = TOTAL - LAYERS * LAYER - LOW
    return [about + rng.randint(-LAYER // 2, LAYER // 2) for _ in range(steps)]


def jumps(steps: int, seed: int) -> list[int]:
    """A neighbour that comes and goes at random, no faster than a layer a step."""
    rng = random.Random(seed)
    now, target, made = 0, 0, []
    for _ in range(steps):
        if rng.random() < 0.2:
            target = rng.choice([0, 1, 2, 3]) * TOTAL // 4
        now += max(-LAYER, min(LAYER, target - now))
        made.append(now)
    return made


@dataclass
class Outcome:
    """A run.

    Attributes:
        steps: How many were made: fewer than asked for where memory ran out.
        compute: Seconds of work; `elapsed` those that passed.
        moves: Copies in either direction.
        least_free: The fewest bytes that were free at the end of a step, memory that is leaving excluded.
        peak: Most bytes that the pool's process had given out.
        actions: Of the governor.
        room: Layers that may stay, by step.
        faults: Of the simulated device.
    """

    steps: int
    compute: float
    elapsed: float
    moves: int
    least_free: int
    peak: int
    actions: int
    room: list[int]
    faults: list[Any]

    @property
    def stall(self) -> float:
        """Seconds in which nothing was computed."""
        return self.elapsed - self.compute


def train(others: Sequence[int], *, governed: bool = True, recorded: bool = True, seconds: float = 1e-3) -> Outcome:
    """Trains for as many steps as there are numbers.

    Args:
        others: Bytes that other processes have in each step.
        governed: Whether a governor steps.
        recorded: Whether the first step is recorded.
        seconds: What a layer's work takes; a copy of a layer takes 0.66 ms.
    """
    machine = Machine(memory=TOTAL, h2d=1e8, d2h=1e8, latency=1e-5)
    with simulated(machine):
        module: Any = torch.get_device_module("sim")
        allocator = machine.allocators[0]
        pool = SwapPool("sim", host=FakeHost())
        handles = [pool.register(torch.zeros(LAYER, dtype=torch.uint8, device="sim")) for _ in range(LAYERS)]
        governor = Governor(low=LOW, high=HIGH, reliefs=[pool] if governed else [], source=TorchMemory("sim"))
        outcome = Outcome(0, 0.0, 0.0, 0, TOTAL, 0, 0, [], [])
        module.synchronize()
        begin = machine.clock.now()
        for number, taken in enumerate(others):
            allocator.other_processes = taken
            governor.step()
            free = allocator.total - taken - allocator.allocated
            if free + max(0, pool.pending()) < 0:
                break  # somebody gets no memory
            if recorded and number == 0:
                with pool.record():
                    _step(machine, handles, seconds)
            else:
                _step(machine, handles, seconds)
            module.synchronize()
            outcome.steps += 1
            outcome.compute += 2 * LAYERS * seconds
            pool.pending()
            outcome.least_free = min(outcome.least_free, allocator.total - taken - allocator.allocated)
            allowed = pool.state().allowance
            outcome.room.append(LAYERS if allowed is None else allowed // LAYER)
        outcome.elapsed = machine.clock.now() - begin
        state = pool.state()
        outcome.moves = state.out + state.home
        outcome.peak = allocator.peak
        outcome.actions = len(governor.log)
        pool.close()
        module.synchronize()
        outcome.faults = list(machine.faults)
    return outcome


def _step(machine: Machine, handles: Sequence[Any], seconds: float) -> None:
    for number in order():
        with handles[number] as layer:
            machine.work(seconds, reads=(layer,), writes=(layer,))
        del layer


def oracle(room: Iterable[int], seconds: float = 1e-3) -> float:
    """Seconds that no policy can do without, when so many layers may stay in each step.

    It knows the future: of layers of one size, Belady's rule (IBM Systems Journal 5, 1966) fetches fewest. Copies
    overlap work perfectly, so the time of a step is that of the work or of the copies, whichever is longer.
    """
    copy = LAYER / 1e8 + 1e-5
    steps = list(room)
    uses = order() * len(steps)
    later: list[int] = [len(uses)] * len(uses)
    seen: dict[int, int] = {}
    for at in reversed(range(len(uses))):
        later[at] = seen.get(uses[at], len(uses))
        seen[uses[at]] = at
    there = {layer: at for at, layer in enumerate(range(LAYERS))}  # layer → its next use
    at, total = 0, 0.0
    for most in steps:
        fetched = 0
        for _ in order():
            layer = uses[at]
            fetched += layer not in there
            there[layer] = later[at]
            while len(there) > max(1, most):
                del there[max((n, other) for other, n in there.items() if other != layer)[1]]
            at += 1
        total += max(2 * LAYERS * seconds, fetched * copy)
    return total

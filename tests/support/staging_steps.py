"""How long a training step takes on the simulated device: with staging, and in the loop that people write by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from device_batches import Slots
from simulated_device import Machine, Operation, simulated

from zerocopy_data.device.request import Staging
from zerocopy_data.device.staging import Stager
from zerocopy_data.loader.device_iterator import DeviceIterator

_BATCH = 64 << 10
_WARM = 8


@dataclass(frozen=True)
class Step:
    """What a step consists of, in seconds.

    Attributes:
        copy: Of the batch to the device.
        compute: On the device.
        host: Of the thread that trains: it makes the batch, or does whatever else keeps it from queueing.
        jitter: Share by which each of these varies from step to step.
    """

    copy: float
    compute: float
    host: float = 0.0
    jitter: float = 0.0

    def varied(self, seconds: float, rng: random.Random) -> float:
        return seconds * (1 + self.jitter * rng.uniform(-1, 1))


class _Batches:
    """Batches that are always ready, as those of a fast engine are."""

    def __init__(self, count: int, slots: Slots) -> None:
        self._left = count
        self._slots = slots

    def ready(self) -> bool:
        return self._left > 0

    def __next__(self) -> torch.Tensor:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._slots.holding(torch.zeros(_BATCH, dtype=torch.uint8))


def staged(step: Step, static: bool, buffers: int = 2, steps: int = 40) -> float:
    """Seconds from the end of one step's work to that of the next, the first few left out."""
    machine = Machine(h2d=_BATCH / step.copy, latency=0.0, bandwidth=1e15, launch=0.0)
    with simulated(machine):
        rng = random.Random(0)
        done: list[Operation] = []
        iterator = DeviceIterator(_Batches(steps, Slots(_BATCH)), Stager(Staging("sim:0", static, buffers)))
        for batch in iterator:
            done.append(machine.work(step.varied(step.compute, rng), reads=(batch,)))
            machine.host(step.varied(step.host, rng))
        machine.synchronize(0)
    assert machine.faults == []
    return _period(done)


def serial(step: Step, steps: int = 40) -> float:
    """The same of a loop that moves each batch with `.to(device)` and then computes."""
    machine = Machine(h2d=_BATCH / step.copy, latency=0.0, bandwidth=1e15, launch=0.0)
    with simulated(machine):
        rng = random.Random(0)
        done: list[Operation] = []
        batches = _Batches(steps, Slots(_BATCH))
        for _ in range(steps):
            batch = next(batches).to("sim")
            done.append(machine.work(step.varied(step.compute, rng), reads=(batch,)))
            machine.host(step.varied(step.host, rng))
        machine.synchronize(0)
    return _period(done)


def _period(done: list[Operation]) -> float:
    ends = [operation.finished for operation in done[_WARM:]]
    assert ends[0] is not None
    assert ends[-1] is not None
    return (ends[-1] - ends[0]) / (len(ends) - 1)


# Ratios of copy to compute from a bus that idles to one that limits.
RATIOS = (0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0)

"""Random training loops over the simulated device, and what must hold in every one of them."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from simulated_device import Machine, simulated

from zerocopy_data.device.request import Staging
from zerocopy_data.device.staging import Stager
from zerocopy_data.loader.device_iterator import DeviceIterator
from zerocopy_data.memory.arena import Arena

Problem = str


@dataclass(frozen=True)
class Schedule:
    """One training loop, drawn from a seed."""

    seed: int
    static: bool
    buffers: int
    epochs: int
    batches: int
    depth: int
    h2d: float
    latency: float

    @classmethod
    def draw(cls, seed: int) -> Schedule:
        rng = random.Random(seed)
        static = rng.random() < 0.5
        return cls(
            seed,
            static,
            rng.randint(2 if static else 1, 4),
            rng.randint(1, 2),
            rng.randint(1, 8),
            rng.randint(1, 3),
            rng.choice([1e5, 1e6, 1e7, 1e9]),
            rng.choice([0.0, 1e-5, 1e-3]),
        )


class Engine:
    """Batches in recycled slots, as an engine makes them: a slot that is free is written at once.

    Every value of batch i is i, whatever its shape.
    """

    def __init__(self, schedule: Schedule, arena: Arena, rng: random.Random, first: int) -> None:
        self._left = schedule.batches
        self._arena = arena
        self._rng = rng
        self._number = first
        self._depth = schedule.depth
        self._made: list[Any] = []
        self._fill()

    def _fill(self) -> None:
        while self._left and len(self._made) < self._depth:
            self._left -= 1
            count = self._rng.randint(1, 6)
            root = self._arena.lease()
            flat = np.frombuffer(root, np.uint8)
            flat[:] = self._number % 256  # all of it: what the slot held before is gone
            images = torch.frombuffer(root, dtype=torch.uint8, count=count * 12).view(count, 2, 2, 3)
            labels = torch.frombuffer(root, dtype=torch.uint8, count=count, offset=1024)
            batch = {"image": images.permute(0, 3, 1, 2), "rest": (labels, [f"batch {self._number}"])}
            self._made.append((batch, self._number))
            self._number += 1

    def ready(self) -> bool:
        return bool(self._made) and self._rng.random() < 0.8

    def __next__(self) -> Any:
        self._fill()
        if not self._made:
            raise StopIteration
        batch, _ = self._made.pop(0)
        self._fill()
        return batch


def run(schedule: Schedule, make_stager: Callable[[Staging], Any] = Stager) -> list[Problem]:
    """Runs the loop. Returns what went wrong: torn batches, missing order, memory still registered at the end."""
    rng = random.Random(schedule.seed + 1)
    machine = Machine(
        devices=2, h2d=schedule.h2d, latency=schedule.latency, bandwidth=1e7, rng=random.Random(schedule.seed)
    )
    problems: list[Problem] = []
    with simulated(machine):
        module = torch.get_device_module("sim")
        cast = {torch.uint8: torch.float32} if rng.random() < 0.5 else {}
        transform = None if rng.random() < 0.7 else (lambda batch: {**batch, "image": batch["image"] + 0})
        staging = Staging("sim:1", schedule.static, schedule.buffers, cast, transform=transform)
        with module.device(1):
            problems += _train(schedule, make_stager(staging), machine, module, rng)
        gc.collect()
        if machine.pinned:
            problems.append(f"{len(machine.pinned)} slots are still registered")
        if machine.touched != {1}:
            problems.append(f"devices {machine.touched} were touched")
        problems += sorted({fault.kind + ": " + fault.text for fault in machine.faults})
    return problems


def _train(schedule: Schedule, stager: Any, machine: Machine, module: Any, rng: random.Random) -> list[Problem]:
    arena = Arena(2048, 8, device=True)
    streams = [module.current_stream(), module.Stream(device="sim:1")]
    checks: list[tuple[int, torch.Tensor]] = []
    kept: list[tuple[int, Any]] = []
    addresses: dict[Any, list[int]] = {}
    number = 0
    for _ in range(schedule.epochs):
        engine = Engine(schedule, arena, rng, number)
        stop_at = rng.randint(1, schedule.batches) if rng.random() < 0.3 else None
        iterator = DeviceIterator(engine, stager)
        served = 0
        stream = rng.choice(streams)
        with module.stream(stream):
            for batch in iterator:
                _use(batch, number, machine, module, rng, checks, streams)
                if schedule.static:
                    addresses.setdefault(batch["image"].shape, []).append(batch["image"].address())
                elif rng.random() < 0.3:
                    kept.append((number, batch))
                number += 1
                served += 1
                if rng.random() < 0.2:
                    machine.host(rng.choice([1e-6, 1e-3]))
                if rng.random() < 0.1:
                    module.current_stream().synchronize()
                if served == stop_at:
                    break
        batch = None
        del iterator
        number += schedule.batches - served
        stager.drain()  # a loader's next epoch begins with it, whoever held the last iterator
        streams[0].wait_stream(streams[1])
        streams[1].wait_stream(streams[0])
    module.synchronize()
    problems = [f"batch {n} was torn: {got.inner.tolist()}" for n, got in checks if not _holds(got, n)]
    problems += [f"batch {n} changed while it was kept" for n, batch in kept if not _holds(batch["image"], n)]
    for shape, at in addresses.items():
        if len(set(at)) > schedule.buffers:
            problems.append(f"batches of shape {list(shape)} lay at {len(set(at))} addresses")
    return problems


def _use(
    batch: Any,
    number: int,
    machine: Machine,
    module: Any,
    rng: random.Random,
    checks: list[tuple[int, torch.Tensor]],
    streams: list[Any],
) -> None:
    images, (labels, names) = batch["image"], batch["rest"]
    assert names == [f"batch {number}"]
    machine.work(rng.choice([1e-6, 1e-4, 1e-2]), reads=(images, labels))
    checks.append((number, torch.stack([images.amin().float(), images.amax().float(), labels.amax().float()])))
    if rng.random() < 0.2:  # a stream of the user's own, which waits as it must, and is waited for
        current = module.current_stream()
        other = next(stream for stream in streams if stream is not current)
        other.wait_stream(current)
        with module.stream(other):
            machine.work(1e-3, reads=(images,))
        current.wait_stream(other)


def _holds(tensor: Any, number: int) -> bool:
    return bool((tensor.inner.float() == number % 256).all())

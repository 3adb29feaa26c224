"""How fast bytes cross the bus: from our slots, from torch's pinned memory, and through both loaders."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterable
from typing import Any

import torch

from .material import Floats
from .report import Notes
from .target import Target, drop, seconds_of


def measure(target: Target, notes: Notes) -> None:
    """The bus, the slots, the loaders."""
    size = (1 << 20) if target.small else (64 << 20)
    bus = _bus(target, size)
    notes.measure("bus: torch's pinned memory to the device", bus, "GB/s", f"{size >> 20} MiB a copy")
    slots, locked = _slots(target, size)
    notes.check("slots are page-locked, says the driver", locked)
    notes.measure("slots, as the loader stages them", slots, "GB/s", f"{slots / bus:.0%} of the bus")
    notes.check("slots reach 80% of the bus", slots >= 0.8 * bus)
    _loaders(target, notes)


def _bus(target: Target, size: int) -> float:
    host = target.pinned(size)
    there = torch.empty(size, dtype=torch.uint8, device=target.device)

    def copies() -> None:
        for _ in range(10):
            there.copy_(host, non_blocking=True)

    return 10 * size / seconds_of(target, copies) / 1e9


def _slots(target: Target, size: int) -> tuple[float, bool]:
    from zerocopy_data.device.request import Staging
    from zerocopy_data.device.staging import Stager
    from zerocopy_data.memory.arena import Arena
    from zerocopy_data.memory.blocks import block_of

    arena = Arena(size, 4, device=True)
    batches = [torch.frombuffer(arena.lease(), dtype=torch.uint8, count=size) for _ in range(4)]
    for batch in batches:
        batch.fill_(1)
    stager = Stager(Staging(target.device, static=True))

    def copies() -> None:
        for number in range(12):
            stager.put(batches[number % 4])
            stager.get()
            stager.release()

    rate = 12 * size / seconds_of(target, copies) / 1e9
    locked = all(_locked(target, batch, block_of(batch.data_ptr(), size)) for batch in batches)
    stager.drain()
    return rate, locked


def _locked(target: Target, batch: torch.Tensor, block: Any) -> bool:
    if block is None:
        return False
    if target.small:
        return bool(target.machine.is_pinned(block.address, block.size))  # type: ignore[attr-defined]
    memory = (ctypes.c_ubyte * batch.numel()).from_address(batch.data_ptr())
    return torch.frombuffer(memory, dtype=torch.uint8).is_pinned()


def _loaders(target: Target, notes: Notes) -> None:
    """Both loaders over rows that cost nothing to make, with four worker processes."""
    import zerocopy_data as zcd

    rows = Floats(32 if target.small else 3000, 5000 if target.small else 150_528)
    options: dict[str, Any] = {
        "batch_size": 4 if target.small else 64, "num_workers": 2 if target.small else 4, "persistent_workers": True,
    }  # fmt: skip
    size = len(rows) * rows.elements * 4

    def ours() -> Iterable[Any]:
        return iter(zcd_loader)

    zcd_loader = zcd.DataLoader(rows, **options, device=target.device)
    rate = size / _epoch(target, ours) / 1e9
    notes.measure("DataLoader(device=), worker processes", rate, "GB/s", "float32 rows, loader and copy")
    zcd_loader._iterator = None
    if target.small:
        return  # torch can't page-lock memory for the simulated device
    room, needed = shutil.disk_usage("/dev/shm").free, 10 * options["batch_size"] * rows.elements * 4
    if room < needed:
        notes.measure("torch's loader: not measured, its workers need room in /dev/shm", room >> 20, "MiB free")
        return
    torch_loader = torch.utils.data.DataLoader(rows, **options, pin_memory=True)
    theirs = size / _epoch(target, lambda: map(target.to_device, torch_loader)) / 1e9
    notes.measure("torch's DataLoader(pin_memory=True) and .to()", theirs, "GB/s", "the same rows")
    notes.measure("ours by torch's", rate / theirs, "x")


def _epoch(target: Target, batches: Any) -> float:
    """Seconds of an epoch, the second of two: workers have started by then."""

    def run() -> None:
        iterator = batches()
        for _ in iterator:
            pass
        drop(iterator)

    return seconds_of(target, run, rounds=1)

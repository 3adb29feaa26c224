"""Tensors to host memory and back, alone and beside work."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from .report import NotAvailableError, Notes
from .target import Target


def swap(target: Target, notes: Notes) -> None:
    """Bandwidth both ways, equal values, and what moving costs the work beside it."""
    try:
        make = importlib.import_module("zerocopy_data.device.memory").SwapPool
    except (ImportError, AttributeError) as error:
        raise NotAvailableError(f"this zerocopy_data has no SwapPool ({error})") from None
    count, size = (4, 1 << 18) if target.small else (16, 64 << 20)
    pool = make(target.device)
    handles = []
    for number in range(count):
        handles.append(pool.register(torch.full((size // 4,), float(number), device=target.device)))

    def out() -> None:
        pool.relieve(count * size)

    def back() -> None:
        pool.restore(count * size)
        for handle in handles:
            handle.get()

    out(), back()  # page-locked memory is made now
    seconds = {"out": 0.0, "in": 0.0}
    for name, move in (("out", out), ("in", back)):
        start = target.now()
        move()
        seconds[name] = target.now() - start
        notes.measure(
            f"{count} x {size >> 20 or size / 2**20:g} MiB {name}", count * size / seconds[name] / 1e9, "GB/s"
        )
    right = all(bool((handle.get() == number).all().cpu()) for number, handle in enumerate(handles))
    notes.check("every value is what it was", right)
    moving = seconds["out"] + seconds["in"]
    work = target.worker(moving)
    kept = torch.zeros(16, device=target.device)
    alone = _timed(target, lambda: work(kept))

    def both() -> None:
        out()
        work(kept)
        back()

    together = _timed(target, both)
    notes.measure("work alone", 1000 * alone, "ms")
    notes.measure("work beside moving", 1000 * together, "ms", f"moving alone {1000 * moving:.3g} ms")
    hidden = (alone + moving - together) / min(alone, moving)
    notes.measure("hidden of the shorter", 100 * hidden, "%")
    pool.close()


def _timed(target: Target, work: Any) -> float:
    start = target.now()
    work()
    return target.now() - start

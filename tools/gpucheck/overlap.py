"""Whether copies hide behind the work: on a training step, and where copying takes as long as computing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from .material import net, write_pixels
from .report import Notes
from .target import Target, drop


def train(target: Target, notes: Notes) -> None:
    """A ResNet-50 step with device=, and what it is made of."""
    import zerocopy_data as zcd

    size, side, steps = (4, 32, 4) if target.small else (256, 224, 12)
    workers = 2 if target.small else 8
    with tempfile.TemporaryDirectory() as folder:
        path = write_pixels(Path(folder), size * steps, side)
        dataset = zcd.open(path, transform={"image": [zcd.RandomHorizontalFlip(), zcd.Normalize()]})
        options: dict[str, Any] = {"batch_size": size, "num_workers": workers, "seed": 0, "drop_last": True}
        staged = zcd.DataLoader(dataset.as_tuple("image", "label"), **options, device=target.device)
        host = zcd.DataLoader(dataset.as_tuple("image", "label"), **options)
        name, step = _step(target, side)
        kept = next(iter(staged))
        per_step = {
            "compute only": _seconds(target, lambda: (kept for _ in range(steps)), step),
            "loading and copying only, device=": _seconds(target, lambda: iter(staged), _nothing),
            "device=": _seconds(target, lambda: iter(staged), step),
            "serial loop: load, .to(), compute": _seconds(target, lambda: map(_moved(target), host), step),
        }
    for what, seconds in per_step.items():
        notes.measure(f"{name}: {what}", 1000 * seconds / steps, "ms/step", f"{size * steps / seconds:,.0f} images/s")
    compute, loading, ours, _ = per_step.values()
    if target.small:
        return  # what a tiny net computes is less than what turns bytes into floats
    notes.check("the step with device= takes max(compute, loading) + 15% at most", ours <= 1.15 * max(compute, loading))


def balance(target: Target, notes: Notes) -> None:
    """Work that takes as long as the copies do: overlapped, half the time is saved."""
    from zerocopy_data.device.request import Staging
    from zerocopy_data.device.staging import Stager
    from zerocopy_data.memory.arena import Arena

    size, steps = (1 << 20, 10) if target.small else (128 << 20, 40)
    arena = Arena(size, 4, device=True)
    batches = [torch.frombuffer(arena.lease(), dtype=torch.uint8, count=size).fill_(1) for _ in range(4)]
    stager = Stager(Staging(target.device, static=True))

    def copied(ahead: bool) -> Any:
        for number in range(steps):
            stager.release()
            if not len(stager):
                stager.put(batches[number % 4])
            batch = stager.get()
            while ahead and number + len(stager) + 1 < steps and stager.room > 0:
                stager.put(batches[(number + len(stager) + 1) % 4])
            yield batch
        stager.release()

    copying = _seconds(target, lambda: copied(True), _nothing)
    work = target.worker(copying / steps)
    kept = torch.zeros(16, device=target.device)
    computing = _seconds(target, lambda: (kept for _ in range(steps)), work)
    both = _seconds(target, lambda: copied(True), work)

    def alone(batch: torch.Tensor) -> None:
        target.now()
        work(batch)
        target.now()

    serial = _seconds(target, lambda: copied(False), alone)
    stager.drain()
    figures = {"copies only": copying, "compute only": computing, "overlapped": both, "one after the other": serial}
    for what, seconds in figures.items():
        notes.measure(f"{size >> 20} MiB a step: {what}", 1000 * seconds / steps, "ms/step")
    share = (copying + computing - both) / min(copying, computing)
    notes.measure("hidden of the shorter", 100 * share, "%")
    notes.check("at least 80% of the shorter is hidden", share >= 0.8)


def _nothing(_: Any) -> None:
    pass


def _moved(target: Target) -> Callable[[Any], Any]:
    def move(batch: Any) -> Any:
        moved = [part.to(target.device) for part in batch]
        target.now()
        return moved

    return move


def _step(target: Target, side: int) -> tuple[str, Callable[[Any], None]]:
    torch.manual_seed(0)
    name, model = net(target.small)
    if target.small:
        model(torch.zeros(1, 3, side, side))  # gives the lazy layer its shape
    model = model.to(target.device)
    if not target.small:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def halves() -> AbstractContextManager[Any]:
        return nullcontext() if target.small else torch.autocast("cuda", torch.bfloat16)

    def step(batch: Any) -> None:
        images, labels = batch
        with halves():
            if target.small:
                loss = (model(images).float() - labels[:, None].float()).square().mean()
            else:
                loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return name, step


def _seconds(target: Target, batches: Callable[[], Any], step: Callable[[Any], None]) -> float:
    """Seconds of an epoch, the second of two."""
    seconds = 0.0
    for _ in range(2):
        start = target.now()
        iterator = batches()
        for batch in iterator:
            step(batch)
        drop(iterator)
        seconds = target.now() - start
    return seconds

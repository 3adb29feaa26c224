"""A training step captured once for each fixed address, and replayed over an epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .report import Notes
from .target import Target


class Rows(torch.utils.data.Dataset[Any]):
    """Random numbers, of the row's own."""

    def __init__(self, length: int, width: int) -> None:
        self.length, self.width = length, width

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.randn(self.width, generator=torch.Generator().manual_seed(index))
        return values, values[:8].sin()


class Trained:
    """A net of two layers that a step changes in place."""

    def __init__(self, target: Target, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        shapes = ((width, 64), (64, 8))
        self.weights = [
            (torch.randn(shape, generator=generator) / shape[0] ** 0.5).to(target.device).requires_grad_()
            for shape in shapes
        ]

    def step(self, values: torch.Tensor, wanted: torch.Tensor) -> None:
        """One step of gradient descent."""
        first, second = self.weights
        loss = ((values @ first).tanh() @ second - wanted).square().mean()
        slopes = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            for weight, slope in zip(self.weights, slopes, strict=True):
                weight.sub_(0.1 * slope)

    def save(self) -> list[torch.Tensor]:
        """The weights as they are."""
        return [weight.detach().clone() for weight in self.weights]

    def load(self, weights: list[torch.Tensor]) -> None:
        """The weights as they were."""
        with torch.no_grad():
            for weight, before in zip(self.weights, weights, strict=True):
                weight.copy_(before)


def replay(target: Target, notes: Notes) -> None:
    """Trains an epoch both ways and compares."""
    import zerocopy_data as zcd

    width, rows = (16, 48) if target.small else (4096, 64 * 64)
    options: dict[str, Any] = {"batch_size": 8 if target.small else 64, "num_workers": 2 if target.small else 4}
    eager, captured = Trained(target, width), Trained(target, width)
    steps = 0
    start = target.now()
    for values, wanted in zcd.DataLoader(Rows(rows, width), **options, device=target.device):
        eager.step(values, wanted)
        steps += 1
    seconds = target.now() - start
    notes.measure("eager, loading included", 1000 * seconds / steps, "ms/step")

    graphs: dict[int, Callable[[], None]] = {}
    loader = zcd.DataLoader(Rows(rows, width), **options, device=target.device, static=True)
    start = target.now()
    for values, wanted in loader:
        address = target.address(values)
        if address not in graphs:
            graphs[address] = _captured(target, captured, values, wanted)
        graphs[address]()
    seconds = target.now() - start
    notes.measure("replayed, loading and capture included", 1000 * seconds / steps, "ms/step")
    notes.check("batches lay at two addresses", len(graphs) == 2, f"{len(graphs)}")
    pairs = list(zip(eager.save(), captured.save(), strict=True))
    off = max(float((one - other).abs().amax().cpu()) for one, other in pairs)
    same = all(torch.allclose(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-6) for one, other in pairs)
    moved = float((captured.save()[0] - Trained(target, width).save()[0]).abs().amax().cpu())
    notes.check("the weights after the epoch are those of eager steps", same and moved > 0, f"largest gap {off:.1e}")


def _captured(target: Target, trained: Trained, values: torch.Tensor, wanted: torch.Tensor) -> Callable[[], None]:
    before = trained.save()
    replayed = target.capture(lambda: trained.step(values, wanted))
    trained.load(before)
    return replayed

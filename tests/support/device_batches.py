"""Batches in registered host memory and what must hold of them on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from zerocopy_data.device.trees import map_leaves
from zerocopy_data.memory.arena import Arena


class Slots:
    """Tensors in slots, as the engines make them."""

    def __init__(self, size: int = 1 << 16, count: int = 8) -> None:
        self.arena = Arena(size, count, device=True)

    def holding(self, values: torch.Tensor) -> torch.Tensor:
        """The same values in a slot of their own, which is free again when the tensor is gone."""
        values = values.contiguous()
        root = self.arena.lease()
        size = values.numel() * values.element_size()
        np.frombuffer(root, np.uint8)[:size] = values.view(-1).view(torch.uint8).numpy()
        return torch.frombuffer(root, dtype=values.dtype, count=values.numel()).view(values.shape)


def on_host(batch: Any) -> Any:
    """The batch with its tensors copied back."""
    return map_leaves(batch, lambda part: part.cpu())


def same(one: Any, other: Any) -> bool:
    """Whether two batches are the same in structure, types and values; tensors also in shape, dtype and strides."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

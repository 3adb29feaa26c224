"""Batches in registered host memory."""

from __future__ import annotations

import numpy as np
import torch

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

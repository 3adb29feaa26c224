"""Images that cross the bus as bytes and get their values on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .kernels import fused_normalize
from .leaf import Constants


@dataclass(frozen=True, eq=False)
class Levelled:
    """A batch of images whose values are still to come: a `Leaf`.

    Attributes:
        images: uint8 [n, 3, H, W], in host memory.
        table: float32 [3, 256], what each byte of each channel becomes; None where the bytes are the values.
        dtype: Of the result; the table's values are rounded to it once.
        memory_format: Of the result.
    """

    images: torch.Tensor
    table: torch.Tensor | None
    dtype: torch.dtype
    memory_format: torch.memory_format

    def __len__(self) -> int:
        """Images in the batch."""
        return len(self.images)

    def raw(self) -> torch.Tensor:
        """The bytes."""
        return self.images

    def finish(self, raw: torch.Tensor, constants: Constants) -> torch.Tensor:
        """The values: [n, 3, H, W]."""
        if self.table is None:
            return raw.contiguous(memory_format=self.memory_format)
        return fused_normalize(raw, constants(self.table), self.dtype, self.memory_format)

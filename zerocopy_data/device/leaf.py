"""A part of a batch that is more than the tensor that crosses the bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

# Gives a table of a leaf as a tensor on the device; uploaded once.
Constants = Callable[[torch.Tensor], torch.Tensor]


@runtime_checkable
class Leaf(Protocol):
    """What becomes one tensor on the device, in two steps: moved as it is stored, then finished there."""

    def raw(self) -> torch.Tensor:
        """What is moved: a tensor in host memory, or one on the device made on the current stream."""

    def finish(self, raw: torch.Tensor, constants: Constants) -> torch.Tensor:
        """What the training loop gets, from `raw` on the device: `raw` itself, or memory of its own.

        Queued on the current stream; never waits.
        """

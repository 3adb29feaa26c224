"""How many batches may be staged at a time: what a governor of memory turns down."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .staging import Stager


class StagedBatches:
    """The batches that a loader holds device memory for, beside those that the training loop has kept.

    `zcd.device.memory.InFlight(loader.staged, bytes_each=…)` lets a governor set the limit.

    Attributes:
        limit: How many there may be; obeyed when the next batch is staged. At first the loader's `Staging.buffers`.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._stagers: weakref.WeakSet[Stager] = weakref.WeakSet()

    def __reduce__(self) -> tuple[type[StagedBatches], tuple[int]]:
        return StagedBatches, (self.limit,)  # another process stages batches of its own

    def add(self, stager: Stager) -> None:
        """Counts a stager's places too."""
        self._stagers.add(stager)

    @property
    def in_flight(self) -> int:
        """For how many batches there is device memory now."""
        return sum(stager.held for stager in list(self._stagers))

"""Which rank of how many this process is: as a sampler was told, or as torch.distributed says at each epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import ConfigError
from ..order.seed import whole_number


@dataclass(frozen=True)
class ProcessRanks:
    """What a sampler was told; None and None ask torch.distributed, which a process that uses it has imported.

    Raises:
        ConfigError: only one of the two was given.
    """

    rank: int | None
    world_size: int | None

    def __post_init__(self) -> None:
        if (self.rank is None) != (self.world_size is None):
            raise ConfigError(
                f"rank={self.rank}, world_size={self.world_size}: give both, or none to ask torch.distributed."
            )
        if self.rank is not None:
            object.__setattr__(self, "rank", whole_number(self.rank, "rank", 0))
            object.__setattr__(self, "world_size", whole_number(self.world_size, "world_size", 1))

    def now(self) -> tuple[int, int]:
        """(Rank, ranks)."""
        if self.rank is not None and self.world_size is not None:
            return self.rank, self.world_size
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()


class SharedOrder:
    """Base of the samplers whose place in an epoch is the same for any number of ranks.

    Attributes:
        size: Samples of the epoch.
        epoch: The one that the next `iter` serves.
    """

    size: int
    epoch: int

    @contextlib.contextmanager
    def serving(self, epoch: int) -> Iterator[None]:
        """Context in which an iterator that draws for the first time serves this epoch, not the one told."""
        told, self.epoch = self.epoch, epoch
        try:
            yield
        finally:
            self.epoch = told

    def describe(self) -> str:
        """What the order depends on beside size and epoch, for states that must find it again."""
        raise NotImplementedError

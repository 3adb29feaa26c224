"""A torch Sampler that knows the sample at any position of an epoch: shared among ranks, begun anywhere at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from ..order.ranks import RankShare
from ..order.seed import seed_number, whole_number
from .copies import CopyIndices
from .process_ranks import ProcessRanks, SharedOrder

_BLOCK = 4096  # positions asked for at once: a list of all would be a Python object per sample


class Order(Protocol):
    """Which sample comes at which position of one epoch."""

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...


class CopyOrder(Protocol):
    """The same where samples may come more than once."""

    def picks(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The samples, and the how many-th time each comes: see `loader.copies`."""


class PositionSampler(SharedOrder, Sampler[int]):
    """Base: the order of an epoch is `order()`, and depends on (seed, epoch) alone; rank r of w takes every w-th.

    The states of a StatefulDataLoader count the samples that all ranks have served, so they can be loaded with another
    number of ranks, threads or another batch size: the rest of the epoch is served exactly once.

    Args:
        size: Samples of an epoch.
        seed: Any integer.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: see `EpochSampler`.

    Attributes:
        epoch: The one that the next `iter` serves: `set_epoch`. A zcd.DataLoader tells it.

    Raises:
        ConfigError: an argument makes no sense.
    """

    def __init__(self, size: int, seed: int, rank: int | None, world_size: int | None, uneven: str) -> None:
        self.size = whole_number(size, "size", 0)
        self.seed = seed_number(seed)
        self.uneven = uneven
        self.epoch = 0
        self._ranks = ProcessRanks(rank, world_size)
        self.share()  # refuses what makes no sense

    def describe(self) -> str:
        """What the order depends on beside size and epoch, for states that must find it again."""
        return f"{self.rule()}, seed={self.seed & 0xFFFFFFFFFFFFFFFF:x}"

    def rule(self) -> str:
        """The same without the seed."""
        raise NotImplementedError

    def order(self) -> Order | CopyOrder | None:
        """Samples by position, for this epoch. None for the natural order."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter` serve this epoch."""
        self.epoch = int(epoch)

    def share(self, start: int = 0) -> RankShare:
        """This rank's part of the epoch from the `start`-th sample on."""
        rank, world = self._ranks.now()
        return RankShare(self.size, rank, world, self.uneven, start)

    def __len__(self) -> int:
        """Samples of this rank's whole epoch."""
        return len(self.share())

    def __iter__(self) -> PositionIndices:
        return PositionIndices(self)


def gives_positions(sampler: Any) -> TypeGuard[PositionSampler]:
    """Whether what a sampler gives is what its `order` says: a subclass may have an `__iter__` of its own."""
    return isinstance(sampler, PositionSampler) and type(sampler).__iter__ is PositionSampler.__iter__


class PositionIndices(Iterator[int]):
    """The samples of one epoch and rank.

    Attributes:
        world: Samples that all ranks serve for each of this one's.
    """

    def __init__(self, sampler: PositionSampler) -> None:
        self._order: Any = sampler.order()
        self._picks = getattr(self._order, "picks", None)
        self._sampler = sampler
        self._begin_at(0)

    def _begin_at(self, start: int) -> None:
        self._share = self._sampler.share(start)
        self.world = self._share.world
        self._next = 0  # of this rank's samples, the first that is in no block yet
        self._block: list[int] = []
        self._place = 0

    def skip(self, served: int) -> None:
        """Begins behind so many samples of the epoch, counted over all ranks, which may have been more or fewer."""
        self._begin_at(served)

    def take(self, count: int) -> npt.NDArray[np.int64] | CopyIndices:
        """The next samples; fewer than `count` at the end."""
        self._next -= len(self._block) - self._place  # what was drawn for `next` and not asked for
        self._block, self._place = [], 0
        return self._draw(count)

    def _draw(self, count: int) -> npt.NDArray[np.int64] | CopyIndices:
        positions = self._share.positions(self._next, self._next + count)
        self._next += len(positions)
        if self._picks is not None:
            return CopyIndices(*self._picks(positions))
        drawn: npt.NDArray[np.int64] = positions if self._order is None else self._order(positions)
        return drawn

    def __next__(self) -> int:
        if self._place == len(self._block):
            self._block, self._place = self._draw(_BLOCK).tolist(), 0
            if not self._block:
                raise StopIteration
        self._place += 1
        return self._block[self._place - 1]


class PositionBatches(Iterator[Any]):
    """What a BatchSampler over a PositionSampler gives, each batch in arrays instead of a list: no object a sample.

    Args:
        sampler: Begun at the first batch, as a BatchSampler does it.
        batch_size: Samples a batch.
        drop_last: Whether a last smaller batch is left out.
    """

    def __init__(self, sampler: PositionSampler, batch_size: int, drop_last: bool) -> None:
        self._sampler = sampler
        self._batch_size = batch_size
        self._least = batch_size if drop_last else 1
        self._indices: PositionIndices | None = None

    def __next__(self) -> npt.NDArray[np.int64] | CopyIndices:
        if self._indices is None:
            self._indices = iter(self._sampler)
        batch = self._indices.take(self._batch_size)
        if len(batch) < self._least:
            raise StopIteration
        return batch

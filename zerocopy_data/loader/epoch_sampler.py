"""The order of a ShardDataset's samples as a torch Sampler: known at any position, shared among ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from ..errors import ConfigError
from ..order.ranks import RankShare
from ..order.seed import seed_number
from .process_ranks import ProcessRanks, SharedOrder

SHUFFLES = ("full", "window", "none")
_BLOCK = 4096  # positions asked for at once: a list of all would be a Python object per sample


class EpochSampler(SharedOrder, Sampler[int]):
    """Samples of an epoch in an order that depends on (seed, epoch) alone; rank r of w takes every w-th, from the r-th.

    `DataLoader(shuffle=True, seed=…)` makes one for all samples. Give one yourself, as `sampler=`, to shuffle in
    windows or to share an epoch among ranks: `DataLoader(ds, 256, sampler=zcd.EpochSampler(len(ds)), seed=0)`.

    Nothing is listed: a billion samples are shuffled in no memory, and an order begins anywhere at once. The states of
    a StatefulDataLoader count the samples that all ranks have served, so they can be loaded with another number of
    ranks, threads or another batch size: the rest of the epoch is served exactly once.

    Args:
        size: Samples of the epoch: len(dataset).
        seed: Any integer.
        shuffle: 'full'; 'window', for data larger than memory (see `order.window.WindowOrder`); or 'none'.
        window: With 'window', how many samples are mixed at a time, so about what has to be in memory.
        block: With 'window', how many neighbours stay together; a 64th of the window by default, at most 128.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: 'pad' repeats samples from the
            beginning of the epoch and 'drop' leaves the round out, as torch's DistributedSampler does without and with
            drop_last; 'uneven' serves each sample once, the first ranks having one more.

    Attributes:
        epoch: The one that the next `iter` serves: `set_epoch`. A zcd.DataLoader tells it.

    Raises:
        ConfigError: an argument makes no sense.
    """

    def __init__(
        self,
        size: int,
        seed: int = 0,
        *,
        shuffle: str = "full",
        window: int | None = None,
        block: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
    ) -> None:
        if shuffle not in SHUFFLES:
            raise ConfigError(f"shuffle={shuffle!r}: one of {', '.join(map(repr, SHUFFLES))}.")
        if (shuffle == "window") != (window is not None) or (block is not None and window is None):
            raise ConfigError(
                f"shuffle={shuffle!r}, window={window}, block={block}: shuffle='window' needs the number of samples to "
                "mix at a time, window=, and only it takes a block=."
            )
        self.size = size
        self.seed = seed_number(seed)
        self.shuffle = shuffle
        self.window, self.block = window, block
        self.uneven = uneven
        self.epoch = 0
        self._ranks = ProcessRanks(rank, world_size)
        self.share()  # refuses what makes no sense
        if window is not None:
            self.order()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter` serve this epoch."""
        self.epoch = int(epoch)

    @contextlib.contextmanager
    def serving(self, epoch: int) -> Iterator[None]:
        """Context in which an iterator that draws for the first time serves this epoch, not the one told."""
        told, self.epoch = self.epoch, epoch
        try:
            yield
        finally:
            self.epoch = told

    def describe(self) -> str:
        """What the order depends on beside size, seed and epoch, for states that must find it again."""
        parts = [f"{name}={value}" for name, value in (("window", self.window), ("block", self.block)) if value]
        return f"EpochSampler({', '.join([self.shuffle, *parts])})"

    def share(self, start: int = 0) -> RankShare:
        """This rank's part of the epoch from the `start`-th sample on."""
        rank, world = self._ranks.now()
        return RankShare(self.size, rank, world, self.uneven, start)

    def order(self) -> Any:
        """Samples by position, for this epoch: see `order.full.FullOrder`. None for the natural order."""
        from ..order.full import FullOrder  # here: a process that only makes batches for others needs none of it
        from ..order.window import WindowOrder

        if self.shuffle == "full":
            return FullOrder(self.size, self.seed, self.epoch)
        if self.window is not None:
            return WindowOrder(self.size, self.window, self.seed, self.epoch, self.block)
        return None

    def __len__(self) -> int:
        """Samples of this rank's whole epoch."""
        return len(self.share())

    def __iter__(self) -> EpochIndices:
        return EpochIndices(self)


class EpochIndices(Iterator[int]):
    """The samples of one epoch and rank.

    Attributes:
        world: Samples that all ranks serve for each of this one's.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self._order = sampler.order()
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

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """The next samples, int64; fewer than `count` at the end."""
        ahead = np.array(self._block[self._place : self._place + count], np.int64)
        self._place += len(ahead)
        return np.concatenate([ahead, self._draw(count - len(ahead))]) if len(ahead) else self._draw(count)

    def _draw(self, count: int) -> npt.NDArray[np.int64]:
        positions = self._share.positions(self._next, self._next + count)
        self._next += len(positions)
        drawn: npt.NDArray[np.int64] = positions if self._order is None else self._order(positions)
        return drawn

    def __next__(self) -> int:
        if self._place == len(self._block):
            self._block, self._place = self._draw(_BLOCK).tolist(), 0
            if not self._block:
                raise StopIteration
        self._place += 1
        return self._block[self._place - 1]


class EpochBatches(Iterator[Any]):
    """What a BatchSampler over an EpochSampler gives, each batch an array instead of a list: no object a sample.

    Args:
        sampler: Begun at the first batch, as a BatchSampler does it.
        batch_size: Samples a batch.
        drop_last: Whether a last smaller batch is left out.
    """

    def __init__(self, sampler: EpochSampler, batch_size: int, drop_last: bool) -> None:
        self._sampler = sampler
        self._batch_size = batch_size
        self._least = batch_size if drop_last else 1
        self._indices: EpochIndices | None = None

    def __next__(self) -> npt.NDArray[np.int64]:
        if self._indices is None:
            self._indices = iter(self._sampler)
        batch = self._indices.take(self._batch_size)
        if len(batch) < self._least:
            raise StopIteration
        return batch

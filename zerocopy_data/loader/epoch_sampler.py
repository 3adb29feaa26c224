"""The order of a ShardDataset's samples as a torch Sampler: known at any position, shared among ranks."""

from __future__ import annotations

from ..errors import ConfigError
from ..order.seed import whole_number
from .position_sampler import Order, PositionSampler

SHUFFLES = ("full", "window", "none")


class EpochSampler(PositionSampler):
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
        super().__init__(size, seed, rank, world_size, uneven)
        self.shuffle = shuffle
        self.window = None if window is None else whole_number(window, "window", 1)
        self.block = None if block is None else whole_number(block, "block", 1)
        if window is not None:
            self.order()

    def rule(self) -> str:
        """See `PositionSampler`."""
        parts = [f"{name}={value}" for name, value in (("window", self.window), ("block", self.block)) if value]
        return f"EpochSampler({', '.join([self.shuffle, *parts])})"

    def order(self) -> Order | None:
        """Samples by position, for this epoch: see `order.full.FullOrder`. None for the natural order."""
        from ..order.full import FullOrder  # here: a process that only makes batches for others needs none of it
        from ..order.window import WindowOrder

        if self.shuffle == "full":
            return FullOrder(self.size, self.seed, self.epoch)
        if self.window is not None:
            return WindowOrder(self.size, self.window, self.seed, self.epoch, self.block)
        return None

"""Repeated augmentation, as a torch Sampler."""

from __future__ import annotations

from ..errors import ConfigError
from ..order.repeated import RepeatedOrder
from ..order.seed import whole_number
from .position_sampler import CopyOrder, PositionSampler
from .weighted_sampler import epoch_size

_ROUND = 256


class RepeatedSampler(PositionSampler):
    """Each sample several times in a row, with other random crops each time: repeated augmentation.

    What RASampler does in DeiT and torchvision's references: the shuffled samples are repeated, ranks take turns, so
    copies of a sample go to neighbouring ranks; and an epoch ends after as many samples as without repeating, so it
    has a `repeats`-th of the dataset's. Hoffer et al., "Augment your batch", CVPR 2020; Berman et al., "MultiGrain",
    2019.

    Args:
        size: Samples of the dataset: len(dataset).
        repeats: How often each comes.
        num_samples: Samples of an epoch, copies counted, at most size * repeats; by default `size` without what is
            beyond a multiple of 256, as in RASampler.
        seed: Any integer.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: see `EpochSampler`.

    Raises:
        ConfigError: an argument makes no sense.
    """

    def __init__(
        self,
        size: int,
        repeats: int = 3,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
    ) -> None:
        self.repeats = whole_number(repeats, "repeats", 1, 1 << 20)
        self._samples = whole_number(size, "size", 1, 1 << 40)
        usual = self._samples if self._samples < _ROUND else self._samples // _ROUND * _ROUND
        count = epoch_size(num_samples, usual)
        if count > self._samples * self.repeats:
            raise ConfigError(
                f"num_samples={count}: {size} samples, {repeats} times each, are {size * repeats}. Repeat more often."
            )
        super().__init__(count, seed, rank, world_size, uneven)

    def rule(self) -> str:
        """See `PositionSampler`."""
        return f"repeated({self._samples}, {self.repeats})"

    def order(self) -> CopyOrder:
        """Samples by position, for this epoch."""
        return RepeatedOrder(self._samples, self.repeats, self.seed, self.epoch)

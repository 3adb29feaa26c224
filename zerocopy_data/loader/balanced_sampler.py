"""Every class as often as any other, as a torch Sampler."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..order.balanced import BalancedOrder
from .position_sampler import CopyOrder, PositionSampler
from .weighted_sampler import epoch_size


class ClassBalancedSampler(PositionSampler):
    """Every class as often as any other: in each round of as many samples as there are classes, each has one.

        labels = ds.select("label")[:]["label"]
        loader = zcd.StatefulDataLoader(ds, 256, sampler=zcd.ClassBalancedSampler(labels, seed=0), seed=0)

    Within a class samples take turns in an order drawn for the epoch; those of small classes come several times in an
    epoch, with other random crops each time, and of large ones not all come. For shares in between, or drawn rather
    than exact, see `WeightedSampler`.

    Args:
        labels: Integers [samples], the class of each.
        num_samples: Samples of an epoch; as many as there are labels by default.
        seed: Any integer.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: see `EpochSampler`.

    Raises:
        ConfigError: an argument makes no sense.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
    ) -> None:
        array = np.asarray(labels)
        if array.ndim != 1 or not array.size or array.dtype.kind not in "iub":
            raise ConfigError(
                f"labels= has one integer a sample, in one dimension; got {array.dtype} of shape {array.shape}."
            )
        self._labels = array.astype(np.int64)
        self._known = zlib.crc32(self._labels.tobytes())
        super().__init__(epoch_size(num_samples, len(array)), seed, rank, world_size, uneven)

    def rule(self) -> str:
        """See `PositionSampler`."""
        return f"balanced({self._known:08x})"

    def order(self) -> CopyOrder:
        """Samples by position, for this epoch."""
        return BalancedOrder(self._labels, self.seed, self.epoch)

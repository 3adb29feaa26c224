"""Samples drawn by weight, as a torch Sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..order.seed import whole_number
from ..order.weighted import DrawnOrder, fingerprint, weights_array, without_replacement
from .position_sampler import CopyOrder, Order, PositionSampler


class WeightedSampler(PositionSampler):
    """Samples drawn by weight: torch's WeightedRandomSampler, shared among ranks, resumed at once, in keyed order.

        sampler = zcd.WeightedSampler(1 / counts[labels], seed=0)
        loader = zcd.StatefulDataLoader(ds, 256, sampler=sampler, seed=0)

    A sample that is drawn again in an epoch gets other random crops. An epoch needs 8 bytes a sample, without
    replacement about 40 while it begins.

    Args:
        weights: [samples], finite numbers from 0; they need not sum to 1.
        num_samples: Samples of an epoch; as many as there are weights by default.
        replacement: Whether each is drawn from all samples. Without, from those not drawn before in the epoch.
        seed: Any integer.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: see `EpochSampler`.

    Raises:
        ConfigError: an argument makes no sense, or without replacement fewer samples than asked for have a weight.
    """

    def __init__(
        self,
        weights: npt.ArrayLike,
        num_samples: int | None = None,
        replacement: bool = True,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
    ) -> None:
        self._weights = weights_array(weights)
        size = epoch_size(num_samples, len(self._weights))
        there = int(np.count_nonzero(self._weights))
        if not replacement and size > there:
            raise ConfigError(
                f"num_samples={size} without replacement, and {there} of {len(self._weights)} samples have a weight: "
                "ask for no more, or draw with replacement=True."
            )
        self.replacement = bool(replacement)
        self._known = fingerprint(self._weights)
        super().__init__(size, seed, rank, world_size, uneven)

    def rule(self) -> str:
        """See `PositionSampler`."""
        return f"weighted({self._known:08x}, {'with' if self.replacement else 'without'})"

    def order(self) -> Order | CopyOrder:
        """Samples by position, for this epoch."""
        if self.replacement:
            return DrawnOrder(self._weights, self.seed, self.epoch)
        drawn = without_replacement(self._weights, self.size, self.seed, self.epoch)
        return lambda positions: drawn[positions]


def epoch_size(num_samples: Any, default: int) -> int:
    """`num_samples`, or the default.

    Raises:
        ConfigError: it is no number of samples.
    """
    return default if num_samples is None else whole_number(num_samples, "num_samples", 1)

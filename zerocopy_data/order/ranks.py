"""Which positions of the global order a rank takes: r, r + w, r + 2w, … of w ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError

UNEVEN = ("drop", "pad", "uneven")


@dataclass(frozen=True)
class RankShare:
    """A rank's part of what is left of an epoch.

    Attributes:
        size: Samples of the epoch.
        rank: From 0.
        world: Number of ranks.
        uneven: What becomes of a last round that has not a sample for each rank: 'drop' leaves it out, 'pad' fills it
            with the epoch's first samples, as torch's DistributedSampler does with drop_last=True and False, 'uneven'
            gives them to the first ranks.
        start: Samples of the epoch that have been served already, by any number of ranks.

    Raises:
        ConfigError: there is no such rank, rule or start.
    """

    size: int
    rank: int = 0
    world: int = 1
    uneven: str = "pad"
    start: int = 0

    def __post_init__(self) -> None:
        if self.uneven not in UNEVEN:
            raise ConfigError(f"uneven={self.uneven!r}: one of {', '.join(map(repr, UNEVEN))}.")
        if not 0 <= self.rank < self.world:
            raise ConfigError(f"rank={self.rank} of {self.world}: ranks count from 0 to the number of ranks - 1.")
        if self.size < 0 or self.start < 0:
            raise ConfigError(f"size={self.size}, start={self.start}: numbers of samples, from 0.")

    def __len__(self) -> int:
        left = max(0, self.size - self.start)
        if self.uneven == "drop":
            return left // self.world
        if self.uneven == "pad":
            return -(-left // self.world)
        return max(0, -(-(left - self.rank) // self.world))

    def positions(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """The global positions of this rank's samples begin … end - 1.

        Args:
            begin: From 0.
            end: At most the share's length.

        Returns:
            int64 [end - begin], each from 0 to size - 1.
        """
        local = np.arange(begin, max(begin, min(end, len(self))), dtype=np.int64)
        places = self.start + local * self.world + self.rank
        return places % self.size if self.size else places

    def served(self, count: int) -> int:
        """Samples of the epoch that have been served once each rank has returned `count` of its share."""
        return min(self.size, self.start + count * self.world)

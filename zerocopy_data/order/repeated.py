"""Every sample several times in a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .full import FullOrder


class RepeatedOrder:
    """A full shuffle of which each sample is served `repeats` times before the next one.

    Args:
        size: Samples of the dataset.
        repeats: At least 1.
        seed: Any integer.
        epoch: From 0.
    """

    def __init__(self, size: int, repeats: int, seed: int, epoch: int) -> None:
        self._order = FullOrder(size, seed, epoch)
        self._repeats = repeats

    def picks(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The samples at these positions, and the how many-th time each comes.

        Args:
            positions: int64 [n], each from 0 to size * repeats - 1.

        Returns:
            int64 [n] each.
        """
        return self._order(positions // self._repeats), positions % self._repeats

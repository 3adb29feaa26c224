"""A full shuffle that knows the sample at any position, without a list of all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _native
from .permutation import epoch_permutation

# Up to here the order is one of all permutations, each as likely, and its list is small (half a megabyte). Beyond, it
# is a keyed permutation of the native core: a family of 2^64 orders for each epoch.
LISTED = 1 << 16
_WORD = (1 << 64) - 1


class FullOrder:
    """A permutation of range(size), drawn by (seed, epoch): the same on every machine, in memory that does not grow.

    Args:
        size: Samples, up to 2**62.
        seed: Any integer; its low 64 bits count.
        epoch: From 0.
    """

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        self.size = size
        self._list = epoch_permutation(size, seed, epoch) if size <= LISTED else None
        self._keyed = _native.Permutation(size, seed & _WORD, epoch & _WORD) if size > LISTED else None

    def __len__(self) -> int:
        return self.size

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The samples at these positions.

        Args:
            positions: int64 [n], each from 0 to size - 1.

        Returns:
            int64 [n].

        Raises:
            IndexError: a position is outside.
        """
        if self._list is not None:
            if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= self.size):
                raise IndexError(f"a position outside the order of {self.size} samples")
            return self._list[positions]
        assert self._keyed is not None
        out = np.empty(positions.shape, np.int64)
        self._keyed.values(np.ascontiguousarray(positions, np.int64), out)
        return out

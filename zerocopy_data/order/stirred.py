"""Positions mixed among their neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .full import FullOrder

BLOCK = 1024  # positions: more than the ranks of a step, so that each meets every source of an even mixture
_WORD = (1 << 64) - 1
_STIR = 0x73746972


class StirredOrder:
    """Each block of 1,024 positions in an order of its own: without an end, and known at any position.

    Args:
        seed: Any integer.
    """

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ _STIR) & _WORD

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The positions that stand at these.

        Args:
            positions: int64 [n], from 0.

        Returns:
            int64 [n], each in its own block.
        """
        blocks = positions // BLOCK
        out = np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            start = block * BLOCK
            out[here] = start + FullOrder(BLOCK, self._seed, block)(positions[here] - start)
        return out

"""A shuffle for data larger than memory: whole blocks in random order, samples mixed within windows of some blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .full import FullOrder

# Where no block is asked for: so many of them to a window, as far as their size allows. 128 photographs are 14 MB and
# 128 small rows of 3 KB half a megabyte, which disks read about as fast as more in one piece; and fewer neighbours
# together is better mixed.
BLOCKS, LARGEST = 64, 128
_SHIFT, _WINDOW = 0x7368696674, 0x77696E646F77  # keep their seeds apart from that of the blocks
_GOLDEN = 0x9E3779B97F4A7C15  # odd: every window another seed
_WORD = (1 << 64) - 1


class WindowOrder:
    """Samples are cut into blocks of neighbours; random blocks worth `window` samples are mixed at a time.

    So no more than `window` samples are in use at a time, and they are read in runs of a block. The cut begins at
    another sample in each epoch: neighbours are parted elsewhere, and what is left over behind the last whole block,
    which comes in the last window, is never the same.

    A batch sees about as many blocks as a window has; benchmarks/shuffle_quality.py measures how much less mixed that
    is than a full shuffle.

    Args:
        size: Samples.
        window: Most samples that are mixed at a time, at least 1. Windows of an epoch are about equal.
        seed: Any integer.
        epoch: From 0.
        block: Neighbours that stay in one window; by default a 64th of it, at most 128.

    Raises:
        ConfigError: window or block are below 1, or the block is larger than the window.
    """

    def __init__(self, size: int, window: int, seed: int, epoch: int, block: int | None = None) -> None:
        block = max(1, min(window // BLOCKS, LARGEST)) if block is None else block
        if not 1 <= block <= window:
            raise ConfigError(f"window={window}, block={block}: 1 <= block <= window.")
        self.size = size
        self.block = block
        self._whole = size // block
        count = -(-size // block)
        windows = max(1, -(-count // (window // block)))
        self.window = max(1, -(-count // windows)) * block
        self._seed, self._epoch = seed, epoch
        self._blocks = FullOrder(self._whole, seed, epoch)
        first = FullOrder(max(size, 1), seed ^ _SHIFT, epoch)
        self._shift = int(first(np.zeros(1, np.int64))[0])
        self._latest: dict[int, FullOrder] = {}

    def __len__(self) -> int:
        return self.size

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The samples at these positions.

        Args:
            positions: int64 [n], each from 0 to size - 1. Neighbouring ones are found faster: a window's order is kept.

        Returns:
            int64 [n].

        Raises:
            IndexError: a position is outside.
        """
        if not positions.size:
            return np.empty(positions.shape, np.int64)
        if int(positions.min()) < 0 or int(positions.max()) >= self.size:
            raise IndexError(f"a position outside the order of {self.size} samples")
        windows = positions // self.window
        mixed = np.empty(positions.shape, np.int64)
        for number in np.unique(windows).tolist():
            here = windows == number
            start = number * self.window
            mixed[here] = start + self._within(number)(positions[here] - start)
        blocks, offsets = mixed // self.block, mixed % self.block
        whole = blocks < self._whole
        blocks[whole] = self._blocks(blocks[whole])
        return (blocks * self.block + offsets + self._shift) % self.size

    def _within(self, number: int) -> FullOrder:
        """The order within a window."""
        made = self._latest.pop(number, None)
        if made is None:
            size = min(self.window, self.size - number * self.window)
            seed = (self._seed & _WORD) ^ _WINDOW ^ ((number + 1) * _GOLDEN & _WORD)
            made = FullOrder(size, seed, self._epoch)
        # A batch may span two; more are not kept.
        self._latest = {**dict(list(self._latest.items())[-1:]), number: made}
        return made

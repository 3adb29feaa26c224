"""The sampler behind `DataLoader(shuffle=True, seed=…)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.utils.data import Sampler

from ..order.permutation import epoch_permutation


class EpochShuffle(Sampler[int]):
    """The order that `DataLoader(shuffle=True, seed=…)` goes by: a new permutation each epoch, by (seed, epoch)."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = int(epoch)

    @contextlib.contextmanager
    def serving(self, epoch: int) -> Iterator[None]:
        """Context in which an iterator that draws for the first time serves this epoch, not the one told."""
        told, self.epoch = self.epoch, epoch
        try:
            yield
        finally:
            self.epoch = told

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        order = epoch_permutation(self.size, self.seed, self.epoch)
        # In blocks: a list of all would be a Python object per sample.
        for start in range(0, self.size, 4096):
            yield from order[start : start + 4096].tolist()

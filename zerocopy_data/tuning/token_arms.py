"""Next-token pairs out of a flat file of uint16 tokens: ours, torch's DataLoader, and nanoGPT's loop.

Batches are int64 inputs and targets at random places; each arm has one torch thread.

zcd            zcd.DataLoader over zcd.windows, shuffled, in the caller's thread or made ahead by threads.
torch          torch's DataLoader, shuffled, over a Dataset of slices of one numpy.memmap, each converted once and cut
               into input and target.
nanogpt        What nanoGPT's get_batch does: a new memmap a batch, random places, slices of input and target converted
               one by one, two torch.stack.
nanogpt-1-map  The same with one memmap for all batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

_EPOCH = 500  # batches
_STORED, _DELIVERED = 2, 16  # bytes of a token, and of what becomes of it: an input and a target of int64
# Read and written for a token. torch: 2 read, 8 written; stacked twice: 16 read, 16 written. nanoGPT converts twice.
# The kernel's zeroing of the fresh memory that those are given for each batch comes on top.
MOVED = {
    "zcd": (_STORED + 16) / _DELIVERED,
    "torch": (10 + 32) / _DELIVERED,
    "nanogpt": (20 + 32) / _DELIVERED,
    "nanogpt-1-map": (20 + 32) / _DELIVERED,
}


@dataclass(frozen=True)
class Stream:
    """What all arms share.

    Attributes:
        path: The file.
        length: Tokens of a window.
        batch_size: Windows of a batch.
        threads: Of ours, and torch's worker processes; 0: none.
    """

    path: Path
    length: int
    batch_size: int
    threads: int


def write_tokens(path: Path, megabytes: int) -> None:
    """Random tokens of a vocabulary of 50,257, as GPT-2's."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(megabytes):
            rng.integers(0, 50_257, 500_000, np.uint16).tofile(file)


class Slices(Dataset[Any]):
    """Windows the way that many training scripts cut them."""

    def __init__(self, path: Path, length: int) -> None:
        self.data = np.memmap(path, np.uint16, "r")
        self.length = length

    def __len__(self) -> int:
        return (len(self.data) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.length
        both = torch.from_numpy(self.data[start : start + self.length + 1].astype(np.int64))
        return both[:-1], both[1:]


class _Loading:
    """An arm that iterates over a loader of (inputs, targets); an epoch is some hundred batches."""

    def __init__(self, loader: Any) -> None:
        torch.set_num_threads(1)
        self.loader = loader

    def epoch(self) -> int:
        """Tokens of inputs that came."""
        return sum(x.numel() for x, _ in islice(self.loader, _EPOCH))


class ZcdArm(_Loading):
    """Ours."""

    def __init__(self, stream: Stream) -> None:
        import zerocopy_data as zcd

        windows = zcd.windows(stream.path, stream.length, dtype="uint16").as_tuple()
        options: dict[str, Any] = {"shuffle": True, "seed": 0, "num_workers": stream.threads}
        super().__init__(zcd.DataLoader(windows, stream.batch_size, **options))


class TorchArm(_Loading):
    """torch's."""

    def __init__(self, stream: Stream) -> None:
        options: dict[str, Any] = {"shuffle": True, "num_workers": stream.threads}
        super().__init__(DataLoader(Slices(stream.path, stream.length), stream.batch_size, **options))


class GetBatch:
    """nanoGPT's loop."""

    def __init__(self, stream: Stream, keep_map: bool) -> None:
        torch.set_num_threads(1)
        self.stream = stream
        self.kept = np.memmap(stream.path, np.uint16, "r") if keep_map else None

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One batch."""
        length = self.stream.length
        data = np.memmap(self.stream.path, np.uint16, "r") if self.kept is None else self.kept
        places = torch.randint(len(data) - length, (self.stream.batch_size,)).tolist()
        inputs = [torch.from_numpy(data[i : i + length].astype(np.int64)) for i in places]
        targets = [torch.from_numpy(data[i + 1 : i + 1 + length].astype(np.int64)) for i in places]
        return torch.stack(inputs), torch.stack(targets)

    def epoch(self) -> int:
        """Tokens of inputs that came."""
        return sum(self.batch()[0].numel() for _ in range(_EPOCH))

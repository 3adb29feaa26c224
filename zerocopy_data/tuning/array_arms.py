"""Loaders of small rows of one size, shuffled: ours over shards, and torch's over tensors in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .image_arms import TensorLoaderArm

_PART = 4096  # rows that are made at a time


@dataclass(frozen=True)
class Rows:
    """What all arms share.

    Attributes:
        packed: A dataset of columns 'row' and 'label'.
        rows: How many it has.
        row_bytes: uint8 values of each.
        batch_size: Rows in a batch.
        threads: 0: each batch is made when it is asked for.
    """

    packed: Path
    rows: int
    row_bytes: int
    batch_size: int
    threads: int


def part_of(rows: int, row_bytes: int, start: int) -> tuple[Any, Any]:
    """Random rows and their labels, uint8 [n, row_bytes] and int64 [n]: the same in every process."""
    count = min(_PART, rows - start)
    rng = np.random.default_rng([row_bytes, start])
    return rng.integers(0, 256, (count, row_bytes), np.uint8), rng.integers(0, 1000, count)


def pack_rows(out: Path, rows: int, row_bytes: int) -> Path:
    """Writes the dataset."""
    from ..format.fields import Scalar, Tensor
    from ..format.writer import DatasetWriter

    with DatasetWriter(out, {"row": Tensor("uint8", (row_bytes,)), "label": Scalar("int64")}) as writer:
        for start in range(0, rows, _PART):
            for row, label in zip(*part_of(rows, row_bytes, start), strict=True):
                writer.write({"row": row, "label": int(label)})
    return out


class ZcdArm(TensorLoaderArm):
    """This library over packed shards, with every checksum checked or (`verify=False`) none."""

    def __init__(self, setting: Rows, verify: bool) -> None:
        import zerocopy_data as zcd

        dataset = zcd.open(setting.packed, verify=verify).as_tuple("row", "label")
        options: dict[str, Any] = {"shuffle": True, "seed": 0, "drop_last": True, "num_workers": setting.threads}
        super().__init__(zcd.DataLoader(dataset, setting.batch_size, **options))


class TorchArm(TensorLoaderArm):
    """torch's DataLoader over a TensorDataset in memory, as its documentation has it."""

    def __init__(self, setting: Rows) -> None:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        parts = [part_of(setting.rows, setting.row_bytes, start) for start in range(0, setting.rows, _PART)]
        tensors = [torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True)]
        options: dict[str, Any] = {"shuffle": True, "drop_last": True, "num_workers": setting.threads}
        super().__init__(DataLoader(TensorDataset(*tensors), setting.batch_size, **options))


class IndexedArm:
    """No loader at all: `tensor[permutation[a:b]]` of tensors in memory, the least that must be moved."""

    def __init__(self, setting: Rows) -> None:
        arm = TorchArm(setting)
        self._tensors = arm.loader.dataset.tensors
        self._batch_size = setting.batch_size

    def epoch(self) -> int:
        """One epoch."""
        import torch

        rows = len(self._tensors[0])
        order = torch.randperm(rows)
        items = 0
        for start in range(0, rows - self._batch_size + 1, self._batch_size):
            picked = order[start : start + self._batch_size]
            batch = [tensor.index_select(0, picked) for tensor in self._tensors]
            items += len(batch[0])
        return items

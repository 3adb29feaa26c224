"""Small datasets for the cases; importable, as spawned workers need them."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import same_batches
import torch
from PIL import Image as PillowImage
from torch.utils.data import Dataset

import zerocopy_data as zcd

# The expected batch lies in host memory, the other one wherever it was asked for.
assert_same = functools.partial(same_batches.assert_same, move=torch.Tensor.cpu)

CROP = [zcd.RandomResizedCrop(24), zcd.RandomHorizontalFlip(), zcd.Normalize()]


class Numbers(Dataset[Any]):
    """Row i is full of i, and i."""

    def __init__(self, length: int, elements: int = 60_000) -> None:
        self.length, self.elements = length, elements

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((self.elements,), float(index)), index


class Pair(NamedTuple):
    left: torch.Tensor
    right: dict[str, Any]


class Nested(Dataset[Any]):
    """Rows of tensors in all kinds of containers."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        return Pair(
            torch.from_numpy(rng.normal(size=(3, 5))).to(torch.bfloat16),
            {"many": [rng.integers(0, 9, 7), index % 2 == 0], "name": f"row {index}", "empty": torch.zeros(0, 2)},
        )


class Lengths(Dataset[Any]):
    """Row i has i % 7 values."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((index % 7,), index, dtype=torch.int32)


def padded(rows: list[torch.Tensor]) -> dict[str, Any]:
    """A batch whose shape differs from the next, and the rows of their own lengths beside it."""
    return {"padded": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), "rows": rows, "count": len(rows)}


class Failing(Numbers):
    """Row 30 raises."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 30:
            raise ValueError("row 30")
        return super().__getitem__(index)


def write_shards(path: Path, rows: int = 46) -> Path:
    """A dataset with columns image (JPEG), pixels (raw), vector, label and key."""
    fields = {
        "image": zcd.Image(),
        "pixels": zcd.Image("raw", (6, 5, 3)),
        "vector": zcd.Tensor("float32", (2, 3)),
        "label": zcd.Scalar("int64"),
        "key": zcd.Text(),
    }
    with zcd.DatasetWriter(path, fields, shard_size=40_000, row_group_size=8_000) as writer:
        for row in range(rows):
            rng = np.random.default_rng(row)
            small = PillowImage.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
            file = io.BytesIO()
            small.resize((40 + row % 13, 36 + row % 7), PillowImage.Resampling.BICUBIC).save(file, "JPEG")
            writer.write(
                {
                    "image": file.getvalue(),
                    "pixels": rng.integers(0, 256, (6, 5, 3), np.uint8),
                    "vector": rng.normal(size=(2, 3)).astype(np.float32),
                    "label": row,
                    "key": f"row {row}",
                }
            )
    return path


def all_on(batch: Any, device: str) -> bool:
    """Whether every tensor of a batch lies there."""
    if isinstance(batch, torch.Tensor):
        return batch.device == torch.device(device)
    if isinstance(batch, dict):
        return all(all_on(value, device) for value in batch.values())
    if isinstance(batch, list | tuple):
        return all(all_on(value, device) for value in batch)
    return True


def numbers(rows: torch.Tensor) -> list[int]:
    """The values of a tensor, wherever it lies."""
    return [int(value) for value in rows.cpu()]

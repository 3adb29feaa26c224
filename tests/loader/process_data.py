"""Datasets for worker processes; importable, as spawned workers need them."""

from __future__ import annotations

import os
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate


class Numbers(Dataset[Any]):
    """Row i is `shape` times the number i, and i."""

    def __init__(self, length: int, shape: tuple[int, ...] = (3,), dtype: torch.dtype = torch.float32) -> None:
        self.length, self.shape, self.dtype = length, shape, dtype

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full(self.shape, index).to(self.dtype), index


class Ragged(Dataset[Any]):
    """Rows of changing size, each with a checksum of itself. Row i % 5 == 0 has no elements."""

    def __init__(self, length: int, largest: int = 200_000) -> None:
        self.length, self.largest = length, largest

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        size = index * 7919 % self.largest if index % 5 else 0
        data = np.random.default_rng(index).integers(0, 256, size, dtype=np.uint8)
        return data, zlib.crc32(data)


class Threaded(Dataset[float]):
    """Rows that take OpenMP's and Arrow's threads to make."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> float:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.table({"key": np.arange(200_000) % 7, "value": np.full(200_000, index)})
        total = table.group_by("key", use_threads=True).aggregate([("value", "sum")])
        return float(torch.ones(600, 600).mm(torch.ones(600, 600))[0, 0]) + float(pc.sum(total["value_sum"]).as_py())


class Failing(Dataset[Any]):
    """Row 3 raises."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            raise KeyError("three")
        return torch.full((50_000,), float(index))


class Unpicklable(Dataset[Any]):
    """Row 2 can't leave the worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            return torch.rand(3, requires_grad=True) * 2
        return torch.full((50_000,), float(index))


class Slow(Dataset[Any]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Pids(Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return os.getpid()


class Stream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.length, step):
            yield torch.full((40_000,), float(number))


class CountsPickles(Dataset[Any]):
    """Says how often it has been pickled; a shared tensor rides along."""

    pickled = 0

    def __init__(self) -> None:
        self.shared = torch.zeros(4).share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        CountsPickles.pickled += 1
        return self.__dict__

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.shared[index % 4] += 1
        return index


class CollatesInThread(Dataset[Any]):
    """Says whether collated tensors lie in slots: one of the worker's own thread, one of a thread of the dataset's."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[bool, bool]:
        made = [collate_large()]
        thread = threading.Thread(target=lambda: made.append(collate_large()))
        thread.start()
        thread.join()
        return lies_in_slot(made[0]), lies_in_slot(made[1])


def collate_large() -> torch.Tensor:
    batch: torch.Tensor = default_collate([torch.ones(50_000)] * 3)
    return batch


def lies_in_slot(tensor: torch.Tensor) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if start <= tensor.data_ptr() < end:
            return "zcd-slot" in line
    return False


def as_list(batch: list[Any]) -> list[Any]:
    """A collate function that only collects."""
    return batch

"""What the tests with real frameworks share: small data and models, a record of the engines, two ranks on one machine.

Importable in spawned processes: it imports no framework.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from torch.utils.data import Dataset

import zerocopy_data as zcd
from zerocopy_data.loader.dataloader import DataLoader as ZcdDataLoader

ROWS = 48
BATCH = 6
RANKS = 2
CROP = [zcd.RandomResizedCrop(8), zcd.RandomHorizontalFlip(), zcd.Normalize()]
THREADS, PROCESSES = "ThreadIterator", "ProcessIterator"


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips where one of these is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    reason = f"{', '.join(missing)} not installed: pip install '.[frameworks]'"
    return pytest.mark.skipif(bool(missing), reason=reason)


def write_photos(path: Path) -> Path:
    """ROWS JPEGs of 20×24 pixels, with the row's number and one of four labels."""
    with zcd.DatasetWriter(
        path, {"image": zcd.Image(), "label": zcd.Scalar("int64"), "number": zcd.Scalar("int64")}
    ) as writer:
        for row in range(ROWS):
            pixels = np.random.default_rng(row).integers(0, 256, (20, 24, 3), np.uint8)
            file = io.BytesIO()
            PillowImage.fromarray(pixels).save(file, "JPEG")
            writer.write({"image": file.getvalue(), "label": row % 4, "number": row})
    return path


def open_photos(path: Path) -> zcd.ShardDataset:
    """Samples {image float32 [3, 8, 8], label, number}, cropped at random."""
    return zcd.open(path, transform={"image": CROP})


class Rows(Dataset[dict[str, torch.Tensor]]):
    """A dataset of Python's, of the same form, for worker processes."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        image = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(row))
        return {"image": image, "label": torch.tensor(row % 4), "number": torch.tensor(row)}


def model() -> torch.nn.Module:
    """Image → scores of four classes; the same in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))


@dataclass
class Made:
    """One iterator that a loader of ours has made, and the loader's own options."""

    engine: str
    seed: int | None
    on_error: str
    stall_after: float | None


@contextlib.contextmanager
def recorded() -> Iterator[list[Made]]:
    """Context that lists the iterators of our loaders as they are made."""
    made: list[Made] = []
    original = ZcdDataLoader._get_iterator

    def spy(loader: Any) -> Any:
        iterator = original(loader)
        made.append(Made(type(iterator).__name__, loader.seed, loader.on_error, loader.stall_after))
        return iterator

    ZcdDataLoader._get_iterator = spy  # type: ignore[method-assign]
    try:
        yield made
    finally:
        ZcdDataLoader._get_iterator = original  # type: ignore[method-assign]


def run_ranks(function: Callable[..., Any], *args: Any, world: int = RANKS, seconds: float = 120) -> list[Any]:
    """What `function(*args)` returns in each of `world` processes with the environment that torchrun gives them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    processes = [
        context.Process(target=_rank, args=(function, args, rank, world, port, pipes[rank][1])) for rank in range(world)
    ]
    try:
        for process in processes:
            process.start()
        results = []
        for rank, (receiver, _) in enumerate(pipes):
            assert receiver.poll(seconds), f"rank {rank} did not finish in {seconds} s"
            failure, result = receiver.recv()
            assert failure is None, f"rank {rank}:\n{failure}"
            results.append(result)
        for process in processes:
            process.join(seconds)
        return results
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def _rank(function: Callable[..., Any], args: tuple[Any, ...], rank: int, world: int, port: int, results: Any) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        os.environ[name] = str(rank)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ[name] = str(world)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GROUP_RANK="0", TORCHELASTIC_RUN_ID="zcd")
    torch.set_num_threads(1)
    # A spawned process would spawn its own workers, which import torch again; ranks that torchrun starts fork them.
    multiprocessing.set_start_method("fork", force=True)
    try:
        results.send((None, function(*args)))
    except BaseException:
        results.send((traceback.format_exc(), None))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def assert_shared_out(by_rank: list[list[int]]) -> None:
    """Each sample went to exactly one rank, once, and no rank went without."""
    assert sorted(number for numbers in by_rank for number in numbers) == list(range(ROWS))
    assert {len(numbers) for numbers in by_rank} == {ROWS // RANKS}

"""DALI's pipelines when an epoch is left in mid-flight: threads end, descriptors close, memory goes back."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import task_count, wait_until

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali
from zerocopy_data.device.decode.dali import DaliDecoder
from zerocopy_data.loader.encoded_plan import EncodedPlan

pytest.importorskip("nvidia.dali", reason="DALI is not installed: pip install nvidia-dali-cuda130")

CHAIN: list[Any] = [zcd.RandomResizedCrop(32), zcd.RandomHorizontalFlip()]


def counts() -> tuple[int, int]:
    """(threads, descriptors) of this process."""
    gc.collect()
    return task_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def settled(before: tuple[int, int]) -> bool:
    now = counts()
    return now[0] <= before[0] and now[1] <= before[1]


def load(path: Path, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(
        zcd.open(path, CHAIN), **{"batch_size": 4, "num_workers": 2, "decode": Dali("cpu"), "seed": 1, **options}
    )


@pytest.mark.parametrize("loaders", ["one", "each its own"])
def test_fifty_epochs_left_in_mid_flight_leave_nothing(photos_path: Path, loaders: str) -> None:
    loader = load(photos_path)
    expected = [batch["number"].tolist() for batch in loader]
    assert len(expected) == 15
    del loader
    before = counts()
    kept = load(photos_path)
    next(iter(kept))  # its decoder stays for the next epoch
    gc.collect()
    within = counts()
    for turn in range(50):
        loader = kept if loaders == "one" else load(photos_path)
        for place, batch in enumerate(loader):
            assert batch["number"].tolist() == expected[place]
            if place == turn % 5:
                break
        del loader, batch
    assert wait_until(lambda: settled(within)), (within, counts())
    assert [batch["number"].tolist() for batch in kept] == expected
    del kept
    assert wait_until(lambda: settled(before)), (before, counts())


def encoded_batches(path: Path, count: int) -> list[Any]:
    plan = EncodedPlan(zcd.open(path, CHAIN), 4, 2, "raise")
    return [plan.make(list(range(4 * n, 4 * n + 4)), (1, 0), pooled=False)[0]["image"] for n in range(count)]


def test_a_decoder_that_is_closed_with_batches_in_it_ends_and_can_be_made_again(photos_path: Path) -> None:
    batches = encoded_batches(photos_path, 3)
    first = DaliDecoder(torch.device("cpu"), 2, True)
    right = [first.decode(batch).clone() for batch in batches]
    first.close()
    del first
    before = counts()
    for turn in range(50):
        decoder = DaliDecoder(torch.device("cpu"), 2, True)
        running = [
            decoder.submit(batch) for batch in batches[: turn % 4]
        ]  # primed alone, one and two in it, one waiting
        if running and turn % 2:
            assert running[0].result().equal(right[0])
        decoder.close()
        decoder.close()
        del running, decoder
    assert wait_until(lambda: settled(before)), (before, counts())


def test_a_closed_decoder_takes_batches_again(photos_path: Path) -> None:
    batches = encoded_batches(photos_path, 2)
    decoder = DaliDecoder(torch.device("cpu"), 2, True)
    right = [decoder.decode(batch).clone() for batch in batches]
    decoder.close()
    assert all(decoder.decode(batch).equal(one) for batch, one in zip(batches, right, strict=True))
    decoder.close()

"""Weighted, class-balanced and repeated sampling in loaders: copies get other crops, states and ranks as elsewhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import CROP, ROWS, in_turn, own_collation, samples_of
from torch.utils.data import DataLoader as TorchDataLoader

import zerocopy_data as zcd
from zerocopy_data.loader.copies import CopyIndex, sample_keys

LABELS = np.arange(ROWS) % 7
MADE: dict[str, Callable[..., Any]] = {
    "weighted": lambda **o: zcd.WeightedSampler(np.arange(ROWS) + 1.0, 80, seed=3, **o),
    "drawn out": lambda **o: zcd.WeightedSampler(np.arange(ROWS) + 1.0, 40, replacement=False, seed=3, **o),
    "balanced": lambda **o: zcd.ClassBalancedSampler(LABELS, 90, seed=3, **o),
    "repeated": lambda **o: zcd.RepeatedSampler(ROWS, 3, seed=3, **o),
}


def loader_of(path: Path, sampler: Any, batch: int = 8, workers: int = 0, **options: Any) -> Any:
    data = zcd.open(path, CROP).select(["image", "number"])
    return zcd.StatefulDataLoader(data, batch, sampler=sampler, seed=7, num_workers=workers, **options)


@pytest.mark.parametrize("kind", MADE)
def test_threads_and_worker_processes_serve_the_same_samples_and_crops(photos_path: Path, kind: str) -> None:
    threads = loader_of(photos_path, MADE[kind](), workers=1)
    threads.set_epoch(2)
    expected = samples_of(threads)
    assert len(expected) == len(MADE[kind]())
    processes = loader_of(photos_path, MADE[kind](), workers=1, collate_fn=own_collation)
    processes.set_epoch(2)
    assert samples_of(processes) == expected


@pytest.mark.parametrize("kind", ["weighted", "balanced", "repeated"])
def test_a_sample_that_comes_again_has_another_crop(photos_path: Path, kind: str) -> None:
    seen = samples_of(loader_of(photos_path, MADE[kind]()))
    assert len({number for number, _ in seen}) < len(seen)
    by_number: dict[int, set[bytes]] = {}
    for number, image in seen:
        by_number.setdefault(number, set()).add(image)
    distinct = sum(len(images) for images in by_number.values())
    assert distinct >= len(seen) - 2  # crops of one colour may be equal


@pytest.mark.parametrize("kind", MADE)
def test_what_some_ranks_began_others_finish(photos_path: Path, kind: str) -> None:
    whole = loader_of(photos_path, MADE[kind]())
    expected = samples_of(whole)
    begun = [loader_of(photos_path, MADE[kind](rank=r, world_size=2), 4) for r in range(2)]
    first = [samples_of(loader, 2) for loader in begun]
    state = pickle.dumps(begun[0].state_dict())
    assert len(state) < 200
    rest = []
    for rank in range(3):
        loader = loader_of(photos_path, MADE[kind](rank=rank, world_size=3, uneven="uneven"), 5, workers=1)
        loader.load_state_dict(pickle.loads(state))
        rest.append(samples_of(loader))
    assert len(first[0]) == len(first[1])
    assert in_turn(first) + in_turn(rest) == expected


def test_a_state_of_other_weights_is_refused(photos_path: Path) -> None:
    loader = loader_of(photos_path, zcd.WeightedSampler([1.0] * ROWS, seed=3))
    next(iter(loader))
    other = loader_of(photos_path, zcd.WeightedSampler([1.0] * (ROWS - 1) + [2.0], seed=3))
    with pytest.raises(zcd.ConfigError, match="order would be another"):
        other.load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: zcd.EpochSampler(ROWS, seed),
        lambda seed: zcd.WeightedSampler([1.0] * ROWS, seed=seed),
        lambda seed: zcd.ClassBalancedSampler(LABELS, seed=seed),
        lambda seed: zcd.RepeatedSampler(ROWS, seed=seed),
    ],
)
def test_a_state_of_another_seed_of_the_sampler_is_refused(photos_path: Path, make: Callable[[int], Any]) -> None:
    loader = loader_of(photos_path, make(2**64 - 1))
    next(iter(loader))
    state = loader.state_dict()
    assert len(pickle.dumps(state)) < 200
    with pytest.raises(zcd.ConfigError, match="order would be another"):
        loader_of(photos_path, make(2)).load_state_dict(state)


class Own(zcd.EpochSampler):
    """A sampler of a user's, with another order than ours."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(self.size).tolist())


def test_a_subclass_with_an_order_of_its_own_resumes_too(photos_path: Path) -> None:
    torch.manual_seed(1)
    loader = loader_of(photos_path, Own(ROWS))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    expected = samples_of(loader)
    torch.manual_seed(2)
    resumed = loader_of(photos_path, Own(ROWS))
    resumed.load_state_dict(state)
    assert samples_of(resumed) == expected


def test_over_other_peoples_datasets_each_epoch_draws_anew() -> None:
    loader: Any = zcd.DataLoader(torch.arange(ROWS), 8, sampler=zcd.WeightedSampler([1.0] * ROWS))  # type: ignore[arg-type]
    assert torch.cat(list(loader)).tolist() != torch.cat(list(loader)).tolist()


@pytest.mark.parametrize("kind", MADE)
def test_in_torchs_loader_they_are_samplers_like_others(photos_path: Path, kind: str) -> None:
    sampler = MADE[kind]()
    data = torch.arange(ROWS)
    loaded = torch.cat(list(TorchDataLoader(data, 8, sampler=sampler))).tolist()  # type: ignore[arg-type]
    assert loaded == [int(index) for index in sampler]


def test_copies_of_a_sample_go_to_neighbouring_ranks() -> None:
    """As with RASampler: on three ranks each has every sample of the round once."""
    ranks = [[int(i) for i in zcd.RepeatedSampler(600, 3, seed=1, rank=r, world_size=3)] for r in range(3)]
    assert ranks[0][:170] == ranks[1][:170] == ranks[2][:170]
    assert len(set(ranks[0])) == len(ranks[0]) == len(ranks[2]) == 512 // 3 + 1  # 512 of 600, the last round padded


def test_numbered_samples_tell_copies_apart(photos_path: Path) -> None:
    data = zcd.open(photos_path, columns=["number"]).numbered("index")
    loader = zcd.DataLoader(data, 9, sampler=zcd.RepeatedSampler(ROWS, 3, seed=3), seed=7)
    rows = torch.cat([batch["index"] for batch in loader])
    assert rows.tolist() == [data[index]["index"] for index in zcd.RepeatedSampler(ROWS, 3, seed=3)]
    assert rows[0::3].tolist() == [int(index) for index in zcd.RepeatedSampler(ROWS, 3, seed=3)][0::3]
    assert (rows[1::3] < 0).all()
    assert (rows[2::3] < 0).all()
    assert len(set(rows.tolist())) == ROWS


def test_indices_with_copies_survive_pickling() -> None:
    there = pickle.loads(pickle.dumps([CopyIndex(5, 2), 3]))
    assert there == [5, 3]
    assert there[0].copy == 2
    assert type(there[0]) is CopyIndex


def test_keys_of_copies_are_never_rows() -> None:
    rows = np.repeat(np.arange(1000, dtype=np.int64), 100)
    copies = np.tile(np.arange(100, dtype=np.int64), 1000)
    keys = sample_keys(rows, copies)
    assert (keys[copies == 0] == rows[copies == 0]).all()
    assert (keys[copies > 0] < 0).all()
    assert len(set(keys.tolist())) == len(keys)


@pytest.mark.parametrize(
    "make",
    [
        lambda: zcd.WeightedSampler([1, 0, 2], 3, replacement=False),
        lambda: zcd.WeightedSampler([1, 2], 0),
        lambda: zcd.WeightedSampler([1, 2], 1.5),  # type: ignore[arg-type]
        lambda: zcd.WeightedSampler([1, 2], seed="x"),  # type: ignore[arg-type]
        lambda: zcd.ClassBalancedSampler([]),
        lambda: zcd.ClassBalancedSampler([0.5, 1.0]),
        lambda: zcd.ClassBalancedSampler([[1], [2]]),
        lambda: zcd.RepeatedSampler(0),
        lambda: zcd.RepeatedSampler(5, 0),
        lambda: zcd.RepeatedSampler(5, 2, 11),
        lambda: zcd.RepeatedSampler(5, rank=1),
        lambda: zcd.RepeatedSampler(5, rank="0", world_size=1),  # type: ignore[arg-type]
        lambda: zcd.EpochSampler(1.5),  # type: ignore[arg-type]
        lambda: zcd.EpochSampler("5"),  # type: ignore[arg-type]
        lambda: zcd.EpochSampler(float("nan")),  # type: ignore[arg-type]
        lambda: zcd.EpochSampler(2**63),
        lambda: zcd.EpochSampler(50, shuffle="window", window=1.5),  # type: ignore[arg-type]
    ],
)
def test_senseless_arguments_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(zcd.ConfigError):
        make()

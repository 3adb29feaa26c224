"""EpochSampler in loaders: ranks share an epoch, and one that was begun by some ranks is finished by others."""

from __future__ import annotations

import itertools
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_data import CROP, ROWS

import zerocopy_data as zcd

SHUFFLES = [{"shuffle": "full"}, {"shuffle": "window", "window": 16}, {"shuffle": "none"}]


def numbers(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch["number"]]


def loader_of(path: Path, batch: int, workers: int, sampler: Any, stateful: bool = True, **options: Any) -> Any:
    kind = zcd.StatefulDataLoader if stateful else zcd.DataLoader
    given_ = {"seed": 7, **options}
    return kind(zcd.open(path, CROP).select(["image", "number"]), batch, sampler=sampler, num_workers=workers, **given_)


def ranks_of(path: Path, world: int, batch: int, workers: int, epoch: int, how: dict[str, Any]) -> list[Any]:
    made = []
    for rank in range(world):
        sampler = zcd.EpochSampler(ROWS, 7, rank=rank, world_size=world, uneven="uneven", **how)
        made.append(loader_of(path, batch, workers, sampler))
        made[-1].set_epoch(epoch)
    return made


# Ranks, batch size, threads and steps of each run that is stopped.
RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 1), st.integers(0, 4)), max_size=4)


@pytest.mark.parametrize("how", SHUFFLES, ids=str)
@settings(max_examples=15, deadline=None)
@given(runs=RUNS, epoch=st.integers(0, 5))
def test_an_epoch_that_others_began_is_finished_exactly_once(
    photos_path: Path, how: Any, runs: list[tuple[int, int, int, int]], epoch: int
) -> None:
    """Stops, changes of ranks, threads and batch sizes: each sample once, its crop as if nothing had happened."""
    seen: dict[int, torch.Tensor] = {}
    state: Any = None
    for world, batch, workers, steps in [*runs, (2, 8, 1, ROWS)]:
        ranks = ranks_of(photos_path, world, batch, workers, epoch, how)
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(pickle.loads(pickle.dumps(state)))
            for loaded in itertools.islice(iter(loader), steps):
                for image, number in zip(loaded["image"], loaded["number"].tolist(), strict=True):
                    assert number not in seen
                    seen[number] = image
        if len(seen) == ROWS:
            break
        state = ranks[0].state_dict()
    assert sorted(seen) == list(range(ROWS))
    for loaded in ranks_of(photos_path, 1, 10, 1, epoch, how)[0]:
        for image, number in zip(loaded["image"], loaded["number"].tolist(), strict=True):
            assert torch.equal(image, seen[number])


@pytest.mark.parametrize("how", SHUFFLES, ids=str)
def test_the_global_order_is_that_of_the_ranks_in_turn(photos_path: Path, how: Any) -> None:
    whole = numbers(ranks_of(photos_path, 1, 8, 0, 3, how)[0])
    parts = [numbers(loader) for loader in ranks_of(photos_path, 3, 5, 1, 3, how)]
    assert [parts[i % 3][i // 3] for i in range(ROWS)] == whole


def test_shuffle_true_is_the_full_shuffle_of_all_samples(photos_path: Path) -> None:
    plain = zcd.DataLoader(zcd.open(photos_path, CROP), 8, shuffle=True, seed=7)
    given_ = loader_of(photos_path, 8, 0, zcd.EpochSampler(ROWS, 7), stateful=False)
    assert [numbers(plain) for _ in range(3)] == [numbers(given_) for _ in range(3)]


def test_without_a_loaders_seed_the_epoch_is_counted_too(photos_path: Path) -> None:
    sampler = zcd.EpochSampler(ROWS, 7)
    loader = loader_of(photos_path, 8, 1, sampler, seed=None)
    epochs = [numbers(loader) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    sampler.set_epoch(1)
    assert numbers(loader) == epochs[1]


def test_over_torchs_datasets_it_is_told_the_epoch_and_resumes(photos_path: Path) -> None:
    data = [{"number": i} for i in range(ROWS)]

    def make() -> Any:
        return zcd.StatefulDataLoader(data, 8, sampler=zcd.EpochSampler(ROWS, 7))  # type: ignore[arg-type]

    whole = make()
    whole.sampler.set_epoch(4)
    expected = numbers(whole)
    stopped = make()
    stopped.sampler.set_epoch(4)
    iterator = iter(stopped)
    got = numbers([next(iterator) for _ in range(3)])
    resumed = make()
    resumed.load_state_dict(stopped.state_dict())
    assert got + numbers(resumed) == expected
    assert len(set(expected)) == ROWS


def test_a_state_is_small_and_loads_at_once_late_in_an_epoch(photos_path: Path) -> None:
    """1.2 million samples into epoch 90 of ImageNet: nothing is counted through."""
    rows = zcd.open(photos_path).select("number").subset(torch.arange(1_281_167).numpy() % ROWS)

    def make() -> Any:
        return zcd.StatefulDataLoader(rows, 100, shuffle=True, seed=7)

    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    state.update(epoch=90, position=1_200_000, batches=12_000)
    assert len(pickle.dumps(state)) < 200
    whole = make()
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        whole.load_state_dict(state)
        whole.set_epoch(90)
        iterator = iter(whole)
        first = next(iterator)
        taken.append(time.perf_counter() - begin)
    assert min(taken) < 0.05  # counting 1.2 million indices through takes three times that
    order = zcd.EpochSampler(len(rows), 7)
    order.set_epoch(90)
    indices = iter(order)
    indices.skip(1_200_000)
    assert first["number"].tolist() == [next(indices) % ROWS for _ in range(100)]


@pytest.mark.parametrize("other", [{"shuffle": "none"}, {"window": 17}, {"size": ROWS - 1}, {"block": 2}])
def test_a_state_of_another_order_is_refused(photos_path: Path, other: Any) -> None:
    asked = {"shuffle": "window", "window": 16}
    loader = loader_of(photos_path, 8, 0, zcd.EpochSampler(ROWS, 7, **asked))
    next(iter(loader))
    changed = {"size": ROWS, **asked, **other}
    if changed["shuffle"] == "none":
        del changed["window"]
    another = loader_of(photos_path, 8, 0, zcd.EpochSampler(changed.pop("size"), 7, **changed))
    with pytest.raises(zcd.ConfigError, match="order would be another"):
        another.load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    "wrong",
    [
        {"shuffle": "some"},
        {"shuffle": "window"},
        {"window": 5},
        {"block": 5},
        {"shuffle": "window", "window": 0},
        {"rank": 0},
        {"world_size": 2},
        {"rank": 2, "world_size": 2},
        {"uneven": "no"},
        {"seed": 1.5},
        {"size": -1},
    ],
)
def test_senseless_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(zcd.ConfigError):
        zcd.EpochSampler(**{"size": 10, **wrong})


def test_ranks_are_those_of_torch_distributed_when_an_epoch_begins(tmp_path: Path) -> None:
    sampler = zcd.EpochSampler(10, 3)
    whole = list(sampler)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        assert list(sampler) == whole
    finally:
        torch.distributed.destroy_process_group()
    assert sorted(whole) == list(range(10))

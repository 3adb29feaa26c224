"""Which samples come when: torch's order for torch's seeds, a stable one for `seed=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loader_data import ROWS
from same_batches import assert_same
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchDataLoader

import zerocopy_data as zcd

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

Order = list[list[int]]


def order_of(loader: Any) -> Order:
    return [batch["number"].tolist() for batch in loader]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "sequential": lambda ds: {"batch_size": 7},
    "shuffle": lambda ds: {"batch_size": 7, "shuffle": True},
    "shuffle_drop_last": lambda ds: {"batch_size": 8, "shuffle": True, "drop_last": True},
    "generator": lambda ds: {"batch_size": 7, "shuffle": True, "generator": generator(5)},
    "sampler_list": lambda ds: {"batch_size": 3, "sampler": [9, 3, 3, 0]},
    "weighted": lambda ds: {"batch_size": 7, "sampler": WeightedRandomSampler(range(1, ROWS + 1), 40)},
    "subset_random": lambda ds: {"batch_size": 7, "sampler": SubsetRandomSampler(range(5, 30))},
    "replacement": lambda ds: {"batch_size": 7, "sampler": RandomSampler(ds, True, 25, generator(2))},
    "batch_sampler": lambda ds: {"batch_sampler": BatchSampler(RandomSampler(ds), 6, True)},
    "batch_list": lambda ds: {"batch_sampler": [[1, 2, 3], [4], [5, 6]]},
    "distributed": lambda ds: {"batch_size": 4, "sampler": DistributedSampler(ds, 3, 1, seed=4)},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_order_and_use_of_torchs_generator_equal_torchs(numbers: zcd.ShardDataset, name: str, workers: int) -> None:
    orders, states = [], []
    for cls in (zcd.DataLoader, TorchDataLoader):
        torch.manual_seed(11)
        loader = cls(numbers, num_workers=workers, **OPTIONS[name](numbers))
        # Two epochs, and one that is left early: all draw from the same generator.
        epochs = [order_of(loader), order_of(loader)]
        next(iter(loader))
        orders.append([*epochs, order_of(loader)])
        states.append(torch.get_rng_state())
    assert orders[0] == orders[1]
    assert states[0].equal(states[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterators_at_once_draw_in_torchs_order(numbers: zcd.ShardDataset, workers: int) -> None:
    seen = []
    for cls in (zcd.DataLoader, TorchDataLoader):
        torch.manual_seed(3)
        loaders = [cls(numbers, batch_size=9, shuffle=True, num_workers=workers) for _ in range(2)]
        seen.append([(a["number"].tolist(), b["number"].tolist()) for a, b in zip(*loaders, strict=True)])
    assert seen[0] == seen[1]


def test_set_epoch_of_a_distributed_sampler_is_followed(numbers: zcd.ShardDataset) -> None:
    orders = []
    for cls in (zcd.DataLoader, TorchDataLoader):
        sampler = DistributedSampler(numbers, 2, 0, seed=1)
        loader = cls(numbers, batch_size=5, sampler=sampler)
        assert loader.sampler is sampler
        orders.append([])
        for epoch in (0, 1, 5):
            sampler.set_epoch(epoch)
            orders[-1].append(order_of(loader))
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


def test_the_loaders_set_epoch_reaches_its_samplers(numbers: zcd.ShardDataset) -> None:
    plain = DistributedSampler(numbers, 2, 0)
    zcd.DataLoader(numbers, sampler=plain).set_epoch(4)
    assert plain.epoch == 4
    inner = DistributedSampler(numbers, 2, 0)
    zcd.DataLoader(numbers, batch_sampler=BatchSampler(inner, 3, False)).set_epoch(5)
    assert inner.epoch == 5
    zcd.DataLoader(numbers, sampler=SequentialSampler(numbers)).set_epoch(6)
    zcd.DataLoader(numbers, batch_sampler=[[1]]).set_epoch(7)


def seeded(ds: zcd.ShardDataset, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds, **{"batch_size": 10, "shuffle": True, "seed": 4, **options})


def test_a_seed_gives_the_same_epochs_in_every_run(photos: zcd.ShardDataset) -> None:
    torch.manual_seed(0)
    first = [list(loader) for loader in [seeded(photos, num_workers=2)] for _ in range(3)]
    torch.manual_seed(1)
    loader = seeded(photos)
    again = [list(loader) for _ in range(3)]
    for one, other in zip(first, again, strict=True):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_count_by_themselves_and_set_epoch_goes_back(
    photos: zcd.ShardDataset, workers: int, persistent: bool
) -> None:
    loader = seeded(photos, num_workers=workers, persistent_workers=persistent and workers > 0)
    epochs = [list(loader) for _ in range(3)]
    orders = [[n for batch in epoch for n in batch["number"].tolist()] for epoch in epochs]
    assert all(sorted(order) == list(range(ROWS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert loader.epoch == 3
    for epoch in (1, 0, 2):
        loader.set_epoch(epoch)
        for one, other in zip(loader, epochs[epoch], strict=True):
            assert_same(one, other)
        assert loader.epoch == epoch + 1


@pytest.mark.parametrize("workers", [0, 2])
def test_persistent_workers_or_not_crops_change_every_epoch_without_a_seed(
    photos: zcd.ShardDataset, workers: int
) -> None:
    loader = zcd.DataLoader(photos, batch_size=57, num_workers=workers, persistent_workers=workers > 0)
    torch.manual_seed(0)
    epochs = [next(iter(loader))["image"] for _ in range(3)]
    assert not epochs[0].equal(epochs[1])
    assert not epochs[1].equal(epochs[2])
    again = zcd.DataLoader(photos, batch_size=57, num_workers=workers, persistent_workers=workers > 0)
    torch.manual_seed(0)
    assert all(next(iter(again))["image"].equal(images) for images in epochs)


def test_other_seeds_give_other_orders(numbers: zcd.ShardDataset) -> None:
    orders = {str(order_of(seeded(numbers, seed=seed))) for seed in (0, 1, -1, 2**63, 2**64 - 5)}
    assert len(orders) == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_of_two_epochs_at_once_keep_to_their_own(numbers: zcd.ShardDataset, workers: int) -> None:
    loader = seeded(numbers, num_workers=workers)
    expected = [order_of(loader), order_of(loader)]
    loader.set_epoch(0)
    pairs = [(a["number"].tolist(), b["number"].tolist()) for a, b in zip(loader, loader, strict=True)]
    assert [list(order) for order in zip(*pairs, strict=True)] == expected


def test_a_seed_leaves_torchs_generator_as_torchs_class_does(numbers: zcd.ShardDataset) -> None:
    states = []
    for make in (seeded, lambda ds: TorchDataLoader(ds, batch_size=10)):
        torch.manual_seed(0)
        order_of(make(numbers))
        states.append(torch.get_rng_state())
    assert states[0].equal(states[1])


def test_a_seed_with_workers_that_would_not_hear_of_the_epoch_is_refused(photos: zcd.ShardDataset) -> None:
    with pytest.raises(zcd.ConfigError, match="persistent_workers"):
        zcd.DataLoader(photos, seed=0, collate_fn=len, num_workers=2, persistent_workers=True)
    late = zcd.DataLoader(photos, seed=0, num_workers=2, persistent_workers=True)
    late.collate_fn = len
    with pytest.raises(zcd.ConfigError, match="persistent_workers"):
        iter(late)

"""A loader whose samplers a framework wraps and tells the epoch: order and crops follow, options are found again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from loader_data import ROWS
from torch.utils.data import DistributedSampler

import zerocopy_data as zcd
from zerocopy_data.loader.sampler_chain import options_left


class Wrapped:
    """A batch sampler around another, as frameworks make them."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batch_sampler)


def epoch_of(loader: Any) -> tuple[list[int], list[float]]:
    batches = list(loader)
    return [n for b in batches for n in b["number"].tolist()], [s for b in batches for s in b["image"].sum((1, 2, 3))]


def seeded(ds: zcd.ShardDataset, **options: Any) -> Any:
    return zcd.DataLoader(ds, batch_size=8, seed=3, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_told_to_the_sampler_governs_order_and_crops(photos: zcd.ShardDataset, workers: int) -> None:
    plain = seeded(photos, shuffle=True)
    epochs = [epoch_of(plain) for _ in range(4)]
    loader = seeded(photos, shuffle=True, num_workers=workers)
    loader.sampler.set_epoch(2)
    assert [epoch_of(loader), epoch_of(loader)] == epochs[2:]
    loader.sampler.set_epoch(1)
    assert epoch_of(loader) == epochs[1]


@pytest.mark.parametrize("kind", [zcd.DataLoader, zcd.StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
def test_told_between_iter_and_the_first_batch_it_still_counts(
    photos: zcd.ShardDataset, workers: int, kind: Any
) -> None:
    plain = seeded(photos, shuffle=True)
    epochs = [epoch_of(plain) for _ in range(3)]
    loader = kind(photos, batch_size=8, seed=3, shuffle=True, num_workers=workers)
    iterator = iter(loader)
    loader.sampler.set_epoch(2)
    assert epoch_of(iterator) == epochs[2]
    iterator = iter(loader)
    first = next(iterator)
    loader.sampler.set_epoch(0)  # too late for this one
    assert loader.epoch == 4
    assert [*first["number"].tolist(), *epoch_of(iterator)[0]] != epochs[0][0]
    assert epoch_of(loader) == epochs[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_told_the_epoch_that_a_state_is_in_the_middle_of_it_goes_on(photos: zcd.ShardDataset, workers: int) -> None:
    plain = seeded(photos, shuffle=True)
    epochs = [epoch_of(plain) for _ in range(3)]

    def stateful() -> Any:
        return zcd.StatefulDataLoader(photos, batch_size=8, seed=3, shuffle=True, num_workers=workers)

    loader = stateful()
    loader.set_epoch(1)
    next(iter(loader))
    resumed = stateful()
    resumed.load_state_dict(loader.state_dict())
    iterator = iter(resumed)
    resumed.sampler.set_epoch(1)  # as Lightning does it
    assert epoch_of(iterator) == (epochs[1][0][8:], epochs[1][1][8:])
    assert epoch_of(resumed) == epochs[2]
    other = stateful()
    other.load_state_dict(loader.state_dict())
    iterator = iter(other)
    other.sampler.set_epoch(2)
    with pytest.raises(zcd.ConfigError, match="in the middle of epoch 1, set_epoch asks for epoch 2"):
        next(iterator)


def test_a_wrapped_batch_sampler_is_told_by_the_loader_and_tells_it(photos: zcd.ShardDataset) -> None:
    plain = seeded(photos, shuffle=True)
    epochs = [epoch_of(plain) for _ in range(4)]
    inner = seeded(photos, shuffle=True)
    loader = zcd.DataLoader(photos, batch_sampler=Wrapped(Wrapped(inner.batch_sampler)), seed=3)  # type: ignore[arg-type]
    assert [epoch_of(loader) for _ in range(2)] == epochs[:2]
    loader.set_epoch(3)
    assert epoch_of(loader) == epochs[3]
    inner.batch_sampler.sampler.set_epoch(1)
    assert epoch_of(loader) == epochs[1]


def test_a_distributed_sampler_that_nobody_tells_leaves_the_count_alone(photos: zcd.ShardDataset) -> None:
    sampler = DistributedSampler(photos, num_replicas=1, rank=0, shuffle=False)
    loader = seeded(photos, sampler=sampler)
    untold = seeded(photos)
    assert [epoch_of(loader) for _ in range(2)] == [epoch_of(untold) for _ in range(2)]
    sampler.set_epoch(1)
    untold.set_epoch(1)
    assert epoch_of(loader) == epoch_of(untold)


def test_two_open_iterators_serve_each_its_own_epoch(photos: zcd.ShardDataset) -> None:
    plain = seeded(photos, shuffle=True)
    epochs = [epoch_of(plain) for _ in range(3)]
    loader = seeded(photos, shuffle=True)
    first, second = iter(loader), iter(loader)
    assert [epoch_of(second), epoch_of(first), epoch_of(loader)] == [epochs[1], epochs[0], epochs[2]]


def test_options_are_found_through_wrappers_copies_and_only_for_their_dataset(photos: zcd.ShardDataset) -> None:
    loader = seeded(photos, on_error="skip", stall_after=9, device="cpu", read_ahead=7)
    loader = pickle.loads(pickle.dumps(loader))
    left = options_left(loader.dataset, Wrapped(Wrapped(loader.batch_sampler)), None)
    assert left is not None
    assert left.keywords() == {
        "seed": 3, "on_error": "skip", "stall_after": 9, "device": "cpu", "static": False, "decode": "cpu",
        "read_ahead": 7,
    }  # fmt: skip
    assert options_left(photos, Wrapped(loader.batch_sampler), None) is None
    with zcd.patch():
        again: Any = torch.utils.data.DataLoader(loader.dataset, batch_sampler=Wrapped(loader.batch_sampler))  # type: ignore[arg-type]
        told = torch.utils.data.DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, on_error="raise")
        other: Any = torch.utils.data.DataLoader(photos, batch_sampler=loader.batch_sampler)
    assert (again.seed, again.on_error, again.stall_after, again.device) == (3, "skip", 9, "cpu")
    assert (told.seed, told.on_error) == (None, "raise")
    assert other.seed is None
    assert sorted(epoch_of(again)[0]) == list(range(ROWS))


def test_a_batch_sampler_without_attributes_is_left_alone(photos: zcd.ShardDataset) -> None:
    loader = zcd.DataLoader(photos, batch_sampler=[[0, 1], [2]], seed=3)
    assert epoch_of(loader)[0] == [0, 1, 2]

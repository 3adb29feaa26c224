"""StatefulDataLoader beside torchdata's class of that name: after a stop both go on with the same samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from framework_runs import needs
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import zerocopy_data as zcd

pytestmark = needs("torchdata")

ROWS, BATCH = 23, 3


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    """Each worker's share of the numbers; knows where it stands."""

    def __init__(self) -> None:
        self.place = 0
        self.resumed = False

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        share = range(worker, ROWS, workers)
        if not self.resumed:
            self.place = 0
        self.resumed = False
        while self.place < len(share):
            self.place += 1
            yield share[self.place - 1]

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place, self.resumed = state["place"], True


def theirs() -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader


def after_stop(kind: Any, dataset: type[Dataset[int]], workers: int, stop: int, every: int) -> list[list[int]]:
    """What a fresh loader gives that loads the state taken after `stop` batches."""
    options = {"batch_size": BATCH, "num_workers": workers, "snapshot_every_n_steps": every}
    loader = kind(dataset(), **options)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    state = loader.state_dict()
    del batches
    again = kind(dataset(), **options)
    again.load_state_dict(state)
    return [batch.tolist() for batch in again]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("stop", [0, 1, 4, 7])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Numbers, Stream])
def test_both_go_on_with_the_same_samples(dataset: type[Dataset[int]], workers: int, stop: int, every: int) -> None:
    expected = after_stop(theirs(), dataset, workers, stop, every)
    assert expected
    assert after_stop(zcd.StatefulDataLoader, dataset, workers, stop, every) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Numbers, Stream])
def test_after_an_epoch_both_begin_the_next(dataset: type[Dataset[int]], workers: int) -> None:
    rest = []
    for kind in (theirs(), zcd.StatefulDataLoader):
        loader = kind(dataset(), batch_size=BATCH, num_workers=workers)
        first = [batch.tolist() for batch in loader]
        again = kind(dataset(), batch_size=BATCH, num_workers=workers)
        again.load_state_dict(loader.state_dict())
        rest.append((first, [batch.tolist() for batch in again]))
    assert rest[0] == rest[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_both_keep_the_order_of_a_generator(workers: int) -> None:
    rest = []
    for kind in (theirs(), zcd.StatefulDataLoader):
        options = {"batch_size": BATCH, "num_workers": workers, "shuffle": True}
        loader = kind(Numbers(), generator=torch.Generator().manual_seed(3), **options)
        batches = iter(loader)
        taken = [number for _ in range(3) for number in next(batches).tolist()]
        state = loader.state_dict()
        del batches
        again = kind(Numbers(), generator=torch.Generator().manual_seed(3), **options)
        again.load_state_dict(state)
        rest.append(sorted(taken + [number for batch in again for number in batch.tolist()]))
    assert rest[0] == rest[1] == list(range(ROWS))

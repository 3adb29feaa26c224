"""StatefulDataLoader over map-style datasets: exactly the samples that had not been returned, in the same order."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from stateful_data import (
    Numbers,
    Remembering,
    SamplerWithStatefulIterator,
    StatefulBatches,
    StatefulSampler,
    batch_by_batch,
    flat,
    plain,
    resumed,
    stopped,
)
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import zerocopy_data as zcd

STOPS = [0, 1, 3, 7, 8]  # of eight batches


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class EagerShuffle(Sampler[int]):
    """Draws from the global generator when iter() is called."""

    def __init__(self, draw: Callable[[], list[int]]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw())


class LazyBatches(Sampler[list[int]]):
    """Of the user's own, without a state; uses Python's random when it begins."""

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[list[int]]:
        order = random.sample(range(23), 23)
        for start in range(0, 23, 3):
            yield order[start : start + 3]


# Whether a later epoch can be the same too: not where it is drawn from global generators.
ORDERS: dict[str, tuple[Callable[[], dict[str, Any]], bool]] = {
    "in order": (lambda: {}, True),
    "dropping the last": (lambda: {"drop_last": True}, True),
    "shuffled": (lambda: {"shuffle": True}, False),
    "shuffled with a generator": (lambda: {"shuffle": True, "generator": generator()}, True),
    "sampler with a generator": (lambda: {"sampler": RandomSampler(range(23), generator=generator())}, True),
    "two generators": (
        lambda: {"sampler": RandomSampler(range(23), generator=generator()), "generator": generator(9)},
        True,
    ),
    "with replacement": (
        lambda: {"sampler": RandomSampler(range(23), True, 50, generator()), "batch_size": 7},
        True,
    ),
    "with replacement, no generator": (lambda: {"sampler": RandomSampler(range(23), True, 24)}, False),
    "more samples than there are": (lambda: {"sampler": RandomSampler(range(5), num_samples=23)}, False),
    "subset": (lambda: {"sampler": SubsetRandomSampler(range(23))}, False),
    "weighted": (lambda: {"sampler": WeightedRandomSampler([1.0] * 23, 23)}, False),
    "distributed": (lambda: {"sampler": DistributedSampler(range(23), 1, 0)}, True),
    "a list": (lambda: {"sampler": list(range(22, -1, -1))}, True),
    "torch, eager": (lambda: {"sampler": EagerShuffle(lambda: torch.randperm(23).tolist())}, False),
    "numpy, eager": (lambda: {"sampler": EagerShuffle(lambda: np.random.permutation(23).tolist())}, False),
    "batch sampler": (lambda: {"batch_sampler": BatchSampler(SequentialSampler(range(23)), 3, False)}, True),
    "batch sampler of one's own": (lambda: {"batch_sampler": LazyBatches()}, False),
    "without batches": (
        lambda: {"batch_size": None, "sampler": EagerShuffle(lambda: torch.randperm(8).tolist())},
        False,
    ),
    "without batches, shuffled": (lambda: {"batch_size": None, "sampler": RandomSampler(range(8))}, False),
    "stateful sampler": (lambda: {"sampler": StatefulSampler()}, True),
    "stateful sampler iterator": (lambda: {"sampler": SamplerWithStatefulIterator()}, True),
    "stateful batch sampler": (lambda: {"batch_sampler": StatefulBatches()}, True),
}


def maker(order: str, workers: int, dataset: Any = Numbers, **options: Any) -> Callable[[], Any]:
    arguments, _ = ORDERS[order]

    def make() -> Any:
        given = {"num_workers": workers, **options, **arguments()}
        if "batch_sampler" not in given:
            given = {"batch_size": 3, **given}
        return zcd.StatefulDataLoader(dataset(), **given)

    return make


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_goes_on_where_it_was_stopped(order: str, workers: int) -> None:
    make = maker(order, workers)
    for stop in STOPS if workers == 0 else [3]:
        torch.manual_seed(stop)
        random.seed(stop)
        np.random.seed(stop)
        state, left, following, _ = stopped(make, stop)
        torch.manual_seed(99)
        random.seed(99)
        np.random.seed(99)
        again, then = resumed(make, state)
        assert again == left
        if ORDERS[order][1]:
            assert then == following
        else:
            assert len(then) == len(following)


@pytest.mark.parametrize("order", ["in order", "shuffled", "shuffled with a generator", "stateful sampler"])
@pytest.mark.parametrize("workers", [1, 3])
def test_stops_with_fewer_and_more_workers(order: str, workers: int) -> None:
    make = maker(order, workers)
    for stop in (0, 2, 6, 9):
        torch.manual_seed(stop)
        state, left, following, _ = stopped(make, stop)
        torch.manual_seed(99)
        again, then = resumed(make, state)
        if stop < 9 or ORDERS[order][1]:  # the ninth is one too many: the state is of the next epoch
            assert again == left
        if ORDERS[order][1]:
            assert then == following


@pytest.mark.parametrize("order", ["shuffled with a generator", "two generators", "stateful sampler"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_later_epoch_and_its_end(order: str, workers: int, persistent: bool) -> None:
    make = maker(order, workers, persistent_workers=persistent and workers > 0)
    for stop in (0, 4):
        state, left, following, loader = stopped(make, stop, epochs=1)
        assert resumed(make, state) == (left, following)
        state = loader.state_dict()  # after the whole of the next epoch
        assert state["finished"]
        expected = [plain(batch) for batch in loader], [plain(batch) for batch in loader]
        assert resumed(make, state) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffling_is_torchs_and_resuming_leaves_the_global_generator_alone(workers: int) -> None:
    torch.manual_seed(5)
    expected = [plain(b) for b in torch.utils.data.DataLoader(Numbers(), 3, shuffle=True, num_workers=workers)]
    following = torch.initial_seed(), torch.rand(2).tolist()
    torch.manual_seed(5)
    make = maker("shuffled", workers)
    loader = make()
    iterator = iter(loader)
    got = [plain(next(iterator)) for _ in range(4)]
    state = loader.state_dict()
    torch.manual_seed(5)
    assert got + resumed_rest(make, state) == expected
    torch.manual_seed(5)
    assert [plain(batch) for batch in make()] == expected
    assert (torch.initial_seed(), torch.rand(2).tolist()) == following


def resumed_rest(make: Callable[[], Any], state: Any) -> list[Any]:
    before = torch.get_rng_state()
    loader = make()
    loader.load_state_dict(state)
    rest = [plain(batch) for batch in loader]
    assert torch.equal(torch.get_rng_state(), before)
    return rest


def test_no_sample_is_loaded_that_was_returned() -> None:
    make = maker("shuffled", 0)
    state, left, _, _ = stopped(make, 5)
    loader = make()
    loader.load_state_dict(state)
    list(loader)
    assert [number for batch in left for number in batch] == loader.dataset.loaded


def test_the_rest_of_an_epoch_may_have_other_workers_and_another_batch_size() -> None:
    state, left, following, _ = stopped(maker("shuffled with a generator", 2), 3)
    for workers, size in ((0, 3), (1, 3), (3, 3), (0, 4), (2, 1)):
        again, then = resumed(maker("shuffled with a generator", workers, batch_size=size), state)
        assert flat(again) == flat(left)
        assert flat(then) == flat(following)
        assert {len(batch) for batch in again[:-1]} == {size}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_taken_before_the_first_batch_is_of_the_epoch_that_follows(workers: int) -> None:
    for order in ("shuffled", "shuffled with a generator", "torch, eager", "stateful sampler"):
        make = maker(order, workers)
        torch.manual_seed(1)
        loader = make()
        state = loader.state_dict()
        expected = [plain(batch) for batch in loader]
        torch.manual_seed(2)
        assert resumed(make, state)[0] == expected


def test_a_state_taken_early_changes_nothing() -> None:
    for order in ("shuffled", "torch, eager", "batch sampler of one's own"):
        runs = []
        for early in (False, True):
            torch.manual_seed(1)
            random.seed(1)
            loader = maker(order, 0)()
            if early:
                loader.state_dict()
            runs.append([plain(batch) for batch in loader])
        assert runs[0] == runs[1]


def test_a_loaded_state_that_was_not_used_is_given_back() -> None:
    state, left, _, _ = stopped(maker("shuffled", 0), 3)
    make = maker("shuffled", 0)
    loader = make()
    loader.load_state_dict(state)
    assert resumed(make, loader.state_dict())[0] == left
    loader.load_state_dict({})
    assert len(list(loader)) == 8


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ["shuffled", "shuffled with a generator", "stateful sampler", "torch, eager"])
def test_stopping_again_and_again(order: str, workers: int) -> None:
    torch.manual_seed(4)
    make = maker(order, workers)
    got, expected = batch_by_batch(make)
    assert got == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("every", [None, 1, 3, 100])
def test_a_dataset_with_a_state_gets_it_back_where_it_lived(workers: int, every: int | None) -> None:
    make = maker("in order", workers, Remembering, snapshot_every_n_steps=every)
    for stop in (0, 1, 5):
        state, left, following, _ = stopped(make, stop)
        again, then = resumed(make, state)
        assert again == left
        assert then == following


@pytest.mark.parametrize("every", [None, 2, 5])
@pytest.mark.parametrize("order", ["stateful sampler", "stateful batch sampler"])
def test_states_of_samplers_may_be_taken_less_often(order: str, every: int | None) -> None:
    make = maker(order, 2, snapshot_every_n_steps=every)
    for stop in (1, 4, 5):
        state, left, following, _ = stopped(make, stop)
        assert resumed(make, state) == (left, following)


def test_persistent_workers_keep_the_state_of_their_dataset_into_the_next_epoch() -> None:
    make = maker("in order", 2, Remembering, persistent_workers=True)
    for epochs, stop in ((0, 8), (1, 3), (2, 0)):
        state, left, following, loader = stopped(make, stop, epochs)
        assert resumed(make, state) == (left, following)
        state = loader.state_dict()
        assert resumed(make, state)[0] == [plain(batch) for batch in loader]


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("every", [2, 3, None])
def test_the_state_after_an_epoch_of_persistent_workers_is_whole_however_seldom_it_is_taken(
    every: int | None, counted: bool
) -> None:
    options = {} if counted else {"sampler": Uncounted(17)}
    make = maker("in order", 2, Remembering, persistent_workers=True, snapshot_every_n_steps=every, **options)
    for epochs in (1, 2):
        loader = make()
        for _ in range(epochs):
            list(loader)
        state = loader.state_dict()
        assert resumed(make, state)[0] == [plain(batch) for batch in loader]


class Uncounted:
    """Indices in order; nobody knows how many."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


def test_a_broken_off_epoch_of_persistent_workers() -> None:
    make = maker("in order", 2, Remembering, persistent_workers=True)
    loader = make()
    for _ in loader:
        break
    iterator = iter(loader)
    state = loader.state_dict()
    next(iterator)
    left = [plain(batch) for batch in iterator]
    assert resumed(make, state)[0][1:] == left


def test_a_break_ends_the_workers_and_keeps_the_state() -> None:
    before = set(torch.multiprocessing.active_children())
    loader = maker("shuffled", 2)()
    for batch in loader:
        first = plain(batch)
        break
    assert set(torch.multiprocessing.active_children()) <= before
    rest = resumed(maker("shuffled", 0), loader.state_dict())[0]
    assert sorted(first + flat(rest)) == list(range(23))


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise ValueError("seven")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_is_tried_again_unless_a_later_one_was_returned(workers: int) -> None:
    loader = maker("in order", workers, Failing)()
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(ValueError, match="seven"):
        next(iterator)
    state = loader.state_dict()
    next(iterator)
    later = loader.state_dict()
    assert resumed(maker("in order", workers), state)[0][0] == [6, 7, 8] or workers == 0
    assert resumed(maker("in order", workers), later)[0][0] == [12, 13, 14]


def test_the_rest_of_an_epoch_knows_its_distributed_epoch() -> None:
    def make() -> Any:
        return zcd.StatefulDataLoader(Numbers(), 3, sampler=DistributedSampler(range(23), 2, 1, seed=4))

    loader = make()
    loader.set_epoch(5)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    left = [plain(batch) for batch in iterator]
    assert resumed(make, state)[0] == left
    loader = make()
    loader.load_state_dict(state)
    loader.set_epoch(4)
    with pytest.raises(zcd.ConfigError, match=r"middle of epoch 5, set_epoch asks for epoch 4"):
        iter(loader)
    loader.set_epoch(5)
    assert [plain(batch) for batch in loader] == left


REFUSED = [
    ({"_snapshot": {}, "_steps_since_snapshot": 0}, "torchdata"),
    ({"anything": 1}, "something else"),
    ({"version": 99}, "version 99"),
]


@pytest.mark.parametrize(("state", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_foreign_states_are_refused(state: Any, reason: str) -> None:
    with pytest.raises(zcd.ConfigError, match=reason):
        maker("in order", 0)().load_state_dict(state)


def test_a_state_that_would_mean_other_samples_is_refused() -> None:
    state, _, _, _ = stopped(maker("shuffled", 0), 3)
    with pytest.raises(zcd.ConfigError, match=r"sampler was RandomSampler .* is SequentialSampler"):
        maker("in order", 0)().load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match=r"length of the sampler was 23 .* is 24"):
        maker("shuffled", 0, lambda: Numbers(24))().load_state_dict(state)
    loader = maker("shuffled with a generator", 0)()
    loader.load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match=r"0 torch.Generator"):
        list(loader)
    state, _, _, _ = stopped(maker("in order", 0), 7)
    with pytest.raises(zcd.ConfigError, match=r"length of the sampler was 23 .* is 5"):
        maker("in order", 0, lambda: Numbers(5))().load_state_dict(state)
    state, _, _, _ = stopped(maker("in order", 0, sampler=Uncounted(23)), 7)
    loader = maker("in order", 0, sampler=Uncounted(5))()
    loader.load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match=r"position 21 .* only 5"):
        list(loader)
    state, _, _, _ = stopped(maker("in order", 2, Remembering), 3)
    with pytest.raises(zcd.ConfigError, match="num_workers=2, this loader has 3"):
        maker("in order", 3, Remembering)().load_state_dict(state)


def test_batches_as_they_come_have_no_state() -> None:
    loader = maker("in order", 2, in_order=False)()
    with pytest.raises(zcd.ConfigError, match="in_order"):
        loader.state_dict()
    assert maker("in order", 0, in_order=False)().state_dict()


def test_a_negative_interval_is_refused() -> None:
    with pytest.raises(zcd.ConfigError, match="snapshot_every_n_steps"):
        zcd.StatefulDataLoader(Numbers(), snapshot_every_n_steps=-1)


def test_the_plain_class_has_no_state() -> None:
    assert not hasattr(zcd.DataLoader(Numbers()), "state_dict")
    assert not hasattr(zcd.DataLoader(Numbers()), "load_state_dict")


def test_the_loader_pickles() -> None:
    loader = maker("in order", 0)()
    next(iter(loader))
    assert [plain(batch) for batch in pickle.loads(pickle.dumps(loader))] == [plain(b) for b in maker("in order", 0)()]

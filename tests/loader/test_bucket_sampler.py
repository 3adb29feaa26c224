"""BucketBatchSampler: ranks share an epoch's batches, which are resumed anywhere, with other ranks, in any loader."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocopy_data as zcd

LENGTHS = np.random.default_rng(5).lognormal(2.5, 0.8, 300).astype(np.int64).clip(1, 100)
UNEVEN = st.sampled_from(["pad", "drop"])


def sampler_of(rank: int = 0, world: int = 1, epoch: int = 0, **options: Any) -> zcd.BucketBatchSampler:
    options = {"max_tokens": 200, "buckets": 8, "seed": 3, **options}
    sampler = zcd.BucketBatchSampler(LENGTHS, rank=rank, world_size=world, **options)
    sampler.set_epoch(epoch)
    return sampler


def whole(**options: Any) -> list[list[int]]:
    return list(sampler_of(**options))


@settings(deadline=None)
@given(st.integers(1, 70), st.integers(0, 5), UNEVEN, st.sampled_from([None, (1.0, 0.1)]))
def test_ranks_serve_equally_many_batches_of_one_order(world: int, epoch: int, uneven: str, cost: Any) -> None:
    options = {"epoch": epoch, "cost": cost, "together": 70}
    order = whole(**options)
    assert sorted(n for batch in order for n in batch) == list(range(300))
    assert all(int(LENGTHS[batch].max()) * len(batch) <= 200 for batch in order)
    ranks = [sampler_of(rank, world, uneven=uneven, **options) for rank in range(world)]
    served = [list(sampler) for sampler in ranks]
    steps = len(order) // world if uneven == "drop" else -(-len(order) // world)
    assert [len(sampler) for sampler in ranks] == [len(batches) for batches in served] == [steps] * world
    in_turn = [batch for step in zip(*served, strict=True) for batch in step]
    assert in_turn == [order[i % len(order)] for i in range(steps * world)]


# Ranks and steps of each run that is stopped.
RUNS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=4)


@settings(deadline=None)
@given(RUNS, st.integers(0, 5))
def test_an_epoch_that_others_began_is_finished_exactly_once(runs: list[tuple[int, int]], epoch: int) -> None:
    order, served, state = whole(epoch=epoch), [], None
    for world, steps in [*runs, (1, 1000)]:
        ranks = [sampler_of(rank, world) for rank in range(world)]
        for sampler in ranks:
            sampler.set_epoch(epoch)
            if state is not None:
                sampler.load_state_dict(pickle.loads(pickle.dumps(state)))
        # Short of the last round, which may repeat batches.
        steps = min(steps, (len(order) - len(served)) // world)
        parts = [list(itertools.islice(sampler, steps)) for sampler in ranks]
        served += [batch for step in zip(*parts, strict=True) for batch in step]
        states = [sampler.state_dict() for sampler in ranks]
        assert all(other == states[0] for other in states)
        state = states[0]
        assert len(pickle.dumps(state)) < 200
    assert served == order


def test_a_state_before_the_first_batch_is_the_whole_epoch_and_behind_the_last_the_rest_which_is_empty() -> None:
    order = whole(epoch=4)
    sampler, other = sampler_of(epoch=4), sampler_of()
    for state in (sampler.state_dict(), iter(sampler) and sampler.state_dict()):
        other.load_state_dict(state)
        assert (other.epoch, list(other)) == (4, order)
    iterator = iter(sampler)
    for _ in order:
        next(iterator)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == []
    assert list(other) == order


def test_a_state_of_a_finished_epoch_begins_the_epoch_that_is_told() -> None:
    sampler = sampler_of(epoch=4)
    assert list(sampler)
    state = sampler.state_dict()
    other = sampler_of(epoch=5)
    other.load_state_dict(state)
    assert list(other) == whole(epoch=5)


def test_set_epoch_forgets_the_place_in_another_epoch_only() -> None:
    sampler = sampler_of(epoch=2)
    list(itertools.islice(sampler, 7))
    state = sampler.state_dict()
    for told in (2, 3):
        other = sampler_of()
        other.load_state_dict(state)
        other.set_epoch(told)
        assert list(other) == (whole(epoch=2)[7:] if told == 2 else whole(epoch=3))


def test_a_loop_that_was_left_begins_its_epoch_again() -> None:
    sampler = sampler_of()
    list(itertools.islice(sampler, 7))
    iterator = iter(sampler)
    assert sampler.state_dict()["position"] == 0
    assert list(iterator) == whole()


def test_a_state_of_other_batches_is_refused() -> None:
    state = sampler_of().state_dict()
    for options in ({"seed": 4}, {"max_tokens": 201}, {"buckets": 7}, {"budget": "sum"}, {"cost": (1.0, 0.0)}):
        with pytest.raises(zcd.ConfigError, match="other lengths"):
            sampler_of(**options).load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match="other lengths"):
        zcd.BucketBatchSampler(LENGTHS + 1, 200, buckets=8, seed=3).load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match=r"state_dict\(\)"):
        sampler_of().load_state_dict({"epoch": 1})


class Sentences(torch.utils.data.Dataset[torch.Tensor]):
    """Of these lengths."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


def loaded(loader: Any, batches: int | None = None) -> list[list[int]]:
    return [batch.tolist() for batch in itertools.islice(iter(loader), batches)]


@pytest.mark.parametrize(("workers", "then"), [(0, 0), (2, 0), (0, 2), (2, 1)])
@pytest.mark.parametrize("taken", [0, 5])
def test_a_stateful_loader_goes_on_behind_what_it_returned(workers: int, then: int, taken: int) -> None:
    order = whole(epoch=1)
    loader = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler_of(epoch=1), num_workers=workers)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(taken)] == order[:taken]
    state = copy.deepcopy(loader.state_dict())
    assert len(pickle.dumps(state)) < 250
    del iterator
    sampler = sampler_of()
    other = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler, num_workers=then)
    other.load_state_dict(state)
    assert loaded(other) == order[taken:]
    sampler.set_epoch(2)
    assert loaded(other) == whole(epoch=2)


def test_a_stateful_loaders_state_behind_an_epoch_begins_the_next_that_is_told() -> None:
    loader = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler_of(epoch=1))
    assert loaded(loader) == whole(epoch=1)
    sampler = sampler_of()
    other = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler)
    other.load_state_dict(loader.state_dict())
    sampler.set_epoch(2)
    assert loaded(other) == whole(epoch=2)


def test_stateful_loaders_change_their_number_in_the_middle() -> None:
    order = whole(epoch=1)
    states, served = [], []
    for rank in range(2):
        loader = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler_of(rank, 2, 1))
        served.append(loaded(loader, 6))
        states.append(loader.state_dict())
    rest = []
    for rank in range(3):
        loader = zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler_of(rank, 3, 1))
        loader.load_state_dict(states[0])
        rest.append(loaded(loader))
    first = [batch for step in zip(*served, strict=True) for batch in step]
    last = [batch for step in zip(*rest, strict=True) for batch in step]
    assert (first + last)[: len(order)] == order
    with pytest.raises(zcd.ConfigError, match="sampler"):
        zcd.StatefulDataLoader(Sentences(), batch_sampler=sampler_of(seed=9)).load_state_dict(states[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_thread_engine_serves_and_resumes_the_batches(numbers: zcd.ShardDataset, workers: int) -> None:
    lengths = LENGTHS[: len(numbers)]

    def loader_of() -> Any:
        sampler = zcd.BucketBatchSampler(lengths, 200, buckets=4, seed=3, rank=0, world_size=1)
        return zcd.StatefulDataLoader(numbers, batch_sampler=sampler, num_workers=workers, seed=7)

    order = [batch["number"].tolist() for batch in loader_of()]
    assert sorted(n for batch in order for n in batch) == list(range(len(numbers)))
    loader = loader_of()
    assert [batch["number"].tolist() for batch in itertools.islice(loader, 3)] == order[:3]
    state, other = loader.state_dict(), loader_of()
    other.load_state_dict(state)
    assert [batch["number"].tolist() for batch in other] == order[3:]


def test_ranks_are_those_of_torch_distributed_when_an_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = zcd.BucketBatchSampler(LENGTHS, 200, buckets=8, seed=3)
    order = whole()
    assert list(sampler) == order
    for name, value in (("is_initialized", True), ("get_rank", 1), ("get_world_size", 4)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    steps = -(-len(order) // 4)
    assert len(sampler) == steps
    assert list(sampler) == [order[(4 * step + 1) % len(order)] for step in range(steps)]


def test_given_edges_get_a_last_bucket_for_what_is_longer() -> None:
    assert sampler_of(buckets=[10, 40]).edges == (10, 40, 100)
    assert sampler_of(buckets=[10, 150]).edges == (10, 150)
    assert sampler_of(buckets=[10, 40], multiple_of=16).edges == (16, 48, 112)
    with pytest.raises(zcd.ConfigError, match="ascending"):
        sampler_of(buckets=[40, 10])
    with pytest.raises(zcd.ConfigError, match="ascending"):
        sampler_of(buckets=[0, 10])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 16), st.sampled_from(["padded", "bucket"]), st.integers(1, 12))
def test_lengths_count_as_what_they_are_padded_to(multiple_of: int, budget: str, buckets: int) -> None:
    sampler = sampler_of(max_tokens=260, multiple_of=multiple_of, budget=budget, buckets=buckets)
    for batch in sampler:
        longest = int(LENGTHS[batch].max())
        padded = -(-longest // multiple_of) * multiple_of
        if budget == "bucket":
            padded = next(edge for edge in sampler.edges if edge >= longest)
        assert padded * len(batch) <= 260


def test_empty_samples_and_no_samples_are_served() -> None:
    assert sorted(n for batch in zcd.BucketBatchSampler([0, 0, 3], 3) for n in batch) == [0, 1, 2]
    empty = zcd.BucketBatchSampler(np.zeros(0, np.int64), 10)
    assert (len(empty), list(empty), empty.edges) == (0, [], ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uneven": "uneven"}, "'pad' or 'drop'"),
        ({"world_size": None}, "give both"),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"multiple_of": 0}, "multiple_of=0"),
        ({"buckets": 0}, "buckets=0"),
        ({"max_tokens": 99}, "max_tokens=99"),
        ({"cost": (1, 0), "together": 4, "rank": 0, "world_size": 5}, "together=4"),
        ({"seed": "a"}, "seed"),
    ],
)
def test_senseless_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(zcd.ConfigError, match=message):
        zcd.BucketBatchSampler(LENGTHS, **{"max_tokens": 200, "rank": 0, "world_size": 1, **options})


def test_a_place_late_in_a_long_epoch_is_loaded_at_once() -> None:
    """No batch is drawn for it: beside the epoch's layout, which any first batch needs, it costs microseconds."""
    lengths = np.random.default_rng(0).integers(1, 200, 200_000)
    sampler = zcd.BucketBatchSampler(lengths, 2000)
    batches = len(sampler)
    begin = time.process_time()
    sampler.load_state_dict({**sampler.state_dict(), "position": batches - 1})
    last = next(iter(sampler))
    assert time.process_time() - begin < 0.005
    assert last == sampler.batches()[batches - 1].tolist()


def test_an_epoch_told_after_it_began_is_the_next_one() -> None:
    lengths = np.arange(1, 300)
    sampler = zcd.BucketBatchSampler(lengths, 600, seed=3)
    first = list(sampler)
    begun = iter(sampler)
    sampler.set_epoch(1)
    assert list(begun) == first
    assert sorted(itertools.chain.from_iterable(sampler)) == list(range(299))

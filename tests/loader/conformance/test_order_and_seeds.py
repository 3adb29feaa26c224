"""Which sample comes when, what is drawn from which generator, and how often samplers are asked."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conformance_data import CountedBatches, CountedSampler, Made, Range, Stream, seeds
from torch.utils.data import DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data._utils.worker import _generate_state

WORKERS = pytest.mark.parametrize("workers", [0, 1, 2])


def numbers(loader: Any) -> list[int]:
    return [number for batch in loader for number in batch.tolist()]


@WORKERS
def test_unshuffled_order(loader_class: Any, workers: int) -> None:
    assert numbers(loader_class(Range(11), batch_size=3, num_workers=workers)) == list(range(11))


# Measured with torch's class: two epochs of eight samples after torch.manual_seed(0).
EPOCHS = {
    "0 workers": ({"num_workers": 0}, [0, 3, 7, 1, 6, 2, 5, 4]),
    "1 worker": ({"num_workers": 1}, [0, 3, 7, 1, 6, 2, 5, 4]),
    "2 workers": ({"num_workers": 2}, [0, 3, 7, 1, 6, 2, 5, 4]),
    "persistent": ({"num_workers": 2, "persistent_workers": True}, [7, 2, 0, 5, 3, 4, 6, 1]),
}


@pytest.mark.parametrize("case", EPOCHS)
def test_second_epoch_after_seed_0(loader_class: Any, case: str) -> None:
    arguments, want = EPOCHS[case]
    torch.manual_seed(0)
    loader = loader_class(Range(8), batch_size=2, shuffle=True, **arguments)
    first = numbers(loader)
    assert sorted(first) == list(range(8))
    assert numbers(loader) == want


@WORKERS
def test_first_epoch_does_not_depend_on_the_workers(loader_class: Any, workers: int) -> None:
    torch.manual_seed(3)
    torch.empty((), dtype=torch.int64).random_()  # the base seed, drawn before the sampler's
    seed = int(torch.empty((), dtype=torch.int64).random_().item())
    want = torch.randperm(8, generator=torch.Generator().manual_seed(seed)).tolist()
    torch.manual_seed(3)
    assert numbers(loader_class(Range(8), batch_size=2, shuffle=True, num_workers=workers)) == want


@WORKERS
def test_an_unshuffled_epoch_draws_one_number_from_the_global_generator(loader_class: Any, workers: int) -> None:
    torch.manual_seed(5)
    torch.empty((), dtype=torch.int64).random_()
    state = torch.get_rng_state()
    torch.manual_seed(5)
    list(loader_class(Range(4), num_workers=workers))
    assert torch.equal(torch.get_rng_state(), state)


@WORKERS
def test_the_base_seed_is_drawn_at_iter(loader_class: Any, workers: int) -> None:
    loader = loader_class(Range(4), num_workers=workers)
    before = torch.get_rng_state()
    iterator = iter(loader)
    after = torch.get_rng_state()
    assert not torch.equal(after, before)
    list(iterator)
    assert torch.equal(torch.get_rng_state(), after)


@WORKERS
def test_a_generator_governs_and_spares_the_global_one(loader_class: Any, workers: int) -> None:
    generator = torch.Generator().manual_seed(9)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    want = torch.randperm(8, generator=generator).tolist()
    torch.randperm(8, generator=generator)  # RandomSampler's last draw, for the rest after whole permutations: none
    end = generator.get_state()
    generator.manual_seed(9)
    state = torch.get_rng_state()
    loader = loader_class(Range(8), batch_size=2, shuffle=True, num_workers=workers, generator=generator)
    assert numbers(loader) == want
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(generator.get_state(), end)


@WORKERS
def test_numpy_and_python_generators_of_the_parent_stay_where_they_were(loader_class: Any, workers: int) -> None:
    python, array = random.getstate(), np.random.get_state()[1].tolist()
    list(loader_class(Range(6), batch_size=2, shuffle=True, num_workers=workers))
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == array


@WORKERS
def test_a_samplers_own_generator(loader_class: Any, workers: int) -> None:
    want = torch.randperm(8, generator=torch.Generator().manual_seed(4)).tolist()
    sampler = RandomSampler(range(8), generator=torch.Generator().manual_seed(4))
    assert numbers(loader_class(Range(8), batch_size=3, sampler=sampler, num_workers=workers)) == want


def test_two_loaders_with_one_seed_agree(loader_class: Any) -> None:
    orders = []
    for workers in (0, 2):
        generator = torch.Generator().manual_seed(1)
        loader = loader_class(Range(50), batch_size=7, shuffle=True, num_workers=workers, generator=generator)
        orders.append([numbers(loader), numbers(loader)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


@pytest.mark.parametrize("kind", ["subset", "weighted", "list", "replacement"])
def test_samplers_keep_their_order_through_workers(loader_class: Any, kind: str) -> None:
    def sampler() -> Any:
        generator = torch.Generator().manual_seed(6)
        if kind == "subset":
            return SubsetRandomSampler([3, 5, 7, 9], generator=generator)
        if kind == "weighted":
            return WeightedRandomSampler([0.1, 0.2, 0.7], 8, generator=generator)
        if kind == "replacement":
            return RandomSampler(range(10), replacement=True, num_samples=9, generator=generator)
        return [4, 4, 0, 1]

    want = list(sampler())
    assert numbers(loader_class(Range(10), batch_size=2, sampler=sampler(), num_workers=2)) == want


def test_distributed_sampler_and_its_epoch(loader_class: Any) -> None:
    sampler = DistributedSampler(Range(20), num_replicas=2, rank=1, seed=3)
    loader = loader_class(Range(20), batch_size=4, sampler=sampler, num_workers=1)
    loader.sampler.set_epoch(2)
    want = list(sampler)
    assert numbers(loader) == want
    loader.sampler.set_epoch(3)
    assert numbers(loader) != want


def test_indices_reach_the_dataset_as_the_sampler_gave_them(loader_class: Any) -> None:
    keys = ["a", (1, 2), 7, None]
    loader = loader_class(
        Made(lambda index: (type(index).__name__, index)), sampler=keys, batch_size=None, num_workers=1
    )
    assert list(loader) == [[type(key).__name__, list(key) if type(key) is tuple else key] for key in keys]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_worker_seeds_python_numpy_and_torch(loader_class: Any, workers: int) -> None:
    torch.manual_seed(11)
    base = int(torch.empty((), dtype=torch.int64).random_().item())
    torch.manual_seed(11)
    loader = loader_class(Made(seeds, workers), batch_size=None, num_workers=workers)
    for k, (worker, seed, python, array, drawn) in enumerate(loader):
        assert (worker, seed) == (k, base + k)
        assert python == random.Random(base + k).random()
        assert array == np.random.RandomState(np.array(_generate_state(base, k), dtype=np.uint32)).rand()
        generator = torch.Generator().manual_seed(base + k)
        assert drawn == torch.randint(1 << 40, (), generator=generator).item()


def test_a_generator_gives_the_workers_their_base_seed(loader_class: Any) -> None:
    base = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(2)).item())
    generator = torch.Generator().manual_seed(2)
    loader = loader_class(Made(seeds), batch_size=None, num_workers=1, generator=generator)
    assert next(iter(loader))[1] == base


def test_workers_of_the_next_epoch_get_other_seeds(loader_class: Any) -> None:
    loader = loader_class(Made(seeds), batch_size=None, num_workers=1)
    assert next(iter(loader))[1:] != next(iter(loader))[1:]


def test_persistent_workers_are_not_seeded_again(loader_class: Any) -> None:
    torch.manual_seed(1)
    base = int(torch.empty((), dtype=torch.int64).random_().item())
    torch.manual_seed(1)
    loader = loader_class(Made(seeds), batch_size=None, num_workers=1, persistent_workers=True)
    python = random.Random(base)
    for _ in range(3):
        [(_, seed, drawn, _, _)] = list(loader)
        assert (seed, drawn) == (base, python.random())


def test_a_stream_consumes_one_number_too(loader_class: Any) -> None:
    torch.manual_seed(5)
    torch.empty((), dtype=torch.int64).random_()
    state = torch.get_rng_state()
    torch.manual_seed(5)
    list(loader_class(Stream(4), num_workers=1))
    assert torch.equal(torch.get_rng_state(), state)


# iter() calls that a sampler without batches has seen after each of three epochs, measured with torch's class.
ASKED = {
    "0 workers": ({"num_workers": 0}, [1, 2, 3]),
    "workers": ({"num_workers": 1}, [2, 4, 6]),
    "persistent": ({"num_workers": 1, "persistent_workers": True}, [2, 3, 4]),
}


@pytest.mark.parametrize("case", ASKED)
@pytest.mark.parametrize("batches", [False, True], ids=["sampler", "batch sampler"])
def test_how_often_a_sampler_is_asked(loader_class: Any, case: str, batches: bool) -> None:
    arguments, want = ASKED[case]
    sampler = CountedBatches(4) if batches else CountedSampler(4)
    order = {"batch_sampler": sampler} if batches else {"sampler": sampler, "batch_size": None}
    loader = loader_class(Range(4), **order, **arguments)
    seen = []
    for _ in range(3):
        list(loader)
        seen.append(sampler.iters)
    assert seen == want


@pytest.mark.parametrize("case", ASKED)
def test_torchs_batch_sampler_asks_the_sampler_once_an_epoch(loader_class: Any, case: str) -> None:
    sampler = CountedSampler(4)
    loader = loader_class(Range(4), sampler=sampler, batch_size=2, **ASKED[case][0])
    for epoch in range(3):
        list(loader)
        assert sampler.iters == epoch + 1


@pytest.mark.parametrize(("prefetch", "workers"), [(3, 2), (1, 1), (2, 1)])
def test_indices_are_drawn_ahead_and_then_one_for_each_batch(loader_class: Any, prefetch: int, workers: int) -> None:
    sampler = CountedSampler(20)
    loader = loader_class(Range(20), sampler=sampler, batch_size=None, num_workers=workers, prefetch_factor=prefetch)
    iterator = iter(loader)
    assert sampler.drawn == prefetch * workers
    for k in range(1, 4):
        next(iterator)
        assert sampler.drawn == prefetch * workers + k


def test_nothing_is_drawn_ahead_without_workers(loader_class: Any) -> None:
    sampler = CountedSampler(20)
    iterator = iter(loader_class(Range(20), sampler=sampler, batch_size=None))
    assert sampler.drawn == 0
    next(iterator)
    assert sampler.drawn == 1


@WORKERS
def test_an_infinite_sampler_is_never_run_dry(loader_class: Any, workers: int) -> None:
    def forever() -> Any:
        while True:
            yield 1

    iterator = iter(loader_class(Range(4), sampler=forever(), batch_size=2, num_workers=workers))
    assert [next(iterator).tolist() for _ in range(10)] == [[1, 1]] * 10


@WORKERS
def test_an_empty_dataset_gives_no_batches(loader_class: Any, workers: int) -> None:
    assert list(loader_class(Range(0), batch_size=2, num_workers=workers)) == []


def test_a_sampler_that_fails_raises_unwrapped(loader_class: Any) -> None:
    def broken() -> Any:
        yield from range(3)
        raise LookupError("the sampler broke")

    with pytest.raises(LookupError, match=r"^'?the sampler broke"):
        list(loader_class(Range(4), sampler=broken(), batch_size=None, num_workers=1))


@WORKERS
def test_drop_last(loader_class: Any, workers: int) -> None:
    assert [len(b) for b in loader_class(Range(8), batch_size=3, drop_last=True, num_workers=workers)] == [3, 3]


def test_a_dataset_function_with_bound_arguments(loader_class: Any) -> None:
    loader = loader_class(Made(partial(pow, 2), 5), batch_size=5, num_workers=1)
    assert numbers(loader) == [1, 2, 4, 8, 16]

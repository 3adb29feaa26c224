"""StatefulDataLoader over iterable datasets: each worker's dataset goes on after its last batch that was returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stateful_data import (
    SelfIterating,
    StatefulStream,
    Stream,
    StreamWithStatefulIterator,
    batch_by_batch,
    plain,
    resumed,
    stopped,
)

import zerocopy_data as zcd

STREAMS = [StatefulStream, SelfIterating, StreamWithStatefulIterator]


def maker(dataset: Any, workers: int, size: int | None = 3, **options: Any) -> Callable[[], Any]:
    return lambda: zcd.StatefulDataLoader(dataset(), size, num_workers=workers, **options)


@pytest.mark.parametrize("dataset", STREAMS)
@pytest.mark.parametrize("size", [3, None])
def test_in_this_process(dataset: Any, size: int | None) -> None:
    make = maker(dataset, 0, size)
    for stop in (0, 1, 4, 7, 8, 22, 23, 24):
        for epochs in (0, 1):
            state, left, following, _ = stopped(make, stop, epochs)
            assert resumed(make, state) == (left, following)


@pytest.mark.parametrize("dataset", STREAMS)
@pytest.mark.parametrize("stop", [0, 1, 2, 4, 6, 8, 9])
def test_workers_that_end_at_different_times(dataset: Any, stop: int) -> None:
    make = maker(dataset, 3, 3)  # 1, 3 and 5 batches
    state, left, following, _ = stopped(make, stop)
    assert resumed(make, state) == (left, following)


@pytest.mark.parametrize("options", [{"size": None}, {"drop_last": True}], ids=str)
def test_without_batches_and_dropping_the_last(options: dict[str, Any]) -> None:
    make = maker(StatefulStream, 2, **options)
    for stop in (1, 5):
        state, left, following, _ = stopped(make, stop)
        assert resumed(make, state) == (left, following)


@pytest.mark.parametrize("every", [None, 2, 4])
def test_states_taken_less_often(every: int | None) -> None:
    make = maker(StatefulStream, 2, 2, snapshot_every_n_steps=every)
    for stop in (1, 4, 5, 9):
        state, left, following, _ = stopped(make, stop)
        assert resumed(make, state) == (left, following)


@pytest.mark.parametrize("dataset", [StatefulStream, SelfIterating])
def test_persistent_workers_take_their_datasets_into_the_next_epoch(dataset: Any) -> None:
    make = maker(dataset, 2, persistent_workers=True)
    for epochs, stop in ((0, 3), (1, 4), (2, 0), (1, 8)):
        state, left, following, loader = stopped(make, stop, epochs)
        assert resumed(make, state) == (left, following)
        state = loader.state_dict()
        assert state["finished"]
        assert resumed(make, state)[0] == [plain(batch) for batch in loader]


def test_stopping_after_every_batch() -> None:
    make = maker(StatefulStream, 2)
    got, expected = batch_by_batch(make)
    assert got == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_state_batches_are_made_again_with_a_warning(workers: int) -> None:
    make = maker(Stream, workers)
    for stop in (0, 3, 9):
        state, left, following, _ = stopped(make, stop)
        if 0 < stop < 9:
            with pytest.warns(UserWarning, match=f"Stream and its iterator have no state_dict: the {stop} batches"):
                again, then = resumed(make, state)
        else:
            again, then = resumed(make, state)
        assert (again, then) == (left, following)


def test_a_spawned_worker_gets_its_state() -> None:
    make = maker(StatefulStream, 1, multiprocessing_context="spawn")
    loader = make()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    left = [plain(batch) for batch in iterator]
    other = make()
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == left


@pytest.mark.parametrize("dataset", [StatefulStream, Stream])
def test_another_number_of_workers_is_refused(dataset: Any) -> None:
    state, _, _, _ = stopped(maker(dataset, 2), 3)
    for workers in (0, 1, 3):
        with pytest.raises(zcd.ConfigError, match=rf"num_workers=2, this loader has {workers}: .* Use num_workers=2"):
            maker(dataset, workers)().load_state_dict(state)


def test_the_state_of_a_dataset_is_a_copy() -> None:
    class Listing(StatefulStream):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def __iter__(self) -> Any:
            for number in super().__iter__():
                self.seen.append(number)
                yield number

        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "seen": self.seen}

    loader = maker(Listing, 0)()
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator)
    assert state["dataset"]["dataset"]["seen"] == [0, 1, 2]


class Speechless(StatefulStream):
    def state_dict(self) -> dict[str, Any]:
        if self.done > 3:
            raise RuntimeError("no words")
        return super().state_dict()


def test_a_state_that_fails_in_a_worker_is_an_error_where_its_batch_would_be() -> None:
    iterator = iter(maker(Speechless, 1)())
    assert plain(next(iterator)) == [0, 1, 2]
    with pytest.raises(RuntimeError, match=r"state_dict\(\) in DataLoader worker process 0[\s\S]*no words"):
        next(iterator)


def test_a_state_of_the_other_kind_of_dataset_is_refused() -> None:
    state, _, _, _ = stopped(maker(StatefulStream, 0), 3)
    with pytest.raises(zcd.ConfigError, match="of an iterable dataset, this loader has a map-style one"):
        zcd.StatefulDataLoader(range(5)).load_state_dict(state)  # type: ignore[arg-type]
    state, _, _, _ = stopped(lambda: zcd.StatefulDataLoader(range(5)), 3)  # type: ignore[arg-type]
    with pytest.raises(zcd.ConfigError, match="of a map-style dataset, this loader has an iterable one"):
        maker(StatefulStream, 0)().load_state_dict(state)


def test_a_dataset_that_shrank_is_an_error() -> None:
    state, _, _, _ = stopped(maker(Stream, 0), 5)
    loader = maker(lambda: Stream(4), 0)()
    loader.load_state_dict(state)
    with (
        pytest.warns(UserWarning, match="made again"),
        pytest.raises(zcd.ConfigError, match=r"at batch 5 of an epoch, but the dataset gives only 2"),
    ):
        iter(loader)

"""How samples are asked for: without batches, `__getitems__`, streams, worker information and worker_init_fn."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from conformance_data import (
    Counter,
    Floats,
    Made,
    Many,
    NoMany,
    Offset,
    Range,
    SizedStream,
    Stream,
    as_is,
    bad_init,
    pid,
    set_offset,
    worker_id,
)
from torch.utils.data import IterableDataset, get_worker_info

WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
def test_without_batches_samples_come_one_by_one_converted(loader_class: Any, workers: int) -> None:
    assert list(loader_class(Range(5), batch_size=None, num_workers=workers)) == [0, 1, 2, 3, 4]
    got = list(loader_class(Floats(3), batch_size=None, num_workers=workers))
    assert [tuple(sample.shape) for sample in got] == [(4,)] * 3


@WORKERS
def test_without_batches_a_sampler_may_give_lists(loader_class: Any, workers: int) -> None:
    loader = loader_class(
        Made(lambda rows: torch.tensor(rows) * 10), sampler=[[0, 1], [2]], batch_size=None, num_workers=workers
    )
    assert [b.tolist() for b in loader] == [[0, 10], [20]]


@WORKERS
def test_without_batches_a_collate_function_sees_each_sample(loader_class: Any, workers: int) -> None:
    assert list(loader_class(Range(3), batch_size=None, collate_fn=lambda x: [x], num_workers=workers)) == [
        [0],
        [1],
        [2],
    ]


@WORKERS
def test_getitems_is_called_with_the_whole_batch(loader_class: Any, workers: int) -> None:
    got = loader_class(Many(5), batch_size=2, num_workers=workers)
    assert [b.tolist() for b in got] == [[1000, 1001], [1002, 1003], [1004]]


@WORKERS
def test_getitems_gets_a_list_and_its_result_goes_to_collate(loader_class: Any, workers: int) -> None:
    dataset = Many(4, how=lambda indices: [type(indices).__name__, len(indices)])
    assert list(loader_class(dataset, batch_size=2, collate_fn=as_is, num_workers=workers)) == [["list", 2]] * 2


@WORKERS
def test_getitems_that_is_none_is_not_called(loader_class: Any, workers: int) -> None:
    assert [b.tolist() for b in loader_class(NoMany(3), batch_size=2, num_workers=workers)] == [[0, 1], [2]]


@WORKERS
def test_getitems_is_not_called_without_batches(loader_class: Any, workers: int) -> None:
    assert list(loader_class(Many(3), batch_size=None, num_workers=workers)) == [0, 1, 2]


@WORKERS
@pytest.mark.parametrize(("drop_last", "want"), [(False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2, 3]])])
def test_a_whole_stream_in_one_place(loader_class: Any, workers: int, drop_last: bool, want: list[list[int]]) -> None:
    loader = loader_class(Stream(5, whole=True), batch_size=2, drop_last=drop_last, num_workers=min(workers, 1))
    assert [b.tolist() for b in loader] == want


def test_a_stream_cut_over_two_workers(loader_class: Any) -> None:
    got = [b.tolist() for b in loader_class(Stream(7), batch_size=2, num_workers=2)]
    assert got == [[0, 2], [1, 3], [4, 6], [5]]


def test_drop_last_counts_in_each_worker_of_a_stream(loader_class: Any) -> None:
    got = [b.tolist() for b in loader_class(Stream(7), batch_size=2, drop_last=True, num_workers=2)]
    assert got == [[0, 2], [1, 3], [4, 6]]


def test_streams_of_unequal_length(loader_class: Any) -> None:
    class Unequal(IterableDataset[int]):
        def __iter__(self) -> Any:
            info = get_worker_info()
            assert info is not None
            return iter([1] * 5 if info.id else [0])

    got = [b.item() for b in loader_class(Unequal(), num_workers=2)]
    assert got == [0, 1, 1, 1, 1, 1]


@WORKERS
def test_an_empty_stream(loader_class: Any, workers: int) -> None:
    assert list(loader_class(Stream(0), batch_size=2, num_workers=workers)) == []


@WORKERS
def test_a_stream_without_batches(loader_class: Any, workers: int) -> None:
    assert sorted(loader_class(SizedStream(5), batch_size=None, num_workers=workers)) == [0, 1, 2, 3, 4]


@WORKERS
def test_a_stream_starts_again_at_each_epoch(loader_class: Any, workers: int) -> None:
    loader = loader_class(Stream(4), num_workers=workers)
    first = [b.item() for b in loader]
    assert first == [0, 1, 2, 3]
    assert [b.item() for b in loader] == first


def test_an_infinite_stream_can_be_left(loader_class: Any) -> None:
    class Forever(IterableDataset[int]):
        def __iter__(self) -> Any:
            while True:
                yield 5

    for k, batch in enumerate(loader_class(Forever(), batch_size=3, num_workers=2)):
        assert batch.tolist() == [5, 5, 5]
        if k == 8:
            break


def test_there_is_no_worker_in_the_parent(loader_class: Any) -> None:
    assert list(loader_class(Made(worker_id, 2), batch_size=None)) == [-1, -1]
    list(loader_class(Range(2), num_workers=1))
    assert get_worker_info() is None


def test_batches_go_round_the_workers(loader_class: Any) -> None:
    assert list(loader_class(Made(worker_id, 7), batch_size=None, num_workers=2)) == [0, 1, 0, 1, 0, 1, 0]


def test_worker_information(loader_class: Any) -> None:
    def describe(index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return {
            "type": type(info).__name__, "id": info.id, "num_workers": info.num_workers, "seed": type(info.seed),
            "dataset": type(info.dataset).__name__, "text": repr(info), "same": info.dataset.make is describe,
        }  # fmt: skip

    first, second = list(loader_class(Made(describe, 2), batch_size=None, num_workers=2, collate_fn=as_is))
    assert (first["id"], second["id"]) == (0, 1)
    assert (first["type"], first["num_workers"], first["seed"], first["dataset"]) == ("WorkerInfo", 2, int, "Made")
    assert first["same"]
    assert all(f"{name}=" in first["text"] for name in ("id", "num_workers", "seed", "dataset"))


def test_worker_information_cannot_be_changed(loader_class: Any) -> None:
    def change(index: int) -> str:
        info = get_worker_info()
        assert info is not None
        try:
            info.id = 5
        except Exception as error:
            return type(error).__name__
        return "changed"

    assert next(iter(loader_class(Made(change), batch_size=None, num_workers=1))) != "changed"


def test_the_worker_iterates_its_own_dataset(loader_class: Any) -> None:
    dataset = Counter(6)
    assert list(loader_class(dataset, batch_size=None, num_workers=1)) == [1, 2, 3, 4, 5, 6]
    assert dataset.calls == 0


def test_workers_are_other_processes_than_this_one(loader_class: Any) -> None:
    assert len(set(loader_class(Made(pid, 6), batch_size=None, num_workers=2)) | {pid(0)}) == 3


def test_a_worker_uses_one_thread(loader_class: Any) -> None:
    assert list(loader_class(Made(lambda _: torch.get_num_threads()), batch_size=None, num_workers=1)) == [1]


def test_samples_are_made_in_the_main_thread_of_the_worker(loader_class: Any) -> None:
    where = Made(lambda _: threading.current_thread() is threading.main_thread())
    assert list(loader_class(where, batch_size=None, num_workers=1)) == [True]


def test_a_collate_function_runs_in_the_worker(loader_class: Any) -> None:
    loader = loader_class(Range(4), batch_size=2, num_workers=2, collate_fn=lambda batch: worker_id(0))
    assert list(loader) == [0, 1]


def test_worker_init_can_change_the_workers_dataset(loader_class: Any) -> None:
    loader = loader_class(Offset(4), batch_size=None, num_workers=2, worker_init_fn=set_offset)
    assert list(loader) == [100, 201, 102, 203]


def test_worker_init_runs_after_seeding(loader_class: Any) -> None:
    def seed(worker: int) -> None:
        torch.manual_seed(worker)

    loader = loader_class(
        Made(lambda _: torch.randint(1 << 40, ()).item(), 2), batch_size=None, num_workers=2, worker_init_fn=seed
    )
    want = [torch.randint(1 << 40, (), generator=torch.Generator().manual_seed(worker)).item() for worker in (0, 1)]
    assert list(loader) == want


def test_worker_init_runs_before_the_stream_begins(loader_class: Any) -> None:
    class Late(IterableDataset[int]):
        offset = 0

        def __iter__(self) -> Any:
            return iter([self.offset])

    assert list(loader_class(Late(), batch_size=None, num_workers=2, worker_init_fn=set_offset)) == [100, 200]


def test_worker_init_is_not_called_without_workers(loader_class: Any) -> None:
    assert len(list(loader_class(Range(2), worker_init_fn=bad_init))) == 2


def test_worker_init_set_late(loader_class: Any) -> None:
    loader = loader_class(Offset(2), batch_size=None, num_workers=1)
    loader.worker_init_fn = set_offset
    assert list(loader) == [100, 101]


def test_worker_init_that_fails_arrives_with_the_first_batch(loader_class: Any) -> None:
    iterator = iter(loader_class(Range(4), num_workers=1, worker_init_fn=bad_init))
    with pytest.raises(ValueError, match="worker 0 does not want to start"):
        next(iterator)

"""Workers' lives: persistence, order of arrival, start methods, early ends, interpreter exit."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance_data import (
    Counter,
    Floats,
    Made,
    Offset,
    Range,
    Stream,
    as_point,
    ignores_sigterm_and_sleeps,
    pid,
    set_offset,
    slow_even,
    worker_id,
)
from conformance_differences import expected


def numbers(loader: Any) -> list[int]:
    return [number for batch in loader for number in batch.tolist()]


def test_persistent_workers_are_the_same_processes(loader_class: Any) -> None:
    loader = loader_class(Made(pid, 4), batch_size=None, num_workers=2, persistent_workers=True)
    first = list(loader)
    assert list(loader) == first
    assert list(loader) == first


def test_other_workers_are_new_ones_each_epoch(loader_class: Any) -> None:
    loader = loader_class(Made(pid, 2), batch_size=None, num_workers=1)
    assert set(loader).isdisjoint(loader)


def test_a_persistent_loader_has_one_iterator(loader_class: Any) -> None:
    loader = loader_class(Range(4), num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    assert loader._iterator is iterator
    next(iterator)
    assert iter(loader) is iterator
    assert numbers(iterator) == [0, 1, 2, 3]


def test_persistent_workers_drop_what_an_early_break_left(loader_class: Any) -> None:
    loader = loader_class(Range(20), batch_size=2, num_workers=2, persistent_workers=True)
    for stop in (0, 3, 1):
        for k, batch in enumerate(loader):
            assert batch.tolist() == [2 * k, 2 * k + 1]
            if k == stop:
                break
    assert numbers(loader) == list(range(20))


def test_persistent_workers_keep_their_datasets_state(loader_class: Any) -> None:
    loader = loader_class(Counter(3), batch_size=None, num_workers=1, persistent_workers=True)
    assert list(loader) == [1, 2, 3]
    assert list(loader) == [4, 5, 6]


def test_persistent_workers_do_not_see_later_changes_others_do(loader_class: Any) -> None:
    for persistent, want in ((True, [0, 1]), (False, [7, 8])):
        dataset = Offset(2)
        loader = loader_class(dataset, batch_size=None, num_workers=1, persistent_workers=persistent)
        list(loader)
        dataset.offset = 7
        assert list(loader) == want


def test_persistent_workers_are_initialised_once(loader_class: Any) -> None:
    def add(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        info.dataset.offset += 10

    loader = loader_class(Offset(2), batch_size=None, num_workers=1, persistent_workers=True, worker_init_fn=add)
    assert [list(loader), list(loader)] == [[10, 11], [10, 11]]


def test_a_persistent_stream_begins_again(loader_class: Any) -> None:
    loader = loader_class(Stream(5), num_workers=2, persistent_workers=True)
    first = numbers(loader)
    assert sorted(first) == [0, 1, 2, 3, 4]
    assert numbers(loader) == first
    next(iter(loader))
    assert numbers(loader) == first


def test_a_persistent_loader_goes_on_after_an_error(loader_class: Any) -> None:
    def sample(index: int) -> int:
        if index == 3:
            raise ValueError("three")
        return index

    loader = loader_class(Made(sample, 6), batch_size=None, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="three"):
            list(loader)
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]


def test_each_epoch_begins_at_worker_0(loader_class: Any) -> None:
    loader = loader_class(Made(worker_id, 3), batch_size=None, num_workers=2, persistent_workers=True)
    assert [list(loader), list(loader)] == [[0, 1, 0], [0, 1, 0]]


def test_a_slow_batch_holds_up_the_next_in_order(loader_class: Any) -> None:
    loader = loader_class(Made(slow_even, 6), batch_size=None, num_workers=2)
    assert list(loader) == [0, 1, 2, 3, 4, 5]


def test_out_of_order_the_fast_ones_come_first(loader_class: Any) -> None:
    got = list(loader_class(Made(slow_even, 6), batch_size=None, num_workers=2, in_order=False))
    assert got[0] == 1
    assert sorted(got) == [0, 1, 2, 3, 4, 5]


def test_out_of_order_over_a_stream(loader_class: Any) -> None:
    got = numbers(loader_class(Stream(11), batch_size=2, num_workers=2, in_order=False))
    assert sorted(got) == list(range(11))


def test_out_of_order_with_one_worker_is_in_order(loader_class: Any) -> None:
    assert numbers(loader_class(Range(9), batch_size=2, num_workers=1, in_order=False)) == list(range(9))


def test_out_of_order_persistent(loader_class: Any) -> None:
    loader = loader_class(Range(9), num_workers=2, in_order=False, persistent_workers=True)
    for _ in range(3):
        assert sorted(numbers(loader)) == list(range(9))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods(loader_class: Any, method: str) -> None:
    # One loader for everything, since such a worker takes seconds to start.
    loader = loader_class(
        Offset(3), batch_size=2, num_workers=1, multiprocessing_context=method, worker_init_fn=set_offset,
        collate_fn=as_point, persistent_workers=True, pin_memory=False,
    )  # fmt: skip
    for _ in range(2):
        first, second = loader
        assert (first.x.tolist(), first.y, second.x.tolist()) == ([100, 101], ["100", "101"], [102])
    iterator = loader._iterator
    assert iterator is not None
    assert os.getpid() not in [worker.pid for worker in iterator._workers]


def test_the_global_start_method_is_used(loader_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    loader = loader_class(Made(lambda index: os.getppid(), 1), batch_size=None, num_workers=1)
    loader.multiprocessing_context = context
    assert list(loader) == [os.getpid()]


def test_two_iterators_of_one_loader_at_once(loader_class: Any) -> None:
    loader = loader_class(Range(6), batch_size=2, num_workers=1)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert pairs == [([k, k + 1], [k, k + 1]) for k in (0, 2, 4)]


def test_a_loader_inside_a_loops_body(loader_class: Any) -> None:
    outer = loader_class(Range(2), num_workers=1)
    inner = loader_class(Range(3), num_workers=1)
    assert [[b.item() for b in inner] for _ in outer] == [[0, 1, 2]] * 2


def test_an_ended_iterator_stays_ended(loader_class: Any) -> None:
    iterator = iter(loader_class(Range(2), num_workers=1))
    list(iterator)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


def test_workers_end_with_the_epoch(loader_class: Any) -> None:
    iterator = iter(loader_class(Range(4), num_workers=2))
    workers = list(iterator._workers)
    list(iterator)
    for worker in workers:
        worker.join(5)
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_workers_end_when_the_loop_breaks(loader_class: Any) -> None:
    iterator = iter(loader_class(Floats(1000), num_workers=2))
    workers = list(iterator._workers)
    for _ in iterator:
        break
    began = time.monotonic()
    del iterator
    gc.collect()
    for worker in workers:
        worker.join(5)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert time.monotonic() - began < 4


def test_an_iterator_that_nobody_used_ends(loader_class: Any) -> None:
    for _ in range(3):
        iter(loader_class(Floats(100), num_workers=1))
    gc.collect()
    assert not [child for child in multiprocessing.active_children() if "DataLoader" in child.name]


def test_shutting_down_twice_and_early(loader_class: Any) -> None:
    # Lightning does this to loader._iterator.
    loader = loader_class(Range(50), num_workers=1, persistent_workers=True)
    next(iter(loader))
    loader._iterator._shutdown_workers()
    loader._iterator._shutdown_workers()
    loader._iterator = None
    assert len(list(loader)) == 50


def test_stuck_workers_share_one_deadline(loader_class: Any) -> None:
    limit = expected(loader_class, "stuck workers")
    loader = loader_class(Made(ignores_sigterm_and_sleeps, 20), batch_size=None, num_workers=3)
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [0, 1]
    workers = list(iterator._workers)
    began = time.monotonic()
    del iterator
    gc.collect()
    assert time.monotonic() - began < limit
    for worker in workers:
        worker.kill()
        worker.join()


def test_the_iterator_is_torchs(loader_class: Any) -> None:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

    assert isinstance(iter(loader_class(Range(2))), _SingleProcessDataLoaderIter)
    assert isinstance(iter(loader_class(Range(2), num_workers=1)), _MultiProcessingDataLoaderIter)


def test_profilers_find_torchs_name(loader_class: Any) -> None:
    loader = loader_class(Range(2), num_workers=1)
    with torch.profiler.profile() as profile:
        list(loader)
    names = {event.key for event in profile.key_averages()}
    assert "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__" in names


def test_the_workers_are_daemons(loader_class: Any) -> None:
    iterator = iter(loader_class(Range(2), num_workers=1))
    assert [worker.daemon for worker in iterator._workers] == [True]


def test_iteration_in_another_thread(loader_class: Any) -> None:
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(numbers(loader_class(Range(8), batch_size=2, num_workers=2))))
    thread.start()
    thread.join()
    assert got == list(range(8))


def test_batches_of_descriptors_are_not_leaked(loader_class: Any) -> None:
    loader = loader_class(Floats(60, 1000), batch_size=2, num_workers=1)
    list(loader)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        list(loader)
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


SCRIPT = """
import os, signal, sys, time
sys.path[:0] = {path!r}
from conformance_data import Floats
import {module} as module
loader = module.DataLoader(Floats(1000), batch_size=2, num_workers=2, persistent_workers=True)
iterator = iter(loader)
batch = next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
{end}
"""


def script(loader_class: Any, end: str) -> subprocess.Popen[str]:
    module = "torch.utils.data" if loader_class is torch.utils.data.DataLoader else "zerocopy_data"
    code = SCRIPT.format(path=[str(Path(__file__).parent)], module=module, end=end)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"], ids=["exit", "killed"])
def test_no_worker_outlives_the_interpreter(loader_class: Any, end: str) -> None:
    process = script(loader_class, end)
    said, wrote = process.communicate(timeout=80)
    assert process.returncode == (0 if end == "pass" else -signal.SIGKILL), wrote
    if end == "pass":
        assert wrote == ""
    workers = [int(word) for word in said.split()]
    assert len(workers) == 2
    deadline = time.monotonic() + 40  # torch's watchdog looks every five seconds; busy machines take longer
    while any(alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if alive(worker)]

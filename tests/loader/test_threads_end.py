"""However an iteration ends, no thread of it is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_data import CROP, ROWS, NoThreadLeft, copied, flip_byte, task_count, wait_until

import zerocopy_data as zcd
from zerocopy_data import _native

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:This process .*multi-threaded")


@pytest.fixture
def loader(photos: zcd.ShardDataset) -> zcd.DataLoader[Any]:
    ds = photos.subset(list(range(ROWS)) * 3).as_tuple("image", "number")
    return zcd.DataLoader(ds, batch_size=4, num_workers=3, seed=0)


def test_after_the_last_batch(loader: zcd.DataLoader[Any]) -> None:
    with NoThreadLeft():
        iterator = iter(loader)
        assert _native.pool_threads() == 3
        for _ in iterator:
            pass
        # At once, without waiting for the iterator object to go.
        assert _native.pool_threads() == 0
        with pytest.raises(StopIteration):
            next(iterator)


def test_after_a_break(loader: zcd.DataLoader[Any]) -> None:
    with NoThreadLeft():
        for _ in loader:
            break


def test_after_an_exception_in_the_loops_body(loader: zcd.DataLoader[Any]) -> None:
    def train() -> None:
        for _ in loader:
            raise ArithmeticError

    with NoThreadLeft(), pytest.raises(ArithmeticError):
        train()


def test_after_an_iterator_that_was_never_advanced(loader: zcd.DataLoader[Any]) -> None:
    with NoThreadLeft():
        iterator = iter(loader)
        del iterator


def test_after_a_bad_sample(photos_path: Path, tmp_path: Path) -> None:
    path = copied(photos_path, tmp_path / "ds")
    flip_byte(zcd.open(path), 9)

    with NoThreadLeft():
        row = None
        try:
            for _ in zcd.DataLoader(zcd.open(path, CROP), 4, num_workers=2):
                pass
        except zcd.BadSampleError as error:
            row = error.row
        assert row == 9


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        yield from range(6)
        raise self.error


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_from_the_sampler_comes_in_its_turn(photos: zcd.ShardDataset, workers: int) -> None:
    with NoThreadLeft():
        iterator = iter(zcd.DataLoader(photos, 2, sampler=Failing(KeyError("sampler")), num_workers=workers))
        assert [next(iterator)["number"].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(KeyError, match="sampler"):
            next(iterator)
        assert _native.pool_threads() == 0
        with pytest.raises(StopIteration):
            next(iterator)


def test_an_interrupt_in_the_sampler_ends_the_threads(photos: zcd.ShardDataset) -> None:
    def train() -> None:
        for _ in zcd.DataLoader(photos, 2, sampler=Failing(KeyboardInterrupt()), num_workers=2):
            pass

    with NoThreadLeft(), pytest.raises(KeyboardInterrupt):
        train()


def test_an_iterator_in_a_reference_cycle_ends_when_it_is_collected(loader: zcd.DataLoader[Any]) -> None:
    with NoThreadLeft():
        iterator: Any = iter(loader)
        next(iterator)
        iterator.itself = iterator
        gone = weakref.ref(iterator)
        del iterator
        # More than once: a collection that one of the iterator's threads has begun makes this one return at once.
        assert wait_until(lambda: gc.collect() >= 0 and gone() is None)


def test_the_collector_may_run_in_one_of_the_iterators_own_threads(loader: zcd.DataLoader[Any]) -> None:
    errors: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, errors.append
    try:
        with NoThreadLeft():
            iterator: Any = iter(loader)
            next(iterator)
            iterator.itself = iterator
            collect = iterator._engine._makers.submit(gc.collect)
            del iterator
            assert collect.result(10) >= 0
            assert wait_until(lambda: _native.pool_threads() == 0)
    finally:
        sys.unraisablehook = hook
    assert errors == []


def test_two_iterators_over_one_loader_do_not_disturb_each_other(loader: zcd.DataLoader[Any]) -> None:
    with NoThreadLeft():
        first, second = iter(loader), iter(loader)
        next(first)
        assert _native.pool_threads() == 6
        rows = [n for _, numbers in second for n in numbers.tolist()]
        assert sorted(rows) == sorted(list(range(ROWS)) * 3)
        assert sum(len(numbers) for _, numbers in first) == 3 * ROWS - 4
        del first, second


def test_nested_loops(loader: zcd.DataLoader[Any], fixed: zcd.ShardDataset) -> None:
    inner = zcd.DataLoader(fixed, batch_size=20, num_workers=2)
    with NoThreadLeft():
        count = 0
        for step, _ in enumerate(loader):
            if step % 10 == 0:
                count += sum(len(numbers) for _, numbers in inner)
        assert count == 5 * ROWS


def test_zip_of_a_long_and_a_short_loader(loader: zcd.DataLoader[Any], fixed: zcd.ShardDataset) -> None:
    with NoThreadLeft():
        pairs = list(zip(loader, zcd.DataLoader(fixed.subset(range(8)), batch_size=4, num_workers=1), strict=False))
        assert [b[1].tolist() for _, b in pairs] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_loader_in_a_python_thread(loader: zcd.DataLoader[Any]) -> None:
    counts: list[int] = []

    def work() -> None:
        for number, (images, _) in enumerate(loader):
            counts.append(len(images))
            if number == 20:
                break

    with NoThreadLeft():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert counts == [4] * 42


def test_persistent_workers_end_with_each_epoch_and_with_the_loader(fixed: zcd.ShardDataset) -> None:
    with NoThreadLeft():
        loader = zcd.DataLoader(fixed, batch_size=4, num_workers=2, persistent_workers=True)
        iterators = {id(iter(loader)) for _ in range(3)}
        assert len(iterators) == 1
        assert _native.pool_threads() == 2
        for _ in range(2):
            assert sum(len(numbers) for _, numbers in loader) == ROWS
        next(iter(loader))
        del loader


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` is true in a forked process, within bounded time."""
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if work() else 1))
    child.start()
    child.join(30)
    if child.exitcode is None:
        child.kill()
    return child.exitcode == 0


def test_a_loader_works_in_a_forked_child_while_the_parent_iterates(loader: zcd.DataLoader[Any]) -> None:
    iterator = iter(loader)
    next(iterator)

    def work() -> bool:
        loader.set_epoch(0)
        return sum(len(numbers) for _, numbers in loader) == 3 * ROWS and _native.pool_threads() == 0

    assert in_child(work)
    assert sum(len(numbers) for _, numbers in iterator) == 3 * ROWS - 4


def test_an_inherited_iterator_says_that_its_threads_are_elsewhere(loader: zcd.DataLoader[Any]) -> None:
    iterator = iter(loader)
    next(iterator)

    def work() -> bool:
        try:
            next(iterator)
        except zcd.ZcdError as error:
            return f"process {os.getppid()}" in str(error)
        return False

    assert in_child(work)


def test_an_inherited_iterator_may_be_dropped_in_a_child(loader: zcd.DataLoader[Any]) -> None:
    holder = [iter(loader)]
    next(holder[0])

    def work() -> bool:
        holder.clear()
        return gc.collect() >= 0

    assert all(in_child(work) for _ in range(5))
    assert sum(len(numbers) for _, numbers in holder[0]) == 3 * ROWS - 4


def test_thirty_breaks_leave_memory_threads_and_files_where_they_were(photos_path: Path) -> None:
    ds = zcd.open(photos_path, [zcd.RandomResizedCrop(96), zcd.Normalize()])
    loader = zcd.DataLoader(ds, batch_size=8, num_workers=2, shuffle=True, seed=0)
    before: tuple[int, int, int] = (0, 0, 0)
    for number in range(30):
        for _ in loader:
            break
        if number == 4:
            before = usage()
    assert wait_until(lambda: usage()[1] <= before[1])
    after = usage()
    assert after[2] == before[2]
    assert after[0] - before[0] < 10 << 20  # 25 epochs left with 6 slots of 0.9 MB each would be 130 MB


def usage() -> tuple[int, int, int]:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, task_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208


SCRIPT = """
import sys, time
import torch
import zerocopy_data as zcd
ds = zcd.open(sys.argv[1], [zcd.RandomResizedCrop(300), zcd.Normalize()])
loader = zcd.DataLoader(ds.subset(list(range(50)) * 1000), batch_size=64, num_workers=2, shuffle=True)
iterator = iter(loader)
next(iterator)
print("going", flush=True)
"""


def start(photos_path: Path, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore::UserWarning", "-c", SCRIPT + code, str(photos_path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[str, float]:
    """Standard error, and the seconds it took to end."""
    begin = time.monotonic()
    try:
        _, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return err, time.monotonic() - begin


@pytest.mark.parametrize("ending", ["", "loader.itself = iterator; iterator.itself = loader"])
def test_the_interpreter_exits_quietly_with_a_live_iterator(photos_path: Path, ending: str) -> None:
    process = start(photos_path, ending)
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    err, seconds = finish(process)
    assert (process.returncode, err) == (0, "")
    assert seconds < 10


def test_ctrl_c_ends_the_loop_and_the_process(photos_path: Path) -> None:
    code = """
try:
    for batch in iterator: pass
except KeyboardInterrupt:
    del iterator, batch
    from zerocopy_data import _native
    print(_native.pool_threads(), flush=True)
    raise
"""
    process = start(photos_path, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "0\n"
    err, seconds = finish(process)
    assert process.returncode in (-signal.SIGINT, 130)
    assert err.count("Traceback") == 1
    assert err.strip().endswith("KeyboardInterrupt")
    assert seconds < 10


def test_no_warning_of_any_kind_in_a_plain_epoch(fixed: zcd.ShardDataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(zcd.DataLoader(fixed, batch_size=10, num_workers=2))) == 6

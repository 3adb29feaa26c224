"""The thread pool: as many threads as are reserved, none left behind, and sound in forked children."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jpeg_cases as cases
import numpy as np
import numpy.typing as npt
import pytest

from zerocopy_data import _native

JPEG = cases.pillow_jpeg(cases.photo(0, 120, 90))
COUNT = 40


def column() -> _native.Column:
    made = _native.Column([0, COUNT])
    offsets = (np.arange(COUNT + 1) * len(JPEG)).astype(np.int64)
    made.set_shard(0, [(COUNT, np.frombuffer(JPEG * COUNT, np.uint8), offsets, True, 0, None)])
    return made


def decode(col: _native.Column) -> npt.NDArray[np.uint8]:
    op = _native.Op.random_resized_crop(32, 32, (0.08, 1.0), (0.75, 1.33), "bilinear")
    program = _native.Program([_native.View([op], "uint8", "nchw", None, 32, 32)])
    out = np.zeros((COUNT, 3, 32, 32), np.uint8)
    assert col.decode(program, np.arange(COUNT), 1, 2, None, [out]) == []
    return out


def decoding_threads() -> int:
    """The operating system's count, by their name."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            count += (task / "comm").read_text().strip() == "zcd-decode"
        except (FileNotFoundError, ProcessLookupError):  # ended between the listing and the look
            continue
    return count


def settle(expected: int) -> None:
    # A joined thread may be listed for a moment: the kernel wakes the joiner first.
    deadline = time.monotonic() + 5
    while decoding_threads() != expected and time.monotonic() < deadline:
        time.sleep(0.005)
    assert decoding_threads() == expected
    assert _native.pool_threads() == expected


def in_child(work: Callable[[], bool]) -> None:
    """Forks, and requires that `work` returns true over there within some seconds."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a deadlock must end the child, not the tests
        try:
            os._exit(0 if work() else 3)
        except BaseException:
            os._exit(4)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with status {status}"


def test_threads_come_and_go_with_reservations() -> None:
    settle(0)
    first = _native.Threads(2)
    settle(2)
    second = _native.Threads(3)
    settle(5)
    first.release()
    settle(3)
    first.release()  # once is enough: a second call gives nothing more back
    settle(3)
    del second
    gc.collect()
    settle(0)


def test_reserving_again_and_again_leaves_no_threads() -> None:
    col = column()
    expected = decode(col)
    for number in range(50):
        threads = _native.Threads(1 + number % 4)
        if number % 3 == 0:
            assert np.array_equal(decode(col), expected)
        threads.release()
    settle(0)


@pytest.mark.parametrize("count", [0, -1, 4097])
def test_an_impossible_number_of_threads_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 4096"):
        _native.Threads(count)
    settle(0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    col = column()
    alone = decode(col)
    for count in (1, 2, 5):
        threads = _native.Threads(count)
        assert np.array_equal(decode(col), alone)
        threads.release()


def test_several_batches_at_once_and_threads_that_leave_in_the_middle() -> None:
    col = column()
    expected = decode(col)
    wrong: list[int] = []

    def user(number: int) -> None:
        for turn in range(6):
            threads = _native.Threads(1 + (number + turn) % 3)
            if not np.array_equal(decode(col), expected):
                wrong.append(number)
            threads.release()  # others may be in the middle of their batch

    users = [threading.Thread(target=user, args=(n,)) for n in range(5)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(60)
        assert not thread.is_alive(), "a batch never ended"
    assert wrong == []
    settle(0)


def test_a_forked_child_decodes_with_threads_of_its_own() -> None:
    col = column()
    expected = decode(col)
    threads = _native.Threads(2)
    decode(col)

    def work() -> bool:
        without = _native.pool_threads() == 0 and np.array_equal(decode(col), expected)
        own = _native.Threads(3)
        sound = without and _native.pool_threads() == 3 and np.array_equal(decode(col), expected)
        own.release()
        return sound and _native.pool_threads() == 0

    in_child(work)
    settle(2)
    assert np.array_equal(decode(col), expected)
    threads.release()
    settle(0)


def test_a_reservation_inherited_by_a_child_is_void_there() -> None:
    threads = _native.Threads(2)

    def work() -> bool:
        own = _native.Threads(1)
        threads.release()  # must neither hang on threads that do not exist nor take this child's
        return _native.pool_threads() == 1 and own is not None

    in_child(work)
    settle(2)
    threads.release()


def test_a_child_forked_while_the_pool_is_at_work_is_sound() -> None:
    col = column()
    expected = decode(col)
    threads = _native.Threads(2)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            decode(col)

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(10):
            in_child(lambda: np.array_equal(decode(col), expected))
    finally:
        stop.set()
        worker.join(60)
        threads.release()
    settle(0)


def masks_of_the_pool() -> list[int]:
    masks = []
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "zcd-decode":
            [line] = [n for n in (task / "status").read_text().splitlines() if n.startswith("SigBlk")]
            masks.append(int(line.split()[1], 16))
    return masks


def test_signals_go_to_the_main_thread_not_to_the_pool() -> None:
    threads = _native.Threads(2)
    deadline = time.monotonic() + 10
    while len(masks := masks_of_the_pool()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread takes its name when it first runs
    threads.release()
    assert len(masks) == 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
        assert all(mask >> number - 1 & 1 for mask in masks)

"""What a failing sample, a failing stream, a slow worker and a dying worker look like in the parent."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import Any

import pytest
import torch
from conformance_data import (
    AnError,
    FailingIter,
    FailingStream,
    Floats,
    Made,
    NoArgumentsError,
    Range,
    TwoArgumentsError,
    WithMessageError,
    bad_init,
    dies_of,
    exits,
    raiser,
    sleeps,
)
from conformance_differences import expected


def fails_at(*bad: int) -> Any:
    def sample(index: int) -> int:
        if index in bad:
            raise ValueError(f"sample {index} is bad")
        return index

    return sample


def caught(loader_class: Any, make: Any, kind: Any) -> Any:
    with pytest.raises(kind) as info:
        list(loader_class(Made(raiser(make)), batch_size=None, num_workers=1))
    return info.value


KEPT: dict[str, Any] = {
    "ValueError": lambda: ValueError("bad pixel"),
    "NotImplementedError": lambda: NotImplementedError("bad pixel"),
    "OSError": lambda: OSError("bad pixel"),
    "FileNotFoundError": lambda: FileNotFoundError(2, "bad pixel"),
    "AnError": lambda: AnError("bad pixel"),
    "RuntimeError": lambda: RuntimeError("bad pixel"),
    "AssertionError": lambda: AssertionError("bad pixel"),
    "MemoryError": lambda: MemoryError("bad pixel"),
    "IndexError": lambda: IndexError("bad pixel"),
    "TimeoutError": lambda: TimeoutError("bad pixel"),
    "WithMessageError": lambda: WithMessageError("bad pixel"),
    "StopAsyncIteration": lambda: StopAsyncIteration("bad pixel"),
}


@pytest.mark.parametrize("kind", KEPT)
def test_an_error_keeps_its_type_and_brings_the_workers_traceback(loader_class: Any, kind: str) -> None:
    error = caught(loader_class, KEPT[kind], Exception)
    assert type(error).__name__ == kind
    text = str(error)
    assert text.startswith(
        f"Caught {kind} in DataLoader worker process 0.\nOriginal Traceback (most recent call last):"
    )
    assert "bad pixel" in text
    assert "conformance_data.py" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: TwoArgumentsError(5, "bad pixel"),
        lambda: NoArgumentsError(),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad pixel"),
    ],
    ids=["two arguments", "no arguments", "UnicodeDecodeError"],
)
def test_an_error_that_no_text_can_make_becomes_a_runtime_error(loader_class: Any, make: Any) -> None:
    error = caught(loader_class, make, RuntimeError)
    assert type(error) is RuntimeError
    assert f"Caught {type(make()).__name__} in DataLoader worker process 0." in str(error)
    assert error.__suppress_context__


def test_a_key_error_prints_its_traceback_in_lines(loader_class: Any) -> None:
    error = caught(loader_class, lambda: KeyError("label"), KeyError)
    assert type(error) is KeyError
    assert "'label'" in str(error)
    assert "\\n" not in repr(error)


def test_an_error_without_workers_is_not_wrapped(loader_class: Any) -> None:
    with pytest.raises(ValueError, match=r"^sample 1 is bad$"):
        list(loader_class(Made(fails_at(1), 3), batch_size=None))


def test_an_error_in_a_collate_function(loader_class: Any) -> None:
    def refuse(batch: Any) -> Any:
        raise AnError(f"{len(batch)} is no size")

    with pytest.raises(AnError, match="2 is no size"):
        list(loader_class(Range(4), batch_size=2, num_workers=1, collate_fn=refuse))


def test_an_error_in_getitems(loader_class: Any) -> None:
    class Bad(Range):
        def __getitems__(self, indices: list[int]) -> list[int]:
            raise AnError("no batch")

    with pytest.raises(AnError, match="no batch"):
        list(loader_class(Bad(4), batch_size=2, num_workers=1))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_iteration_goes_on_after_a_bad_batch(loader_class: Any, workers: int) -> None:
    iterator = iter(loader_class(Made(fails_at(2, 5, 6), 10), batch_size=2, num_workers=workers))
    good, bad = [], 0
    while True:
        try:
            good += next(iterator).tolist()
        except ValueError:
            bad += 1
        except StopIteration:
            break
    assert (good, bad) == ([0, 1, 8, 9], 3)


def test_every_batch_may_fail(loader_class: Any) -> None:
    iterator = iter(loader_class(Made(raiser(lambda: AnError("all bad")), 9), batch_size=2, num_workers=2))
    for _ in range(5):
        with pytest.raises(AnError):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_the_worker_lives_on_after_an_error(loader_class: Any) -> None:
    def sample(index: int) -> int:
        if index == 0:
            raise AnError("the first")
        return os.getpid()

    iterator = iter(loader_class(Made(sample, 3), batch_size=None, num_workers=1))
    with pytest.raises(AnError):
        next(iterator)
    assert list(iterator) == [iterator._workers[0].pid] * 2


def test_stop_iteration_from_a_dataset_ends_the_loop(loader_class: Any) -> None:
    # Torch's behaviour, however surprising.
    def sample(index: int) -> int:
        if index == 2:
            raise StopIteration
        return index

    seen = []
    for value in loader_class(Made(sample, 4), batch_size=None, num_workers=1):
        seen.append(value)
    assert seen == [0, 1]


def test_a_stream_that_cannot_begin(loader_class: Any) -> None:
    with pytest.raises(ValueError, match="no stream today"):
        next(iter(loader_class(FailingIter(), num_workers=1)))


def test_a_stream_that_breaks(loader_class: Any) -> None:
    iterator = iter(loader_class(FailingStream(3), batch_size=None, num_workers=1))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the stream broke"):
        next(iterator)


def test_each_worker_that_cannot_start_says_so(loader_class: Any) -> None:
    iterator = iter(loader_class(Range(8), num_workers=2, worker_init_fn=bad_init))
    for worker in (0, 1):
        with pytest.raises(ValueError, match=f"worker {worker} does not want to start"):
            next(iterator)


def test_system_exit_in_a_sample_ends_its_worker(loader_class: Any) -> None:
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid"):
        list(loader_class(Made(raiser(lambda: SystemExit(7))), batch_size=None, num_workers=1))


def test_a_slow_batch_times_out(loader_class: Any) -> None:
    iterator = iter(loader_class(Made(sleeps(1.0, first=1), 3), batch_size=None, num_workers=1, timeout=0.4))
    assert next(iterator) == 0
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.4 seconds"):
        next(iterator)


def test_after_a_timeout_the_batch_can_still_come(loader_class: Any) -> None:
    iterator = iter(loader_class(Made(sleeps(0.8, first=1), 2), batch_size=None, num_workers=1, timeout=0.5))
    assert next(iterator) == 0
    with pytest.raises(RuntimeError, match="timed out"):
        next(iterator)
    assert next(iterator) == 1


def test_a_timeout_that_is_not_reached_changes_nothing(loader_class: Any) -> None:
    assert [b.tolist() for b in loader_class(Range(4), batch_size=2, num_workers=2, timeout=20)] == [[0, 1], [2, 3]]


def drain(iterator: Any) -> None:
    for _ in iterator:
        pass


def test_a_worker_that_leaves_is_reported_with_its_exit_code(loader_class: Any) -> None:
    iterator = iter(loader_class(Made(exits, 6), batch_size=None, num_workers=1))
    number = iterator._workers[0].pid
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {number}\) exited unexpectedly") as info:
        drain(iterator)
    cause = info.value.__cause__
    assert f"DataLoader worker (pid {number}) exited unexpectedly with exit code 3" in str(cause)
    assert "Rerunning with num_workers=0 may give better error trace" in str(cause)


DEATHS = {
    signal.SIGKILL: (r"is killed by signal: Killed\. ", ""),
    signal.SIGSEGV: (r"is killed by signal: Segmentation fault\. ", "Unexpected segmentation fault encountered"),
    signal.SIGBUS: (r"is killed by signal: Bus error\. .*shared memory", "Unexpected bus error encountered"),
    signal.SIGFPE: (r"is killed by signal: Floating point exception\. ", "floating-point exception encountered"),
    signal.SIGABRT: (r"is killed by signal: Aborted\. ", ""),
}


@pytest.mark.parametrize("number", DEATHS, ids=lambda number: number.name)
def test_a_worker_that_a_signal_kills(loader_class: Any, number: int, capfd: pytest.CaptureFixture[str]) -> None:
    words, printed = DEATHS[signal.Signals(number)]
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid") as info:
        drain(iter(loader_class(Made(dies_of(number), 6), batch_size=None, num_workers=2)))
    said = " ".join(str(error) for error in (info.value, info.value.__cause__, info.value.__context__) if error)
    assert re.search(words, said.replace("\n", " ")), said
    assert printed in capfd.readouterr().err
    assert time.monotonic() - began < 15


def kill_and_drain(loader_class: Any, iterator: Any, worker: int = 0, wait: bool = False) -> None:
    """Kills a worker, with or without waiting for its end, and iterates on until the error that this must give."""
    victim = iterator._workers[worker]

    def go_on() -> None:
        os.kill(victim.pid, signal.SIGKILL)
        if wait:
            victim.join(5)
        drain(iterator)

    with pytest.raises(expected(loader_class, "killed while sending")) as info:
        go_on()
    with contextlib.suppress(RuntimeError):
        victim.join(5)  # torch's handler of SIGCHLD may raise as late as here
    if isinstance(info.value, RuntimeError):
        assert re.search(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)", str(info.value))


def test_a_worker_killed_from_outside(loader_class: Any) -> None:
    iterator = iter(loader_class(Floats(10_000), num_workers=2))
    next(iterator)
    kill_and_drain(loader_class, iterator, worker=1)


def test_a_worker_killed_while_idle_between_batches(loader_class: Any) -> None:
    iterator = iter(loader_class(Floats(100), num_workers=1, prefetch_factor=1))
    next(iterator)
    kill_and_drain(loader_class, iterator, wait=True)


def test_batches_of_a_killed_worker_stay_readable(loader_class: Any) -> None:
    iterator = iter(loader_class(Floats(1000, 5000), batch_size=4, num_workers=1))
    held = [next(iterator) for _ in range(3)]
    kill_and_drain(loader_class, iterator)
    del iterator
    assert [int(batch[3, 4999]) for batch in held] == [3, 7, 11]


def test_the_loader_starts_again_after_a_killed_worker(loader_class: Any) -> None:
    loader = loader_class(Floats(1000), batch_size=2, num_workers=1)
    iterator = iter(loader)
    kill_and_drain(loader_class, iterator)
    del iterator
    assert sum(1 for _ in loader) == 500


def test_an_interrupt_in_the_training_loop_reaches_the_user(loader_class: Any) -> None:
    def interrupted(batch: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        any(map(interrupted, loader_class(Range(10), num_workers=2)))


def test_cuda_is_not_needed_for_an_error(loader_class: Any) -> None:
    assert caught(loader_class, lambda: torch.OutOfMemoryError("full"), RuntimeError).args

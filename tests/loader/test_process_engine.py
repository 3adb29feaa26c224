"""Batches of worker processes: right whatever is done with them, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from process_data import (
    CollatesInThread,
    CountsPickles,
    Failing,
    Numbers,
    Pids,
    Ragged,
    Slow,
    Stream,
    Unpicklable,
    as_list,
)
from torch.utils.data import DataLoader as TorchDataLoader

import zerocopy_data as zcd
from zerocopy_data.loader.process_iterator import ProcessIterator


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("shape", [(3,), (40_000,), (3, 224, 224)], ids=str)
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_equal_torchs(shape: tuple[int, ...], workers: int) -> None:
    data = Numbers(40, shape)
    torch.manual_seed(1)
    expected = list(TorchDataLoader(data, batch_size=7, shuffle=True, num_workers=workers))
    torch.manual_seed(1)
    loader = zcd.DataLoader(data, batch_size=7, shuffle=True, num_workers=workers)
    iterator = iter(loader)
    assert isinstance(iterator, ProcessIterator)
    for (a, b), (c, d) in zip(iterator, expected, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_batches_that_are_kept_stay_what_they_are() -> None:
    kept = list(zcd.DataLoader(Numbers(120, (40_000,)), batch_size=4, num_workers=2))
    for i, (images, labels) in enumerate(kept):
        assert labels.tolist() == list(range(4 * i, 4 * i + 4))
        assert torch.equal(images, labels[:, None].expand(4, 40_000).float())


def test_slots_are_used_again() -> None:
    loader = zcd.DataLoader(Numbers(200, (40_000,)), batch_size=4, num_workers=1)
    addresses = {images.data_ptr() for images, _ in loader}
    assert len(addresses) <= 5


def test_memory_comes_back_when_kept_batches_are_dropped() -> None:
    loader = zcd.DataLoader(Numbers(400, (250_000,)), batch_size=4, num_workers=1, persistent_workers=True)
    kept = [images for images, _ in loader]  # 400 MB
    worker = psutil.Process(loader._iterator._workers[0].pid)  # type: ignore[union-attr]
    full = worker.memory_info().shared
    assert full > 300e6
    del kept
    deadline = time.monotonic() + 20
    while worker.memory_info().shared > 150e6 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert worker.memory_info().shared < 150e6, "an idle worker gives its memory back within torch's status interval"
    assert len(list(loader)) == 100


@pytest.mark.parametrize("workers", [1, 2])
def test_ragged_batches_carry_their_checksum(workers: int) -> None:
    kept = []
    loader = zcd.DataLoader(Ragged(150), batch_size=3, num_workers=workers, collate_fn=as_list)
    for i, batch in enumerate(loader):
        for data, checksum in batch:
            assert zlib.crc32(data) == checksum
        if i % 4 == 0:
            kept.append(batch)
    for batch in kept:
        for data, checksum in batch:
            assert zlib.crc32(data) == checksum


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_without_fork(method: str) -> None:
    loader = zcd.DataLoader(Numbers(12, (40_000,)), batch_size=4, num_workers=2, multiprocessing_context=method)
    assert [labels.tolist() for _, labels in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_dataset_is_pickled_once_for_all_workers(method: str) -> None:
    CountsPickles.pickled = 0
    data = CountsPickles()
    assert len(list(zcd.DataLoader(data, num_workers=3, multiprocessing_context=method))) == 8
    assert CountsPickles.pickled == 1
    assert data.shared.tolist() == [2, 2, 2, 2], "shared tensors are shared with every worker"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_tensors_that_are_shared_by_name_outlive_the_start_of_every_worker(method: str) -> None:
    # torch counts who uses such a file: bytes that are unpickled three times took it off its owner.
    code = f"""
import sys
import torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from process_data import CountsPickles
import zerocopy_data as zcd

if __name__ == "__main__":
    torch.multiprocessing.set_sharing_strategy("file_system")
    data = CountsPickles()
    for _ in range(2):
        list(zcd.DataLoader(data, num_workers=3, multiprocessing_context={method!r}))
    assert data.shared.tolist() == [4, 4, 4, 4], data.shared
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_only_the_workers_own_thread_collates_into_slots() -> None:
    loader = zcd.DataLoader(CollatesInThread(), batch_size=None, num_workers=1)
    assert list(loader) == [[True, False]], "a pool without locks is for one thread"


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_batch_of_permuted_samples_is_contiguous_as_torchs(rows: int) -> None:
    samples = [torch.arange(2 * 3 * rows * 5.0).view(2, rows, 5, 3).permute(0, 3, 1, 2)] * 2
    ours, theirs = (next(iter(kind(samples, 2, num_workers=1))) for kind in (zcd.DataLoader, TorchDataLoader))
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()


def test_an_iterable_dataset() -> None:
    loader = zcd.DataLoader(Stream(10), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(int(row[0]) for batch in loader for row in batch) == list(range(10))


def test_errors_of_workers_come_one_per_batch() -> None:
    iterator = iter(zcd.DataLoader(Failing(), batch_size=2, num_workers=2))
    assert next(iterator)[0, 0] == 0
    with pytest.raises(KeyError, match=r"Caught KeyError in DataLoader worker process 1[\s\S]*__getitem__[\s\S]*three"):
        next(iterator)
    assert next(iterator)[0, 0] == 4


def test_what_cannot_be_sent_is_an_error_and_no_hang() -> None:
    iterator = iter(zcd.DataLoader(Unpicklable(), batch_size=None, num_workers=1))
    next(iterator), next(iterator)
    with pytest.raises(RuntimeError, match="non-leaf"):
        next(iterator)
    assert next(iterator)[0] == 3


def test_a_conjugated_sample_arrives_right() -> None:
    data = [torch.tensor([1 + 2j, 3 - 1j]).conj() for _ in range(4)]
    for batch in zcd.DataLoader(data, batch_size=2, num_workers=1):  # type: ignore[arg-type]
        assert torch.equal(batch[0], torch.tensor([1 - 2j, 3 + 1j]))


def _raise_inside(loader: Any) -> None:
    for _ in loader:
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["break", "end", "raise", "del"])
def test_nothing_stays_behind(how: str) -> None:
    list(zcd.DataLoader(Numbers(4), num_workers=1))  # what torch opens once for the process
    files, threads, before = descriptors(), threading.active_count(), children()

    def use() -> None:
        loader = zcd.DataLoader(Numbers(100, (40_000,)), batch_size=4, num_workers=2)
        if how == "raise":
            with pytest.raises(ZeroDivisionError):
                _raise_inside(loader)
        elif how == "del":
            iterator = iter(loader)
            next(iterator)
            del iterator
        else:
            for _ in loader:
                if how == "break":
                    break

    use()
    assert children() == before
    # torch does not wait for the threads that feed its index queues.
    deadline = time.monotonic() + 10
    while (descriptors(), threading.active_count()) != (files, threads) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (descriptors(), threading.active_count()) == (files, threads)


def test_a_batch_outlives_its_loader() -> None:
    def first() -> torch.Tensor:
        for images, _ in zcd.DataLoader(Numbers(100, (40_000,)), batch_size=4, num_workers=2):
            return images
        raise AssertionError

    images = first()
    gc.collect()
    assert images[3, 0] == 3
    assert images.sum() == 40_000 * 6


def test_a_worker_that_is_killed_is_an_error_with_its_pid() -> None:
    iterator = iter(zcd.DataLoader(Slow(0.2), num_workers=1))
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for _ in iterator:
            pass


def test_a_worker_that_is_killed_is_noticed_by_any_thread() -> None:
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            iterator = iter(zcd.DataLoader(Slow(30), num_workers=1))
            os.kill(iterator._workers[0].pid, signal.SIGKILL)
            next(iterator)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=consume)
    start = time.monotonic()
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert time.monotonic() - start < 4


def test_shutting_busy_workers_down_takes_one_deadline_for_all() -> None:
    before = children()
    iterator = iter(zcd.DataLoader(Slow(60), num_workers=3))
    time.sleep(0.5)
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < 9, "torch takes five seconds for each worker"
    assert children() == before


def test_a_time_out_can_be_survived() -> None:
    iterator = iter(zcd.DataLoader(Slow(1.2), num_workers=1, timeout=1))
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iterator)
    assert next(iterator).tolist() == [0]


def test_a_stall_prints_the_stacks_of_the_workers(capfd: pytest.CaptureFixture[str]) -> None:
    loader = zcd.DataLoader(Slow(1.5), num_workers=1, stall_after=0.5)
    assert next(iter(loader)).tolist() == [0]
    printed = capfd.readouterr().err
    assert "no batch for 0.5 seconds" in printed
    assert "process_data.py" in printed
    assert "__getitem__" in printed


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_stall_after_must_be_positive(value: float) -> None:
    with pytest.raises(zcd.ConfigError, match="stall_after"):
        zcd.DataLoader(Numbers(3), stall_after=value)


def test_forked_children_keep_the_batches_that_they_saw() -> None:
    loader = zcd.DataLoader(Numbers(400, (40_000,)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    images, _ = next(iterator)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(reader, 1)  # by now the parent has dropped its batch and drawn many others
            # numpy: torch's own threads do not exist in a forked child
            os._exit(0 if (images.numpy() == np.arange(4)[:, None]).all() else 1)
        finally:
            os._exit(2)
    del images
    for _ in iterator:
        pass
    os.write(writer, b"x")
    os.close(reader), os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_more_large_leaves_than_descriptors(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(
        "import resource, numpy as np, torch, zerocopy_data as zcd\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "class D(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 6\n"
        "    def __getitem__(self, i): return [np.full(70_000, i, np.uint8) for _ in range(150)]\n"
        "if __name__ == '__main__':\n"
        "    kept = list(zcd.DataLoader(D(), batch_size=None, num_workers=2))\n"
        "    assert all((leaf == i).all() for i, batch in enumerate(kept) for leaf in batch)\n"
        "    print('fine', len(kept))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "fine 6\n", done.stderr


def test_workers_are_processes_of_their_own() -> None:
    pids = {int(pid) for batch in zcd.DataLoader(Pids(), batch_size=8, num_workers=2) for pid in batch}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_batch_of_no_rows_and_one_of_many_bytes() -> None:
    def collate(batch: list[Any]) -> Any:
        return torch.empty(0, 7), np.zeros((0, 3)), torch.full((40_000_000,), batch[0][1], dtype=torch.int64)

    for i, (a, b, c) in enumerate(zcd.DataLoader(Numbers(3), num_workers=1, collate_fn=collate)):
        assert a.shape == (0, 7)
        assert b.shape == (0, 3)
        assert c[0] == i
        assert c[-1] == i


def test_a_batch_of_three_gigabytes() -> None:
    if psutil.virtual_memory().available < 12 << 30:
        pytest.skip("less than 12 GB of memory free")
    size = 3 * 10**9 + 1

    def collate(batch: list[Any]) -> torch.Tensor:
        out = torch.zeros(size, dtype=torch.uint8)
        out[0], out[-1], out[2**31] = batch[0][1] + 1, 7, 9
        return out

    for number, batch in enumerate(zcd.DataLoader(Numbers(2), num_workers=1, prefetch_factor=1, collate_fn=collate)):
        assert batch.shape == (size,)
        assert [int(batch[place]) for place in (0, 2**31, -1)] == [number + 1, 9, 7]
        assert int(batch[2**31 + 1 :].max()) == 7
        del batch


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_threads_of_other_libraries_in_the_parent_and_in_workers(method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import pyarrow as pa, pyarrow.compute, torch\n"
        "import zerocopy_data as zcd\n"
        "from process_data import Threaded\n"
        "if __name__ == '__main__':\n"
        "    torch.set_num_threads(2)\n"
        "    expected = [Threaded()[i] for i in range(6)]  # OpenMP's and Arrow's threads are there before the fork\n"
        f"    loader = zcd.DataLoader(Threaded(), num_workers=2, multiprocessing_context={method!r})\n"
        "    assert [float(batch[0]) for batch in loader] == expected\n"
        "    print('fine')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_when_their_consumer_is_killed(method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import zerocopy_data as zcd\n"
        "from process_data import Numbers\n"
        "if __name__ == '__main__':\n"
        f"    iterator = iter(zcd.DataLoader(Numbers(99), num_workers=2, multiprocessing_context={method!r}))\n"
        "    next(iterator)\n"
        "    print(*[worker.pid for worker in iterator._workers], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    # Spawned workers may still be importing torch; forked ones look twice a second, torch's watchdog every five.
    deadline = time.monotonic() + (30 if method == "spawn" else 4)
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(workers) == 2
    assert not any(map(_runs, workers)), "torch's own watchdog looks every five seconds; ours sees the closed socket"


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.filterwarnings("ignore:This process .*multi-threaded")
def test_a_forked_child_that_drops_the_iterator_leaves_the_parents_workers_at_work() -> None:
    held = [iter(zcd.DataLoader(Numbers(60), 4, num_workers=2))]
    next(held[0])
    child = os.fork()
    if child == 0:
        held.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(held[0])) == 14

"""Killed, stopped, out of disk, or two at once: nothing half-done passes for whole, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from image_trees import class_folders, jpeg

from zerocopy_data.errors import OutputExistsError, UnfinishedPackError
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.pack.packer import pack

# Packs, printing a line when work is under way. `slow` makes it last until somebody ends it.
SCRIPT = """
import os, resource, sys, time
from zerocopy_data.errors import ZcdError
from zerocopy_data.pack.packer import pack
source, out, jobs, slow, limit = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
def progress(state):
    print("working", state.rows, flush=True)
    if slow and state.rows >= slow:
        time.sleep(60)
try:
    print("packed", pack(source, out, jobs=jobs, shard_size=60_000, progress=progress).rows)
except ZcdError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def start(source: Path, out: Path, jobs: int, slow: int = 0, limit: int = 0) -> subprocess.Popen[str]:
    numbers = [str(number) for number in (jobs, slow, limit)]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(out), *numbers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """120 images of 20 kB in 40 shards: enough that some are done while others are not."""
    root = tmp_path / "s"
    (root / "a").mkdir(parents=True)
    data = jpeg(0, 64, 64)
    data += bytes(20_000 - len(data))
    for number in range(120):
        (root / "a" / f"{number:03d}.jpg").write_bytes(data)
    return root


def children(process: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_work(process: subprocess.Popen[str], rows: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("working") and int(line.split()[1]) >= rows:
            return
    assert process.stderr is not None
    pytest.fail(f"the pack ended early: {process.stderr.read()}")


def assert_unfinished(source: Path, out: Path) -> None:
    with pytest.raises(UnfinishedPackError):
        DatasetReader(out)
    with pytest.raises(OutputExistsError, match=r"unfinished pack.*--overwrite"):
        pack(source, out)
    assert pack(source, out, overwrite=True, jobs=1).rows == 120
    assert {path.suffix for path in out.iterdir()} == {".json", ".arrow"}


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_killed_pack_leaves_no_process_and_no_manifest(source: Path, tmp_path: Path, jobs: int) -> None:
    process = start(source, tmp_path / "out", jobs, slow=9)
    wait_for_work(process, 9)
    workers = children(process)
    assert len(workers) == jobs // 2, "a process that only copies keeps two cores busy"
    process.kill()
    process.communicate()
    wait_until(lambda: all(gone(pid) for pid in workers), "workers outlived their parent")
    assert_unfinished(source, tmp_path / "out")


@pytest.mark.parametrize("jobs", [1, 4])
def test_ctrl_c_ends_all_processes_and_removes_temporary_files(source: Path, tmp_path: Path, jobs: int) -> None:
    process = start(source, tmp_path / "out", jobs, slow=9)
    wait_for_work(process, 9)
    workers = children(process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert stderr.count("KeyboardInterrupt") == 1, "a worker printed a traceback of its own"
    assert all(gone(pid) for pid in workers)
    assert not list((tmp_path / "out").glob("*.tmp"))
    assert_unfinished(source, tmp_path / "out")


def test_ctrl_c_before_anything_is_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(class_folders(tmp_path / "source"), tmp_path / "new" / "out", progress=_interrupt)
    assert not (tmp_path / "new" / "out").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt):
        pack(tmp_path / "source", tmp_path / "there", progress=_interrupt)
    assert list((tmp_path / "there").iterdir()) == []


def _interrupt(state: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_at_a_terminal_reaches_the_workers_too_and_is_left_to_the_parent(source: Path, tmp_path: Path) -> None:
    process = start(source, tmp_path / "out", 4, slow=9)
    wait_for_work(process, 9)
    workers = children(process)
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    assert not any(gone(pid) for pid in workers)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert stderr.count("KeyboardInterrupt") == 1


def test_a_killed_worker_is_an_error_that_says_so(source: Path, tmp_path: Path) -> None:
    big = tmp_path / "big"
    (big / "a").mkdir(parents=True)
    (big / "a" / "0.jpg").write_bytes(jpeg(0, 3000, 3000))
    for number in range(1, 400):
        os.link(big / "a" / "0.jpg", big / "a" / f"{number}.jpg")
    code = SCRIPT.replace("jobs=jobs,", "jobs=jobs, max_side=500,")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(big), str(tmp_path / "out"), "8", "0", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_work(process, 1)
    first, second = children(process)
    os.kill(first, signal.SIGKILL)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "PackError" in stderr
    assert "killed by SIGKILL" in stderr
    assert gone(second)
    assert not list((tmp_path / "out").glob("*.tmp"))


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_file_size_limit_is_an_error_in_words(source: Path, tmp_path: Path, jobs: int) -> None:
    process = start(source, tmp_path / "out", jobs, limit=30_000)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stderr.startswith("PackError")
    assert "largest file allowed" in stderr
    assert "shard-" in stderr
    assert not (tmp_path / "out").exists(), "nothing was written, so nothing stays"


def test_a_full_disk_is_an_error_in_words(source: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small tmpfs")
    try:
        process = start(source, disk / "out", 4)
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "the disk is full" in stderr
        assert not list((disk / "out").glob("*.tmp"))
        with pytest.raises(UnfinishedPackError):
            DatasetReader(disk / "out")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_second_of_two_packs_into_one_folder_is_refused(source: Path, tmp_path: Path, overwrite: bool) -> None:
    process = start(source, tmp_path / "out", 1, slow=9)
    wait_for_work(process, 9)
    os.kill(process.pid, signal.SIGSTOP)  # it reads the next shard, and writes it, while this test looks
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(OutputExistsError, match=f"another pack \\(process {process.pid}\\)"):
        pack(class_folders(tmp_path / "other"), tmp_path / "out", overwrite=overwrite)
    assert sorted((tmp_path / "out").iterdir()) == before
    process.kill()
    process.communicate()


def test_two_packs_started_together_give_one_whole_dataset(source: Path, tmp_path: Path) -> None:
    processes = [start(source, tmp_path / "out", 1) for _ in range(2)]
    results = [process.communicate(timeout=60) for process in processes]
    won = [stdout for stdout, _ in results if "packed 120" in stdout]
    assert len(won) == 1, results
    assert any("OutputExistsError" in stderr for _, stderr in results)
    assert DatasetReader(tmp_path / "out").num_rows == 120
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".arrow"}

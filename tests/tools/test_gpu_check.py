"""`tools/gpu_check`, on the simulated device: the script is proven here, the figures are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from gpucheck.isolate import run_row  # noqa: E402
from gpucheck.report import NotAvailableError, Notes  # noqa: E402

ROWS = (
    "build", "tests", "bandwidth", "overlap-balanced", "overlap-resnet50", "graph", "swap", "normalize", "decode-cpu",
    "decode-dali", "decode-torchcodec",
)  # fmt: skip


def gpu_check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / "gpu_check"), *options]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_every_row_runs_and_those_that_go_wrong_stop_no_other(tmp_path: Path) -> None:
    done = gpu_check(tmp_path, "--device", "sim", "--plant", "crash,hang,missing", "--tests", "kernel")
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert report["complete"]
    assert report["machine"]["torch"]
    assert report["machine"]["date"]
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == [*ROWS, "planted-crash", "planted-hang", "planted-missing"]
    for name in ROWS:
        assert rows[name]["status"] in ("ok", "not available"), rows[name]
        assert bool(rows[name]["reason"]) == (rows[name]["status"] != "ok")
    for name in ("build", "tests", "bandwidth", "overlap-balanced", "graph", "normalize", "decode-cpu"):
        assert rows[name]["status"] == "ok"
        assert any(measure["ok"] for measure in rows[name]["measures"])
    assert (rows["planted-crash"]["status"], rows["planted-hang"]["status"]) == ("failed", "failed")
    assert "SIGSEGV" in rows["planted-crash"]["reason"]
    assert "took longer than its 1 s" in rows["planted-hang"]["reason"]
    assert rows["planted-hang"]["seconds"] < 5
    assert rows["planted-hang"]["measures"][0]["what"] == "before the hang", "what was found before is kept"
    assert rows["planted-missing"]["status"] == "not available"
    assert "GB/s" not in done.stdout
    assert "images/s" not in done.stdout, "a simulated device has no speed"
    for said in (*rows, "SIMULATED", "SIGSEGV", "slots reach 80% of the bus", str(tmp_path / "gpu_check.json")):
        assert said in done.stdout


def test_all_is_well(tmp_path: Path) -> None:
    done = gpu_check(tmp_path, "--device", "sim", "--only", "normalize", "--json", "figures.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "figures.json").read_text())
    assert [row["name"] for row in report["rows"]] == ["build", "normalize"]


def test_without_cuda_it_says_so(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = gpu_check(tmp_path)
    assert done.returncode == 2
    assert "torch finds no CUDA device" in done.stderr
    assert not (tmp_path / "gpu_check.json").exists()


def test_a_failed_check_and_an_error_are_told_apart_from_what_is_not_there(tmp_path: Path) -> None:
    def fails(notes: Notes) -> None:
        notes.check("one is two", False)
        notes.check("one is one", True)

    def raises(notes: Notes) -> None:
        raise ValueError("no such thing\nmore")

    def lacks(notes: Notes) -> None:
        raise NotAvailableError("no library")

    def fine(notes: Notes) -> None:
        notes.measure("speed", 3, "GB/s")
        notes.line({"more": 1})

    found = {work.__name__: run_row(work.__name__, work, 20, tmp_path) for work in (fails, raises, lacks, fine)}
    assert {name: (row.status, row.reason) for name, (row, _) in found.items()} == {
        "fails": ("failed", "does not hold: one is two"),
        "raises": ("failed", "ValueError: no such thing"),
        "lacks": ("not available", "no library"),
        "fine": ("ok", ""),
    }
    assert found["fine"][1]["more"] == 1


@pytest.mark.parametrize("hangs", [False, True])
def test_what_a_row_started_ends_with_it(tmp_path: Path, hangs: bool) -> None:
    def work(notes: Notes) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        notes.line({"child": child})
        if hangs:
            time.sleep(600)

    start = time.monotonic()
    row, extra = run_row("leaves", work, 1.0, tmp_path)
    assert time.monotonic() - start < 10
    assert row.status == ("failed" if hangs else "ok")
    end = time.monotonic() + 5
    while _runs(extra["child"]) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(extra["child"])


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_python_without_torch_gives_way_to_the_one_that_tools_dev_made(tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare.parents[1])], check=True)
    command = [str(bare), str(TOOLS / "gpu_check"), "--device", "sim", "--only", "normalize"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    if (TOOLS.parent / ".venv" / "bin" / "python").exists():
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 2
        assert "Run this with the Python that has it" in done.stderr

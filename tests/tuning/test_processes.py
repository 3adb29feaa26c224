"""CPU seconds and memory of process trees."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zerocopy_data.tuning.processes import PeakMemory, cpu_seconds, memory, tree

CHILD = """
import os, subprocess, sys, time
{work}
print("ready", flush=True)
sys.stdin.read()
"""
GRANDCHILD = 'import sys; data = b"x" * {size}; print("ready", flush=True); sys.stdin.read()'


@contextmanager
def running(code: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def with_grandchild(size: int) -> str:
    work = (
        f"child = subprocess.Popen([sys.executable, '-c', {GRANDCHILD.format(size=size)!r}], "
        "stdout=subprocess.PIPE)\nchild.stdout.readline()"
    )
    return CHILD.format(work=work)


def test_tree_holds_grandchildren() -> None:
    with running(with_grandchild(1)) as process:
        members = tree(process.pid)
        assert members[0] == process.pid
        assert len(members) == 2


def test_peak_memory_counts_grandchildren() -> None:
    size = 200 << 20
    with running(with_grandchild(size)) as process:
        with PeakMemory(process.pid) as peak:
            pass
        assert size < peak.peak_bytes < 2 * size
        assert memory(process.pid) < size / 2


def test_cpu_seconds_count_children_that_have_ended() -> None:
    burn = "import time\\nstop = time.process_time() + 0.5\\nwhile time.process_time() < stop: pass"
    work = f"subprocess.run([sys.executable, '-c', '{burn}'])"
    with running(CHILD.format(work=work)) as process:
        assert 0.5 <= cpu_seconds(process.pid) < 2


def test_process_that_has_ended_has_no_memory() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert memory(process.pid) == 0
    assert tree(os.getpid())[0] == os.getpid()

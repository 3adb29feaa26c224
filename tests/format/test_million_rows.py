"""Many small rows: opening is quick, and forked workers share what they walk."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from zerocopy_data.format.fields import Scalar, Tensor, Text
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.writer import DatasetWriter

ROWS = 1_000_000
WORKERS = 8


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("million") / "d"
    with DatasetWriter(folder, {"label": Scalar(), "x": Tensor("float32", (16,)), "key": Text()}) as writer:
        x = np.arange(ROWS * 16, dtype=np.float32).reshape(ROWS, 16)
        writer.write_columns({"label": np.arange(ROWS), "x": x, "key": [f"k{row}" for row in range(ROWS)]})
    return folder


def test_a_million_rows_open_in_under_a_third_of_a_second(million: Path) -> None:
    start = time.perf_counter()
    reader = DatasetReader(million)
    for column in ("label", "x", "key"):
        reader.shard(0).chunks(column)
    assert reader.num_rows == ROWS
    assert time.perf_counter() - start < 0.3


def private_bytes() -> int:
    """Memory that only this process has: what it has dirtied, mapped files included."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kb) * 1024 for kb in re.findall(r"^Private_Dirty:\s+(\d+) kB", text, re.M))


def walk(reader: DatasetReader) -> int:
    total = 0
    for index in range(reader.num_shards):
        shard = reader.shard(index)
        total += sum(int(np.frombuffer(chunk.data, np.int64).sum()) for chunk in shard.chunks("label"))
        total += sum(int(np.frombuffer(chunk.data, np.float32).max()) for chunk in shard.chunks("x"))
        for row in range(0, shard.num_rows, 50):
            total += len(shard.value("key", row))
    return total


@pytest.mark.parametrize("opened_before_fork", [True, False])
def test_forked_workers_that_walk_all_rows_share_the_memory(million: Path, opened_before_fork: bool) -> None:
    reader = DatasetReader(million)
    expected = walk(DatasetReader(million))
    if opened_before_fork:
        walk(reader)
    pipes = []
    for _ in range(WORKERS):
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            before = private_bytes()
            same = walk(reader) == expected
            os.write(write_end, f"{int(same)} {private_bytes() - before}".encode())
            os._exit(0)
        os.close(write_end)
        pipes.append(read_end)
    answers = [os.read(pipe, 100).split() for pipe in pipes]
    for pipe in pipes:
        os.close(pipe)
        os.wait()
    assert [answer[0] for answer in answers] == [b"1"] * WORKERS
    assert max(int(answer[1]) for answer in answers) < 20 << 20

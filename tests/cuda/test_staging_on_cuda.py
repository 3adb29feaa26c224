"""The cases that every device must pass, on a real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from device_cases import BatchCases, CudaHandle, EndingCases, GraphCases, open_handle

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SUPPORT = Path(__file__).parents[1] / "support"

TOUCHING = """
import sys

sys.path.insert(0, sys.argv[1])
import torch
from device_cases.rows import Numbers

import zerocopy_data as zcd

for workers in (0, 2):
    for values, _ in zcd.DataLoader(Numbers(24), batch_size=4, num_workers=workers, device="cuda:1"):
        assert values.device == torch.device("cuda:1")
assert torch._C._cuda_hasPrimaryContext(1)
assert not torch._C._cuda_hasPrimaryContext(0), "a context was made on device 0"
"""


@pytest.fixture
def device() -> Iterator[CudaHandle]:
    with open_handle("cuda") as handle:
        yield handle


class TestBatches(BatchCases):
    pass


class TestGraphs(GraphCases):
    pass


class TestEndings(EndingCases):
    pass


def test_only_the_named_device_is_touched() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    command = [sys.executable, "-c", TOUCHING, str(SUPPORT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr

"""The Triton kernel, run in its interpreter on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_kernel_equals_the_reference_over_random_shapes() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    file = Path(__file__).parent / "interpreted_normalize.py"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "21 passed" in run.stdout, run.stdout


@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernel_compiles_for_gpus_that_are_not_here(capability: int) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    file = Path(__file__).parent / "compile_for_gpu.py"
    run = subprocess.run([sys.executable, str(file), str(capability)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["i16", "i16", "i32", "i32"]

"""People who only use torch pay nothing for what they do not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zerocopy_data as zcd

# The distributions of extras and peers, by their top modules.
HEAVY = ["nvidia.dali", "nvidia.nvimgcodec", "triton", "pynvml", "torchvision", "torchcodec", "kornia"]


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    with zcd.DatasetWriter(tmp_path / "numbers", {"x": zcd.Tensor("uint8", (4,))}) as writer:
        for index in range(20):
            writer.write({"x": np.full(4, index, np.uint8)})
    return tmp_path / "numbers"


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_epoch_imports_nothing_heavy(numbers: Path) -> None:
    code = f"""
import sys, zerocopy_data as zcd
before = [name for name in {HEAVY} if name in sys.modules]  # what torch itself brings
for loader in (zcd.DataLoader(zcd.open(sys.argv[1]), batch_size=3),
               zcd.DataLoader(zcd.open(sys.argv[1]), batch_size=3, device="cpu"),
               zcd.StatefulDataLoader(list(range(9)), batch_size=2)):
    for batch in loader:
        pass
print([name for name in {HEAVY} if name in sys.modules and name not in before])
"""
    assert _python(code, str(numbers)) == "[]"


def test_the_import_and_its_main_names_cost_little_beside_torchs() -> None:
    """The processor's time, not the clock's: other work on the machine must not decide."""
    code = """
import time, torch, torch.utils.data
start = time.process_time()
import zerocopy_data as zcd
zcd.DataLoader, zcd.open, zcd.Staging
print(time.process_time() - start)
"""
    assert min(float(_python(code)) for _ in range(4)) < 0.150


def test_the_import_alone_needs_no_torch() -> None:
    assert _python("import sys, zerocopy_data; print('torch' in sys.modules)") == "False"

"""Every test here runs over torch's DataLoader and over ours: what both must do stands in one place."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import zerocopy_data as zcd

HERE = Path(__file__).parent

# A loader that hangs must fail its test, and soon: the longest of these tests takes ten seconds.
SECONDS = 40


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS, method="signal"))


@pytest.fixture(params=[torch.utils.data.DataLoader, zcd.DataLoader], ids=["torch", "zcd"])
def loader_class(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    """Once a test has let go of its iterators, none of its workers may live on."""
    before = set(multiprocessing.active_children())
    yield
    if set(multiprocessing.active_children()) - before:
        gc.collect()  # a traceback may hold the iterator in a cycle
    left = [process for process in multiprocessing.active_children() if process not in before]
    for process in left:
        process.kill()
        process.join()
    assert not left, f"workers outlived their iterator: {left}"

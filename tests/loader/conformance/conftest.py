"""Every test here runs over torch's DataLoader and over ours: what both must do stands in one place."""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

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
    """Once a test's iterators have been told to end, none of its workers may live on.

    The exception of a sample holds its iterator in a cycle with its traceback. Collecting that would take five seconds
    with torch's class, whose queues then end before the iterator can wake its workers: so they are told here.
    """
    before = set(multiprocessing.active_children())
    yield
    if not set(multiprocessing.active_children()) - before:
        return
    for iterator in [found for found in gc.get_objects() if issubclass(type(found), _MultiProcessingDataLoaderIter)]:
        iterator._shutdown_workers()
    left = [process for process in multiprocessing.active_children() if process not in before]
    if left:
        # torch's handler would raise in pytest's own code.
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for process in left:
            process.kill()
            process.join()
        signal.signal(signal.SIGCHLD, handler)
    assert not left, f"workers outlived their iterator: {left}"

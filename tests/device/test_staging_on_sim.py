"""The cases that every device must pass, on the simulated one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from device_cases import BatchCases, EndingCases, GraphCases, SimulatedHandle, open_handle
from device_cases.rows import CROP, Numbers, write_shards
from simulated_device import Machine, simulated, why_not

import zerocopy_data as zcd

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def device() -> Iterator[SimulatedHandle]:
    with open_handle("sim") as handle:
        yield handle


class TestBatches(BatchCases):
    pass


class TestGraphs(GraphCases):
    pass


class TestEndings(EndingCases):
    pass


@pytest.mark.parametrize("workers", [0, 2])
def test_only_the_named_device_is_touched(workers: int) -> None:
    with simulated(Machine(devices=2)) as machine:
        loader = zcd.DataLoader(Numbers(24), batch_size=4, num_workers=workers, device="sim:1")
        assert not machine.touched
        for values, _ in loader:
            assert values.device == torch.device("sim:1")
        assert machine.touched == {1}


@pytest.mark.parametrize("static", [False, True])
def test_persistent_workers_begun_anew_leave_the_iterator_before_nothing_to_give(static: bool) -> None:
    with simulated(Machine()) as machine:
        loader = zcd.DataLoader(
            Numbers(24), 4, num_workers=1, persistent_workers=True, device=zcd.Staging("sim:0", static=static)
        )
        before = iter(loader)
        address = next(before)[0].address()  # type: ignore[attr-defined]
        rows = [batch.cpu().tolist() for _, batch in loader]
        assert rows == [list(range(first, first + 4)) for first in range(0, 24, 4)]
        assert list(before) == []
        if static:  # the stager was free again, its memory where it was
            assert address in {next(iter(loader))[0].address() for _ in range(2)}  # type: ignore[attr-defined]
        assert machine.faults == []


def test_device_memory_does_not_grow_with_the_batches_of_normalised_images(tmp_path: Path) -> None:
    with simulated(Machine()) as machine:
        dataset = zcd.open(write_shards(tmp_path / "shards"), transform={"image": CROP}).as_tuple("image", "label")
        loader = zcd.DataLoader(dataset, batch_size=4, device="sim:0")

        def allocated() -> int:
            for _ in loader:
                pass
            torch.get_device_module("sim").synchronize()
            gc.collect()
            return machine.allocators[0].allocated

        assert allocated() == allocated() == allocated()


def test_a_fault_of_the_machine_fails_the_case() -> None:
    with pytest.raises(AssertionError, match="race"):
        _race()


def _race() -> None:
    with open_handle("sim") as handle:
        values = torch.ones(4, device="sim")
        handle.busy((values,))
        with handle.module.stream(handle.module.Stream(device="sim:0")):
            values.add_(1)  # without waiting for the reader

"""Fewer batches staged at a time: memory is given up behind its readers, and comes back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from simulated_device import Machine

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali
from zerocopy_data.device.memory import Governor, InFlight
from zerocopy_data.device.request import Staging
from zerocopy_data.device.staged import StagedBatches
from zerocopy_data.device.staging import Stager

BYTES = 4 * 1000


def batch(number: int) -> torch.Tensor:
    return torch.full((1000,), number, dtype=torch.float32)


def unused() -> int:
    """Bytes that the device has left, without what the allocator keeps."""
    device = torch.get_device_module("sim")
    device.empty_cache()
    free: int = device.mem_get_info(0)[0]
    return free


def test_a_lower_limit_is_kept_to_and_no_batch_is_lost_or_torn(machine: Machine) -> None:
    staged = StagedBatches(4)
    stager = Stager(Staging("sim:0", buffers=4), staged)
    numbers, got = iter(range(100)), []
    for limit in (4, 1, 2, 1, 4, 3):
        staged.limit = limit
        for _ in range(6):
            while stager.room > 0:
                stager.put(batch(next(numbers)))
            value = stager.get()
            machine.work(3e-4, reads=(value,))
            got.append(value)
        assert len(stager) <= limit
        assert staged.in_flight <= limit
    while len(stager):
        got.append(stager.get())
    assert [int(value.cpu()[0]) for value in got] == list(range(len(got)))
    assert staged.in_flight == 3
    stager.drain()


def test_the_memory_is_free_once_its_readers_are_done(machine: Machine) -> None:
    staged = StagedBatches(4)
    stager = Stager(Staging("sim:0", buffers=4), staged)
    for number in range(4):
        stager.put(batch(number))
    for _ in range(4):
        stager.get()
    machine.synchronize(0)
    before = unused()
    staged.limit = 1
    stager.put(batch(9))
    machine.synchronize(0)
    assert unused() - before >= 3 * BYTES
    stager.drain()


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((250,), index, dtype=torch.float32)


class Free:
    def __init__(self) -> None:
        self.free = 10 * BYTES

    def read(self) -> Any:
        return self


def test_a_governor_turns_a_loader_down_and_up(machine: Machine) -> None:
    loader = zcd.DataLoader(Numbers(), 4, num_workers=1, device=Staging("sim:0", buffers=4))
    source = Free()
    governor = Governor(
        low=4 * BYTES, high=8 * BYTES, reliefs=[InFlight(loader.staged, bytes_each=BYTES)], source=source
    )
    held, got = [], []
    for epoch in range(3):
        source.free = (10, 2, 20)[epoch] * BYTES
        for value in loader:
            governor.step()
            got.append(value)
        held.append(loader.staged.in_flight)
    assert held[1] == 1  # before and after, as many as the worker had ready
    assert loader.staged.limit == 4
    assert [action.kind for action in governor.log] == ["relieve", "restore"]
    values = [value.cpu()[:, 0].tolist() for value in got]
    assert values == [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for _ in range(3) for i in range(16)]


def test_what_has_no_limit_to_set_is_refused(machine: Machine) -> None:
    with pytest.raises(zcd.ConfigError, match="without device="):
        _ = zcd.DataLoader(Numbers(), 4).staged
    with pytest.raises(zcd.ConfigError, match="static=True"):
        _ = zcd.DataLoader(Numbers(), 4, device="sim:0", static=True).staged
    with pytest.raises(zcd.ConfigError, match=r"loader\.staged"):
        InFlight(zcd.DataLoader(Numbers(), 4), bytes_each=1)  # type: ignore[arg-type]
    with pytest.raises(zcd.ConfigError, match="a list of objects such as InFlight"):
        Governor(low=1, high=2, reliefs=[object()], source=Free())  # type: ignore[list-item]
    with pytest.raises(zcd.ConfigError, match=r"another object with read\(\)"):
        Governor(low=1, high=2, reliefs=[], source=object())  # type: ignore[arg-type]


def test_senseless_stagings_are_refused() -> None:
    with pytest.raises(zcd.ConfigError, match="can't be called"):
        Staging("cpu", transform=3)  # type: ignore[arg-type]
    for wrong in ({"cast": None}, {"cast": [1]}, {"memory_format": "x"}, {"memory_format": torch.channels_last_3d}):
        with pytest.raises(zcd.ConfigError, match=next(iter(wrong))):
            Staging("cpu", **wrong)  # type: ignore[arg-type]
    with pytest.raises(zcd.ConfigError, match="'cuda:0'"):
        Staging(3.5)  # type: ignore[arg-type]
    for decoder in ({"device": "nope"}, {"threads": "2"}):
        with pytest.raises(zcd.ConfigError, match=r"Dali\("):
            Dali(**decoder).check(torch.device("cpu"))  # type: ignore[arg-type]
    with pytest.raises(zcd.ConfigError, match="inner one"):
        Staging(Staging("cpu"))  # type: ignore[arg-type]

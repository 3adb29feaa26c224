"""Ctrl-C while batches go to a device: what has not reached the loop has not been returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loader_data import FIXED, ROWS
from simulated_device import Machine, simulated, why_not

import zerocopy_data as zcd
from zerocopy_data.loader.device_iterator import DeviceIterator

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def _numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["number"].cpu()]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("received", [0, 1, 3])
def test_a_state_after_ctrl_c_goes_on_with_the_batch_that_was_not_received(
    photos_path: Path, workers: int, received: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_ahead, calls = DeviceIterator._take_ahead, 0

    def interrupted(self: DeviceIterator) -> None:
        nonlocal calls
        calls += 1
        if calls == received + 1:
            raise KeyboardInterrupt
        take_ahead(self)

    def make() -> Any:
        ds = zcd.open(photos_path, FIXED).select(["image", "number"])
        return zcd.StatefulDataLoader(ds, 8, seed=3, num_workers=workers, device="sim:0")

    with simulated(Machine()) as machine:
        monkeypatch.setattr(DeviceIterator, "_take_ahead", interrupted)
        loader = make()
        got: list[int] = []
        received_numbers = (number for batch in loader for number in _numbers([batch]))
        with pytest.raises(KeyboardInterrupt):
            got.extend(received_numbers)  # keeps what came before
        assert len(got) == 8 * received
        monkeypatch.undo()
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert got + _numbers(resumed) == list(range(ROWS))
    assert not machine.faults

"""Pinned slots on a simulated device: registered once, and written again only when the device has read them."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from process_data import Numbers
from torch.utils.data import DataLoader as TorchDataLoader

import zerocopy_data as zcd
from zerocopy_data.loader import process_iterator


class SimulatedEvent:
    def __init__(self) -> None:
        self.done = False
        self.waited_for = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waited_for = self.done = True


class SimulatedDevice:
    """Registers memory and records events that come true when the test says so."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.events: list[SimulatedEvent] = []
        self.streams: list[Any] = []
        self.registered = 0
        self.current = "main"
        self.refuses = False

    def pin(self, address: int, size: int) -> bool:
        if self.refuses:
            return False
        assert address not in self.pinned
        self.pinned[address] = size
        self.registered += 1
        return True

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def stream(self) -> Any:
        return self.current

    def record(self, stream: Any) -> SimulatedEvent:
        self.streams.append(stream)
        self.events.append(SimulatedEvent())
        return self.events[-1]

    def finish(self) -> None:
        for event in self.events:
            event.done = True


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    made = SimulatedDevice()
    monkeypatch.setattr(process_iterator, "_pinner", lambda loader: made)
    return made


def test_a_slot_is_not_written_while_the_device_may_read_it(device: SimulatedDevice) -> None:
    seen: list[tuple[torch.Tensor, int]] = []
    loader = zcd.DataLoader(Numbers(60, (40_000,)), batch_size=4, num_workers=1)
    for images, labels in loader:
        # What a copy that has not run yet would still have to read: not the tensor, only its memory.
        seen.append((images.untyped_storage().data_ptr(), int(labels[0])))
    addresses = [address for address, _ in seen]
    assert len(set(addresses)) == len(addresses), "no slot came twice while no event was done"


def test_slots_come_back_when_the_device_has_read_them(device: SimulatedDevice) -> None:
    addresses = set()
    for images, _ in zcd.DataLoader(Numbers(200, (40_000,)), batch_size=4, num_workers=1):
        addresses.add(images.untyped_storage().data_ptr())
        device.finish()
    assert len(addresses) <= 8
    assert device.registered <= 8, "a slot is registered once, not for every batch"


def test_everything_is_unregistered_after_its_reads(device: SimulatedDevice) -> None:
    kept = next(iter(zcd.DataLoader(Numbers(60, (40_000,)), batch_size=4, num_workers=1)))
    gc.collect()
    assert len(device.pinned) == 1, "what is held stays registered when its loader has gone"
    assert kept[0][1, 0] == 1
    del kept
    gc.collect()
    assert not device.pinned
    assert device.events[-1].waited_for


def test_both_streams_are_waited_for(device: SimulatedDevice) -> None:
    iterator = iter(zcd.DataLoader(Numbers(8, (40_000,)), batch_size=4, num_workers=1))
    batch = next(iterator)
    device.streams.clear()
    device.current = "side"
    del batch
    assert device.streams == ["main", "side"]


def test_memory_that_cannot_be_locked_needs_no_events(device: SimulatedDevice) -> None:
    device.refuses = True
    assert len(list(zcd.DataLoader(Numbers(60, (40_000,)), batch_size=4, num_workers=1))) == 15
    assert not device.events


def test_without_a_device_pinning_warns_as_torch_does() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    said: list[list[str]] = []
    for loader_class in (TorchDataLoader, zcd.DataLoader):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(loader_class(Numbers(8, (40_000,)), batch_size=4, num_workers=1, pin_memory=True))
        assert len(batches) == 2
        said.append([str(warning.message) for warning in caught])
    assert said[0] == said[1]

"""Page-locked buffers that are used again."""

from __future__ import annotations

import gc

import pytest
import torch
from simulated_device import Machine
from swap_schedules import FakeHost

from zerocopy_data.device.accelerator import accelerator_for
from zerocopy_data.device.memory.parcel import Mover
from zerocopy_data.device.memory.pinned import PinnedBuffers, rounded
from zerocopy_data.errors import DeviceMemoryError


def _buffers(host: FakeHost | None = None, margin: int = 0) -> PinnedBuffers:
    return PinnedBuffers(accelerator_for("sim"), host or FakeHost(), margin)


def test_sizes_are_rounded_up_by_an_eighth_at_most() -> None:
    for size in (0, 1, 4096, 4097, 100_000, (1 << 20) + 1, 123_456_789):
        assert size <= rounded(size)
        assert rounded(size) <= max(4096 + size, size * 9 / 8)
        assert rounded(rounded(size)) == rounded(size)


def test_a_buffer_is_used_again_once_its_copy_is_done(machine: Machine) -> None:
    buffers = _buffers()
    module = torch.get_device_module("sim")
    first = buffers.take(5000)
    machine.work(1.0)
    event = module.Event()
    event.record(module.current_stream())
    address = first.data_ptr()
    buffers.give(first, event)
    del first
    second = buffers.take(5000)
    assert second.data_ptr() != address
    module.synchronize()
    assert buffers.take(5000).data_ptr() == address
    assert buffers.bytes == 2 * rounded(5000)


def test_the_hosts_margin_is_kept_by_freeing_idle_buffers_first(machine: Machine) -> None:
    host = FakeHost(free=100_000)
    buffers = _buffers(host, margin=50_000)
    buffers.give(buffers.take(8000))
    host.free = 51_000
    with pytest.raises(DeviceMemoryError, match="51000"):
        buffers.take(20_000)
    assert buffers.bytes == 0
    assert machine.pinned == {}


def test_closing_frees_what_is_idle_now_and_the_rest_when_it_comes_back(machine: Machine) -> None:
    buffers = _buffers()
    out = buffers.take(100)
    buffers.give(buffers.take(100))
    buffers.close()
    assert buffers.bytes == rounded(100)
    buffers.give(out)
    del out
    assert buffers.bytes == 0
    assert machine.pinned == {}


@pytest.mark.parametrize("end", ["dropped", "closed"])
def test_a_buffer_outlives_the_copies_it_is_part_of_however_its_owner_ends(machine: Machine, end: str) -> None:
    module = torch.get_device_module("sim")
    buffers = _buffers()
    buffer = buffers.take(5000)
    machine.work(1.0)
    there = torch.empty(5000, dtype=torch.uint8, device="sim")
    there.copy_(buffer[:5000].fill_(3), non_blocking=True)
    event = module.Event()
    event.record(module.current_stream())
    if end == "closed":
        buffers.close()
    buffers.give(buffer, event)
    del buffer, buffers
    gc.collect()
    assert machine.pinned == {}
    module.synchronize()  # the machine calls it a fault if the copy finds its memory gone
    assert there.cpu().eq(3).all()


@pytest.mark.parametrize("home", [False, True])
def test_so_does_a_parcels_copy_on_the_host(machine: Machine, home: bool) -> None:
    mover = Mover(accelerator_for("sim"), FakeHost(), 0)
    tensor = torch.full((5000,), 7, dtype=torch.uint8, device="sim")
    parcel = mover.parcel(tensor)
    del tensor
    mover.send(parcel)
    copied = parcel.copied
    if home:
        torch.get_device_module("sim").synchronize()
        mover.settle(parcel)
        mover.bring(parcel)
    event = parcel.ready if home else copied
    assert event is not None
    assert not event.query()
    del parcel, mover
    assert event.query()
    assert machine.pinned == {}

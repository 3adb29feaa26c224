"""The simulated device is what the staging tests rest on: it must run torch's code right and notice what is wrong."""

from __future__ import annotations

import ctypes
import gc

import pytest
import torch
from simulated_device import Machine, simulated, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Pinned:
    """Registered host memory: uint8 [size]."""

    def __init__(self, machine: Machine, size: int) -> None:
        self.root = (ctypes.c_ubyte * size)()
        self.tensor = torch.frombuffer(self.root, dtype=torch.uint8)
        machine.pin(self.tensor.data_ptr(), size)


def kinds(machine: Machine) -> set[str]:
    return {fault.kind for fault in machine.faults}


def test_torch_code_gives_what_it_gives_on_the_cpu() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 2))
    images = torch.randn(5, 3, 4, 4)
    expected = model(images)
    expected.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with simulated(Machine()) as machine:
        model.to("sim")
        out = model(images.to("sim"))
        out.square().sum().backward()
        assert torch.equal(out.cpu(), expected)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            assert torch.equal(parameter.grad.cpu(), gradient)
        assert not machine.faults


def test_nothing_runs_before_its_time_and_no_wait_before_it_is_asked_for() -> None:
    with simulated(Machine(h2d=1e6, latency=0.5)) as machine:
        host = Pinned(machine, 1_000_000)
        target = torch.empty(1_000_000, dtype=torch.uint8, device="sim")
        target.copy_(host.tensor, non_blocking=True)
        event = torch.get_device_module("sim").current_stream().record_event()
        assert machine.clock.now() == 0.0
        assert not event.query()
        machine.host(1.4)
        assert not event.query()
        event.synchronize()
        assert machine.clock.now() == pytest.approx(1.5)
        assert machine.host_waits == pytest.approx(0.1)


def test_copies_and_kernels_of_two_streams_run_beside_each_other_and_those_of_one_in_turn() -> None:
    with simulated(Machine(h2d=1e6, latency=0.0)) as machine:
        module = torch.get_device_module("sim")
        host = Pinned(machine, 1_000_000)
        side = module.Stream(device="sim:0")
        with module.stream(side):
            target = torch.empty(1_000_000, dtype=torch.uint8, device="sim")
            target.copy_(host.tensor, non_blocking=True)
        machine.work(1.0)
        module.synchronize()
        assert machine.clock.now() == pytest.approx(1.0)
        target.copy_(host.tensor, non_blocking=True)
        machine.work(1.0)
        module.current_stream().wait_stream(side)
        module.synchronize()
        assert machine.clock.now() == pytest.approx(3.0)
        module.current_stream().wait_stream(side)
    # The second copy was on another stream than the first, which nothing but the wait of the host put in order.
    assert not machine.faults


def test_host_memory_written_under_a_queued_copy_is_noticed() -> None:
    with simulated(Machine()) as machine:
        host = Pinned(machine, 64)
        torch.empty(64, dtype=torch.uint8, device="sim").copy_(host.tensor, non_blocking=True)
        host.tensor.fill_(1)
        torch.get_device_module("sim").synchronize()
    assert kinds(machine) == {"torn"}


def test_host_memory_unregistered_under_a_queued_copy_is_noticed() -> None:
    with simulated(Machine()) as machine:
        host = Pinned(machine, 64)
        torch.empty(64, dtype=torch.uint8, device="sim").copy_(host.tensor, non_blocking=True)
        machine.unpin(host.tensor.data_ptr())
        torch.get_device_module("sim").synchronize()
    assert kinds(machine) == {"unpinned"}


def test_a_copy_out_of_pageable_memory_is_done_when_it_returns() -> None:
    with simulated(Machine(h2d=1e3)) as machine:
        host = torch.zeros(1000, dtype=torch.uint8)
        target = torch.empty(1000, dtype=torch.uint8, device="sim")
        target.copy_(host, non_blocking=True)
        host.fill_(1)
        assert machine.clock.now() > 1.0
        assert target.cpu().max() == 0
    assert not machine.faults


def _write_elsewhere(machine: Machine, ordered: bool, first: str) -> None:
    module = torch.get_device_module("sim")
    shared = torch.zeros(8, device="sim")
    module.synchronize()
    other = module.Stream(device="sim:0")
    if first == "read":
        machine.work(1e-3, reads=(shared,))
    else:
        shared.fill_(1)
    if ordered:
        other.wait_stream(module.current_stream())
    with module.stream(other):
        shared.fill_(2)
    module.synchronize()


@pytest.mark.parametrize("first", ["read", "write"])
def test_a_write_that_waits_for_no_earlier_access_is_noticed(first: str) -> None:
    with simulated(Machine()) as machine:
        _write_elsewhere(machine, ordered=True, first=first)
    assert not machine.faults
    with simulated(Machine()) as machine:
        _write_elsewhere(machine, ordered=False, first=first)
    assert kinds(machine) == {"race"}


def test_a_read_that_waits_for_no_earlier_write_is_noticed() -> None:
    with simulated(Machine()) as machine:
        module = torch.get_device_module("sim")
        other = module.Stream(device="sim:0")
        with module.stream(other):
            made = torch.ones(8, device="sim")
        made.sum()
        module.synchronize()
    assert kinds(machine) == {"race"}


@pytest.mark.parametrize("recorded", [True, False])
def test_memory_that_another_stream_still_reads_is_given_out_again_only_if_nobody_said_so(recorded: bool) -> None:
    with simulated(Machine()) as machine:
        module = torch.get_device_module("sim")
        other = module.Stream(device="sim:0")
        made = torch.ones(1000, device="sim")
        other.wait_stream(module.current_stream())
        with module.stream(other):
            machine.work(1.0, reads=(made,))
        if recorded:
            made.record_stream(other)
        del made
        gc.collect()
        torch.zeros(1000, device="sim")
        module.synchronize()
    assert kinds(machine) == (set() if recorded else {"race"})


def test_what_ends_a_capture_is_noticed() -> None:
    with simulated(Machine()) as machine:
        module = torch.get_device_module("sim")
        with machine.capturing():
            assert module.is_current_stream_capturing()
            with pytest.raises(RuntimeError, match="capturing"):
                module.synchronize()
    assert kinds(machine) == {"capture"}


def test_memory_ends_where_it_was_set_to_end() -> None:
    with simulated(Machine(memory=1 << 20)) as machine:
        module = torch.get_device_module("sim")
        held = torch.empty(1 << 19, dtype=torch.uint8, device="sim")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty((1 << 19) + 1, dtype=torch.uint8, device="sim")
        del held
        gc.collect()
        assert module.mem_get_info() == (1 << 19, 1 << 20)  # cached by the allocator
        machine.allocators[0].other_processes = 1 << 18
        assert module.mem_get_info() == (1 << 18, 1 << 20)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 20, dtype=torch.uint8, device="sim")
        machine.allocators[0].other_processes = 0
        torch.empty(1 << 20, dtype=torch.uint8, device="sim")  # the cached half goes back first
        assert module.memory_reserved() == 1 << 20


def test_only_devices_that_were_used_are_touched() -> None:
    with simulated(Machine(devices=3)) as machine:
        torch.ones(1, device="sim:2")
        assert machine.touched == {2}
        torch.get_device_module("sim").current_device()
        assert machine.touched == {0, 2}

"""A swap pool, case by case."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from simulated_device import Machine
from swap_schedules import FakeHost

from zerocopy_data.device.memory import Governor, SwapPool, TorchMemory
from zerocopy_data.errors import ConfigError, DeviceMemoryError, ZcdError


def _pool(**options: Any) -> SwapPool:
    return SwapPool("sim", **{"host": FakeHost(), **options})


def _synchronize() -> None:
    torch.get_device_module("sim").synchronize()


def _full(value: float, size: int = 1000) -> torch.Tensor:
    return torch.full((size,), float(value), device="sim")


def _values(tensor: Any) -> list[float]:
    _synchronize()
    return tensor.inner.flatten().tolist()  # type: ignore[no-any-return]


def test_a_tensor_goes_and_comes_back_with_its_values_and_strides(machine: Machine) -> None:
    with _pool() as pool:
        made = torch.empty_strided((3, 4), (1, 5), device="sim")  # gaps between columns
        made.copy_(torch.arange(12.0).reshape(3, 4))
        handle = pool.register(made)
        del made
        assert pool.relieve(1) == handle.bytes
        _synchronize()
        assert pool.pending() == 0
        assert machine.allocators[0].allocated == 0
        tensor = handle.get()
        assert tensor.stride() == (1, 5)
        assert _values(tensor) == list(range(12))
        assert pool.state().late == 1


def test_least_recently_used_go_first_without_a_record(machine: Machine) -> None:
    with _pool() as pool:
        handles = [pool.register(_full(i), name=f"t{i}") for i in range(3)]
        for number in (1, 0, 2):
            handles[number].get()
        pool.relieve(4000)
        assert [h.parcel.resident for h in handles] == [True, False, True]
        assert "leaving" in repr(handles[1])


def test_least_soon_needed_go_first_with_a_record_and_come_back_ahead_of_use(machine: Machine) -> None:
    with _pool() as pool:
        handles = [pool.register(_full(i)) for i in range(4)]
        with pool.record():
            for handle in handles:
                handle.get()
        pool.relieve(8000)
        assert [h.parcel.resident for h in handles] == [True, True, False, False]
        late = []
        for _ in range(4):
            for handle in handles:
                with handle as tensor:
                    machine.work(1e-2, reads=(tensor,))
                del tensor
            late.append(pool.state().late)
        assert late[1] == late[-1]  # but for the first rounds, while what leaves is not gone yet
        assert pool.state().home > 0
        _synchronize()


def test_a_host_that_runs_ahead_of_the_copies_takes_no_more_memory(machine: Machine) -> None:
    with _pool() as pool:
        handles = [pool.register(_full(i)) for i in range(4)]
        with pool.record():
            for handle in handles:
                handle.get()
        pool.relieve(8000)
        for round_ in range(50):  # nothing waits for the device here
            for handle in handles:
                with handle as tensor:
                    tensor.add_(1)
                del tensor
                if round_ > 1:
                    assert pool.state().resident + pool.state().leaving <= 8000
        assert pool.state().pinned <= 12 * 4096
        assert [_values(h.get())[0] for h in handles] == [50.0, 51.0, 52.0, 53.0]


def test_what_somebody_holds_stays(machine: Machine) -> None:
    with _pool() as pool:
        handle = pool.register(_full(1))
        view = handle.get()[10:20]
        assert pool.relieve(1) == 0
        del view
        with handle:
            assert pool.relieve(1) == 0
        assert pool.relieve(1) == handle.bytes


def test_aliases_are_refused(machine: Machine) -> None:
    with _pool() as pool:
        whole = _full(1)
        part = whole[5:]
        for tensor in (whole, part):
            with pytest.raises(ConfigError, match="share the memory"):
                pool.register(tensor)
        del part, tensor
        gc.collect()
        handle = pool.register(whole)
        with pytest.raises(ConfigError, match="share the memory"):
            pool.register(whole)
        assert handle.bytes == 4000


def test_other_tensors_are_refused_with_what_to_do(machine: Machine) -> None:
    with _pool() as pool:
        with pytest.raises(ConfigError, match="Move it there"):
            pool.register(torch.ones(2))
        with pytest.raises(ConfigError, match="SavedActivations"):
            pool.register(torch.ones(2, device="sim", requires_grad=True))
        with pytest.raises(ConfigError, match="not a tensor"):
            pool.register([1])  # type: ignore[arg-type]
        assert pool.state().registered == 0


def test_the_cpu_has_no_device_memory() -> None:
    with pytest.raises(ConfigError, match="CPU has no device memory"):
        SwapPool("cpu")


def test_a_full_host_is_respected_and_says_why(machine: Machine) -> None:
    host = FakeHost(free=5000)
    with _pool(host=host, host_margin=4000) as pool:
        handle = pool.register(_full(3))
        assert pool.relieve(1) == 0
        refused = pool.state().refused
        assert refused is not None
        assert "a trace leaves 5000" in refused
        with pytest.raises(DeviceMemoryError, match=r"host_margin=.*swap fewer tensors"):
            handle.offload()
        assert _values(handle.get()) == [3.0] * 1000
        host.free = 1 << 20
        handle.offload()
        assert handle.parcel.leaving


def test_a_device_without_room_says_what_is_in_the_way_and_the_pool_goes_on(machine: Machine) -> None:
    with _pool() as pool:
        handle = pool.register(_full(1, 100_000), name="first moment")
        handle.offload()
        _synchronize()
        pool.pending()
        other = pool.register(_full(2, 100_000), name="other")
        held = other.get()
        rest = torch.empty(500_000, dtype=torch.uint8, device="sim")
        with pytest.raises(DeviceMemoryError, match=r"bring back first moment.*other of 400000"):
            handle.get()
        del rest, held
        assert _values(handle.get()[:3]) == [1.0] * 3


def test_when_the_device_is_full_others_give_way_whatever_is_allowed(machine: Machine) -> None:
    with _pool() as pool:
        handles = []
        for i in range(5):  # two and a half times the device
            handles.append(pool.register(_full(i, 100_000)))
            pool.relieve(400_000)
            _synchronize()
            pool.pending()
        pool.restore(1 << 30)
        for handle in handles:
            with handle as tensor:
                tensor.add_(1)
            assert machine.allocators[0].reserved <= 1 << 20
            del tensor
        assert [_values(h.get())[0] for h in handles] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_exception_in_a_scope_or_a_record_leaves_the_pool_usable(machine: Machine) -> None:
    with _pool() as pool:
        handle = pool.register(_full(1))

        def fail() -> None:
            with pool.record(), handle:
                raise ValueError("the model's own")

        with pytest.raises(ValueError, match="the model's own"):
            fail()
        assert pool.relieve(1) == handle.bytes
        with pool.record():
            handle.get()
        assert _values(handle.get())[0] == 1.0


def test_closing_ends_everything_and_twice_is_no_harm(machine: Machine) -> None:
    pool = _pool()
    first, second = (pool.register(_full(i)) for i in range(2))
    pool.relieve(1)
    first.close()
    first.close()
    with pytest.raises(ZcdError, match="no longer in the pool"):
        first.get()
    pool.close()
    pool.close()
    with pytest.raises(ZcdError, match="closed"):
        second.get()
    with pytest.raises(ZcdError, match="closed"):
        pool.register(_full(0))
    _synchronize()
    gc.collect()
    assert machine.allocators[0].allocated == 0
    assert machine.pinned == {}


def test_a_graph_that_is_captured_is_refused_and_the_governor_keeps_still(machine: Machine) -> None:
    with _pool() as pool:
        handle = pool.register(_full(1))
        governor = Governor(low=1 << 29, high=1 << 30, reliefs=[pool], source=TorchMemory("sim"))
        with machine.capturing():
            with pytest.raises(ZcdError, match="captured"):
                handle.get()
            assert governor.step() is None
        assert governor.step() is not None


def test_the_governor_gives_cached_memory_back_when_the_driver_has_little_left(machine: Machine) -> None:
    governor = Governor(low=300_000, high=500_000, reliefs=[], source=TorchMemory("sim"))
    tensor = torch.empty(900_000, dtype=torch.uint8, device="sim")
    del tensor
    assert machine.allocators[0].free_bytes < 300_000
    governor.step()
    assert machine.allocators[0].free_bytes == 1 << 20


def test_tensors_are_counted_as_torch_shares_their_memory() -> None:
    from zerocopy_data.device.accelerator import Accelerator

    accelerator = Accelerator(torch.device("cpu"))
    tensor = torch.ones(10)
    assert accelerator.holders(tensor) == 1
    view, other = tensor[2:], torch.ones(10)
    assert accelerator.holders(tensor) == accelerator.holders(view) == 2
    assert accelerator.storage_key(tensor) == accelerator.storage_key(view) != accelerator.storage_key(other)
    middle = torch.ones(10, requires_grad=True) * 2
    storage = middle.untyped_storage()
    contents = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    del storage
    graph = middle * middle  # which saves it
    del middle
    assert accelerator.holders(contents) == 2
    del graph
    assert accelerator.holders(contents) == 1

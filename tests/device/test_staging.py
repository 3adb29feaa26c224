"""A batch on the device is the batch on the host: whatever it is made of, and wherever it lies."""

from __future__ import annotations

import collections
import dataclasses
import gc
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from device_batches import Slots
from same_batches import assert_same
from simulated_device import Machine
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from zerocopy_data.device.request import Staging
from zerocopy_data.device.staging import Stager
from zerocopy_data.errors import ConfigError


def staged(batch: Any, **asked: Any) -> Any:
    """The batch as the training loop gets it."""
    stager = Stager(Staging("sim:0", **asked))
    stager.put(batch)
    return stager.get()


def _through(stager: Stager, batch: Any) -> None:
    stager.put(batch)
    stager.get()
    stager.release()


class Pair(NamedTuple):
    images: Any
    labels: Any


@dataclasses.dataclass(frozen=True)
class Record:
    images: torch.Tensor
    name: str


class Graph:
    """An object that moves itself, as PyG's and others' batches do."""

    def __init__(self, nodes: torch.Tensor) -> None:
        self.nodes = nodes

    def to(self, device: Any) -> Graph:
        return Graph(self.nodes.to(device))


def images(n: int = 4) -> torch.Tensor:
    return torch.arange(n * 3 * 4 * 5, dtype=torch.uint8).view(n, 3, 4, 5)


BATCHES = {
    "tensor": images(),
    "tuple": (images(), torch.arange(4)),
    "list": [images(), torch.arange(4)],
    "dict": {"image": images(), "label": torch.arange(4), "name": ["a", "b"], "path": "x", "number": 3},
    "named tuple": Pair(images(), torch.arange(4)),
    "nested": {"a": [{"b": (torch.ones(2), [torch.zeros(3)])}], "c": None},
    "ordered": collections.OrderedDict(x=torch.ones(2), y=torch.zeros(1)),
    "ragged": {"tokens": [torch.arange(n) for n in (3, 0, 7)], "lengths": torch.tensor([3, 0, 7])},
    "no dimension": torch.tensor(3.5),
    "no sample": torch.empty(0, 3, 4),
    "no tensor": {"name": ["a"], "number": 1},
    "nothing": {},
    "dtypes": [torch.ones(3, dtype=d) for d in (torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float64,
                                                torch.complex64, torch.uint16)],
    "channels last": images().to(memory_format=torch.channels_last),
    "one sample, channels last": images(1).to(memory_format=torch.channels_last),
    "same tensor twice": (lambda x: [x, x])(torch.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_keeps_its_structure_types_order_in_memory_and_values(
    machine: Machine, kind: str, static: bool
) -> None:
    batch = BATCHES[kind]
    out = staged(batch, static=static)
    assert_same(out, batch, torch.Tensor.cpu, strides=True)


def test_tensors_come_to_lie_on_the_named_device_and_nothing_touches_another(machine: Machine) -> None:
    stager = Stager(Staging("sim:1"))
    assert machine.touched == set()
    stager.put({"x": torch.ones(3)})
    assert stager.get()["x"].device == torch.device("sim:1")
    assert machine.touched == {1}


def test_gaps_and_broadcasts_are_moved_as_values(machine: Machine) -> None:
    wide = torch.arange(24).view(4, 6)
    out = staged(
        [wide[:, ::2], wide[:, 0], torch.ones(1).expand(5), wide.t(), torch.ones(2, dtype=torch.complex64).conj()]
    )
    expected = [wide[:, ::2], wide[:, 0], torch.ones(5), wide.t(), torch.ones(2, dtype=torch.complex64)]
    for got, want in zip(out, expected, strict=True):
        assert torch.equal(got.cpu(), want)


def test_frozen_dataclasses_are_made_again(machine: Machine) -> None:
    out = staged(Record(images(), "a"))
    assert isinstance(out, Record)
    assert out.name == "a"
    assert torch.equal(out.images.cpu(), images())


def test_a_default_dict_keeps_its_factory(machine: Machine) -> None:
    out = staged(collections.defaultdict(list, x=torch.ones(2)))
    assert out["nothing here"] == []
    assert torch.equal(out["x"].cpu(), torch.ones(2))


def test_objects_that_move_themselves_are_asked_to(machine: Machine) -> None:
    out = staged([Graph(torch.arange(3)), torch.ones(1)])
    assert out[0].nodes.device == torch.device("sim:0")
    assert torch.equal(out[0].nodes.cpu(), torch.arange(3))


def test_packed_sequences_and_sparse_tensors_are_asked_to_move(machine: Machine) -> None:
    packed = pack_sequence([torch.arange(3), torch.arange(2)])
    out = staged(packed)
    assert isinstance(out, PackedSequence)
    assert out.data.device == torch.device("sim:0")
    assert torch.equal(out.data.cpu(), packed.data)


def test_what_can_not_lie_at_a_fixed_address_is_refused_for_static(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", static=True))
    with pytest.raises(ConfigError, match="a Graph can't be kept at a fixed address"):
        stager.put([Graph(torch.arange(3))])
    stager.put(torch.ones(2))  # and the stager goes on
    assert torch.equal(stager.get().cpu(), torch.ones(2))


def test_numpy_arrays_stay_on_the_host_as_torch_leaves_them(machine: Machine) -> None:
    out = staged({"mask": np.ones(3), "x": torch.ones(1)})
    assert isinstance(out["mask"], np.ndarray)


def test_a_batch_in_slots_is_copied_from_where_it_lies(machine: Machine) -> None:
    slots = Slots()
    batch = {"image": slots.holding(images()), "label": slots.holding(torch.arange(4))}
    stager = Stager(Staging("sim:0"))
    stager.put(batch)
    assert len(machine.pinned) == 2  # the two slots: no copy on the host was needed
    assert machine.host_waits == 0.0
    assert_same(stager.get(), {"image": images(), "label": torch.arange(4)}, torch.Tensor.cpu, strides=True)


def test_a_system_that_does_not_page_lock_is_served_slower(machine: Machine) -> None:
    machine.refuses_to_pin = True
    slots = Slots()
    big = torch.arange(1 << 15, dtype=torch.int16)
    assert torch.equal(staged(slots.holding(big)).cpu(), big)


def test_bytes_cross_the_bus_and_floats_appear_behind_it(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", cast={torch.uint8: torch.float16}, memory_format=torch.channels_last))
    stager.put((images(), torch.arange(4)))
    copied = sum(end - begin for engine, _, begin, end in machine.log if engine == "h2d")
    pixels, labels = stager.get()
    assert pixels.dtype == torch.float16
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert labels.dtype == torch.int64
    assert torch.equal(pixels.cpu(), images().half())
    machine.synchronize(0)
    copied = sum(end - begin for engine, _, begin, end in machine.log if engine == "h2d")
    assert copied == pytest.approx(2 * machine.latency + (images().numel() + 32) / machine.h2d)


@pytest.mark.parametrize("static", [False, True])
def test_a_transform_gets_the_batch_on_the_device_and_its_result_is_delivered(machine: Machine, static: bool) -> None:
    def mixed(batch: Any) -> Any:
        assert batch["image"].device.type == "sim"
        return {"mean": batch["image"].float().mean((1, 2, 3)), "image": batch["image"], "name": batch["name"]}

    stager = Stager(Staging("sim:0", static=static, transform=mixed))
    for _ in range(3):
        stager.put({"image": images(), "name": ["x"]})
        out = stager.get()
        assert out["name"] == ["x"]
        assert torch.equal(out["mean"].cpu(), images().float().mean((1, 2, 3)))
        assert torch.equal(out["image"].cpu(), images())
        stager.release()


def test_static_batches_of_a_kind_return_to_the_same_addresses(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", static=True, buffers=3))
    seen: dict[int, list[tuple[int, ...]]] = {2: [], 5: []}
    for step in range(24):
        n = 5 if step % 4 == 3 else 2
        stager.put({"x": torch.full((n, 7), step), "y": torch.full((n,), step)})
        out = stager.get()
        assert out["x"].unique().item() == step
        seen[n].append((out["x"].address(), out["y"].address()))
        stager.release()
    for at in seen.values():
        assert at[3:] == at[:-3]
        assert len(set(at)) == 3


def test_ordinary_batches_may_be_kept(machine: Machine) -> None:
    stager = Stager(Staging("sim:0"))
    kept = []
    for step in range(8):
        stager.put(torch.full((1000,), step))
        kept.append(stager.get())
        stager.release()
    assert [batch.unique().item() for batch in kept] == list(range(8))
    assert len({batch.address() for batch in kept}) == 8


def test_growing_batches_are_moved_whole(machine: Machine) -> None:
    stager = Stager(Staging("sim:0"))
    for n in (1, 100, 3, 1000, 0, 5000):
        stager.put(torch.arange(n))
        assert torch.equal(stager.get().cpu(), torch.arange(n))


def test_device_memory_of_ordinary_batches_does_not_grow_with_their_number(machine: Machine) -> None:
    stager = Stager(Staging("sim:0"))
    peaks = []
    for step in range(30):
        stager.put(torch.full((10_000 + step % 3,), step))
        stager.get()
        stager.release()
        gc.collect()
        peaks.append(machine.allocators[0].reserved)
    assert peaks[-1] == peaks[10]


def test_many_kinds_of_static_batches_are_warned_of(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", static=True))

    def train(sizes: range) -> None:
        for n in sizes:
            stager.put(torch.ones(n + 1))
            stager.get()
            stager.release()

    train(range(32))
    with pytest.warns(UserWarning, match="33 kinds of batches"):
        train(range(32, 33))


def test_a_slot_is_free_as_soon_as_its_copy_is_done_and_not_before(machine: Machine) -> None:
    slots = Slots(size=1 << 12, count=8)
    stager = Stager(Staging("sim:0"))
    for _ in range(4):
        stager.put(slots.holding(torch.ones(500)))
        stager.get()
    gc.collect()
    assert slots.arena.slots_made == 4  # all copies still run
    machine.synchronize(0)
    stager.put(torch.ones(1))
    gc.collect()
    for _ in range(4):
        slots.holding(torch.ones(500))
    assert slots.arena.slots_made == 4


def test_a_host_far_ahead_of_the_device_waits_instead_of_holding_ever_more_slots(machine: Machine) -> None:
    slots = Slots(size=1 << 12, count=8)
    stager = Stager(Staging("sim:0", buffers=2))
    for _ in range(50):
        stager.put(slots.holding(torch.ones(500)))
        stager.get()
    assert slots.arena.slots_made <= 8


def test_slots_outlive_the_copies_of_a_stager_that_is_dropped(machine: Machine) -> None:
    slots = Slots()
    stager = Stager(Staging("sim:0"))
    stager.put(slots.holding(torch.ones(500)))
    del stager
    slots.holding(torch.zeros(500))  # the same slot: nothing may read it any more
    del slots
    gc.collect()
    assert machine.pinned == {}


def test_a_drain_while_a_graph_is_captured_waits_for_nothing(machine: Machine) -> None:
    slots = Slots()
    stager = Stager(Staging("sim:0"))
    stager.put(slots.holding(torch.ones(500)))
    with machine.capturing():
        stager.drain()
        slots.holding(torch.zeros(500))
    assert len(stager) == 0
    stager.put(slots.holding(torch.full((500,), 2.0)))
    assert stager.get().unique().item() == 2.0


def test_drain_ends_all_reads_of_host_memory(machine: Machine) -> None:
    slots = Slots()
    stager = Stager(Staging("sim:0", buffers=4))
    for step in range(3):
        stager.put(slots.holding(torch.full((500,), step)))
    stager.drain()
    assert len(stager) == 0
    del slots
    gc.collect()
    assert machine.pinned == {}


def test_a_capture_in_progress_refuses_batches_and_is_left_as_it_was(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", static=True))
    stager.put(torch.ones(3))
    with machine.capturing():
        with pytest.raises(ConfigError, match="being captured into a graph"):
            stager.get()
        with pytest.raises(ConfigError, match="Take the batch before the capture"):
            stager.put(torch.ones(3))
    assert torch.equal(stager.get().cpu(), torch.ones(3))


def test_an_error_in_a_transform_comes_out_and_leaves_the_stager_usable(machine: Machine) -> None:
    fail = [True]

    def transform(batch: Any) -> Any:
        if fail[0]:
            raise ValueError("not this one")
        return batch

    for static in (True, False):
        fail[0] = True
        stager = Stager(Staging("sim:0", static=static, transform=transform))
        with pytest.raises(ValueError, match="not this one"):
            _through(stager, torch.ones(3))
        fail[0] = False
        stager.drain()
        stager.put(torch.full((3,), 7))
        assert stager.get().cpu().tolist() == [7, 7, 7]


def test_transforms_of_changing_size_are_refused_for_static(machine: Machine) -> None:
    sizes = iter([2, 2, 9])
    stager = Stager(Staging("sim:0", static=True, transform=lambda batch: batch.new_ones(next(sizes) * 100)))
    _through(stager, torch.ones(3))
    _through(stager, torch.ones(3))
    with pytest.raises(ConfigError, match="Let it give tensors of one size"):
        _through(stager, torch.ones(3))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"device": "sim:7"}, "there are 2 such devices here"),
        ({"device": "nowhere"}, "is no device"),
        ({"device": "meta"}, "holds no data"),
        ({"device": "sim", "buffers": 0}, "at least 1"),
        ({"device": "sim", "buffers": 1, "static": True}, "at least 2"),
        ({"device": "sim", "cast": {"uint8": torch.float32}}, "cast maps torch dtypes"),
    ],
)
def test_what_can_not_be_is_refused_with_a_reason(machine: Machine, asked: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Staging(**asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_this_machine_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="finds no such device on this machine"):
        Staging("cuda")

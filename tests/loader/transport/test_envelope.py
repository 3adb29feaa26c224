"""What goes into a message comes out of it the same, wherever it travelled."""

from __future__ import annotations

import dataclasses
import gc
import pickle
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zerocopy_data import _native
from zerocopy_data.loader.transport import envelope
from zerocopy_data.memory.slots import MAX_OPEN, SlotPool

LARGE = envelope.SLOT_BYTES  # elements of one byte that need a slot

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Thing:
    name: str
    values: torch.Tensor


class Wire:
    """Both ends in one process: leases count as the consumer's would."""

    def __init__(self) -> None:
        self.released: list[tuple[int, bool]] = []
        self.pool = SlotPool(self._receive, lambda slots: [slot.close() for slot in slots] and None)

    def _receive(self) -> list[tuple[int, bool]]:
        found, self.released = self.released, []
        return found

    def send(self, value: Any) -> Any:
        packed = envelope.pack(value, self.pool)
        slots = {slot.number: slot for slot in packed.slots}
        for slot in packed.slots:
            slot.remote += 1

        def lend(number: int) -> _native.Lease:
            return _native.Lease(slots[number].mapping, lambda: self.released.append((number, False)))

        body = b"".join(packed.parts)
        del packed, value
        return envelope.unpack(memoryview(body), lend)


@pytest.fixture
def wire() -> Iterator[Wire]:
    return Wire()


SIZES = [1, 7, 1000, LARGE - 1, LARGE, 3 * LARGE + 5]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.bool,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ],
    ids=str,
)
def test_tensors_of_every_dtype(wire: Wire, size: int, dtype: torch.dtype) -> None:
    sent = torch.randint(0, 2, (size,)).to(dtype)
    got = wire.send(sent)
    assert got.dtype is dtype
    assert torch.equal(got, sent)
    assert got.untyped_storage().nbytes() == sent.untyped_storage().nbytes()


@pytest.mark.parametrize("size", SIZES)
def test_arrays_are_writable(wire: Wire, size: int) -> None:
    sent = np.arange(size, dtype=np.int32)
    got = wire.send({"x": sent})["x"]
    assert np.array_equal(got, sent)
    assert got.flags.writeable


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f8,<i2", "datetime64[s]"])
def test_arrays_that_cannot_be_written_arrive_as_by_an_ordinary_pickle(wire: Wire, size: int, dtype: str) -> None:
    for sent in (
        np.arange(2 * size).astype(dtype).reshape(2, size),
        np.arange(2 * size).astype(dtype).reshape(size, 2).T,
    ):
        sent.flags.writeable = False
        got, ordinary = wire.send(sent), pickle.loads(pickle.dumps(sent, 4))
        assert np.array_equal(got, ordinary)
        assert (got.dtype, got.shape, got.strides) == (ordinary.dtype, ordinary.shape, ordinary.strides)
        assert got.flags.writeable
        assert not sent.flags.writeable
        got[...] = got[:1]
        assert np.array_equal(sent, ordinary), "the sender's memory is not the receiver's"


def test_float8_comes_through(wire: Wire) -> None:
    sent = torch.arange(LARGE, dtype=torch.float32).to(torch.float8_e4m3fn)
    assert torch.equal(wire.send(sent).view(torch.uint8), sent.view(torch.uint8))


@pytest.mark.parametrize("size", [4, 1000])
def test_views_of_one_storage_still_share_it(wire: Wire, size: int) -> None:
    base = torch.arange(size * size).reshape(size, size)
    a, b, c = wire.send([base, base[1:], base.t()])
    a[1, 0] = -7
    assert b[0, 0] == -7
    assert c[0, 1] == -7
    assert c.stride() == base.t().stride()


@pytest.mark.parametrize("size", [4, 1000])
def test_the_same_tensor_twice_is_the_same_object(wire: Wire, size: int) -> None:
    tensor = torch.rand(size, size)
    a, b = wire.send((tensor, tensor))
    assert a is b


def test_a_slice_of_a_large_storage_brings_only_itself(wire: Wire) -> None:
    base = torch.arange(1 << 20)
    got = wire.send(base[1000:1010])
    assert torch.equal(got, base[1000:1010])
    assert got.untyped_storage().nbytes() < 1000


def test_strides_steps_and_broadcasts_stay(wire: Wire) -> None:
    base = torch.arange(600_000)
    for sent in (
        base[::3],
        base.reshape(600, 1000)[:, 5:7],
        base[:1].expand(5),
        base[7],
        base[10:10],
        torch.empty(0, 3),
    ):
        got = wire.send(sent)
        assert torch.equal(got, sent)
        assert got.stride() == sent.stride()


def test_conjugate_and_negative_views_arrive_right(wire: Wire) -> None:
    sent = torch.complex(torch.rand(9000), torch.rand(9000))
    assert torch.equal(wire.send(sent.conj()), sent.conj().resolve_conj())
    assert torch.equal(wire.send(sent.conj().imag), sent.conj().imag.resolve_neg())


def test_what_torch_knows_better_goes_torchs_way(wire: Wire) -> None:
    sparse = torch.eye(300).to_sparse()
    assert torch.equal(wire.send(sparse).to_dense(), sparse.to_dense())
    csr = torch.eye(300).to_sparse_csr()
    assert torch.equal(wire.send(csr).to_dense(), csr.to_dense())
    meta = wire.send(torch.empty(3, 4, device="meta"))
    assert meta.device.type == "meta"
    assert meta.shape == (3, 4)
    leaf = torch.rand(LARGE, requires_grad=True)
    got = wire.send(leaf)
    assert got.requires_grad
    assert got.is_leaf
    assert torch.equal(got, leaf)
    parameter = torch.nn.Parameter(torch.rand(LARGE))
    assert isinstance(wire.send(parameter), torch.nn.Parameter)
    shared = torch.rand(LARGE).share_memory_()
    got = wire.send(shared)
    got[0] = 5
    assert shared[0] == 5, "a tensor that is shared already stays the same memory"


def test_a_tensor_with_a_history_is_refused(wire: Wire) -> None:
    with pytest.raises(RuntimeError, match="non-leaf"):
        wire.send((torch.rand(3, requires_grad=True) * 2,))


def test_python_objects_of_all_kinds(wire: Wire) -> None:
    sent = [
        Pair("a", None),
        {"k": (1, 2.5, b"bytes", "text" * 50_000)},
        np.array(["x", None, 3], dtype=object),
        np.array([("a", 1)], dtype="U1,i4"),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.float32(3),
        10**50,
        bytearray(b"z" * 100_000),
        range(5),
        {1, 2},
    ]
    got = wire.send(sent)
    for a, b in zip(got, sent, strict=True):
        assert type(a) is type(b)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
    thing = wire.send(Thing("n", torch.arange(5)))
    assert thing.name == "n"
    assert torch.equal(thing.values, torch.arange(5))


def test_a_held_tensor_is_never_rewritten(wire: Wire) -> None:
    kept = [wire.send(torch.full((LARGE,), i, dtype=torch.uint8)) for i in range(20)]
    for i, tensor in enumerate(kept):
        assert (tensor == i).all()
    assert len(wire.pool) == 20
    del kept, tensor
    gc.collect()
    for i in range(50):
        assert (wire.send(torch.full((LARGE,), i, dtype=torch.uint8)) == i).all()
        wire.pool.tick()
    assert len(wire.pool) <= 2, "slots that nobody needs go back to the system"


def test_any_view_holds_the_slot(wire: Wire) -> None:
    sent = torch.arange(LARGE, dtype=torch.float32)
    kept = [
        wire.send(sent).numpy()[5:10],
        wire.send(sent).view(2, -1)[1][3:],
        wire.send({"a": sent.numpy()})["a"][1:].T,
    ]
    gc.collect()
    for _ in range(10):
        wire.send(torch.zeros(LARGE))
    assert kept[0].tolist() == [5, 6, 7, 8, 9]
    assert kept[1][0] == LARGE // 2 + 3
    assert kept[2][0] == 1


def test_small_leaves_pin_no_slot(wire: Wire) -> None:
    kept = []
    for i in range(10):
        images, labels, mask = wire.send((torch.zeros(LARGE), torch.full((4,), i), np.full(4, i)))
        del images
        kept.append((labels, mask))
    assert len(wire.pool) <= 2
    assert [int(labels[0]) for labels, _ in kept] == list(range(10))
    assert [int(mask[0]) for _, mask in kept] == list(range(10))


def test_a_small_part_of_a_slot_is_copied_out_of_it(wire: Wire) -> None:
    slot, lease = wire.pool.lease(LARGE)
    whole = torch.frombuffer(lease, dtype=torch.uint8, count=LARGE)
    del lease
    whole.fill_(3)
    got = wire.send(whole[:10])
    assert not slot.remote
    assert (got == 3).all()


def test_a_tensor_that_the_sender_keeps_is_not_reused(wire: Wire) -> None:
    slot, lease = wire.pool.lease(LARGE)
    kept = torch.frombuffer(lease, dtype=torch.uint8, count=LARGE)
    del lease
    kept.fill_(9)
    wire.send(kept)
    wire.pool.tick()
    other, _ = wire.pool.lease(LARGE)
    assert other is not slot
    assert (kept == 9).all()
    assert (wire.send(kept) == 9).all(), "and may be sent again"


def test_the_end_of_an_object_in_a_garbage_cycle_still_sees_its_data(wire: Wire) -> None:
    seen: list[int] = []

    class Watcher:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor
            self.me = self

        def __del__(self) -> None:
            wire.pool.tick()
            _, lease = wire.pool.lease(LARGE)
            memoryview(lease)[:] = b"\1" * memoryview(lease).nbytes
            seen.append(int(self.tensor.sum()))

    Watcher(wire.send(torch.zeros(LARGE, dtype=torch.uint8)))
    gc.collect()
    assert seen == [0]


def test_descriptors_do_not_add_up(wire: Wire) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [wire.send([torch.zeros(LARGE * (1 + i % 9)), np.zeros(LARGE)]) for i in range(100)]
    assert len(wire.pool) == 200
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + MAX_OPEN
    del kept

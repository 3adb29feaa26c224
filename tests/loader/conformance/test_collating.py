"""What collate functions return, and what default collation makes, arrives in the parent as it was."""

from __future__ import annotations

import collections
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from conformance_data import (
    Box,
    Floats,
    Made,
    Pinnable,
    Point,
    Range,
    Tagged,
    as_box,
    as_empty,
    as_frozen_box,
    as_is,
    as_nested,
    as_none,
    as_numpy,
    as_ordered,
    as_pinnable,
    as_point,
    as_scalar,
    as_tagged,
)
from conformance_differences import expected
from conformance_same import assert_same
from torch.utils.data import default_collate, default_convert

COLLATES = [as_is, as_point, as_box, as_frozen_box, as_nested, as_numpy, as_none, as_ordered, as_scalar, as_empty]


@pytest.mark.parametrize("collate", [*COLLATES, as_tagged], ids=lambda function: function.__name__)
def test_a_custom_collate_function(loader_class: Any, collate: Any) -> None:
    batches = list(loader_class(Range(5), batch_size=2, collate_fn=collate, num_workers=1))
    for got, want in zip(batches, ([0, 1], [2, 3], [4]), strict=True):
        assert_same(got, collate(want))


def test_a_batch_of_a_users_own_class(loader_class: Any) -> None:
    [batch] = loader_class(Range(2), batch_size=2, collate_fn=as_pinnable, num_workers=1)
    assert type(batch) is Pinnable
    assert batch.inner.tolist() == [0, 1]
    assert not batch.pinned


SAMPLES: dict[str, Any] = {
    "int": lambda i: i,
    "float": lambda i: i + 0.5,
    "bool": lambda i: i % 2 == 0,
    "text": lambda i: f"sample {i}",
    "bytes": lambda i: b"%d" % i,
    "tensor": lambda i: torch.full((2, 3), i),
    "scalar tensor": lambda i: torch.tensor(i, dtype=torch.bfloat16),
    "empty tensor": lambda i: torch.zeros(0, 3),
    "strided tensor": lambda i: torch.arange(12).view(3, 4).t()[::2] + i,
    "expanded tensor": lambda i: torch.tensor([float(i)]).expand(5),
    "bool tensor": lambda i: torch.tensor([True, False]),
    "complex tensor": lambda i: torch.tensor([1 + 2j, i], dtype=torch.complex64),
    "float8 tensor": lambda i: torch.tensor([1.0, i]).to(torch.float8_e4m3fn),
    "channels last": lambda i: torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)[0] + i,
    "array": lambda i: np.full((2, 3), i, dtype=np.float32),
    "scalar array": lambda i: np.array(i),
    "fortran array": lambda i: np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3) + i),
    "numpy number": lambda i: np.float64(i),
    "tuple": lambda i: (i, torch.tensor([i])),
    "list": lambda i: [i, f"{i}"],
    "dict": lambda i: {"x": torch.tensor([i]), "y": {"z": i}},
    "ordered": lambda i: collections.OrderedDict(b=i, a=torch.tensor(i)),
    "defaultdict": lambda i: collections.defaultdict(list, b=i),
    "namedtuple": lambda i: Point(i, torch.tensor([i, i])),
    "empty dict": lambda i: {},
    "nested": lambda i: [{"p": Point((i, b"x"), [torch.ones(2) * i])}],
}


def sample_of_kind(key: tuple[str, int]) -> Any:
    return SAMPLES[key[0]](key[1])


@pytest.fixture(scope="module")
def collated() -> Callable[[Any], dict[str, Any]]:
    """Batches of every kind, of two samples and of one, through one loader of the class: starting workers is slow."""

    @cache
    def load(loader_class: Any) -> dict[str, Any]:
        batches = [keys for kind in SAMPLES for keys in ([(kind, 0), (kind, 1)], [(kind, 2)])]
        got = list(loader_class(Made(sample_of_kind), batch_sampler=batches, num_workers=1))
        return dict(zip(SAMPLES, zip(got[::2], got[1::2], strict=True), strict=True))

    return load


@pytest.fixture(scope="module")
def converted() -> Callable[[Any], dict[str, Any]]:
    @cache
    def load(loader_class: Any) -> dict[str, Any]:
        keys = [(kind, 1) for kind in SAMPLES]
        loader = loader_class(Made(sample_of_kind), sampler=keys, batch_size=None, num_workers=1)
        return dict(zip(SAMPLES, loader, strict=True))

    return load


@pytest.mark.parametrize("kind", SAMPLES)
def test_default_collation(loader_class: Any, collated: Any, kind: str) -> None:
    sample = SAMPLES[kind]
    want = (default_collate([sample(0), sample(1)]), default_collate([sample(2)]))
    assert_same(collated(loader_class)[kind], want)


@pytest.mark.parametrize("kind", SAMPLES)
def test_default_conversion(loader_class: Any, converted: Any, kind: str) -> None:
    assert_same(converted(loader_class)[kind], default_convert(SAMPLES[kind](1)))


UNSTACKABLE: dict[str, tuple[type[Exception], str, Any]] = {
    "shapes": (RuntimeError, "stack expects each tensor to be equal size", lambda i: torch.zeros(i + 1)),
    "array shapes": (RuntimeError, "stack expects each tensor to be equal size", lambda i: np.zeros(i + 1)),
    "lengths": (RuntimeError, "each element in list of batch should be of equal size", lambda i: [0] * (i + 1)),
    "none": (TypeError, "default_collate: batch must contain tensors, numpy arrays, numbers", lambda i: None),
    "object array": (TypeError, "default_collate: batch must contain", lambda i: np.array([None])),
    "text array": (TypeError, "default_collate: batch must contain", lambda i: np.array(["a"])),
    "keys": (KeyError, "'1'", lambda i: {str(i + 1): i}),
    "sparse": (RuntimeError, "sparse", lambda i: torch.eye(2).to_sparse()),
}


@pytest.mark.parametrize("kind", UNSTACKABLE)
def test_what_default_collation_refuses(loader_class: Any, kind: str) -> None:
    error, words, sample = UNSTACKABLE[kind]
    with pytest.raises(error, match=words):
        list(loader_class(Made(sample, 2), batch_size=2, num_workers=1))


def test_default_collation_of_samples_that_require_grad(loader_class: Any) -> None:
    dataset = Made(lambda i: torch.ones(2, requires_grad=True), 2)
    assert next(iter(loader_class(dataset, batch_size=2))).grad_fn is not None
    with pytest.raises(RuntimeError, match="stack"):
        list(loader_class(dataset, batch_size=2, num_workers=1))


def test_a_type_registered_with_default_collation(loader_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The map is documented as the user's to extend.
    def boxes(batch: list[Box], *, collate_fn_map: Any = None) -> Any:
        return torch.stack([box.corner for box in batch])

    monkeypatch.setitem(torch.utils.data._utils.collate.default_collate_fn_map, Box, boxes)
    [got] = loader_class(Made(lambda i: Box(torch.tensor([i])), 3), batch_size=3, num_workers=1)
    assert got.tolist() == [[0], [1], [2]]


def test_an_entry_of_torchs_map_that_a_user_replaced(loader_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def negate(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        return -torch.stack(batch)

    monkeypatch.setitem(torch.utils.data._utils.collate.default_collate_fn_map, torch.Tensor, negate)
    [got] = loader_class(Floats(2, 1), batch_size=2, num_workers=1)
    assert got.tolist() == [[-0.0], [-1.0]]


def test_default_collation_inside_a_users_function(loader_class: Any) -> None:
    def with_count(batch: list[Any]) -> Any:
        return {"count": len(batch), "batch": default_collate(batch), "twice": default_collate(batch)}

    [got] = loader_class(Floats(3), batch_size=3, num_workers=1, collate_fn=with_count)
    assert got["count"] == 3
    assert torch.equal(got["batch"], got["twice"])
    got["batch"].zero_()
    assert got["twice"].sum() == 12


@pytest.fixture
def floats(loader_class: Any) -> torch.Tensor:
    """A default-collated batch from a worker, [8, 4]."""
    [batch] = loader_class(Floats(8), batch_size=8, num_workers=1)
    return batch


def test_a_batch_is_writable_in_place(floats: torch.Tensor) -> None:
    floats += 1
    floats.numpy()[0] = 9
    assert floats[:, 0].tolist() == [9, 2, 3, 4, 5, 6, 7, 8]


def test_a_batch_has_a_storage_of_its_own_size(floats: torch.Tensor) -> None:
    assert floats.untyped_storage().nbytes() == 8 * 4 * 4
    assert floats.storage_offset() == 0
    assert floats.is_contiguous()


def test_a_batch_is_aligned_for_vector_code(floats: torch.Tensor) -> None:
    assert floats.data_ptr() % 64 == 0


def test_a_batch_knows_that_it_is_shared(loader_class: Any, floats: torch.Tensor) -> None:
    assert floats.is_shared() in expected(loader_class, "is_shared")


def test_a_batch_is_a_leaf_on_the_cpu(floats: torch.Tensor) -> None:
    assert floats.is_leaf
    assert not floats.requires_grad
    assert not floats.is_pinned()
    assert floats.device.type == "cpu"
    assert floats.requires_grad_().exp().sum().backward() is None
    assert floats.grad is not None


def test_a_batch_can_be_saved_shared_and_sent_on(floats: torch.Tensor, tmp_path: Any) -> None:
    torch.save(floats, tmp_path / "batch.pt")
    assert torch.equal(torch.load(tmp_path / "batch.pt"), floats)
    assert (tmp_path / "batch.pt").stat().st_size < 5000
    assert floats.share_memory_().is_shared()
    assert floats.clone().sum() == 112


def test_pinning_without_an_accelerator_warns_and_pins_nothing(loader_class: Any) -> None:
    if torch.accelerator.is_available():
        pytest.skip("an accelerator is here: its memory gets pinned")
    loader = loader_class(Range(2), batch_size=2, pin_memory=True, num_workers=1, collate_fn=as_pinnable)
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
        iterator = iter(loader)
    batch = next(iterator)
    assert not batch.pinned
    assert not batch.inner.is_pinned()


def test_the_device_to_pin_for_is_deprecated(loader_class: Any) -> None:
    with pytest.warns(UserWarning, match="pin_memory") as caught:
        iter(loader_class(Range(2), pin_memory=True, pin_memory_device="cuda"))
    assert any("pin_memory_device is deprecated" in str(warning.message) for warning in caught)


def test_a_subclass_keeps_its_type_only_through_custom_collation(loader_class: Any) -> None:
    tagged = Made(lambda i: torch.ones(2).as_subclass(Tagged), 2)
    [got] = loader_class(tagged, batch_size=2, num_workers=1, collate_fn=as_is)
    assert [type(sample) for sample in got] == [Tagged, Tagged]

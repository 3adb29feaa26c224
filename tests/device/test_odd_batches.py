"""Batches of things that no plain tensor is: none is torn, changed or lost on its way."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated_device import Machine

from zerocopy_data.device.request import PassThrough, Staging
from zerocopy_data.device.staging import Stager
from zerocopy_data.errors import ConfigError


class Summed(collections.namedtuple("Summed", ["part", "whole"])):
    """Its constructor takes other arguments than its fields."""

    __slots__ = ()

    def __new__(cls, part: Any) -> Summed:
        return super().__new__(cls, part, "whole")


class Distance:
    """Its `to` is about units."""

    def to(self, unit: str) -> Distance:
        raise ValueError(f"{unit!r} is no unit")


def _staged(batch: Any, **asked: Any) -> Any:
    stager = Stager(Staging("sim:0", **asked))
    stager.put(batch)
    return stager.get()


def _passed(batch: Any) -> Any:
    return next(PassThrough(iter([batch]), lambda: Staging("cpu", cast={torch.float32: torch.float16})))


WAYS: dict[str, Callable[[Any], Any]] = {
    "cpu": _passed,
    "device": _staged,
    "static": lambda batch: _staged(batch, static=True),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, machine: Machine) -> Callable[[Any], Any]:
    return WAYS[request.param]


def test_a_counter_counts_what_it_did(way: Callable[[Any], Any]) -> None:
    out = way({"words": collections.Counter(a=3), "x": torch.ones(2)})
    assert out["words"] == collections.Counter(a=3)
    mixed = way(collections.Counter({"n": 3, "x": torch.ones(2)}))
    assert mixed["n"] == 3
    assert mixed["x"].cpu().eq(1).all()


def test_containers_without_a_tensor_stay_what_they_are(way: Callable[[Any], Any]) -> None:
    kept = [range(1000), memoryview(b"abc"), torch.Size([700, 800]), [1, [2]], {"a": (None, "b")}, torch.Tensor]
    out = way([torch.ones(2), *kept])
    assert all(got is given for got, given in zip(out[1:], kept, strict=True))


def test_a_named_tuple_with_a_constructor_of_its_own_is_made_again(way: Callable[[Any], Any]) -> None:
    out = way(Summed(torch.ones(2)))
    assert type(out) is Summed
    assert out.whole == "whole"
    assert out.part.cpu().eq(1).all()


def test_what_fails_to_move_itself_is_named(machine: Machine) -> None:
    with pytest.raises(ValueError, match="no unit") as caught:
        _staged([Distance()])
    assert "a Distance in a batch" in caught.value.__notes__[0]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch deprecates some of them
@pytest.mark.parametrize("kind", ["quantized", "nested", "meta"])
def test_tensors_of_other_kinds_are_refused_for_static_by_what_they_are(machine: Machine, kind: str) -> None:
    made = {
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "meta": lambda: torch.empty(3, device="meta"),
    }[kind]()
    with pytest.raises(ConfigError, match="fixed address"):
        _staged(made, static=True)


def test_a_transform_may_give_nothing_but_tensors_for_static(machine: Machine) -> None:
    stager = Stager(Staging("sim:0", static=True, transform=lambda batch: [batch, Distance()]))
    with pytest.raises(ConfigError, match="a Distance can't be kept at a fixed address"):
        stager.put(torch.arange(3))
    stager.staging = Staging("sim:0", static=True)
    stager.put(torch.arange(3))
    assert stager.get().cpu().tolist() == [0, 1, 2]

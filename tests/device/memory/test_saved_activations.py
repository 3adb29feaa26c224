"""Activations that autograd saved, moved out and brought back: gradients are the same to the last bit."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from simulated_device import Machine
from swap_schedules import FakeDevice, FakeHost
from torch import nn

from zerocopy_data.device.memory import SavedActivations
from zerocopy_data.device.memory.moves import Place
from zerocopy_data.device.memory.parcel import Mover, Parcel
from zerocopy_data.errors import ConfigError, ZcdError

LARGE = 4 << 10


def _saved(free: int | None = None, **options: Any) -> SavedActivations:
    source = None if free is None else FakeDevice(free)
    given = {"low": 100_000, "high": 200_000, "min_bytes": LARGE, "source": source, "host": FakeHost(), **options}
    return SavedActivations("sim", **given)


def _model(device: str) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(64, 1)).to(device)


def _train(saved: SavedActivations | None, steps: int = 2) -> list[torch.Tensor]:
    model = _model("cpu")
    parameters = [p.detach().to("sim").requires_grad_() for p in model.parameters()]
    generator = torch.Generator().manual_seed(1)
    gradients = []
    for _ in range(steps):
        x = torch.randn(128, 32, generator=generator).to("sim")
        loss: Any
        if saved is None:
            loss = _loss(x, parameters)
        else:
            with saved:
                loss = _loss(x, parameters)
        made = torch.autograd.grad(loss, parameters)
        del loss
        gradients += made
        with torch.no_grad():
            for parameter, gradient in zip(parameters, made, strict=True):
                parameter -= 0.1 * gradient
    torch.get_device_module("sim").synchronize()
    return [gradient.inner.clone() for gradient in gradients]  # type: ignore[attr-defined]


def _loss(x: torch.Tensor, p: list[torch.Tensor]) -> torch.Tensor:
    x = (x @ p[0].t() + p[1]).relu()
    x = (x @ p[2].t() + p[3]).tanh()
    x = (x @ p[4].t() + p[5]).sigmoid()
    return (x @ p[6].t() + p[7]).pow(2).mean()


def _bit_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_training_with_swapped_activations_gives_the_same_gradients(machine: Machine) -> None:
    expected = _train(None)
    saved = _saved(free=0)
    assert _bit_equal(_train(saved), expected)
    state = saved.state()
    assert state.out >= 4
    assert state.home == state.out
    assert (state.alive, state.resident) == (0, 0)
    saved.close()
    gc.collect()
    assert machine.pinned == {}


def test_with_memory_to_spare_nothing_moves(machine: Machine) -> None:
    saved = _saved(free=1 << 30)
    _train(saved)
    assert (saved.state().out, saved.state().home) == (0, 0)


def test_what_was_saved_first_goes_first_until_the_middle_is_free(machine: Machine) -> None:
    source = FakeDevice(1 << 30)
    saved = _saved(source=source, low=10_000, high=20_000)
    x = torch.ones(2048, device="sim", requires_grad=True)
    with saved:
        y = (x * 2).exp()
        z = y.exp()
        w = z.exp()
        del y, z
        source.free = 9_000  # 6 KB short of the middle: one activation of 8 KiB
        loss = w.exp().sum()
    assert saved.state().out == 1
    del w
    loss.backward()


def test_they_come_back_ahead_of_their_use(machine: Machine) -> None:
    source = FakeDevice(0)
    saved = _saved(source=source, ahead=3)
    x = torch.full((2048,), 0.5, device="sim", requires_grad=True)
    y = x
    with saved:
        for _ in range(8):
            y = y.sin()
        loss = y.sum()
    del y
    source.free = 1 << 30
    loss.backward()
    assert saved.state().out >= 6
    assert saved.state().late <= 1


def test_views_and_strides_are_kept_and_one_storage_moves_once(machine: Machine) -> None:
    expected = []
    for saved in (None, _saved(free=0)):
        x = torch.arange(4096.0).reshape(64, 64).to("sim").requires_grad_()

        def forward(x: torch.Tensor = x) -> Any:
            y = x * 0.01
            return (y.t() * y[:, 1:].exp().sum() * y.t()).sum()

        if saved is None:
            loss = forward()
        else:
            with saved:
                loss = forward()
        loss.backward()
        torch.get_device_module("sim").synchronize()
        expected.append(x.grad.inner.clone())  # type: ignore[union-attr]
    assert torch.equal(*expected)
    assert saved is not None
    assert 1 <= saved.state().out <= 4


def test_going_backward_twice_is_possible(machine: Machine) -> None:
    x = torch.full((2048,), 0.5, device="sim", requires_grad=True)
    with _saved(free=0) as saved:
        loss = x.sin().sin().sin().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.get_device_module("sim").synchronize()
    once = torch.full((2048,), 0.5, requires_grad=True)
    once.sin().sin().sin().sum().backward()
    assert torch.allclose(x.grad.inner, 2 * once.grad)  # type: ignore[union-attr,operator]
    assert saved.state().out > 0


def test_modifying_a_saved_activation_in_place_is_an_error_as_without(machine: Machine) -> None:
    saved = _saved(free=0)
    y = torch.ones(2048, device="sim")
    packed = saved._pack(y)  # what autograd calls: errors in its thread end the process on a device written in Python
    assert saved._unpack(packed).shape == y.shape
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified in place"):
        saved._unpack(packed)


def test_a_full_host_leaves_activations_where_they_are(machine: Machine) -> None:
    expected = _train(None, steps=1)
    saved = _saved(free=0, host=FakeHost(free=0))
    assert _bit_equal(_train(saved, steps=1), expected)
    assert saved.state().out == 0
    assert "host_margin" in (saved.state().refused or "")


def test_an_exception_in_the_forward_pass_leaves_it_usable(machine: Machine) -> None:
    saved = _saved(free=0)
    x = torch.ones(2048, device="sim", requires_grad=True)

    def fail() -> None:
        with saved:
            x.exp().exp()
            raise ValueError("the model's own")

    with pytest.raises(ValueError, match="the model's own"):
        fail()
    gc.collect()
    assert saved.state().alive == 0
    saved.close()
    with pytest.raises(ZcdError, match="closed"), saved:
        pass


def test_options_that_make_no_sense_are_refused(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="low=2"):
        SavedActivations("sim", low=2, high=1)


@pytest.mark.parametrize(("planted", "free"), [("freed before the copy", 60_000), ("read before the copy", 0)])
def test_a_planted_bug_is_found(planted: str, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulated_device import simulated

    if planted == "freed before the copy":

        def settle(self: Mover, parcel: Parcel) -> None:
            if parcel.leaving and parcel.place is not None:
                parcel.place.copies.clear()
                self._vacate(parcel)

        monkeypatch.setattr(Mover, "settle", settle)
    else:
        monkeypatch.setattr(Place, "order", lambda self, stream: None)
    with simulated(Machine(memory=1 << 20, h2d=1e5, d2h=1e5)) as machine:
        expected = _train(None)
        got = _train(_saved(free=free))
        assert machine.faults != [] or not _bit_equal(got, expected)


def test_what_stays_is_not_looked_at_for_each_tensor_that_is_saved(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Parcel] = []
    settle = Mover.settle
    monkeypatch.setattr(Mover, "settle", lambda self, parcel: (looked.append(parcel), settle(self, parcel)))
    saved = _saved(free=1 << 20, min_bytes=1)
    x = torch.ones(8).to("sim").requires_grad_()
    with saved:
        y = x
        for _ in range(100):
            y = y.sigmoid()
        total: Any = y.sum()
    assert saved.state().alive == 100
    total.backward()
    del total, y
    assert not looked
    assert saved.state().alive == 0

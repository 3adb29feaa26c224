"""decode= and device= together, on the simulated device: batches are the host's, and nothing is read too late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from decode_data import Exact
from loader_data import CROP
from same_batches import assert_same
from simulated_device import Machine, simulated, why_not

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali
from zerocopy_data.device.decode.protocol import is_installed

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

DALI = pytest.param(Dali(device="cpu"), marks=pytest.mark.skipif(not is_installed("nvidia.dali"), reason="no DALI"))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with simulated(Machine(devices=1, h2d=1e8, latency=1e-4)) as made:
        yield made
    assert made.faults == []


def load(ds: Any, decode: Any, workers: int = 2, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(
        ds, **{"batch_size": 8, "seed": 3, "shuffle": True, "num_workers": workers, "decode": decode, **options}
    )


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("decode", [pytest.param("cpu", id="cpu"), DALI, pytest.param(Exact(), id="exact")])
def test_whole_epochs_are_the_hosts(
    photos_path: Path, machine: Machine, decode: Any, workers: int, static: bool
) -> None:
    ds = zcd.open(photos_path, CROP).as_tuple("image", "number")
    there, here = load(ds, decode, workers, device="sim:0", static=static), load(ds, decode, workers)
    for _ in range(2):
        orders = []
        for got, expected in zip(there, here, strict=True):
            machine.work(1e-3, reads=tuple(got))
            assert {part.device for part in got} == {torch.device("sim:0")}
            assert_same(got, expected, torch.Tensor.cpu)
            orders += expected[1].tolist()
        assert sorted(orders) == list(range(57))
        assert orders != sorted(orders)

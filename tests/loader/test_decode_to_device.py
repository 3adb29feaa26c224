"""decode= and device= together, on the simulated device: batches are the host's, and nothing is read too late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from decode_data import Exact
from late_decoders import Late, OnDevice, without_block
from loader_data import CROP, mixed_images, write_photos
from same_batches import assert_same
from simulated_device import Machine, simulated, why_not

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali, EncodedImages
from zerocopy_data.device.decode.held import HeldUntilRead
from zerocopy_data.device.decode.protocol import is_installed
from zerocopy_data.loader import decoding

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


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("decode", [DALI, pytest.param(Exact(), id="exact")])
def test_pictures_that_stay_with_the_cpu_join_the_decoded_ones_on_the_device(
    tmp_path: Path, machine: Machine, decode: Any, static: bool
) -> None:
    ds = zcd.open(write_photos(tmp_path / "mixed", images=mixed_images() * 3), CROP).as_tuple("image", "number")
    there, here = load(ds, decode, device="sim:0", static=static), load(ds, decode)
    for got, expected in zip(there, here, strict=True):
        assert_same(got, expected, torch.Tensor.cpu)


def late_epochs(ds: Any, decode: Late) -> None:
    one, other = load(ds, decode, batch_size=4), load(ds, "cpu", batch_size=4)
    for _ in range(3):
        for got, expected in zip(one, other, strict=True):
            assert_same(got, expected)
    assert sum(decode.read) == 3 * 57


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_bytes_stay_until_the_decoder_has_read_them(photos: zcd.ShardDataset, depth: int) -> None:
    decode = Late(depth)
    late_epochs(photos, decode)
    assert decode.torn == []


def test_a_slot_that_is_given_back_before_it_was_read_is_noticed(
    photos: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = decoding.Decoding.start

    def forgetful(self: decoding.Decoding, batch: Any) -> decoding.Started:
        started = start(self, batch)
        left = decoding._replaced(started.batch, EncodedImages, without_block)
        return decoding.Started(left, tuple(map(without_block, started.images)), started.pending)

    monkeypatch.setattr(decoding.Decoding, "start", forgetful)
    decode = Late()
    late_epochs(photos, decode)
    assert decode.torn


def queued_epochs(path: Path) -> list[str]:
    """Faults of a device that copies late, and copies that are not what was to be copied."""
    ds = zcd.open(path, CROP)
    expected = list(load(ds, "cpu", batch_size=4))
    decode = OnDevice()
    with simulated(Machine(devices=1, h2d=1e6, latency=1e-3)) as machine:
        got = []
        for batch in load(ds, decode, batch_size=4, device="sim:0"):
            got.append(batch)
            time.sleep(0.002)  # for whoever would write; the device's own time stands still meanwhile
        torch.get_device_module("sim").synchronize()
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other, torch.Tensor.cpu)
        problems = [fault.kind for fault in machine.faults]
        problems += ["copied" for copy, right in decode.copies if not copy.cpu().equal(right)]
    return problems


def test_bytes_stay_until_the_device_has_copied_them(photos_path: Path) -> None:
    assert queued_epochs(photos_path) == []


def test_a_slot_that_is_given_back_before_its_copies_are_done_is_noticed(
    photos_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldUntilRead, "hold", lambda self, encoded, device: None)
    assert {"torn", "copied"} <= set(queued_epochs(photos_path))

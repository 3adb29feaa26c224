"""A loader's batches are augmented as of their epoch and by their samples' numbers, whoever makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import FIXED, ROWS, write_photos
from simulated_device import Machine, simulated, why_not

import zerocopy_data as zcd
from zerocopy_data.device import Staging
from zerocopy_data.device.augment import Augment, RandomCrop, RandomHorizontalFlip

OPS = Augment([RandomCrop(5), RandomHorizontalFlip()], seed=3)
EPOCHS = 3


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos") / "ds")


@pytest.fixture(params=["cpu", "sim", "sim, static"])
def staged(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes the loader's `device`, on the CPU and on the simulated device."""
    device, _, static = request.param.partition(", ")

    def make(samples: str | None) -> Staging:
        return Staging(device, static=bool(static), transform=OPS.on("image", samples=samples))

    if device == "cpu":
        yield make
        return
    if why_not() is not None:
        pytest.skip(str(why_not()))
    with simulated(Machine()) as machine:
        yield make
    assert not machine.faults


def _read(batches: Any) -> list[tuple[list[int], torch.Tensor]]:
    return [(batch["number"].cpu().tolist(), batch["image"].cpu().clone()) for batch in batches]


def _expected(path: Path, numbers: list[int], epoch: int) -> torch.Tensor:
    plain = zcd.open(path, FIXED)
    images = torch.stack([plain[number]["image"] for number in numbers])
    return OPS(images, samples=numbers, epoch=epoch)


def _numbered(path: Path) -> Any:
    return zcd.open(path, FIXED).numbered("index")


@pytest.mark.parametrize("seed", [None, 7])
def test_each_epoch_is_augmented_as_itself(photos: Path, staged: Any, seed: int | None) -> None:
    loader = zcd.DataLoader(_numbered(photos), 10, shuffle=True, seed=seed, num_workers=2, device=staged("index"))
    for epoch in range(EPOCHS):
        for numbers, images in _read(loader):
            assert torch.equal(images, _expected(photos, numbers, epoch))
    loader.set_epoch(40)
    numbers, images = _read(loader)[0]
    assert torch.equal(images, _expected(photos, numbers, 40))


def test_two_iterators_of_one_loader_keep_their_own_epochs(photos: Path, staged: Any) -> None:
    loader = zcd.DataLoader(_numbered(photos), 10, seed=7, num_workers=1, device=staged("index"))
    one, other = iter(loader), iter(loader)
    for _ in range(3):
        for epoch, iterator in enumerate((one, other)):
            ((numbers, images),) = _read([next(iterator)])
            assert torch.equal(images, _expected(photos, numbers, epoch))


def test_a_resumed_epoch_goes_on_as_it_would_have(photos: Path, staged: Any) -> None:
    def loader() -> Any:
        return zcd.StatefulDataLoader(_numbered(photos), 10, shuffle=True, seed=7, device=staged("index"))

    whole = loader()
    expected = [_read(whole) for _ in range(2)][1]
    stopped = loader()
    _read(stopped)
    iterator = iter(stopped)
    _read([next(iterator) for _ in range(2)])
    state = stopped.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    got = _read(resumed)
    assert [numbers for numbers, _ in got] == [numbers for numbers, _ in expected[2:]]
    assert all(torch.equal(mine, theirs) for (_, mine), (_, theirs) in zip(got, expected[2:], strict=True))


def test_counted_samples_in_a_resumed_epoch_are_refused(photos: Path, staged: Any) -> None:
    def loader() -> Any:
        return zcd.StatefulDataLoader(zcd.open(photos, FIXED), 10, seed=7, device=staged(None))

    stopped = loader()
    next(iter(stopped))
    state = stopped.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    with pytest.raises(zcd.ConfigError, match=r"numbered\('index'\)"):
        next(iter(resumed))


def test_the_same_sample_in_another_order_and_subset_is_the_same(photos: Path, staged: Any) -> None:
    rows = np.arange(ROWS)[::-1][:21]
    subset = _numbered(photos).subset(rows)
    loader = zcd.DataLoader(subset, 4, seed=1, device=staged("index"))
    for numbers, images in _read(loader):
        assert torch.equal(images, _expected(photos, numbers, 0))


class Numbers(torch.utils.data.Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.photos = zcd.open(path, FIXED)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return {"image": self.photos[index]["image"], "number": index, "index": index}


@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_of_any_dataset_are_counted(photos: Path, staged: Any, workers: int) -> None:
    loader = zcd.DataLoader(Numbers(photos), 10, num_workers=workers, device=staged("index"))
    for epoch in (0, 1, 5, 6):
        if epoch == 5:
            loader.set_epoch(5)
        for numbers, images in _read(loader):
            assert torch.equal(images, _expected(photos, numbers, epoch))


def test_a_samplers_epoch_is_the_epoch(photos: Path, staged: Any) -> None:
    sampler = torch.utils.data.DistributedSampler(Numbers(photos), num_replicas=1, rank=0)
    loader = zcd.DataLoader(Numbers(photos), 10, sampler=sampler, device=staged("index"))
    for epoch in (0, 4):
        sampler.set_epoch(epoch)
        for numbers, images in _read(loader):
            assert torch.equal(images, _expected(photos, numbers, epoch))


def test_an_epoch_that_nobody_knows_is_refused(photos: Path, staged: Any) -> None:
    def loader() -> Any:
        return zcd.StatefulDataLoader(Numbers(photos), 10, device=staged("index"))

    stopped = loader()
    next(iter(stopped))
    resumed = loader()
    resumed.load_state_dict(stopped.state_dict())
    with pytest.raises(zcd.ConfigError, match="set_epoch"):
        next(iter(resumed))
    resumed = loader()
    resumed.load_state_dict(stopped.state_dict())
    resumed.set_epoch(6)
    numbers, images = _read(resumed)[0]
    assert numbers[0] == 10
    assert torch.equal(images, _expected(photos, numbers, 6))


def test_who_tells_the_transform_the_epoch_keeps_it(photos: Path, staged: Any) -> None:
    asked = staged("index")
    loader = zcd.DataLoader(_numbered(photos), 10, seed=7, device=asked)
    for epoch in (8, 2):
        asked.transform.set_epoch(epoch)
        for numbers, images in _read(loader):
            assert torch.equal(images, _expected(photos, numbers, epoch))

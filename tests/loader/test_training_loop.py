"""The loop of the README, as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loader_data import ROWS, keyed

import zerocopy_data as zcd

OPS = [zcd.RandomResizedCrop(224), zcd.RandomHorizontalFlip(), zcd.Normalize()]


@pytest.mark.parametrize("workers", [0, 8])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_loop_of_the_readme_runs_as_written(photos_path: Path, workers: int) -> None:
    ds = zcd.open(str(photos_path), transform={"image": OPS})
    loader = zcd.DataLoader(ds.as_tuple("image", "label"), batch_size=16, shuffle=True, num_workers=workers, seed=0)
    firsts = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        sizes = []
        for images, labels in loader:
            assert images.dtype == torch.float32
            assert images.shape[1:] == (3, 224, 224)
            assert labels.dtype == torch.int64
            assert labels.shape == (len(images),)
            assert images.isfinite().all()
            sizes.append(len(images))
        assert sizes == [16, 16, 16, ROWS - 48]
        firsts.append(labels)
    assert not firsts[0].equal(firsts[1])


def test_without_normalize_batches_are_uint8(photos_path: Path) -> None:
    ds = zcd.open(photos_path, transform={"image": OPS[:2]})
    images, labels = next(iter(zcd.DataLoader(ds.as_tuple("image", "label"), batch_size=4)))
    assert images.dtype == torch.uint8
    assert images.shape == (4, 3, 224, 224)
    assert labels.tolist() == [0, 1, 2, 0]


def test_normalize_defaults_to_imagenets_mean_and_deviation(photos_path: Path) -> None:
    ops = [zcd.RandomResizedCrop(32), zcd.RandomHorizontalFlip()]
    raw = keyed(zcd.open(photos_path, ops), 5, 2)[7]["image"]
    made = keyed(zcd.open(photos_path, [*ops, zcd.Normalize()]), 5, 2)[7]["image"]
    mean, std = (torch.tensor(n)[:, None, None] for n in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(made, (raw.float() / 255 - mean) / std)


def test_real_photographs_go_through_the_loop(imagenet: Path, tmp_path: Path) -> None:
    zcd.pack(imagenet / "train", tmp_path / "train.zcd", limit=60, shuffle=1)
    ds = zcd.open(tmp_path / "train.zcd", transform={"image": OPS})
    seen = 0
    for images, labels in zcd.DataLoader(ds.as_tuple("image", "label"), batch_size=16, num_workers=2, seed=0):
        fixed = keyed(ds, 0, 0)
        for place in range(0, len(images), 5):
            assert images[place].equal(fixed[seen + place]["image"])
            assert labels[place] == fixed[seen + place]["label"]
        seen += len(images)
    assert seen == 60

"""A ShardDataset in torch's own DataLoader: under fork and spawn, with crops that change and can be repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import ROWS, by_hand, keyed
from same_batches import assert_same
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, random_split

import zerocopy_data as zcd

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:This process .*multi-threaded")


def images_of(loader: Any) -> torch.Tensor:
    return torch.cat([batch["image"].clone() for batch in loader])


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_arrive_as_they_are(photos: zcd.ShardDataset, workers: int) -> None:
    ds = keyed(photos, 2, 3)
    loader = TorchDataLoader(ds, batch_size=10, num_workers=workers)
    for one, other in zip(
        loader, by_hand(ds, [range(n, min(n + 10, ROWS)) for n in range(0, ROWS, 10)], 2, 3), strict=True
    ):
        assert_same(one, other)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_crops_change_every_epoch_and_repeat_under_torchs_seed(
    photos: zcd.ShardDataset, workers: int, persistent: bool
) -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(9)
        loader = TorchDataLoader(photos, batch_size=10, num_workers=workers, persistent_workers=persistent)
        runs.append([images_of(loader) for _ in range(3)])
    epochs = runs[0]
    for place in range(ROWS):
        assert not epochs[0][place].equal(epochs[1][place])
        assert not epochs[1][place].equal(epochs[2][place])
    assert all(a.equal(b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_fixes_the_crops(photos: zcd.ShardDataset, workers: int) -> None:
    loader = TorchDataLoader(photos, batch_size=10, num_workers=workers)
    epochs = []
    for epoch in (0, 1, 0):
        photos.set_epoch(epoch)
        epochs.append(images_of(loader))
    assert epochs[0].equal(epochs[2])
    assert not epochs[0].equal(epochs[1])


def test_torchs_own_subsets_work(photos: zcd.ShardDataset) -> None:
    first, second = random_split(photos, [40, ROWS - 40], torch.Generator().manual_seed(1))
    seen = [n for part in (first, second) for batch in zcd.DataLoader(part, 8) for n in batch["number"].tolist()]
    assert sorted(seen) == list(range(ROWS))
    assert len(zcd.DataLoader(Subset(photos, [1, 2, 3]), 2)) == 2


SCRIPT = """
import json, sys
import zerocopy_data as zcd
from torch.utils.data import DataLoader

def first_bytes(samples):
    return [sample["image"].flatten()[:5].tolist() for sample in samples]

if __name__ == "__main__":
    ds = zcd.open(sys.argv[1], [zcd.RandomResizedCrop(16)])
    ds[0]  # the parent has mapped a shard and compiled the transform
    ds.set_epoch(4)
    loader = DataLoader(ds, 20, num_workers=2, multiprocessing_context="spawn", collate_fn=first_bytes)
    out = {"processes": sum(loader, [])}
    out["threads"] = first_bytes([{"image": image} for b in zcd.DataLoader(ds, 20, num_workers=2, seed=0,
        multiprocessing_context="spawn") for image in b["image"]])
    print(json.dumps(out))
"""


def test_spawned_workers_give_the_same_samples(photos_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-W", "ignore", str(script), str(photos_path)]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    ds = zcd.open(photos_path, [zcd.RandomResizedCrop(16)])
    for name, epoch in (("processes", 4), ("threads", 0)):
        expected = [keyed(ds, 0, epoch)[n]["image"].flatten()[:5].tolist() for n in range(ROWS)]
        assert out[name] == expected

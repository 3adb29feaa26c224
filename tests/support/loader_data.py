"""Small datasets for the tests of the loader, and what their batches must be."""

from __future__ import annotations

import copy
import io
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as PillowImage

import zerocopy_data as zcd

ROWS = 57
CLASSES = ("ant", "bee", "cat")
CROP = [zcd.RandomResizedCrop(16), zcd.RandomHorizontalFlip(), zcd.Normalize()]
FIXED = [zcd.Resize((8, 8))]  # nothing random, always one size


def picture(number: int, mode: str = "RGB") -> PillowImage.Image:
    """A smooth picture, different for every number, 30 to 49 pixels a side."""
    rng = np.random.default_rng(number)
    small = PillowImage.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
    size = (30 + number * 7 % 20, 30 + number * 3 % 20)
    return small.resize(size, PillowImage.Resampling.BICUBIC).convert(mode)


def encode(image: PillowImage.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def mixed_images() -> list[bytes]:
    """Seven files; places 0, 3 and 6 are for any JPEG decoder, the others are PNG, CMYK or turned by their EXIF."""
    turned = picture(4)
    exif = turned.getexif()
    exif[0x112] = 6
    return [
        encode(picture(0)),
        encode(picture(1), "PNG"),
        encode(picture(2, "CMYK")),
        encode(picture(3, "L")),
        encode(turned, exif=exif),
        encode(picture(5, "L"), "PNG"),
        encode(picture(6), progressive=True),
    ]


def write_photos(path: Path, rows: int = ROWS, images: Sequence[bytes] | None = None) -> Path:
    """A dataset with columns image, label (of three classes), number (the row's own) and key, in several shards."""
    fields = {"image": zcd.Image(), "label": zcd.Scalar("int64", CLASSES), "number": zcd.Scalar(), "key": zcd.Text()}
    with zcd.DatasetWriter(path, fields, shard_size=24_000, row_group_size=6_000) as writer:
        for row in range(rows if images is None else len(images)):
            data = encode(picture(row)) if images is None else images[row]
            writer.write({"image": data, "label": row % 3, "number": row, "key": f"photo/{row}.jpg"})
    return path


def write_columns(path: Path, rows: int = 23) -> Path:
    """A dataset with every kind of column that a batch can hold."""
    fields = {
        "image": zcd.Image(),
        "pixels": zcd.Image("raw", (6, 5, 3)),
        "vector": zcd.Tensor("float32", (2, 3)),
        "half": zcd.Tensor("float16", (4,)),
        "flags": zcd.Tensor("bool", (3,)),
        "label": zcd.Scalar("int64"),
        "small": zcd.Scalar("uint8"),
        "weight": zcd.Scalar("float32"),
        "double": zcd.Scalar("float64"),
        "sound": zcd.Scalar("bool"),
        "key": zcd.Text(),
        "blob": zcd.Bytes(),
    }
    with zcd.DatasetWriter(path, fields, shard_size=12_000, row_group_size=4_000) as writer:
        for row in range(rows):
            rng = np.random.default_rng(row)
            writer.write(
                {
                    "image": encode(picture(row)),
                    "pixels": rng.integers(0, 256, (6, 5, 3), np.uint8),
                    "vector": rng.normal(size=(2, 3)).astype(np.float32),
                    "half": rng.normal(size=4).astype(np.float16),
                    "flags": rng.integers(0, 2, 3).astype(bool),
                    "label": row - 5,
                    "small": row,
                    "weight": row / 3,
                    "double": row / 7,
                    "sound": row % 3 == 0,
                    "key": f"é{row}",
                    "blob": rng.bytes(row + 8 if row else 0),
                }
            )
    return path


def copied(path: Path, to: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(path, to))


def rewrite(ds: zcd.ShardDataset, row: int, column: str, change: Callable[[bytes], bytes]) -> None:
    """Changes one stored value on disk, in place and behind its checksum's back."""
    shard, _ = ds.reader.locate(row)
    stored = bytes(ds.select([column]).raw(row)[column])
    file = ds.path / ds.reader.manifest.shards[shard].file
    content = file.read_bytes()
    assert content.count(stored) == 1
    changed = change(stored)
    assert len(changed) == len(stored)
    file.write_bytes(content.replace(stored, changed))


def flip_byte(ds: zcd.ShardDataset, row: int, column: str = "image") -> None:
    """Flips one bit of a stored value on disk."""
    rewrite(ds, row, column, lambda data: bytes(b ^ 0x10 if i == len(data) // 2 else b for i, b in enumerate(data)))


def keyed(ds: zcd.ShardDataset, seed: int, epoch: int) -> zcd.ShardDataset:
    """The dataset with its random operations fixed to (seed, epoch)."""
    made = copy.copy(ds)
    made.seed = seed
    made.set_epoch(epoch)
    return made


def by_hand(ds: zcd.ShardDataset, batches: Iterable[Sequence[int]], seed: int = 0, epoch: int = 0) -> list[Any]:
    """What torch's own collation of single samples gives."""
    fixed = keyed(ds, seed, epoch)
    return [torch.utils.data.default_collate([fixed[i] for i in batch]) for batch in batches]


def cloned(batch: Any) -> Any:
    """A copy of a batch in memory of its own."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {name: cloned(value) for name, value in batch.items()}
    return [cloned(value) for value in batch] if isinstance(batch, list | tuple) else batch


def task_count() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def samples_of(loader: Any, steps: int | None = None) -> list[tuple[int, bytes]]:
    """(Number, pixels) of each sample of some batches of an epoch, all by default."""
    out = []
    for batch in itertools.islice(iter(loader), steps):
        pairs = zip(batch["image"], batch["number"].tolist(), strict=True)
        out += [(int(number), image.numpy().tobytes()) for image, number in pairs]
    return out


def in_turn(ranks: Iterable[Sequence[Any]]) -> list[Any]:
    """What ranks were served, as one: a sample of each in turn."""
    return [sample for turn in itertools.zip_longest(*ranks) for sample in turn if sample is not None]


def own_collation(samples: list[Any]) -> Any:
    """torch's default collation under another name: over it worker processes make the batches."""
    return torch.utils.data.default_collate(samples)


def wait_until(met: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether it comes true in time: a joined thread leaves /proc a moment later."""
    end = time.monotonic() + seconds
    while not met():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class NoThreadLeft:
    """Context that fails when more threads run at its end than at its beginning."""

    def __enter__(self) -> NoThreadLeft:
        self.before = task_count()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            names = [thread.name for thread in threading.enumerate()]
            assert wait_until(lambda: task_count() <= self.before), f"{task_count()} > {self.before}: {names}"
            assert not [name for name in names if name.startswith("zcd")]

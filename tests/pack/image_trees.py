"""Makes small image folders in every layout that `pack` knows."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = ("n01440764", "n01484850", "n02119789")


def picture(number: int, width: int = 24, height: int = 16) -> Image.Image:
    """A smooth picture, different for every number."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def jpeg(number: int, width: int = 24, height: int = 16) -> bytes:
    return encode(picture(number, width, height))


def fill(folder: Path, names: Iterable[str], first: int = 0) -> None:
    """Writes a different JPEG under each name, making folders."""
    for number, name in enumerate(names, first):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(jpeg(number))


def class_folders(root: Path, classes: Iterable[str] = ("ant", "bee"), each: int = 3, first: int = 0) -> Path:
    names = [f"{name}/{number}.jpg" for name in classes for number in range(each)]
    fill(root, names, first)
    return root


def kaggle_tree(root: Path, each: int = 2, val: int = 4, test: int = 2) -> Path:
    """What unpacking Kaggle's imagenet-object-localization-challenge gives; returns CLS-LOC."""
    images = root / "ILSVRC" / "Data" / "CLS-LOC"
    class_folders(images / "train", WNIDS, each)
    fill(images / "val", [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, val + 1)], 50)
    fill(images / "test", [f"ILSVRC2012_test_{number:08d}.JPEG" for number in range(1, test + 1)], 90)
    lines = ["ImageId,PredictionString"]
    # Out of order, and with two boxes, as in the real file.
    for number in reversed(range(1, val + 1)):
        wnid = WNIDS[number % 3]
        lines.append(f"ILSVRC2012_val_{number:08d},{wnid} 1 2 3 4 {wnid} 5 6 7 8 ")
    (root / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")
    return images

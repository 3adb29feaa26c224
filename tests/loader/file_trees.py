"""Folders of image files in the layout of torchvision's ImageFolder, of every kind that people have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from loader_data import encode, picture
from PIL import Image as PillowImage
from torchvision.datasets import ImageFolder

CLASSES = ("cat", "dog", "eel")


def turned(number: int) -> bytes:
    """A JPEG whose EXIF says that it lies on its side."""
    image = picture(number)
    exif = image.getexif()
    exif[0x0112] = 6
    return encode(image, exif=exif)


def see_through(number: int) -> bytes:
    image = picture(number).convert("RGBA")
    image.putalpha(120)
    return encode(image, "PNG")


KINDS = {
    "colour.jpg": lambda n: encode(picture(n)),
    "full.jpeg": lambda n: encode(picture(n), subsampling=0, quality=95),
    "progressive.JPEG": lambda n: encode(picture(n), progressive=True),
    "gray.jpg": lambda n: encode(picture(n, "L")),
    "cmyk.jpg": lambda n: encode(picture(n, "CMYK")),
    "turned.jpg": turned,
    "lossless.png": lambda n: encode(picture(n), "PNG"),
    "palette.png": lambda n: encode(picture(n).quantize(16), "PNG"),
    "see-through.png": see_through,
    "deep.png": lambda n: encode(picture(n, "I").point(lambda v: v * 200).convert("I;16"), "PNG"),
    "a png named.jpg": lambda n: encode(picture(n), "PNG"),
    "a jpeg named.png": lambda n: encode(picture(n)),
    "ünïcode.webp": lambda n: encode(picture(n), "WEBP"),
    "plain.bmp": lambda n: encode(picture(n), "BMP"),
}


def write_tree(root: Path) -> Path:
    """Every kind in every class, and JPEGs besides."""
    number = 0
    for name in CLASSES:
        (root / name).mkdir(parents=True)
        for file, make in KINDS.items():
            (root / name / file).write_bytes(make(number))
            number += 1
        for index in range(4):
            (root / name / f"more-{index}.jpg").write_bytes(encode(picture(number)))
            number += 1
    return root


def all_bytes(path: Path) -> Path:
    """A lossless picture in which each channel has each value."""
    levels = np.random.default_rng(0).permuted(np.tile(np.arange(256, dtype=np.uint8), (3, 1)), axis=1)
    path.parent.mkdir(parents=True)
    PillowImage.fromarray(levels.reshape(3, 16, 16).transpose(1, 2, 0)).save(path)
    return path


def folder(root: Path, transform: Any, **options: Any) -> ImageFolder:
    return ImageFolder(str(root), transform, **options)

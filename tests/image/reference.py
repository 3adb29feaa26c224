"""What a program must give, made with Pillow from the steps that it reports; and small helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from zerocopy_data import _native
from zerocopy_data.image.pillow import decode_with_pillow
from zerocopy_data.image.program import ImageProgram

Pixels = npt.NDArray[np.uint8]

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def crop(image: Pixels, x: int, y: int, width: int, height: int, fill: tuple[int, int, int] = (0, 0, 0)) -> Pixels:
    """The rectangle, with `fill` where it reaches beyond the image."""
    out = np.empty((height, width, 3), np.uint8)
    out[:] = fill
    x0, y0 = max(0, x), max(0, y)
    x1, y1 = min(image.shape[1], x + width), min(image.shape[0], y + height)
    if x1 > x0 and y1 > y0:
        out[y0 - y : y1 - y, x0 - x : x1 - x] = image[y0:y1, x0:x1]
    return out


def apply_steps(image: Pixels, steps: list[tuple[str, int, int, int, int]], interpolation: str = "bilinear") -> Pixels:
    """One after another, as torchvision would call Pillow."""
    for name, x, y, width, height in steps:
        if name == "crop":
            image = crop(image, x, y, width, height)
        elif name == "resize":
            image = np.asarray(Image.fromarray(image).resize((width, height), RESAMPLING[interpolation]))
        else:
            image = image[:, ::-1]
    return np.ascontiguousarray(image)


def run(program: ImageProgram, data: bytes, seed: int = 0, epoch: int = 0, sample: int = 0) -> list[npt.NDArray[Any]]:
    """The views of one encoded image as arrays [3, height, width]."""
    try:
        made = program.native.run_encoded(data, seed, epoch, sample)
    except _native.UnsupportedImage:
        pixels = decode_with_pillow(data, True, _native.DEFAULT_PIXEL_LIMIT)
        made = program.native.run_pixels(pixels, seed, epoch, sample)
    return [spec.array(*one) for spec, one in zip(program.views, made, strict=True)]


def run_pixels(
    program: ImageProgram, image: Pixels, seed: int = 0, epoch: int = 0, sample: int = 0
) -> npt.NDArray[Any]:
    """The first view of one image that is pixels already."""
    return program.views[0].array(*program.native.run_pixels(image, seed, epoch, sample)[0])


def upright(chw: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[3, H, W] as [H, W, 3]."""
    return chw.transpose(1, 2, 0)

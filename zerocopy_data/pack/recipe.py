"""What packing does to each image: nothing, re-encoding to a largest side, or decoding to a square."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from ..format.columns import MAX_COLUMN_BYTES
from ..format.fields import Image
from ..format.probe import BadImageError, image_size, pillow_open

_MAX_SIDE = 65_535  # a JPEG header has 16 bits for each side
_MAX_RAW = isqrt(MAX_COLUMN_BYTES // 3)  # a row holds at most MAX_COLUMN_BYTES


@dataclass(frozen=True)
class Recipe:
    """What to store of each image.

    Attributes:
        max_side: Re-encode images whose longer side is greater, shrunk to it; others keep their bytes.
        quality: JPEG quality of what is re-encoded.
        raw: Store uint8 [raw, raw, 3]: the shorter side resized to `raw`, then the centre cut out.
    """

    max_side: int | None = None
    quality: int = 90
    raw: int | None = None

    def __post_init__(self) -> None:
        if self.max_side is not None and self.raw is not None:
            raise ConfigError("max_side and raw exclude each other: raw pixels are not encoded again.")
        for name, value, most in (("max_side", self.max_side, _MAX_SIDE), ("raw", self.raw, _MAX_RAW)):
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name} must be between 1 and {most} pixels, not {value}.")
        if not 1 <= self.quality <= 100:
            raise ConfigError(f"quality must be between 1 and 100, not {self.quality}.")

    @property
    def unchanged(self) -> bool:
        """Whether bytes are stored as they are."""
        return self.max_side is None and self.raw is None

    def field(self) -> Image:
        return Image() if self.raw is None else Image("raw", (self.raw, self.raw, 3))

    def options(self) -> dict[str, int]:
        """What the manifest says about it: only what had an effect."""
        if self.raw is not None:
            return {"raw": self.raw}
        if self.max_side is not None:
            return {"max_side": self.max_side, "quality": self.quality}
        return {}


@contextmanager
def _bad_images() -> Iterator[None]:
    """What the core refuses about one image is an error of that image: sizes out of range, too little memory."""
    try:
        yield
    except BadImageError:
        raise
    except MemoryError as error:
        raise BadImageError("there is too little memory to decode it") from error
    except (ValueError, OverflowError) as error:
        raise BadImageError(f"the image cannot be transformed: {error}") from error


@_bad_images()
def shrink(data: Any, max_side: int, quality: int) -> tuple[Any, int, int]:
    """Encoded bytes with a longer side of at most `max_side`, width and height.

    Raises:
        BadImageError: the image cannot be decoded, or not be brought to that size.
    """
    width, height = image_size(data)
    if max(width, height) <= max_side:
        return data, width, height
    try:
        return _native.jpeg_transcode(data, max_side, quality)
    except _native.UnsupportedImage:
        pixels = _pillow_pixels(data)
    except _native.ImageError as error:
        raise BadImageError(str(error)) from error
    scale = max_side / max(width, height)  # sizes rounded as jpeg_transcode rounds them, half up
    width, height = (max(1, min(max_side, int(side * scale + 0.5))) for side in (width, height))
    return _native.jpeg_encode(_native.resize(pixels, width, height), quality), width, height


@_bad_images()
def square(data: Any, side: int) -> npt.NDArray[np.uint8]:
    """uint8 [side, side, 3]: torchvision's Resize(side) and CenterCrop(side) of the decoded image.

    Raises:
        BadImageError: the image cannot be decoded, or not be brought to that size.
    """
    if len(data) == 0:
        raise BadImageError("the file is empty (0 bytes)")
    try:
        pixels = _native.jpeg_decode(data)
    except _native.UnsupportedImage:
        pixels = _pillow_pixels(data)
    except _native.ImageError as error:
        raise BadImageError(str(error)) from error
    height, width = pixels.shape[:2]
    if min(height, width) != side:
        # The arithmetic of torchvision.transforms.functional._compute_resized_output_size.
        longer = int(side * max(height, width) / min(height, width))
        width, height = (side, longer) if width <= height else (longer, side)
        pixels = _native.resize(pixels, width, height)
    # As torchvision.transforms.functional.center_crop, half to even.
    top, left = round((height - side) / 2.0), round((width - side) / 2.0)
    return pixels[top : top + side, left : left + side]


def _pillow_pixels(data: Any) -> npt.NDArray[np.uint8]:
    from PIL import ImageOps

    image = pillow_open(data)
    try:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except Exception as error:
        raise BadImageError(f"the image cannot be decoded: {error}") from error

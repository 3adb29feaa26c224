"""Size and soundness of encoded images: the native header probe, with Pillow for what it does not take."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from .. import _native

if TYPE_CHECKING:
    from PIL import Image as PillowImage

_ORIENTATION_TAG = 0x0112  # EXIF


class BadImageError(ValueError):
    """The bytes are no image that can be used; the message is the reason in words."""


def image_size(data: Any) -> tuple[int, int]:
    """Width and height of an encoded image, as it is seen after EXIF rotation.

    A JPEG is probed without being decoded (unless it lacks its end marker); anything else is decoded by
    Pillow, so that damage is found now and not while training.

    Raises:
        BadImageError: empty, truncated, not an image, or beyond the pixel limit.
    """
    if len(data) == 0:
        raise BadImageError("the file is empty (0 bytes)")
    try:
        info = _native.jpeg_probe(data)
    except _native.UnsupportedImage:
        return decoded_size(data)
    except _native.ImageError as error:
        raise BadImageError(str(error)) from error
    return info.width, info.height


def decoded_size(data: Any) -> tuple[int, int]:
    """Decodes with Pillow; width and height after EXIF rotation.

    Raises:
        BadImageError: it cannot be decoded, or is beyond the pixel limit.
    """
    image = pillow_open(data)
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except Exception as error:
        raise BadImageError(f"the image cannot be decoded: {error}") from error
    width, height = image.size
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)


def pillow_open(data: Any) -> PillowImage.Image:
    """Opens with Pillow without decoding, refusing more pixels than the native decoder would take.

    Raises:
        BadImageError: not an image, or beyond the pixel limit.
    """
    from PIL import Image as PillowImage

    try:
        with warnings.catch_warnings():
            # Pillow's own bomb warning starts at half our limit; the check below decides.
            warnings.simplefilter("ignore")
            image = PillowImage.open(io.BytesIO(data))
    except PillowImage.DecompressionBombError as error:
        raise BadImageError(f"the image is too large: {error}") from error
    except Exception as error:
        raise BadImageError("the bytes are no image that can be decoded") from error
    width, height = image.size
    if width * height > _native.DEFAULT_PIXEL_LIMIT:
        raise BadImageError(f"the header says {width} x {height} pixels, the limit is {_native.DEFAULT_PIXEL_LIMIT}")
    return image

"""The way to pixels for images that libjpeg-turbo does not take: PNG, WebP, CMYK JPEG, and whatever Pillow reads."""

from __future__ import annotations

import io
import warnings

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from .. import _native


def decode_with_pillow(data: bytes | memoryview, orient: bool, pixel_limit: int) -> npt.NDArray[np.uint8]:
    """Decodes to uint8 [height, width, 3], as `Image.open(…).convert('RGB')` does.

    Raises:
        ImageError: Pillow cannot read it either, or it has more pixels than the limit.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns at half the size at which it refuses; the limit here is our own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                if image.width * image.height > pixel_limit:
                    raise _native.ImageError(
                        f"{image.width}x{image.height} pixels, more than the limit of {pixel_limit}"
                    )
                turned = ImageOps.exif_transpose(image) if orient else image
                return np.ascontiguousarray(np.asarray(turned.convert("RGB")))
    except _native.ImageError:
        raise
    except Exception as error:  # plugins raise whatever they like on hostile bytes
        raise _native.ImageError(f"neither libjpeg-turbo nor Pillow can decode it ({error})") from error

"""What the compiled core offers to Python. Every function checks every length it is given."""

from collections.abc import Buffer, Sequence  # type: ignore[attr-defined]

import numpy as np
import numpy.typing as npt

class ImageError(ValueError):
    """The bytes are no image that can be decoded: damaged, truncated, or beyond the pixel limit."""

class UnsupportedImage(ImageError):
    """The bytes may be a sound image, but not one that libjpeg-turbo takes (PNG, CMYK, …): ask Pillow."""

DEFAULT_PIXEL_LIMIT: int

def jpeg_library() -> str:
    """Name and version of the JPEG library this module was built with, as 'libjpeg-turbo 2.1.5'."""

def simd() -> str:
    """Instruction set that the kernels of this process use: 'avx2' or 'scalar'."""

def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, continuing from `value`. Releases the GIL."""

class JpegInfo:
    width: int  # after EXIF rotation
    height: int
    stored_width: int  # as the file has it
    stored_height: int
    orientation: int  # EXIF, 1 to 8
    components: int  # 1 gray, 3 colour
    progressive: bool

def jpeg_probe(data: Buffer, pixel_limit: int = ..., check_end: bool = True) -> JpegInfo:
    """Reads a JPEG's header without decoding it. With `check_end` a file that lacks its end marker is decoded
    to its last line to see whether it is truncated (ImageError)."""

def jpeg_decode(data: Buffer, orient: bool = True, pixel_limit: int = ...) -> npt.NDArray[np.uint8]:
    """Decodes to uint8 [height, width, 3] (RGB)."""

def jpeg_encode(image: npt.NDArray[np.uint8], quality: int = 90) -> bytes:
    """Encodes uint8 [height, width, 3] as a baseline 4:2:0 JPEG."""

def jpeg_transcode(
    data: Buffer, max_side: int, quality: int, orient: bool = True, pixel_limit: int = ...
) -> tuple[bytes, int, int]:
    """Decodes, shrinks so that the longer side is at most `max_side` (Pillow's bilinear), encodes: one call
    without the GIL. Returns the bytes, width and height. An image that is no larger is re-encoded at its own size."""

def resize(
    image: npt.NDArray[np.uint8], width: int, height: int, interpolation: str = "bilinear"
) -> npt.NDArray[np.uint8]:
    """Pillow's Image.resize of uint8 [h, w, 3], equal in every byte. 'nearest', 'bilinear', 'bicubic'."""

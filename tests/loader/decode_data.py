"""Decoders for the tests of `decode=`, and how near another decoder's pixels must come to ours."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image as PillowImage

from zerocopy_data.device.decode import DecoderRefusedError, EncodedImages
from zerocopy_data.device.decode.encoded import CORNER, CUT, FLIP, RESIZED

# Measured over all 500 photographs of imagenet-sample, two seeds of RandomResizedCrop to 224, 112 and 32 pixels,
# against DALI 2.4 on the CPU. Inside: no pixel was off by more than one level of 255, an image by 0.22 in the mean. The
# outermost rows and columns were off by up to 28 where pictures are shrunk: there DALI's filter repeats the edge, and
# Pillow's leaves out what is not there.
INNER_LEVELS = 1
INNER_MEAN = 0.3
EDGE_LEVELS = 32


def assert_near(got: torch.Tensor, expected: torch.Tensor) -> None:
    """uint8 [n, 3, H, W] within the tolerance. A window that is off by one pixel, or a flip, is far outside it."""
    assert got.dtype == expected.dtype == torch.uint8
    assert got.shape == expected.shape
    off = (got.int() - expected.int()).abs()
    assert off.max() <= EDGE_LEVELS
    inner = off[:, :, 1:-1, 1:-1]
    assert inner.max() <= INNER_LEVELS
    assert inner.float().flatten(1).mean(1).max() <= INNER_MEAN


class ExactDecoder:
    """Decodes with Pillow, whose pixels the native core's equal to the bit. Keeps what it was given."""

    def __init__(self, factory: Exact) -> None:
        self.device = torch.device("cpu")
        self.depth = 2
        self.closed = 0
        self.given: list[EncodedImages] = []
        self._factory = factory

    def submit(self, encoded: EncodedImages) -> _Later:
        self.given.append(encoded)
        return _Later(self, encoded)

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        if any(row in self._factory.refuse for row in encoded.rows[encoded.places].tolist()):
            raise DecoderRefusedError("one of those rows")
        made = [shaped(*one, encoded) for one in zip(encoded.streams(), encoded.geometry.tolist(), strict=True)]
        shape = (0, encoded.height, encoded.width, 3)
        return encoded.merged(torch.stack(made) if made else torch.empty(shape, dtype=torch.uint8))

    def close(self) -> None:
        self.closed += 1


class _Later:
    def __init__(self, decoder: ExactDecoder, encoded: EncodedImages) -> None:
        self._decoder, self._encoded = decoder, encoded

    def result(self) -> torch.Tensor:
        return self._decoder.decode(self._encoded)


@dataclass(frozen=True)
class Exact:
    """Makes ExactDecoders; batches with one of the rows in `refuse` they refuse."""

    interpolations: ClassVar[tuple[str, ...]] = ("nearest", "bilinear", "bicubic")
    refuse: frozenset[int] = frozenset()
    opened: list[ExactDecoder] = field(default_factory=list, compare=False)

    def check(self, device: torch.device) -> None:
        pass

    def open(self, device: torch.device) -> ExactDecoder:
        self.opened.append(ExactDecoder(self))
        return self.opened[-1]


def shaped(stream: Any, geometry: list[int], encoded: EncodedImages) -> torch.Tensor:
    """One image by the book: uint8 [height, width, 3]."""
    y, x, height, width = geometry[CUT]
    image = PillowImage.open(io.BytesIO(bytes(stream))).convert("RGB").crop((x, y, x + width, y + height))
    high, wide = geometry[RESIZED]
    if (high, wide) != (height, width):
        image = image.resize((wide, high), PillowImage.Resampling[encoded.interpolation.upper()])
    top, left = geometry[CORNER]
    pixels = np.asarray(image.crop((left, top, left + encoded.width, top + encoded.height)))
    return torch.from_numpy((pixels[:, ::-1] if geometry[FLIP] else pixels).copy())

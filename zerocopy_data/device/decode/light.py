"""Decoding with torchcodec: nvJPEG on CUDA, libjpeg-turbo on the CPU. One small package instead of DALI."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ...errors import ConfigError
from .encoded import CORNER, CUT, FLIP, RESIZED, EncodedImages
from .held import HeldUntilRead
from .protocol import DecoderRefusedError, is_installed, named

INSTALL = "pip install 'torchcodec>=0.17'"


@dataclass(frozen=True)
class TorchCodec:
    """torchcodec as the decoder of a DataLoader: `DataLoader(decode=TorchCodec())`.

    A batch is decoded in one call, whole images; cuts and resizes are torch's own, one image after another.

    Attributes:
        device: 'cuda', 'cuda:1', … or 'cpu'; None decodes on the loader's device.
    """

    interpolations: ClassVar[tuple[str, ...]] = ("bilinear", "bicubic")
    device: str | None = None

    def check(self, device: torch.device) -> None:
        """See `DecoderFactory`."""
        self._where(device)

    def _where(self, device: torch.device) -> torch.device:
        where = device if self.device is None else named(self.device, "TorchCodec")
        if where.type not in ("cpu", "cuda"):
            raise ConfigError(f"torchcodec decodes on CUDA devices and on the CPU, not on {where}. Use decode='cpu'.")
        if where.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("torchcodec is to decode on a CUDA device, but torch finds none. Use decode='cpu'.")
        if not is_installed("torchcodec.decoders"):
            raise ConfigError(f"torchcodec is not installed. Install it with: {INSTALL}")
        return where

    def open(self, device: torch.device) -> TorchCodecDecoder:
        """Makes the decoder: see `DecoderFactory`."""
        where = self._where(device)
        try:
            decode = importlib.import_module("torchcodec.decoders").decode_jpeg
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise ConfigError(f"torchcodec's JPEG decoder is not there ({error}). Install it with: {INSTALL}") from None
        return TorchCodecDecoder(where, decode)


class TorchCodecDecoder:
    """The decoder. It keeps nothing from one batch to the next.

    Args:
        device: Where the pixels come out.
        decode: torchcodec.decoders.decode_jpeg.
    """

    def __init__(self, device: torch.device, decode: Any) -> None:
        self.device = device
        self.depth = 1
        self._decode = decode
        self._held = HeldUntilRead()

    def submit(self, encoded: EncodedImages) -> _Waiting:
        """Remembers a batch: see `ImageDecoder`. The work is done when its result is asked for."""
        return _Waiting(self, encoded)

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        """Decodes a batch: see `ImageDecoder`."""
        out = torch.empty((encoded.encoded, encoded.height, encoded.width, 3), dtype=torch.uint8, device=self.device)
        if encoded.encoded:
            streams = [torch.from_numpy(stream) for stream in encoded.streams()]
            try:
                pictures = self._decode(streams, mode="RGB", device=self.device)
            except RuntimeError as error:
                raise DecoderRefusedError(str(error).splitlines()[0]) from error
            for place, (picture, geometry) in enumerate(zip(pictures, encoded.geometry.tolist(), strict=True)):
                out[place] = _shaped(picture, geometry, encoded)
        merged = encoded.merged(out)
        self._held.hold(encoded, self.device)
        return merged

    def close(self) -> None:
        """Waits until the device has read what it was given."""
        self._held.close()


class _Waiting:
    """A batch whose turn has not come."""

    def __init__(self, decoder: TorchCodecDecoder, encoded: EncodedImages) -> None:
        self._decoder = decoder
        self._encoded = encoded

    def result(self) -> torch.Tensor:
        """See `Pending`."""
        return self._decoder.decode(self._encoded)


def _shaped(picture: torch.Tensor, geometry: list[int], encoded: EncodedImages) -> torch.Tensor:
    """One image [3, H, W] cut, resized, cut again and mirrored, as [height, width, 3]."""
    y, x, height, width = geometry[CUT]
    if y + height > picture.shape[1] or x + width > picture.shape[2]:
        raise DecoderRefusedError(f"an image came out as {tuple(picture.shape)}, another size than its header says")
    cut = picture[:, y : y + height, x : x + width]
    resized = tuple(geometry[RESIZED])
    if resized != (height, width):
        # In float32: on CUDA torch has no antialiased resize of bytes.
        floats = torch.nn.functional.interpolate(
            cut[None].float(), size=resized, mode=encoded.interpolation, antialias=True
        )
        cut = floats[0].round_().clamp_(0, 255).to(torch.uint8)
    top, left = geometry[CORNER]
    part = cut[:, top : top + encoded.height, left : left + encoded.width]
    if geometry[FLIP]:
        part = part.flip(2)
    return part.permute(1, 2, 0)

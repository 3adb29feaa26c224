"""What a decoder of images is, and how one is asked for."""

from __future__ import annotations

import importlib.util
from typing import Protocol

import torch

from ...errors import ConfigError
from .encoded import EncodedImages


class DecoderRefusedError(Exception):
    """The decoder can't decode a batch. It is ready for the next one; which image was to blame it need not know."""


class Pending(Protocol):
    """A batch that is being decoded."""

    def result(self) -> torch.Tensor:
        """The images, as `ImageDecoder.decode` gives them. Asked for once, in the order of submission.

        Raises:
            DecoderRefusedError: the batch can't be decoded.
        """


class ImageDecoder(Protocol):
    """Makes batches of pixels on one device. Used by one thread at a time."""

    @property
    def device(self) -> torch.device:
        """Where the pixels come out."""

    @property
    def depth(self) -> int:
        """Batches that may be submitted before the result of the first is asked for."""

    def submit(self, encoded: EncodedImages) -> Pending:
        """Starts on a batch."""

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        """Decodes a batch.

        Returns:
            uint8 [images, height, width, 3] on the decoder's device, in memory that nobody else writes to. Ordered on
            the caller's current stream.

        Raises:
            DecoderRefusedError: the batch can't be decoded.
        """

    def close(self) -> None:
        """Gives back what the decoder holds. May be called again; a batch that is still pending is lost."""


class DecoderFactory(Protocol):
    """A decoder as the user declares it: `DataLoader(decode=…)`."""

    @property
    def interpolations(self) -> tuple[str, ...]:
        """Those whose pixels are within the stated tolerance of the CPU path's."""

    def check(self, device: torch.device) -> None:
        """Whether a decoder can be made, as far as is known without loading what it needs.

        Raises:
            ConfigError: it can't work for this device, or a package is missing.
        """

    def open(self, device: torch.device) -> ImageDecoder:
        """Makes the decoder for a device.

        Raises:
            ConfigError: it can't work there, or a package is missing.
        """


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it (but for the packages that it lies in)."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def named(device: str, decoder: str) -> torch.device:
    """The device of a decoder's argument.

    Raises:
        ConfigError: it is none.
    """
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(f"{decoder}(device={device!r}): no such device. Use 'cuda', 'cuda:1', … or 'cpu'.") from None

"""What `DataLoader(decode=)` asks for."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConfigError
from ..request import Staging
from .dali import Dali
from .protocol import DecoderFactory, ImageDecoder

_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Shared:
    """A decoder that shares each batch with the CPU's cores, by the rates that are measured: `decode='auto'`.

    Which images of a batch the CPU decodes changes from run to run, and with it, within the decoder's tolerance, their
    pixels. Samples, order and crops do not.

    Attributes:
        decoder: The other side.
    """

    decoder: DecoderFactory


@dataclass(frozen=True)
class DecodeRequest:
    """A decoder for the batches of one loader.

    Attributes:
        factory: Makes the decoder.
        device: Where the loader's batches are to be.
        shared: Whether the CPU takes a share.
        optional: Whether the CPU does it all where this decoder does not fit.
    """

    factory: DecoderFactory
    device: torch.device
    shared: bool = False
    optional: bool = False

    def open(self) -> ImageDecoder:
        """Makes the decoder.

        Raises:
            ConfigError: it can't work, or its pixels would come out where they are not wanted.
        """
        decoder = self.factory.open(self.device)
        if self.device.type == "cpu" and decoder.device.type != "cpu":
            decoder.close()
            raise ConfigError(
                f"{self.factory!r} decodes on {decoder.device}, and batches are to be in host memory. Give the loader "
                f"device={str(decoder.device)!r} too."
            )
        return decoder


def as_request(decode: Any, staging: Staging | None) -> DecodeRequest | None:
    """What a loader's `decode=` asks for; None where the CPU decodes everything.

    Args:
        decode: 'cpu', 'gpu', 'auto', a decoder (`Dali`, `TorchCodec`, any DecoderFactory), or `Shared` with one.
        staging: Where batches are to be; None for host memory.

    Raises:
        ConfigError: it is none of these, the decoder can't work there, or a package is missing.
    """
    if decode == "cpu":
        return None
    device = _HOST if staging is None else torch.device(staging.device)
    if decode == "gpu":
        if device.type != "cuda":
            raise ConfigError(_why_no_gpu(device, staging))
        decode = Dali()
    elif decode == "auto":
        return _automatic(device)
    shared = isinstance(decode, Shared)
    factory = decode.decoder if shared else decode
    if isinstance(factory, type | str) or not all(
        hasattr(factory, name) for name in ("interpolations", "check", "open")
    ):
        raise ConfigError(
            f"decode={decode!r}: 'cpu', 'gpu', 'auto', or a decoder such as zerocopy_data.device.decode.Dali()."
        )
    factory.check(device)
    return DecodeRequest(factory, device, shared)


def _automatic(device: torch.device) -> DecodeRequest | None:
    if device.type != "cuda":
        return None
    try:
        Dali().check(device)
    except ConfigError as error:
        warnings.warn(f"decode='auto' leaves decoding to the CPU: {error}", stacklevel=4)
        return None
    return DecodeRequest(Dali(), device, shared=True, optional=True)


def _why_no_gpu(device: torch.device, staging: Staging | None) -> str:
    if not torch.cuda.is_available():
        return (
            f"decode='gpu' decodes on a CUDA device, and torch {torch.__version__} finds none on this machine. Use "
            "decode='cpu', or 'auto', which decodes on the GPU where there is one."
        )
    have = "in host memory" if staging is None else f"on {device}"
    return f"decode='gpu' decodes on a CUDA device, and batches are to be {have}. Give the loader device='cuda'."

"""Decoding of images by something else than the native core: DALI or torchcodec, on a GPU or on the CPU."""

from .dali import Dali
from .encoded import EncodedImages
from .light import TorchCodec
from .protocol import DecoderFactory, DecoderRefusedError, ImageDecoder
from .request import Shared

__all__ = ["Dali", "DecoderFactory", "DecoderRefusedError", "EncodedImages", "ImageDecoder", "Shared", "TorchCodec"]

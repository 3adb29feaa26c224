"""Decoding of images by something else than the native core: DALI or nvJPEG on a GPU, DALI on the CPU."""

from .dali import Dali
from .encoded import EncodedImages
from .protocol import DecoderFactory, DecoderRefusedError, ImageDecoder

__all__ = ["Dali", "DecoderFactory", "DecoderRefusedError", "EncodedImages", "ImageDecoder"]

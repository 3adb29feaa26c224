"""A batch on its way through the operations, and what is known of it before any pixel is looked at."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ConfigError

DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Spec:
    """What the host knows of a batch at a place in the chain.

    Attributes:
        n: Samples.
        channels: 1 or 3.
        height: Of every image, in pixels.
        width: Likewise.
        dtype: uint8 (values to 255), float16, bfloat16 or float32 (values to 1, until normalised).
        channels_last: Whether memory is [n, H, W, C]; the shape is [n, C, H, W] all the same.
    """

    n: int
    channels: int
    height: int
    width: int
    dtype: torch.dtype
    channels_last: bool

    @property
    def is_float(self) -> bool:
        """Whether pixels are floats."""
        return self.dtype != torch.uint8

    @property
    def memory_format(self) -> torch.memory_format:
        """torch's name of how the images lie."""
        return torch.channels_last if self.channels_last else torch.contiguous_format


def spec_of(images: torch.Tensor) -> Spec:
    """The spec of a batch that has just come in.

    Raises:
        ConfigError: these are no images that the operations work on.
    """
    if not isinstance(images, torch.Tensor) or images.dim() != 4:
        shape = list(images.shape) if isinstance(images, torch.Tensor) else type(images).__name__
        raise ConfigError(f"images are {shape}: a tensor [n, C, H, W] is needed.")
    if images.requires_grad:
        raise ConfigError("images need a gradient, and operations work on them in place: pass images.detach().")
    if images.layout is not torch.strided:
        raise ConfigError(f"images are {images.layout}: pass images.to_dense().")
    n, channels, height, width = images.shape
    if images.dtype not in DTYPES:
        raise ConfigError(f"images are {images.dtype}: use uint8, float16, bfloat16 or float32.")
    if channels not in (1, 3) or height < 1 or width < 1:
        hint = " Is the last dimension the channels? Then pass images.permute(0, 3, 1, 2)." if width in (1, 3) else ""
        raise ConfigError(f"images are {list(images.shape)}: [n, C, H, W] with 1 or 3 channels is needed.{hint}")
    # By the stride too: a batch of no samples, or of one channel, counts as contiguous in either manner.
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and images.stride(1) == 1
    return Spec(n, channels, height, width, images.dtype, channels_last)


@dataclass
class Batch:
    """Images and labels, as the steps change them.

    Attributes:
        images: [n, C, H, W].
        labels: int64 [n], soft labels [n, num_classes], or None.
        fresh: Whether `images` is memory of ours that may be written to, not the caller's.
    """

    images: torch.Tensor
    labels: torch.Tensor | None
    fresh: bool = False

    def put(self, images: torch.Tensor) -> None:
        """Takes over new images in memory of their own."""
        self.images, self.fresh = images, True

    def writable(self) -> torch.Tensor:
        """The images in memory that may be written to."""
        if not self.fresh:
            self.put(self.images.clone(memory_format=torch.preserve_format))
        return self.images

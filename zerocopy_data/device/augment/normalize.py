"""Normalising."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...errors import ConfigError
from ...image.ops import IMAGENET_MEAN, IMAGENET_STD
from ..kernels.normalize import FLOATS, fused_normalize, normalize_table
from .batch import Batch, Spec
from .checks import numbers
from .op import Draws, Step
from .parcel import Parcel


@dataclass(frozen=True)
class Normalize:
    """Subtracts `mean` and divides by `std`, a channel each. uint8 pixels are mapped to [0, 1] first.

    Of uint8 it makes what the CPU path of this library makes, to the bit. Floats are worked on in their own dtype, as
    torchvision.transforms.v2.Normalize does. The defaults are ImageNet's.

    Attributes:
        mean: One number, or one a channel.
        std: Likewise; none is zero.
        dtype: Of the result: float32, float16 or bfloat16. None is float32 for uint8, and keeps that of floats.
    """

    mean: float | Sequence[float] = IMAGENET_MEAN
    std: float | Sequence[float] = IMAGENET_STD
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, numbers(getattr(self, name), f"Normalize {name}"))
        if 0.0 in self._of("std"):
            raise ConfigError(f"Normalize(std={self.std}): no deviation may be zero.")
        if self.dtype is not None and self.dtype not in FLOATS:
            raise ConfigError(f"Normalize(dtype={self.dtype}): use torch.float32, torch.float16 or torch.bfloat16.")

    def for_channels(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """mean and std, one number a channel.

        Raises:
            ConfigError: there are three, and the images have one channel.
        """
        for name in ("mean", "std"):
            if len(self._of(name)) not in (1, channels):
                raise ConfigError(
                    f"Normalize({name}={self._of(name)}): the images have {channels} channel(s); give one number or as "
                    "many."
                )
        mean, std = (self._of(name) * (channels // len(self._of(name))) for name in ("mean", "std"))
        return mean, std

    def result(self, spec: Spec) -> torch.dtype:
        """dtype of the result."""
        return self.dtype or (spec.dtype if spec.is_float else torch.float32)

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        mean, std = self.for_channels(spec.channels)
        dtype = self.result(spec)
        if not spec.is_float:
            table = parcel.add(normalize_table(mean, std).numpy())

            def look_up(batch: Batch) -> None:
                batch.put(fused_normalize(batch.images, table.tensor, dtype, spec.memory_format))

            return look_up, replace(spec, dtype=dtype)
        both = parcel.add(np.array([mean, std], np.float32))

        def compute(batch: Batch) -> None:
            means, stds = both.tensor.to(spec.dtype).view(2, 1, -1, 1, 1)
            batch.put(batch.images.sub(means).div_(stds).to(dtype))

        return compute, replace(spec, dtype=dtype)

    def _of(self, name: str) -> tuple[float, ...]:
        values: tuple[float, ...] = getattr(self, name)
        return values

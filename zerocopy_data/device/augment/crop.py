"""Random crops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...errors import ConfigError
from ..kernels.normalize import crops
from .batch import Batch, Spec
from .checks import colour, numbers
from .op import Draws, Step
from .parcel import Parcel


@dataclass(frozen=True)
class RandomCrop:
    """Crops `size` at a random place of each image, after padding (torchvision.transforms.v2.RandomCrop).

    Attributes:
        size: (height, width), or an int for a square.
        padding: Pixels added around every image first: an int, (x, y) or (left, top, right, bottom).
        pad_if_needed: Whether smaller images are padded, by what they lack on either side.
        fill: What padding consists of: a number, or one a channel, in the images' own range.
        padding_mode: 'constant'; there is no other.
    """

    size: int | tuple[int, int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: float | Sequence[float] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        size: Any = tuple(self.size) if isinstance(self.size, Sequence) else (self.size,)
        if len(size) not in (1, 2) or not all(isinstance(n, int) and n >= 1 for n in size):
            raise ConfigError(f"RandomCrop(size={self.size!r}): a positive int or (height, width).")
        object.__setattr__(self, "size", size * (2 // len(size)))
        pad: Any = tuple(self.padding) if isinstance(self.padding, Sequence) else (self.padding or 0,)
        if len(pad) not in (1, 2, 4) or not all(isinstance(n, int) and n >= 0 for n in pad):
            raise ConfigError(f"RandomCrop(padding={self.padding!r}): an int, (x, y) or (left, top, right, bottom).")
        object.__setattr__(self, "padding", pad * (4 // len(pad)))
        object.__setattr__(self, "fill", numbers(self.fill, "RandomCrop fill"))
        if self.padding_mode != "constant":
            raise ConfigError(f"RandomCrop(padding_mode={self.padding_mode!r}): only 'constant' is supported.")

    def pads(self, spec: Spec) -> tuple[int, int, int, int]:
        """What is added to such images: (left, top, right, bottom).

        Raises:
            ConfigError: they are too small even so.
        """
        (height, width), (left, top, right, bottom) = self._size_and_padding()
        lack_x = max(0, width - (spec.width + left + right)) if self.pad_if_needed else 0
        lack_y = max(0, height - (spec.height + top + bottom)) if self.pad_if_needed else 0
        pads = (left + lack_x, top + lack_y, right + lack_x, bottom + lack_y)
        padded = (spec.height + pads[1] + pads[3], spec.width + pads[0] + pads[2])
        if padded[0] < height or padded[1] < width:
            raise ConfigError(
                f"RandomCrop of {height}x{width} is larger than the images of {padded[0]}x{padded[1]} (height x width, "
                "padding included); use pad_if_needed=True, or resize first."
            )
        return pads

    def offsets(self, spec: Spec, draws: Draws) -> npt.NDArray[np.int64]:
        """int64 [n, 2]: (top, left) of each crop within the padded image."""
        left, top, right, bottom = self.pads(spec)
        (height, width), _ = self._size_and_padding()
        choices = np.array([spec.height + top + bottom - height + 1, spec.width + left + right - width + 1])
        offsets: npt.NDArray[np.int64] = (draws.uniform(2) * choices).astype(np.int64)
        return offsets

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        size, _ = self._size_and_padding()
        pads = self.pads(spec)
        fill = parcel.add(np.array(colour(self._fill(), spec, "RandomCrop fill"), np.float32))
        offsets = parcel.add(self.offsets(spec, draws))

        def step(batch: Batch) -> None:
            images = batch.images
            if any(pads):
                images = _padded(images, pads, fill.tensor, spec)
            batch.put(crops(images, offsets.tensor, size))

        return step, replace(spec, height=size[0], width=size[1])

    def _size_and_padding(self) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
        return self.size, self.padding  # type: ignore[return-value]  # __post_init__ made them tuples

    def _fill(self) -> tuple[float, ...]:
        return self.fill  # type: ignore[return-value]


def _padded(images: torch.Tensor, pads: tuple[int, int, int, int], fill: torch.Tensor, spec: Spec) -> torch.Tensor:
    left, top, right, bottom = pads
    shape = (spec.n, spec.channels, spec.height + top + bottom, spec.width + left + right)
    out = torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=spec.memory_format)
    out.copy_(fill.view(1, -1, 1, 1).expand(shape))
    out[:, :, top : top + spec.height, left : left + spec.width] = images
    return out

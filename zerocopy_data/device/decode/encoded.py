"""An image column of a batch whose pixels a decoder is yet to make."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# The columns of a geometry.
CUT = slice(0, 4)  # y, x, height, width of the cut out of the stored picture
RESIZED = slice(4, 6)  # height and width that the cut is resized to, as a whole
CORNER = slice(6, 8)  # top and left of the part of that which is kept; its size is the batch's
FLIP = 8  # whether it is mirrored


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """What stands for an image column in a batch of the thread engine: JPEGs, and what is to be done with each.

    Random parameters have been drawn from the loader's own keyed generator: they are those of the CPU path. Some images
    come decoded: those that not every decoder takes or takes alike (PNG, CMYK, turned by EXIF, …), and those that the
    split of the work gives to the CPU.

    Attributes:
        block: uint8 [bytes] in host memory: the JPEGs, one after another. Holds its slot's lease.
        offsets: int64 [encoded + 1], where each begins in the block and where the last ends.
        geometry: int32 [encoded, 9]: see CUT, RESIZED, CORNER and FLIP.
        places: int64 [encoded], each one's place in the batch, rising.
        pixels: uint8 [decoded, height, width, 3] in host memory.
        pixel_places: int64 [decoded], likewise.
        height: Of every image of the batch.
        width: Likewise.
        interpolation: 'nearest', 'bilinear' or 'bicubic', with antialiasing.
        rows: int64 [images]: their rows in the dataset, for reports.
        remake: Makes the whole batch again with the CPU's decoder, and lists the samples that were found bad only now.
            For when a decoder refuses this one; raises BadSampleError where that is the loader's policy.
        wrap: Gives what stands in the batch for the decoded images, uint8 [images, 3, height, width].
    """

    block: torch.Tensor
    offsets: npt.NDArray[np.int64]
    geometry: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]
    pixels: torch.Tensor
    pixel_places: npt.NDArray[np.int64]
    height: int
    width: int
    interpolation: str
    rows: npt.NDArray[np.int64]
    remake: Callable[[], tuple[Any, list[Any]]]
    wrap: Callable[[torch.Tensor], Any]

    def __len__(self) -> int:
        """Images in the batch."""
        return len(self.places) + len(self.pixel_places)

    @property
    def encoded(self) -> int:
        """Images that are yet to be decoded."""
        return len(self.places)

    def streams(self) -> list[npt.NDArray[np.uint8]]:
        """The JPEGs as views of the block, nothing copied: backends want an object for each."""
        flat = self.block.numpy()
        ends = self.offsets.tolist()
        return [flat[begin:end] for begin, end in itertools.pairwise(ends)]

    def merged(self, decoded: torch.Tensor) -> torch.Tensor:
        """The whole batch.

        Args:
            decoded: uint8 [encoded, height, width, 3] on the decoder's device.

        Returns:
            uint8 [images, height, width, 3] on that device; what was given where nothing has to join it.
        """
        if not len(self.pixel_places):
            return decoded
        pixels = self.pixels.to(decoded.device, non_blocking=True)
        if not self.encoded:
            return pixels
        out = torch.empty((len(self), self.height, self.width, 3), dtype=torch.uint8, device=decoded.device)
        # From pageable memory: the driver takes them along with the command, and nothing waits.
        out[torch.from_numpy(self.places).to(out.device, non_blocking=True)] = decoded
        out[torch.from_numpy(self.pixel_places).to(out.device, non_blocking=True)] = pixels
        return out

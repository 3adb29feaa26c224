"""Random erasing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...errors import ConfigError
from .batch import Spec
from .checks import colour, limits, numbers, probability
from .noise import normals
from .op import Draws, Rows, Step, on_rows
from .parcel import Parcel
from .rectangle import inside

_TRIES = 10


@dataclass(frozen=True)
class RandomErasing:
    """Overwrites a random rectangle of some images (Zhong et al., "Random erasing data augmentation", AAAI 2020).

    torchvision.transforms.v2.RandomErasing, each sample by itself: with probability `p` up to ten tries for a rectangle
    that is smaller than the image in height and width; when none is, the image stays.

    Attributes:
        p: Probability.
        scale: Limits of the rectangle's share of the image.
        ratio: Limits of its height over its width; the logarithm is uniform.
        value: What is written: a number, one a channel, or 'random' for a normal number each, mean 0 and deviation 1.
            'random' is for normalised floats.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: Any = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p, "RandomErasing"))
        object.__setattr__(self, "scale", limits(self.scale, 0.0, 1.0, "RandomErasing scale"))
        ratio = limits(self.ratio, 0.0, math.inf, "RandomErasing ratio")
        if not 0 < ratio[0] <= ratio[1] < math.inf:
            raise ConfigError(f"RandomErasing(ratio={self.ratio!r}): two positive numbers, the smaller first.")
        object.__setattr__(self, "ratio", ratio)
        if isinstance(self.value, str):
            if self.value != "random":
                raise ConfigError(f"RandomErasing(value={self.value!r}): the only word is 'random'.")
        else:
            object.__setattr__(self, "value", numbers(self.value, "RandomErasing value"))

    def boxes(self, spec: Spec, draws: Draws) -> npt.NDArray[np.int64]:
        """int64 [n, 4]: top, left, height and width of what each sample loses; all 0 for nothing."""
        drawn = draws.uniform(3 + 2 * _TRIES)
        shares, ratios = drawn[:, 3 : 3 + _TRIES], drawn[:, 3 + _TRIES :]
        area = spec.height * spec.width * (self.scale[0] + (self.scale[1] - self.scale[0]) * shares)
        low, high = (math.log(limit) for limit in self.ratio)
        aspect = np.exp(low + (high - low) * ratios)
        heights, widths = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
        fits = (heights < spec.height) & (widths < spec.width)
        chosen = (np.arange(spec.n), fits.argmax(axis=1))  # the first try that fits
        height, width = heights[chosen], widths[chosen]
        top, left = np.floor(drawn[:, 1] * (spec.height - height + 1)), np.floor(drawn[:, 2] * (spec.width - width + 1))
        happens = fits.any(axis=1) & (drawn[:, 0] < self.p)
        return np.where(happens[:, None], np.stack([top, left, height, width], axis=1), 0).astype(np.int64)

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        random = self.value == "random"
        if random and not spec.is_float:
            raise ConfigError(
                "RandomErasing(value='random') writes normal numbers around 0, which uint8 images can't hold. "
                "Put Normalize before it."
            )
        boxes = self.boxes(spec, draws)
        rows = Rows((boxes[:, 2] > 0) & (boxes[:, 3] > 0), parcel)
        chosen = rows.add(boxes)
        if random:
            keys = rows.add((draws.following(1 << 16).uniform(1)[:, 0] * 2.0**53).astype(np.int64))
            fills = (keys,)
        else:
            values = np.array(colour(self.value, spec, "RandomErasing value"), np.float32)
            fills = (rows.add(np.broadcast_to(values, (spec.n, spec.channels))),)

        def erase(images: torch.Tensor, box: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
            if random:
                value = normals(fill, spec.channels, spec.height, spec.width)
            else:
                value = fill.view(-1, spec.channels, 1, 1)
            return torch.where(inside(box, spec.height, spec.width), value.to(images.dtype), images)

        return lambda batch: on_rows(batch, rows, erase, chosen, *fills), spec

"""CutMix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from .batch import Batch, Spec
from .mixing import beta, checked_alpha, checked_classes, mixed_labels
from .op import Draws, Floats, Step, ratios
from .parcel import Parcel
from .rectangle import inside


@dataclass(frozen=True)
class CutMix:
    """Puts a rectangle of each image's partner over it, and mixes the labels by area (Yun et al., "CutMix", ICCV 2019).

    torchvision.transforms.v2.CutMix, except that every sample draws its own rectangle. The partner of place i of the
    batch is place i - 1, that of place 0 the last. Labels become soft, [n, num_classes].

    Attributes:
        alpha: The rectangle's share is one less a number from Beta(alpha, alpha), before it is cut at the border.
        num_classes: Of the labels; None when they come soft.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha, "CutMix"))
        checked_classes(self.num_classes, "CutMix")

    def draw(self, spec: Spec, draws: Draws) -> tuple[npt.NDArray[np.int64], Floats]:
        """Each sample's rectangle.

        Returns:
            int64 [n, 4], top, left, height and width; and float64 [n], the share of the image that stays.
        """
        drawn = draws.uniform(4)
        middle_x, middle_y = np.floor(drawn[:, 2] * spec.width), np.floor(drawn[:, 3] * spec.height)
        half = 0.5 * np.sqrt(1.0 - beta(drawn[:, :2], self.alpha))
        half_x, half_y = np.trunc(half * spec.width), np.trunc(half * spec.height)
        left, right = np.maximum(middle_x - half_x, 0), np.minimum(middle_x + half_x, spec.width)
        top, bottom = np.maximum(middle_y - half_y, 0), np.minimum(middle_y + half_y, spec.height)
        kept = 1.0 - (right - left) * (bottom - top) / (spec.width * spec.height)
        return np.stack([top, left, bottom - top, right - left], axis=1).astype(np.int64), kept

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        boxes, kept = self.draw(spec, draws)
        box, share = parcel.add(boxes), parcel.add(ratios(kept))

        def step(batch: Batch) -> None:
            batch.labels = mixed_labels(batch.labels, share.tensor, self.num_classes, "CutMix")
            cut = inside(box.tensor, spec.height, spec.width)
            batch.put(torch.where(cut, batch.images.roll(1, 0), batch.images))

        return step, spec

"""MixUp."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ConfigError
from .batch import Batch, Spec
from .mixing import beta, checked_alpha, checked_classes, mixed_labels
from .op import Draws, Floats, Step, ratios
from .parcel import Parcel


@dataclass(frozen=True)
class MixUp:
    """Adds to each image a share of its partner, and mixes the labels alike (Zhang et al., "mixup", ICLR 2018).

    torchvision.transforms.v2.MixUp, except that every sample draws its own share, from Beta(alpha, alpha). The partner
    of place i of the batch is place i - 1, that of place 0 the last. Labels become soft, [n, num_classes]. For floats.

    Attributes:
        alpha: Of the distribution.
        num_classes: Of the labels; None when they come soft.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha, "MixUp"))
        checked_classes(self.num_classes, "MixUp")

    def draw(self, draws: Draws) -> Floats:
        """float64 [n]: the share that each sample keeps of itself."""
        return beta(draws.uniform(2), self.alpha)

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        if not spec.is_float:
            raise ConfigError("MixUp adds up images, and uint8 can't hold fractions. Put Normalize before it.")
        kept = parcel.add(ratios(self.draw(draws)))

        def step(batch: Batch) -> None:
            batch.labels = mixed_labels(batch.labels, kept.tensor, self.num_classes, "MixUp")
            own, rest = kept.tensor.view(-1, 2, 1, 1, 1).unbind(1)
            images: torch.Tensor = batch.images
            # Each product is rounded to the images' dtype, as where the factor is one number for all.
            batch.put(images.roll(1, 0).mul_(rest).add_((images * own).to(images.dtype)))

        return step, spec

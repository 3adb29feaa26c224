"""Mirroring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .batch import Spec
from .checks import probability
from .op import Draws, Rows, Step, on_rows
from .parcel import Parcel


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors left and right with probability `p` (torchvision.transforms.v2.RandomHorizontalFlip)."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p, "RandomHorizontalFlip"))

    def flips(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """bool [n]: which samples are mirrored."""
        return draws.uniform(1)[:, 0] < self.p

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        rows = Rows(self.flips(draws), parcel)
        return lambda batch: on_rows(batch, rows, lambda images: images.flip(-1)), spec

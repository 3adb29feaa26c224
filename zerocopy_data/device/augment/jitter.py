"""Colour jitter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError
from . import colour
from .batch import Batch, Spec
from .checks import NUMBER, limits
from .op import Draws, Floats, Rows, Step, on_rows, ratios
from .parcel import Parameter, Parcel

_CHANGES = {
    "brightness": colour.brightness,
    "contrast": colour.contrast,
    "saturation": colour.saturation,
    "hue": colour.hue,
}


@dataclass(frozen=True)
class ColorJitter:
    """Changes brightness, contrast, saturation and hue of each image, in an order of its own.

    torchvision.transforms.v2.ColorJitter, except that every sample draws its own factors and its own order. On floats
    it works on values from 0 to 1, so it belongs before Normalize.

    Attributes:
        brightness: A factor is uniform in [max(0, 1 - b), 1 + b], or in a given (least, most); None leaves it out.
        contrast: Likewise.
        saturation: Likewise.
        hue: Uniform in [-h, h], at most 0.5, or in a given (least, most), in turns of the wheel.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name in _CHANGES:
            object.__setattr__(self, name, _range(getattr(self, name), name))

    def draw(self, draws: Draws) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Each sample's parameters.

        Returns:
            float64 [n, 4], its brightness, contrast, saturation and hue; and int64 [n, 4], which of them comes first,
            second, and so on.
        """
        numbers = draws.uniform(8)
        ranges = np.array([getattr(self, name) or (1.0, 1.0) for name in _CHANGES])
        factors: Floats = ranges[:, 0] + (ranges[:, 1] - ranges[:, 0]) * numbers[:, :4]
        order = np.argsort(numbers[:, 4:], axis=1).astype(np.int64)
        return factors, order

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        factors, order = self.draw(draws)
        jobs: list[tuple[str, Rows, Parameter]] = []
        for place in range(4):
            for kind, name in enumerate(_CHANGES):
                # Hue and saturation say nothing about one channel.
                if getattr(self, name) is None or (spec.channels == 1 and kind > 1):
                    continue
                rows = Rows(order[:, place] == kind, parcel)
                values = factors[:, kind].astype(np.float32) if name == "hue" else ratios(factors[:, kind])
                jobs.append((name, rows, rows.add(values)))

        def step(batch: Batch) -> None:
            for name, rows, values in jobs:
                on_rows(batch, rows, _CHANGES[name], values)

        return step, spec


def _range(value: float | Sequence[float] | None, name: str) -> tuple[float, float] | None:
    if value is None:
        return None
    centre, least, most = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
    if isinstance(value, NUMBER):
        if not value >= 0:
            raise ConfigError(f"ColorJitter({name}={value!r}): a number that is not negative, or (least, most).")
        value = (centre - value if name == "hue" else max(0.0, centre - value), centre + value)
    low, high = limits(value, least, most, f"ColorJitter {name}")
    return None if low == high == centre else (low, high)

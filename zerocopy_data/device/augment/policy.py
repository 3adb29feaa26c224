"""RandAugment and TrivialAugment: which operations an image undergoes, and how strongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ...errors import ConfigError
from . import colour, geometry
from .batch import Batch, Spec
from .checks import colour as checked_colour
from .checks import numbers
from .op import Draws, Floats, Rows, Step, on_rows, ratios
from .parcel import Parameter, Parcel
from .torchvision import functional

# torchvision's names, in its order.
KINDS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
_SIGNED = np.array([1 <= kind <= 9 for kind in range(len(KINDS))])
_MATRICES: dict[str, Callable[[Floats, int, int], Floats]] = {
    "ShearX": geometry.shear_x,
    "ShearY": geometry.shear_y,
    "TranslateX": geometry.translate_x,
    "TranslateY": geometry.translate_y,
    "Rotate": geometry.rotate,
}
_RATIOS = {
    "Brightness": colour.brightness,
    "Color": colour.saturation,
    "Contrast": colour.contrast,
    "Sharpness": colour.sharpness,
}
_INTERPOLATIONS = ("nearest", "bilinear")

Strengths: TypeAlias = npt.NDArray[np.float64]  # [kinds, bins]


@dataclass(frozen=True)
class Choice:
    """What each sample undergoes in one round.

    Attributes:
        kinds: int64 [n], places in KINDS.
        magnitudes: float64 [n], signed.
    """

    kinds: npt.NDArray[np.int64]
    magnitudes: Floats


@dataclass(frozen=True)
class RandAugment:
    """Random operations one after another on each image, all of one strength (Cubuk et al., "RandAugment", 2020).

    torchvision.transforms.v2.RandAugment, each sample by itself. On floats it works on values from 0 to 1, so it
    belongs before Normalize. Needs torchvision, for one of the operations (equalising).

    Attributes:
        num_ops: Operations an image.
        magnitude: Their strength, a place among the bins.
        num_magnitude_bins: How many strengths there are.
        interpolation: 'nearest' or 'bilinear', or torchvision's InterpolationMode.
        fill: What comes in from outside: a number, or one a channel; None for zeros.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.num_ops, int) or self.num_ops < 0:
            raise ConfigError(f"RandAugment(num_ops={self.num_ops!r}): an int from 0.")
        _check(self, "RandAugment")
        if not isinstance(self.magnitude, int) or not 0 <= self.magnitude < self.num_magnitude_bins:
            raise ConfigError(
                f"RandAugment(magnitude={self.magnitude!r}): an int from 0 to {self.num_magnitude_bins - 1}, below "
                "num_magnitude_bins."
            )

    def draw(self, spec: Spec, draws: Draws) -> list[Choice]:
        """One choice per sample a round."""
        strengths = _strengths(
            self.num_magnitude_bins, 0.3, 150 / 331 * spec.width, 150 / 331 * spec.height, 30.0, 0.9, 4
        )  # fmt: skip
        drawn = draws.uniform(2 * self.num_ops)
        bins = np.full(spec.n, self.magnitude)
        return [_choice(strengths, drawn[:, i], bins, drawn[:, i + 1]) for i in range(0, 2 * self.num_ops, 2)]

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        return _plan(self, self.draw(spec, draws), spec, parcel)


@dataclass(frozen=True)
class TrivialAugmentWide:
    """One random operation of random strength on each image (Müller and Hutter, "TrivialAugment", ICCV 2021).

    torchvision.transforms.v2.TrivialAugmentWide, each sample by itself. On floats it works on values from 0 to 1, so it
    belongs before Normalize. Needs torchvision, for one of the operations (equalising).

    Attributes:
        num_magnitude_bins: How many strengths there are.
        interpolation: 'nearest' or 'bilinear', or torchvision's InterpolationMode.
        fill: What comes in from outside: a number, or one a channel; None for zeros.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check(self, "TrivialAugmentWide")

    def draw(self, spec: Spec, draws: Draws) -> list[Choice]:
        """One choice per sample, in one round."""
        strengths = _strengths(self.num_magnitude_bins, 0.99, 32.0, 32.0, 135.0, 0.99, 6)
        drawn = draws.uniform(3)
        bins = (drawn[:, 2] * self.num_magnitude_bins).astype(np.int64)
        return [_choice(strengths, drawn[:, 0], bins, drawn[:, 1])]

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`."""
        return _plan(self, self.draw(spec, draws), spec, parcel)


def _check(op: RandAugment | TrivialAugmentWide, name: str) -> None:
    functional()  # says now that torchvision is missing, not at the first batch that needs it
    bins = op.num_magnitude_bins
    if not isinstance(bins, int) or bins < 2:
        raise ConfigError(f"{name}(num_magnitude_bins={bins!r}): an int from 2.")
    mode = getattr(op.interpolation, "value", op.interpolation)
    if mode not in _INTERPOLATIONS:
        raise ConfigError(f"{name}(interpolation={op.interpolation!r}): use 'nearest' or 'bilinear'.")
    object.__setattr__(op, "interpolation", mode)
    if op.fill is not None:
        object.__setattr__(op, "fill", numbers(op.fill, f"{name} fill"))


def _strengths(bins: int, shear: float, across: float, down: float, turn: float, factor: float, bits: int) -> Strengths:
    """float64 [kinds, bins], of torch in float32: numpy's steps differ in the last bit, and ints are cut from them."""
    rising = {
        "ShearX": shear, "ShearY": shear, "TranslateX": across, "TranslateY": down, "Rotate": turn,
        "Brightness": factor, "Color": factor, "Contrast": factor, "Sharpness": factor,
    }  # fmt: skip
    made = {kind: torch.linspace(0.0, most, bins) for kind, most in rising.items()}
    made["Posterize"] = (8 - torch.arange(bins) / ((bins - 1) / bits)).round()
    made["Solarize"] = torch.linspace(1.0, 0.0, bins)
    return np.stack([made.get(kind, torch.zeros(bins)).double().numpy() for kind in KINDS])


def _choice(strengths: Strengths, which: Floats, bins: npt.NDArray[np.int64], sign: Floats) -> Choice:
    kinds = (which * len(KINDS)).astype(np.int64)
    magnitudes = strengths[kinds, bins]
    return Choice(kinds, np.where(_SIGNED[kinds] & (sign <= 0.5), -magnitudes, magnitudes))


def _plan(op: RandAugment | TrivialAugmentWide, choices: list[Choice], spec: Spec, parcel: Parcel) -> tuple[Step, Spec]:
    fill: Any = () if op.fill is None else checked_colour(op.fill, spec, f"{type(op).__name__} fill")  # type: ignore[arg-type]
    filling = parcel.add(np.array(fill, np.float32))
    rounds = [_round(choice, spec, parcel) for choice in choices]

    def step(batch: Batch) -> None:
        def warp(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
            return geometry.warp(images, matrices, op.interpolation, filling.tensor)

        for jobs in rounds:
            for rows, change, parameters in jobs:
                on_rows(batch, rows, change or warp, *parameters)

    return step, spec


# None stands for the warp, which needs what is known only later.
_Job: TypeAlias = tuple[Rows, Callable[..., torch.Tensor] | None, tuple[Parameter, ...]]


def _round(choice: Choice, spec: Spec, parcel: Parcel) -> list[_Job]:
    """The samples of a round by what is done to them. All that only moves pixels is one group."""
    of_kind = {kind: choice.kinds == place for place, kind in enumerate(KINDS)}
    moved = np.zeros(spec.n, bool)
    matrices = np.zeros((spec.n, 2, 3))
    for kind, make in _MATRICES.items():
        mask = of_kind[kind]
        moved |= mask
        matrices[mask] = make(choice.magnitudes[mask], spec.height, spec.width)
    rows = Rows(moved, parcel)
    jobs: list[_Job] = [(rows, None, (rows.add(geometry.for_grid(matrices, spec.height, spec.width)),))]
    for kind, blend in _RATIOS.items():
        rows = Rows(of_kind[kind], parcel)
        jobs.append((rows, blend, (rows.add(ratios(1.0 + choice.magnitudes)),)))
    rows = Rows(of_kind["Posterize"], parcel)
    jobs.append((rows, colour.posterize, (rows.add(choice.magnitudes.astype(np.int64)),)))
    rows = Rows(of_kind["Solarize"], parcel)
    bound = 1.0 if spec.is_float else 255.0
    jobs.append((rows, colour.solarize, (rows.add((bound * choice.magnitudes).astype(np.float32)),)))
    jobs.append((Rows(of_kind["AutoContrast"], parcel), colour.autocontrast, ()))
    jobs.append((Rows(of_kind["Equalize"], parcel), colour.equalize, ()))
    return [job for job in jobs if job[0].count]

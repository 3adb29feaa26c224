"""Image operations as declarations: torchvision's names, arguments and distributions, checked at construction.

They do nothing by themselves: `image.program` turns a chain of them into one native call. Random parameters depend on
(seed, epoch, sample) only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import ConfigError

Size: TypeAlias = int | tuple[int, int]

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of [0, 1] pixels, as torchvision's reference training uses
IMAGENET_STD = (0.229, 0.224, 0.225)

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling


def _interpolation(value: Any) -> str:
    """'bilinear' from itself, from torchvision's InterpolationMode or from PIL's Resampling."""
    value = getattr(value, "value", value)
    name = _PIL_FILTERS.get(value, value) if isinstance(value, int) else value
    if name not in _INTERPOLATIONS:
        raise ConfigError(f"interpolation {value!r} is not supported. Use one of: {', '.join(_INTERPOLATIONS)}.")
    return str(name)


def _antialias(value: Any, op: str) -> None:
    if value is False:
        raise ConfigError(
            f"{op}(antialias=False) is not supported: pixels equal Pillow's, and Pillow antialiases. Leave it out, "
            "or use interpolation='nearest'."
        )


def _pair(size: Any, op: str) -> tuple[int, int]:
    """(height, width) from an int (a square) or a sequence of one or two."""
    values = list(size) if isinstance(size, Sequence) else [size, size]
    if len(values) == 1:
        values *= 2
    if len(values) != 2 or not all(isinstance(n, int) and 1 <= n <= 65535 for n in values):
        raise ConfigError(f"{op} size must be a positive int or (height, width), not {size!r}.")
    return values[0], values[1]


def _probability(p: float, op: str) -> float:
    if not 0.0 <= p <= 1.0:
        raise ConfigError(f"{op}(p={p!r}): a probability lies between 0 and 1.")
    return float(p)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crops a random area of a random aspect ratio and resizes it to `size`.

    torchvision.transforms.RandomResizedCrop: ten tries for an area share uniform in `scale` and an aspect ratio
    log-uniform in `ratio`, then the largest centred crop within the ratios.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "RandomResizedCrop"))
        object.__setattr__(self, "interpolation", _interpolation(self.interpolation))
        _antialias(self.antialias, "RandomResizedCrop")
        for name in ("scale", "ratio"):
            low, high = (float(n) for n in getattr(self, name))
            if not (0 < low <= high and math.isfinite(high)):
                raise ConfigError(f"RandomResizedCrop({name}={(low, high)}): two positive numbers, smaller first.")
            object.__setattr__(self, name, (low, high))


@dataclass(frozen=True)
class RandomCrop:
    """Crops `size` at a random place, after padding with a constant (torchvision.transforms.RandomCrop)."""

    size: Size
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | tuple[int, int, int] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "RandomCrop"))
        if self.padding_mode != "constant":
            raise ConfigError(f"RandomCrop(padding_mode={self.padding_mode!r}): only 'constant' is supported.")
        pad = (
            [0]
            if self.padding is None
            else list(self.padding)
            if isinstance(self.padding, Sequence)
            else [self.padding]
        )
        if len(pad) not in (1, 2, 4) or not all(isinstance(n, int) and 0 <= n <= 65535 for n in pad):
            raise ConfigError(f"RandomCrop(padding={self.padding!r}): an int, (x, y) or (left, top, right, bottom).")
        object.__setattr__(self, "padding", tuple(pad * (4 // len(pad))))
        fill = tuple(self.fill) if isinstance(self.fill, Sequence) else (self.fill,) * 3
        if len(fill) != 3 or not all(isinstance(n, int) and 0 <= n <= 255 for n in fill):
            raise ConfigError(f"RandomCrop(fill={self.fill!r}): an int or three, each 0 to 255.")
        object.__setattr__(self, "fill", fill)


@dataclass(frozen=True)
class CenterCrop:
    """Crops `size` from the middle; a smaller image is padded with zeros (torchvision.transforms.CenterCrop)."""

    size: Size

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "CenterCrop"))


@dataclass(frozen=True)
class Resize:
    """Resizes to (height, width), or the shorter side to an int, keeping the ratio (torchvision.transforms.Resize)."""

    size: int | Sequence[int]
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool | None = True

    def __post_init__(self) -> None:
        height, width = _pair(self.size, "Resize")
        one = isinstance(self.size, int) or len(self.size) == 1
        object.__setattr__(self, "size", height if one else (height, width))
        object.__setattr__(self, "interpolation", _interpolation(self.interpolation))
        _antialias(self.antialias, "Resize")
        if self.max_size is not None and (not one or self.max_size <= height):
            raise ConfigError(
                f"Resize(size={self.size!r}, max_size={self.max_size!r}): max_size goes with one int as size and is "
                "larger than it."
            )


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors left and right with probability `p`."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", _probability(self.p, "RandomHorizontalFlip"))


@dataclass(frozen=True)
class ToDtype:
    """Converts to a dtype, and chooses how the result lies in memory.

    Attributes:
        dtype: 'uint8', 'float16' or 'float32', as a string or torch's dtype; None keeps it.
        scale: Whether uint8 values are mapped to [0, 1].
        memory_format: 'contiguous' or 'channels_last' (or torch's memory formats). The shape stays [3, H, W].
    """

    dtype: Any = None
    scale: bool = False
    memory_format: Any = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            name = str(getattr(self.dtype, "name", self.dtype)).removeprefix("torch.")
            if name not in ("uint8", "float16", "float32"):
                raise ConfigError(f"ToDtype({self.dtype!r}): use 'uint8', 'float16' or 'float32'.")
            object.__setattr__(self, "dtype", name)
        if self.memory_format is not None:
            name = str(self.memory_format).removeprefix("torch.").removesuffix("_format")
            if name not in ("contiguous", "channels_last"):
                raise ConfigError(
                    f"ToDtype(memory_format={self.memory_format!r}): use 'contiguous' or 'channels_last'."
                )
            object.__setattr__(self, "memory_format", name)


@dataclass(frozen=True)
class Normalize:
    """Subtracts `mean` and divides by `std`, a channel each, in float32. uint8 pixels are mapped to [0, 1] first.

    The defaults are ImageNet's.
    """

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    inplace: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = tuple(float(n) for n in getattr(self, name))
            if len(values) == 1:
                values *= 3
            if len(values) != 3 or not all(math.isfinite(n) for n in values):
                raise ConfigError(f"Normalize({name}={values}): three finite numbers.")
            object.__setattr__(self, name, values)
        if 0.0 in self.std:
            raise ConfigError(f"Normalize(std={self.std}): no deviation may be zero.")


@dataclass(frozen=True, init=False)
class MultiCrop:
    """Several views of each image from one decode, for self-supervised training. The only operation of its chain.

    Example:
        zcd.MultiCrop(
            [zcd.RandomResizedCrop(224, scale=(0.4, 1.0)), zcd.RandomHorizontalFlip(), zcd.Normalize()],
            [zcd.RandomResizedCrop(96, scale=(0.05, 0.4)), zcd.RandomHorizontalFlip(), zcd.Normalize()],
        )

    Every view draws its own random parameters. The column becomes a list with one tensor a view.
    """

    views: tuple[tuple[Any, ...], ...]

    def __init__(self, *views: Sequence[Any]) -> None:
        if not views or not all(isinstance(view, list | tuple) for view in views):
            raise ConfigError("MultiCrop takes one list of operations per view, at least one.")
        object.__setattr__(self, "views", tuple(tuple(view) for view in views))


ImageOp: TypeAlias = (
    RandomResizedCrop | RandomCrop | CenterCrop | Resize | RandomHorizontalFlip | ToDtype | Normalize | MultiCrop
)
OPS = (RandomResizedCrop, RandomCrop, CenterCrop, Resize, RandomHorizontalFlip, ToDtype, Normalize, MultiCrop)

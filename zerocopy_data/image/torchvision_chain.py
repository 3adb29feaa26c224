"""Reads a chain of torchvision's transforms (v1 and v2) on Pillow images as operations of ours.

torchvision is never imported here: whoever hands over one of its transforms has imported it. Transforms are known by
their class, exactly: a subclass may do anything. What a chain of conversions makes of each byte is not computed but
asked: the user's own transforms convert a picture of all bytes, so that rounding is theirs whatever their version is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import ConfigError
from .ops import CenterCrop, ImageOp, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from .program import Levels

_CONVERSIONS = ("PILToTensor", "ToTensor", "ToImage", "ToPureTensor", "ToDtype", "ConvertImageDtype", "Normalize")
_NOTHING = ("Identity", "RGB")  # of an image that is RGB already
_CONTAINERS = ("Compose", "Sequential")


@dataclass
class Chain:
    """What a transform has become.

    Attributes:
        ops: Its operations, geometry first.
        obstacles: Why it can't be taken, in words, each with the place of the transform; empty where it can.
    """

    ops: list[ImageOp | Levels] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)


def read_chain(transform: Any) -> Chain:
    """Translates a dataset's `transform`."""
    reader = _Reader()
    for place, step in _flat(transform, "transform"):
        reader.take(place, step)
    return reader.finish()


def _known_name(step: Any) -> str | None:
    """The name of a transform's class where it is torchvision's own (or a plain container of torch's), else None."""
    cls = type(step)
    module, name = cls.__module__, cls.__name__
    if getattr(sys.modules.get(module), name, None) is not cls:
        return None
    if module == "torchvision.transforms.transforms" or module.startswith("torchvision.transforms.v2."):
        return name
    return name if (module, name) == ("torch.nn.modules.container", "Sequential") else None


def _flat(step: Any, place: str) -> Iterator[tuple[str, Any]]:
    name = _known_name(step)
    if name in _CONTAINERS and not _altered(step):
        for index, child in enumerate(step.transforms if name == "Compose" else step):
            yield from _flat(child, f"{place}[{index}]")
    else:
        yield place, step


def _altered(step: Any) -> bool:
    """Whether this one object does something else than its class."""
    own = vars(step) if hasattr(step, "__dict__") else {}
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return any(own.get(name) for name in hooks) or any(callable(getattr(type(step), name, None)) for name in own)


def _all_bytes() -> Image.Image:
    """A picture in which every channel has every value once, in order."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    return Image.fromarray(np.stack([levels] * 3, axis=2))


class _Reader:
    """Walks over a chain; knows what its image is at each place."""

    def __init__(self) -> None:
        self._chain = Chain()
        self._probe: Any = _all_bytes()
        self._converted: str | None = None  # the first transform that made a tensor
        self._broken = False  # the probe is worth nothing any more
        self._unsure = False  # a transform that is not known may have made anything of the image

    def take(self, place: str, step: Any) -> None:
        """Takes the next transform."""
        name = _known_name(step)
        label = f"{place} ({type(step).__name__})"
        if _altered(step):
            self._unsure = True
            self._refuse(f"{label} has hooks or methods of its own, which native code would not call")
            return
        if name in _NOTHING:
            return
        if name in _CONVERSIONS:
            self._convert(label, step)
            return
        make = _GEOMETRY.get(name or "")
        if make is None:
            self._unsure = True
            self._refuse(f"{label} has no native counterpart{_advice(step, name)}")
            return
        reason = self._why_not_on_tensors(step, name or "")
        if reason is not None:
            self._refuse(f"{label} {reason}")
            return
        try:
            self._chain.ops.append(make(step))
        except ConfigError as error:
            self._refuse(f"{label}: {error}")

    def _refuse(self, text: str) -> None:
        self._chain.obstacles.append(text)

    def _convert(self, label: str, step: Any) -> None:
        if self._broken:
            return
        try:
            self._probe = step(self._probe)
        except Exception as error:  # whatever torchvision raises on an image that the step doesn't fit
            self._broken = True
            if not self._unsure:
                self._refuse(f"{label} fails on what stands before it: {error}")
            return
        if self._converted is None and not isinstance(self._probe, Image.Image):
            self._converted = label

    def _why_not_on_tensors(self, step: Any, name: str) -> str | None:
        """Why a geometric operation would give other pixels here than before the conversion; None where it doesn't."""
        if self._converted is None or name == "RandomHorizontalFlip":
            return None
        if name in ("Resize", "RandomResizedCrop"):
            return f"resizes a tensor, which gives other pixels than Pillow. Put it before {self._converted}"
        pads = name == "CenterCrop" or step.padding is not None or step.pad_if_needed
        if not pads or (_fill(step) == 0 and self._black_is_zero()):
            return None
        return f"may pad after values were changed. Put it before {self._converted}"

    def _black_is_zero(self) -> bool:
        return self._broken or not bool((self._probe[:, 0, 0] != 0).any())

    def finish(self) -> Chain:
        """The whole chain."""
        if self._broken or self._unsure:
            return self._chain
        if isinstance(self._probe, Image.Image):
            self._refuse(
                "the transform ends with a Pillow image, which can't be collated. Add PILToTensor() or ToTensor()"
            )
            return self._chain
        # isinstance would need torch; only a tensor gets through torchvision's conversions.
        dtype = str(self._probe.dtype).removeprefix("torch.")
        if dtype not in ("uint8", "float16", "float32"):
            self._refuse(f"the transform ends with {dtype}. Use uint8, float16 or float32")
            return self._chain
        values: npt.NDArray[Any] = np.ascontiguousarray(np.asarray(self._probe)).reshape(3, 256)
        if dtype != "uint8":
            self._chain.ops.append(Levels(dtype, values.tobytes()))
        elif not (values == np.arange(256)).all():
            self._refuse("the transform changes uint8 values")
        return self._chain


def _advice(step: Any, name: str | None) -> str:
    if name is None:
        for known in type(step).__mro__[1:]:
            if known.__module__.startswith("torchvision.transforms.") and known.__name__ in _GEOMETRY:
                return f": only torchvision's own {known.__name__} is known, and a subclass may do anything"
        return ": only transforms of torchvision are known"
    return ""


def _interpolation(step: Any) -> Any:
    value = getattr(step.interpolation, "value", step.interpolation)
    return "nearest" if value == "nearest-exact" else value  # one and the same in Pillow


def _fill(step: Any) -> Any:
    fill = getattr(step, "fill", 0)
    if isinstance(fill, list | tuple) and len(set(fill)) == 1:
        return fill[0]
    return 0 if fill is None else fill


def _size(step: Any) -> Any:
    size = step.size
    if size is None:
        raise ConfigError("size=None is not supported. Give the shorter side, or (height, width)")
    return size if isinstance(size, int) else tuple(size)


def _random_crop(step: Any) -> ImageOp:
    padding = step.padding
    if padding is not None and not isinstance(padding, int):
        padding = tuple(padding)
        if type(step).__module__.startswith("torchvision.transforms.v2."):  # there: left, right, top, bottom
            left, right, top, bottom = padding
            padding = (left, top, right, bottom)
    fill = _fill(step)
    if isinstance(fill, dict):
        raise ConfigError(f"fill={fill!r} is not supported. Use a number or three")
    return RandomCrop(_size(step), padding, bool(step.pad_if_needed), fill, str(step.padding_mode))


# antialias is not looked at: on Pillow images torchvision doesn't either, and Pillow always antialiases.
_GEOMETRY: dict[str, Callable[[Any], ImageOp]] = {
    "RandomResizedCrop": lambda step: RandomResizedCrop(
        _size(step), tuple(step.scale), tuple(step.ratio), _interpolation(step)
    ),
    "Resize": lambda step: Resize(_size(step), _interpolation(step), step.max_size),
    "CenterCrop": lambda step: CenterCrop(_size(step)),
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": lambda step: RandomHorizontalFlip(float(step.p)),
}

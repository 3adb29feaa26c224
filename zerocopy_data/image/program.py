"""Turns a chain of declared operations into one native program, and states what comes out before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from .ops import (
    OPS,
    CenterCrop,
    ImageOp,
    MultiCrop,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
)


@dataclass(frozen=True)
class ViewSpec:
    """One output of a sample.

    Attributes:
        dtype: 'uint8', 'float16' or 'float32'.
        size: (height, width), None where it depends on the image.
        channels_last: Whether memory is [H, W, 3]; the shape is [3, H, W] all the same.
    """

    dtype: str
    size: tuple[int, int] | None
    channels_last: bool

    @property
    def stored_shape(self) -> tuple[int, int, int] | None:
        """Shape in memory order, None where it depends on the image."""
        if self.size is None:
            return None
        height, width = self.size
        return (height, width, 3) if self.channels_last else (3, height, width)

    def array(self, flat: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[Any]:
        """One sample's bytes as an array [3, height, width]."""
        values = flat.view(self.dtype)
        if self.channels_last:
            return values.reshape(height, width, 3).transpose(2, 0, 1)
        return values.reshape(3, height, width)


@dataclass(frozen=True)
class Levels:
    """An operation that other people's code has been asked about: what each byte of each channel becomes.

    Attributes:
        dtype: 'float16' or 'float32'.
        values: The values' bytes, [3, 256] of them.
    """

    dtype: str
    values: bytes

    def bits(self) -> npt.NDArray[np.uint32]:
        """[3, 256], a value's bits in the low ones of each."""
        width: Any = np.uint16 if self.dtype == "float16" else np.uint32
        return np.frombuffer(self.values, width).astype(np.uint32).reshape(3, 256)


@dataclass(frozen=True)
class ImageProgram:
    """A chain of operations made ready to run.

    Attributes:
        native: What the core executes.
        views: One spec per output.
        multi: Whether the column is a list of views (MultiCrop).
        random: Whether any operation draws random numbers.
    """

    native: _native.Program
    views: tuple[ViewSpec, ...]
    multi: bool
    random: bool


@dataclass(frozen=True)
class ViewValues:
    """What a view's bytes become behind its geometry, for those who apply it elsewhere (on a device).

    Attributes:
        table: float32 [3, 256], the value of each byte of each channel; its cast to `dtype` loses nothing. None where
            the bytes stay what they are.
        dtype: 'uint8', 'float16' or 'float32'.
        memory_format: 'contiguous' or 'channels_last'.
    """

    table: npt.NDArray[np.float32] | None
    dtype: str
    memory_format: str


def deferred(
    ops: Sequence[ImageOp | Levels],
    orient: bool = True,
    pixel_limit: int = _native.DEFAULT_PIXEL_LIMIT,
    stored_size: tuple[int, int] | None = None,
) -> tuple[ImageProgram, tuple[ViewValues, ...]]:
    """The chain taken apart: its geometry, and what is left to be done to the bytes.

    Args: as `compile_program`.

    Returns:
        A program whose views are uint8 [H, W, 3] in memory, and one ViewValues a view. Looking the program's bytes up
        in the tables gives what `compile_program` gives, in every bit.

    Raises:
        ConfigError: as `compile_program`.
    """
    multi, chains = _chains(ops)
    read = [_read_chain(chain, stored_size) for chain in chains]
    bare = [_Chain(chain.geometry, None, "uint8", "channels_last", chain.size) for chain in read]
    values = tuple(ViewValues(_floats(chain), chain.dtype, chain.memory_format) for chain in read)
    return _program(bare, chains, multi, orient, pixel_limit), values


def compile_program(
    ops: Sequence[ImageOp | Levels],
    orient: bool = True,
    pixel_limit: int = _native.DEFAULT_PIXEL_LIMIT,
    stored_size: tuple[int, int] | None = None,
) -> ImageProgram:
    """Checks a chain and makes its program.

    Args:
        ops: Geometric operations first, then ToDtype and Normalize, or one Levels; or one MultiCrop.
        orient: Whether EXIF orientation is applied.
        pixel_limit: Images with more pixels are refused.
        stored_size: (height, width) of every stored image, None where it varies.

    Raises:
        ConfigError: an operation is unknown or stands in the wrong place.
    """
    multi, chains = _chains(ops)
    return _program([_read_chain(chain, stored_size) for chain in chains], chains, multi, orient, pixel_limit)


@dataclass(frozen=True)
class _Chain:
    """One view's chain: what is done to pixels, then to their bytes."""

    geometry: list[_native.Op]
    bits: npt.NDArray[np.uint32] | None
    dtype: str
    memory_format: str
    size: tuple[int, int] | None


def _chains(ops: Sequence[ImageOp | Levels]) -> tuple[bool, tuple[tuple[Any, ...], ...]]:
    """Whether there are several views, and the operations of each."""
    if len(ops) == 1 and isinstance(ops[0], MultiCrop):
        return True, ops[0].views
    return False, (tuple(ops),)


def _program(
    read: list[_Chain], chains: tuple[tuple[Any, ...], ...], multi: bool, orient: bool, pixel_limit: int
) -> ImageProgram:
    views, specs = [], []
    for chain in read:
        channels_last = chain.memory_format == "channels_last"
        height, width = chain.size or (0, 0)
        layout = "nhwc" if channels_last else "nchw"
        views.append(_native.View(chain.geometry, chain.dtype, layout, chain.bits, height, width))
        specs.append(ViewSpec(chain.dtype, chain.size, channels_last))
    native = _native.Program(views, orient=orient, pixel_limit=pixel_limit, may_go_down_first=_pillow_goes_down_first())
    randoms = (RandomResizedCrop, RandomCrop, RandomHorizontalFlip)
    random = any(isinstance(op, randoms) for chain in chains for op in chain)
    return ImageProgram(native, tuple(specs), multi, random)


def _floats(chain: _Chain) -> npt.NDArray[np.float32] | None:
    """The values of a chain's table: float16 becomes float32, and back, without loss."""
    if chain.bits is None:
        return None
    if chain.dtype == "float16":
        return chain.bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return chain.bits.view(np.float32)


@cache
def _pillow_goes_down_first() -> bool:
    """Pillow 13 changed the order of its passes for some sizes: pixels follow the Pillow that is installed."""
    from importlib.metadata import version

    return int(version("pillow").split(".")[0]) >= 13


def _read_chain(chain: Sequence[Any], size: tuple[int, int] | None) -> _Chain:
    geometry: list[_native.Op] = []
    values: npt.NDArray[np.float32] | None = None  # [3, 256]: what each byte has become, None while still uint8
    dtype, memory_format = "uint8", "contiguous"
    pointwise: str | None = None
    levels: Levels | None = None
    for op in chain:
        if isinstance(op, Levels):
            levels, dtype = op, op.dtype
            continue
        if not isinstance(op, OPS) or isinstance(op, MultiCrop):
            raise ConfigError(_unknown(op))
        name = type(op).__name__
        if isinstance(op, ToDtype):
            values, dtype = _to_dtype(op, values, dtype)
            memory_format = op.memory_format or memory_format
            pointwise = name
        elif isinstance(op, Normalize):
            values = _normalize(op, values)
            dtype = "float32" if dtype == "uint8" else dtype
            pointwise = name
        elif pointwise is not None:
            raise ConfigError(
                f"{name} stands after {pointwise}. Put crops, resizes and flips first: they work on bytes, as Pillow's."
            )
        else:
            geometry.append(_native_op(op))
            size = _size_after(op, size)
    bits = levels.bits() if levels is not None else None if values is None else _bits(values, dtype)
    return _Chain(geometry, bits, dtype, memory_format, size)


def _unknown(op: Any) -> str:
    if isinstance(op, MultiCrop):
        return "MultiCrop must be the only operation of its chain; put the others into its views."
    module = type(op).__module__
    if module.startswith("torchvision."):
        return (
            f"{module.split('.')[0]}'s {type(op).__name__} in a list of operations: use zcd.{type(op).__name__} where "
            "there is one, or give a single callable instead of a list (it then runs in Python, per sample)."
        )
    known = ", ".join(cls.__name__ for cls in OPS)
    return f"{op!r} is no image operation. Known: {known}."


def _to_dtype(
    op: ToDtype, values: npt.NDArray[np.float32] | None, dtype: str
) -> tuple[npt.NDArray[np.float32] | None, str]:
    if op.dtype is None or op.dtype == dtype:
        return values, dtype
    if op.dtype == "uint8":
        raise ConfigError("ToDtype('uint8') after a conversion to float would throw fractions away. Leave it out.")
    if values is None:
        values = np.tile(np.arange(256, dtype=np.float32), (3, 1))
        if op.scale:
            values /= np.float32(255)
    return values, op.dtype


def _normalize(op: Normalize, values: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    if values is None:
        values = np.tile(np.arange(256, dtype=np.float32) / np.float32(255), (3, 1))
    mean, std = (np.array(numbers, np.float32)[:, None] for numbers in (op.mean, op.std))
    return (values - mean) / std


def _bits(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.uint32]:
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _native_op(op: Any) -> _native.Op:
    match op:
        case RandomResizedCrop(size=(height, width)):
            return _native.Op.random_resized_crop(height, width, op.scale, op.ratio, op.interpolation)
        case RandomCrop(size=(height, width), padding=(left, top, right, bottom), fill=(r, g, b)):
            return _native.Op.random_crop(height, width, (left, top, right, bottom), op.pad_if_needed, (r, g, b))
        case CenterCrop(size=(height, width)):
            return _native.Op.center_crop(height, width)
        case Resize(size=(height, width)):
            return _native.Op.resize(height, width, 0, op.interpolation)
        case Resize(size=int() as side):
            return _native.Op.resize(side, None, op.max_size or 0, op.interpolation)
        case RandomHorizontalFlip(p=p):
            return _native.Op.horizontal_flip(p)
    raise AssertionError(op)


def _size_after(op: Any, size: tuple[int, int] | None) -> tuple[int, int] | None:
    match op:
        case RandomHorizontalFlip():
            return size
        case Resize(size=int() as side):
            if size is None:
                return None
            height, width = size
            short, long = min(size), max(size)
            new_short, new_long = side, int(side * long / short)
            if op.max_size is not None and new_long > op.max_size:
                new_short, new_long = int(op.max_size * new_short / new_long), op.max_size
            return (new_long, new_short) if width <= height else (new_short, new_long)
        case _:
            height, width = op.size
            return height, width

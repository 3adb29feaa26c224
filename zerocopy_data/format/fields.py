"""Fields: the logical types of a dataset's columns, and their JSON form in the manifest.

A field says what a column means; `format.columns` says how it lies in Arrow.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeAlias

from ..errors import ConfigError

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)


_ITEM_BYTES = {dtype: 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype))) // 8 for dtype in DTYPES}

# Offsets and sizes within a row group are int32.
MAX_VALUE_BYTES = 2**31 - 1
_MAX_IMAGE_SIDE = 65_535
_MAX_DIMENSIONS = 32


def _sizes(shape: Iterable[object], field: str) -> tuple[int | None, ...]:
    try:
        return tuple(None if n is None else operator.index(n) for n in shape)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"{field} needs a shape of whole numbers, not {reprlib.repr(shape)}.") from None


def _dtype_name(dtype: object, field: str) -> str:
    """'float32' from 'float32', np.float32, np.dtype('float32') or torch.float32."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"{field} cannot hold dtype {dtype!r}. Use one of: {', '.join(DTYPES)}.")
    return name


@dataclass(frozen=True)
class Image:
    """An image: its encoded bytes unchanged, or decoded uint8 pixels of one shape.

    Attributes:
        encoding: 'encoded' (JPEG, PNG, … as the file had them) or 'raw' (uint8 pixels).
        shape: (height, width, 3) for 'raw', None for 'encoded'.
    """

    kind: ClassVar[str] = "image"
    encoding: str = "encoded"
    shape: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.encoding not in ("encoded", "raw"):
            raise ConfigError(f"Image encoding must be 'encoded' or 'raw', not {self.encoding!r}.")
        if self.shape is not None:
            object.__setattr__(self, "shape", _sizes(self.shape, "Image"))
        if self.encoding == "encoded" and self.shape is not None:
            raise ConfigError("Image(encoding='encoded') takes no shape: every image has its own.")
        if self.encoding == "raw":
            sound = (
                self.shape is not None
                and len(self.shape) == 3
                and all(n is not None and 1 <= n <= _MAX_IMAGE_SIDE for n in self.shape)
                and self.shape[2] == 3
                and prod(self.shape) <= MAX_VALUE_BYTES
            )
            if not sound:
                raise ConfigError(
                    f"Image(encoding='raw') needs shape=(height, width, 3) with sides from 1 to {_MAX_IMAGE_SIDE} and "
                    f"less than 2 GiB in all, not {reprlib.repr(self.shape)}."
                )

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"encoding": self.encoding}
        if self.shape is not None:
            options["shape"] = list(self.shape)
        return options


@dataclass(frozen=True)
class Tensor:
    """A numeric array. `shape` gives each dimension's size, None where it varies between samples."""

    kind: ClassVar[str] = "tensor"
    dtype: str
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype, "Tensor"))
        shape = _sizes(self.shape, "Tensor")
        object.__setattr__(self, "shape", shape)
        if not shape:
            raise ConfigError("Tensor needs at least one dimension. For single numbers use Scalar(dtype).")
        if any(n is not None and n < 0 for n in shape) or (None not in shape and 0 in shape):
            raise ConfigError(f"Tensor shape {reprlib.repr(shape)} has a dimension that holds nothing.")
        if len(shape) > _MAX_DIMENSIONS:
            raise ConfigError(f"Tensor has {len(shape)} dimensions; the limit is {_MAX_DIMENSIONS}.")
        if prod(n or 1 for n in shape) * _ITEM_BYTES[self.dtype] > MAX_VALUE_BYTES:
            raise ConfigError(f"Tensor shape {reprlib.repr(shape)} needs 2 GiB or more a value: a row holds less.")

    @property
    def ragged(self) -> bool:
        return None in self.shape

    def options(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Scalar:
    """One number, or a class index when `classes` names the classes in order."""

    kind: ClassVar[str] = "scalar"
    dtype: str = "int64"
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype, "Scalar"))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(str(name) for name in self.classes))
            if self.dtype.startswith("float") or self.dtype == "bool":
                raise ConfigError(f"Scalar with classes holds class indices: dtype {self.dtype} cannot.")

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"dtype": self.dtype}
        if self.classes is not None:
            options["classes"] = list(self.classes)
        return options


@dataclass(frozen=True)
class Text:
    """A Unicode string."""

    kind: ClassVar[str] = "text"

    def options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Bytes:
    """Bytes that this library does not interpret. `media_type` is a note to the reader ('audio/flac')."""

    kind: ClassVar[str] = "bytes"
    media_type: str | None = None

    def __post_init__(self) -> None:
        if self.media_type is not None and not isinstance(self.media_type, str):
            raise ConfigError(f"Bytes needs a str as its media_type, not {reprlib.repr(self.media_type)}.")

    def options(self) -> dict[str, Any]:
        return {} if self.media_type is None else {"media_type": self.media_type}


@dataclass(frozen=True)
class Tokens:
    """A sequence of token ids whose length varies between samples."""

    kind: ClassVar[str] = "tokens"
    dtype: str = "int32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype, "Tokens"))
        if "int" not in self.dtype:
            raise ConfigError(f"Tokens are integers: dtype {self.dtype} cannot hold them.")

    def options(self) -> dict[str, Any]:
        return {"dtype": self.dtype}


@dataclass(frozen=True)
class Json:
    """Any value that JSON can write."""

    kind: ClassVar[str] = "json"

    def options(self) -> dict[str, Any]:
        return {}


Field: TypeAlias = Image | Tensor | Scalar | Text | Bytes | Tokens | Json

_KINDS: dict[str, type[Field]] = {cls.kind: cls for cls in (Image, Tensor, Scalar, Text, Bytes, Tokens, Json)}


def field_to_json(field: Field) -> dict[str, Any]:
    """{'kind': …, options…}: what the manifest and the shard's schema metadata hold."""
    return {"kind": field.kind, **field.options()}


def field_from_json(value: Any) -> Field:
    """The inverse of `field_to_json`.

    Raises:
        ConfigError: an unknown kind or options that the field refuses.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"unknown field {reprlib.repr(value)}. Known kinds: {', '.join(_KINDS)}.")
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items() if name != "kind"}
    try:
        make: Callable[..., Field] = _KINDS[kind]
        return make(**options)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"field {reprlib.repr(value)} cannot be used: {error}") from error


def check_fields(fields: Mapping[str, Field]) -> dict[str, Field]:
    """The fields as a plain dict, after checking names and types.

    A dot is kept for the columns that the library adds (`image.width`).
    """
    if not fields:
        raise ConfigError("a dataset needs at least one field, for example {'label': zcd.Scalar('int64')}.")
    for name, field in fields.items():
        if not isinstance(name, str) or not name or "." in name:
            raise ConfigError(f"field name {name!r} must be a non-empty string without a dot.")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"field name {name!r} is no text that UTF-8 can write.") from None
        if not isinstance(field, tuple(_KINDS.values())):
            raise ConfigError(f"field {name!r} must be one of zcd's fields, not {field!r}.")
    return dict(fields)

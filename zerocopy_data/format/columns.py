"""How each field lies in Arrow: its columns, and the encoding of Python and numpy values into them.

Every column is without nulls and without compression, so that a mapped shard is a set of views:

    Image encoded    NAME struct<bytes: binary, path: string>, NAME.width int32, NAME.height int32
    Image raw        NAME fixed_shape_tensor<uint8>
    Tensor fixed     NAME fixed_shape_tensor
    Tensor ragged    NAME list, NAME.shape fixed_size_list<int32>
    Scalar           NAME primitive
    Text, Json       NAME string
    Bytes            NAME binary
    Tokens           NAME list

and last of each field NAME.crc32c uint32, CRC-32C of the value's bytes in NAME (of a ragged tensor: followed by
those in NAME.shape), so that no flipped bit of a label goes into a training run unnoticed.

The struct is Hugging Face's storage of an image: `datasets` takes the features in the metadata only where
the column's type, nullability included, is exactly theirs. Its `path` is always null.

Booleans are stored as uint8: Arrow packs its own into bits, which no view can show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _native
from .fields import Bytes, Field, Image, Json, Scalar, Tensor, Text, Tokens, field_to_json
from .huggingface import features_of
from .integrity import crc32c_each, crc32c_rows
from .probe import BadImageError, image_size

# Offsets are int32, so one row group cannot hold more in one column.
MAX_COLUMN_BYTES = 2**31 - 1

IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class BadValueError(ValueError):
    """A value that its field cannot store; `index` is its place in the values that were given."""

    def __init__(self, index: int | None, reason: str) -> None:
        self.index = index
        super().__init__(reason)


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype that lies on disk for a field's dtype, little-endian."""
    return np.dtype("uint8" if dtype == "bool" else dtype)


def arrow_columns(name: str, field: Field) -> list[pa.Field]:
    """The Arrow fields of one field, its main column first, its checksum last."""
    return [*_value_columns(name, field), pa.field(f"{name}.crc32c", pa.uint32())]


def _value_columns(name: str, field: Field) -> list[pa.Field]:
    def column(suffix: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name + suffix, kind)

    match field:
        case Image(encoding="raw", shape=shape) if shape is not None:
            pixels = pa.fixed_shape_tensor(pa.uint8(), list(shape))
            return [column("", pixels)]
        case Image():
            return [column("", IMAGE_TYPE), column(".width", pa.int32()), column(".height", pa.int32())]
        case Tensor(ragged=True):
            items = pa.list_(pa.from_numpy_dtype(stored_dtype(field.dtype)))
            shape_type = pa.list_(pa.from_numpy_dtype(np.dtype("int32")), len(field.shape))
            return [column("", items), column(".shape", shape_type)]
        case Tensor():
            value_type = pa.from_numpy_dtype(stored_dtype(field.dtype))
            return [column("", pa.fixed_shape_tensor(value_type, [n for n in field.shape if n is not None]))]
        case Scalar():
            return [column("", pa.from_numpy_dtype(stored_dtype(field.dtype)))]
        case Tokens():
            return [column("", pa.list_(pa.from_numpy_dtype(stored_dtype(field.dtype))))]
        case Bytes():
            return [column("", pa.binary())]
        case Text() | Json():
            return [column("", pa.string())]


def arrow_schema(fields: Mapping[str, Field]) -> pa.Schema:
    """The schema of every shard of a dataset with these fields, with our metadata and Hugging Face's."""
    columns = [column for name, field in fields.items() for column in arrow_columns(name, field)]
    ours = {"fields": {name: field_to_json(field) for name, field in fields.items()}}
    metadata = {
        "zcd": json.dumps(ours, ensure_ascii=False),
        "huggingface": json.dumps({"info": {"features": features_of(fields)}}, ensure_ascii=False),
    }
    return pa.schema(columns, metadata=metadata)


def encode(name: str, field: Field, values: Any) -> list[pa.Array]:
    """Encodes many values of one field into its columns, in the order of `arrow_columns`.

    Args:
        values: a sequence with one value per row, or a numpy array whose first dimension is the row.

    Raises:
        BadValueError: some value does not fit the field.
    """
    types = [column.type for column in arrow_columns(name, field)]
    return _ENCODERS[type(field)](field, values, types)


def binary_array(data: Any, offsets: npt.NDArray[np.int32], kind: pa.DataType | None = None) -> pa.Array:
    """A binary (or string) array over existing buffers, nothing copied."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(offsets) - 1, buffers)


def image_array(data: Any, offsets: npt.NDArray[np.int32]) -> pa.Array:
    """An array of encoded images over existing buffers, nothing copied."""
    encoded = binary_array(data, offsets)
    children = [encoded, pa.nulls(len(encoded), pa.string())]
    return pa.Array.from_buffers(IMAGE_TYPE, len(encoded), [None], children=children)


def tensor_array(kind: pa.DataType, rows: npt.NDArray[Any]) -> pa.Array:
    """A fixed_shape_tensor array over a C-contiguous array [rows, …], nothing copied."""
    flat = pa.Array.from_buffers(kind.value_type, rows.size, [None, pa.py_buffer(rows.reshape(-1))])
    return pa.ExtensionArray.from_storage(
        kind, pa.Array.from_buffers(kind.storage_type, len(rows), [None], children=[flat])
    )


def scalar_arrays(numbers: npt.NDArray[Any]) -> list[pa.Array]:
    """The columns of a Scalar: numbers in their stored dtype, and checksums."""
    return [pa.array(numbers), pa.array(crc32c_rows(numbers))]


def text_arrays(texts: Sequence[str]) -> list[pa.Array]:
    """The columns of a Text: UTF-8, and checksums.

    Raises:
        BadValueError: text that UTF-8 cannot write.
    """
    encoded = []
    for index, text in enumerate(texts):
        try:
            encoded.append(text.encode())
        except UnicodeEncodeError as error:
            raise BadValueError(index, f"text that UTF-8 cannot write: {error}") from error
    array = binary_array(b"".join(encoded), _offsets_of([len(data) for data in encoded]), pa.string())
    return [array, pa.array(crc32c_each(encoded))]


def _offsets_of(lengths: Sequence[int]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > MAX_COLUMN_BYTES:
        raise BadValueError(None, f"{offsets[-1]} bytes or items in one row group; the limit is 2^31 - 1")
    return offsets.astype(np.int32)


def _views(values: Sequence[Any]) -> list[memoryview]:
    views = []
    for index, value in enumerate(values):
        try:
            view = memoryview(value)
            views.append(view if view.format == "B" and view.ndim == 1 else view.cast("B"))
        except TypeError as error:
            raise BadValueError(index, f"bytes expected, not {type(value).__name__}") from error
    return views


def _encode_image(field: Image, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    if field.encoding == "raw":
        assert field.shape is not None
        rows = _dense(values, np.dtype("uint8"), field.shape)
        return [tensor_array(types[0], rows), pa.array(crc32c_rows(rows))]
    views = _views(values)
    sizes = np.empty((2, len(views)), np.int32)
    for index, view in enumerate(views):
        try:
            sizes[:, index] = image_size(view)
        except BadImageError as problem:
            raise BadValueError(index, str(problem)) from problem
    encoded = image_array(b"".join(views), _offsets_of([len(view) for view in views]))
    return [encoded, pa.array(sizes[0]), pa.array(sizes[1]), pa.array(crc32c_each(views))]


def _encode_bytes(field: Bytes, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    views = _views(values)
    encoded = binary_array(b"".join(views), _offsets_of([len(view) for view in views]))
    return [encoded, pa.array(crc32c_each(views))]


def _encode_text(field: Text, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise BadValueError(index, f"str expected, not {type(value).__name__}")
    return text_arrays(values)


def _encode_json(field: Json, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    texts = []
    for index, value in enumerate(values):
        try:
            texts.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        except (TypeError, ValueError) as error:
            raise BadValueError(index, f"JSON cannot write it: {error}") from error
    return text_arrays(texts)


def _encode_scalar(field: Scalar, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    numbers = _dense(values, np.dtype(field.dtype), ())
    if field.classes is not None and len(numbers):
        outside = np.flatnonzero((numbers < 0) | (numbers >= len(field.classes)))
        if len(outside):
            index = int(outside[0])
            raise BadValueError(index, f"class {numbers[index]} of {len(field.classes)} classes")
    return scalar_arrays(numbers.view(stored_dtype(field.dtype)))


def _encode_tensor(field: Tensor, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    dtype = np.dtype(field.dtype)
    if not field.ragged:
        rows = _dense(values, dtype, tuple(n for n in field.shape if n is not None))
        return [tensor_array(types[0], rows.view(stored_dtype(field.dtype))), pa.array(crc32c_rows(rows))]
    arrays = [_one(index, value, dtype, field.shape) for index, value in enumerate(values)]
    shapes = np.array([array.shape for array in arrays], np.int32).reshape(-1)
    sizes = pa.Array.from_buffers(types[1], len(arrays), [None], children=[pa.array(shapes, types[1].value_type)])
    shapes_of = [np.array(array.shape, np.int32).data for array in arrays]
    sums = [_native.crc32c(shape, crc) for shape, crc in zip(shapes_of, _crc32c_arrays(arrays).tolist(), strict=True)]
    items = _list_array(types[0], arrays, stored_dtype(field.dtype))
    return [items, sizes, pa.array(np.array(sums, np.uint32))]


def _encode_tokens(field: Tokens, values: Any, types: list[pa.DataType]) -> list[pa.Array]:
    dtype = np.dtype(field.dtype)
    arrays = [_one(index, value, dtype, (None,)) for index, value in enumerate(values)]
    return [_list_array(types[0], arrays, dtype), pa.array(_crc32c_arrays(arrays))]


def _crc32c_arrays(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint32]:
    return crc32c_each(array.reshape(-1).view(np.uint8) for array in arrays)


def _list_array(kind: pa.DataType, arrays: list[npt.NDArray[Any]], dtype: np.dtype[Any]) -> pa.Array:
    flat = [array.reshape(-1).view(dtype) for array in arrays]
    items = np.concatenate(flat) if flat else np.empty(0, dtype)
    offsets = _offsets_of([array.size for array in arrays])
    children = [pa.array(items, kind.value_type)]
    return pa.Array.from_buffers(kind, len(arrays), [None, pa.py_buffer(offsets)], children=children)


def _one(index: int, value: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """One value as a C-contiguous array, whose shape must match where `shape` is not None."""
    try:
        array = np.asarray(value)
        if array.size == 0 and array.dtype == np.float64:
            array = array.astype(dtype)  # numpy's dtype for an empty list says nothing about its items
        array = _cast(array, dtype)
    except (TypeError, ValueError) as error:
        raise BadValueError(index, str(error)) from error
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, got) for wanted, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise BadValueError(index, f"shape {array.shape} does not fit {shape}")
    return array


def _dense(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values as one C-contiguous array [rows, *shape]; an array that is that already is not copied."""
    if not isinstance(values, np.ndarray):
        values = [_one(index, value, dtype, shape) for index, value in enumerate(values)]
        values = np.stack(values) if values else np.empty((0, *shape), dtype)
    if values.shape[1:] != shape:
        raise BadValueError(None, f"rows of shape {values.shape[1:]} do not fit {shape}")
    try:
        return _cast(values, dtype)
    except (TypeError, ValueError) as error:
        raise BadValueError(None, str(error)) from error


def _cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """To `dtype`, refusing integers that would wrap and fractions that would be cut off."""
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"numbers expected, not {array.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(dtype, order="C")
    if dtype.kind in "biu" and not np.array_equal(cast, array):
        raise ValueError(f"values of dtype {array.dtype} do not fit into {dtype}")
    return cast


_ENCODERS: dict[type[Any], Callable[[Any, Any, list[pa.DataType]], list[pa.Array]]] = {
    Image: _encode_image,
    Bytes: _encode_bytes,
    Text: _encode_text,
    Json: _encode_json,
    Scalar: _encode_scalar,
    Tensor: _encode_tensor,
    Tokens: _encode_tokens,
}

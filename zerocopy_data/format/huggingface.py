"""Features for Hugging Face `datasets`, so that a shard shows images as images and labels by name.

`datasets` 5 knows no fixed_shape_tensor: shards with such columns load there only with
`features=Features.from_dict(…)` of this metadata, and each array comes as one flat list.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from .fields import Bytes, Field, Image, Json, Scalar, Tensor, Text, Tokens


def features_of(fields: Mapping[str, Field]) -> dict[str, Any]:
    """The JSON form of `datasets.Features` with one entry per Arrow column."""
    features: dict[str, Any] = {}
    for name, field in fields.items():
        match field:
            case Image(encoding="raw", shape=shape) if shape is not None:
                features[name] = _list("uint8", prod(shape))
            case Image():
                features[name] = {"_type": "Image"}
                features[f"{name}.width"] = _value("int32")
                features[f"{name}.height"] = _value("int32")
            case Tensor(ragged=True):
                features[name] = _list(_stored(field.dtype))
                features[f"{name}.shape"] = _list("int32", len(field.shape))
            case Tensor():
                features[name] = _list(_stored(field.dtype), prod(n or 0 for n in field.shape))
            case Scalar(dtype="int64", classes=classes) if classes is not None:
                features[name] = {"names": list(classes), "_type": "ClassLabel"}
            case Scalar():
                features[name] = _value(_stored(field.dtype))
            case Tokens():
                features[name] = _list(field.dtype)
            case Bytes():
                features[name] = _value("binary")
            case Text() | Json():
                features[name] = _value("string")
        features[f"{name}.crc32c"] = _value("uint32")
    return features


def _stored(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def _value(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}


def _list(dtype: str, length: int = -1) -> dict[str, Any]:
    return {"feature": _value(dtype), "length": length, "_type": "Sequence"}

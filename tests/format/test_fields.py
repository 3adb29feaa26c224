"""Fields check what they are given and survive JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zerocopy_data.errors import ConfigError
from zerocopy_data.format.fields import (
    Bytes,
    Field,
    Image,
    Json,
    Scalar,
    Tensor,
    Text,
    Tokens,
    check_fields,
    field_from_json,
    field_to_json,
)

FIELDS: list[Field] = [
    Image(),
    Image("raw", (8, 9, 3)),
    Tensor("float32", (3, 4)),
    Tensor("uint8", (None, None, 3)),
    Scalar(),
    Scalar("int32", ("a", "b")),
    Text(),
    Bytes("audio/flac"),
    Bytes(),
    Tokens("uint16"),
    Json(),
]


@pytest.mark.parametrize("field", FIELDS, ids=repr)
def test_a_field_survives_json(field: Field) -> None:
    assert field_from_json(json.loads(json.dumps(field_to_json(field)))) == field


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32")])
def test_dtypes_may_be_names_or_numpy_types(dtype: str) -> None:
    assert Tensor(dtype, (1,)).dtype == "float32"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Image("png"),
        lambda: Image("raw"),
        lambda: Image("raw", (4, 5, 4)),
        lambda: Image("encoded", (4, 5, 3)),
        lambda: Tensor("float32", ()),
        lambda: Tensor("float32", (0, 3)),
        lambda: Tensor("complex64", (1,)),
        lambda: Scalar("float32", ("a",)),
        lambda: Tokens("float32"),
        lambda: check_fields({}),
        lambda: check_fields({"image.width": Scalar()}),
        lambda: check_fields({"x": "int64"}),  # type: ignore[dict-item]
        lambda: field_from_json({"kind": "video"}),
        lambda: field_from_json({"kind": "tensor", "dtype": "float32"}),
        lambda: field_from_json({"kind": "tensor", "dtype": "float32", "shape": ["a"]}),
    ],
)
def test_what_cannot_work_is_refused_at_construction(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]

"""Rows with every kind of field, for the tests of the format."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from zerocopy_data.format.fields import Bytes, Field, Image, Json, Scalar, Tensor, Text, Tokens

EVERY_FIELD: dict[str, Field] = {
    "image": Image(),
    "pixels": Image("raw", (4, 5, 3)),
    "vector": Tensor("float32", (2, 3)),
    "flags": Tensor("bool", (2,)),
    "ragged": Tensor("int16", (None, 2)),
    "label": Scalar("int64", ("ant", "bee", "cat")),
    "sound": Scalar("bool"),
    "half": Scalar("float16"),
    "key": Text(),
    "blob": Bytes(),
    "tokens": Tokens("uint16"),
    "notes": Json(),
}


def jpeg(number: int, width: int = 20, height: int = 10) -> bytes:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    PillowImage.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def sample(number: int) -> dict[str, Any]:
    """Row `number` of a dataset with every kind of field; lengths differ from row to row."""
    return {
        "image": jpeg(number, 20 + number % 5, 10),
        "pixels": np.full((4, 5, 3), number % 256, np.uint8),
        "vector": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
        "flags": np.array([number % 2 == 0, True]),
        "ragged": np.full((number % 4, 2), number, np.int16),
        "label": number % 3,
        "sound": number % 2 == 1,
        "half": np.float16(number / 4),
        "key": f"é{number}",
        "blob": b"x" * (number % 6),
        "tokens": np.arange(number % 5, dtype=np.uint16),
        "notes": {"number": number, "list": [1, None, "ü"]},
    }

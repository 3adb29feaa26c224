"""A chain taken apart: geometry on the host, values wherever the bytes go."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from zerocopy_data.errors import ConfigError
from zerocopy_data.image.ops import CenterCrop, MultiCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype
from zerocopy_data.image.program import Levels, compile_program, deferred

CROP = (RandomResizedCrop(20), RandomHorizontalFlip())
LEVELS = Levels("float16", np.arange(768, dtype=np.float16).tobytes())
CHAINS = {
    "bytes": CROP,
    "float32": (*CROP, Normalize()),
    "float16 scaled": (*CROP, ToDtype("float16", scale=True), Normalize()),
    "float16 overflowing": (*CROP, ToDtype("float16"), Normalize(std=(1e-4,) * 3)),
    "channels last": (*CROP, ToDtype("float32", memory_format="channels_last")),
    "someone else's values": (*CROP, LEVELS),
    "views": (MultiCrop([*CROP, Normalize()], [CenterCrop(9)]),),
}


def picture() -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.mark.parametrize("name", CHAINS)
def test_looking_bytes_up_behind_the_geometry_equals_the_whole_chain_in_every_bit(name: str) -> None:
    data = picture()
    whole = compile_program(CHAINS[name])
    bare, values = deferred(CHAINS[name])
    assert (bare.multi, bare.random) == (whole.multi, whole.random)
    for sample in range(8):
        made = whole.native.run_encoded(data, 3, 1, sample)
        pixels = bare.native.run_encoded(data, 3, 1, sample)
        for spec, value, plain, expected, stored in zip(whole.views, values, bare.views, made, pixels, strict=True):
            assert (plain.dtype, plain.channels_last, plain.size) == ("uint8", True, spec.size)
            assert value.dtype == spec.dtype
            assert (value.memory_format == "channels_last") == spec.channels_last
            got: Any = plain.array(*stored)
            if value.table is None:
                assert spec.dtype == "uint8"
            else:
                assert value.table.shape == (3, 256)
                with np.errstate(over="ignore"):
                    got = np.stack([value.table[c][got[c]] for c in range(3)]).astype(spec.dtype)
            assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(spec.array(*expected)).tobytes()


def test_what_compile_refuses_is_refused_here_too() -> None:
    with pytest.raises(ConfigError, match="stands after Normalize"):
        deferred((Normalize(), CenterCrop(5)))

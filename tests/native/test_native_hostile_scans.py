"""Progressive files may hold any number of scans, each a pass over the whole image for a few bytes."""

from __future__ import annotations

import io
import threading
import time

import numpy as np
import pytest
from PIL import Image

from zerocopy_data import _native


def repeated_scans(side: int, repeats: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side), (3, 4, 5)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * repeats + b"\xff\xd9"


def test_a_few_more_scans_than_usual_decode() -> None:
    assert _native.jpeg_decode(repeated_scans(64, 40)).shape == (64, 64, 3)


def test_an_absurd_number_of_scans_is_an_error_and_soon() -> None:
    start = time.thread_time()
    with pytest.raises(_native.ImageError, match="scans"):
        _native.jpeg_decode(repeated_scans(256, 5000))
    assert time.thread_time() - start < 5


def test_cancelling_does_not_wait_for_a_slow_image() -> None:
    data = repeated_scans(4000, 90)  # seconds of work
    column = _native.Column([0, 1])
    column.set_shard(0, [(1, data, np.array([0, len(data)], np.int32), False, 0, None)])
    crop = _native.Op.center_crop(16, 16)
    program = _native.Program([_native.View([crop], "uint8", "nchw", None, 16, 16)])
    cancel = _native.Cancel()
    timer = threading.Timer(0.1, cancel.set)
    timer.start()
    start = time.monotonic()
    [(_, kind, _)] = column.decode(program, np.array([0]), 0, 0, None, [bytearray(16 * 16 * 3)], False, cancel)
    took = time.monotonic() - start
    timer.join()
    assert kind == 4, f"finished in {took:.1f} s before it was cancelled"
    assert took < 1.5

"""A region decode equals the same rectangle of the full decode, wherever it lies and however the JPEG is sampled."""

from __future__ import annotations

import jpeg_cases as cases
import numpy as np
import numpy.typing as npt
import pytest

from zerocopy_data import _native

Pixels = npt.NDArray[np.uint8]
Rectangle = tuple[int, int, int, int]


def crop_program(width: int, height: int) -> _native.Program:
    op = _native.Op.random_crop(height, width, (0, 0, 0, 0), False, (0, 0, 0))
    return _native.Program([_native.View([op], "uint8", "nhwc", None, height, width)])


def check(data: bytes, full: Pixels, width: int, height: int, sample: int) -> Rectangle:
    """Decodes one random region of width x height; returns where it was."""
    program = crop_program(width, height)
    [[(name, x, y, w, h)]] = program.steps(full.shape[1], full.shape[0], 0, 0, sample)
    [(out, out_height, out_width)] = program.run_encoded(data, 0, 0, sample)
    assert (name, w, h, out_width, out_height) == ("crop", width, height, width, height)
    assert np.array_equal(out.reshape(h, w, 3), full[y : y + h, x : x + w]), (x, y, w, h)
    return x, y, w, h


@pytest.mark.parametrize("kind", [*cases.KINDS, *cases.FROM_TOOLS])
def test_regions_equal_the_full_decode(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    seen: set[str] = set()
    for width, height in [(45, 37)] if kind in cases.FROM_TOOLS else [(19, 17), (101, 67), (64, 48)]:
        data = cases.FROM_TOOLS[kind] if kind in cases.FROM_TOOLS else cases.of_kind(kind, width, height, 1)
        full = _native.jpeg_decode(data)
        for sample in range(150):
            w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
            # Two thirds are nearly as wide or as high as the image, and so touch its borders.
            w = width - int(rng.integers(0, 3)) if sample % 3 == 0 else w
            h = height - int(rng.integers(0, 3)) if sample % 3 == 1 else h
            x, y, w, h = check(data, full, w, h, sample)
            touches = {"left": x == 0, "top": y == 0, "right": x + w == width, "bottom": y + h == height}
            seen |= {side for side, touched in touches.items() if touched}
    assert seen == {"left", "top", "right", "bottom"}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_regions_of_turned_images_equal_the_full_decode(orientation: int) -> None:
    upright = cases.pillow_jpeg(cases.photo(3, 61, 47), subsampling=2)
    data = cases.with_exif_orientation(upright, orientation)
    full = _native.jpeg_decode(data)
    rng = np.random.default_rng(orientation)
    for sample in range(200):
        check(data, full, int(rng.integers(1, full.shape[1] + 1)), int(rng.integers(1, full.shape[0] + 1)), sample)


def _cuts(data: bytes) -> list[bytes]:
    """The JPEG with all but its first 1, 2, … scans missing, each properly ended."""
    starts = [at for at in range(len(data) - 1) if data[at : at + 2] == b"\xff\xda"]
    return [data[:start] + b"\xff\xd9" for start in starts[1:]]


@pytest.mark.parametrize("kind", ["420 progressive", "444 progressive", "gray progressive", "420 scan by scan"])
def test_regions_of_images_whose_last_scans_are_missing_equal_the_full_decode(kind: str) -> None:
    """libjpeg smooths across blocks there, and a crop would hide the neighbours from it."""
    cut = _cuts(cases.of_kind(kind, 101, 67, 1))
    assert cut
    for data in cut:
        full = _native.jpeg_decode(data)
        for sample in range(40):
            check(data, full, 30, 20, sample)


def test_a_second_view_widens_the_region_and_changes_no_pixel() -> None:
    data = cases.pillow_jpeg(cases.photo(3, 101, 67), subsampling=2)
    full = _native.jpeg_decode(data)
    ops = [_native.Op.random_crop(h, w, (0, 0, 0, 0), False, (0, 0, 0)) for h, w in [(20, 30), (5, 90), (60, 3)]]
    views = [_native.View([op], "uint8", "nhwc", None, 0, 0) for op in ops]
    program = _native.Program(views)
    for sample in range(300):
        steps = program.steps(101, 67, 4, 0, sample)
        for [(_, x, y, w, h)], (out, _, _) in zip(steps, program.run_encoded(data, 4, 0, sample), strict=True):
            assert np.array_equal(out.reshape(h, w, 3), full[y : y + h, x : x + w])

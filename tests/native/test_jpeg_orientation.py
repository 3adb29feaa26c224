"""Orientation from Exif and XMP is read as Pillow reads it, and turns the image as Pillow's exif_transpose does."""

from __future__ import annotations

import io
import struct
import warnings

import jpeg_cases as cases
import numpy as np
import pytest
from PIL import Image, ImageOps

from zerocopy_data import _native

UPRIGHT = cases.pillow_jpeg(cases.photo(0, 21, 13))


def transposed(data: bytes) -> cases.Pixels:
    with Image.open(io.BytesIO(data)) as image, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the nonsense that some of these segments hold
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def check(data: bytes, orientation: int) -> None:
    assert _native.jpeg_probe(data).orientation == orientation
    assert np.array_equal(_native.jpeg_decode(data), transposed(data))
    assert np.array_equal(_native.jpeg_decode(data, orient=False), cases.pillow_pixels(data))


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int, big_endian: bool) -> None:
    check(cases.with_exif_orientation(UPRIGHT, orientation, big_endian), orientation)


@pytest.mark.parametrize("text", ['<d tiff:Orientation="{}"/>', "<tiff:Orientation>{}</tiff:Orientation>"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_xmp_orientation(orientation: int, text: str) -> None:
    check(cases.with_xmp(UPRIGHT, text.format(orientation)), orientation)


def test_exif_comes_before_xmp() -> None:
    check(cases.with_exif_orientation(cases.with_xmp(UPRIGHT, 'tiff:Orientation="3"'), 6), 6)
    check(cases.with_xmp(cases.with_exif_orientation(UPRIGHT, 6), 'tiff:Orientation="3"'), 6)


@pytest.mark.parametrize("orientation", [0, 9, 255, 65535])
def test_an_orientation_that_does_not_exist_means_upright(orientation: int) -> None:
    check(cases.with_exif_orientation(UPRIGHT, orientation), 1)


def test_an_exif_orientation_of_zero_still_hides_the_one_in_xmp() -> None:
    check(cases.with_xmp(cases.with_exif_orientation(UPRIGHT, 0), 'tiff:Orientation="3"'), 1)


def test_xmp_that_speaks_of_orientation_before_it_gives_it() -> None:
    check(cases.with_xmp(UPRIGHT, '<!-- tiff:Orientation --><d tiff:Orientation="8"/>'), 8)


def test_a_program_told_not_to_orient_does_not() -> None:
    data = cases.with_exif_orientation(UPRIGHT, 6)
    view = _native.View([], "uint8", "nhwc", None, 0, 0)
    [(turned, height, width)] = _native.Program([view]).run_encoded(data, 0, 0, 0)
    assert np.array_equal(turned.reshape(height, width, 3), transposed(data))
    [(stored, height, width)] = _native.Program([view], orient=False).run_encoded(data, 0, 0, 0)
    assert np.array_equal(stored.reshape(height, width, 3), cases.pillow_pixels(data))


def _exif(tiff: bytes) -> bytes:
    return UPRIGHT[:2] + struct.pack(">BBH", 0xFF, 0xE1, len(tiff) + 8) + b"Exif\0\0" + tiff + UPRIGHT[2:]


def test_nonsense_in_exif_never_fails_and_never_turns_by_chance() -> None:
    sound = b"II\x2a\x00" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    assert _native.jpeg_probe(_exif(sound)).orientation == 6
    for length in range(len(sound) - 6):  # cut before the value: there is no orientation
        assert _native.jpeg_probe(_exif(sound[:length])).orientation == 1
    for offset in (0xFFFFFFFF, 0x7FFFFFFF, len(sound), len(sound) - 1):
        assert _native.jpeg_probe(_exif(sound[:4] + struct.pack("<I", offset) + sound[8:])).orientation == 1
    rng = np.random.default_rng(0)
    for _ in range(3000):
        noise = bytearray(sound)
        for at in rng.integers(0, len(noise), 3):
            noise[at] = rng.integers(256)
        assert 1 <= _native.jpeg_probe(_exif(bytes(noise))).orientation <= 8

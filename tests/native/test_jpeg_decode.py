"""A whole decode equals Pillow's in every byte, for every kind of JPEG; what is not ours goes to Pillow."""

from __future__ import annotations

from pathlib import Path

import jpeg_cases as cases
import numpy as np
import pytest

from zerocopy_data import _native
from zerocopy_data.image.pillow import decode_with_pillow


@pytest.mark.parametrize("kind", cases.KINDS)
def test_every_kind_in_every_size_decodes_as_pillow_does(kind: str) -> None:
    for number, (width, height) in enumerate(cases.SIZES):
        data = cases.of_kind(kind, width, height, seed=number)
        assert np.array_equal(_native.jpeg_decode(data), cases.pillow_pixels(data)), (width, height)


@pytest.mark.parametrize("kind", sorted(cases.FROM_TOOLS))
def test_arithmetic_coding_and_rare_progressive_samplings_decode_as_pillow_does(kind: str) -> None:
    data = cases.FROM_TOOLS[kind]
    assert np.array_equal(_native.jpeg_decode(data), cases.pillow_pixels(data))


def test_the_probe_tells_what_the_header_says() -> None:
    data = cases.with_exif_orientation(cases.pillow_jpeg(cases.photo(0, 30, 20), progressive=True), 6)
    info = _native.jpeg_probe(data)
    assert (info.stored_width, info.stored_height, info.width, info.height) == (30, 20, 20, 30)
    assert (info.orientation, info.components, info.progressive) == (6, 3, True)
    gray = _native.jpeg_probe(cases.pillow_jpeg(cases.photo(0, 30, 20), "L"))
    assert (gray.components, gray.progressive, gray.orientation) == (1, False, 1)


@pytest.mark.parametrize("ycck", [False, True])
def test_four_components_are_left_to_pillow(ycck: bool) -> None:
    data = cases.cmyk(ycck)
    with pytest.raises(_native.UnsupportedImage):
        _native.jpeg_decode(data)
    assert np.array_equal(decode_with_pillow(data, True, _native.DEFAULT_PIXEL_LIMIT), cases.pillow_pixels(data))


def test_twelve_bits_a_sample_are_left_to_pillow() -> None:
    data = bytearray(cases.pillow_jpeg(cases.photo(0, 16, 16)))
    data[data.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(_native.UnsupportedImage):
        _native.jpeg_decode(bytes(data))


def _without(data: bytes, marker: int) -> bytes:
    out, at = bytearray(data[:2]), 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            out += data[at:end]
        at = end
    return bytes(out + data[at:])


def test_an_image_without_huffman_tables_is_not_decoded_with_those_of_the_image_before() -> None:
    """MJPEG frames leave the standard tables out. libjpeg keeps tables from image to image, and would use them."""
    frame = _without(cases.pillow_jpeg(cases.photo(5, 50, 40)), 0xC4)
    other = cases.pillow_jpeg(cases.photo(6, 50, 40), optimize=True)  # tables of its own
    _native.jpeg_decode(other)
    assert np.array_equal(_native.jpeg_decode(frame), cases.pillow_pixels(frame))


def test_an_image_without_quantisation_tables_is_an_error_whatever_was_decoded_before() -> None:
    data = cases.pillow_jpeg(cases.photo(5, 50, 40))
    _native.jpeg_decode(data)
    with pytest.raises(_native.ImageError, match="Quantization table"):
        _native.jpeg_decode(_without(data, 0xDB))


def test_the_pixel_limit_is_inclusive() -> None:
    data = cases.pillow_jpeg(cases.photo(0, 20, 30))
    assert _native.jpeg_decode(data, pixel_limit=600).shape == (30, 20, 3)
    with pytest.raises(_native.ImageError, match="20x30 pixels, more than the limit of 599"):
        _native.jpeg_decode(data, pixel_limit=599)


@pytest.mark.parametrize("max_side", [1, 7, 33, 45, 500])
def test_transcoding_is_decode_pillow_bilinear_encode(max_side: int) -> None:
    from PIL import Image

    data = cases.with_exif_orientation(cases.pillow_jpeg(cases.photo(1, 45, 37)), 6)
    encoded, width, height = _native.jpeg_transcode(data, max_side, 88)
    pixels = _native.jpeg_decode(data)
    expected = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
    assert max(width, height) == min(max_side, 45)
    assert encoded == _native.jpeg_encode(expected, 88)
    assert _native.jpeg_probe(encoded).height == height


def test_encoding_is_libjpeg_at_that_quality() -> None:
    image = cases.photo(1, 61, 43)
    encoded = _native.jpeg_encode(image, 77)
    assert np.array_equal(
        cases.pillow_pixels(encoded), cases.pillow_pixels(cases.pillow_jpeg(image, quality=77, subsampling=2))
    )


@pytest.mark.sample
def test_real_photographs_decode_as_pillow_does(sample_files: list[Path]) -> None:
    compared = 0
    for path in sample_files[::5]:
        data = path.read_bytes()
        try:
            pixels = _native.jpeg_decode(data, orient=False)
        except _native.UnsupportedImage:
            continue
        assert np.array_equal(pixels, cases.pillow_pixels(data)), path
        compared += 1
    assert compared > 90

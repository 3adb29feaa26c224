"""Hostile bytes: an ImageError or pixels, never a crash, and never memory that stays."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import jpeg_cases as cases
import numpy as np
import pytest

from zerocopy_data import _native

BASELINE = cases.pillow_jpeg(cases.photo(0, 33, 25), quality=60)
PROGRESSIVE = cases.pillow_jpeg(cases.photo(0, 33, 25), quality=60, progressive=True)
RESTARTS = cases.pillow_jpeg(cases.photo(0, 33, 25), quality=60, restart_marker_blocks=1)


def program() -> _native.Program:
    op = _native.Op.random_resized_crop(24, 24, (0.08, 1.0), (0.75, 1.33), "bilinear")
    return _native.Program([_native.View([op], "uint8", "nchw", None, 24, 24)])


def outcome(data: bytes) -> str:
    """What every reader of the module says to the bytes, in short."""
    words = []
    for call in (
        lambda: _native.jpeg_decode(data),
        lambda: program().run_encoded(data, 0, 0, 1),
        lambda: _native.jpeg_probe(data),
        lambda: _native.jpeg_transcode(data, 10, 80),
    ):
        try:
            call()
            words.append("ok")
        except _native.ImageError:
            words.append("error")
    return " ".join(words)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("data", [BASELINE, PROGRESSIVE, RESTARTS], ids=["baseline", "progressive", "restarts"])
def test_a_truncated_file_is_an_error_at_every_length(data: bytes) -> None:
    for length in range(len(data) - 8):
        with pytest.raises(_native.ImageError):
            _native.jpeg_decode(data[:length])
        with pytest.raises(_native.ImageError):
            _native.jpeg_probe(data[:length])
        outcome(data[:length])


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff", b"\xff\xd8\xff\xd9", bytes(1000)])
def test_what_is_no_jpeg_is_an_error(data: bytes) -> None:
    assert outcome(data) == "error error error error"


def test_zero_bytes_are_called_so() -> None:
    with pytest.raises(_native.ImageError, match="zero bytes"):
        _native.jpeg_decode(b"")


def test_another_format_is_handed_on_to_pillow() -> None:
    with pytest.raises(_native.UnsupportedImage, match="not a JPEG"):
        _native.jpeg_decode(b"\x89PNG\r\n\x1a\n" + bytes(100))


@pytest.mark.parametrize("data", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
def test_a_header_bomb_is_refused_before_memory_is_taken(data: bytes) -> None:
    before = resident()
    for _ in range(20):
        with pytest.raises(_native.ImageError, match="65500x65500 pixels, more than the limit"):
            _native.jpeg_decode(cases.with_size(data, 65500, 65500))
    assert outcome(cases.with_size(data, 65500, 65500)) == "error error error error"
    assert resident() - before < 20 * 2**20


def test_random_damage_is_an_error_or_pixels() -> None:
    rng = np.random.default_rng(1)
    sources = [BASELINE, PROGRESSIVE, RESTARTS, cases.sampled_jpeg(33, 25, cases.SAMPLINGS["411"], restart=2)]
    seen = set()
    for number in range(1600):
        data = bytearray(sources[number % len(sources)])
        # Up to the scan is most of what can be made to lie, so half of the damage goes there.
        limit = len(data) if number % 2 else 400
        for at in rng.integers(2, limit, 1 + number % 5):
            data[at] = rng.integers(256)
        seen.add(outcome(bytes(data)))
    assert any("ok" in words for words in seen)
    assert any("error" in words for words in seen)


@pytest.mark.parametrize("data", [BASELINE, RESTARTS], ids=["baseline", "restarts"])
def test_a_file_with_a_stray_marker_is_refused_where_pillow_refuses_it(data: bytes) -> None:
    """libjpeg fills what comes after the marker, and warns; whether the file is any good shows only behind it."""
    refused = taken = 0
    start = data.index(b"\xff\xda") + 14
    for at in range(start, len(data) - 20, 37):
        for marker in range(0xC0, 0xFF):
            damaged = data[:at] + bytes((0xFF, marker)) + data[at:]
            try:
                expected = cases.pillow_pixels(damaged)
            except OSError:
                refused += 1
                for plain in (False, True):
                    with pytest.raises(_native.ImageError):
                        _native.jpeg_region(damaged, 20, 20, 13, 5, plain)  # the filling, or some of it
                with pytest.raises(_native.ImageError):
                    _native.jpeg_decode(damaged)
            else:
                taken += 1
                assert np.array_equal(_native.jpeg_decode(damaged), expected)
                region, _ = _native.jpeg_region(damaged, 20, 20, 13, 5)
                assert np.array_equal(region, expected[20:, 20:])
    assert refused > 100
    assert taken > 20


def test_decoding_damaged_files_for_ever_takes_no_more_memory() -> None:
    rng = np.random.default_rng(2)
    damaged = []
    for _ in range(60):
        data = bytearray(cases.pillow_jpeg(cases.photo(0, 200, 150), progressive=True))
        data[int(rng.integers(700, len(data)))] ^= 0xFF
        damaged.append(bytes(data[: int(rng.integers(700, len(data)))]))

    def once() -> None:
        for data in damaged:
            outcome(data)

    once()
    before = resident()
    for _ in range(6):
        once()
    # Each of these 360 times four calls touches a few hundred kilobytes: keeping a tenth would show.
    assert resident() - before < 8 * 2**20


def test_one_huge_image_does_not_stay_in_memory() -> None:
    view = _native.View([_native.Op.resize(16, 16, 0, "bilinear")], "uint8", "nchw", None, 16, 16)
    small = _native.Program([view])
    huge = cases.pillow_jpeg(np.zeros((8000, 8000, 3), np.uint8))  # 192 MB of pixels
    small.run_encoded(BASELINE, 0, 0, 0)
    before = resident()
    small.run_encoded(huge, 0, 0, 0)
    assert resident() - before < 70 * 2**20


def test_pixels_do_not_depend_on_the_image_before() -> None:
    """Damaged files leave the decoder in the middle of things; the next image must not notice."""
    rng = np.random.default_rng(3)
    expected = {data: _native.jpeg_decode(data).tobytes() for data in (BASELINE, PROGRESSIVE, RESTARTS)}
    for number in range(600):
        data = bytearray(PROGRESSIVE if number % 2 else RESTARTS)
        for at in rng.integers(2, len(data), 4):
            data[at] = rng.integers(256)
        outcome(bytes(data))
        sound = (BASELINE, PROGRESSIVE, RESTARTS)[number % 3]
        assert _native.jpeg_decode(sound).tobytes() == expected[sound]


def test_a_thousand_scans_are_refused_in_time() -> None:
    """Each scan of a progressive file costs a pass over all coefficients: a small file could take hours."""
    scan = PROGRESSIVE.index(b"\xff\xda")
    ends = [
        at for at in range(scan + 2, len(PROGRESSIVE) - 1) if PROGRESSIVE[at] == 0xFF and PROGRESSIVE[at + 1] >= 0xC0
    ]
    first = PROGRESSIVE[scan : ends[0]]
    # Repeating the first scan is only a warning to libjpeg, so that nothing else would stop it.
    bomb = PROGRESSIVE[:scan] + first * 1000 + PROGRESSIVE[ends[0] :]
    before = os.times().user
    with pytest.raises(_native.ImageError):
        _native.jpeg_decode(bomb)
    assert os.times().user - before < 20

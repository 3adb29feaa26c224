"""Our own Huffman decoder and libjpeg's make the same of every image: pixels where it is sound, words where it is not.

It must also be the one that reads, wherever it can: a decoder that nobody calls would pass every comparison."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import jpeg_cases as cases
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from zerocopy_data import _native

Pixels = npt.NDArray[np.uint8]
Rectangle = tuple[int, int, int, int]

# Restarts, progressive images, arithmetic coding and scans of one component are libjpeg's.
OWN = [kind for kind in cases.KINDS if not any(word in kind for word in ("progressive", "restart", "scan by scan"))]


def rectangles(rng: np.random.Generator, width: int, height: int, count: int) -> Iterator[Rectangle]:
    """The whole, then random parts of it: as (x, y, width, height)."""
    yield 0, 0, width, height
    for _ in range(count):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        yield x, y, int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))


def outcome(data: bytes, rectangle: Rectangle, plain: bool) -> tuple[bytes | str, bool]:
    """Pixels or words, and whether our own decoder read."""
    try:
        pixels, own = _native.jpeg_region(data, *rectangle, plain=plain)
    except _native.ImageError as error:
        return f"{type(error).__name__}: {error}", False
    return pixels.tobytes(), own


def check(data: bytes, rectangle: Rectangle) -> bool:
    """Whether our own decoder read the rectangle, which is compared."""
    expected, by_own = outcome(data, rectangle, plain=True)
    assert not by_own
    made, by_own = outcome(data, rectangle, plain=False)
    assert made == expected, rectangle
    return by_own


@pytest.mark.parametrize("kind", OWN)
def test_regions_of_sound_images_are_read_by_our_own_decoder_and_equal(kind: str) -> None:
    rng = np.random.default_rng(5)
    for number, (width, height) in enumerate([*cases.SIZES, (203, 150)]):
        data = cases.of_kind(kind, width, height, number)
        for rectangle in rectangles(rng, width, height, 8):
            assert check(data, rectangle), (width, height, rectangle)


@pytest.mark.parametrize("kind", sorted({*cases.KINDS} - {*OWN}))
def test_other_kinds_are_left_to_libjpeg(kind: str) -> None:
    data = cases.of_kind(kind, 45, 37)
    assert not check(data, (0, 0, 45, 37))
    assert not check(data, (9, 20, 13, 11))


def test_images_of_either_kind_may_follow_one_another() -> None:
    """The look-ups of the last codes are kept: more codes than are kept, used in turn, must not be mixed up."""
    images = [cases.pillow_jpeg(cases.photo(seed, 70, 50), optimize=True, quality=30 + 5 * seed) for seed in range(12)]
    images += [cases.of_kind(kind, 70, 50) for kind in cases.KINDS]
    crop = _native.Op.random_crop(20, 30, (0, 0, 0, 0), False, (0, 0, 0))
    program = _native.Program([_native.View([crop], "uint8", "nhwc", None, 20, 30)])
    expected = [_native.jpeg_region(data, 0, 0, 70, 50, plain=True)[0] for data in images]
    for sample in np.random.default_rng(1).integers(0, len(images), 300).tolist():
        [[(_, x, y, w, h)]] = program.steps(70, 50, 0, 0, sample)
        [(made, _, _)] = program.run_encoded(images[sample], 0, 0, sample)
        assert np.array_equal(made.reshape(h, w, 3), expected[sample][y : y + h, x : x + w])


def _odd_gray(counts: list[int], symbols: list[int], side: int, seed: int) -> bytes:
    """A gray JPEG of random symbols of an AC code that is given as a DHT segment gives it, the number of codes of each
    length from 1 on and the symbols in order."""
    rng = np.random.default_rng(seed)
    codes, code = [], 0
    for length, count in enumerate(counts, 1):
        codes += [(code + i, length) for i in range(count)]
        code = (code + count) << 1
    bits = cases.Bits()
    last = 0
    for _ in range((side + 7) // 8 * ((side + 7) // 8)):
        dc = int(rng.integers(-60, 60))
        difference, last = dc - last, dc
        size = abs(difference).bit_length()
        bits.put(size, 4)
        cases.put_number(bits, difference, size)
        k = 1
        while k < 64:
            fits = [i for i, s in enumerate(symbols) if k + (s >> 4) < 64]
            chosen = int(rng.choice(fits))
            symbol = symbols[chosen]
            bits.put(*codes[chosen])
            size = symbol & 15
            bits.put(int(rng.integers(1 << size)), size)
            if size == 0 and symbol != 0xF0:
                break
            k += (symbol >> 4) + 1
    bits.flush()
    data = cases.sampled_jpeg(side, side, [(1, 1)])
    at = data.rindex(b"\xff\xc4")
    body = bytes([0x10, *counts, *[0] * (16 - len(counts)), *symbols])
    scan_header = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    return data[:at] + b"\xff\xc4" + (len(body) + 2).to_bytes(2, "big") + body + scan_header + bits.out + b"\xff\xd9"


@pytest.mark.parametrize(
    ("counts", "symbols"),
    [
        ([1, 1, 1], [0xF0, 0x00, 0x01]),  # 16 coefficients a bit
        ([1, 1, 1], [0x01, 0xF0, 0x00]),
        ([1, 1, 1], [0xF1, 0xE1, 0x00]),  # 16 coefficients in two bits
        ([1, 1, 1], [0x00, 0x3F, 0xFF]),  # numbers of 15 bits
        ([0, 2, *[0] * 13, 4], [0x00, 0x11, 0x21, 0x0A, 0x0F, 0xFA]),  # codes of 16 bits
        ([0] * 15 + [3], [0x00, 0x0F, 0xF0]),
        ([1, 1], [0x00, 0x02]),
        ([0, 1], [0x05]),  # no block ends before its last coefficient
        ([0] * 9 + [4], [0x00, 0x05, 0x70, 0xF0]),  # an end that says 7
    ],
)
def test_odd_codes_are_read_as_libjpeg_reads_them(counts: list[int], symbols: list[int]) -> None:
    rng = np.random.default_rng(3)
    for seed in range(6):
        data = _odd_gray(counts, symbols, 44, seed)
        for rectangle in rectangles(rng, 44, 44, 6):
            assert check(data, rectangle), rectangle
        # Damage, so that a code that doesn't exist and a block that is too long are met.
        scan = data.index(b"\xff\xda") + 10
        for _ in range(8):
            damaged = bytearray(data)
            damaged[int(rng.integers(scan, len(data) - 2))] ^= 1 << int(rng.integers(8))
            check(bytes(damaged), (17, 18, 5, 6))


@pytest.mark.parametrize("kind", ["420", "444", "gray", "420 optimized", "411"])
def test_a_file_cut_anywhere_ends_as_with_libjpeg(kind: str) -> None:
    data = cases.of_kind(kind, 33, 25)
    for length in range(len(data) - 200, len(data) + 1):
        for rectangle in [(0, 0, 33, 25), (20, 18, 9, 5), (3, 2, 4, 4)]:
            check(data[:length], rectangle)
            check(data[:length] + b"\xff\xd9", rectangle)
            check(data[:length] + b"\xff" * (length % 12), rectangle)


@pytest.mark.parametrize("kind", ["420", "444", "422", "gray", "420 optimized", "quality 100", "440"])
def test_damaged_files_end_as_with_libjpeg(kind: str) -> None:
    rng = np.random.default_rng(9)
    sound = cases.of_kind(kind, 90, 70)
    scan = sound.index(b"\xff\xda")
    given_up = 0
    for number in range(200):
        data = bytearray(sound)
        for at in rng.integers(scan if number % 4 else 2, len(data), 1 + number % 3):
            data[at] = (data[at] ^ 1 << int(rng.integers(8))) if number % 2 else int(rng.choice([0, 255, 0xD0, 0xD9]))
        x, y = int(rng.integers(60)), int(rng.integers(50))
        given_up += not check(bytes(data), (x, y, 1 + int(rng.integers(90 - x)), 1 + int(rng.integers(70 - y))))
    assert 10 < given_up < 200


def test_an_image_without_its_end_marker_is_left_to_libjpeg() -> None:
    """It reads ahead, and calls such a file truncated or not by how far."""
    data = cases.of_kind("444", 64, 64)
    assert check(data, (0, 0, 64, 64))
    assert not check(data[:-2], (0, 0, 64, 64))


def _resampled(file: Path) -> Iterator[bytes]:
    with Image.open(file) as image:
        picture = image.convert("RGB")
    picture.thumbnail((300, 300))
    for subsampling in range(3):
        for optimize in (False, True):
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=90, subsampling=subsampling, optimize=optimize)
            yield buffer.getvalue()


def test_real_photographs_are_equal(sample_files: list[Path]) -> None:
    rng = np.random.default_rng(7)
    read = images = 0
    for file in sample_files[::25]:
        data = file.read_bytes()
        try:
            info = _native.jpeg_probe(data)
        except _native.UnsupportedImage:
            continue
        images += 1
        read += all(check(data, r) for r in rectangles(rng, info.width, info.height, 5))
    assert read > 0.9 * images


def test_real_photographs_in_every_subsampling_are_equal(sample_files: list[Path]) -> None:
    rng = np.random.default_rng(8)
    for file in sample_files[::100]:
        for data in _resampled(file):
            info = _native.jpeg_probe(data)
            assert all(check(data, r) for r in rectangles(rng, info.width, info.height, 12))

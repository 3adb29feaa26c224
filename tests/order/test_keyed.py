"""Keyed random numbers: Philox, equal to the native core's, a function of the key alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocopy_data import _native
from zerocopy_data.order.keyed import philox, uniforms

MASK = 0xFFFFFFFF
WORDS = st.integers(0, 2**64 - 1)


def scalar_philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 on Python's integers, written from the paper."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & MASK, (a >> 32) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def scalar_uniforms(seed: int, epoch: int, sample: int, lane: int, count: int) -> list[float]:
    """What class Draws of the native core gives, word by word."""
    mixed = scalar_philox((epoch & MASK, epoch >> 32, lane, 0x7A6364), (seed & MASK, seed >> 32))
    words: list[int] = []
    while len(words) < 2 * count:
        place = (sample & MASK, sample >> 32, len(words) // 4, mixed[2])
        words += scalar_philox(place, (mixed[0], mixed[1]))
    return [((words[2 * i] >> 5) << 26 | words[2 * i + 1] >> 6) * 2.0**-53 for i in range(count)]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123, kat_vectors
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter: Any, key: Any, expected: Any) -> None:
    words = philox(tuple(np.array([word], np.uint64) for word in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word[0]) for word in words) == expected
    assert scalar_philox(counter, key) == expected


@given(WORDS, WORDS, st.lists(WORDS, max_size=5), st.integers(0, MASK), st.integers(0, 9))
def test_the_numbers_are_the_scalar_definitions(
    seed: int, epoch: int, samples: list[int], lane: int, count: int
) -> None:
    numbers = uniforms(seed, epoch, np.array(samples, np.uint64).view(np.int64), lane, count)
    assert numbers.shape == (len(samples), count)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [scalar_uniforms(seed, epoch, sample, lane, count) for sample in samples]


@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF12345678, 2**64 - 1])
@pytest.mark.parametrize("epoch", [0, 5, 2**40])
def test_the_native_core_draws_the_same(seed: int, epoch: int) -> None:
    """A flip happens when the number is below p: p at the number itself and just above it pins the number down."""
    samples = [0, 1, 2**33, 2**63 - 1]
    for place, view in ((0, 0), (1, 0), (0, 1)):
        numbers = uniforms(seed, epoch, samples, view << 16 | place, 1)[:, 0]
        for sample, number in zip(samples, numbers.tolist(), strict=True):
            for p, flipped in ((number, False), (float(np.nextafter(number, 2)), True)):
                never, now = _native.Op.horizontal_flip(0.0), _native.Op.horizontal_flip(p)
                views = [[never, never], [never, never]]
                views[view][place] = now
                program = _native.Program([_native.View(ops, "uint8", "nchw", None, 8, 8) for ops in views])
                assert bool(program.steps(8, 8, seed, epoch, sample)[view]) is flipped


def test_the_second_number_is_that_of_a_native_random_resized_crop() -> None:
    """It draws an area, then a ratio of width to height; with ample room the first try is taken."""
    op = _native.Op.random_resized_crop(8, 8, (0.1, 0.2), (0.5, 2.0), "bilinear")
    program = _native.Program([_native.View([op], "uint8", "nchw", None, 8, 8)])
    for sample in range(50):
        first, second = uniforms(3, 4, [sample], 0, 2)[0]
        area, ratio = 1000 * 1000 * (0.1 + 0.1 * first), 2.0 ** (2 * second - 1)
        width, height = program.steps(1000, 1000, 3, 4, sample)[0][0][3:]
        assert abs(width - (area * ratio) ** 0.5) < 0.501
        assert abs(height - (area / ratio) ** 0.5) < 0.501


def test_seeds_beyond_64_bits_and_negative_ones_wrap() -> None:
    assert np.array_equal(uniforms(-1, 0, [5], 0, 3), uniforms(2**64 - 1, 0, [5], 0, 3))
    assert np.array_equal(uniforms(2**64 + 7, 0, [5], 0, 3), uniforms(7, 0, [5], 0, 3))


def test_each_part_of_the_key_counts_and_more_numbers_extend_fewer() -> None:
    base = uniforms(1, 2, [3, 4], 5, 7)
    assert np.array_equal(uniforms(1, 2, [4, 9, 3], 5, 4)[[2, 0]], base[:, :4])
    for other in (uniforms(2, 2, [3, 4], 5, 7), uniforms(1, 3, [3, 4], 5, 7), uniforms(1, 2, [3, 4], 6, 7)):
        assert not np.any(other == base)


def test_the_numbers_are_uniform_and_uncorrelated_over_samples_and_places() -> None:
    numbers = uniforms(0, 0, np.arange(20_000), 1, 4)
    counts = np.stack([np.bincount((column * 50).astype(int), minlength=50) for column in numbers.T])
    chi_squared = ((counts - 400) ** 2 / 400).sum(axis=1)
    assert np.all(np.abs(chi_squared - 49) < 5 * 98**0.5)
    correlation = np.corrcoef(np.concatenate([numbers[:-1].T, numbers[1:].T]))
    assert np.abs(correlation - np.eye(8)).max() < 5 / 20_000**0.5


def test_importing_it_needs_no_torch() -> None:
    code = "import sys, zerocopy_data.order.keyed; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"

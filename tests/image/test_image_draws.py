"""Random parameters: torchvision's distributions, and a function of (seed, epoch, sample) alone."""

from __future__ import annotations

import math
from typing import Any

import jpeg_cases as cases
import numpy as np
import numpy.typing as npt
import pytest
import torch
import torchvision.transforms as T  # noqa: N812

from zerocopy_data import _native
from zerocopy_data.image.ops import RandomCrop, RandomHorizontalFlip, RandomResizedCrop
from zerocopy_data.image.program import compile_program

MASK = 0xFFFFFFFF


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 (Salmon et al. 2011), written from the paper."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & MASK, (a >> 32) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


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
def test_the_reference_philox_gives_the_published_vectors(counter: Any, key: Any, expected: Any) -> None:
    assert philox(counter, key) == expected


@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF12345678, 2**64 - 1])
@pytest.mark.parametrize("epoch", [0, 5, 2**40])
def test_the_native_draws_are_philox_under_the_key(seed: int, epoch: int) -> None:
    """All 64 bits of seed, epoch and sample count; the numbers may never change, or old seeds mean other runs."""
    crop = _native.Op.random_crop(10, 10, (0, 0, 0, 0), False, (0, 0, 0))
    program = _native.Program([_native.View([crop], "uint8", "nchw", None, 10, 10) for _ in range(2)])
    for sample in (0, 1, 2**33, 2**64 - 1):
        steps = program.steps(1000, 700, seed, epoch, sample)
        for view in range(2):
            lane = view << 16
            mixed = philox((epoch & MASK, epoch >> 32, lane, 0x7A6364), (seed & MASK, seed >> 32))
            block = philox((sample & MASK, sample >> 32, 0, mixed[2]), (mixed[0], mixed[1]))
            _, x, y, _, _ = steps[view][0]
            assert (y, x) == (block[0] * 691 >> 32, block[1] * 991 >> 32)


def kolmogorov_smirnov(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """The probability of a distance this large between two samples of one distribution (asymptotic)."""
    first, second = np.sort(np.asarray(a, float)), np.sort(np.asarray(b, float))
    every = np.concatenate([first, second])
    distance = np.abs(
        np.searchsorted(first, every, "right") / len(first) - np.searchsorted(second, every, "right") / len(second)
    ).max()
    scaled = distance * math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    return float(min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * scaled * scaled) for k in range(1, 101))))


def rectangles(op: Any, width: int, height: int, count: int) -> npt.NDArray[np.int64]:
    program = compile_program([op]).native
    return np.array([program.steps(width, height, 11, 0, sample)[0][0][1:] for sample in range(count)])


def test_the_test_of_distributions_sees_a_small_difference() -> None:
    rng = np.random.default_rng(0)
    assert kolmogorov_smirnov(rng.random(4000), rng.random(4000)) > 0.01
    assert kolmogorov_smirnov(rng.random(4000), rng.random(4000) ** 1.15) < 0.001


@pytest.mark.parametrize(
    ("scale", "ratio", "size"),
    [
        ((0.08, 1.0), (3 / 4, 4 / 3), (500, 375)),
        ((0.08, 1.0), (3 / 4, 4 / 3), (100, 900)),  # most tries fail: the fallback counts
        ((0.5, 0.9), (0.5, 0.6), (300, 300)),
        ((0.001, 0.01), (0.1, 10.0), (200, 150)),
    ],
)
def test_random_resized_crop_draws_as_torchvision(scale: Any, ratio: Any, size: tuple[int, int]) -> None:
    width, height = size
    count = 4000
    ours = rectangles(RandomResizedCrop(224, scale, ratio), width, height, count)
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    theirs = np.array([T.RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(count)])
    x, y, w, h = ours.T
    top, left, high, wide = theirs.T
    for name, a, b in [
        ("x", x, left), ("y", y, top), ("width", w, wide), ("height", h, high),
        ("area", w * h, wide * high), ("aspect", w / h, wide / high),
        ("share of the way", x / (width - w + 1), left / (width - wide + 1)),
    ]:  # fmt: skip
        assert kolmogorov_smirnov(a, b) > 0.001, name


def test_a_crop_that_never_fits_is_torchvisions_fallback() -> None:
    for width, height, ratio in [
        (100, 10, (3 / 4, 4 / 3)),
        (10, 100, (3 / 4, 4 / 3)),
        (7, 5, (2.0, 3.0)),
        (9, 9, (0.9, 1.1)),
    ]:
        op = RandomResizedCrop(8, (50.0, 60.0), ratio)
        top, left, high, wide = T.RandomResizedCrop.get_params(torch.empty(3, height, width), [50.0, 60.0], list(ratio))
        assert set(map(tuple, rectangles(op, width, height, 5).tolist())) == {(left, top, wide, high)}


def test_random_crop_is_uniform_over_every_place() -> None:
    places = rectangles(RandomCrop((10, 20)), 29, 14, 10000)  # 10 places across, 5 down
    counts = np.zeros((5, 10))
    np.add.at(counts, (places[:, 1], places[:, 0]), 1)
    assert counts.sum() == 10000
    chi_squared = ((counts - 200) ** 2 / 200).sum()
    assert chi_squared < 85.4  # 0.1 percent of 49 degrees of freedom


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_flips_happen_with_their_probability(p: float) -> None:
    program = compile_program([RandomHorizontalFlip(p)]).native
    flips = sum(bool(program.steps(8, 8, 5, 0, sample)[0]) for sample in range(20000))
    assert abs(flips - 20000 * p) < 3.5 * math.sqrt(20000 * p * (1 - p))


def test_two_operations_of_one_chain_draw_independently() -> None:
    program = compile_program([RandomHorizontalFlip(), RandomHorizontalFlip()]).native
    counts = np.bincount([len(program.steps(8, 8, 5, 0, sample)[0]) for sample in range(8000)], minlength=3)
    assert np.allclose(counts / 8000, [0.25, 0.5, 0.25], atol=0.02)


def test_another_seed_epoch_or_sample_is_another_draw() -> None:
    program = compile_program([RandomResizedCrop(224)]).native
    keys = [(s, e, n) for s in (0, 1, 2**32, 2**63) for e in (0, 1, 2**32) for n in (0, 1, 2, 2**32, 2**32 + 1)]
    draws = {tuple(program.steps(5000, 4000, *key)[0][0]) for key in keys}
    assert len(draws) == len(keys)
    assert program.steps(5000, 4000, 1, 2, 3) == program.steps(5000, 4000, 1, 2, 3)


def test_a_sample_draws_the_same_in_any_batch_order_and_number_of_threads() -> None:
    files = [cases.of_kind("420", 60, 45, seed) for seed in range(12)]
    column = _native.Column([0, 12])
    offsets = np.cumsum([0, *map(len, files)])
    column.set_shard(0, [(12, np.frombuffer(b"".join(files), np.uint8), offsets, True, 0, None)])
    program = compile_program([RandomResizedCrop(16), RandomHorizontalFlip()])
    seen: dict[int, set[bytes]] = {row: set() for row in range(12)}
    rng = np.random.default_rng(0)
    for turn in range(20):
        threads = _native.Threads(1 + turn % 4)
        rows = rng.permutation(12)[: int(rng.integers(1, 13))]
        out = np.zeros((len(rows), 3, 16, 16), np.uint8)
        assert column.decode(program.native, rows, 3, 1, None, [out], pooled=turn % 5 != 0) == []
        threads.release()
        for row, pixels in zip(rows.tolist(), out, strict=True):
            seen[row].add(pixels.tobytes())
    assert all(len(versions) == 1 for versions in seen.values())

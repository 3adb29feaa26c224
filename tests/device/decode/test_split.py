"""The split of batches between CPU and GPU, on simulated rates: both sides end together, noise does not swing it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from zerocopy_data.device.decode.split import BusyTime, Split

SIZE = 256


def run(
    split: Split, steps: int, cpu: Callable[[int], float], gpu: Callable[[int], float], size: int = SIZE
) -> list[int]:
    """Batches whose sides take images / rate seconds, the rates given by step; the shares of the GPU."""
    shares = []
    for step in range(steps):
        share = split.share(size)
        assert 0 <= share <= size
        shares.append(share)
        ours, theirs = size - share, share
        split.observe(
            ours if cpu(step) else 0,
            ours / cpu(step) if cpu(step) else (1.0 if ours else 0.0),
            theirs if gpu(step) else 0,
            theirs / gpu(step) if gpu(step) else (1.0 if theirs else 0.0),
        )
    return shares


def waste(share: int, cpu: float, gpu: float, size: int = SIZE) -> float:
    """By how much a batch takes longer than the ideal one, in which neither side idles."""
    return max(share / gpu, (size - share) / cpu) / (size / (cpu + gpu)) - 1


@pytest.mark.parametrize(("cpu", "gpu"), [(1000, 1000), (900, 5000), (5000, 900), (1200, 40_000), (3000, 1)])
def test_it_converges_so_that_neither_side_idles(cpu: float, gpu: float) -> None:
    shares = run(Split(), 40, lambda _: cpu, lambda _: gpu)
    best = min(waste(share, cpu, gpu) for share in range(SIZE + 1))  # images don't come in parts
    assert all(waste(share, cpu, gpu) <= best + 0.03 for share in shares[4:])


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_make_it_swing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noisy = [(1500 * factor[0], 4000 * factor[1]) for factor in np.exp(rng.normal(0, 0.05, (400, 2)))]
    shares = run(Split(), 400, lambda step: noisy[step][0], lambda step: noisy[step][1])[20:]
    changes = sum(a != b for a, b in itertools.pairwise(shares))
    turns = [b - a for a, b in itertools.pairwise(shares) if a != b]
    back = sum(a * b < 0 for a, b in itertools.pairwise(turns))
    assert changes <= 0.25 * len(shares)
    assert back <= 0.15 * len(shares)
    assert max(waste(share, 1500, 4000) for share in shares) <= 0.12


def test_a_side_that_becomes_slower_loses_its_share_within_a_few_batches() -> None:
    shares = run(Split(), 60, lambda step: 4000 if step < 30 else 500, lambda _: 4000)
    assert abs(shares[29] - SIZE // 2) <= 3
    assert waste(shares[36], 500, 4000) <= 0.1


def test_a_side_that_delivers_nothing_gets_nothing_and_is_tried_ever_more_rarely() -> None:
    shares = run(Split(), 1000, lambda _: 2000, lambda _: 0)
    assert shares[0] == SIZE // 2
    tries = [step for step, share in enumerate(shares) if share and step]
    assert {shares[step] for step in tries} <= {1}
    assert 2 <= len(tries) <= 5
    gaps = np.diff(tries)
    assert all(b >= 1.9 * a for a, b in itertools.pairwise(gaps))
    assert run(Split(), 50, lambda _: 0, lambda _: 2000)[5:] == [SIZE] * 45


def test_a_side_that_comes_back_gets_work_again() -> None:
    shares = run(Split(), 200, lambda _: 2000, lambda step: 0 if step < 100 else 2000)
    assert shares[60] == 0
    assert abs(shares[-1] - SIZE // 2) <= 4


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_the_smallest_batches(size: int) -> None:
    shares = run(Split(), 300, lambda _: 1000, lambda _: 3000, size)
    assert all(0 <= share <= size for share in shares)


def test_a_short_last_batch_does_not_disturb_the_others() -> None:
    split = Split()
    run(split, 30, lambda _: 1000, lambda _: 3000)
    before = split.share(SIZE)
    assert abs(split.share(8) - 6) <= 1
    assert split.share(SIZE) == before


def test_overlapping_work_is_timed_once() -> None:
    now = [0.0]
    busy = BusyTime(lambda: now[0])
    busy.begin()
    now[0] = 1.0
    busy.begin()
    now[0] = 3.0
    busy.end(10)
    now[0] = 4.0
    busy.end(20)
    now[0] = 9.0

    def fail() -> None:
        with busy.of(5):
            now[0] = 10.0
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert busy.take() == (30, 5.0)
    assert busy.take() == (0, 0.0)

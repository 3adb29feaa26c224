"""What is drawn is distributed as it is declared: chi-square at 0.1 percent, the keys being fixed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from augment_cases import draws_of

from zerocopy_data.device.augment import (
    ColorJitter,
    CutMix,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    TrivialAugmentWide,
)
from zerocopy_data.device.augment.batch import Spec
from zerocopy_data.device.augment.policy import KINDS

N = 20_000
SPEC = Spec(N, 3, 40, 50, torch.uint8, False)
DRAWS = draws_of(range(N))


def chi_square(values: npt.NDArray[np.int64], choices: int) -> float:
    counts = np.bincount(values, minlength=choices)
    assert len(counts) == choices
    expected = len(values) / choices
    return float(((counts - expected) ** 2).sum() / expected)


def limit(choices: int) -> float:
    """Of chi-square with choices - 1 degrees of freedom at 0.1 percent (Wilson and Hilferty, PNAS 1931)."""
    k = choices - 1
    return float(k * (1 - 2 / (9 * k) + 3.09 * (2 / (9 * k)) ** 0.5) ** 3)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_probabilities(p: float) -> None:
    allowed = 4 * (p * (1 - p) / N) ** 0.5
    assert abs(RandomHorizontalFlip(p).flips(DRAWS).mean() - p) < allowed
    assert abs((RandomErasing(p, scale=(0.1, 0.2)).boxes(SPEC, DRAWS)[:, 2] > 0).mean() - p) < allowed


def test_every_place_of_a_crop_is_as_likely() -> None:
    offsets = RandomCrop((33, 45)).offsets(SPEC, DRAWS)
    assert chi_square(offsets[:, 0] * 6 + offsets[:, 1], 8 * 6) < limit(48)


def test_every_kind_strength_and_sign_is_as_likely() -> None:
    (choice,) = TrivialAugmentWide().draw(SPEC, DRAWS)
    assert chi_square(choice.kinds, len(KINDS)) < limit(len(KINDS))
    shear = choice.magnitudes[choice.kinds == KINDS.index("ShearX")]
    steps = np.rint(shear / 0.99 * 30).astype(np.int64)
    counts = np.bincount(steps + 30, minlength=61)
    counts[30] //= 2  # no strength has no sign, so it comes twice as often
    expected = len(shear) / 62
    assert ((counts - expected) ** 2 / expected).sum() < limit(61)
    first, second = RandAugment().draw(SPEC, DRAWS)
    assert chi_square(first.kinds * len(KINDS) + second.kinds, len(KINDS) ** 2) < limit(len(KINDS) ** 2)


def test_factors_are_uniform_and_every_order_of_jitter_as_likely() -> None:
    factors, order = ColorJitter(0.4, (0.5, 1.0), 2.0, 0.1).draw(DRAWS)
    ranges = ((0.6, 1.4), (0.5, 1.0), (0.0, 3.0), (-0.1, 0.1))
    for values, (least, most) in zip(factors.T, ranges, strict=True):
        tenths = ((values - least) / (most - least) * 10).astype(np.int64)
        assert chi_square(tenths, 10) < limit(10)
    _, which = np.unique(order, axis=0, return_inverse=True)
    assert chi_square(which.reshape(-1), 24) < limit(24)
    # Factors and order have nothing to do with one another.
    assert abs(np.corrcoef(factors[:, 0], order[:, 0])[0, 1]) < 4 / N**0.5


def test_cutmix_cuts_the_share_that_was_drawn_about_a_uniform_middle() -> None:
    boxes, kept = CutMix(alpha=1.0).draw(SPEC, DRAWS)
    top, left, height, width = boxes.T
    assert (kept == 1 - height * width / (40 * 50)).all()
    assert ((top >= 0) & (left >= 0) & (top + height <= 40) & (left + width <= 50)).all()
    inner = (top > 0) & (left > 0) & (top + height < 40) & (left + width < 50)
    assert inner.mean() > 0.15
    assert (np.abs(height[inner] / 40 - width[inner] / 50) <= 2 / 40 + 2 / 50).all()  # the image's own form
    assert abs((top + height / 2)[height < 4].mean() - 20) < 1.5


def test_a_planted_bias_is_noticed() -> None:
    offsets = RandomCrop((33, 45)).offsets(SPEC, DRAWS)
    biased = np.where((np.arange(N) % 20 == 0), 0, offsets[:, 0] * 6 + offsets[:, 1])
    assert chi_square(biased, 48) > limit(48)

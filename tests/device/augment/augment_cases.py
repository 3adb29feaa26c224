"""Images and draws for the tests of augmentation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from zerocopy_data.device.augment import Augment
from zerocopy_data.device.augment.op import Draws

DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)
SEED, EPOCH = 5, 3


def torchvision_functional() -> Any:
    """torchvision.transforms.v2.functional, or the test is skipped."""
    return pytest.importorskip("torchvision.transforms.v2.functional")


def pictures(
    n: int,
    height: int = 23,
    width: int = 30,
    channels: int = 3,
    dtype: torch.dtype = torch.uint8,
    channels_last: bool = False,
    seed: int = 0,
) -> torch.Tensor:
    """Images [n, C, H, W] of several natures in turn: noise, smooth, dull (a narrow range), and of one value a channel.

    Floats lie in [0, 1], on the 256 levels of bytes.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    made = np.empty((n, channels, height, width), np.uint8)
    for i in range(n):
        for channel in range(channels):
            smooth = 127 + 120 * np.sin(x / 7 + i) * np.cos(y / 5 + channel)
            noise = rng.integers(0, 256, (height, width))
            made[i, channel] = (noise, smooth, 90 + smooth / 9, np.full_like(x, rng.integers(0, 256)))[i % 4]
    images = torch.from_numpy(made)
    if dtype != torch.uint8:
        images = (images.float() / 255).to(dtype)
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images


def layouts() -> list[tuple[torch.dtype, bool]]:
    """Every dtype, contiguous and channels_last."""
    return list(itertools.product(DTYPES, (False, True)))


def numbers(n: int) -> list[int]:
    """Sample numbers that are no places in the batch."""
    return [7 * i + 100 for i in range(n)]


def draws_of(samples: Sequence[int], place: int = 0, epoch: int = EPOCH) -> Draws:
    """What an operation at that place of an `Augment` with the seed SEED draws."""
    return Draws(SEED, epoch, np.asarray(samples, np.int64), (1 << 31) | place)


def run(op: Any, images: torch.Tensor, samples: Sequence[int] | None = None, epoch: int = EPOCH) -> torch.Tensor:
    """One operation, or several in a list, alone in an `Augment`."""
    ops = op if isinstance(op, list) else [op]
    return Augment(ops, SEED)(images, samples=numbers(len(images)) if samples is None else samples, epoch=epoch)


def levels_apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, in levels of a byte."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    apart = (ours.double() - theirs.double()).abs().max().item()
    return apart if ours.dtype == torch.uint8 else 255 * apart

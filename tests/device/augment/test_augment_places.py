"""Flip, crop and Normalize: torchvision's pixels with the same parameters."""

from __future__ import annotations

import pytest
import torch
from augment_cases import draws_of, layouts, levels_apart, numbers, pictures, run, torchvision_functional

from zerocopy_data.device.augment import Normalize, RandomCrop, RandomHorizontalFlip
from zerocopy_data.device.augment.batch import spec_of
from zerocopy_data.image.ops import IMAGENET_MEAN, IMAGENET_STD

N = 24
CROPS = {
    "plain": RandomCrop((11, 17)),
    "square": RandomCrop(9),
    "padding": RandomCrop(23, padding=4),
    "x and y": RandomCrop((20, 20), padding=(3, 1), fill=9),
    "four sides": RandomCrop((20, 33), padding=(1, 2, 3, 4), fill=(1, 2, 3)),
    "if needed": RandomCrop((40, 12), pad_if_needed=True, fill=255),
}


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
def test_flips(dtype: torch.dtype, channels_last: bool) -> None:
    images = pictures(N, dtype=dtype, channels_last=channels_last)
    before = images.clone()
    op = RandomHorizontalFlip(0.4)
    made = run(op, images)
    flips = op.flips(draws_of(numbers(N)))
    assert 0 < flips.sum() < N
    for i in range(N):
        assert torch.equal(made[i], torchvision_functional().horizontal_flip(images[i]) if flips[i] else images[i])
    assert made.stride() == images.stride()
    assert torch.equal(images, before)


def test_all_or_none_are_flipped() -> None:
    images = pictures(N)
    assert torch.equal(run(RandomHorizontalFlip(1), images), images.flip(-1))
    assert run(RandomHorizontalFlip(0), images) is images


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
@pytest.mark.parametrize("name", CROPS)
def test_crops(name: str, dtype: torch.dtype, channels_last: bool) -> None:
    op, functional = CROPS[name], torchvision_functional()
    images = pictures(N, dtype=dtype, channels_last=channels_last)
    made = run(op, images)
    spec = spec_of(images)
    offsets = op.offsets(spec, draws_of(numbers(N)))
    assert len({tuple(place) for place in offsets.tolist()}) > 5
    pads = list(op.pads(spec))
    for i, (top, left) in enumerate(offsets.tolist()):
        padded = functional.pad(images[i], pads, fill=list(op.fill)) if any(pads) else images[i]
        assert torch.equal(made[i], functional.crop(padded, top, left, *op.size))
    assert made.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_if_needed_pads_only_then() -> None:
    op = RandomCrop(10, pad_if_needed=True)
    assert op.pads(spec_of(pictures(1, 10, 30))) == (0, 0, 0, 0)
    assert op.pads(spec_of(pictures(1, 7, 30))) == (0, 3, 0, 3)


def test_a_planted_offset_shows() -> None:
    images = pictures(2)
    op = RandomCrop(8)
    (top, left), _ = op.offsets(spec_of(images), draws_of(numbers(2))).tolist()
    made = run(op, images)
    assert not torch.equal(made[0], images[0, :, top : top + 8, left + 1 : left + 9])


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
@pytest.mark.parametrize("channels", [1, 3])
def test_normalised(channels: int, dtype: torch.dtype, channels_last: bool) -> None:
    functional = torchvision_functional()
    mean, std = IMAGENET_MEAN[:channels], IMAGENET_STD[:channels]
    images = pictures(N, channels=channels, dtype=dtype, channels_last=channels_last)
    made = run(Normalize(mean, std), images)
    if dtype == torch.uint8:  # scaled by numpy, which divides where torchvision multiplies: two roundings
        expected = functional.normalize(functional.to_dtype(images, torch.float32, scale=True), mean, std)
        assert made.dtype == torch.float32
        assert torch.allclose(made, expected, rtol=0, atol=1e-6)
    else:
        assert torch.equal(made, functional.normalize(images, mean, std))
    assert made.stride() == images.stride()


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16])
def test_normalised_to_halves_is_rounded_once(to: torch.dtype) -> None:
    for images in (pictures(N), pictures(N, dtype=torch.float32)):
        assert torch.equal(run(Normalize(dtype=to), images), run(Normalize(), images).to(to))


def test_a_planted_deviation_shows() -> None:
    images = pictures(4)
    wrong = Normalize(std=(0.229, 0.224, 0.226))
    assert levels_apart(run(wrong, images), run(Normalize(), images)) > 0.5

"""ColorJitter: torchvision's adjustments, with each sample's own factors in its own order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from augment_cases import draws_of, layouts, levels_apart, numbers, pictures, run, torchvision_functional

from zerocopy_data.device.augment import ColorJitter

N = 32
FULL = ColorJitter(brightness=0.4, contrast=0.5, saturation=(0.2, 1.9), hue=0.3)
NAMES = ("brightness", "contrast", "saturation", "hue")


def torchvisions(image: torch.Tensor, factors: Any, order: Any, names: tuple[str, ...]) -> torch.Tensor:
    adjust = torchvision_functional()
    for kind in order:
        if NAMES[kind] in names:
            image = getattr(adjust, f"adjust_{NAMES[kind]}")(image, float(factors[kind]))
    return image


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
@pytest.mark.parametrize("name", NAMES)
def test_each_adjustment_is_torchvisions(name: str, dtype: torch.dtype, channels_last: bool) -> None:
    op = ColorJitter(**{name: 0.45})
    images = pictures(N, dtype=dtype, channels_last=channels_last)
    made = run(op, images)
    factors, order = op.draw(draws_of(numbers(N)))
    # Levels of a byte. Hue takes another way through HSV, and uint8 cuts off where the ways differ in the last bit.
    allowed = {torch.uint8: 1.0 if name == "hue" else 0.0, torch.float32: 1e-3, torch.float16: 0.2, torch.bfloat16: 1.0}
    changed = 0
    for i in range(N):
        image = images[i].contiguous()
        image = image if dtype == torch.uint8 else image.float()
        expected = torchvisions(image, factors[i], order[i], (name,)).to(dtype)
        assert levels_apart(made[i], expected) <= allowed[dtype]
        changed += levels_apart(made[i], images[i]) > 0
    # Of four pictures one has flat channels, which contrast leaves alone where all three are alike.
    assert changed > N // 2
    assert made.stride() == images.stride()


def test_all_together_in_each_samples_order() -> None:
    images = pictures(N, dtype=torch.float32)
    made = run(FULL, images)
    factors, order = FULL.draw(draws_of(numbers(N)))
    assert len({tuple(one) for one in order.tolist()}) > 12
    for i in range(N):
        assert levels_apart(made[i], torchvisions(images[i], factors[i], order[i], NAMES)) <= 5e-3


def test_without_hue_bytes_are_exact_through_the_whole_chain() -> None:
    op = ColorJitter(0.4, 0.5, 0.9)
    images = pictures(N)
    made = run(op, images)
    factors, order = op.draw(draws_of(numbers(N)))
    for i in range(N):
        assert torch.equal(made[i], torchvisions(images[i], factors[i], order[i], NAMES[:3]))


def test_a_planted_order_shows() -> None:
    images = pictures(N, dtype=torch.float32)
    made = run(FULL, images)
    factors, order = FULL.draw(draws_of(numbers(N)))
    wrong = [torchvisions(images[i], factors[i], order[i][::-1], NAMES) for i in range(N)]
    assert sum(levels_apart(made[i], wrong[i]) > 1 for i in range(N)) > N // 2


def test_gray_images_have_no_hue_and_no_saturation() -> None:
    images = pictures(N, channels=1)
    assert torch.equal(run(ColorJitter(saturation=0.5, hue=0.2), images), images)
    op = ColorJitter(brightness=0.4, contrast=0.4, hue=0.2)
    factors, order = op.draw(draws_of(numbers(N)))
    made = run(op, images)
    for i in range(N):
        assert torch.equal(made[i], torchvisions(images[i], factors[i], order[i], NAMES[:2]))


def test_nothing_asked_for_changes_nothing() -> None:
    images = pictures(4)
    assert run(ColorJitter(), images) is images
    assert run(ColorJitter(brightness=0, hue=0.0), images) is images

"""RandAugment and TrivialAugmentWide: every kind of operation against torchvision, with the same parameters.

Halves are compared with what torchvision makes of the same values in float32, rounded once: its own arithmetic in
halves samples neighbouring pixels.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from augment_cases import DTYPES, draws_of, levels_apart, numbers, pictures, run

from zerocopy_data.device.augment import RandAugment, TrivialAugmentWide
from zerocopy_data.device.augment.batch import spec_of
from zerocopy_data.device.augment.op import BatchOp
from zerocopy_data.device.augment.policy import KINDS, Choice

v2 = pytest.importorskip("torchvision.transforms.v2")

N = 100
FILLS = {"zeros": None, "grey": 128, "colour": [200, 3, 90]}
# Levels of a byte. uint8 is exact but for bilinear sampling, whose sum of products has no prescribed order.
TOLERANCE = {torch.uint8: 0.0, torch.float32: 1e-3, torch.float16: 0.13, torch.bfloat16: 1.0}


def choices(op: Any, images: torch.Tensor) -> list[Choice]:
    made = op.draw(spec_of(images), draws_of(numbers(len(images))))
    return made  # type: ignore[no-any-return]


def torchvisions(image: torch.Tensor, rounds: list[Choice], i: int, mode: str = "nearest", fill: Any = None) -> Any:
    """What torchvision makes of one image under the same operations and magnitudes."""
    policy = v2.RandAugment()
    out = image if image.dtype == torch.uint8 else image.float()
    for choice in rounds:
        out = policy._apply_image_or_video_transform(
            out,
            KINDS[choice.kinds[i]],
            float(choice.magnitudes[i]),
            interpolation=v2.InterpolationMode(mode),
            fill={torch.Tensor: fill},
        )
    return out.to(image.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "op", [RandAugment(num_ops=1, magnitude=17), TrivialAugmentWide()], ids=lambda op: type(op).__name__
)
def test_every_kind_is_torchvisions(op: BatchOp, dtype: torch.dtype) -> None:
    images = pictures(N, dtype=dtype)
    made = run(op, images)
    rounds = choices(op, images)
    met = Counter(KINDS[kind] for kind in rounds[0].kinds)
    assert set(met) == set(KINDS)
    for i in range(N):
        expected = torchvisions(images[i], rounds, i)
        assert levels_apart(made[i], expected) <= TOLERANCE[dtype], (KINDS[rounds[0].kinds[i]], i)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_what_comes_in_from_outside_and_how_pixels_are_sampled(mode: str, fill: str) -> None:
    op = TrivialAugmentWide(interpolation=mode, fill=FILLS[fill])
    images = pictures(N, 26, 17)
    made, rounds = run(op, images), choices(op, images)
    for i in range(N):
        expected = torchvisions(images[i], rounds, i, mode, FILLS[fill])
        assert levels_apart(made[i], expected) <= (mode == "bilinear"), (KINDS[rounds[0].kinds[i]], i)


def test_rounds_follow_one_another() -> None:
    op = RandAugment(num_ops=3, magnitude=11)
    images = pictures(60)
    made, rounds = run(op, images), choices(op, images)
    assert len(rounds) == 3
    for i in range(60):
        assert levels_apart(made[i], torchvisions(images[i], rounds, i)) == 0


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_gray_images_and_channels_last(channels: int, channels_last: bool) -> None:
    op = TrivialAugmentWide(fill=7)
    images = pictures(N, channels=channels, channels_last=channels_last)
    made, rounds = run(op, images), choices(op, images)
    for i in range(N):
        assert levels_apart(made[i], torchvisions(images[i].contiguous(), rounds, i, fill=7)) == 0
    assert made.stride() == images.stride()


def test_strengths_are_those_of_torchvisions_tables() -> None:
    images = torch.empty((600, 3, 224, 160), dtype=torch.uint8, device="meta")
    for op, theirs in (
        (RandAugment(magnitude=23), v2.RandAugment(magnitude=23)),
        (TrivialAugmentWide(), v2.TrivialAugmentWide()),
    ):
        for choice in choices(op, images):
            for kind, magnitude in zip(choice.kinds, choice.magnitudes, strict=True):
                table, signed = theirs._AUGMENTATION_SPACE[KINDS[kind]]
                values = table(31, 224, 160)
                allowed = [0.0] if values is None else np.asarray(values, np.float64).tolist()
                if isinstance(op, RandAugment) and values is not None and values.ndim:
                    allowed = allowed[23:24]
                allowed = allowed if isinstance(allowed, list) else [allowed]
                assert (abs(magnitude) if signed else magnitude) in allowed


def test_samples_of_a_batch_undergo_different_operations() -> None:
    image = pictures(1)
    made = run(TrivialAugmentWide(), image.expand(40, -1, -1, -1))
    assert len({bytes(one.numpy().tobytes()) for one in made}) > 20


def test_a_planted_swap_of_two_samples_parameters_shows() -> None:
    op = TrivialAugmentWide()
    images = pictures(2)
    for first in range(0, 60, 2):
        (choice,) = op.draw(spec_of(images), draws_of([first, first + 1]))
        made = run(op, images, [first + 1, first])
        if choice.kinds[0] != choice.kinds[1] and "Identity" not in (KINDS[kind] for kind in choice.kinds):
            assert levels_apart(made[1], torchvisions(images[1], [choice], 1)) > 0
            return
    pytest.fail("no two samples undergo different operations")

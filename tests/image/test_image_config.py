"""A wrong chain is refused when it is made, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as T  # noqa: N812
import torchvision.transforms.v2 as v2
from PIL import Image

from zerocopy_data import _native
from zerocopy_data.errors import ConfigError
from zerocopy_data.image.ops import (
    CenterCrop,
    MultiCrop,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
)
from zerocopy_data.image.program import compile_program

WRONG_OPS: list[tuple[Callable[[], Any], str]] = [
    (lambda: RandomResizedCrop(0), "RandomResizedCrop size must be a positive int"),
    (lambda: RandomResizedCrop((1, 2, 3)), "RandomResizedCrop size"),  # type: ignore[arg-type]
    (lambda: RandomResizedCrop(65536), "RandomResizedCrop size"),
    (lambda: RandomResizedCrop(2.5), "RandomResizedCrop size"),  # type: ignore[arg-type]
    (lambda: RandomResizedCrop(8, scale=(0.5, 0.1)), "smaller first"),
    (lambda: RandomResizedCrop(8, scale=(0.0, 1.0)), "two positive numbers"),
    (lambda: RandomResizedCrop(8, ratio=(1.0, float("inf"))), "two positive numbers"),
    (lambda: RandomResizedCrop(8, ratio=(float("nan"), 1.0)), "two positive numbers"),
    (lambda: RandomResizedCrop(8, interpolation="lanczos"), "Use one of: nearest, bilinear, bicubic"),
    (lambda: RandomResizedCrop(8, antialias=False), "antialias=False"),
    (lambda: Resize(2.5), "Resize size"),  # type: ignore[arg-type]
    (lambda: Resize("12"), "Resize size"),  # type: ignore[arg-type]
    (lambda: RandomCrop(8, padding=1.5), "left, top, right, bottom"),  # type: ignore[arg-type]
    (lambda: RandomCrop(8, fill=0.5), "each 0 to 255"),  # type: ignore[arg-type]
    (lambda: RandomCrop(8, padding=-1), "RandomCrop"),
    (lambda: RandomCrop(8, padding=(1, 2, 3)), "left, top, right, bottom"),
    (lambda: RandomCrop(8, padding_mode="reflect"), "only 'constant' is supported"),
    (lambda: RandomCrop(8, fill=256), "each 0 to 255"),
    (lambda: RandomCrop(8, fill=(1, 2)), "each 0 to 255"),  # type: ignore[arg-type]
    (lambda: CenterCrop(-3), "CenterCrop size"),
    (lambda: Resize((0, 5)), "Resize size"),
    (lambda: Resize(100, max_size=100), "larger than it"),
    (lambda: Resize((100, 100), max_size=200), "goes with one int"),
    (lambda: Resize(100, antialias=False), "antialias=False"),
    (lambda: RandomHorizontalFlip(1.5), "between 0 and 1"),
    (lambda: RandomHorizontalFlip(float("nan")), "between 0 and 1"),
    (lambda: ToDtype("int8"), "'uint8', 'float16' or 'float32'"),
    (lambda: ToDtype(torch.bfloat16), "'uint8', 'float16' or 'float32'"),
    (lambda: ToDtype(memory_format="nhwc"), "'contiguous' or 'channels_last'"),
    (lambda: Normalize(std=(1, 0, 1)), "no deviation may be zero"),
    (lambda: Normalize(mean=(1, 2)), "three finite numbers"),
    (lambda: Normalize(mean=(1, 2, float("nan"))), "three finite numbers"),
    (lambda: MultiCrop(), "at least one"),
    (lambda: MultiCrop(CenterCrop(3)), "one list of operations per view"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), WRONG_OPS)
def test_wrong_arguments_are_refused_at_construction(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ([Normalize(), CenterCrop(3)], "CenterCrop stands after Normalize. Put crops, resizes and flips first"),
        ([ToDtype("float32"), RandomHorizontalFlip()], "RandomHorizontalFlip stands after ToDtype"),
        ([CenterCrop(3), MultiCrop([CenterCrop(3)])], "must be the only operation"),
        ([MultiCrop([MultiCrop([CenterCrop(3)])])], "must be the only operation"),
        ([T.RandomResizedCrop(224)], "use zcd.RandomResizedCrop"),
        ([v2.CenterCrop(224)], "use zcd.CenterCrop"),
        ([T.ColorJitter()], "a single callable instead of a list"),
        ([np.asarray], "Known: RandomResizedCrop"),
        (["Resize"], "'Resize' is no image operation"),
        ([Normalize(), ToDtype("uint8")], "throw fractions away"),
    ],
)
def test_wrong_chains_are_refused_when_compiled(chain: list[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compile_program(chain)


def test_interpolation_is_taken_as_torchvision_and_pillow_name_it() -> None:
    for name, mode, number in [
        ("nearest", T.InterpolationMode.NEAREST, Image.Resampling.NEAREST),
        ("bilinear", T.InterpolationMode.BILINEAR, Image.Resampling.BILINEAR),
        ("bicubic", T.InterpolationMode.BICUBIC, Image.Resampling.BICUBIC),
    ]:
        assert {Resize(8, value).interpolation for value in (name, mode, number, int(number))} == {name}


def test_a_random_crop_larger_than_the_image_says_what_to_do() -> None:
    program = compile_program([RandomCrop(30)])
    with pytest.raises(_native.ImageError, match="pad_if_needed=True or Resize first"):
        program.native.run_pixels(np.zeros((20, 40, 3), np.uint8), 0, 0, 0)


@pytest.mark.parametrize("size", [(1, 60000), (60000, 1)])
def test_a_resize_that_no_image_can_hold_is_an_error_of_that_sample(size: tuple[int, int]) -> None:
    image = np.zeros((*size, 3), np.uint8)
    with pytest.raises(_native.ImageError, match="Resize would make"):
        compile_program([Resize(256)]).native.run_pixels(image, 0, 0, 0)
    with pytest.raises(_native.ImageError, match="Resize would make"):
        compile_program([Resize(16, max_size=20)]).native.run_pixels(image, 0, 0, 0)

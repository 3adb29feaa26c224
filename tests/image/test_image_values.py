"""Values, dtypes and layouts: torchvision's ToTensor and Normalize, bit for bit."""

from __future__ import annotations

from typing import Any

import jpeg_cases as cases
import numpy as np
import pytest
import torch
import torchvision.transforms as T  # noqa: N812
from reference import run_pixels

from zerocopy_data.image.ops import IMAGENET_MEAN, IMAGENET_STD, CenterCrop, Normalize, RandomHorizontalFlip, ToDtype
from zerocopy_data.image.program import compile_program

# Every byte in every channel.
RAMP = np.stack([np.roll(np.arange(256, dtype=np.uint8).reshape(16, 16), n, 1) for n in range(3)], 2)
IMAGES = [RAMP, cases.photo(0, 37, 23), cases.photo(1, 5, 70)]


def torchvisions(image: Any, *transforms: Any) -> Any:
    return T.Compose([T.ToTensor(), *transforms])(image)


def make(image: Any, *ops: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(run_pixels(compile_program(ops), image)))


@pytest.mark.parametrize("number", range(len(IMAGES)))
@pytest.mark.parametrize(
    ("mean", "std"),
    [(IMAGENET_MEAN, IMAGENET_STD), ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.1307,), (0.3081,)), ((0, 0, 0), (1, 1, 1))],
)
def test_float32_is_totensor_and_normalize_bit_for_bit(number: int, mean: Any, std: Any) -> None:
    expected = torchvisions(IMAGES[number], T.Normalize(mean, std))
    out = make(IMAGES[number], Normalize(mean, std))
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)


@pytest.mark.parametrize("number", range(len(IMAGES)))
def test_float16_is_rounded_from_float32_as_torch_rounds(number: int) -> None:
    expected = torchvisions(IMAGES[number], T.Normalize(IMAGENET_MEAN, IMAGENET_STD)).half()
    for ops in ([Normalize(), ToDtype(torch.float16)], [ToDtype("float16", scale=True), Normalize()]):
        out = make(IMAGES[number], *ops)
        assert out.dtype == torch.float16
        assert torch.equal(out, expected)


def test_to_dtype_alone_scales_or_keeps_the_numbers() -> None:
    assert torch.equal(make(RAMP, ToDtype("float32", scale=True)), torchvisions(RAMP))
    assert torch.equal(make(RAMP, ToDtype("float32")), torch.from_numpy(RAMP).permute(2, 0, 1).float())
    assert torch.equal(make(RAMP, ToDtype("float16")), torch.from_numpy(RAMP).permute(2, 0, 1).half())
    assert torch.equal(make(RAMP, ToDtype("uint8")), torch.from_numpy(RAMP).permute(2, 0, 1))


@pytest.mark.parametrize("flip", [0.0, 1.0])
@pytest.mark.parametrize(
    "ops", [[], [Normalize()], [Normalize(), ToDtype("float16")]], ids=["uint8", "float32", "float16"]
)
def test_layouts_differ_in_memory_and_in_nothing_else(ops: list[Any], flip: float) -> None:
    for image in IMAGES:
        first = run_pixels(compile_program([RandomHorizontalFlip(flip), *ops]), image)
        last_program = compile_program([RandomHorizontalFlip(flip), *ops, ToDtype(memory_format="channels_last")])
        last = run_pixels(last_program, image)
        assert np.array_equal(first, last)
        assert first.flags.c_contiguous
        assert last.transpose(1, 2, 0).flags.c_contiguous
        assert last_program.views[0].dtype == str(first.dtype)


def test_padding_is_normalised_like_any_pixel() -> None:
    out = make(np.full((2, 2, 3), 255, np.uint8), CenterCrop(4), Normalize())
    black = torchvisions(np.zeros((1, 1, 3), np.uint8), T.Normalize(IMAGENET_MEAN, IMAGENET_STD))
    assert torch.equal(out[:, 0, 0], black[:, 0, 0])


def test_a_program_tells_dtype_size_and_layout_before_it_runs() -> None:
    [view] = compile_program([CenterCrop((5, 7)), Normalize(), ToDtype("float16", memory_format="channels_last")]).views
    assert (view.dtype, view.size, view.channels_last, view.stored_shape) == ("float16", (5, 7), True, (5, 7, 3))
    [view] = compile_program([RandomHorizontalFlip()]).views
    assert (view.dtype, view.size, view.channels_last, view.stored_shape) == ("uint8", None, False, None)

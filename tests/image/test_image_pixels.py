"""Every operation, alone and in chains, gives Pillow's bytes."""

from __future__ import annotations

from typing import Any

import jpeg_cases as cases
import numpy as np
import pytest
import torchvision.transforms.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from reference import apply_steps, run, run_pixels, upright

from zerocopy_data.image.ops import (
    CenterCrop,
    MultiCrop,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
)
from zerocopy_data.image.program import compile_program

FILTERS = ["nearest", "bilinear", "bicubic"]


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("kind", ["420", "422", "444", "gray", "411", "440", "420 progressive"])
def test_random_resized_crop_is_pillows_crop_and_resize(kind: str, interpolation: str) -> None:
    data = cases.of_kind(kind, 101, 67, 1)
    full = cases.pillow_pixels(data)
    for size in [24, (1, 1), (70, 9), (5, 130)]:
        program = compile_program([RandomResizedCrop(size, interpolation=interpolation)])
        for sample in range(60):
            [steps] = program.native.steps(101, 67, 3, 1, sample)
            assert [step[0] for step in steps] == ["crop", "resize"]
            [out] = run(program, data, 3, 1, sample)
            assert np.array_equal(upright(out), apply_steps(full, steps, interpolation)), (size, steps)


@pytest.mark.parametrize("interpolation", FILTERS)
def test_resize_has_torchvisions_size_and_pixels(interpolation: str) -> None:
    mode = F.InterpolationMode(interpolation)
    rng = np.random.default_rng(0)
    for number in range(120):
        width, height, size = (int(n) for n in rng.integers(1, 90, 3))
        max_size = size + int(rng.integers(1, 60)) if number % 3 == 0 else None
        if max_size is not None and max_size * min(width, height) < 2 * max(width, height):
            continue  # the shorter side could vanish, which is an error of its own
        image = cases.photo(number, width, height)
        expected = np.asarray(F.resize(Image.fromarray(image), size, mode, max_size=max_size))
        out = run_pixels(compile_program([Resize(size, interpolation, max_size)]), image)
        assert np.array_equal(upright(out), expected), (width, height, size, max_size)
        both = (size, int(rng.integers(1, 90)))
        expected = np.asarray(F.resize(Image.fromarray(image), list(both), mode))
        assert np.array_equal(upright(run_pixels(compile_program([Resize(both, interpolation)]), image)), expected)


def test_center_crop_and_its_padding_are_torchvisions() -> None:
    rng = np.random.default_rng(1)
    for number in range(300):
        width, height, new_height, new_width = (int(n) for n in rng.integers(1, 40, 4))
        image = cases.photo(number, width, height)
        expected = np.asarray(F.center_crop(Image.fromarray(image), [new_height, new_width]))
        out = run_pixels(compile_program([CenterCrop((new_height, new_width))]), image)
        assert np.array_equal(upright(out), expected), (width, height, new_width, new_height)


@pytest.mark.parametrize("fill", [0, 9, (250, 3, 77)])
def test_random_crop_and_its_padding_are_torchvisions(fill: Any) -> None:
    rng = np.random.default_rng(2)
    reached = 0
    for number in range(200):
        width, height, new_height, new_width = (int(n) for n in rng.integers(1, 40, 4))
        padding = [int(n) for n in rng.integers(0, 9, 4)]
        image = cases.photo(number, width, height)
        program = compile_program([RandomCrop((new_height, new_width), padding, pad_if_needed=True, fill=fill)])
        [[(name, x, y, w, h)]] = program.native.steps(width, height, 1, 2, number)
        padded = F.pad(Image.fromarray(image), padding, fill)
        left, top = padding[:2]
        if padded.width < new_width:  # as RandomCrop.forward does it
            left += new_width - padded.width
            padded = F.pad(padded, [new_width - padded.width, 0], fill)
        if padded.height < new_height:
            top += new_height - padded.height
            padded = F.pad(padded, [0, new_height - padded.height], fill)
        assert (name, w, h) == ("crop", new_width, new_height)
        assert 0 <= x + left <= padded.width - w
        assert 0 <= y + top <= padded.height - h
        expected = np.asarray(F.crop(padded, y + top, x + left, h, w))
        assert np.array_equal(upright(run_pixels(program, image, 1, 2, number)), expected)
        reached += x < 0 or y < 0 or x + w > width or y + h > height
    assert reached > 50


def test_a_flip_is_a_mirror_and_happens_when_the_steps_say_so() -> None:
    image = cases.photo(0, 31, 17)
    always, never = compile_program([RandomHorizontalFlip(1.0)]), compile_program([RandomHorizontalFlip(0.0)])
    assert np.array_equal(upright(run_pixels(always, image)), image[:, ::-1])
    assert np.array_equal(upright(run_pixels(never, image)), image)
    twice = compile_program([RandomHorizontalFlip(1.0), RandomHorizontalFlip(1.0)])
    assert np.array_equal(upright(run_pixels(twice, image)), image)


@pytest.mark.parametrize("width", range(1, 40))
def test_flips_and_planes_of_every_width(width: int) -> None:
    """The SIMD code works on five and sixteen pixels at a time and must take the rest one by one."""
    image = cases.photo(width, width, 3)
    for memory_format in ("contiguous", "channels_last"):
        for p in (0.0, 1.0):
            program = compile_program([RandomHorizontalFlip(p), ToDtype(memory_format=memory_format)])
            assert np.array_equal(upright(run_pixels(program, image)), image[:, ::-1] if p else image)


def test_no_operation_at_all_gives_the_image() -> None:
    data = cases.of_kind("420", 33, 20)
    assert np.array_equal(upright(run(compile_program([]), data)[0]), cases.pillow_pixels(data))


SIDES = st.integers(1, 40)
OPS = st.one_of(
    st.builds(RandomResizedCrop, st.tuples(SIDES, SIDES), st.just((0.05, 1.0))),
    st.builds(RandomCrop, st.tuples(SIDES, SIDES), st.integers(0, 6), st.just(True)),
    st.builds(CenterCrop, st.tuples(SIDES, SIDES)),
    st.builds(Resize, st.tuples(SIDES, SIDES)),
    st.builds(Resize, SIDES),
    st.just(RandomHorizontalFlip(0.5)),
    st.just(RandomHorizontalFlip(1.0)),
)
IMAGES = [cases.of_kind(kind, *size, 5) for kind in ("420", "444") for size in [(33, 20), (16, 47), (1, 9)]]


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(
    ops=st.lists(OPS, min_size=1, max_size=5),
    data=st.sampled_from(IMAGES),
    sample=st.integers(0, 2**63),
    channels_last=st.booleans(),
)
def test_any_chain_is_its_steps_one_after_another(
    ops: list[Any], data: bytes, sample: int, channels_last: bool
) -> None:
    """Steps are fused into one pass where that keeps every byte: it must."""
    full = cases.pillow_pixels(data)
    layout = [ToDtype(memory_format="channels_last")] if channels_last else []
    program = compile_program([*ops, *layout])
    [steps] = program.native.steps(full.shape[1], full.shape[0], 0, 0, sample)
    expected = apply_steps(full, steps)
    [out] = run(program, data, 0, 0, sample)
    assert np.array_equal(upright(out), expected), steps
    assert np.array_equal(run_pixels(program, full, 0, 0, sample), out)
    if program.views[0].size is not None:
        assert program.views[0].size == expected.shape[:2]


def test_multi_crop_views_are_their_own_chains_over_one_decode() -> None:
    data = cases.with_exif_orientation(cases.of_kind("420", 101, 67, 1), 6)
    chains = [
        [RandomResizedCrop(32, (0.4, 1.0)), RandomHorizontalFlip()],
        [RandomResizedCrop(12, (0.05, 0.4)), RandomHorizontalFlip()],
        [RandomResizedCrop(12, (0.05, 0.4)), RandomHorizontalFlip()],
        [Resize(20), CenterCrop(16), ToDtype(memory_format="channels_last")],
        [CenterCrop(90)],
    ]
    program = compile_program([MultiCrop(*chains)])
    full = np.rot90(cases.pillow_pixels(data), -1)
    assert program.multi
    same = 0
    for sample in range(200):
        steps = program.native.steps(67, 101, 1, 0, sample)
        for out, view in zip(run(program, data, 1, 0, sample), steps, strict=True):
            assert np.array_equal(upright(out), apply_steps(full, view))
        same += steps[1] == steps[2]
    assert same == 0  # equal chains draw numbers of their own


def test_a_single_view_draws_what_the_first_of_several_draws() -> None:
    chain = [RandomResizedCrop(32), RandomHorizontalFlip()]
    alone, several = compile_program(chain), compile_program([MultiCrop(chain, [CenterCrop(8)])])
    for sample in range(50):
        assert alone.native.steps(90, 60, 1, 0, sample)[0] == several.native.steps(90, 60, 1, 0, sample)[0]

"""The promise on real photographs: torchvision's evaluation pipeline and Pillow's crop and resize, in every byte."""

from __future__ import annotations

import io
from pathlib import Path

import jpeg_cases as cases
import numpy as np
import pytest
import torchvision.transforms as T  # noqa: N812
from PIL import Image, ImageOps
from reference import apply_steps, run, upright

from zerocopy_data.image.ops import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from zerocopy_data.image.program import compile_program

EVALUATION = [Resize(256), CenterCrop(224)]
REFERENCE = T.Compose([T.Resize(256), T.CenterCrop(224)])


def open_with_pillow(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


@pytest.mark.sample
def test_the_evaluation_path_equals_torchvisions_on_every_photograph(sample_files: list[Path]) -> None:
    program = compile_program(EVALUATION)
    for path in sample_files:
        data = path.read_bytes()
        expected = np.asarray(REFERENCE(open_with_pillow(data)))
        assert np.array_equal(upright(run(program, data)[0]), expected), path
    assert len(sample_files) == 500


@pytest.mark.sample
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_training_path_equals_pillows_on_random_rectangles(sample_files: list[Path], interpolation: str) -> None:
    program = compile_program([RandomResizedCrop(224, interpolation=interpolation), RandomHorizontalFlip()])
    each = 6 if interpolation == "bilinear" else 2
    for number, path in enumerate(sample_files):
        data = path.read_bytes()
        full = np.asarray(open_with_pillow(data))
        for epoch in range(each):
            [steps] = program.native.steps(full.shape[1], full.shape[0], 7, epoch, number)
            [out] = run(program, data, 7, epoch, number)
            assert np.array_equal(upright(out), apply_steps(full, steps, interpolation)), (path, steps)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (224, 224), (256, 256), (300, 90), (90, 300), (97, 1)])
def test_the_evaluation_path_equals_torchvisions_on_generated_images(size: tuple[int, int]) -> None:
    program = compile_program(EVALUATION)
    for kind in ("420", "444", "gray", "422 progressive", "420 restart rows"):
        data = cases.of_kind(kind, *size, 2)
        expected = np.asarray(REFERENCE(open_with_pillow(data)))
        assert np.array_equal(upright(run(program, data)[0]), expected), kind


def test_the_training_path_equals_pillows_on_generated_images() -> None:
    program = compile_program([RandomResizedCrop(64), RandomHorizontalFlip()])
    for kind in cases.KINDS:
        data = cases.of_kind(kind, 120, 90, 3)
        full = np.asarray(open_with_pillow(data))
        for sample in range(60):
            [steps] = program.native.steps(120, 90, 0, 0, sample)
            assert np.array_equal(upright(run(program, data, 0, 0, sample)[0]), apply_steps(full, steps)), (kind, steps)

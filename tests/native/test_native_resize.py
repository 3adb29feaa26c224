"""Resizing equals Pillow's Image.resize in every byte, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from zerocopy_data import _native

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("most", [12, 45, 130, 700])
def test_any_size_to_any_size(most: int, interpolation: str) -> None:
    rng = np.random.default_rng(most)
    for number in range({12: 1500, 45: 800, 130: 250, 700: 12}[most]):
        width, height, new_width, new_height = (int(n) for n in rng.integers(1, most + 1, 4))
        if number % 10 == 0:
            new_width = width  # an axis that keeps its size is not filtered
        if number % 10 == 1:
            new_height = height
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        if number % 3 == 0:
            image = np.where(image > 127, 255, 0).astype(np.uint8)  # bicubic overshoots both ends here
        expected = np.asarray(Image.fromarray(image).resize((new_width, new_height), FILTERS[interpolation]))
        assert np.array_equal(_native.resize(image, new_width, new_height, interpolation), expected), (
            width, height, new_width, new_height,
        )  # fmt: skip


def test_enlarging_is_exact_for_every_pair_of_levels() -> None:
    # All 65,536 pairs of neighbours, mixed at every weight that a few scales make: halves and thirds, and uneven ones.
    levels = np.arange(256, dtype=np.uint8)
    pairs = np.stack([np.repeat(levels, 256), np.tile(levels, 256)], axis=1)
    image = np.repeat(pairs.reshape(2048, 64, 1), 3, axis=2)
    image[:, :, 1] = 255 - image[:, :, 1]
    for length in (64, 65, 96, 128, 191, 192, 224):
        across = np.asarray(Image.fromarray(image).resize((length, 2048), Image.Resampling.BILINEAR))
        assert np.array_equal(_native.resize(image, length, 2048, "bilinear"), across), length
        tall = np.ascontiguousarray(image.transpose(1, 0, 2))
        down = np.asarray(Image.fromarray(tall).resize((2048, length), Image.Resampling.BILINEAR))
        assert np.array_equal(_native.resize(tall, 2048, length, "bilinear"), down), length


def test_crops_enlarged_to_a_fixed_size() -> None:
    rng = np.random.default_rng(7)
    for side in [*range(1, 40), *range(40, 232, 3), 223, 224, 225]:
        image = rng.integers(0, 256, (side, 224 - side // 2, 3), dtype=np.uint8)
        expected = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BILINEAR))
        assert np.array_equal(_native.resize(image, 224, 224, "bilinear"), expected), side


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("size", [(2000, 3), (3, 2000), (1, 1500), (1500, 1)])
def test_long_thin_images(size: tuple[int, int], interpolation: str) -> None:
    width, height = size
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    for new in [(1, 1), (7, 5), (height, width), (width - 1 or 1, height), (width, height + 1)]:
        expected = np.asarray(Image.fromarray(image).resize(new, FILTERS[interpolation]))
        assert np.array_equal(_native.resize(image, *new, interpolation), expected), new


def test_sizes_out_of_range_and_unknown_filters_are_refused() -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    for width, height in [(0, 4), (4, 0), (-1, 4), (65536, 4)]:
        with pytest.raises(ValueError, match="1 to 65535"):
            _native.resize(image, width, height)
    with pytest.raises(ValueError, match="lanczos"):
        _native.resize(image, 2, 2, "lanczos")
    with pytest.raises(ValueError, match="1 to 65535"):
        _native.resize(np.zeros((0, 4, 3), np.uint8), 2, 2)
    for wrong in [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8)]:
        with pytest.raises(TypeError):
            _native.resize(wrong, 2, 2)

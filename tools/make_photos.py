"""Makes an image folder that costs a loader what ImageNet costs it, from photographs that scikit-image ships.

Every image is a random crop of one of the photographs (one class each), scaled, flipped and shifted in
colour. Sizes are drawn from those that ImageNet has, and the JPEG quality is the one that brings the file
closest to a size in bytes drawn from ImageNet's: the cost of decoding follows the pixels and the bytes.
Measured with the default seed and 2,000 images: mean 109.3 KB and 195 kpixel (500 files of ImageNet: 110.1 KB
and 198 kpixel).

The same seed gives the same files on the same version of Pillow, whatever the number of processes.
"""

import argparse
import io
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

PHOTOGRAPHS = {  # class name: the file in scikit-image's data folder
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "cameraman": "camera.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}

# Width, height, weight: the sizes of 500 ImageNet files, rounded into a few; the rest is drawn freely below.
SIZES = [
    (500, 375, 24), (500, 333, 16), (375, 500, 9), (333, 500, 6), (500, 334, 4), (500, 332, 4), (640, 480, 4),
    (400, 300, 3), (600, 450, 2), (500, 500, 3), (334, 500, 2), (500, 400, 3), (800, 600, 2), (300, 225, 3),
]  # fmt: skip
FREE_WEIGHT = 17

# Asked for; what a smooth view cannot reach at the highest quality brings the mean down to 110 KB.
MEAN_BYTES = 119_000
MEAN_PIXELS = 197_000
# Spread of the bytes per pixel: the ratio of ImageNet's 90th to its 50th percentile is 1.6.
LOG_SPREAD = 0.40
QUALITIES = range(40, 99)


@dataclass(frozen=True)
class Made:
    """What one image came to."""

    path: Path
    width: int
    height: int
    bytes: int


@cache
def photograph(name: str) -> Image.Image:
    """The photograph of this class, RGB."""
    folder = Path(skimage.data.__file__).parent
    return Image.open(folder / PHOTOGRAPHS[name]).convert("RGB")


def draw_size(rng: np.random.Generator) -> tuple[int, int]:
    """A width and a height as ImageNet has them."""
    weights = np.array([weight for _, _, weight in SIZES] + [FREE_WEIGHT], dtype=float)
    choice = int(rng.choice(len(weights), p=weights / weights.sum()))
    if choice < len(SIZES):
        return SIZES[choice][0], SIZES[choice][1]
    return int(rng.integers(200, 760)), int(rng.integers(200, 680))


def draw_view(name: str, width: int, height: int, rng: np.random.Generator) -> Image.Image:
    """A random view of a photograph: crop, scale, flip, colour, and the grain that scaling up takes away."""
    source = photograph(name)
    largest = min(source.width / width, source.height / height)
    scale = largest * rng.uniform(0.55, 1.0)
    box_width, box_height = width * scale, height * scale
    left = rng.uniform(0, source.width - box_width)
    top = rng.uniform(0, source.height - box_height)
    box = (left, top, left + box_width, top + box_height)
    view = source.resize((width, height), Image.Resampling.BICUBIC, box=box)
    if rng.random() < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    pixels = np.asarray(view, dtype=np.float32)
    gain = rng.uniform(0.8, 1.2) * rng.uniform(0.92, 1.08, size=3)
    pixels = (pixels - 128) * gain.astype(np.float32) + 128 + np.float32(rng.uniform(-15, 15))
    grain = rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(6, 12))
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))


def encode_near(view: Image.Image, wanted: float) -> bytes:
    """The JPEG of this view at the quality whose size is closest to `wanted` bytes."""

    def encoded(quality: int) -> bytes:
        buffer = io.BytesIO()
        view.save(buffer, "JPEG", quality=quality)
        return buffer.getvalue()

    low, high = QUALITIES[0], QUALITIES[-1]
    best = b""
    while low <= high:  # the size grows with the quality
        middle = (low + high) // 2
        data = encoded(middle)
        if not best or abs(len(data) - wanted) < abs(len(best) - wanted):
            best = data
        if len(data) < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return best


def make_one(folder: Path, index: int, seed: int) -> Made:
    """Makes image number `index`: a pure function of the index and the seed."""
    rng = np.random.default_rng((seed, index))
    names = list(PHOTOGRAPHS)
    name = names[index % len(names)]
    width, height = draw_size(rng)
    per_pixel = MEAN_BYTES / MEAN_PIXELS * np.exp(rng.normal(-(LOG_SPREAD**2) / 2, LOG_SPREAD))
    data = encode_near(draw_view(name, width, height, rng), per_pixel * width * height)
    path = folder / name / f"{name}_{index:06d}.JPEG"
    path.write_bytes(data)
    return Made(path, width, height, len(data))


def make_many(folder: Path, indices: range, seed: int) -> list[Made]:
    """Makes a run of images in this process."""
    return [make_one(folder, index, seed) for index in indices]


def make_folder(folder: Path, images: int, seed: int = 0, jobs: int | None = None) -> list[Made]:
    """Makes `folder`/<class>/<class>_<number>.JPEG.

    Args:
        folder: Made if it is missing; it must be empty otherwise.
        images: How many in all; the classes take turns.
        seed: The same seed gives the same files.
        jobs: Processes; the cores of this process by default.

    Returns:
        One entry per image, in order of the numbers.

    Raises:
        FileExistsError: `folder` has something in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name another folder, or remove it")
    for name in list(PHOTOGRAPHS)[:images]:
        (folder / name).mkdir()
    step = 25
    runs = [range(start, min(start + step, images)) for start in range(0, images, step)]
    jobs = jobs or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(jobs) as pool:
        made: Iterator[list[Made]] = pool.map(make_many, [folder] * len(runs), runs, [seed] * len(runs))
        return [one for run in made for one in run]


def summary(made: list[Made]) -> str:
    """What was made, in one line."""
    total = sum(one.bytes for one in made)
    mean = total / len(made)
    pixels = sum(one.width * one.height for one in made)
    upright = sum(one.height > one.width for one in made)
    classes = len({one.path.parent.name for one in made})
    return (
        f"{len(made)} images in {classes} classes, {total / 1e6:.1f} MB: mean {mean / 1e3:.1f} KB, "
        f"{pixels / len(made) / 1e3:.0f} kpixel, {100 * upright / len(made):.0f} % upright"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: the cores)")
    options = parser.parse_args(arguments)
    if options.images < 1:
        parser.error("--images must be at least 1")
    start = time.perf_counter()
    try:
        made = make_folder(options.folder, options.images, options.seed, options.jobs)
    except FileExistsError as error:
        parser.exit(1, f"{error}\n")
    print(f"{options.folder}: {summary(made)} ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

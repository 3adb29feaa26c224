"""How much CPU does augmentation take, a whole batch at once beside torchvision.transforms.v2 a sample at a time?

    tools/dev run python benchmarks/augment.py [--repeats 5] [--batch 64] [--size 224] [--threads 1]

Images are uint8 [3, size, size] in memory; nothing is decoded. torchvision's transforms are called for each image and
the results are stacked, as a DataLoader's workers do it; both draw anew every time. The two take turns; figures are
medians. CPU time counts every thread of the process.

Measured 2026-12-03 on an AMD EPYC, the defaults (torch 2.14.1, torchvision 0.29.1), another job on the second core:

                                 images a second     CPU ms an image
                                  ours        v2      ours        v2   times
    crop, flip, normalise        1,483     1,819     0.675     0.550    0.82
    colour jitter                  234       207     4.249     4.759    1.12
    RandAugment                    631       632     1.566     1.581    1.01
    TrivialAugmentWide           1,218     1,114     0.820     0.898    1.09
    normalise, erase             1,402     1,340     0.713     0.744    1.04

On a CPU there is nothing to gain: the pixels are the same work, and looking bytes up in a table costs more than
torchvision's arithmetic. What the batch-wise form is for, few launches on a device, is not measured here.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from zerocopy_data.device.augment import (
    Augment,
    ColorJitter,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    TrivialAugmentWide,
)
from zerocopy_data.image.ops import IMAGENET_MEAN, IMAGENET_STD


def chains(size: int) -> dict[str, tuple[list[Any], list[Any]]]:
    """By name: our operations and torchvision's."""
    from torchvision.transforms import v2

    crop = size * 7 // 8
    to_float = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(IMAGENET_MEAN), list(IMAGENET_STD))]
    return {
        "crop, flip, normalise": (
            [RandomCrop(crop), RandomHorizontalFlip(), Normalize()],
            [v2.RandomCrop(crop), v2.RandomHorizontalFlip(), *to_float],
        ),
        "colour jitter": ([ColorJitter(0.4, 0.4, 0.4, 0.1)], [v2.ColorJitter(0.4, 0.4, 0.4, 0.1)]),
        "RandAugment": ([RandAugment()], [v2.RandAugment()]),
        "TrivialAugmentWide": ([TrivialAugmentWide()], [v2.TrivialAugmentWide()]),
        "normalise, erase": ([Normalize(), RandomErasing(0.25)], [*to_float, v2.RandomErasing(0.25)]),
    }


def timed(work: Callable[[], Any], images: int) -> tuple[float, float]:
    """Wall and CPU milliseconds an image."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return 1e3 * (time.perf_counter() - wall) / images, 1e3 * (time.process_time() - cpu) / images


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds, in which both take their turn")
    parser.add_argument("--batch", type=int, default=64, help="images a batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads; a DataLoader's worker has one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    shape = (options.batch, 3, options.size, options.size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    print(f"torch {torch.__version__}, {options.threads} thread(s), {options.batch} images of {options.size} pixels\n")
    print(f"{'':24}{'images a second':>20}{'CPU ms an image':>20}")
    print(f"{'':24}{'ours':>10}{'v2':>10}{'ours':>10}{'v2':>10}{'times':>8}")
    for name, (ours, theirs) in chains(options.size).items():
        from torchvision.transforms import v2

        augment, compose = Augment(ours), v2.Compose(theirs)
        epochs = iter(range(1 << 30))

        def batch_wise(augment: Augment = augment, epochs: Any = epochs) -> torch.Tensor:
            return augment(images, samples=range(len(images)), epoch=next(epochs))

        def sample_wise(compose: Any = compose) -> torch.Tensor:
            return torch.stack([compose(image) for image in images])

        batch_wise(), sample_wise()
        rounds = [(timed(batch_wise, len(images)), timed(sample_wise, len(images))) for _ in range(options.repeats)]
        (wall, cpu), (v2_wall, v2_cpu) = (
            [statistics.median(one[arm][kind] for one in rounds) for kind in range(2)] for arm in range(2)
        )
        print(f"{name:24}{1e3 / wall:10,.0f}{1e3 / v2_wall:10,.0f}{cpu:10.3f}{v2_cpu:10.3f}{v2_cpu / cpu:8.2f}")


if __name__ == "__main__":
    main()

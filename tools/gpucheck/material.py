"""Photographs that nobody took, datasets of them, and a net: a machine without a network has none of its own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch


def photograph(number: int, width: int, height: int) -> bytes:
    """A JPEG with edges, gradients and grain, about as dear to decode as a photograph of its size."""
    from PIL import Image as PillowImage

    rng = np.random.default_rng(number)
    layers = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((4, 110.0), (16, 60.0), (64, 30.0)):
        coarse = PillowImage.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
        layers += weight / 255 * np.asarray(coarse.resize((width, height), PillowImage.Resampling.BICUBIC), np.float32)
    layers += rng.normal(0, 6, (height, width, 3)).astype(np.float32)
    file = io.BytesIO()
    PillowImage.fromarray(layers.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def write_photographs(folder: Path, different: int, rows: int, width: int, height: int) -> tuple[Path, int]:
    """A dataset of JPEGs with columns image and label; returns its path and the bytes of all images.

    Some different pictures take turns: making them costs more than decoding them.
    """
    import zerocopy_data as zcd

    made = [photograph(number, width, height) for number in range(different)]
    with zcd.DatasetWriter(folder / "photos", {"image": zcd.Image(), "label": zcd.Scalar("int64")}) as writer:
        for row in range(rows):
            writer.write({"image": made[row % different], "label": row % 10})
    return folder / "photos", sum(len(made[row % different]) for row in range(rows))


def write_pixels(folder: Path, rows: int, side: int) -> Path:
    """A dataset of decoded images with columns image and label: what a loader gives is bound by memory alone."""
    import zerocopy_data as zcd

    noise = np.random.default_rng(0).integers(0, 256, (side + 64, side, 3), np.uint8)
    fields = {"image": zcd.Image("raw", (side, side, 3)), "label": zcd.Scalar("int64")}
    with zcd.DatasetWriter(folder / "pixels", fields) as writer:
        for row in range(rows):
            writer.write({"image": noise[row % 64 : row % 64 + side], "label": row % 10})
    return folder / "pixels"


class Floats(torch.utils.data.Dataset[Any]):
    """Row i is float32 [elements] full of i."""

    def __init__(self, length: int, elements: int) -> None:
        self.length, self.elements = length, elements

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.elements,), float(index))


class _Block(torch.nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            torch.nn.BatchNorm2d(outside),
            torch.nn.ReLU(),
            torch.nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(outside),
        )
        self.side = torch.nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.side(x))


def net(small: bool) -> tuple[str, torch.nn.Module]:
    """ResNet-50 of torchvision; without it, or small, a residual net of our own. With its name."""
    if small:
        return "a convolution", torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
        )
    try:
        from torchvision.models import resnet50
    except ImportError:
        widths = (64, 128, 256, 512)
        stem: list[torch.nn.Module] = [torch.nn.Conv2d(3, 64, 7, 4, 3), torch.nn.ReLU()]
        blocks = [_Block(i, o, 2) for i, o in zip((64, *widths), widths, strict=False)]
        head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)]
        return "a residual net of our own (no torchvision)", torch.nn.Sequential(*stem, *blocks, *head)
    return "ResNet-50", resnet50()

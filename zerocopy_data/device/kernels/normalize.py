"""uint8 images to normalised floats, cropped and flipped per sample on the way."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from ...errors import ConfigError

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_PIECE_BYTES = 1 << 20  # what a CPU works on at a time in `reference_normalize`: it stays in a core's cache


def normalize_table(mean: Sequence[float], std: Sequence[float], device: Any = "cpu") -> torch.Tensor:
    """What each byte of each channel becomes under (x / 255 - mean) / std.

    Computed in float32 by numpy, step by step as `image.program` does it, so that a batch normalised with it equals one
    that the CPU path normalised, to the bit.

    Args:
        mean: One number a channel, of pixels in [0, 1].
        std: As many, none of them zero.
        device: Where the table shall lie.

    Returns:
        float32 [C, 256].

    Raises:
        ConfigError: mean and std don't go together, or hold a zero deviation or a number that is not finite.
    """
    means, stds = (np.array(numbers, np.float32).reshape(-1, 1) for numbers in (mean, std))
    if len(means) != len(stds) or len(means) == 0:
        raise ConfigError(f"normalize_table(mean={mean!r}, std={std!r}): one number a channel in each.")
    if not (np.isfinite(means).all() and np.isfinite(stds).all() and (stds != 0).all()):
        raise ConfigError(f"normalize_table(mean={mean!r}, std={std!r}): finite numbers, and no deviation of zero.")
    levels = np.arange(256, dtype=np.float32) / np.float32(255)
    return torch.from_numpy((levels - means) / stds).to(device)


@dataclass(frozen=True)
class Job:
    """Arguments that have been checked, and the memory that the result goes to.

    Attributes:
        images: uint8 [n, C, H, W], any strides.
        table: [C, 256] in the dtype of the result.
        offsets: Integers [n, 2], the crop's top and left; None for 0, 0.
        flips: bool [n], whether the crop is mirrored; None for none.
        out: [n, C, h, w], any strides.
    """

    images: torch.Tensor
    table: torch.Tensor
    offsets: torch.Tensor | None
    flips: torch.Tensor | None
    out: torch.Tensor


def fused_normalize(
    images: torch.Tensor,
    table: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.contiguous_format,
    size: tuple[int, int] | None = None,
    offsets: torch.Tensor | None = None,
    flips: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Crops, flips and maps a batch of bytes through a table, in one pass over memory.

    out[i, c, y, x] = table[c, images[i, c, top + y, left + (x or, mirrored, w - 1 - x)]], rounded once to `dtype`.
    A Triton kernel does it on CUDA devices where triton is installed, `reference_normalize` elsewhere; the results are
    equal to the bit. Nothing waits for the device.

    Args:
        images: uint8 [n, C, H, W]; any strides. Bytes that lie as [n, H, W, C] come in as `x.permute(0, 3, 1, 2)`.
        table: float32 [C, 256] on the same device (`normalize_table`).
        dtype: float32, float16 or bfloat16.
        memory_format: How the result lies: torch.contiguous_format or torch.channels_last. Not looked at with `out`.
        size: (h, w) of the crops; None for H, W.
        offsets: int32 or int64 [n, 2], (top, left) of each crop, on the same device. On a CPU those beyond the edge are
            refused; on a device, where looking at them would mean waiting, they are moved to the edge.
        flips: bool [n], which crops are mirrored, on the same device.
        out: Memory to write to, of the result's shape, dtype and device; any strides.

    Returns:
        [n, C, h, w] in `dtype`: `out`, or new memory.

    Raises:
        ConfigError: shapes, dtypes or devices that don't go together.
    """
    job = checked(images, table, dtype, memory_format, size, offsets, flips, out)
    if images.device.type == "cuda" and _has_triton():
        from .triton_normalize import launch

        launch(job)
    else:
        _run_in_torch(job)
    return job.out


def reference_normalize(
    images: torch.Tensor,
    table: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.contiguous_format,
    size: tuple[int, int] | None = None,
    offsets: torch.Tensor | None = None,
    flips: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`fused_normalize` in plain torch, on any device."""
    job = checked(images, table, dtype, memory_format, size, offsets, flips, out)
    _run_in_torch(job)
    return job.out


def checked(
    images: torch.Tensor,
    table: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.contiguous_format,
    size: tuple[int, int] | None = None,
    offsets: torch.Tensor | None = None,
    flips: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> Job:
    """The arguments of `fused_normalize` as a job.

    Raises:
        ConfigError: shapes, dtypes or devices that don't go together.
    """
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise ConfigError(f"images are {_words(images)}; uint8 [n, C, H, W] is needed.")
    n, channels, height, width = images.shape
    if dtype not in FLOATS:
        raise ConfigError(f"dtype={dtype}: use torch.float32, torch.float16 or torch.bfloat16.")
    if table.dtype != torch.float32 or table.shape != (channels, 256) or table.device != images.device:
        raise ConfigError(
            f"the table is {_words(table)}; float32 [{channels}, 256] on {images.device} is needed, as "
            "normalize_table(mean, std, device) makes it."
        )
    h, w = (height, width) if size is None else size
    if not (0 < h <= height and 0 < w <= width):
        raise ConfigError(f"crops of {h}x{w} do not fit into images of {height}x{width} (height x width).")
    if h * w >= 1 << 31:
        raise ConfigError(f"crops of {h}x{w}: an image of 2^31 pixels or more is too large for one call; split it.")
    if offsets is not None:
        if offsets.dtype not in (torch.int32, torch.int64) or offsets.shape != (n, 2):
            raise ConfigError(f"offsets are {_words(offsets)}; int32 or int64 [{n}, 2] is needed: (top, left).")
        _same_device(offsets, images, "offsets")
        _inside(offsets, height - h, width - w)
    if flips is not None:
        if flips.dtype != torch.bool or flips.shape != (n,):
            raise ConfigError(f"flips are {_words(flips)}; bool [{n}] is needed.")
        _same_device(flips, images, "flips")
    if out is None:
        if memory_format not in (torch.contiguous_format, torch.channels_last):
            raise ConfigError(f"memory_format={memory_format}: use torch.contiguous_format or torch.channels_last.")
        out = torch.empty((n, channels, h, w), dtype=dtype, device=images.device, memory_format=memory_format)
    elif out.dtype != dtype or out.shape != (n, channels, h, w) or out.device != images.device:
        raise ConfigError(f"out is {_words(out)}; {dtype} {[n, channels, h, w]} on {images.device} is needed.")
    # Rounded here, once: then both ways only move bits, and can't round in two manners.
    return Job(images, table.to(dtype), offsets, flips, out)


def _words(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"


def _same_device(tensor: torch.Tensor, images: torch.Tensor, name: str) -> None:
    if tensor.device != images.device:
        raise ConfigError(f"{name} lie on {tensor.device}, the images on {images.device}: move them there first.")


def _inside(offsets: torch.Tensor, most_down: int, most_right: int) -> None:
    if offsets.device.type != "cpu" or len(offsets) == 0:
        return
    low, high = offsets.amin(0).tolist(), offsets.amax(0).tolist()
    if min(low) < 0 or high[0] > most_down or high[1] > most_right:
        raise ConfigError(
            f"offsets reach from {tuple(low)} to {tuple(high)}; crops of this size start between (0, 0) and "
            f"({most_down}, {most_right})."
        )


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _run_in_torch(job: Job) -> None:
    for rows in _pieces(job):
        pixels = job.images[rows]
        if job.offsets is not None:
            pixels = crops(pixels, job.offsets[rows], (job.out.shape[2], job.out.shape[3]))
        pixels = pixels[:, :, : job.out.shape[2], : job.out.shape[3]]
        if job.flips is not None:
            pixels = torch.where(job.flips[rows, None, None, None], pixels.flip(-1), pixels)
        out = job.out[rows]
        for channel, values in enumerate(job.table):
            plane = pixels[:, channel]
            out[:, channel] = values.index_select(0, plane.reshape(-1).int()).view(plane.shape)


def _pieces(job: Job) -> Iterator[slice]:
    n = len(job.images)
    step = max(n, 1)
    if job.images.device.type == "cpu":
        step = max(1, _PIECE_BYTES // (4 * job.out[:1].numel() or 1))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def crops(images: torch.Tensor, offsets: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Each image's own crop, gathered in one step without a look at the offsets.

    Args:
        images: [n, C, H, W].
        offsets: Integers [n, 2], (top, left), on the images' device; those beyond the edge are moved to it.
        size: (h, w).

    Returns:
        [n, C, h, w], new memory.
    """
    height, width = size
    # A view of every possible crop, [n, C, H - h + 1, W - w + 1, h, w]: picking from it reads only what is picked.
    every = images.unfold(2, height, 1).unfold(3, width, 1)
    top = offsets[:, 0].clamp(0, every.shape[2] - 1).long()
    left = offsets[:, 1].clamp(0, every.shape[3] - 1).long()
    return every[torch.arange(len(images), device=images.device), :, top, left]

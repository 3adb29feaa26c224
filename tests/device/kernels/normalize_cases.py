"""Batches for the tests of the kernels, and what must come out, pixel by pixel in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    images: torch.Tensor
    table: torch.Tensor
    dtype: torch.dtype
    memory_format: torch.memory_format
    size: tuple[int, int] | None
    offsets: torch.Tensor | None
    flips: torch.Tensor | None


@st.composite
def cases(draw: st.DrawFn, most: int = 40) -> Case:
    """Random shapes and layouts; offsets at the edges are as likely as others."""
    n, channels = draw(st.integers(0, 4)), draw(st.sampled_from([1, 3, 4]))
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pixels = torch.from_numpy(rng.integers(0, 256, (n, height, width, channels), np.uint8))
    images = pixels.permute(0, 3, 1, 2)  # bytes lie as [n, H, W, C]
    layout = draw(st.sampled_from(["nhwc", "nchw", "part"]))
    if layout == "nchw":
        images = images.contiguous()
    elif layout == "part":  # strides of a larger image
        images = torch.nn.functional.pad(images, (2, 3, 1, 0))[:, :, 1:, 2 : 2 + width]
    table = torch.from_numpy(rng.normal(0, 50, (channels, 256)).astype(np.float32))
    size = offsets = flips = None
    if draw(st.booleans()):
        size = (draw(st.integers(1, height)), draw(st.integers(1, width)))
        if draw(st.booleans()):
            most_down, most_right = height - size[0], width - size[1]
            tops = [draw(st.sampled_from([0, most_down, int(rng.integers(most_down + 1))])) for _ in range(n)]
            lefts = [draw(st.sampled_from([0, most_right, int(rng.integers(most_right + 1))])) for _ in range(n)]
            offset_dtype = draw(st.sampled_from([torch.int32, torch.int64]))
            offsets = torch.tensor([tops, lefts], dtype=offset_dtype).T
    if draw(st.booleans()):
        flips = torch.from_numpy(rng.random(n) < 0.5)
    memory_format = draw(st.sampled_from([torch.contiguous_format, torch.channels_last]))
    return Case(images, table, draw(st.sampled_from(FLOATS)), memory_format, size, offsets, flips)


def expected(case: Case) -> torch.Tensor:
    """One image and channel after the other."""
    images, table = case.images.numpy(), case.table.numpy()
    h, w = case.size or images.shape[2:]
    out = np.zeros((*images.shape[:2], h, w), np.float32)
    for i in range(len(images)):
        top, left = (0, 0) if case.offsets is None else case.offsets[i].tolist()
        for c in range(images.shape[1]):
            crop = images[i, c, top : top + h, left : left + w]
            if case.flips is not None and case.flips[i]:
                crop = crop[:, ::-1]
            out[i, c] = table[c][crop]
    return torch.from_numpy(out).to(case.dtype)


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))

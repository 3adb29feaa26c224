"""The fused kernel against plain torch."""

from __future__ import annotations

import importlib.util

import torch

from .report import Notes
from .target import Target, seconds_of


def normalize(target: Target, notes: Notes) -> None:
    """Bytes to normalised floats: equal to the reference, and how fast."""
    from zerocopy_data.device.kernels import fused_normalize, normalize_table, reference_normalize
    from zerocopy_data.image.ops import IMAGENET_MEAN, IMAGENET_STD

    if not target.small and importlib.util.find_spec("triton") is None:
        notes.measure("triton is not installed: plain torch stands for the kernel", 0, "")
    n, side = (2, 16) if target.small else (256, 224)
    generator = torch.Generator().manual_seed(0)
    host = torch.randint(0, 256, (n, side, side, 3), dtype=torch.uint8, generator=generator).permute(0, 3, 1, 2)
    images, table = host.to(target.device), normalize_table(IMAGENET_MEAN, IMAGENET_STD)
    on_device = table.to(target.device)
    mean, std = (torch.tensor(values).to(target.device).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    for dtype, order in ((torch.float16, torch.channels_last), (torch.float32, torch.contiguous_format)):
        label = f"{str(dtype).removeprefix('torch.')} {'NHWC' if order is torch.channels_last else 'NCHW'}"
        made = fused_normalize(images, on_device, dtype, order)
        plain = reference_normalize(host, table, dtype, order)
        notes.check(f"{label}: equal to plain torch on the CPU, to the bit", torch.equal(made.cpu(), plain))
        size = host.numel() * (1 + dtype.itemsize)

        def fused(dtype: torch.dtype = dtype, order: torch.memory_format = order) -> None:
            fused_normalize(images, on_device, dtype, order)

        def usual(dtype: torch.dtype = dtype, order: torch.memory_format = order) -> None:
            ((images.float() / 255 - mean) / std).to(dtype=dtype, memory_format=order)

        rates = [10 * size / seconds_of(target, lambda run=run: [run() for _ in range(10)]) / 1e9
                 for run in (fused, usual)]  # fmt: skip
        notes.measure(f"{label}: fused", rates[0], "GB/s", f"{rates[0] / rates[1]:.1f} times torch's operations")
        notes.measure(f"{label}: torch's operations", rates[1], "GB/s", "bytes read and written once")

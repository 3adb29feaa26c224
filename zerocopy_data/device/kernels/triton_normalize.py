"""The Triton kernel behind `fused_normalize`. Importing this needs triton."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .normalize import Job

_BLOCK = 1024  # pixels a program: 1 KiB of bytes a channel, and a whole number of 16-byte stores of any dtype
_BITS = {2: torch.int16, 4: torch.int32}


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]  # triton reads the annotations; they are no Python types
    images, table, offsets, flips, out,
    image_n, image_c, image_y, image_x,
    out_n, out_c, out_y, out_x,
    blocks, height, width, most_down, most_right,
    channels: tl.constexpr, has_offsets: tl.constexpr, has_flips: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    # One axis of programs, because the others end at 65535. 64 bits wherever a batch may pass 2^31 bytes.
    program = tl.program_id(0)
    sample = (program // blocks).to(tl.int64)
    place = (program % blocks) * block + tl.arange(0, block)
    inside = place < height * width
    y = place // width
    x = place % width
    from_x = x
    if has_flips:
        flipped = tl.load(flips + sample) != 0
        from_x = tl.where(flipped, width - 1 - x, x)
    from_y = y
    if has_offsets:
        top = tl.load(offsets + 2 * sample)
        left = tl.load(offsets + 2 * sample + 1)
        from_y = from_y + tl.minimum(tl.maximum(top, 0), most_down)
        from_x = from_x + tl.minimum(tl.maximum(left, 0), most_right)
    source = images + sample * image_n + from_y.to(tl.int64) * image_y + from_x.to(tl.int64) * image_x
    target = out + sample * out_n + y.to(tl.int64) * out_y + x.to(tl.int64) * out_x
    for channel in tl.static_range(channels):
        value = tl.load(source, mask=inside, other=0).to(tl.int32)
        bits = tl.load(table + channel * 256 + value, mask=inside, other=0)
        tl.store(target, bits, mask=inside)
        source += image_c  # step by step: a product of two 32-bit numbers could overflow
        target += out_c


def launch(job: Job) -> None:
    """Runs a job on the current stream of its device (in Triton's interpreter, on the CPU)."""
    n, channels, height, width = job.out.shape
    if n == 0:
        return
    blocks = triton.cdiv(height * width, _BLOCK)
    # The table has the result's dtype already. What is moved is bits, so integers of the width do for every dtype.
    bits = _BITS[job.out.element_size()]
    nothing: Any = job.images  # stands where there are no offsets or flips; the kernel does not read it then
    with _on(job.images.device):
        _kernel[(n * blocks,)](
            job.images,
            job.table.contiguous().view(bits),
            nothing if job.offsets is None else job.offsets.contiguous(),
            nothing if job.flips is None else job.flips.contiguous().view(torch.uint8),
            job.out.view(bits),
            *job.images.stride(),
            *job.out.stride(),
            blocks,
            height,
            width,
            job.images.shape[2] - height,
            job.images.shape[3] - width,
            channels=channels,
            has_offsets=job.offsets is not None,
            has_flips=job.flips is not None,
            block=_BLOCK,
        )


def _on(device: torch.device) -> Any:
    """Triton launches on the current device, which need not be that of the images."""
    from contextlib import nullcontext

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

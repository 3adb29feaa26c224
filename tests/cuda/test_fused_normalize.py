"""The fused kernel on a real device: equal to the bit to plain torch on the CPU."""

from __future__ import annotations

import pytest
import torch

from zerocopy_data.device.kernels import fused_normalize, normalize_table, reference_normalize

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_kernel_equals_plain_torch_to_the_bit(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    table = normalize_table((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for n, height, width in ((0, 9, 9), (1, 1, 1), (5, 57, 33), (64, 256, 256)):
        images = torch.randint(0, 256, (n, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        size = (height - height // 8, width - width // 8)
        offsets = torch.stack([torch.arange(n) % (height // 8 + 1), torch.arange(n) % (width // 8 + 1)], 1)
        flips = torch.arange(n) % 3 == 0
        plain = reference_normalize(images, table, dtype, memory_format, size, offsets, flips)
        on_device = [each.cuda() for each in (images, table, offsets, flips)]
        made = fused_normalize(on_device[0], on_device[1], dtype, memory_format, size, on_device[2], on_device[3])
        assert torch.equal(made.cpu(), plain)
        assert made.is_contiguous(memory_format=memory_format)


def test_batches_beyond_two_to_the_31_bytes() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of free device memory")
    images = torch.zeros((3, 1, 1 << 15, 1 << 15), dtype=torch.uint8, device="cuda")  # 3 GiB
    images[2, 0, -1, -1] = 200
    made = fused_normalize(images, normalize_table([0.0], [1.0], "cuda"), torch.float16)
    assert float(made[2, 0, -1, -1]) == pytest.approx(200 / 255, rel=1e-3)
    assert float(made[2, 0, -1, -2]) == 0

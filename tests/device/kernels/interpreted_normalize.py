"""The Triton kernel in Triton's interpreter: run by test_triton_normalize.py in a process of its own, because
TRITON_INTERPRET must be set before triton is imported and then holds for the whole process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from normalize_cases import FLOATS, Case, cases, equal_bits, expected

from zerocopy_data.device.kernels import normalize_table, reference_normalize
from zerocopy_data.device.kernels.normalize import checked
from zerocopy_data.device.kernels.triton_normalize import launch


def interpreted(case: Case, out: torch.Tensor | None = None) -> torch.Tensor:
    job = checked(
        case.images, case.table, case.dtype, case.memory_format, case.size, case.offsets, case.flips, out
    )  # fmt: skip
    launch(job)
    return job.out


@settings(max_examples=250, deadline=None)
@given(cases())
def test_it_equals_the_reference_and_numpy_to_the_bit(case: Case) -> None:
    made = interpreted(case)
    reference = reference_normalize(
        case.images, case.table, case.dtype, case.memory_format, case.size, case.offsets, case.flips
    )
    assert equal_bits(made, reference)
    assert equal_bits(made, expected(case))
    assert made.is_contiguous(memory_format=case.memory_format)


@pytest.mark.parametrize("size", [(32, 32), (31, 33), (32, 33), (1, 1025), (33, 31)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_images_around_a_whole_number_of_blocks(size: tuple[int, int], dtype: torch.dtype) -> None:
    """A program takes 1024 pixels: 1024, one less and one more, and a block of one pixel."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (3, 3, size[0] + 2, size[1] + 5), np.uint8))
    offsets = torch.tensor([[0, 0], [2, 5], [1, 3]])
    flips = torch.tensor([True, False, True])
    table = normalize_table((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    case = Case(images, table, dtype, torch.channels_last, size, offsets, flips)
    assert equal_bits(interpreted(case), expected(case))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_value_is_rounded_once(dtype: torch.dtype) -> None:
    """Values half way between two neighbours of the dtype, just beside that, too large, and not numbers at all."""
    step = torch.finfo(dtype).eps if dtype != torch.float32 else 2.0**-10
    values = torch.arange(256, dtype=torch.float64).mul(step / 2).add(1)
    values[100:200] += 1e-7
    values[200:203] = torch.tensor([1e30, -1e30, float("nan")])
    table = values.to(torch.float32)[None]
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    made = interpreted(Case(images, table, dtype, torch.contiguous_format, None, None, None))
    assert equal_bits(made.flatten(), table[0].to(dtype))


def test_it_writes_to_given_memory_and_nowhere_else() -> None:
    images = torch.randint(0, 256, (2, 3, 9, 7), dtype=torch.uint8)
    table = torch.randn(3, 256)
    memory = torch.full((4, 3, 12, 10), -7.0)
    out = memory[1:3, :, 2:11, 1:8]
    case = Case(images, table, torch.float32, torch.contiguous_format, None, None, None)
    assert interpreted(case, out) is out
    assert torch.equal(out, expected(case))
    out.fill_(-7)
    assert bool((memory == -7).all())


def test_offsets_beyond_the_edge_stay_inside_the_image() -> None:
    """A device can't refuse them without waiting: they are moved to the edge, no foreign memory is read."""
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    case = Case(images, torch.randn(1, 256), torch.float32, torch.contiguous_format, (4, 4), None, None)
    job = checked(images, case.table, size=(4, 4))
    launch(type(job)(job.images, job.table, torch.tensor([[-3, 99], [99, -1]]), None, job.out))
    moved = Case(images, case.table, case.dtype, case.memory_format, (4, 4), torch.tensor([[0, 4], [4, 0]]), None)
    assert torch.equal(job.out, expected(moved))

"""The plain torch way of the fused kernel: right over random shapes, equal to the CPU path, and clear about misuse."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from normalize_cases import Case, cases, equal_bits, expected

from zerocopy_data.device import kernels
from zerocopy_data.device.kernels import fused_normalize, normalize_table, reference_normalize
from zerocopy_data.errors import ConfigError
from zerocopy_data.image.ops import IMAGENET_MEAN, IMAGENET_STD, Normalize, ToDtype
from zerocopy_data.image.program import compile_program

TABLE = normalize_table(IMAGENET_MEAN, IMAGENET_STD)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_each_pixel_is_the_one_that_numpy_picks(case: Case) -> None:
    made = fused_normalize(
        case.images, case.table, case.dtype, case.memory_format, case.size, case.offsets, case.flips
    )  # fmt: skip
    assert equal_bits(made, expected(case))
    assert made.is_contiguous(memory_format=case.memory_format)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_a_batch_equals_what_the_cpu_path_normalised(dtype: str, layout: str) -> None:
    images = np.random.default_rng(1).integers(0, 256, (4, 30, 20, 3), np.uint8)
    program = compile_program([ToDtype(dtype, scale=True, memory_format=layout), Normalize()])
    view = program.views[0]
    made = [view.array(*program.native.run_pixels(image, 0, 0, 0)[0]) for image in images]
    ours = fused_normalize(torch.from_numpy(images).permute(0, 3, 1, 2), TABLE, getattr(torch, dtype))
    assert equal_bits(ours, torch.from_numpy(np.stack(made)))


def test_a_large_batch_that_goes_in_pieces_is_the_same() -> None:
    images = torch.randint(0, 256, (9, 3, 300, 200), dtype=torch.uint8)
    flips = torch.arange(9) % 2 == 0
    offsets = torch.stack([torch.arange(9), torch.arange(9) * 2], 1)
    case = Case(images, TABLE, torch.float32, torch.contiguous_format, (290, 180), offsets, flips)
    assert torch.equal(fused_normalize(images, TABLE, size=(290, 180), offsets=offsets, flips=flips), expected(case))


def test_it_writes_into_given_memory() -> None:
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    memory = torch.full((2, 3, 5, 9), -7.0)
    out = memory[..., 1:8]
    assert fused_normalize(images, TABLE, out=out) is out
    assert torch.equal(out, reference_normalize(images, TABLE))
    assert bool((memory[..., [0, 8]] == -7).all())


def test_the_input_is_left_alone() -> None:
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    before = images.clone()
    reference_normalize(images, TABLE, size=(3, 3), offsets=torch.tensor([[1, 1], [2, 4]]), flips=torch.ones(2) > 0)
    assert torch.equal(images, before)


IMAGES = torch.zeros((2, 3, 8, 6), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"images": IMAGES.float()}, "uint8"),
        ({"images": IMAGES[0]}, "uint8"),
        ({"table": TABLE[:1]}, "normalize_table"),
        ({"table": TABLE.double()}, "normalize_table"),
        ({"table": TABLE.to("meta")}, "on cpu is needed"),
        ({"dtype": torch.float64}, "float16"),
        ({"dtype": torch.uint8}, "float16"),
        ({"memory_format": torch.preserve_format}, "channels_last"),
        ({"size": (9, 6)}, "do not fit"),
        ({"size": (0, 6)}, "do not fit"),
        ({"offsets": torch.zeros(2, 2)}, "int64"),
        ({"offsets": torch.zeros(3, 2).int()}, r"\[2, 2\]"),
        ({"size": (4, 4), "offsets": torch.tensor([[0, 0], [5, 0]])}, r"\(4, 2\)"),
        ({"size": (4, 4), "offsets": torch.tensor([[0, 0], [0, -1]])}, "start between"),
        ({"flips": torch.zeros(2)}, "bool"),
        ({"flips": torch.zeros(2, device="meta").bool()}, "move them there"),
        ({"out": torch.zeros(2, 3, 8, 5)}, "out is"),
        ({"out": torch.zeros(2, 3, 8, 6).half()}, "out is"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fused_normalize(**{"images": IMAGES, "table": TABLE, **arguments})


@pytest.mark.parametrize(("mean", "std"), [((0.5,), (0.5, 0.5)), ((), ()), ((0.5,), (0.0,)), ((float("nan"),), (1.0,))])
def test_tables_that_make_no_sense_are_refused(mean: Any, std: Any) -> None:
    with pytest.raises(ConfigError):
        normalize_table(mean, std)


def test_without_triton_it_works_and_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from zerocopy_data.device.kernels import fused_normalize, normalize_table\n"
        "fused_normalize(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), normalize_table([0.5], [0.5]))\n"
        "from zerocopy_data.device.kernels.normalize import _has_triton\n"
        "print(_has_triton(), 'torchvision' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.split() == ["False", "False"], out.stderr
    code = "import sys, zerocopy_data.device.kernels; print('triton' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_the_package_offers_what_it_names() -> None:
    assert all(callable(getattr(kernels, name)) for name in kernels.__all__)

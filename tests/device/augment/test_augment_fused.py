"""Crop, flip and Normalize at the end of a chain are one call of the fused kernel, and equal one after another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from augment_cases import EPOCH, SEED, numbers, pictures

from zerocopy_data.device.augment import (
    Augment,
    ColorJitter,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
)
from zerocopy_data.device.augment import crop as crop_module
from zerocopy_data.device.augment import fused as fused_module
from zerocopy_data.device.augment import normalize as normalize_module
from zerocopy_data.device.augment.op import BatchOp

N = 12
CROP, FLIP, NORMALIZE = RandomCrop((15, 21)), RandomHorizontalFlip(), Normalize()
ENDS: dict[str, list[Any]] = {
    "crop and flip": [CROP, FLIP, NORMALIZE],
    "crop": [CROP, NORMALIZE],
    "flip": [FLIP, NORMALIZE],
    "halves": [CROP, FLIP, Normalize(dtype=torch.bfloat16)],
    "behind others": [ColorJitter(0.3), CROP, FLIP, NORMALIZE],
    "before others": [CROP, FLIP, NORMALIZE, RandomErasing()],
}


class Apart:
    """Hides an operation from the search for what can be fused."""

    def __init__(self, op: BatchOp) -> None:
        self.op = op

    def plan(self, *args: Any) -> Any:
        return self.op.plan(*args)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def counted(name: str, module: Any) -> None:
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **kwargs: made.append(name) or real(*args, **kwargs))

    counted("fused_normalize", fused_module)
    counted("fused_normalize", normalize_module)
    counted("crops", crop_module)
    return made


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ENDS)
def test_one_call_that_equals_the_parts(name: str, channels_last: bool, calls: list[str]) -> None:
    images = pictures(N, channels_last=channels_last)
    together = Augment(ENDS[name], SEED)(images, samples=numbers(N), epoch=EPOCH)
    assert calls == ["fused_normalize"]
    apart = Augment([Apart(op) for op in ENDS[name]], SEED)(images, samples=numbers(N), epoch=EPOCH)
    assert torch.equal(together, apart)
    assert together.stride() == apart.stride()


@pytest.mark.parametrize("ops", [[RandomCrop(23, padding=3), FLIP, NORMALIZE], [FLIP, CROP, NORMALIZE]])
def test_what_the_kernel_can_not_do_is_done_in_parts(ops: list[Any]) -> None:
    images = pictures(N)
    together = Augment(ops, SEED)(images, samples=numbers(N), epoch=EPOCH)
    apart = Augment([Apart(op) for op in ops], SEED)(images, samples=numbers(N), epoch=EPOCH)
    assert torch.equal(together, apart)


def test_floats_are_not_bytes() -> None:
    images = pictures(N, dtype=torch.float16)
    together = Augment([CROP, FLIP, NORMALIZE], SEED)(images, samples=numbers(N), epoch=EPOCH)
    apart = Augment([Apart(CROP), Apart(FLIP), Apart(NORMALIZE)], SEED)(images, samples=numbers(N), epoch=EPOCH)
    assert torch.equal(together, apart)
    assert together.dtype == torch.float16


def test_a_planted_lane_of_another_place_shows() -> None:
    images = pictures(N)
    together = Augment([CROP, FLIP, NORMALIZE], SEED)(images, samples=numbers(N), epoch=EPOCH)
    moved = Augment([ColorJitter(), Apart(CROP), Apart(FLIP), NORMALIZE], SEED)(images, samples=numbers(N), epoch=EPOCH)
    assert not torch.equal(together, moved)


@pytest.mark.parametrize("ops", [[CROP, FLIP, NORMALIZE], [FLIP, NORMALIZE], [CROP, NORMALIZE]])
def test_no_samples(ops: list[Any]) -> None:
    made = Augment(ops)(pictures(0), samples=[], epoch=0)
    assert made.dtype == torch.float32
    assert len(made) == 0

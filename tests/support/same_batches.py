"""Whether two batches are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def assert_same(
    got: Any,
    expected: Any,
    move: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    strides: bool = False,
) -> None:
    """Equal in structure, types, dtypes, shapes and every byte.

    Args:
        got: A batch.
        expected: What it must be, in host memory.
        move: Brings a tensor of `got` there: torch.Tensor.cpu for one that lies on a device.
        strides: Whether tensors must lie in the same order in memory, too.
    """
    if isinstance(got, torch.Tensor):
        got = move(got)
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert not strides or got.stride() == expected.stride()
        raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (got, expected)]
        assert torch.equal(*raw)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for name in expected:
            assert_same(got[name], expected[name], move, strides)
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected)
        for left, right in zip(got, expected, strict=True):
            assert_same(left, right, move, strides)
    else:
        assert got == expected

"""Whether what came out of a loader is what was put in: type, layout, bytes."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import torch


def assert_same(got: Any, want: Any, where: str = "batch") -> None:
    """Type by type and byte by byte, so that NaN equals NaN and -0.0 differs from 0.0."""
    assert type(got) is type(want), f"{where}: {type(got)} came, {type(want)} was sent"
    if isinstance(want, torch.Tensor):
        _assert_same_tensor(got, want, where)
    elif isinstance(want, np.ndarray):
        _assert_same_array(got, want, where)
    elif isinstance(want, dict):
        assert list(got) == list(want), where
        for key in want:
            assert_same(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple, collections.deque)):
        assert len(got) == len(want), where
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif dataclasses.is_dataclass(want):
        for field in dataclasses.fields(want):
            assert_same(getattr(got, field.name), getattr(want, field.name), f"{where}.{field.name}")
    elif isinstance(want, float) and want != want:
        assert got != got, where
    else:
        assert got == want, where


def _assert_same_tensor(got: torch.Tensor, want: torch.Tensor, where: str) -> None:
    assert got.dtype == want.dtype, where
    assert got.layout == want.layout, where
    assert got.device == want.device, where
    assert got.shape == want.shape, where
    assert got.requires_grad == want.requires_grad, where
    if want.is_meta:
        return
    if want.is_quantized:
        assert got.qscheme() == want.qscheme(), where
        assert torch.equal(got.int_repr(), want.int_repr()), where
        assert torch.equal(got.dequantize(), want.dequantize()), where
    elif want.layout == torch.strided:
        assert got.stride() == want.stride(), where
        assert _bytes(got) == _bytes(want), where
    else:
        if want.layout == torch.sparse_coo:
            assert got.is_coalesced() == want.is_coalesced(), where
        assert torch.equal(got.to_dense(), want.to_dense()), where


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def _assert_same_array(got: np.ndarray, want: np.ndarray, where: str) -> None:
    # numpy's own pickling (2.4) may turn big-endian numbers into native ones; their values must be the same.
    assert got.dtype in (want.dtype, want.dtype.newbyteorder("=")), where
    got = got if got.dtype == want.dtype else got.astype(want.dtype)
    assert got.shape == want.shape, where
    if isinstance(want, np.ma.MaskedArray):
        assert np.array_equal(np.ma.getmaskarray(got), np.ma.getmaskarray(want)), where
        assert np.array_equal(got.filled(0), want.filled(0)), where
    elif want.dtype.hasobject:
        assert got.tolist() == want.tolist(), where
    else:
        assert got.tobytes() == want.tobytes(), where

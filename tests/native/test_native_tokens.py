"""The native token stream: windows as int64 whatever the stored type and wherever runs end, every length checked."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocopy_data import _native

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")
Ints = npt.NDArray[np.int64]


def extremes(dtype: str, count: int, seed: int = 0) -> npt.NDArray[Any]:
    """Random tokens, the type's smallest and largest among them."""
    info = np.iinfo(dtype)
    tokens = np.random.default_rng(seed).integers(info.min, info.max, count, dtype, endpoint=True)
    tokens[: min(count, 2)] = (info.min, info.max)[: min(count, 2)]
    return tokens


def windows(stream: _native.TokenStream, starts: list[int], length: int, target: bool) -> tuple[Ints, Ints | None]:
    x = np.full((len(starts), length), -77, np.int64)
    y = np.full_like(x, -77) if target else None
    assert stream.gather(np.array(starts, np.int64), length, x, y) == []
    return x, y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [0, 1])
def test_windows_are_the_stored_tokens_at_any_alignment(dtype: str, shift: int) -> None:
    tokens = extremes(dtype, 300)
    room = bytearray(tokens.nbytes + shift)
    room[shift:] = tokens.tobytes()
    stream = _native.TokenStream(dtype, [(memoryview(room)[shift:], None, None)])
    assert len(stream) == 300
    x, y = windows(stream, [0, 17, 299 - 40], 40, True)
    for row, start in enumerate((0, 17, 299 - 40)):
        assert np.array_equal(x[row], tokens[start : start + 40].astype(np.int64))
        assert y is not None
        assert np.array_equal(y[row], tokens[start + 1 : start + 41].astype(np.int64))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from(DTYPES),
    st.data(),
)
def test_windows_go_on_from_run_to_run(
    runs: list[int], length: int, target: bool, dtype: str, data: st.DataObject
) -> None:
    tokens = extremes(dtype, sum(runs), seed=length)
    parts = [(part, None, None) for part in np.split(tokens, np.cumsum(runs)[:-1])]
    stream = _native.TokenStream(dtype, parts)
    assert len(stream) == len(tokens)
    last = len(tokens) - length - target
    if last < 0:
        return
    starts = data.draw(st.lists(st.integers(0, last), max_size=6))
    x, y = windows(stream, starts, length, target)
    for row, start in enumerate(starts):
        assert np.array_equal(x[row], tokens[start : start + length].astype(np.int64))
        if y is not None:
            assert np.array_equal(y[row], tokens[start + 1 : start + 1 + length].astype(np.int64))


def documents(lengths: list[int]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """Tokens behind three that belong to no document, offsets and sums."""
    tokens = extremes("uint16", 3 + sum(lengths))
    offsets = np.cumsum([3, *lengths], dtype=np.int32)
    sums = [_native.crc32c(tokens[a:b].tobytes()) for a, b in pairwise(offsets)]
    return tokens, offsets, np.array(sums, np.uint32)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 12), st.data())
def test_only_windows_that_touch_a_damaged_document_are_faults(
    lengths: list[int], length: int, data: st.DataObject
) -> None:
    tokens, offsets, sums = documents(lengths)
    stored = [d for d, size in enumerate(lengths) if size]
    total = sum(lengths)
    if not stored or total < length:
        return
    damaged = data.draw(st.sampled_from(stored))
    tokens[offsets[damaged + 1] - 1] ^= 1
    stream = _native.TokenStream("uint16", [(tokens, offsets, sums)])
    starts = np.arange(total - length + 1)
    out = np.full((len(starts), length), -77, np.int64)
    begin, end = offsets[damaged] - 3, offsets[damaged + 1] - 3
    touching = [s for s in starts.tolist() if s < end and s + length > begin]
    for _ in range(2):  # a damaged document is no better at the second look
        assert [fault[:2] for fault in stream.gather(starts, length, out)] == [(s, 3) for s in touching]
    for s in starts.tolist():
        expected = np.full(length, -77) if s in touching else tokens[3 + s : 3 + s + length].astype(np.int64)
        assert np.array_equal(out[s], expected)


def test_a_document_is_summed_once() -> None:
    tokens, offsets, sums = documents([10, 10])
    stream = _native.TokenStream("uint16", [(tokens, offsets, sums)])
    out = np.empty(4, np.int64)
    assert stream.gather(np.array([0]), 4, out) == []
    tokens[3 + 9] ^= 1
    tokens[3 + 19] ^= 1
    assert stream.gather(np.array([0]), 4, out) == []  # known to be sound
    assert stream.gather(np.array([8]), 4, out) != []  # reaches into the other document


def test_threads_read_one_stream_at_once() -> None:
    tokens, offsets, sums = documents([5] * 2000)
    stream = _native.TokenStream("uint16", [(tokens, offsets, sums)])
    starts = np.random.default_rng(1).integers(0, 10_000 - 17, 3000)
    expected = np.lib.stride_tricks.sliding_window_view(tokens[3:].astype(np.int64), 17)[starts]
    same: list[bool] = []

    def read() -> None:
        x, _ = windows(stream, starts.tolist(), 17, False)
        same.append(np.array_equal(x, expected))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 4


@pytest.mark.parametrize("start", [-1, 7, 2**62, 2**63 - 1, -(2**63)])
def test_windows_that_leave_the_stream_are_refused_before_anything_is_written(start: int) -> None:
    stream = _native.TokenStream("int32", [(np.arange(10, dtype=np.int32), None, None)])
    x, y = np.full((2, 3), -77, np.int64), np.full((2, 3), -77, np.int64)
    with pytest.raises(IndexError, match="10 tokens"):
        stream.gather(np.array([0, start]), 3, x, y)
    assert (x == -77).all()
    assert (y == -77).all()


def test_room_that_is_too_small_is_refused() -> None:
    stream = _native.TokenStream("int32", [(np.arange(10, dtype=np.int32), None, None)])
    starts, fit, short = np.array([0, 1]), np.empty(6, np.int64), np.empty(5, np.int64)
    with pytest.raises(ValueError, match="too small"):
        stream.gather(starts, 3, short)
    with pytest.raises(ValueError, match="too small"):
        stream.gather(starts, 3, fit, short)
    with pytest.raises(ValueError, match="too small"):
        stream.gather(starts, 2**62, fit)
    for length in (0, -1, 2**63 - 1):
        with pytest.raises(ValueError, match="at least one token"):
            stream.gather(starts, length, fit)
    with pytest.raises(ValueError, match="aligned"):
        stream.gather(starts, 3, memoryview(bytearray(64))[1:57])
    with pytest.raises(BufferError):
        stream.gather(starts, 3, bytes(64))


def test_parts_that_do_not_fit_are_refused() -> None:
    data = np.arange(10, dtype=np.uint16)

    def offsets(*values: int) -> npt.NDArray[np.int32]:
        return np.array(values, np.int32)

    sums = np.zeros(1, np.uint32)
    cases: list[tuple[Any, Any, Any, str]] = [
        (data.tobytes()[:-1], None, None, "whole number"),
        (data, None, sums, "offsets are missing"),
        (data, offsets(), None, "one offset more"),
        (data, offsets(0, 11), None, "outside"),
        (data, offsets(-1, 5), None, "outside"),
        (data, offsets(0, 5, 4), None, "outside"),
        (data, offsets(0, 5, 10), sums, "too few checksums"),
    ]
    for *part, message in cases:
        with pytest.raises(ValueError, match=message):
            _native.TokenStream("uint16", [tuple(part)])  # type: ignore[list-item]
    for dtype in ("uint64", "float32", ""):
        with pytest.raises(ValueError, match="tokens are integers"):
            _native.TokenStream(dtype, [])

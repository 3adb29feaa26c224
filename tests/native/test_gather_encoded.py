"""gather_encoded: encoded bytes in one block, and windows; every length is checked, nothing leads outside memory."""

from __future__ import annotations

from typing import Any

import jpeg_cases as cases
import numpy as np
import pytest
from test_native_columns import JPEGS, SIDE, column, program, rows

from zerocopy_data import _native


def gather(
    col: Any, which: Any, capacity: int = 1 << 16, views: int = 1, made: Any = None, key: tuple[int, int] = (9, 2)
) -> tuple[int, list[Any], Any, Any, Any]:
    block = np.full(capacity + 64, 77, np.uint8)
    offsets = np.full(len(which) + 1, -1, np.int64)
    geometry = np.full((len(which), views, 9), -1, np.int32)
    needed, faults = col.gather_encoded(made or program(), which, *key, None, block[:capacity], offsets, geometry)
    assert (block[capacity:] == 77).all()
    return needed, faults, block[:capacity], offsets, geometry


def test_bytes_lie_one_after_another() -> None:
    which = rows(3, 0, 5, 3)
    needed, faults, block, offsets, geometry = gather(column(JPEGS), which)
    assert faults == []
    assert offsets.tolist() == np.cumsum([0, *(len(JPEGS[row]) for row in which)]).tolist()
    assert needed == offsets[-1]
    assert block[:needed].tobytes() == b"".join(JPEGS[row] for row in which)
    assert geometry[0].tolist() == geometry[3].tolist()  # one key and one row: one window
    y, x, height, width, high, wide, top, left, flip = geometry[:, 0].T
    assert ((y >= 0) & (x >= 0) & (height > 0) & (width > 0) & (y + height <= 30) & (x + width <= 40)).all()
    assert (high == SIDE).all()
    assert (wide == SIDE).all()
    assert not top.any()
    assert not left.any()
    assert not flip.any()


def test_no_rows() -> None:
    needed, faults, _, offsets, _ = gather(column(JPEGS), rows(), capacity=0)
    assert (needed, faults, offsets.tolist()) == (0, [], [0])


@pytest.mark.parametrize("capacity", [0, 1, 100])
def test_a_block_that_is_too_small_is_told_the_size_and_not_overrun(capacity: int) -> None:
    needed, faults, _, offsets, geometry = gather(column(JPEGS), rows(0, 1, 2), capacity=capacity)
    assert faults == []
    assert needed == sum(map(len, JPEGS[:3]))
    again, _, block, same_offsets, same_geometry = gather(column(JPEGS), rows(0, 1, 2), capacity=needed)
    assert again == needed
    assert block.tobytes() == b"".join(JPEGS[:3])
    assert (same_offsets == offsets).all()
    assert (same_geometry == geometry).all()


@pytest.mark.parametrize("which", [(-1,), (6,), (2**62,), (0, -(2**63))])
def test_rows_outside_the_column_are_refused(which: tuple[int, ...]) -> None:
    with pytest.raises((IndexError, ValueError)):
        gather(column(JPEGS), rows(*which))


@pytest.mark.parametrize("short", ["offsets", "geometry", "dtype"])
def test_outputs_that_are_too_small_are_refused(short: str) -> None:
    offsets = np.zeros(3 - (short == "offsets"), np.int64)
    geometry = np.zeros((2, 9), np.int32)[: 2 - (short == "geometry")]
    if short == "dtype":
        offsets = np.zeros(3, np.int32)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="too small for the batch"):
        column(JPEGS).gather_encoded(program(), rows(0, 1), 0, 0, None, np.zeros(9999, np.uint8), offsets, geometry)


def test_outputs_that_are_not_aligned_are_refused() -> None:
    offsets = np.zeros(33, np.uint8)[1:]
    with pytest.raises(ValueError, match="not aligned"):
        column(JPEGS).gather_encoded(
            program(), rows(0), 0, 0, None, np.zeros(9999, np.uint8), offsets, np.zeros((1, 9), np.int32)
        )


def test_bad_and_unusual_rows_take_no_bytes() -> None:
    values = [
        JPEGS[0],
        b"",
        JPEGS[1][:300],
        b"\x89PNG....",
        cases.with_exif_orientation(JPEGS[2], 6),
        cases.cmyk(),
        JPEGS[3][:-2],
        JPEGS[4],
    ]
    needed, faults, block, offsets, geometry = gather(column(values), rows(*range(8)))
    assert block[:needed].tobytes() == JPEGS[0] + JPEGS[4]
    assert [place for place, _, _ in faults] == [1, 2, 3, 4, 5, 6]
    assert {place: kind for place, kind, _ in faults if kind == 1}.keys() >= {3, 4, 5, 6}
    assert (np.diff(offsets)[1:7] == 0).all()
    assert not geometry[1:7].any()


def test_a_wrong_checksum_is_a_fault() -> None:
    sums = [_native.crc32c(data) for data in JPEGS]
    sums[2] ^= 1
    _, faults, _, _, _ = gather(column(JPEGS, crcs=sums), rows(1, 2))
    assert [(place, "checksum" in text) for place, _, text in faults] == [(1, True)]


def test_headers_that_lie_about_lengths_and_sizes() -> None:
    rng = np.random.default_rng(5)
    values = []
    for _ in range(300):
        data = bytearray(JPEGS[int(rng.integers(6))])
        for place in rng.integers(2, 200, 3):
            data[place] = int(rng.integers(256))
        values.append(bytes(data[: int(rng.integers(2, len(data) + 1))]))
    values.append(cases.with_size(JPEGS[0], 65_500, 65_500))
    needed, faults, _, offsets, _ = gather(column(values), rows(*range(301)), capacity=1 << 20)
    assert needed == offsets[-1] <= 1 << 20
    assert len(faults) > 50
    assert (np.diff(offsets) >= 0).all()


def test_an_operation_that_no_window_says_stays_with_the_cpu() -> None:
    op = _native.Op.random_crop(64, 64, (20, 20, 20, 20), False, (0, 0, 0))
    padded = _native.Program([_native.View([op], "uint8", "nchw", None, 64, 64)])
    _, faults, _, _, _ = gather(column(JPEGS), rows(0), made=padded)
    assert [kind for _, kind, _ in faults] == [1]


def test_a_row_that_its_second_view_refuses_has_no_geometry_of_its_first() -> None:
    """Found by the fuzzer."""
    fits = _native.View([_native.Op.center_crop(16, 16)], "uint8", "nchw", None, 16, 16)
    padded = _native.View([_native.Op.center_crop(64, 64)], "uint8", "nchw", None, 64, 64)
    both = _native.Program([fits, padded])
    needed, faults, _, offsets, geometry = gather(column(JPEGS), rows(0), views=2, made=both)
    assert (needed, [kind for _, kind, _ in faults], offsets.tolist()) == (0, [1], [0, 0])
    assert not geometry.any()


def test_a_view_without_a_size_is_refused() -> None:
    free = _native.Program([_native.View([], "uint8", "nchw", None, 0, 0)])
    with pytest.raises(ValueError, match="fixed size"):
        gather(column(JPEGS), rows(0), made=free)


def test_cancelled() -> None:
    cancel = _native.Cancel()
    cancel.set()
    block, offsets, geometry = np.zeros(9999, np.uint8), np.zeros(2, np.int64), np.zeros((1, 9), np.int32)
    _, faults = column(JPEGS).gather_encoded(program(), rows(0), 0, 0, None, block, offsets, geometry, cancel)
    assert [kind for _, kind, _ in faults] == [4]

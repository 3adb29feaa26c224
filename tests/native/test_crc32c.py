"""CRC-32C equals its definition, for every length and alignment that the fast paths tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from zerocopy_data import _native


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return table


TABLE = _table()


def reference(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # RFC 3720, appendix B.4, and the check value of the CRC catalogue
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert _native.crc32c(data) == expected


def test_every_length_around_the_three_streams_and_every_alignment() -> None:
    rng = np.random.default_rng(0)
    data = rng.bytes(7000)
    lengths = [*range(40), *range(3060, 3090), *range(6140, 6160), *(int(n) for n in rng.integers(0, 6900, 60))]
    for number, length in enumerate(lengths):
        start = number % 17
        piece = data[start : start + length]
        assert _native.crc32c(memoryview(data)[start : start + length]) == reference(piece), (start, length)


def test_a_sum_can_be_continued_at_any_point() -> None:
    data = np.random.default_rng(1).bytes(5000)
    whole = _native.crc32c(data)
    for cut in [0, 1, 7, 8, 1023, 1024, 3071, 3072, 3073, 4999, 5000]:
        assert _native.crc32c(data[cut:], _native.crc32c(data[:cut])) == whole


def test_one_flipped_bit_changes_the_sum() -> None:
    data = bytearray(np.random.default_rng(2).bytes(4000))
    before = _native.crc32c(data)
    for at in range(0, 4000, 97):
        data[at] ^= 1 << at % 8
        assert _native.crc32c(data) != before
        data[at] ^= 1 << at % 8


def test_rows_have_the_sums_of_their_bytes() -> None:
    data = np.random.default_rng(3).integers(0, 256, (50, 12), dtype=np.uint8)
    assert _native.crc32c_rows(data, 12).tolist() == [_native.crc32c(row.tobytes()) for row in data]
    assert _native.crc32c_rows(b"", 12).tolist() == []
    for wrong in (0, 7):
        with pytest.raises(ValueError, match="whole number of rows"):
            _native.crc32c_rows(data, wrong)

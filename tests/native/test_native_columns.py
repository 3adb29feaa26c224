"""Columns and batches: every length is checked, a bad row costs only itself, and nothing leads outside memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jpeg_cases as cases
import numpy as np
import numpy.typing as npt
import pytest

from zerocopy_data import _native

SIDE = 16
JPEGS = [cases.pillow_jpeg(cases.photo(seed, 40, 30)) for seed in range(6)]


def program(side: int = SIDE, dtype: str = "uint8") -> _native.Program:
    table = None if dtype == "uint8" else np.zeros((3, 256), np.uint32)
    op = _native.Op.random_resized_crop(side, side, (0.08, 1.0), (0.75, 1.33), "bilinear")
    return _native.Program([_native.View([op], dtype, "nchw", table, side, side)])


def column(values: Sequence[bytes], wide: bool = False, crcs: Sequence[int] | None = None) -> _native.Column:
    data = np.frombuffer(b"".join(values) or b"\0", np.uint8)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64 if wide else np.int32)
    sums = None if crcs is None else np.array(crcs, np.uint32)
    made = _native.Column([0, len(values)])
    made.set_shard(0, [(len(values), data, offsets, wide, 0, sums)])
    return made


def rows(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def batch(n: int, side: int = SIDE) -> npt.NDArray[np.uint8]:
    return np.full((n, 3, side, side), 77, np.uint8)


@pytest.mark.parametrize("wide", [False, True])
def test_a_batch_is_its_samples_one_by_one(wide: bool) -> None:
    col, out = column(JPEGS, wide), batch(4)
    assert col.decode(program(), rows(3, 0, 5, 3), 9, 2, None, [out]) == []
    for place, row in enumerate([3, 0, 5, 3]):
        [(alone, _, _)] = program().run_encoded(JPEGS[row], 9, 2, row)
        assert out[place].tobytes() == alone.tobytes()


def test_bad_rows_are_named_by_their_place_and_spoil_no_other() -> None:
    values = [JPEGS[0], b"", JPEGS[1][:300], b"\x89PNG....", JPEGS[2]]
    out = batch(5)
    faults = column(values).decode(program(), rows(0, 1, 2, 3, 4), 0, 0, None, [out])
    assert [(place, kind) for place, kind, _ in faults] == [(1, 2), (2, 2), (3, 1)]
    assert "zero bytes" in faults[0][2]
    for place in (0, 4):
        [(alone, _, _)] = program().run_encoded(values[place], 0, 0, place)
        assert out[place].tobytes() == alone.tobytes()


def test_a_wrong_checksum_is_a_fault_unless_verification_is_off() -> None:
    sums = [_native.crc32c(data) for data in JPEGS[:3]]
    sums[1] ^= 4
    faults = column(JPEGS[:3], crcs=sums).decode(program(), rows(0, 1, 2), 0, 0, None, [batch(3)])
    assert [(place, kind) for place, kind, _ in faults] == [(1, 3)]
    assert "checksum mismatch" in faults[0][2]
    trusting = _native.Column([0, 1], verify=False)
    data = np.frombuffer(JPEGS[1], np.uint8)
    trusting.set_shard(0, [(1, data, np.array([0, len(data)], np.int32), False, 0, np.array(sums[1:2], np.uint32))])
    assert trusting.decode(program(), rows(0), 0, 0, None, [batch(1)]) == []


def test_rows_that_do_not_exist_are_refused() -> None:
    col = column(JPEGS)
    for bad in (-1, 6, 2**62, -(2**63)):
        with pytest.raises(IndexError):
            col.decode(program(), rows(0, bad), 0, 0, None, [batch(2)])
        with pytest.raises(IndexError):
            col.gather(rows(bad), 4, bytearray(4))


def test_a_shard_that_has_not_come_is_asked_for_and_not_read() -> None:
    col = _native.Column([0, 2, 4, 6])
    assert col.missing(rows(5, 0, 4, 1)) == [2, 0]
    with pytest.raises(ValueError, match="not been mapped"):
        col.decode(program(), rows(0), 0, 0, None, [batch(1)])
    with pytest.raises(ValueError, match="not been mapped"):
        col.gather(rows(0), 4, bytearray(4))
    data = np.zeros(8, np.uint8)
    col.set_shard(1, [(2, data, None, False, 4, None)])
    assert col.missing(rows(2, 3)) == []


def test_an_output_that_is_too_small_is_refused() -> None:
    col = column(JPEGS)
    whole = batch(2).nbytes
    for out in (bytearray(whole - 1), bytearray(0), batch(1)):
        with pytest.raises(ValueError, match="too small"):
            col.decode(program(), rows(0, 1), 0, 0, None, [out])
    with pytest.raises(ValueError, match="too small"):
        col.decode(program(dtype="float32"), rows(0, 1), 0, 0, None, [bytearray(whole * 4 - 1)])
    for outs in ([], [batch(2), batch(2)]):
        with pytest.raises(ValueError, match="one output buffer a view"):
            col.decode(program(), rows(0, 1), 0, 0, None, outs)


def test_an_output_that_cannot_be_written_is_refused() -> None:
    frozen = batch(1)
    frozen.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        column(JPEGS).decode(program(), rows(0), 0, 0, None, [frozen])
    with pytest.raises((BufferError, ValueError)):
        column(JPEGS).decode(program(), rows(0), 0, 0, None, [batch(1, side=2 * SIDE)[..., ::2]])
    with pytest.raises((BufferError, ValueError, TypeError)):
        column(JPEGS).decode(program(), rows(0), 0, 0, None, [bytes(batch(1))])


def test_bytes_after_the_batch_are_not_touched() -> None:
    out = np.full(2 * 3 * SIDE * SIDE + 64, 77, np.uint8)
    assert column(JPEGS).decode(program(), rows(0, 1), 0, 0, None, [out]) == []
    assert (out[-64:] == 77).all()


def test_a_float_output_that_is_not_aligned_is_refused() -> None:
    memory = np.zeros(4 * 3 * SIDE * SIDE + 1, np.uint8)
    with pytest.raises(ValueError, match="align"):
        column(JPEGS).decode(program(dtype="float32"), rows(0), 0, 0, None, [memory[1:]])


def test_a_view_without_a_fixed_size_cannot_fill_a_batch() -> None:
    free = _native.Program([_native.View([], "uint8", "nchw", None, 0, 0)])
    with pytest.raises(ValueError, match="fixed size"):
        column(JPEGS).decode(free, rows(0), 0, 0, None, [bytearray(100)])


def test_a_sample_of_another_size_than_the_batch_is_a_fault() -> None:
    """The native side does not trust the declared size: it would write beyond its place."""
    crop = _native.Op.center_crop(20, 20)
    lying = _native.Program([_native.View([crop], "uint8", "nchw", None, SIDE, SIDE)])
    out = batch(1)
    [(place, kind, message)] = column(JPEGS).decode(lying, rows(0), 0, 0, None, [out])
    assert (place, kind) == (0, 5)
    assert "20x20" in message
    assert (out == 77).all()


@pytest.mark.parametrize(
    "chunk",
    [
        (3, bytes(30), np.array([0, 10, 20], np.int32), False, 0, None),  # three rows need four offsets
        (3, bytes(30), np.array([0, 10], np.int64), True, 0, None),
        (3, bytes(11), None, False, 4, None),
        (3, bytes(30), None, False, 0, None),
        (3, bytes(30), np.array([0, 1, 2, 3], np.int32), False, 0, np.zeros(2, np.uint32)),
        (-1, bytes(30), np.array([0, 1, 2, 3], np.int32), False, 0, None),
        (2**63 - 1, bytes(30), np.array([0, 1, 2, 3], np.int32), False, 0, None),
        (2, bytes(30), np.array([0, 1, 2], np.int32), False, 0, None),  # the shard has three
    ],
)
def test_chunks_that_are_too_short_are_refused(chunk: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"chunk|rows"):
        _native.Column([0, 3]).set_shard(0, [chunk])  # type: ignore[list-item]


@pytest.mark.parametrize("shard", [-1, 1, 2**62])
def test_a_shard_that_does_not_exist_is_refused(shard: int) -> None:
    with pytest.raises(IndexError):
        _native.Column([0, 3]).set_shard(shard, [(3, bytes(12), None, False, 4, None)])


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 5, 3]])
def test_shard_starts_that_make_no_sense_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="rise from 0"):
        _native.Column(starts)


@pytest.mark.parametrize("offsets", [[0, 5, 11], [-4, 5, 8], [0, 9, 8], [0, 2**31 - 1, 10], [2**31 - 1, 5, 10]])
def test_offsets_that_lead_outside_the_data_are_faults(offsets: list[int]) -> None:
    for wide, dtype in [(False, np.int32), (True, np.int64)]:
        col = _native.Column([0, 2])
        col.set_shard(0, [(2, bytes(10), np.array(offsets, dtype), wide, 0, None)])
        faults = col.decode(program(), rows(0, 1), 0, 0, None, [batch(2)])
        assert any("outside its data" in message for _, _, message in faults)
        faults = col.gather(rows(0, 1), 5, bytearray(10))
        assert any("outside its data" in message or "wrong number" in message for _, _, message in faults)


def test_gather_copies_rows_in_the_order_asked_for() -> None:
    values = np.arange(40, dtype=np.float32).reshape(10, 4)
    col = _native.Column([0, 4, 10])
    col.set_shard(1, [(2, values[4:6], None, False, 16, None), (4, values[6:], None, False, 16, None)])
    col.set_shard(0, [(4, values[:4], None, False, 16, None)])
    wanted = rows(9, 0, 5, 5, 6, 3)
    out = np.zeros((6, 4), np.float32)
    col.gather(wanted, 16, out)
    assert np.array_equal(out, values[wanted])


def test_gather_names_values_of_other_sizes_and_sums() -> None:
    values = np.arange(8, dtype=np.uint8)
    col = _native.Column([0, 2])
    good = _native.crc32c(values[:4])
    col.set_shard(0, [(2, values, None, False, 4, np.array([good, good], np.uint32))])
    out = np.full((3, 4), 77, np.uint8)
    [(place, kind, message)] = col.gather(rows(0, 1, 0), 4, out)
    assert (place, kind) == (1, 3)
    assert "checksum mismatch" in message
    assert out.tolist() == [[0, 1, 2, 3], [77] * 4, [0, 1, 2, 3]]
    [(_, kind, message)] = col.gather(rows(0), 3, bytearray(40))
    assert kind == 2
    assert "wrong number of bytes" in message
    with pytest.raises(ValueError, match="too small"):
        col.gather(rows(0, 0), 4, bytearray(7))
    with pytest.raises(ValueError, match="too small"):
        col.gather(rows(0), 0, bytearray(7))


def test_raw_images_come_straight_from_the_column() -> None:
    images = np.stack([cases.photo(seed, 24, 20) for seed in range(3)])
    col = _native.Column([0, 3], raw_width=24, raw_height=20)
    col.set_shard(0, [(3, images, None, False, images[0].nbytes, None)])
    out = batch(3)
    assert col.decode(program(), rows(2, 1, 0), 5, 1, None, [out]) == []
    for place, row in enumerate([2, 1, 0]):
        [(alone, _, _)] = program().run_pixels(images[row], 5, 1, row)
        assert out[place].tobytes() == alone.tobytes()


def raw_column(images: npt.NDArray[np.uint8], sums: npt.NDArray[np.uint32] | None = None) -> _native.Column:
    count, height, width, _ = images.shape
    made = _native.Column([0, count], raw_width=width, raw_height=height)
    made.set_shard(0, [(count, images.reshape(-1), None, False, height * width * 3, sums)])
    return made


def cut(height: int, width: int, flipped: bool) -> _native.Program:
    ops = [_native.Op.center_crop(height, width), _native.Op.horizontal_flip(float(flipped))]
    return _native.Program([_native.View(ops, "uint8", "nchw", None, height, width)])


# 1.2 and 5 MB in a batch: the larger is written past the caches where its address allows, which 1 and 16 do not.
@pytest.mark.parametrize("offset", [0, 1, 16, 32])
@pytest.mark.parametrize("count", [8, 33])
@pytest.mark.parametrize("flipped", [False, True])
def test_raw_images_are_cut_and_mirrored_whatever_the_width_and_the_address(
    flipped: bool, count: int, offset: int
) -> None:
    images = np.random.default_rng(1).integers(0, 256, (count, 230, 227, 3), dtype=np.uint8)
    sums = np.array([_native.crc32c(image.reshape(-1)) for image in images], np.uint32)
    col = raw_column(images, sums)
    for width in (1, 5, 31, 32, 33, 64, 95, 200, 224, 225):
        memory = np.full(count * 3 * 224 * width + 192, 77, np.uint8)
        start = 64 - memory.ctypes.data % 64 + offset
        out = memory[start : start + count * 3 * 224 * width]
        assert col.decode(cut(224, width, flipped), np.arange(count), 0, 0, None, [out]) == []
        left = round((227 - width) / 2)
        expected = images[:, 3:227, left : left + width]
        expected = (expected[:, :, ::-1] if flipped else expected).transpose(0, 3, 1, 2)
        assert np.array_equal(out.reshape(count, 3, 224, width), expected), width
        assert (memory[:start] == 77).all(), width
        assert (memory[start + out.size :] == 77).all(), width


@pytest.mark.parametrize("op", ["crop", "resize", "pad"])
@pytest.mark.parametrize("place", [0, 4_000, 128 * 128 * 3 // 2, -1])
def test_a_flipped_bit_of_a_raw_image_is_a_fault_wherever_it_is(op: str, place: int) -> None:
    images = np.random.default_rng(2).integers(0, 256, (3, 128, 128, 3), dtype=np.uint8)
    sums = np.array([_native.crc32c(image.reshape(-1)) for image in images], np.uint32)
    images[1].reshape(-1)[place] ^= 16
    first = {
        "crop": _native.Op.center_crop(20, 20),
        "resize": _native.Op.resize(20, 20, 0, "bilinear"),
        "pad": _native.Op.random_crop(20, 20, (120, 120, 120, 120), False, (1, 2, 3)),
    }[op]
    program = _native.Program([_native.View([first], "uint8", "nchw", None, 20, 20)])
    out = batch(3, 20)
    faults = raw_column(images, sums).decode(program, rows(0, 1, 2), 0, 0, None, [out])
    assert [(number, kind) for number, kind, _ in faults] == [(1, 3)]
    assert "checksum mismatch" in faults[0][2]
    sound = raw_column(images, None)
    for number in (0, 2):
        alone = batch(1, 20)
        assert sound.decode(program, rows(number), 0, 0, None, [alone]) == []
        assert np.array_equal(alone[0], out[number])


def test_raw_images_of_another_size_are_faults() -> None:
    col = _native.Column([0, 1], raw_width=24, raw_height=20)
    col.set_shard(0, [(1, bytes(24 * 20 * 3 - 1), None, False, 24 * 20 * 3 - 1, None)])
    [(_, kind, message)] = col.decode(program(), rows(0), 0, 0, None, [batch(1)])
    assert kind == 2
    assert "wrong number of bytes" in message


@pytest.mark.parametrize(("width", "height"), [(5, 0), (0, 5), (-1, 5), (5, -1), (70000, 1)])
def test_raw_sizes_without_pixels_are_refused(width: int, height: int) -> None:
    with pytest.raises(ValueError, match="raw"):
        _native.Column([0, 1], raw_width=width, raw_height=height)


def test_pixels_are_placed_where_the_batch_has_room_only() -> None:
    image, out = cases.photo(0, 40, 30), batch(2)
    program().place_pixels(image, 3, 4, 5, [out], 1)
    [(alone, _, _)] = program().run_pixels(image, 3, 4, 5)
    assert out[1].tobytes() == alone.tobytes()
    assert (out[0] == 77).all()
    for index in (2, 2**40, 2**64 - 1):
        with pytest.raises(ValueError, match="too small"):
            program().place_pixels(image, 3, 4, 5, [out], index)


def test_a_cancelled_batch_says_so_for_every_row_that_it_left_out() -> None:
    cancel = _native.Cancel()
    cancel.set()
    out = batch(3)
    faults = column(JPEGS).decode(program(), rows(0, 1, 2), 0, 0, None, [out], cancel=cancel)
    assert [(place, kind) for place, kind, _ in faults] == [(0, 4), (1, 4), (2, 4)]
    assert (out == 77).all()


def test_a_column_keeps_the_memory_that_it_reads() -> None:
    data = np.frombuffer(JPEGS[0], np.uint8).copy()
    col = _native.Column([0, 1])
    col.set_shard(0, [(1, data, np.array([0, len(data)], np.int32), False, 0, None)])
    held = sys.getrefcount(data)
    out = batch(1)
    assert col.decode(program(), rows(0), 0, 0, None, [out]) == []
    del col
    assert sys.getrefcount(data) == held - 1


def test_keys_replace_rows_in_the_random_parameters_and_places_the_order() -> None:
    col, out = column(JPEGS), batch(4)
    keys, places = np.array([7, -5, 0], np.int64), rows(2, 0, 3)
    assert col.decode(program(), rows(3, 0, 3), 9, 2, keys, [out], True, None, places) == []
    for row, key, place in zip([3, 0, 3], [7, 2**64 - 5, 0], places, strict=True):
        [(alone, _, _)] = program().run_encoded(JPEGS[row], 9, 2, key)
        assert out[place].tobytes() == alone.tobytes()
    assert (out[1] == 77).all()


def test_values_are_copied_to_their_places() -> None:
    values = np.arange(6, dtype=np.uint32)
    col = _native.Column([0, 6])
    col.set_shard(0, [(6, values, None, False, 4, None)])
    out = np.full(5, 99, np.uint32)
    assert col.gather(rows(5, 1), 4, out, rows(3, 0)) == []
    assert out.tolist() == [1, 99, 99, 5, 99]


@pytest.mark.parametrize("places", [rows(0, 4), rows(0, -1), rows(0), rows(0, 1, 2), rows(0, 2**62)])
def test_places_outside_the_output_are_refused_before_anything_is_written(places: npt.NDArray[np.int64]) -> None:
    out = batch(4)
    with pytest.raises(ValueError, match="place"):
        column(JPEGS).decode(program(), rows(0, 1), 0, 0, None, [out], True, None, places)
    assert (out == 77).all()
    values = np.arange(6, dtype=np.uint32)
    col = _native.Column([0, 6])
    col.set_shard(0, [(6, values, None, False, 4, None)])
    with pytest.raises(ValueError, match="place"):
        col.gather(rows(0, 1), 4, bytearray(16), places)
    stream = _native.TokenStream("uint32", [(values, None, None)])
    with pytest.raises(ValueError, match="place"):
        stream.gather(rows(0, 1), 2, np.zeros((4, 2), np.int64), None, places)


def test_as_many_keys_as_rows_are_needed() -> None:
    with pytest.raises(ValueError, match="key"):
        column(JPEGS).decode(program(), rows(0, 1), 0, 0, rows(0), [batch(2)])

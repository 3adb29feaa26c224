"""Packing of documents into rows: nothing twice, nothing too long, as tight as the methods' definitions."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.packing import PackedRows, pack_rows

METHODS = ["best_fit", "histogram"]
LENGTHS = st.lists(st.integers(0, 40), max_size=60)
SEEDS = st.integers(-(2**70), 2**70)


def triples(packed: PackedRows) -> list[tuple[int, int, int]]:
    """(Document, begin, length) of all pieces, sorted."""
    return sorted(zip(packed.documents.tolist(), packed.begins.tolist(), packed.lengths.tolist(), strict=True))


def fills(packed: PackedRows) -> list[int]:
    """Tokens of each row."""
    return [int(packed.lengths[a:b].sum()) for a, b in zip(packed.starts[:-1], packed.starts[1:], strict=True)]


def one_by_one(lengths: list[int], row_length: int, method: str) -> list[int]:
    """Spaces that are left when each piece looks at all rows: the methods as they are defined."""
    spaces: list[int] = []
    for length in sorted((length for length in lengths if length), reverse=True):
        fitting = [space for space in spaces if space >= length]
        if fitting:
            chosen = min(fitting) if method == "best_fit" else max(fitting)
            spaces.remove(chosen)
            spaces.append(chosen - length)
        else:
            spaces.append(row_length - length)
    return spaces


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 50), st.sampled_from(METHODS), SEEDS, st.integers(0, 9))
def test_split_documents_are_in_the_rows_token_by_token_exactly_once(
    lengths: list[int], row_length: int, method: str, seed: int, epoch: int
) -> None:
    packed = pack_rows(lengths, row_length, method=method, long="split", seed=seed, epoch=epoch)
    seen = [(document, begin + i) for document, begin, length in triples(packed) for i in range(length)]
    assert seen == [(document, i) for document, length in enumerate(lengths) for i in range(length)]
    assert all(0 < fill <= row_length for fill in fills(packed))
    assert packed.left_out == 0
    # Cut only where a row's length makes it necessary.
    assert len(packed.lengths) == sum(-(-length // row_length) for length in lengths)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 50), st.sampled_from(METHODS), SEEDS)
def test_truncated_documents_keep_their_beginning(lengths: list[int], row_length: int, method: str, seed: int) -> None:
    packed = pack_rows(lengths, row_length, method=method, long="truncate", seed=seed)
    assert triples(packed) == [(i, 0, min(length, row_length)) for i, length in enumerate(lengths) if length]
    assert packed.left_out == sum(max(0, length - row_length) for length in lengths)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 50), st.sampled_from(METHODS), SEEDS)
def test_dropped_documents_are_those_that_are_too_long(
    lengths: list[int], row_length: int, method: str, seed: int
) -> None:
    packed = pack_rows(lengths, row_length, method=method, long="drop", seed=seed)
    assert triples(packed) == [(i, 0, length) for i, length in enumerate(lengths) if 0 < length <= row_length]
    assert packed.left_out == sum(length for length in lengths if length > row_length)


@settings(deadline=None)
@given(LENGTHS, st.integers(40, 120), st.sampled_from(METHODS), SEEDS)
def test_rows_are_those_of_the_method_applied_piece_by_piece(
    lengths: list[int], row_length: int, method: str, seed: int
) -> None:
    packed = pack_rows(lengths, row_length, method=method, seed=seed)
    assert sorted(row_length - fill for fill in fills(packed)) == sorted(one_by_one(lengths, row_length, method))
    assert packed.padding == pytest.approx(1 - sum(lengths) / (len(packed) * row_length) if len(packed) else 0.0)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 50), st.sampled_from(METHODS), SEEDS, st.integers(0, 9), st.data())
def test_taken_rows_are_those_of_the_whole(
    lengths: list[int], row_length: int, method: str, seed: int, epoch: int, data: st.DataObject
) -> None:
    packed = pack_rows(lengths, row_length, method=method, long="split", seed=seed, epoch=epoch)
    rows = data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=5)) if len(packed) else []
    taken = packed.take(rows)
    assert len(taken) == len(rows)
    for i, row in enumerate(rows):
        here, there = slice(*taken.starts[i : i + 2]), slice(*packed.starts[row : row + 2])
        assert taken.documents[here].tolist() == packed.documents[there].tolist()
        assert taken.begins[here].tolist() == packed.begins[there].tolist()
        assert taken.lengths[here].tolist() == packed.lengths[there].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_another_seed_or_epoch_has_other_company_and_another_order_of_rows(method: str) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 2000)

    def rows(seed: int, epoch: int) -> list[tuple[int, ...]]:
        packed = pack_rows(lengths, 100, method=method, seed=seed, epoch=epoch)
        return [tuple(packed.documents[a:b].tolist()) for a, b in zip(packed.starts, packed.starts[1:], strict=False)]

    first = rows(1, 0)
    assert rows(1, 0) == first
    for other in (rows(1, 1), rows(2, 0)):
        assert len({frozenset(row) for row in first} & {frozenset(row) for row in other}) < len(first) / 20
    # Packed from the longest to the shortest, the first rows would be all those of the longest documents.
    means = [float(lengths[list(row)].mean()) for row in first]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 5 / len(means) ** 0.5


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_the_same_in_every_version(method: str) -> None:
    packed = pack_rows([5, 3, 3, 9, 1, 12, 0, 4], 10, method=method, long="split", seed=42, epoch=7)
    assert {
        "best_fit": ([0, 3, 4, 7, 8], [0, 4, 7, 3, 1, 2, 5, 5]),
        "histogram": ([0, 2, 3, 7, 8], [0, 7, 3, 1, 4, 2, 5, 5]),
    }[method] == (packed.starts.tolist(), packed.documents.tolist())


def test_no_documents_make_no_rows() -> None:
    packed = pack_rows(np.zeros(0, np.int64), 10)
    assert (len(packed), packed.padding, packed.left_out) == (0, 0.0, 0)
    assert len(pack_rows([0, 0], 10)) == 0


def test_rows_may_be_far_longer_than_all_documents() -> None:
    assert fills(pack_rows([3, 4, 5], 10**12)) == [12]


def test_a_long_document_is_refused_unless_something_is_said() -> None:
    with pytest.raises(ConfigError, match=r"document 1 has 11 tokens, a row 10.*'split'"):
        pack_rows([10, 11], 10)


@pytest.mark.parametrize(
    ("lengths", "row_length", "options", "message"),
    [
        ([1], 0, {}, "row_length=0"),
        ([1], 5, {"method": "first"}, "best_fit"),
        ([1], 5, {"long": "keep"}, "'split'"),
        ([1], 5, {"seed": 0.5}, "seed"),
        ([1, -2], 5, {}, "sample 1 has length -2"),
        ([[1]], 5, {}, "shape"),
        ([1.5], 5, {}, "float64"),
    ],
)
def test_senseless_arguments_are_refused(lengths: list[int], row_length: int, options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pack_rows(lengths, row_length, **options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("row_length", [512, 8192])
def test_a_million_lengths_are_packed_within_two_seconds(method: str, row_length: int) -> None:
    """The processor's time of this process, the best of three: 0.3 to 0.5 s on a busy core."""
    lengths = np.random.default_rng(1).lognormal(5.5, 1.0, 10**6).astype(np.int64) + 1
    took = []
    for seed in range(3):
        begin = time.process_time()
        packed = pack_rows(lengths, row_length, method=method, long="truncate", seed=seed)
        took.append(time.process_time() - begin)
    assert min(took) < 2
    assert packed.padding < 0.05

"""Where windows begin: what a plain loop over tokens and documents finds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from zerocopy_data.order.windows import DocumentWindows, StreamWindows

REACHES, STRIDES = st.integers(1, 12), st.integers(1, 15)


def begins(tokens: int, reach: int, stride: int) -> list[int]:
    """By trying every place."""
    return [at for at in range(0, tokens, stride) if at + reach <= tokens]


def all_of(places: StreamWindows | DocumentWindows) -> list[int]:
    return places.starts(np.arange(len(places))).tolist()


@given(st.integers(0, 100), REACHES, STRIDES)
def test_windows_of_a_stream_are_those_of_a_loop(tokens: int, reach: int, stride: int) -> None:
    assert all_of(StreamWindows(tokens, reach, stride)) == begins(tokens, reach, stride)


@given(st.lists(st.integers(0, 40), max_size=12), REACHES, STRIDES)
def test_windows_within_documents_are_those_of_a_loop(lengths: list[int], reach: int, stride: int) -> None:
    firsts = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
    expected = [
        int(first) + at for first, tokens in zip(firsts, lengths, strict=True) for at in begins(tokens, reach, stride)
    ]
    places = DocumentWindows(firsts, np.array(lengths, np.int64), reach, stride)
    assert all_of(places) == expected


@given(st.permutations(range(6)), REACHES, STRIDES)
def test_documents_may_come_in_any_order(order: list[int], reach: int, stride: int) -> None:
    lengths = np.array([0, 3, 17, 1, 9, 30], np.int64)
    firsts = np.cumsum(lengths) - lengths
    expected = [int(firsts[d]) + at for d in order for at in begins(int(lengths[d]), reach, stride)]
    assert all_of(DocumentWindows(firsts[order], lengths[order], reach, stride)) == expected


@given(st.integers(1, 2**40), st.integers(1, 5000), st.integers(1, 5000), st.data())
def test_any_window_of_a_huge_stream_is_found_without_those_before(
    tokens: int, reach: int, stride: int, data: st.DataObject
) -> None:
    places = StreamWindows(tokens, reach, stride)
    if len(places):
        window = data.draw(st.integers(0, len(places) - 1))
        assert places.starts(np.array([window])).tolist() == [window * stride]
        assert (len(places) - 1) * stride + reach <= tokens < len(places) * stride + reach
    else:
        assert tokens < reach


def test_places_in_huge_documents_do_not_overflow() -> None:
    lengths = np.array([2**40, 5, 2**41], np.int64)
    places = DocumentWindows(np.cumsum(lengths) - lengths, lengths, 5, 1)
    assert len(places) == (2**40 - 4) + 1 + (2**41 - 4)
    last = np.array([2**40 - 5, 2**40 - 4, 2**40 - 3, len(places) - 1])
    assert places.starts(last).tolist() == [2**40 - 5, 2**40, 2**40 + 5, int(lengths.sum()) - 5]


def test_a_stride_beyond_everything_gives_one_window_a_document() -> None:
    lengths: npt.NDArray[np.int64] = np.array([7, 3, 9], np.int64)
    places = DocumentWindows(np.cumsum(lengths) - lengths, lengths, 3, 2**70)
    assert all_of(places) == [0, 7, 10]
    assert all_of(StreamWindows(19, 3, 2**70)) == [0]

"""Packed rows as tensors: every token in its place, segments that cover all of a row and nothing of another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocopy_data as zcd

LENGTHS = st.lists(st.integers(0, 30), max_size=30)
DTYPES = ["uint16", "uint32", "int64", ">u2"]


def documents_of(lengths: list[int], dtype: str = "int64") -> list[Any]:
    """Tokens that say where they are from."""
    return [np.arange(100 * i + 1, 100 * i + 1 + length).astype(dtype) for i, length in enumerate(lengths)]


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 40), st.sampled_from(["best_fit", "histogram"]), st.sampled_from(DTYPES))
def test_segments_hold_the_pieces_and_their_positions(
    lengths: list[int], row_length: int, method: str, dtype: str
) -> None:
    documents = documents_of(lengths, dtype)
    packing = zcd.pack_rows(lengths, row_length, method=method, long="split", seed=1)
    packed = zcd.pack_sequences(documents, packing, pad_value=-1)
    assert packed.tokens.shape == packed.position_ids.shape == packed.segment_ids.shape == (len(packing), row_length)
    assert (packed.tokens.dtype, packed.position_ids.dtype) == (torch.int64, torch.int64)
    assert (packed.cu_seqlens.dtype, packed.segment_ids.dtype) == (torch.int32, torch.int32)
    ends = packed.cu_seqlens.tolist()
    assert ends[0] == 0
    assert ends[-1] == packed.tokens.numel()
    assert packed.max_seqlen == max((b - a for a, b in itertools.pairwise(ends)), default=0)
    pieces = iter(zip(packing.documents.tolist(), packing.begins.tolist(), packing.lengths.tolist(), strict=True))
    number = 0
    for start, end in itertools.pairwise(ends):
        assert start < end
        assert start // row_length == (end - 1) // row_length
        number = 1 if start % row_length == 0 else number + 1
        here = slice(start, end)
        tokens, positions, segments = (t.flatten()[here].tolist() for t in (packed.tokens, *packed[3:]))
        if segments[0] == 0:
            assert (set(tokens), set(positions), set(segments)) == ({-1}, {0}, {0})
            assert end % row_length == 0
            continue
        document, begin, length = next(pieces)
        assert tokens == documents[document][begin : begin + length].tolist()
        assert positions == list(range(length))
        assert segments == [number] * length
    assert next(pieces, None) is None


def test_a_length_packs_all_documents() -> None:
    documents = [torch.tensor(document) for document in documents_of([3, 8, 5, 2, 6])]
    packed = zcd.pack_sequences(documents, 8, seed=3)
    assert packed.tokens.shape == (3, 8)
    assert sorted(packed.tokens.flatten().tolist()) == sorted(int(token) for d in documents for token in d)
    same = zcd.pack_sequences(documents, zcd.pack_rows([3, 8, 5, 2, 6], 8, seed=3))
    assert torch.equal(packed.tokens, same.tokens)
    with pytest.raises(zcd.ConfigError, match="document 1 has 8 tokens"):
        zcd.pack_sequences(documents, 7)


def test_a_batch_asks_only_for_its_own_documents() -> None:
    class Asked:
        def __init__(self) -> None:
            self.numbers: list[int] = []

        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> Any:
            self.numbers.append(index)
            return np.full(6, index)

    documents = Asked()
    packing = zcd.pack_rows([6] * 20, 10)
    rows = packing.take([4, 2])
    assert zcd.pack_sequences(documents, rows).tokens[:, 0].tolist() == rows.documents.tolist() == documents.numbers


def test_attention_within_segments_sees_no_other_document() -> None:
    """What the tensors are for: attention over segments equals that over each document alone."""
    documents = documents_of([5, 3, 7, 2, 6])
    packed = zcd.pack_sequences(documents, 10)
    vectors = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    same = packed.segment_ids[:, :, None] == packed.segment_ids[:, None, :]
    x = vectors[packed.tokens]
    out = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=same)
    flat, outs = vectors[packed.tokens.flatten()], out.flatten(0, 1)
    ends = packed.cu_seqlens.tolist()
    for start, end in itertools.pairwise(ends):
        alone = flat[start:end][None]
        expected = torch.nn.functional.scaled_dot_product_attention(alone, alone, alone)[0]
        torch.testing.assert_close(outs[start:end], expected)


def test_read_only_and_strided_tokens_are_taken_and_the_result_is_its_own() -> None:
    stored = np.arange(12, dtype=np.uint16)
    stored.flags.writeable = False
    packed = zcd.pack_sequences([stored[::2], stored[6:]], 12, dtype=torch.int32)
    assert packed.tokens.dtype == torch.int32
    assert sorted(packed.tokens[0].tolist()) == sorted([*range(0, 12, 2), *range(6, 12)])
    packed.tokens.zero_()
    assert stored.tolist() == list(range(12))


def test_a_packing_of_other_lengths_is_refused() -> None:
    with pytest.raises(zcd.ConfigError, match="document 0 has no tokens 0 … 4"):
        zcd.pack_sequences(documents_of([4, 4]), zcd.pack_rows([5, 4], 9))
    with pytest.raises(zcd.ConfigError, match="one dimension"):
        zcd.pack_sequences([np.zeros((5, 2))], zcd.pack_rows([5], 9))
    with pytest.raises(zcd.ConfigError, match="settled by the packing"):
        zcd.pack_sequences(documents_of([4]), zcd.pack_rows([4], 9), seed=3)


def test_more_tokens_than_cu_seqlens_counts_are_refused() -> None:
    with pytest.raises(zcd.ConfigError, match=r"take\(rows\)"):
        zcd.pack_sequences(documents_of([2]), 2**31)


def test_a_dataset_of_documents_is_taken_as_it_is(tmp_path: Any) -> None:
    documents = [list(range(length)) for length in (5, 3, 9, 1)]
    with zcd.DatasetWriter(tmp_path / "docs", {"tokens": zcd.Tokens("uint16"), "id": zcd.Scalar("int64")}) as writer:
        for number, tokens in enumerate(documents):
            writer.write({"tokens": tokens, "id": number})
    ds = zcd.open(tmp_path / "docs")
    expected = zcd.pack_sequences([torch.tensor(tokens) for tokens in documents], 10)
    for given_ in (ds.select("tokens"), ds.as_tuple("tokens")):
        assert torch.equal(zcd.pack_sequences(given_, 10).tokens, expected.tokens)
        packing = zcd.pack_rows(zcd.lengths(ds, "tokens"), 10)
        assert torch.equal(zcd.pack_sequences(given_, packing).tokens, expected.tokens)
    with pytest.raises(zcd.ConfigError, match="2 columns"):
        zcd.pack_sequences(ds, 10)


def test_tokens_that_the_dtype_cannot_hold_are_refused() -> None:
    documents = [torch.tensor([1, 70_000])]
    with pytest.raises(zcd.ConfigError, match="beyond torch"):
        zcd.pack_sequences(documents, 4, dtype=torch.int16)
    small = zcd.pack_sequences([torch.tensor([1, 7])], 4, dtype=torch.int16)
    assert small.tokens.tolist() == [[1, 7, 0, 0]]


@pytest.mark.parametrize("rows", [[True, False], [0.9], np.array([1.0])])
def test_rows_that_are_no_numbers_of_rows_are_refused(rows: Any) -> None:
    with pytest.raises(TypeError, match="integers"):
        zcd.pack_rows([3, 4], 5).take(rows)

"""PadCollate: ragged columns become one padded tensor and their lengths, in worker processes within the slot."""

from __future__ import annotations

import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zerocopy_data as zcd
from zerocopy_data.loader.pad import Padded

Pair = namedtuple("Pair", ["tokens", "label"])
LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def ragged(lengths: list[int], dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    return [torch.arange(1, length + 1).to(dtype) for length in lengths]


@settings(deadline=None)
@given(
    LENGTHS,
    st.integers(1, 9),
    st.lists(st.integers(1, 50), max_size=4, unique=True).map(sorted),
    st.sampled_from([torch.int64, torch.uint8, torch.bfloat16, torch.uint16]),
)
def test_rows_are_the_samples_and_padding(
    lengths: list[int], multiple_of: int, edges: list[int], dtype: torch.dtype
) -> None:
    samples = ragged(lengths, dtype)
    padded = zcd.PadCollate(7, multiple_of=multiple_of, to=edges or "batch")(samples)
    longest = max(lengths)
    length = next((edge for edge in edges if edge >= longest), longest)
    assert padded.values.shape == (len(samples), -(-length // multiple_of) * multiple_of)
    assert padded.values.dtype == dtype
    assert padded.lengths.tolist() == lengths
    for row, sample in zip(padded.values.to(torch.int64), samples, strict=True):
        assert row.tolist() == [*sample.tolist(), *[7] * (len(row) - len(sample))]


def test_samples_keep_their_form_and_other_columns_are_collated_as_usual() -> None:
    tokens = ragged([2, 3])
    collate = zcd.PadCollate()
    as_dict = collate([{"tokens": t, "label": i, "key": str(i), "box": torch.ones(2, 2)} for i, t in enumerate(tokens)])
    assert isinstance(as_dict["tokens"], Padded)
    assert as_dict["tokens"].values.tolist() == [[1, 2, 0], [1, 2, 3]]
    assert as_dict["label"].tolist() == [0, 1]
    assert as_dict["key"] == ["0", "1"]
    assert as_dict["box"].shape == (2, 2, 2)
    as_tuple = collate([(t, i) for i, t in enumerate(tokens)])
    assert isinstance(as_tuple, list)
    assert as_tuple[0].lengths.tolist() == [2, 3]
    assert as_tuple[1].tolist() == [0, 1]
    named = collate([Pair(t.numpy(), i) for i, t in enumerate(tokens)])
    assert isinstance(named, Pair)
    assert named.tokens.values.tolist() == [[1, 2, 0], [1, 2, 3]]


def test_equal_lengths_are_no_other_kind_of_batch() -> None:
    assert zcd.PadCollate()(ragged([3, 3])).lengths.tolist() == [3, 3]


def test_named_columns_alone_are_padded_each_with_its_value() -> None:
    samples = [
        {"ids": [5, 6], "labels": [1, 2], "point": torch.ones(2)},
        {"ids": [], "labels": [3], "point": torch.ones(2)},
    ]
    batch = zcd.PadCollate({"labels": -100}, columns=["ids", "labels"], multiple_of=4)(samples)
    assert batch["ids"].values.tolist() == [[5, 6, 0, 0], [0, 0, 0, 0]]
    assert batch["ids"].values.dtype == torch.int64
    assert batch["labels"].values.tolist() == [[1, 2, -100, -100], [3, -100, -100, -100]]
    assert batch["point"].shape == (2, 2)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([torch.ones(2), torch.ones(1, 2)], {}, r"sample 1 .*shape \[1, 2\]"),
        ([torch.ones(2), torch.ones(2, dtype=torch.int32)], {}, "sample 1 .*torch.int32"),
        ([{"a": torch.ones(2)}, {}], {}, "'a'"),
        ([{"a": torch.ones(2)}], {"columns": ["b"]}, r"the samples have \['a'\]"),
        ([(torch.ones(2), 1), (torch.ones(2),)], {}, r"\[1, 2\] values"),
    ],
)
def test_samples_that_cannot_be_padded_are_refused(samples: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(zcd.ConfigError, match=message):
        zcd.PadCollate(**options)(samples)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"multiple_of": 0}, "multiple_of=0"), ({"to": "bucket"}, "edges"), ({"to": [4, 4]}, "asc")],
)
def test_senseless_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(zcd.ConfigError, match=message):
        zcd.PadCollate(**options)


class Long(torch.utils.data.Dataset[torch.Tensor]):
    """Row i has 20,000 + i numbers i."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((20_000 + index,), index)


def with_place(batch: list[torch.Tensor]) -> tuple[Padded, str]:
    """The padded batch and the name of the mapping that it lies in."""
    padded = zcd.PadCollate(-1)(batch)
    address = padded.values.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(bound, 16) for bound in line.split()[0].split("-"))
        if low <= address < high:
            return padded, line
    return padded, ""


def test_workers_pad_into_the_slot_that_carries_the_batch() -> None:
    loader = zcd.DataLoader(Long(), 3, num_workers=1, collate_fn=with_place)
    for number, (padded, place) in enumerate(loader):
        assert isinstance(padded, Padded)
        assert padded.lengths.tolist() == [20_000 + 3 * number + i for i in range(3)]
        for i, row in enumerate(padded.values):
            length = int(padded.lengths[i])
            assert (row[:length] == 3 * number + i).all()
            assert (row[length:] == -1).all()
        assert "rw-s" in place, "the batch was made in private memory"
    assert "rw-s" not in with_place([Long()[0]])[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_buckets_of_a_shard_dataset_are_padded_to_their_edges(tmp_path: Path, workers: int) -> None:
    lengths = np.random.default_rng(1).integers(1, 60, 80)
    with zcd.DatasetWriter(
        tmp_path / "texts", {"tokens": zcd.Tokens("int32"), "number": zcd.Scalar("int64")}
    ) as writer:
        for number, length in enumerate(lengths.tolist()):
            writer.write({"tokens": np.full(length, number, np.int32), "number": number})
    sampler = zcd.BucketBatchSampler(lengths, 256, budget="bucket", buckets=4, multiple_of=8)
    collate = pickle.loads(pickle.dumps(zcd.PadCollate(-1, to=sampler.edges, multiple_of=8)))
    loader = zcd.StatefulDataLoader(
        zcd.open(tmp_path / "texts"), batch_sampler=sampler, collate_fn=collate, num_workers=workers
    )
    seen = []
    for batch in loader:
        values, counts = batch["tokens"]
        assert values.shape[1] in sampler.edges
        assert values.numel() <= 256
        for row, count, number in zip(values, counts.tolist(), batch["number"].tolist(), strict=True):
            assert row.tolist() == [number] * count + [-1] * (len(row) - count)
            assert count == lengths[number]
            seen.append(number)
    assert sorted(seen) == list(range(80))

"""Windows over the documents of a dataset: what slicing gives, in any order, from threads and from processes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_data import flip_byte
from stateful_data import resumed, stopped
from token_data import as_pairs, pairs, write_documents
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, random_split

import zerocopy_data as zcd

L = 8
# Of no token, one, a window without its target's last token, exactly one window with it, and far more than a row group.
LENGTHS = [0, 1, L - 1, L, L + 1, L + 2, 2 * L, 2 * L + 1, 5000, 0, 300, 300, 300, 2500, 0, 1, 700]
WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows") / "documents"
    write_documents(folder, LENGTHS)
    return folder


@pytest.fixture
def documents(path: Path) -> zcd.ShardDataset:
    ds = zcd.open(path)
    assert ds.reader.num_shards > 2
    return ds


def stored(ds: zcd.ShardDataset) -> list[Any]:
    return [ds.raw(i)["tokens"] for i in range(len(ds))]


@pytest.mark.parametrize("stride", [1, 3, L, 1000, 2**70])
def test_within_documents_they_are_what_slicing_gives(documents: zcd.ShardDataset, stride: int) -> None:
    expected = [pair for document in stored(documents) for pair in pairs(document, L, stride)]
    ds = zcd.windows(documents, length=L, stride=stride)
    assert len(ds) == len(expected)
    assert as_pairs(ds[:]) == expected
    for index in (0, len(ds) // 2, -1):
        assert as_pairs(ds[index]) == [expected[index]]


@pytest.mark.parametrize("stride", [1, L, 7000])
def test_across_documents_they_are_those_of_the_joined_stream(documents: zcd.ShardDataset, stride: int) -> None:
    expected = pairs(np.concatenate(stored(documents)), L, stride)
    ds = zcd.windows(documents, length=L, stride=stride, across_documents=True)
    assert len(ds) == len(expected)
    assert as_pairs(ds[:]) == expected


def test_a_window_may_span_shards(documents: zcd.ShardDataset) -> None:
    joined = np.concatenate(stored(documents))
    ds = zcd.windows(documents, length=len(joined) - 2, stride=1, across_documents=True)
    assert as_pairs(ds[:]) == pairs(joined, len(joined) - 2, 1)
    view = ds.view(1)
    assert view.tolist() == joined[1:].tolist()
    assert not view.flags.writeable


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=12),
    length=st.integers(1, 60),
    stride=st.integers(1, 90),
    across=st.booleans(),
    dtype=st.sampled_from(["uint16", "uint32", "int32", "int64", "uint8"]),
)
def test_any_documents_give_the_windows_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, stride: int, across: bool, dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("any") / "documents"
    written = write_documents(folder, lengths, dtype)
    whole = [np.concatenate(written)] if across else written
    expected = [pair for document in whole for pair in pairs(document, length, stride)]
    if not expected:
        with pytest.raises(zcd.ConfigError, match="smaller length"):
            zcd.windows(zcd.open(folder), length=length, stride=stride, across_documents=across)
        return
    ds = zcd.windows(zcd.open(folder), length=length, stride=stride, across_documents=across)
    assert as_pairs(ds[:]) == expected


def test_without_a_target_the_last_token_can_be_used(documents: zcd.ShardDataset) -> None:
    ds = zcd.windows(documents, length=L, stride=1, target=False)
    with_target = zcd.windows(documents, length=L, stride=1)
    long_enough = sum(length >= L for length in LENGTHS)
    assert len(ds) == len(with_target) + long_enough
    sample = ds[0]
    assert list(sample) == ["input"]
    assert sample["input"].tolist() == stored(documents)[3].tolist()  # of exactly L tokens
    (batch,) = zcd.DataLoader(ds, len(ds))
    assert torch.equal(batch["input"], ds[:]["input"])


def test_samples_are_int64_tensors_of_their_own(documents: zcd.ShardDataset) -> None:
    ds = zcd.windows(documents, length=L)
    sample = ds[0]
    assert {name: (t.dtype, t.shape) for name, t in sample.items()} == {
        "input": (torch.int64, (L,)),
        "target": (torch.int64, (L,)),
    }
    before = sample["input"].clone()
    sample["input"].zero_()
    assert torch.equal(ds[0]["input"], before)
    assert isinstance(ds.as_tuple()[0], tuple)


def test_views_are_the_mapped_tokens(documents: zcd.ShardDataset) -> None:
    ds = zcd.windows(documents, length=L, stride=3)
    for index in (0, 5, len(ds) - 1):
        view = ds.view(index)
        assert view.dtype == np.uint16
        assert view.tolist() == [*ds[index]["input"].tolist(), int(ds[index]["target"][-1])]
        assert not view.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
    assert len(zcd.windows(documents, length=L, target=False).view(0)) == L


@WORKERS
def test_batches_are_the_stacked_samples(documents: zcd.ShardDataset, workers: int) -> None:
    ds = zcd.windows(documents, length=L, stride=3)
    loader = zcd.DataLoader(ds, 7, shuffle=True, seed=3, num_workers=workers)
    assert loader.uses_threads()
    for epoch in (0, 1):
        order = _order(ds, 3, epoch)
        batches = list(loader)
        assert all(batch[name].is_contiguous() for batch in batches for name in batch)
        expected = TorchDataLoader(Subset(ds, order), 7)  # type: ignore[var-annotated]
        for batch, other in zip(batches, expected, strict=True):
            assert all(torch.equal(batch[name], other[name]) for name in ("input", "target"))


def _order(ds: Any, seed: int, epoch: int) -> list[int]:
    sampler = zcd.EpochSampler(len(ds), seed, rank=0, world_size=1)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_batches_that_are_kept_stay_what_they_are(documents: zcd.ShardDataset) -> None:
    ds = zcd.windows(documents, length=L).as_tuple()
    kept = list(zcd.DataLoader(ds, 16, num_workers=2))
    assert [pair for batch in kept for pair in as_pairs(batch)] == as_pairs(ds[:])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("across", [False, True])
def test_a_stopped_epoch_goes_on(documents: zcd.ShardDataset, workers: int, across: bool) -> None:
    ds = zcd.windows(documents, length=L, across_documents=across)

    def make(threads: int = workers, batch_size: int = 50) -> Any:
        return zcd.StatefulDataLoader(ds, batch_size, shuffle=True, seed=5, num_workers=threads)

    for epochs, stop in ((0, 0), (0, 3), (2, 9)):
        state, left, following, _ = stopped(make, stop, epochs)
        assert len(pickle.dumps(state)) < 200
        assert resumed(make, state) == (left, following)
        assert resumed(lambda: make(2 - workers), state) == (left, following)
        smaller, _ = resumed(lambda: make(0, 10), state)
        assert [x for batch in smaller for x in batch["input"]] == [x for batch in left for x in batch["input"]]


def test_subsets_of_documents_and_of_windows(documents: zcd.ShardDataset) -> None:
    chosen = [13, 4, 10, 10]
    expected = [pair for d in chosen for pair in pairs(stored(documents)[d], L, L)]
    assert as_pairs(zcd.windows(documents.subset(chosen), length=L)[:]) == expected
    ds = zcd.windows(documents, length=L)
    assert as_pairs(ds.subset([5, 0, -1])[:]) == [as_pairs(ds[i])[0] for i in (5, 0, -1)]
    part, _ = random_split(ds, [40, len(ds) - 40], torch.Generator().manual_seed(0))
    seen = [pair for batch in zcd.DataLoader(part, 8, num_workers=1) for pair in as_pairs(batch)]
    assert seen == [as_pairs(ds[i])[0] for i in part.indices]
    with pytest.raises(zcd.ConfigError, match="across_documents=True reads all rows"):
        zcd.windows(documents.subset(chosen), length=L, across_documents=True)


def test_they_pickle_small_and_come_back_the_same(documents: zcd.ShardDataset) -> None:
    for across in (False, True):
        ds = zcd.windows(documents, length=L, stride=3, across_documents=across).subset(range(3, 90))
        sent = pickle.dumps(ds)
        assert len(sent) < 2000
        assert as_pairs(pickle.loads(sent)[:]) == as_pairs(ds[:])


SCRIPT = """
import json, sys
import zerocopy_data as zcd
from torch.utils.data import DataLoader

if __name__ == "__main__":
    ds = zcd.windows(zcd.open(sys.argv[1]), length=8)
    loader = DataLoader(ds, 20, num_workers=2, multiprocessing_context=sys.argv[2])
    print(json.dumps([x for batch in loader for x in batch["input"].tolist()]))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torchs_workers_give_the_same_windows(path: Path, tmp_path: Path, method: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-W", "ignore", str(script), str(path), method]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert out == zcd.windows(zcd.open(path), length=L)[:]["input"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_document_is_named_and_can_be_skipped(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "damaged"
    write_documents(folder, [40] * 60)
    flip_byte(zcd.open(folder), 33, "tokens")
    ds = zcd.windows(zcd.open(folder), length=L)  # four windows a document
    with pytest.raises(zcd.BadSampleError, match=r"row 33.*window 132: checksum mismatch.*zcd verify"):
        ds[132]
    with pytest.raises(zcd.BadSampleError, match="row 33"):
        list(zcd.DataLoader(ds, 10, num_workers=workers))
    loader = zcd.DataLoader(ds, 10, num_workers=workers, on_error="skip")
    kept = [x for batch in loader for x in batch["input"].tolist()]
    unchecked = zcd.windows(zcd.open(folder, verify=False), length=L)[:]["input"].tolist()
    assert kept == unchecked[:132] + unchecked[136:]
    assert [skipped.row for skipped in loader.skipped] == [132, 133, 134, 135]

    stream = zcd.windows(zcd.open(folder), length=30, across_documents=True)
    bad = [i for i in range(len(stream)) if i * 30 < 34 * 40 and i * 30 + 31 > 33 * 40]
    for index in range(len(stream)):
        if index in bad:
            with pytest.raises(zcd.BadSampleError, match="row 33"):
                stream[index]
        else:
            stream[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length=0"),
        ({"length": 2.5}, "length=2.5"),
        ({"length": 8, "stride": 0}, "stride=0"),
        ({"length": 8, "column": "text"}, "no Tokens column 'text'. Its Tokens columns: tokens"),
        ({"length": 8, "dtype": "uint16"}, "knows its own"),
        ({"length": 5000}, "every document is shorter than a window of 5000 tokens and its target"),
        ({"length": 10**6, "across_documents": True}, "the stream is shorter"),
        ({"length": 10**9}, "2 GiB"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    documents: zcd.ShardDataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(zcd.ConfigError, match=message):
        zcd.windows(documents, **options)


def test_other_sources_are_refused(photos: zcd.ShardDataset, tmp_path: Path) -> None:
    with pytest.raises(zcd.ConfigError, match="Its Tokens columns: none"):
        zcd.windows(photos, length=8, column="number")
    with pytest.raises(zcd.ConfigError, match="not of list"):
        zcd.windows([1, 2, 3], length=2)  # type: ignore[arg-type]
    with zcd.DatasetWriter(tmp_path / "wide", {"tokens": zcd.Tokens("uint64")}) as writer:
        writer.write({"tokens": np.arange(20, dtype=np.uint64)})
    with pytest.raises(zcd.ConfigError, match="holds uint64"):
        zcd.windows(zcd.open(tmp_path / "wide"), length=8)

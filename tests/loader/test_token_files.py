"""Windows over flat files of tokens: nanoGPT's and Megatron's pairs, any size at once, damage said in words."""

from __future__ import annotations

import os
import pickle
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from token_data import as_pairs, pairs, tokens_of

import zerocopy_data as zcd
from zerocopy_data.tuning.processes import memory

L = 16


def written(path: Path, count: int = 1000, dtype: str = "uint16") -> np.ndarray[Any, Any]:
    tokens = tokens_of(count, dtype)
    tokens.tofile(path)
    return tokens


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32", "int64", "uint8", "int16"])
@pytest.mark.parametrize("stride", [1, 5, L])
def test_pairs_are_those_of_slicing(tmp_path: Path, dtype: str, stride: int) -> None:
    tokens = written(tmp_path / "train.bin", dtype=dtype)
    ds = zcd.windows(tmp_path / "train.bin", length=L, stride=stride, dtype=dtype)
    assert as_pairs(ds[:]) == pairs(tokens, L, stride)
    assert as_pairs(ds[-1]) == pairs(tokens, L, stride)[-1:]
    assert as_pairs(zcd.windows(str(tmp_path / "train.bin"), L, stride, dtype=np.dtype(dtype))[0]) == as_pairs(ds[0])


def test_pairs_are_nanogpts_at_every_place(tmp_path: Path) -> None:
    data = written(tmp_path / "train.bin")
    ds = zcd.windows(tmp_path / "train.bin", length=L, stride=1, dtype="uint16").as_tuple()
    assert len(ds) == len(data) - L  # as many places as nanoGPT draws from
    for i in (0, 1, 500, len(data) - L - 1):
        x, y = ds[i]
        assert torch.equal(x, torch.from_numpy(data[i : i + L].astype(np.int64)))
        assert torch.equal(y, torch.from_numpy(data[i + 1 : i + 1 + L].astype(np.int64)))


def test_neighbours_share_one_token_as_megatrons_do(tmp_path: Path) -> None:
    data = written(tmp_path / "train.bin", 10 * L + 1)
    ds = zcd.windows(tmp_path / "train.bin", length=L, dtype="uint16")
    assert len(ds) == 10
    samples = [ds.view(i) for i in range(10)]  # Megatron's sample: L + 1 tokens
    assert all(one[-1] == other[0] for one, other in pairwise(samples))
    assert np.array_equal(np.concatenate([samples[0][:1], *(s[1:] for s in samples)]), data)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_epoch_serves_every_window_once(tmp_path: Path, workers: int) -> None:
    tokens = written(tmp_path / "train.bin", 5000)
    ds = zcd.windows(tmp_path / "train.bin", length=L, dtype="uint16").as_tuple()
    loader = zcd.DataLoader(ds, 32, shuffle=True, seed=1, num_workers=workers)
    seen = [pair for batch in loader for pair in as_pairs(batch)]
    assert sorted(seen) == sorted(pairs(tokens, L, L))
    assert seen != pairs(tokens, L, L)


def test_a_stream_of_100_gb_opens_at_once_and_memory_stays_flat(tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    size = 100 * 10**9
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 2 * (L + 1))
        file.write(np.arange(L + 1, dtype=np.uint16).tobytes())
    zcd.windows(path, length=L, dtype="uint16")
    resident = memory(os.getpid(), ("Rss",))
    times = []
    for stride in (1, 1, 1):
        start = time.perf_counter()
        ds = zcd.windows(path, length=L, stride=stride, dtype="uint16")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05
    assert len(ds) == size // 2 - L
    assert memory(os.getpid(), ("Rss",)) - resident < 2e6
    assert as_pairs(ds[len(ds) - 1]) == [(list(range(L)), list(range(1, L + 1)))]
    # Pages of the file that were read are the kernel's to drop; nothing of this process's own may grow.
    loader = iter(zcd.DataLoader(ds, 8, shuffle=True, seed=0))
    next(loader)
    own = memory(os.getpid(), ("Anonymous",))
    for _ in range(100):
        assert next(loader)["input"].shape == (8, L)
    assert memory(os.getpid(), ("Anonymous",)) - own < 4e6


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_pages_that_are_not_in_memory_are_read_rightly(tmp_path: Path, shuffle: bool, batch_size: int) -> None:
    """In its order the file spans three of the blocks that are asked for ahead, and ends within one."""
    path = tmp_path / "train.bin"
    tokens = written(path, 5_000_000)
    length = 10_000
    ds = zcd.windows(path, length=length, dtype="uint16").as_tuple()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    order = list(zcd.EpochSampler(len(ds), 0)) if shuffle else list(range(len(ds)))
    place = 0
    for x, y in zcd.DataLoader(ds, batch_size, shuffle=shuffle, seed=0):
        for row in range(len(x)):
            at = order[place] * length
            place += 1
            assert np.array_equal(x[row].numpy(), tokens[at : at + length])
            assert np.array_equal(y[row].numpy(), tokens[at + 1 : at + 1 + length])
    assert place == len(ds)


def test_an_order_of_many_windows_is_resumed_in_small_states(tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    with path.open("wb") as file:
        file.truncate(10**9)
    ds = zcd.windows(path, length=L, stride=1, dtype="uint16")

    def load(state: dict[str, Any] | None, batch_size: int) -> Any:
        loader = zcd.StatefulDataLoader(ds, batch_size, shuffle=True, seed=2)
        if state is not None:
            loader.load_state_dict(state)
        return loader

    first = load(None, 10)
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    state = first.state_dict()
    assert len(pickle.dumps(state)) < 200
    assert state["position"] == 30
    start = time.perf_counter()
    again = iter(load(state, 5))
    next(again)
    assert time.perf_counter() - start < 1


def test_files_that_are_no_tokens_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    written(path)
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(zcd.ConfigError, match=r"train\.bin has 2001 bytes, no whole number of uint16.*cut short.*Copy"):
        zcd.windows(path, length=L, dtype="uint16")
    path.write_bytes(b"")
    with pytest.raises(zcd.ConfigError, match="has 0 bytes"):
        zcd.windows(path, length=L, dtype="uint16")
    np.arange(L, dtype=np.uint16).tofile(path)
    with pytest.raises(zcd.ConfigError, match=f"the stream is shorter than a window of {L} tokens and its target"):
        zcd.windows(path, length=L, dtype="uint16")
    assert len(zcd.windows(path, length=L, dtype="uint16", target=False)) == 1
    np.save(tmp_path / "train.npy", np.arange(1000, dtype=np.uint16))
    with pytest.raises(zcd.ConfigError, match=r"\.npy file.*tofile"):
        zcd.windows(tmp_path / "train.npy", length=L, dtype="uint16")
    with pytest.raises(zcd.ConfigError, match=r"is a folder: open a dataset with zcd\.open"):
        zcd.windows(tmp_path, length=L, dtype="uint16")
    with pytest.raises(zcd.ConfigError, match=r"absent\.bin cannot be opened"):
        zcd.windows(tmp_path / "absent.bin", length=L, dtype="uint16")


@pytest.mark.parametrize("dtype", [None, "uint64", "float32", "no type", ">u2"])
def test_types_that_are_no_tokens_are_refused(tmp_path: Path, dtype: Any) -> None:
    written(tmp_path / "train.bin")
    with pytest.raises(zcd.ConfigError, match="needs its dtype, one of uint8"):
        zcd.windows(tmp_path / "train.bin", length=L, dtype=dtype)


def test_it_pickles_as_its_path_and_notices_another_file(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    tokens = written(path)
    sent = pickle.dumps(zcd.windows(path, length=L, dtype="uint16"))
    assert len(sent) < 1000
    assert as_pairs(pickle.loads(sent)[:]) == pairs(tokens, L, L)
    written(path, 1001)
    with pytest.raises(zcd.DatasetChangedError, match="had 2000 bytes when it was opened, and has 2002 now"):
        pickle.loads(sent)


def test_the_map_ends_with_the_dataset(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    written(path)
    ds = zcd.windows(path, length=L, dtype="uint16")
    view = ds.view(0)
    first = view.tolist()
    del ds
    assert view.tolist() == first  # a view holds it
    assert str(path) in Path("/proc/self/maps").read_text()
    del view
    assert str(path) not in Path("/proc/self/maps").read_text()

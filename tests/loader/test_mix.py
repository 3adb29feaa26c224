"""zcd.mix: shares, sources' own epochs, ranks, states, threads and worker processes."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_data import CROP, FIXED, copied, flip_byte, in_turn, own_collation, samples_of
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Subset

import zerocopy_data as zcd


class Named(Dataset[Any]):
    """(name, index), not of this library."""

    def __init__(self, name: int, size: int) -> None:
        self.name, self.size = name, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self.name, int(index)


def parts(path: Path, ops: Any = CROP) -> tuple[Any, Any]:
    """Two sources of 20 and 37 photographs, told apart by their numbers."""
    whole = zcd.open(path, ops).select(["image", "number"])
    return whole.subset(range(20)), whole.subset(range(20, 57))


def mixed_of(path: Path, **options: Any) -> Any:
    few, many = parts(path)
    return zcd.mix({few: 1, many: 1}, **{"seed": 5, "num_samples": 100, **options})


def named_of(weights: dict[int, float], sizes: dict[int, int], **options: Any) -> Any:
    return zcd.mix({Named(name, sizes[name]): weight for name, weight in weights.items()}, seed=2, **options)


def pairs_of(loader: Any, epochs: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for names, indices in loader:
            out += zip(names.tolist(), indices.tolist(), strict=True)
    return out


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any), st.integers(1, 40), st.integers(1, 30))
def test_shares_are_exact_and_each_source_goes_through_its_own_epochs(
    weights: list[int], samples: int, batch: int
) -> None:
    sizes = {name: 3 + 5 * name for name in range(len(weights))}
    mixed = named_of(dict(enumerate(map(float, weights))), sizes, num_samples=samples, shuffle=False)
    seen = pairs_of(zcd.DataLoader(mixed, batch), 5)
    assert len(seen) == 5 * samples
    counts = Counter(name for name, _ in seen)
    for name, weight in enumerate(weights):
        assert abs(counts[name] - len(seen) * weight / sum(weights)) <= 1
        assert counts[name] == mixed.mixture.counts(len(seen))[name]
        indices = [index for one, index in seen if one == name]
        assert indices == [turn % sizes[name] for turn in range(len(indices))]


def test_shuffled_sources_are_complete_after_whole_blocks() -> None:
    """1,024 samples, half of each: source 0 of 64 has had eight epochs, 1 of 512 one."""
    mixed = named_of({0: 1.0, 1: 1.0}, {0: 64, 1: 512}, num_samples=256)
    seen = pairs_of(zcd.DataLoader(mixed, 32), 4)
    counts = Counter(seen)
    assert {counts[0, index] for index in range(64)} == {8}
    assert {counts[1, index] for index in range(512)} == {1}
    assert [index for name, index in seen if name == 1] != sorted(range(512))


def test_threads_processes_and_single_samples_agree(photos_path: Path) -> None:
    for epoch in (0, 2):
        mixed = mixed_of(photos_path)
        threads = zcd.DataLoader(mixed, 16, seed=7, num_workers=2)
        threads.set_epoch(epoch)
        expected = samples_of(threads)
        assert len(expected) == 100
        processes = zcd.DataLoader(mixed, 16, seed=7, num_workers=1, collate_fn=own_collation)
        processes.set_epoch(epoch)
        assert samples_of(processes) == expected
        keyed = mixed_of(photos_path)
        keyed.seed = 7
        keyed.set_epoch(epoch)
        alone = [keyed[index] for index in range(100)]
        assert [(one["number"], one["image"].numpy().tobytes()) for one in alone] == expected
        batch = keyed[3:9]
        assert batch["number"].tolist() == [number for number, _ in expected[3:9]]
        assert all(image.numpy().tobytes() == b for image, (_, b) in zip(batch["image"], expected[3:9], strict=True))


def test_a_sample_that_comes_again_has_another_crop_and_sources_share_none(photos_path: Path) -> None:
    whole = zcd.open(photos_path, CROP).select(["image", "number"])
    mixed = zcd.mix({whole.subset(range(9)): 1, whole.subset(range(9)): 1}, seed=1, num_samples=90)
    seen = samples_of(zcd.DataLoader(mixed, 9, seed=7))
    assert set(Counter(number for number, _ in seen).values()) <= set(range(7, 14))
    assert len(set(seen)) >= len(seen) - 2  # crops of one colour may be equal


def test_loader_epochs_go_on_where_the_last_ended(photos_path: Path) -> None:
    short = zcd.DataLoader(mixed_of(photos_path, num_samples=50), 10, seed=7)
    numbers = [number for _ in range(4) for number, _ in samples_of(short)]
    long = zcd.DataLoader(mixed_of(photos_path, num_samples=200), 10, seed=7)
    assert numbers == [number for number, _ in samples_of(long)]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_some_ranks_began_others_finish(photos_path: Path, workers: int) -> None:
    def loader_of(batch: int, **ranks: Any) -> Any:
        mixed = mixed_of(photos_path)
        made = zcd.StatefulDataLoader(mixed, batch, sampler=mixed.sampler(**ranks), seed=7, num_workers=workers)
        made.set_epoch(3)
        return made

    expected = samples_of(loader_of(10, rank=0, world_size=1))
    begun = [loader_of(4, rank=rank, world_size=2) for rank in range(2)]
    first = [samples_of(loader, 3) for loader in begun]
    state = pickle.dumps(begun[0].state_dict())
    assert len(state) < 200
    rest = []
    for rank in range(3):
        loader = loader_of(7, rank=rank, world_size=3, uneven="uneven")
        loader.load_state_dict(pickle.loads(state))
        rest.append(samples_of(loader))
    assert len(first[0]) == len(first[1])
    assert in_turn(first) + in_turn(rest) == expected


def test_a_state_of_another_mix_is_refused(photos_path: Path) -> None:
    loader = zcd.StatefulDataLoader(mixed_of(photos_path), 10, seed=7)
    next(iter(loader))
    few, many = parts(photos_path)
    other = zcd.StatefulDataLoader(zcd.mix({few: 1, many: 2}, seed=5, num_samples=100), 10, seed=7)
    with pytest.raises(zcd.ConfigError, match="order would be another"):
        other.load_state_dict(loader.state_dict())


def test_weights_change_at_a_sample_of_the_run() -> None:
    one, other = Named(0, 50), Named(1, 50)
    mixed = zcd.mix({one: 1, other: 0}, shuffle=False, num_samples=100, schedule={150: {one: 1, other: 3}})
    seen = [name for name, _ in pairs_of(zcd.DataLoader(mixed, 10), 3)]
    assert seen[:150] == [0] * 150
    assert Counter(seen[150:250]) == {0: 25, 1: 75}


def test_in_torchs_loader_and_subsets_it_is_the_same_epoch() -> None:
    mixed = named_of({0: 1.0, 1: 3.0}, {0: 10, 1: 10}, num_samples=40)
    ours = pairs_of(zcd.DataLoader(mixed, 8), 1)
    theirs = [int(index) for _, indices in TorchDataLoader(mixed, 8) for index in indices]
    assert theirs == [index for _, index in ours]
    some = Subset(mixed, [5, 0, 39])
    assert [some[i] for i in range(3)] == [ours[5], ours[0], ours[39]]
    assert [mixed.subset([5, 0, 39])[i] for i in range(3)] == [ours[5], ours[0], ours[39]]
    assert mixed[-1] == ours[-1]


def test_a_subset_of_a_mix_goes_through_threads(photos_path: Path) -> None:
    mixed = mixed_of(photos_path)
    every = samples_of(zcd.DataLoader(mixed, 10, seed=7))
    some = zcd.DataLoader(mixed.subset([7, 3, 99]), 2, seed=7)
    assert samples_of(some) == [every[7], every[3], every[99]]
    assert {number for number, _ in samples_of(some)} != {every[i][0] for i in (7, 3, 99)}  # the next epoch's
    with pytest.raises(zcd.ConfigError, match="subset"):
        zcd.DataLoader(Subset(mixed, [7, 3, 99]), 2, seed=7)


def test_windows_of_several_streams_are_read_where_they_lie(tmp_path: Path) -> None:
    paths = [tmp_path / "one.bin", tmp_path / "two.bin"]
    np.arange(0, 20_000, dtype=np.uint16).tofile(paths[0])
    np.arange(30_000, 60_000, dtype=np.uint16).tofile(paths[1])
    sources = [zcd.windows(path, 32, dtype="uint16").as_tuple() for path in paths]
    mixed = zcd.mix({sources[0]: 1, sources[1]: 1}, seed=3, num_samples=2048)
    first = []
    for x, y in zcd.DataLoader(mixed, 64, seed=1, num_workers=1):
        assert torch.equal(y, x + 1)
        assert (x == x[:, :1] + torch.arange(32)).all()
        first += x[:, 0].tolist()
    assert Counter(start >= 30_000 for start in first) == {True: 1024, False: 1024}


def test_bad_samples_are_named_by_their_source(tmp_path: Path, photos_path: Path) -> None:
    path = copied(photos_path, tmp_path / "hurt")
    flip_byte(zcd.open(path), 7)
    good = zcd.open(photos_path, FIXED).select(["image", "number"])
    hurt = zcd.open(path, FIXED).select(["image", "number"])
    mixed = zcd.mix({good: 1, hurt: 1}, seed=0)
    with pytest.raises(zcd.BadSampleError, match="hurt"):
        list(zcd.DataLoader(mixed, 16, seed=0))
    loader: Any = zcd.DataLoader(mixed, 16, seed=0, on_error="skip")
    assert sum(len(batch["number"]) for batch in loader) == len(mixed) - loader.skipped.total
    assert {sample.error.row for sample in loader.skipped} == {7}


def test_numbered_samples_of_all_sources_differ(photos_path: Path) -> None:
    whole = zcd.open(photos_path, columns=["number"]).numbered()
    mixed = zcd.mix({whole.subset(range(20)): 1, whole.subset(range(20)): 1}, num_samples=120)
    rows = torch.cat([batch["index"] for batch in zcd.DataLoader(mixed, 8, seed=0)])
    assert len(set(rows.tolist())) == 120


def test_pickled_and_copied_it_is_the_same(photos_path: Path) -> None:
    mixed = mixed_of(photos_path)
    mixed.set_epoch(1)
    there = pickle.loads(pickle.dumps(mixed))
    assert [there[i]["number"] for i in range(30)] == [mixed[i]["number"] for i in range(30)]


def test_what_makes_no_sense_is_refused(photos_path: Path) -> None:
    few, many = parts(photos_path)
    other_ops = zcd.open(photos_path, FIXED).select(["image", "number"])
    for wrong in (
        lambda: zcd.mix({}),
        lambda: zcd.mix([few, many]),  # type: ignore[arg-type]
        lambda: zcd.mix({few: -1}),
        lambda: zcd.mix({few: 0, many: 0}),
        lambda: zcd.mix({few: 1, many.subset([]): 1}),
        lambda: zcd.mix({few: 1, many: 1}, num_samples=0),
        lambda: zcd.mix({few: 1, many: 1}, temperature=0),
        lambda: zcd.mix({few: 1, many: 1}, schedule={5: {few: 1}}),
        lambda: zcd.mix({few: 1, many: 1}, schedule={-5: {few: 1, many: 1}}),
        lambda: zcd.mix({iter([1]): 1}),
        lambda: zcd.mix({few: 1, other_ops: 1}),
        lambda: zcd.mix({few: 1, many.select("number"): 1}),
        lambda: zcd.mix({few: 1, many.as_tuple(): 1}),
        lambda: zcd.mix({few: 1, many: 1}, schedule={5: {few: 1, other_ops: 1}}),
        lambda: zcd.mix({few: 1, many: 1}, schedule={5: 1}),  # type: ignore[dict-item]
        lambda: zcd.mix({few: 1, many: 1}, schedule=[1]),  # type: ignore[arg-type]
        lambda: zcd.mix({few: 1, many: 1}, num_samples=2**63),
        lambda: zcd.mix({few: 1, zcd.mix({many: 1}): 1}),
        lambda: zcd.mix({few: 1, Subset(zcd.mix({many: 1}), [1]): 1}),
        lambda: zcd.DataLoader(zcd.mix({few: 1, many: 1}), 8, shuffle=True),
        lambda: zcd.DataLoader(zcd.mix({few: 1, many: 1}), 8, sampler=zcd.RepeatedSampler(57)),
        lambda: zcd.DataLoader(zcd.mix({few: 1, many: 1}), 8, sampler=zcd.mix({many: 1}).sampler()),
        lambda: zcd.DataLoader(named_of({0: 1.0}, {0: 5}), 8, seed=3),
        lambda: zcd.DataLoader(zcd.mix({few: 1, many: 1}), 8, decode="gpu", device="cuda"),
    ):
        with pytest.raises(zcd.ConfigError):
            wrong()
    mixed = zcd.mix({few: 1, many: 1})
    with pytest.raises(IndexError):
        mixed[len(mixed)]
    with pytest.raises(TypeError):
        mixed["a"]


def test_an_epoch_beyond_what_positions_can_count_is_refused(photos_path: Path) -> None:
    mixed = mixed_of(photos_path)
    mixed.set_epoch(2**60)
    with pytest.raises(zcd.ConfigError, match="2\\*\\*62"):
        mixed[0]
    for epoch in (2**57, 2**62, 2**63 - 1, 2**70, -1):
        mixed.set_epoch(epoch)
        with pytest.raises(zcd.ConfigError, match="epoch"):
            mixed[0]
        sampler = mixed.sampler()
        sampler.set_epoch(epoch)
        with pytest.raises(zcd.ConfigError, match="epoch"):
            iter(sampler)


@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_of_other_peoples_datasets_are_counted_too(workers: int) -> None:
    for persistent in {False, workers > 0}:
        mixed = named_of({0: 1.0, 1: 1.0}, {0: 50, 1: 50}, num_samples=40)
        loader = zcd.StatefulDataLoader(mixed, 10, num_workers=workers, persistent_workers=persistent)
        epochs = [[int(index) for _, indices in loader for index in indices] for _ in range(3)]
        told: Any = zcd.DataLoader(named_of({0: 1.0, 1: 1.0}, {0: 50, 1: 50}, num_samples=40), 10)
        told.set_epoch(2)
        assert [int(index) for _, indices in told for index in indices] == epochs[2]
        assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_state_of_another_subset_of_the_mix_is_refused(photos_path: Path) -> None:
    mixed = mixed_of(photos_path)
    loader = zcd.StatefulDataLoader(mixed.subset(range(10)), 5, seed=7)
    next(iter(loader))
    with pytest.raises(zcd.ConfigError, match="order would be another"):
        zcd.StatefulDataLoader(mixed.subset(range(20, 30)), 5, seed=7).load_state_dict(loader.state_dict())


def test_the_pages_of_all_sources_are_known_to_who_reads_ahead(tmp_path: Path, photos_path: Path) -> None:
    few, many = (source.select("image") for source in parts(photos_path))
    mixed = zcd.mix({few: 1, many: 1}, num_samples=10)
    rows, _ = mixed.picks(np.arange(10))
    column = mixed.native_column("image")
    assert len(column.extents(rows, 0)) == 2
    assert sum(extents.bytes for extents in column.extents(rows, 0)) > 0
    np.arange(5000, dtype=np.uint16).tofile(tmp_path / "one.bin")
    np.arange(5000, dtype=np.uint16).tofile(tmp_path / "two.bin")
    streams = [zcd.windows(tmp_path / name, 32, dtype="uint16") for name in ("one.bin", "two.bin")]
    tokens: Any = zcd.mix({streams[0]: 1, streams[1]: 1})
    assert len(tokens.native_column("input").extents(tokens.rows(np.arange(10)), 0)) == 2

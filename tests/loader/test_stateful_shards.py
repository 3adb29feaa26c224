"""StatefulDataLoader over a ShardDataset: the thread engine, random crops included."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import CROP, copied, flip_byte
from stateful_data import flat, plain, resumed, stopped
from torch.utils.data import random_split

import zerocopy_data as zcd


def maker(dataset: Any, workers: int, **options: Any) -> Callable[[], Any]:
    options = {"batch_size": 5, "shuffle": True, **options}
    return lambda: zcd.StatefulDataLoader(dataset, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_stop_goes_on_with_the_same_crops(photos: zcd.ShardDataset, workers: int) -> None:
    make = maker(photos, workers, seed=7)
    for epochs in (0, 2):
        for stop in (0, 1, 5, 11, 12, 13):
            state, left, following, _ = stopped(make, stop, epochs)
            assert resumed(make, state) == (left, following)
            assert resumed(maker(photos, 3 - workers, seed=7), state) == (left, following)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("generator", [False, True])
def test_without_a_seed_the_epoch_goes_on_with_the_same_crops(
    photos: zcd.ShardDataset, workers: int, persistent: bool, generator: bool
) -> None:
    def make() -> Any:
        given = torch.Generator().manual_seed(3) if generator else None
        return maker(photos, workers, persistent_workers=persistent and workers > 0, generator=given)()

    for epochs, stop in ((0, 0), (0, 4), (1, 3), (1, 12)):
        state, left, following, loader = stopped(make, stop, epochs)
        again, then = resumed(make, state)
        assert again == left
        if generator:
            assert then == following
            state = loader.state_dict()  # the epoch after has ended
            assert resumed(make, state)[0] == [plain(batch) for batch in loader]


def test_the_state_is_small(photos: zcd.ShardDataset) -> None:
    loader = maker(photos, 2, seed=7)()
    loader.set_epoch(1234)
    iterator = iter(loader)
    for _ in range(6):
        next(iterator)
    state = loader.state_dict()
    assert (state["seed"], state["epoch"], state["position"]) == (7, 1234, 30)
    assert len(pickle.dumps(state)) < 200


def test_another_batch_size_goes_on_at_the_same_sample(numbers: zcd.ShardDataset) -> None:
    state, left, following, _ = stopped(maker(numbers, 2, seed=7), 4)
    again, then = resumed(maker(numbers, 0, seed=7, batch_size=8), state)
    assert flat([batch["number"] for batch in again]) == flat([batch["number"] for batch in left])
    assert flat([batch["number"] for batch in then]) == flat([batch["number"] for batch in following])


def test_a_subset_of_it(photos: zcd.ShardDataset) -> None:
    part, _ = random_split(photos, [40, 17], torch.Generator().manual_seed(0))
    make = maker(part, 2, seed=7)
    state, left, following, _ = stopped(make, 3)
    assert resumed(make, state) == (left, following)


@pytest.mark.parametrize("workers", [0, 2])
def test_with_a_collation_of_ones_own_it_runs_in_processes(photos: zcd.ShardDataset, workers: int) -> None:
    make = maker(photos, workers, seed=7, collate_fn=lambda batch: [sample["image"] for sample in batch])
    for stop in (3, 13):
        state, left, following, _ = stopped(make, stop, 1)
        assert resumed(make, state) == (left, following)


def test_batches_of_bad_samples_that_were_left_out_count(photos_path: Path, tmp_path: Path) -> None:
    ds = zcd.open(copied(photos_path, tmp_path / "bad"), columns=["image", "number"], transform=CROP)
    for row in (5, 6, 7, 8, 9, 17):  # a whole batch, and one sample
        flip_byte(ds, row)
    for workers in (0, 2):
        make = maker(ds, workers, shuffle=False, on_error="skip")
        for stop in (1, 2, 4):
            state, left, _, _ = stopped(make, stop)
            assert resumed(make, state)[0] == left


def test_a_state_before_the_first_batch(photos: zcd.ShardDataset) -> None:
    for workers in (0, 2):
        for seed in (7, None):
            make = maker(photos, workers, seed=seed)
            loader = make()
            state = loader.state_dict()
            expected = [plain(batch) for batch in loader]
            assert resumed(make, state)[0] == expected


def test_set_epoch_must_not_contradict_the_state(numbers: zcd.ShardDataset) -> None:
    make = maker(numbers, 0, seed=7)
    state, left, _, _ = stopped(make, 3, epochs=2)
    loader = make()
    loader.load_state_dict(state)
    loader.set_epoch(0)
    with pytest.raises(zcd.ConfigError, match=r"middle of epoch 2, set_epoch asks for epoch 0"):
        iter(loader)
    loader.set_epoch(2)
    assert [plain(batch) for batch in loader] == left


def test_another_seed_is_refused(numbers: zcd.ShardDataset) -> None:
    state, _, _, _ = stopped(maker(numbers, 0, seed=7), 3)
    for seed in (8, None):
        with pytest.raises(zcd.ConfigError, match=f"seed=7, this loader has seed={seed}"):
            maker(numbers, 0, seed=seed)().load_state_dict(state)


def test_a_break_ends_the_threads_and_keeps_the_state(photos: zcd.ShardDataset) -> None:
    before = threading.active_count()
    make = maker(photos, 2, seed=7)
    loader = make()
    whole = [plain(batch) for batch in make()]
    for number, _ in enumerate(loader):
        if number == 3:
            break
    assert threading.active_count() == before
    assert resumed(make, loader.state_dict())[0] == whole[4:]


RESUME = """
import pickle, sys
import zerocopy_data as zcd
ds = zcd.open(sys.argv[1], columns=["number"])
loader = zcd.StatefulDataLoader(ds, 5, shuffle=True, num_workers=1)
loader.load_state_dict(pickle.load(open(sys.argv[2], "rb")))
print([batch["number"].tolist() for batch in loader])
"""


def test_a_fresh_process_goes_on(photos_path: Path, numbers: zcd.ShardDataset, tmp_path: Path) -> None:
    state, left, _, _ = stopped(maker(numbers, 2), 4)
    (tmp_path / "state").write_bytes(pickle.dumps(state))
    command = [sys.executable, "-c", RESUME, str(photos_path), str(tmp_path / "state")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str([batch["number"] for batch in left])

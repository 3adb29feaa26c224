"""What scripts and frameworks do to a DataLoader must not cost it its threads."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import Subset, random_split

import zerocopy_data as zcd
from zerocopy_data.loader.iterator import ThreadIterator


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "data.zcd"
    with zcd.DatasetWriter(path, {"label": zcd.Scalar("int64")}) as writer:
        writer.write_columns({"label": list(range(100))})
    return path


def labels(loader: zcd.DataLoader[object]) -> list[int]:
    return torch.cat([batch[0] for batch in loader]).tolist()  # type: ignore[index]


def test_torch_subsets_are_served_by_threads_in_their_order(numbers: Path) -> None:
    ds = zcd.open(numbers).as_tuple("label")
    nested = Subset(Subset(ds, [5, 3, 99, 0, 3]), [2, 0, 4])
    loader = zcd.DataLoader(nested, batch_size=2, num_workers=2, seed=0)
    assert isinstance(iter(loader), ThreadIterator)
    assert labels(loader) == [99, 5, 3] == [int(nested[i][0]) for i in range(3)]
    assert loader.dataset is nested


def test_a_random_split_covers_the_dataset_once(numbers: Path) -> None:
    parts = random_split(zcd.open(numbers).as_tuple("label"), [0.8, 0.2], torch.Generator().manual_seed(1))
    loaders = [zcd.DataLoader(part, batch_size=7, shuffle=True, num_workers=1, seed=3) for part in parts]
    assert [len(labels(loader)) for loader in loaders] == [80, 20]
    assert sorted(n for loader in loaders for n in labels(loader)) == list(range(100))


def test_a_subclass_of_subset_is_left_to_torch(numbers: Path) -> None:
    class Doubling(Subset[tuple[int]]):
        def __getitem__(self, index: int) -> tuple[int]:  # type: ignore[override]
            return (2 * super().__getitem__(index)[0],)

        __getitems__ = None  # type: ignore[assignment]

    loader = zcd.DataLoader(Doubling(zcd.open(numbers).as_tuple("label"), [1, 2]), batch_size=2)
    assert labels(loader) == [2, 4]


def test_worker_init_fn_keeps_the_threads_and_says_that_it_is_not_called(numbers: Path) -> None:
    calls: list[int] = []
    loader = zcd.DataLoader(
        zcd.open(numbers).as_tuple("label"), batch_size=10, num_workers=2, worker_init_fn=calls.append
    )
    with pytest.warns(UserWarning, match="worker_init_fn is not called"):
        iterator = iter(loader)
    assert isinstance(iterator, ThreadIterator)
    assert not calls


def test_a_timeout_that_is_not_reached_changes_nothing(numbers: Path) -> None:
    loader = zcd.DataLoader(zcd.open(numbers).as_tuple("label"), batch_size=10, num_workers=2, timeout=30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(iter(loader), ThreadIterator)
    assert labels(loader) == list(range(100))


def test_a_late_batch_is_a_timeout_as_in_torch_and_can_be_taken_later(
    numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from zerocopy_data.loader.batch import BatchPlan

    released = threading.Event()
    make = BatchPlan.make

    def late(self: BatchPlan, *args: object, **options: object) -> object:
        released.wait(20)
        return make(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchPlan, "make", late)
    iterator = iter(zcd.DataLoader(zcd.open(numbers).as_tuple("label"), batch_size=10, num_workers=1, timeout=0.2))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        next(iterator)
    released.set()
    assert next(iterator)[0].tolist() == list(range(10))


def test_torchs_late_checks_stay(numbers: Path) -> None:
    ds = zcd.open(numbers).as_tuple("label")
    with pytest.raises(AssertionError):
        iter(zcd.DataLoader(ds, timeout=1))
    with pytest.raises(AssertionError):
        iter(zcd.DataLoader(ds, num_workers=1, prefetch_factor=0))

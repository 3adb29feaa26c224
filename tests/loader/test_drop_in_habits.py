"""What scripts and frameworks do to a DataLoader must not cost it its threads."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
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


@pytest.fixture(scope="module")
def small_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    (root / "in" / "a").mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (40, 30), (40 * number, 9, 9)).save(root / "in" / "a" / f"{number}.jpg")
    zcd.pack(root / "in", root / "out.zcd")
    return root / "out.zcd"


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_an_epoch_of_nothing_but_bad_samples_is_an_error_not_an_empty_loop(small_photos: Path, on_error: str) -> None:
    ds = zcd.open(small_photos, transform=[zcd.RandomCrop(64)]).as_tuple("image", "label")
    loader = zcd.DataLoader(ds, batch_size=4, num_workers=1, on_error=on_error)
    for _ in range(2):
        with pytest.raises(zcd.ZcdError, match=r"all 6 samples of this epoch were bad.*pad_if_needed"):
            list(loader)


def test_a_transform_that_does_not_fit_is_not_blamed_on_the_dataset(small_photos: Path) -> None:
    ds = zcd.open(small_photos, transform=[zcd.RandomCrop(64)])
    for access in (lambda: ds[0], lambda: next(iter(zcd.DataLoader(ds)))):
        with pytest.raises(zcd.BadSampleError, match="transform doesn't fit") as caught:
            access()
        assert "verify" not in str(caught.value)


def test_more_threads_than_cores_is_no_matter_for_a_warning(small_photos: Path) -> None:
    ds = zcd.open(small_photos, transform=[zcd.CenterCrop(16)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(zcd.DataLoader(ds, batch_size=3, num_workers=64))) == 2


def test_one_operation_by_itself_means_a_list_of_it(small_photos: Path) -> None:
    assert zcd.open(small_photos, transform=zcd.CenterCrop(16))[0]["image"].shape == (3, 16, 16)
    views = zcd.open(small_photos, transform=zcd.MultiCrop([zcd.CenterCrop(8)], [zcd.CenterCrop(4)]))[0]["image"]
    assert [view.shape[-1] for view in views] == [8, 4]


def test_one_column_may_be_named_by_a_plain_string(small_photos: Path) -> None:
    assert list(zcd.open(small_photos, columns="label")[0]) == ["label"]


def test_a_failing_callable_is_told_what_it_was_given(small_photos: Path) -> None:
    def to_tensor(image: object) -> object:
        raise TypeError("pic should be PIL Image or ndarray")

    with pytest.raises(TypeError) as caught:
        zcd.open(small_photos, transform=to_tensor)[0]
    assert "a uint8 tensor [3, 30, 40], not a PIL image" in "".join(caught.value.__notes__)


def test_an_array_as_index_is_pointed_to_subset(small_photos: Path) -> None:
    with pytest.raises(TypeError, match="subset"):
        zcd.open(small_photos)[np.array([1, 2])]


def test_epochs_before_the_first_are_refused(small_photos: Path) -> None:
    loader = zcd.DataLoader(zcd.open(small_photos, transform=[zcd.CenterCrop(8)]), seed=0)
    with pytest.raises(zcd.ConfigError, match="epochs count from 0"):
        loader.set_epoch(-1)


def test_quality_without_a_size_to_shrink_to_is_refused(small_photos: Path, tmp_path: Path) -> None:
    with pytest.raises(zcd.ConfigError, match="max_side"):
        zcd.pack(small_photos.parent / "in", tmp_path / "x.zcd", quality=50)


@pytest.mark.parametrize("seed", [np.int64(5), np.uint32(5), torch.tensor(5)])
def test_any_integer_is_a_seed(small_photos: Path, seed: object) -> None:
    ds = zcd.open(small_photos, transform=[zcd.RandomResizedCrop(8)])
    expected = next(iter(zcd.DataLoader(ds, batch_size=6, shuffle=True, seed=5)))["image"]
    assert torch.equal(next(iter(zcd.DataLoader(ds, batch_size=6, shuffle=True, seed=seed)))["image"], expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", ["a", 1.5])
def test_a_seed_that_is_no_integer_is_refused(small_photos: Path, seed: object) -> None:
    with pytest.raises(zcd.ConfigError, match="a seed is an integer"):
        zcd.DataLoader(zcd.open(small_photos, transform=[zcd.CenterCrop(8)]), seed=seed)  # type: ignore[arg-type]
    with pytest.raises(zcd.ConfigError, match="a seed is an integer"):
        zcd.open(small_photos, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("indices", [[2**64 - 1], [2**63]])
def test_positions_beyond_int64_do_not_wrap(numbers: Path, indices: list[int]) -> None:
    ds = zcd.open(numbers).as_tuple("label")
    with pytest.raises(IndexError):
        list(zcd.DataLoader(ds, batch_sampler=[indices]))
    with pytest.raises(IndexError):
        ds.subset(np.array(indices, np.uint64))


def test_nested_indices_are_refused(numbers: Path) -> None:
    with pytest.raises(TypeError, match="flat list"):
        list(zcd.DataLoader(zcd.open(numbers).as_tuple("label"), batch_sampler=[[[1, 2], [3, 4]]]))


def test_a_loader_keeps_its_slots_from_epoch_to_epoch_and_still_pickles(small_photos: Path) -> None:
    loader = zcd.DataLoader(zcd.open(small_photos, transform=[zcd.CenterCrop(16)]), batch_size=2, num_workers=1)
    for _ in range(5):
        for _ in loader:
            pass
    assert loader._plan is not None
    assert loader._plan.layout.arena.slots_made <= 6  # four in flight, one held by the loop, one just let go
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 3
    assert len(list(copy.deepcopy(loader))) == 3


def test_a_changed_policy_gets_a_plan_of_its_own(small_photos: Path) -> None:
    ds = zcd.open(small_photos, transform=[zcd.RandomCrop(64)])
    loader = zcd.DataLoader(ds, batch_size=2)
    with pytest.raises(zcd.BadSampleError):
        list(loader)
    loader.on_error = "skip"
    with pytest.raises(zcd.ZcdError, match="all 6 samples"):
        list(loader)


def test_the_stateful_loader_takes_what_the_loader_takes() -> None:
    plain = list(inspect.signature(zcd.DataLoader.__init__).parameters.values())
    stateful = list(inspect.signature(zcd.StatefulDataLoader.__init__).parameters.values())
    assert [str(p) for p in stateful if p.name != "snapshot_every_n_steps"] == [str(p) for p in plain]

"""Over other datasets, and wherever threads can't do the work, the class is torch's."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import ROWS, by_hand
from same_batches import assert_same
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import DistributedSampler, IterableDataset, SequentialSampler, TensorDataset, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

import zerocopy_data as zcd

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:This process .*multi-threaded")
CLASSES = (zcd.DataLoader, TorchDataLoader)
TENSORS = TensorDataset(torch.arange(23), torch.arange(46.0).view(23, 2))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from range(start, 11, step)


class SizedStream(Stream):
    def __len__(self) -> int:
        return 11


def summed(samples: list[Any]) -> int:
    return sum(int(sample[0]) for sample in samples)


OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "defaults": (TENSORS, {}),
    "shuffled": (TENSORS, {"batch_size": 4, "shuffle": True}),
    "dropped": (TENSORS, {"batch_size": 4, "drop_last": True}),
    "collated": (TENSORS, {"batch_size": 4, "collate_fn": summed}),
    "unbatched": (TENSORS, {"batch_size": None}),
    "batch_sampler": (TENSORS, {"batch_sampler": [[1, 2], [3]]}),
    "list": ([1.5, 2.5, 3.5], {"batch_size": 2}),
    "stream": (Stream(), {"batch_size": 3}),
    "sized_stream": (SizedStream(), {"batch_size": 3, "drop_last": True}),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_other_datasets_load_as_with_torchs_class(name: str, workers: int) -> None:
    dataset, options = OPTIONS[name]
    seen = []
    for cls in CLASSES:
        torch.manual_seed(5)
        loader = cls(dataset, num_workers=workers, **options)
        try:
            length: Any = len(loader)
        except TypeError as error:
            length = str(error)
        seen.append(([list(loader), list(loader)], length, torch.get_rng_state()))
    assert_same(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]
    assert seen[0][2].equal(seen[1][2])


BAD: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "thread"},
    {"num_workers": 1, "multiprocessing_context": 3},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_sampler": [[1]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": -3},
    {"batch_size": 1.5},
    {"batch_size": True},
    {"drop_last": 1},
    {"shuffle": True, "batch_size": "4"},
    {"nonsense": 1},
    {"generator": torch.Generator(), "worker_init_fn": None, "collate_fn": None, "batch_size": "x"},
]


@pytest.mark.parametrize("shards", [False, True], ids=["tensors", "shards"])
@pytest.mark.parametrize("options", BAD, ids=lambda options: "-".join(options))
def test_bad_arguments_raise_torchs_errors(numbers: zcd.ShardDataset, options: dict[str, Any], shards: bool) -> None:
    dataset = numbers if shards else TENSORS
    errors = []
    for cls in CLASSES:
        with pytest.raises((ValueError, TypeError)) as caught:
            cls(dataset, **options)
        errors.append(caught)
    assert errors[0].type is errors[1].type
    assert str(errors[0].value) == str(errors[1].value)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_bad_arguments_for_a_stream_raise_torchs_errors(options: dict[str, Any]) -> None:
    messages = []
    for cls in CLASSES:
        with pytest.raises(ValueError, match="IterableDataset") as caught:
            cls(Stream(), **options)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("shards", [False, True], ids=["tensors", "shards"])
@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_torch_guards_is_guarded(numbers: zcd.ShardDataset, name: str, shards: bool) -> None:
    loader = zcd.DataLoader(numbers if shards else TENSORS)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, None)


def test_the_signature_is_torchs_plus_our_keywords() -> None:
    torchs = inspect.signature(TorchDataLoader.__init__).parameters
    ours = inspect.signature(zcd.DataLoader.__init__).parameters
    assert [*torchs] == [*ours][: len(torchs)]
    assert [*ours][len(torchs) :] == ["seed", "on_error", "stall_after", "device", "static", "decode", "read_ahead"]
    for name, parameter in torchs.items():
        assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind)


def test_public_attributes_of_torchs_class_are_there(numbers: zcd.ShardDataset) -> None:
    assert set(vars(TorchDataLoader(numbers))) <= set(vars(zcd.DataLoader(numbers)))
    assert not hasattr(zcd.DataLoader(numbers), "state_dict")


def test_the_class_can_be_subscripted_and_subclassed(numbers: zcd.ShardDataset) -> None:
    class Mine(zcd.DataLoader[int]):
        def __iter__(self) -> Any:
            return (batch["number"] + 1 for batch in super().__iter__())

    assert [batch.tolist() for batch in Mine(numbers.subset(range(3)), batch_size=2)] == [[1, 2], [3]]
    assert isinstance(zcd.DataLoader[int](TENSORS), TorchDataLoader)
    with pytest.raises(ValueError, match="set after Mine is initialized"):
        Mine(numbers).batch_size = 3


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_loader_can_be_copied_and_pickled(photos: zcd.ShardDataset, duplicate: Callable[[Any], Any]) -> None:
    loader = zcd.DataLoader(photos, 10, shuffle=True, seed=3, on_error="skip", num_workers=2)
    list(loader)
    again = duplicate(loader)
    assert (again.epoch, again.seed, again.on_error) == (1, 3, "skip")
    for one, other in zip(again, loader, strict=True):
        assert_same(one, other)
    assert len(list(duplicate(zcd.DataLoader(TENSORS, 10)))) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_are_of_torchs_family(numbers: zcd.ShardDataset, workers: int) -> None:
    iterator = iter(zcd.DataLoader(numbers, batch_size=10, num_workers=workers))
    assert isinstance(iterator, _BaseDataLoaderIter)
    assert not isinstance(iterator, _MultiProcessingDataLoaderIter)
    assert len(iterator) == 6
    assert iter(iterator) is iterator
    with pytest.raises(NotImplementedError):
        pickle.dumps(iterator)


def test_a_loader_can_be_made_again_from_its_public_attributes(photos: zcd.ShardDataset) -> None:
    """What Lightning does to put a DistributedSampler in: extra keywords must survive."""
    loader = zcd.DataLoader(photos, batch_size=5, shuffle=True, num_workers=2, seed=7, on_error="skip")
    parameters = inspect.signature(type(loader).__init__).parameters
    found = {name: value for name, value in vars(loader).items() if name in parameters}
    sampler = DistributedSampler(photos, 2, 1, shuffle=True)
    again = type(loader)(**{**found, "sampler": sampler, "shuffle": False, "batch_sampler": None})
    assert (again.seed, again.on_error, again.num_workers, again.batch_size) == (7, "skip", 2, 5)
    assert again.sampler is sampler
    rows = list(sampler)
    for one, other in zip(again, by_hand(photos, [rows[n : n + 5] for n in range(0, 29, 5)], 7), strict=True):
        assert_same(one, other)


def test_a_seed_for_other_datasets_is_refused_in_words() -> None:
    with pytest.raises(zcd.ConfigError, match="compiled dataset, not TensorDataset: give torch's generator="):
        zcd.DataLoader(TENSORS, seed=0)


def test_images_of_many_sizes_are_refused_when_the_loader_is_made(photos_path: Path) -> None:
    for transform in (None, [zcd.Resize(20)], [zcd.Normalize()], [zcd.MultiCrop([zcd.Resize((4, 4))], [])]):
        with pytest.raises(
            zcd.ConfigError, match=r"column 'image' come out in different sizes.*RandomResizedCrop\(224\)"
        ):
            zcd.DataLoader(zcd.open(photos_path, transform), batch_size=4)


@pytest.mark.parametrize("kind", [zcd.Tokens("int32"), zcd.Tensor("int32", (None,)), zcd.Json()])
def test_columns_that_vary_in_length_are_refused_when_the_loader_is_made(tmp_path: Path, kind: Any) -> None:
    with zcd.DatasetWriter(tmp_path / "ds", {"x": kind, "n": zcd.Scalar()}) as writer:
        writer.write({"x": [1, 2], "n": 0})
        writer.write({"x": [1], "n": 1})
    ds = zcd.open(tmp_path / "ds")
    with pytest.raises(zcd.ConfigError, match=r"column 'x' .*Leave it out with select\(\)"):
        zcd.DataLoader(ds, batch_size=2)
    (lengths,) = zcd.DataLoader(ds, batch_size=2, collate_fn=lambda samples: [len(s["x"]) for s in samples])
    assert lengths == [2, 1]
    assert [batch["n"].tolist() for batch in zcd.DataLoader(ds.select("n"), batch_size=2)] == [[0, 1]]


def shapes(samples: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    return [tuple(sample["image"].shape) for sample in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_many_sizes_load_with_a_collate_fn(photos_path: Path, workers: int) -> None:
    ds = zcd.open(photos_path)
    loader = zcd.DataLoader(ds, batch_size=20, collate_fn=shapes, num_workers=workers)
    assert [shape for batch in loader for shape in batch] == [tuple(ds[n]["image"].shape) for n in range(ROWS)]


def test_single_samples_load_with_batch_size_none(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    got = list(zcd.DataLoader(ds, batch_size=None, num_workers=2))
    assert len(got) == ROWS
    assert got[4]["image"].equal(ds[4]["image"])


@pytest.mark.parametrize("workers", [0, 2])
def test_torchvisions_transforms_run_in_torchs_workers(photos_path: Path, workers: int) -> None:
    transforms = pytest.importorskip("torchvision.transforms.v2", reason="torchvision is not installed")
    chain = transforms.Compose([transforms.CenterCrop(12), transforms.ToDtype(torch.float32, scale=True)])
    ds = zcd.open(photos_path, {"image": chain}).as_tuple("image", "label")
    loader = zcd.DataLoader(ds, batch_size=10, num_workers=workers)
    assert not loader.uses_threads()
    got = list(loader)
    assert len(got) == 6
    plain = zcd.open(photos_path)
    for place, image in enumerate(got[1][0]):
        assert image.equal(chain(plain[10 + place]["image"]))


def test_attributes_set_late_are_read_when_iterating(photos: zcd.ShardDataset) -> None:
    loader = zcd.DataLoader(photos, batch_size=20)
    loader.collate_fn = len
    assert list(loader) == [20, 20, 17]
    loader = zcd.DataLoader(photos, batch_size=20, sampler=SequentialSampler(photos))
    loader.num_workers = 2
    assert sum(len(batch["key"]) for batch in loader) == ROWS


def test_pinning_without_an_accelerator_warns_as_torch_does(fixed: zcd.ShardDataset) -> None:
    if torch.accelerator.is_available():
        pytest.skip("an accelerator is present: there is nothing to warn of")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        (batch, *_) = zcd.DataLoader(fixed, batch_size=10, pin_memory=True, num_workers=1)
    assert len(batch[1]) == 10


def collate_in_python(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples)  # another function than the default: for torch's machinery


def test_crops_of_the_thread_engine_equal_those_of_torchs_machinery(photos: zcd.ShardDataset) -> None:
    threads = zcd.DataLoader(photos, 10, shuffle=True, num_workers=2, seed=6)
    processes = zcd.DataLoader(photos, 10, shuffle=True, num_workers=2, seed=6, collate_fn=collate_in_python)
    assert threads.uses_threads()
    assert not processes.uses_threads()
    for _ in range(2):
        for one, other in zip(threads, processes, strict=True):
            assert_same(one, other)

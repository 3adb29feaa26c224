"""A compiled dataset's files: damaged and missing ones, descriptors, memory, pickles, other processes."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from file_trees import folder, write_tree
from loader_data import NoThreadLeft, cloned
from same_batches import assert_same
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, default_collate

import zerocopy_data as zcd
from zerocopy_data.loader.compiled import ImageFiles

RANDOM = v1.Compose([v1.RandomResizedCrop(12), v1.RandomHorizontalFlip(), v1.ToTensor()])
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(scope="module")
def shared_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("files") / "tree")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree")


@pytest.fixture
def compiled(shared_tree: Path) -> zcd.CompiledDataset:
    return zcd.compile(folder(shared_tree, RANDOM))


def open_files() -> list[str]:
    """What this process's descriptors lead to."""
    return sorted(str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())


class NoMoreFiles:
    """Context in which the process can't open a file."""

    def __enter__(self) -> None:
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, self.limits[1]))

    def __exit__(self, *_: Any) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


DAMAGE = {
    "truncated": (truncate, "truncated"),
    "empty": (lambda path: path.write_bytes(b""), "the file is empty"),
    "missing": (Path.unlink, "No such file"),
    "text": (lambda path: path.write_text("no picture"), "neither libjpeg-turbo nor Pillow can decode it"),
    "directory": (make_directory, "is no regular file"),
    "pipe": (make_pipe, "is no regular file"),
    "loop": (make_loop, "can't be opened"),
    "sparse": (lambda path: os.truncate(path, 1 << 31), "2147483648 bytes are no picture"),
}


@WORKERS
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_bad_file_is_named_with_path_and_hint(tree: Path, kind: str, workers: int) -> None:
    compiled = zcd.compile(folder(tree, RANDOM))
    damage, reason = DAMAGE[kind]
    path = Path(compiled.path(20))
    damage(path)
    loader = zcd.DataLoader(compiled, batch_size=6, num_workers=workers, seed=0)
    for read in (lambda: compiled[20], lambda: list(loader)):
        with pytest.raises(zcd.BadSampleError) as caught:
            read()
        error = caught.value
        assert (error.dataset, error.shard, error.row, error.key) == (tree, None, 20, str(path))
        assert reason in error.reason
        assert "on_error='skip'" in str(error)
        assert pickle.loads(pickle.dumps(error)).key == str(path)


@WORKERS
def test_on_error_works_as_for_shards(tree: Path, workers: int) -> None:
    compiled = zcd.compile(folder(tree, RANDOM))
    bad = [3, 20, 21]
    truncate(Path(compiled.path(3)))
    Path(compiled.path(20)).unlink()
    Path(compiled.path(21)).write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    size = len(compiled)
    skipping = zcd.DataLoader(compiled, batch_size=6, num_workers=workers, seed=0, on_error="skip")
    batches = [cloned(batch) for batch in skipping]
    assert [sample.row for sample in skipping.skipped] == bad
    good = compiled.subset([row for row in range(size) if row not in bad])
    good.seed = 0
    good.set_epoch(0)
    images = torch.cat([batch[0] for batch in batches])
    assert_same([images, torch.cat([batch[1] for batch in batches])], list(good[:]))
    substituting = zcd.DataLoader(compiled, batch_size=6, num_workers=workers, seed=0, on_error="substitute")
    assert sum(len(labels) for _, labels in substituting) == size
    assert substituting.skipped.total == 3


def test_a_transform_that_does_not_fit_is_no_damage(shared_tree: Path) -> None:
    compiled = zcd.compile(folder(shared_tree, v1.Compose([v1.RandomCrop(40), v1.ToTensor()])))
    small = next(index for index in range(len(compiled)) if _is_small(compiled, index))
    for read in (lambda: compiled[small], lambda: list(zcd.DataLoader(compiled.subset([small])))):
        with pytest.raises(zcd.BadSampleError, match="The image is sound"):
            read()


def _is_small(compiled: zcd.CompiledDataset, index: int) -> bool:
    from PIL import Image

    with Image.open(compiled.path(index)) as image:
        return min(image.size) < 40


def test_the_pixel_limit_holds(shared_tree: Path) -> None:
    compiled = zcd.compile(folder(shared_tree, RANDOM), pixel_limit=30 * 30 - 1)
    for index in range(len(compiled)):
        with pytest.raises(zcd.BadSampleError, match="pixels"):
            compiled[index]


def test_no_descriptor_and_no_thread_is_left(compiled: zcd.CompiledDataset) -> None:
    before = open_files()
    with NoThreadLeft():
        list(zcd.DataLoader(compiled, batch_size=5, num_workers=2, seed=0))
        iterator = iter(zcd.DataLoader(compiled, batch_size=2, num_workers=2, seed=0))
        next(iterator)
        del iterator
        gc.collect()
    assert open_files() == before


@WORKERS
def test_too_many_open_files_is_no_fault_of_the_samples(compiled: zcd.CompiledDataset, workers: int) -> None:
    loader = zcd.DataLoader(compiled, batch_size=4, num_workers=workers, seed=0, on_error="skip")
    whole = list(loader)
    with NoMoreFiles(), pytest.raises(zcd.ZcdError, match="Too many open files") as caught:
        list(loader)
    assert not isinstance(caught.value, zcd.BadSampleError)
    with NoMoreFiles(), pytest.raises(zcd.ZcdError, match="Too many open files"):
        compiled[0]
    assert loader.skipped.total == 0
    assert len(list(loader)) == len(whole)


def test_a_file_that_is_replaced_is_read_anew(tree: Path) -> None:
    compiled = zcd.compile(folder(tree, v1.Compose([v1.Resize((8, 8)), v1.PILToTensor()])))
    first = compiled[0][0].clone()
    Path(compiled.path(0)).write_bytes(Path(compiled.path(30)).read_bytes())
    assert not compiled[0][0].equal(first)
    assert compiled[0][0].equal(compiled[30][0])


def many(count: int) -> ImageFiles:
    paths = [
        f"/somewhere/train/n{number % 1000:08d}/n{number % 1000:08d}_{number}.JPEG".encode() for number in range(count)
    ]
    return ImageFiles.of(Path("/somewhere/train"), paths, np.arange(count) % 1000, None)


def test_the_list_of_files_holds_no_object_per_file() -> None:
    tracemalloc.start()
    try:
        files = many(100_000)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        assert used < 100_000 * 50  # a path's rest is about 28 bytes, an offset 8, a label 2
        assert files.path(77_777) == "/somewhere/train/n00000777/n00000777_77777.JPEG"
    finally:
        tracemalloc.stop()
    assert len(pickle.dumps(files)) < 100_000 * 35


def test_a_pickle_holds_what_its_samples_need(compiled: zcd.CompiledDataset) -> None:
    files = many(100_000)
    vast = compiled.__class__(
        files, compiled.selection.__class__(range(100_000)), compiled.transform, 0, compiled.options, None, None
    )
    one = len(pickle.dumps(vast.subset([5])))
    assert one < 6_000  # of which 3 KB are the values that bytes become
    assert len(pickle.dumps(vast.subset(range(10, 20_010)))) < one + 20_000 * 45
    kept = pickle.loads(pickle.dumps(vast.subset([99_999, 7, 7, 40_000])))
    assert [kept.path(index) for index in range(4)] == [files.path(row) for row in (99_999, 7, 7, 40_000)]
    assert kept.targets == [999, 7, 7, 0]
    again = pickle.loads(pickle.dumps(kept.subset([2, 0])))
    assert again.targets == [7, 999]
    with pytest.raises(zcd.BadSampleError, match="row 99999"):
        again[1]


def test_a_pickled_copy_gives_the_same_samples(compiled: zcd.CompiledDataset) -> None:
    compiled.set_epoch(2)
    part = compiled.subset([40, 3, 3, 11])
    for dataset in (compiled, part, part.subset([3])):
        copied = pickle.loads(pickle.dumps(dataset))
        assert len(copied) == len(dataset)
        for index in range(len(dataset)):
            assert_same(copied[index], dataset[index])
        assert_same(list(copied[:]), list(dataset[:]))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_peoples_loaders_may_use_it_in_workers(compiled: zcd.CompiledDataset, start: str) -> None:
    list(zcd.DataLoader(compiled, batch_size=9, num_workers=2))  # forks after threads have run
    part = compiled.subset(range(0, len(compiled), 3))
    part.set_epoch(1)
    loader: Any = TorchDataLoader(part, batch_size=4, num_workers=1, multiprocessing_context=start)
    expected = [default_collate([part[i] for i in range(n, min(n + 4, len(part)))]) for n in range(0, len(part), 4)]
    for got, other in zip(loader, expected, strict=True):
        assert_same(got, other)


def test_other_peoples_loaders_get_new_crops_each_epoch(compiled: zcd.CompiledDataset) -> None:
    loader: Any = TorchDataLoader(compiled, batch_size=len(compiled))
    torch.manual_seed(3)
    first, second = (next(iter(loader))[0] for _ in range(2))
    assert not first.equal(second)
    torch.manual_seed(3)
    assert next(iter(loader))[0].equal(first)


def test_crops_do_not_depend_on_threads_or_batches(compiled: zcd.CompiledDataset) -> None:
    epochs = []
    for workers, size in ((0, 1), (2, 7), (4, 50)):
        loader = zcd.DataLoader(compiled, batch_size=size, num_workers=workers, seed=4)
        loader.set_epoch(1)
        epochs.append(torch.cat([images for images, _ in loader]))
    assert epochs[0].equal(epochs[1])
    assert epochs[0].equal(epochs[2])


def test_a_torch_subset_keeps_plan_and_slots_until_its_indices_change(compiled: zcd.CompiledDataset) -> None:
    subset = Subset(compiled, [5, 9, 2, 30])
    loader = zcd.DataLoader(subset, batch_size=2, num_workers=1)
    list(loader)
    plan = loader._plan
    assert plan is not None
    list(loader)
    assert loader._plan is plan
    subset.indices[0] = 41
    labels = torch.cat([labels for _, labels in loader]).tolist()
    assert labels == [compiled.targets[row] for row in (41, 9, 2, 30)]
    assert loader._plan is not plan


def test_damaged_lists_are_refused_by_the_core() -> None:
    from zerocopy_data import _native

    def offsets(*values: int) -> Any:
        return np.array(values, np.int64)

    for wrong in (offsets(), offsets(0, 3), offsets(1, 4), offsets(0, 3, 2, 4), offsets(0, 5), offsets(-1, 4)):
        with pytest.raises(ValueError, match="offset"):
            _native.FileColumn(b"/", b"abcd", wrong)
    for rows in (offsets(1), offsets(2, 1), offsets(1, 1)):
        with pytest.raises(ValueError, match=r"offset|rise"):
            _native.FileColumn(b"/", b"abcd", offsets(0, 2, 4), rows)
    column = _native.FileColumn(b"/x", b"abcd", offsets(0, 2, 4), offsets(3, 9))
    assert (column.path(3), column.path(9)) == (b"/xab", b"/xcd")
    for row in (0, -1, 4, 10):
        with pytest.raises(IndexError):
            column.path(row)
        with pytest.raises(IndexError):
            column.read(row)

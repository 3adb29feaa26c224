"""A batch stays what it is for as long as anybody holds any part of it, and its memory comes back afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import CROP, ROWS, cloned, copied, flip_byte, keyed
from same_batches import assert_same

import zerocopy_data as zcd
from zerocopy_data.loader import batch as batch_module
from zerocopy_data.memory.arena import Arena

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def make(ds: zcd.ShardDataset, workers: int, size: int = 4, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds.as_tuple("image", "number"), batch_size=size, num_workers=workers, seed=0, **options)


def at_epoch(loader: zcd.DataLoader[Any], epoch: int) -> zcd.DataLoader[Any]:
    loader.set_epoch(epoch)
    return loader


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> list[Arena]:
    """The arena of every batch plan that loaders make from here on."""
    made: list[Arena] = []

    class Recorded(batch_module.BatchPlan):
        def _lay_out(self, capacity: int) -> Any:
            layout = super()._lay_out(capacity)
            made.append(layout.arena)
            return layout

    monkeypatch.setattr(batch_module, "BatchPlan", Recorded)
    return made


@WORKERS
def test_a_list_of_all_batches_is_correct(photos: zcd.ShardDataset, workers: int) -> None:
    loader = make(photos, workers)
    kept = list(loader)
    expected = [cloned(batch) for batch in at_epoch(loader, 0)]
    assert len({batch[0].data_ptr() for batch in kept}) == len(kept) == 15
    for one, other in zip(kept, expected, strict=True):
        assert_same(one, other)


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda t: t,
    "view": lambda t: t.view(-1),
    "slice_of_slice": lambda t: t[1:][0, 2:, 3:],
    "transposed": lambda t: t.permute(0, 2, 3, 1),
    "numpy": lambda t: t.numpy(),
    "numpy_view_of_view": lambda t: t.numpy()[1:][:, 1].T,
    "storage": lambda t: t.untyped_storage(),
    "detached": lambda t: t.detach()[2],
    "dlpack": lambda t: torch.from_dlpack(t),
    "memoryview": lambda t: memoryview(t.numpy()),
    "tolist_of_rows": lambda t: list(t.unbind()),
}


def snapshot(held: Any) -> Any:
    if isinstance(held, torch.UntypedStorage):
        return torch.tensor([], dtype=torch.uint8).set_(held).numpy().tobytes()
    if isinstance(held, torch.Tensor):
        held = held.numpy()
    return [snapshot(row) for row in held] if isinstance(held, list) else held.tobytes()


@WORKERS
@pytest.mark.parametrize("name", HOLDERS)
def test_any_part_of_a_batch_keeps_it_intact(photos: zcd.ShardDataset, workers: int, name: str) -> None:
    held, before = [], []
    loader = make(photos.subset(range(56)), workers, 8)
    for _ in range(2):
        for images, _ in loader:
            held.append(HOLDERS[name](images))
            before.append(snapshot(held[-1]))
            del images
    gc.collect()
    assert [snapshot(part) for part in held] == before


@WORKERS
def test_labels_alone_keep_their_batch(photos: zcd.ShardDataset, workers: int) -> None:
    labels = [numbers for _ in range(3) for _, numbers in make(photos, workers)]
    assert torch.cat(labels).tolist() == list(range(ROWS)) * 3


@WORKERS
def test_what_autograd_saves_stays_intact(photos: zcd.ShardDataset, workers: int) -> None:
    weight = torch.ones((), requires_grad=True)
    loss = torch.zeros(())
    expected = 0.0
    for images, _ in make(photos, workers):
        expected += float(images.double().sum())
        loss = loss + (weight * images).sum()  # saves the batch for backward
        del images
    loss.backward()
    assert weight.grad is not None
    assert float(weight.grad) == pytest.approx(expected, rel=1e-3)


@WORKERS
def test_slots_are_used_again_when_batches_are_let_go(
    photos: zcd.ShardDataset, arenas: list[Arena], workers: int
) -> None:
    loader = make(photos.subset(list(range(ROWS)) * 4), workers, 2)
    addresses = set()
    for images, _ in loader:
        addresses.add(images.data_ptr())
    (arena,) = arenas
    assert arena.slots_made <= (2 if workers == 0 else 4 + 2)
    assert len(addresses) <= arena.slots_made < 114


@WORKERS
def test_memory_stays_on_a_plateau_over_epochs(photos_path: Path, workers: int) -> None:
    ds = zcd.open(photos_path, [zcd.RandomResizedCrop(96), zcd.Normalize()])
    loader = make(ds, workers, 8)  # 0.9 MB a batch
    sizes = []
    for epoch in range(50):
        for images, _ in loader:
            assert images.shape[2] == 96
        del images
        if epoch in (9, 49):
            sizes.append(resident())
    assert sizes[1] - sizes[0] < 8 << 20  # 40 epochs of 7 slots would be 280 MB


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@WORKERS
def test_letting_go_of_many_batches_gives_memory_back(photos_path: Path, workers: int) -> None:
    ds = zcd.open(photos_path, [zcd.RandomResizedCrop(224), zcd.Normalize()])
    loader = make(ds.subset(list(range(ROWS)) * 3), workers, 8)
    kept = list(loader)  # 22 batches of 4.8 MB
    iterator = iter(loader)  # of the same arena, whose free slots are kept for it
    for _ in range(8):
        next(iterator)
    full = resident()
    kept.clear()
    assert full - resident() > 60 << 20
    del iterator


@WORKERS
def test_a_batch_survives_its_loader_its_dataset_and_other_epochs(photos_path: Path, workers: int) -> None:
    ds = zcd.open(photos_path, CROP)
    loader = make(ds, workers)
    iterator = iter(loader)
    batch = next(iterator)
    before = cloned(batch)
    for _ in loader:
        pass
    for _ in iterator:
        pass
    del iterator, loader, ds
    gc.collect()
    for _ in make(zcd.open(photos_path, CROP), workers):
        pass
    assert_same(batch, before)


def test_a_forked_childs_view_of_a_batch_does_not_change(photos: zcd.ShardDataset) -> None:
    loader = make(photos.subset(list(range(ROWS)) * 3), 2)
    iterator = iter(loader)
    batch = next(iterator)
    before = cloned(batch)
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.read(to_child[0], 1)  # until the parent has written into the same slots for a while
            code = 0 if batch[0].equal(before[0]) and batch[1].equal(before[1]) else 2
        finally:
            os._exit(code)
    del batch
    for _ in iterator:
        pass
    os.write(to_child[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*to_child, *to_parent):
        os.close(end)


def test_releases_may_come_from_any_thread(photos: zcd.ShardDataset) -> None:
    loader = make(photos.subset(list(range(ROWS)) * 6), 2)
    expected = keyed(photos, 0, 0)
    wrong: list[int] = []

    def check_and_drop(batch: Any) -> None:
        images, numbers = batch
        del batch
        for image, number in zip(images, numbers.tolist(), strict=True):
            if not image.equal(expected[number]["image"]):
                wrong.append(number)

    threads = []
    for batch in loader:
        threads.append(threading.Thread(target=check_and_drop, args=(batch,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_kept_error_does_not_keep_its_slot(photos_path: Path, tmp_path: Path, arenas: list[Arena]) -> None:
    path = copied(photos_path, tmp_path / "ds")
    for row in range(0, ROWS, 5):
        flip_byte(zcd.open(path), row)
    loader = make(zcd.open(path, CROP), 0, 2)
    iterator = iter(loader)
    errors = []
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        except zcd.BadSampleError as error:
            errors.append(error)
    assert len(errors) == 12
    assert arenas[0].slots_made <= 2


def test_skipped_samples_do_not_keep_their_slot(columns_path: Path, tmp_path: Path, arenas: list[Arena]) -> None:
    path = copied(columns_path, tmp_path / "ds")
    for row in range(5, 20):
        flip_byte(zcd.open(path), row, "blob")
    ds = zcd.open(path).select(["vector", "blob"])
    loader = zcd.DataLoader(ds, batch_size=2, on_error="skip")
    assert sum(len(batch["blob"]) for batch in loader) == 8
    assert len(loader.skipped) == 15
    assert arenas[0].slots_made <= 2

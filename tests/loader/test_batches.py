"""Batches of the thread engine equal torch's collation of single samples in every byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_data import CROP, FIXED, ROWS, by_hand, encode, keyed, picture, write_photos
from PIL import Image as PillowImage
from PIL import ImageOps
from same_batches import assert_same

import zerocopy_data as zcd

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def chunks(size: int, rows: int = ROWS) -> list[range]:
    return [range(start, min(start + size, rows)) for start in range(0, rows, size)]


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize(("size", "prefetch"), [(1, None), (8, 1), (8, 5), (57, 2), (100, None)])
def test_batches_do_not_depend_on_threads_or_prefetching(
    photos: zcd.ShardDataset, workers: int, size: int, prefetch: int | None
) -> None:
    options = {} if workers == 0 else {"prefetch_factor": prefetch}
    loader = zcd.DataLoader(photos, batch_size=size, num_workers=workers, seed=3, **options)
    loader.set_epoch(2)
    assert loader.uses_threads()
    got = list(loader)
    expected = by_hand(photos, chunks(size), 3, 2)
    assert len(got) == len(expected) == len(loader)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_kind_of_column_collates_as_torch_does(columns_path: Path, workers: int) -> None:
    ds = zcd.open(columns_path, {"image": CROP})
    assert set(ds.columns) == set(ds.reader.fields)
    for dataset in (ds, ds.as_tuple("key", "pixels", "weight", "image", "sound", "flags", "blob")):
        got = list(zcd.DataLoader(dataset, batch_size=5, num_workers=workers, seed=1))
        for one, other in zip(got, by_hand(dataset, chunks(5, 23), 1), strict=True):
            assert_same(one, other)


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [zcd.RandomCrop(4), zcd.RandomHorizontalFlip()],
        [zcd.RandomHorizontalFlip(), zcd.Normalize()],
        [zcd.Resize(4), zcd.ToDtype("float16", scale=True)],
        [zcd.RandomResizedCrop((3, 7))],
    ],
    ids=lambda ops: "+".join(type(op).__name__ for op in ops) or "none",
)
def test_raw_pixels_of_one_size_stack_under_any_operations(columns_path: Path, ops: list[Any]) -> None:
    ds = zcd.open(columns_path, {"pixels": ops}).select("pixels")
    got = list(zcd.DataLoader(ds, batch_size=9, num_workers=2, seed=8))
    for one, other in zip(got, by_hand(ds, chunks(9, 23), 8), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_dtypes_and_memory_formats(photos_path: Path, dtype: str, layout: str) -> None:
    ops = [zcd.RandomResizedCrop((12, 20)), zcd.ToDtype(dtype, scale=dtype != "uint8", memory_format=layout)]
    ds = zcd.open(photos_path, ops).select("image")
    expected = by_hand(ds, chunks(10))
    for batch, other in zip(zcd.DataLoader(ds, batch_size=10, num_workers=2, seed=0), expected, strict=True):
        images = batch["image"]
        assert images.dtype == getattr(torch, dtype)
        assert images.shape[1:] == (3, 12, 20)
        strides = (720, 1, 60, 3) if layout == "channels_last" else (720, 240, 20, 1)
        assert images.stride() == strides
        assert_same(batch, other)


def test_multi_crop_gives_one_tensor_a_view(photos_path: Path) -> None:
    views = zcd.MultiCrop(
        [zcd.RandomResizedCrop(16), zcd.Normalize()], [zcd.RandomResizedCrop(8)], [zcd.Resize((4, 6))]
    )
    ds = zcd.open(photos_path, [views]).as_tuple("image", "number")
    expected = by_hand(ds, chunks(10), 4)
    got = list(zcd.DataLoader(ds, batch_size=10, num_workers=2, seed=4))
    for one, other in zip(got, expected, strict=True):
        assert [view.shape[1:] for view in one[0]] == [(3, 16, 16), (3, 8, 8), (3, 4, 6)]
        assert_same(one, other)


def test_images_that_libjpeg_does_not_take_equal_pillows_in_the_same_batch(tmp_path: Path) -> None:
    exif = picture(3).getexif()
    exif[0x0112] = 8
    files = [
        encode(picture(0)),
        encode(picture(1), "PNG"),
        encode(picture(2, "CMYK")),
        encode(picture(3), exif=exif.tobytes()),
        encode(picture(4, "L")),
        encode(picture(5), progressive=True, quality=30),
        encode(picture(6, "P"), "PNG"),
        encode(picture(7), "WEBP", lossless=True),
        encode(picture(8), subsampling=0),
        encode(picture(9, "RGBA"), "PNG"),
    ]
    ds = zcd.open(write_photos(tmp_path / "mixed", images=files), [zcd.Resize((15, 11))]).as_tuple("image")
    for workers in (0, 2):
        (images,) = next(iter(zcd.DataLoader(ds, batch_size=10, num_workers=workers)))
        for data, made in zip(files, images, strict=True):
            with PillowImage.open(io.BytesIO(data)) as image:
                upright = ImageOps.exif_transpose(image).convert("RGB")
                expected = np.asarray(upright.resize((11, 15), PillowImage.Resampling.BILINEAR))
            assert np.array_equal(made.permute(1, 2, 0).numpy(), expected)


class Sizes:
    """A batch sampler of somebody's own: batches of the sizes given, over and over the rows."""

    def __init__(self, sizes: list[int], **attributes: Any) -> None:
        self.sizes = sizes
        self.__dict__.update(attributes)

    def batches(self) -> list[list[int]]:
        starts = np.cumsum([0, *self.sizes])
        return [
            [row % ROWS for row in range(start, start + size)] for start, size in zip(starts, self.sizes, strict=False)
        ]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches())

    def __len__(self) -> int:
        return len(self.sizes)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("attributes", [{}, {"batch_size": 2}, {"batch_size": "auto"}, {"batch_size": 500}])
def test_batches_may_grow_beyond_the_first(photos: zcd.ShardDataset, workers: int, attributes: dict[str, Any]) -> None:
    sampler = Sizes([1, 3, 2, 7, 30, 5, 57, 1, 120, 121, 122, 0, 4], **attributes)
    loader = zcd.DataLoader(photos, batch_sampler=sampler, num_workers=workers, seed=0)
    got = list(loader)
    expected = by_hand(photos, [b for b in sampler.batches() if b])
    filled = [batch for batch in got if len(batch["key"])]
    assert len(got) == 13
    for one, other in zip(filled, expected, strict=True):
        assert_same(one, other)


def test_batches_that_creep_up_in_size_do_not_make_new_slots_each_time(fixed: zcd.ShardDataset) -> None:
    loader = zcd.DataLoader(fixed, batch_sampler=Sizes(list(range(1, 200))))
    iterator = iter(loader)
    arenas = []
    for images, _ in iterator:
        arena = iterator._plan.layout.arena
        arenas += [] if arena in arenas else [arena]
        assert arena.slot_bytes < 2 * max(images.nbytes, 8192) + 8192
    assert len(arenas) < 30


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(st.integers(-ROWS, ROWS - 1), min_size=1, max_size=12), max_size=6),
    workers=st.sampled_from([0, 2]),
)
def test_any_rows_in_any_order_with_repeats(fixed: zcd.ShardDataset, batches: list[list[int]], workers: int) -> None:
    loader = zcd.DataLoader(fixed, batch_sampler=batches, num_workers=workers)
    for one, other in zip(loader, by_hand(fixed, batches), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("workers", [0, 2])
def test_sizes_at_the_edges(fixed: zcd.ShardDataset, workers: int) -> None:
    def numbers(ds: zcd.ShardDataset, **options: Any) -> list[list[int]]:
        return [batch[1].tolist() for batch in zcd.DataLoader(ds, num_workers=workers, **options)]

    assert numbers(fixed.subset([]), batch_size=4) == []
    assert numbers(fixed.subset([7])) == [[7]]
    assert numbers(fixed.subset([7]), batch_size=4, drop_last=True) == []
    assert numbers(fixed.subset([5, 5, 6, 5]), batch_size=3) == [[5, 5, 6], [5]]
    assert numbers(fixed.subset(range(10)), batch_size=4, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert numbers(fixed.subset([3, 2, 1]), batch_size=100) == [[3, 2, 1]]
    assert numbers(fixed.subset([3, 2]), batch_size=10**12) == [[3, 2]]
    assert numbers(fixed.subset([3, 2]), batch_size=10**12, sampler=[0] * 9) == [[3] * 9]


def test_a_dataset_without_rows_has_no_batches(tmp_path: Path) -> None:
    with zcd.DatasetWriter(tmp_path / "ds", {"image": zcd.Image(), "label": zcd.Scalar()}):
        pass
    ds = zcd.open(tmp_path / "ds", FIXED)
    for workers in (0, 2):
        assert list(zcd.DataLoader(ds, batch_size=3, num_workers=workers)) == []
    assert ds[0:3]["image"].shape == (0, 3, 8, 8)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_index_outside_raises_in_its_turn(fixed: zcd.ShardDataset, workers: int) -> None:
    iterator = iter(zcd.DataLoader(fixed, batch_sampler=[[0], [ROWS], [1]], num_workers=workers))
    assert next(iterator)[1].tolist() == [0]
    with pytest.raises(IndexError, match=f"sample {ROWS}"):
        next(iterator)
    assert next(iterator)[1].tolist() == [1]


def test_an_index_that_is_no_integer_is_not_rounded(fixed: zcd.ShardDataset) -> None:
    for bad in (1.5, "3"):
        with pytest.raises(TypeError, match="index is an integer"):
            list(zcd.DataLoader(fixed, batch_sampler=[[0, bad]]))
    tensors = zcd.DataLoader(
        fixed, batch_sampler=[[torch.tensor(4), torch.tensor(2)], torch.tensor([1]), np.array([3])]
    )
    assert [batch[1].tolist() for batch in tensors] == [[4, 2], [1], [3]]


def test_batches_may_be_written_into(photos: zcd.ShardDataset) -> None:
    loader = zcd.DataLoader(photos, batch_size=8, num_workers=2, seed=0)
    for batch in loader:
        batch["image"].zero_()
        batch["label"] += 1
    for one, other in zip(loader_at(loader, 0), by_hand(photos, chunks(8)), strict=True):
        assert_same(one, other)


def loader_at(loader: zcd.DataLoader[Any], epoch: int) -> zcd.DataLoader[Any]:
    loader.set_epoch(epoch)
    return loader


def test_the_dataset_in_a_loader_is_not_changed_by_it(photos: zcd.ShardDataset) -> None:
    loader = zcd.DataLoader(photos, batch_size=8, seed=9, collate_fn=len)
    assert list(loader) == [8] * 7 + [1]
    assert loader.dataset is photos
    assert (photos.seed, photos.epoch) == (0, None)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_fn_gets_samples_keyed_by_seed_and_epoch(photos: zcd.ShardDataset, workers: int) -> None:
    def first(samples: list[Any]) -> Any:
        return samples[0]["image"].clone()

    loader = zcd.DataLoader(photos, batch_size=20, seed=9, collate_fn=first, num_workers=workers)
    assert not loader.uses_threads()
    for epoch in range(2):
        fixed = keyed(photos, 9, epoch)
        for place, image in enumerate(loader):
            assert image.equal(fixed[20 * place]["image"])


def test_a_torch_subset_keeps_plan_and_slots_until_its_indices_change(fixed: zcd.ShardDataset) -> None:
    subset = torch.utils.data.Subset(fixed, [5, 9, 2])
    loader = zcd.DataLoader(subset, batch_size=2, num_workers=1)
    list(loader)
    plan = loader._plan
    assert plan is not None
    list(loader)
    assert loader._plan is plan
    subset.indices[0] = 41
    assert torch.cat([number for _, number in loader]).tolist() == [41, 9, 2]
    assert loader._plan is not plan

"""ShardDataset by itself: indexing, views of it, pickling."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import CLASSES, CROP, FIXED, ROWS, by_hand, encode, keyed, picture, write_photos
from same_batches import assert_same
from torch.utils.data import default_collate

import zerocopy_data as zcd


def numbers_of(ds: zcd.ShardDataset) -> list[int]:
    return [ds.select("number")[i]["number"] for i in range(len(ds))]


def test_a_sample_is_a_dict_of_decoded_values(photos_path: Path) -> None:
    sample = zcd.open(photos_path)[4]
    assert list(sample) == ["image", "label", "number", "key"]
    assert sample["image"].dtype == torch.uint8
    assert sample["image"].shape == (3, picture(4).height, picture(4).width)
    assert (sample["label"], sample["number"], sample["key"]) == (1, 4, "photo/4.jpg")
    assert type(sample["label"]) is int


def test_negative_and_numpy_and_tensor_indices_count_as_torch_users_expect(numbers: zcd.ShardDataset) -> None:
    assert numbers[-1] == numbers[ROWS - 1] == {"number": ROWS - 1}
    assert numbers[np.int32(3)] == numbers[torch.tensor(3)] == {"number": 3}


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1])
def test_an_index_outside_is_an_index_error_that_says_the_size(numbers: zcd.ShardDataset, index: int) -> None:
    with pytest.raises(IndexError, match=f"sample {index} of a dataset with {ROWS} samples"):
        numbers[index]


@pytest.mark.parametrize("index", [1.0, "a", None, [1, 2]])
def test_an_index_that_is_no_integer_is_a_type_error(numbers: zcd.ShardDataset, index: Any) -> None:
    with pytest.raises(TypeError, match="integer or a slice"):
        numbers[index]


def test_a_dataset_can_be_iterated_and_ends(numbers: zcd.ShardDataset) -> None:
    assert [sample["number"] for sample in numbers] == list(range(ROWS))


@pytest.mark.parametrize("part", [slice(3, 9), slice(None, None, 7), slice(-4, None), slice(9, 3, -2), slice(5, 5)])
def test_a_slice_is_the_batch_of_its_samples(photos_path: Path, part: slice) -> None:
    ds = keyed(zcd.open(photos_path, CROP), 3, 1)
    positions = range(ROWS)[part]
    batch = ds[part]
    assert isinstance(batch, dict)
    assert batch["image"].shape == (len(positions), 3, 16, 16)
    if positions:
        assert_same(batch, by_hand(ds, [positions], 3, 1)[0])
    tupled = ds.as_tuple("number", "image")[part]
    assert isinstance(tupled, tuple)
    assert tupled[0].tolist() == list(positions)


def test_a_slice_of_images_of_many_sizes_is_a_list(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    batch = ds[2:5]
    assert [image.shape for image in batch["image"]] == [ds[i]["image"].shape for i in (2, 3, 4)]
    images, labels = ds.as_tuple("image", "label")[2:5]
    assert (len(images), labels) == (3, [2, 0, 1])


def test_select_and_as_tuple_choose_columns_and_their_order(photos_path: Path) -> None:
    ds = zcd.open(photos_path, FIXED)
    assert ds.select(["key", "label"])[5] == {"key": "photo/5.jpg", "label": 2}
    assert ds.select("label")[5] == {"label": 2}
    assert ds.as_tuple("number", "key")[5] == (5, "photo/5.jpg")
    assert len(ds.as_tuple()[5]) == 4
    assert ds.as_tuple("number").select("key")[0] == {"key": "photo/0.jpg"}
    assert zcd.open(photos_path, columns=["key", "number"])[1] == {"key": "photo/1.jpg", "number": 1}
    assert list(ds.fields) == ["image", "label", "number", "key"]


@pytest.mark.parametrize("names", [["nothing"], ["label", "label"], []])
def test_columns_that_do_not_exist_or_repeat_are_refused(photos_path: Path, names: list[str]) -> None:
    with pytest.raises(zcd.ConfigError, match=r"no column 'nothing'. It has: image, label|named once each"):
        zcd.open(photos_path, columns=names)
    with pytest.raises(zcd.ConfigError):
        zcd.open(photos_path).select(names)


def test_views_do_not_change_the_dataset_they_were_made_of(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    ds.subset([1]).select("key").set_epoch(3)
    assert len(ds) == ROWS
    assert ds.epoch is None
    assert list(ds[0]) == ["image", "label", "number", "key"]


MASK = np.arange(ROWS) % 10 == 3


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([5, 1, 1, 9], [5, 1, 1, 9]),
        ([-1, 0, -ROWS], [ROWS - 1, 0, 0]),
        (MASK, [3, 13, 23, 33, 43, 53]),
        (MASK.tolist(), [3, 13, 23, 33, 43, 53]),
        (torch.tensor([2, 4]), [2, 4]),
        (torch.from_numpy(MASK), [3, 13, 23, 33, 43, 53]),
        (np.array([7, 8], np.uint8), [7, 8]),
        (range(4, 20, 5), [4, 9, 14, 19]),
        (range(6, 2, -2), [6, 4]),
        (range(-2, 0), [ROWS - 2, ROWS - 1]),
        (range(0), []),
        (slice(50, None), list(range(50, ROWS))),
        (slice(None, None, -20), [56, 36, 16]),
        ([], []),
    ],
)
def test_subset_takes_what_numpy_indexing_takes(numbers: zcd.ShardDataset, indices: Any, expected: list[int]) -> None:
    assert numbers_of(numbers.subset(indices)) == expected


def test_subsets_of_subsets_count_within_the_outer_one(numbers: zcd.ShardDataset) -> None:
    outer = numbers.subset(range(10, 50, 2))  # 10, 12, … 48
    assert numbers_of(outer.subset(range(1, 20, 6))) == [12, 24, 36, 48]
    assert numbers_of(outer.subset([-1, 0])) == [48, 10]
    assert numbers_of(outer.subset([3, 2, 1]).subset(slice(1, None))) == [14, 12]
    assert numbers_of(outer.subset(np.arange(20) > 17)) == [46, 48]
    assert numbers_of(numbers.subset([9, 8, 7]).subset(range(0, 3, 2))) == [9, 7]


@pytest.mark.parametrize("indices", [[ROWS], [0, -ROWS - 1], range(50, 60), range(-60, 3), [True, False]])
def test_subset_refuses_indices_outside(numbers: zcd.ShardDataset, indices: Any) -> None:
    with pytest.raises(IndexError, match=f"with {ROWS} samples"):
        numbers.subset(indices)


@pytest.mark.parametrize("indices", [[1.0], ["a"], [None]])
def test_subset_refuses_what_is_no_index(numbers: zcd.ShardDataset, indices: Any) -> None:
    with pytest.raises(TypeError, match="integers or a boolean mask"):
        numbers.subset(indices)


def test_a_sample_keeps_its_crop_in_a_subset(photos: zcd.ShardDataset) -> None:
    fixed = keyed(photos, 1, 1)
    assert fixed.subset([20, 30])[1]["image"].equal(fixed[30]["image"])


def test_raw_is_a_read_only_view_inside_the_mapped_shard(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    raw = ds.raw(40)
    view = raw["image"]
    assert isinstance(view, memoryview)
    assert view.readonly
    assert bytes(view) == encode(picture(40))
    address = np.frombuffer(view, np.uint8).ctypes.data
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(photos_path) in line]
    ranges = [[int(end, 16) for end in line[0].split("-")] for line in maps]
    assert any(low <= address and address + len(view) <= high for low, high in ranges)
    assert (raw["label"], raw["key"]) == (1, "photo/40.jpg")
    with pytest.raises(IndexError):
        ds.raw(ROWS)


def test_raw_pixels_are_a_read_only_view(columns_path: Path) -> None:
    ds = zcd.open(columns_path).select(["pixels", "blob"])
    pixels = ds.raw(3)["pixels"]
    assert pixels.shape == (6, 5, 3)
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1
    assert ds.raw(3)["blob"].readonly


def test_a_raw_view_outlives_the_dataset(photos_path: Path) -> None:
    view = zcd.open(photos_path).raw(2)["image"]
    assert bytes(view) == encode(picture(2))


def test_classes_are_those_of_the_column(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    assert ds.classes() == CLASSES
    assert ds.classes("number") is None
    assert ds.classes("image") is None


def test_writing_into_a_tensor_of_a_sample_does_not_reach_the_dataset(columns_path: Path) -> None:
    ds = zcd.open(columns_path).select(["vector", "pixels"])
    before = ds[1]["vector"].clone()
    ds[1]["vector"].zero_()
    ds[1]["pixels"].zero_()
    assert ds[1]["vector"].equal(before)
    assert ds[1]["pixels"].any()


def test_pickles_in_a_few_hundred_bytes_and_comes_back_equal(photos_path: Path) -> None:
    ds = zcd.open(photos_path, {"image": CROP}, seed=4).as_tuple("image", "label").subset(range(5, 50))
    ds[0]  # maps a shard and compiles the transform: neither may travel
    data = pickle.dumps(ds)
    assert len(data) - len(str(photos_path)) < 900
    again = pickle.loads(data)
    assert (len(again), again.columns, again.transforms, again.seed) == (45, ds.columns, ds.transforms, 4)
    assert_same(keyed(again, 1, 2)[9], keyed(ds, 1, 2)[9])


def test_a_pickle_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    sizes = []
    for rows in (10, 100_000):
        with zcd.DatasetWriter(tmp_path / f"{rows:06}", {"x": zcd.Scalar()}) as writer:
            writer.write_columns({"x": np.arange(rows)})
        sizes.append(len(pickle.dumps(zcd.open(tmp_path / f"{rows:06}"))))
    assert abs(sizes[1] - sizes[0]) < 20


def test_a_pickle_of_a_dataset_that_was_packed_again_is_refused(tmp_path: Path) -> None:
    for rows in (3, 4):
        with zcd.DatasetWriter(tmp_path / "ds", {"x": zcd.Scalar()}, overwrite=rows == 4) as writer:
            writer.write_columns({"x": np.arange(rows)})
        if rows == 3:
            data = pickle.dumps(zcd.open(tmp_path / "ds"))
    with pytest.raises(zcd.ZcdError, match=re.escape(str(tmp_path / "ds")) + " has been packed again"):
        pickle.loads(data)


def test_a_callable_transform_gets_the_decoded_image(photos_path: Path) -> None:
    ds = zcd.open(photos_path, lambda image: image.float().mean())
    assert ds[3]["image"].dim() == 0
    named = zcd.open(photos_path, {"number": lambda n: n * 2, "image": FIXED}, columns=["number", "image"])
    assert named[4]["number"] == 8
    assert named[3:5]["number"] == [6, 8]


def test_samples_collate_to_what_a_slice_gives(columns_path: Path) -> None:
    ds = zcd.open(columns_path, {"image": FIXED})
    assert_same(ds[3:8], default_collate([ds[i] for i in range(3, 8)]))


def test_random_operations_are_keyed_by_seed_and_epoch(photos_path: Path) -> None:
    crops = {}
    for seed in (0, 1, -1, 2**64 - 2):
        ds = zcd.open(photos_path, CROP, seed=seed)
        for epoch in (0, 1):
            ds.set_epoch(epoch)
            crops[seed, epoch] = ds[0]["image"]
            assert ds[0]["image"].equal(crops[seed, epoch])
    for a in crops:
        for b in crops:
            assert a == b or not crops[a].equal(crops[b])


def test_without_set_epoch_crops_change_and_torchs_seed_repeats_them(photos: zcd.ShardDataset) -> None:
    torch.manual_seed(7)
    first = [photos[0]["image"] for _ in range(3)]
    torch.manual_seed(7)
    again = [photos[0]["image"] for _ in range(3)]
    assert not first[0].equal(first[1])
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))


def test_without_randomness_torchs_generator_is_left_alone(fixed: zcd.ShardDataset) -> None:
    before = torch.get_rng_state()
    fixed[0], fixed[0:3]
    assert torch.get_rng_state().equal(before)


def test_an_exif_rotated_image_is_turned_unless_told_otherwise(tmp_path: Path) -> None:
    exif = picture(0).getexif()
    exif[0x0112] = 6
    path = write_photos(tmp_path / "ds", images=[encode(picture(0), exif=exif.tobytes())])
    width, height = picture(0).size
    assert zcd.open(path)[0]["image"].shape == (3, width, height)
    assert zcd.open(path, orient=False)[0]["image"].shape == (3, height, width)


def test_numbered_samples_say_their_row_in_any_order_subset_and_form(photos_path: Path) -> None:
    ds = zcd.open(photos_path, FIXED).numbered("index")
    assert list(ds[5]) == ["image", "label", "number", "key", "index"]
    part = ds.subset(np.arange(ROWS)[::-3]).select(["index", "number"])
    assert [part[i] for i in range(len(part))] == [{"index": row, "number": row} for row in range(ROWS - 1, -1, -3)]
    assert type(part[0]["index"]) is int
    assert part.raw(1) == {"index": ROWS - 4, "number": ROWS - 4}
    for batch in (part[2:7], next(iter(zcd.DataLoader(pickle.loads(pickle.dumps(part)).subset(range(2, 7)), 5)))):
        assert batch["index"].dtype == torch.int64
        assert batch["index"].tolist() == batch["number"].tolist() == [ROWS - 1 - 3 * i for i in range(2, 7)]
    tupled = ds.as_tuple("index", "image")
    assert tupled[9][0] == 9
    assert ds.classes("index") is None
    assert [len(batch[0]) for batch in zcd.DataLoader(tupled, 50)] == [50, ROWS - 50]


def test_a_second_column_of_numbers_or_a_stored_one_is_refused(photos_path: Path) -> None:
    ds = zcd.open(photos_path)
    with pytest.raises(zcd.ConfigError, match="'number'"):
        ds.numbered("number")
    with pytest.raises(zcd.ConfigError, match="'index'"):
        ds.numbered("index").numbered("other")
    with pytest.raises(zcd.ConfigError, match="'index'"):
        ds.select("index")
    assert list(ds.numbered().select("number").columns) == ["number"]

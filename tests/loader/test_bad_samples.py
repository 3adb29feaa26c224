"""What `on_error` does about damaged samples, and what the errors say."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import CROP, ROWS, by_hand, copied, encode, flip_byte, picture, rewrite, write_photos
from same_batches import assert_same

import zerocopy_data as zcd

WORKERS = pytest.mark.parametrize("workers", [0, 2])
Damage = Callable[..., zcd.ShardDataset]


@pytest.fixture
def damaged(photos_path: Path, tmp_path: Path) -> Damage:
    """Opens a copy of the photos in which one bit of each of these rows' images is flipped."""

    def make(*rows: int) -> zcd.ShardDataset:
        path = copied(photos_path, tmp_path / "damaged")
        for row in rows:
            flip_byte(zcd.open(path), row)
        return zcd.open(path, CROP)

    return make


def load(ds: zcd.ShardDataset, workers: int, on_error: str, size: int = 5) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds, batch_size=size, num_workers=workers, seed=0, on_error=on_error)


@WORKERS
def test_raise_names_dataset_shard_row_and_key_and_goes_on(damaged: Damage, workers: int) -> None:
    ds = damaged(7, 31)
    iterator = iter(load(ds, workers, "raise"))
    numbers, errors = [], []
    while True:
        try:
            numbers.append(next(iterator)["number"].tolist())
        except zcd.BadSampleError as error:
            errors.append(error)
        except StopIteration:
            break
    assert numbers == [list(range(n, min(n + 5, ROWS))) for n in range(0, ROWS, 5) if n not in (5, 30)]
    assert [error.row for error in errors] == [7, 31]
    shard = ds.reader.manifest.shards[ds.reader.locate(7)[0]].file
    assert (errors[0].dataset, errors[0].shard, errors[0].key) == (ds.path, shard, "photo/7.jpg")
    for part in (str(ds.path), shard, "row 7", "'photo/7.jpg'", "column 'image': checksum mismatch", "zcd verify"):
        assert part in str(errors[0])
    assert pickle.loads(pickle.dumps(errors[0])).row == 7


@WORKERS
def test_skip_leaves_bad_samples_out_and_lists_them(damaged: Damage, workers: int) -> None:
    ds = damaged(0, 7, 8, ROWS - 1)
    loader = load(ds, workers, "skip")
    got = list(loader)
    left = [[row for row in range(n, min(n + 5, ROWS)) if row not in (0, 7, 8, ROWS - 1)] for n in range(0, ROWS, 5)]
    for one, other in zip(got, by_hand(ds, left), strict=True):
        assert_same(one, other)
    assert [(bad.row, bad.error.row) for bad in loader.skipped] == [(row, row) for row in (0, 7, 8, ROWS - 1)]
    list(loader)
    assert len(loader.skipped) == 8


@WORKERS
def test_substitute_keeps_the_batch_size_with_good_samples_of_the_same_batch(damaged: Damage, workers: int) -> None:
    ds = damaged(0, 7, 8)
    loader = load(ds, workers, "substitute")
    got = [batch["number"].tolist() for batch in loader]
    assert [len(batch) for batch in got] == [5] * 11 + [2]
    assert got[0][1:] == [1, 2, 3, 4]
    assert got[0][0] in (1, 2, 3, 4)
    assert (got[1][0], got[1][1], got[1][4]) == (5, 6, 9)
    assert {got[1][2], got[1][3]} <= {5, 6, 9}
    loader.set_epoch(0)
    for batch, numbers in zip(loader, got, strict=True):
        assert_same(batch, by_hand(ds, [numbers])[0])
    assert len(loader.skipped) == 6


@WORKERS
@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("first", [0, 10, 55])
def test_a_batch_of_only_bad_samples_is_left_out(damaged: Damage, workers: int, policy: str, first: int) -> None:
    bad = range(first, min(first + 5, ROWS))
    loader = load(damaged(*bad), workers, policy)
    for _ in range(2):
        assert [row for batch in loader for row in batch["number"].tolist()] == [n for n in range(ROWS) if n not in bad]
    assert len(loader.skipped) == 2 * len(bad)


def test_all_samples_bad_is_an_error_and_ends(damaged: Damage) -> None:
    ds = damaged(*range(6)).subset(range(6))
    for dataset in (ds, ds.as_tuple("key", "image"), ds.as_tuple("image")):
        for workers in (0, 2):
            with pytest.raises(zcd.ZcdError, match="all 6 samples"):
                list(load(dataset, workers, "skip", 2))


@WORKERS
def test_multi_crop_and_text_columns_move_together(damaged: Damage, workers: int) -> None:
    path = damaged(1, 2).path
    views = zcd.MultiCrop([zcd.RandomResizedCrop(8)], [zcd.RandomResizedCrop(4)])
    ds = zcd.open(path, [views]).as_tuple("key", "image", "number")
    for policy in ("skip", "substitute"):
        keys, images, numbers = next(iter(load(ds, workers, policy)))
        kept = numbers.tolist()
        assert list(keys) == [f"photo/{n}.jpg" for n in kept]
        assert_same([keys, images, numbers], by_hand(ds, [kept])[0])


@WORKERS
def test_bytes_columns_follow_the_policy(columns_path: Path, tmp_path: Path, workers: int) -> None:
    path = copied(columns_path, tmp_path / "ds")
    flip_byte(zcd.open(path), 9, "blob")
    ds = zcd.open(path).select(["blob", "small"])
    with pytest.raises(zcd.BadSampleError, match=r"row 9.*column 'blob': checksum mismatch"):
        list(load(ds, workers, "raise"))
    assert [n for batch in load(ds, workers, "skip") for n in batch["small"].tolist()] == [*range(9), *range(10, 23)]


@WORKERS
def test_bytes_that_are_no_image_are_bad_samples(tmp_path: Path, workers: int) -> None:
    files = [encode(picture(n), "PNG" if n == 4 else "JPEG") for n in range(7)]
    path = write_photos(tmp_path / "ds", images=files)
    changes: dict[int, Callable[[bytes], bytes]] = {
        1: lambda data: bytes(len(data)),
        2: lambda data: b"no image at all".ljust(len(data), b"."),
        3: lambda data: data[:40].ljust(len(data), b"\0"),
        4: lambda data: data[:60].ljust(len(data), b"\0"),
        5: lambda data: data[:2] + data[: len(data) - 2],
    }
    for row, change in changes.items():
        rewrite(zcd.open(path), row, "image", change)
    ds = zcd.open(path, CROP, verify=False)
    loader = load(ds, workers, "skip", 7)
    assert [batch["number"].tolist() for batch in loader] == [[0, 6]]
    assert [bad.row for bad in loader.skipped] == [1, 2, 3, 4, 5]
    for row in (1, 2, 3, 4, 5):
        with pytest.raises(zcd.BadSampleError, match=f"row {row}, key 'photo/{row}.jpg'"):
            ds[row]


def test_without_verification_a_flipped_bit_is_not_an_error_of_its_own(damaged: Damage) -> None:
    path = damaged(3).path
    assert len(zcd.open(path, [zcd.Resize((8, 8))], verify=False)[3]["image"]) == 3


def test_the_pixel_limit_makes_large_images_bad_samples(photos_path: Path) -> None:
    ds = zcd.open(photos_path, CROP, pixel_limit=1000)
    loader = load(ds, 2, "skip")
    small = [n for n in range(ROWS) if picture(n).width * picture(n).height <= 1000]
    assert 0 < len(small) < ROWS
    assert [n for batch in loader for n in batch["number"].tolist()] == small


@WORKERS
def test_a_single_sample_and_a_slice_raise_too(damaged: Damage, workers: int) -> None:
    ds = damaged(4)
    for access in (lambda: ds[4], lambda: ds[3:6], lambda: list(zcd.DataLoader(ds, 4, num_workers=workers))):
        with pytest.raises(zcd.BadSampleError, match=r"row 4, key 'photo/4\.jpg'"):
            access()


@WORKERS
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_truncated_shard_is_an_error_whatever_the_policy(
    photos_path: Path, tmp_path: Path, workers: int, policy: str
) -> None:
    path = copied(photos_path, tmp_path / "cut")
    ds = zcd.open(path, CROP)
    assert ds.reader.num_shards > 2
    file = path / ds.reader.manifest.shards[1].file
    file.write_bytes(file.read_bytes()[:-100])
    first_rows = int(ds.reader.shard_starts[1])
    iterator = iter(load(ds, workers, policy, 1))
    assert [next(iterator)["number"].item() for _ in range(first_rows)] == list(range(first_rows))
    with pytest.raises(
        zcd.ShardDamagedError, match=rf"{file.name} is damaged: it has \d+ bytes, the manifest says \d+"
    ):
        next(iterator)


def test_a_missing_shard_is_named(photos_path: Path, tmp_path: Path) -> None:
    path = copied(photos_path, tmp_path / "gone")
    ds = zcd.open(path, CROP)
    (path / ds.reader.manifest.shards[0].file).unlink()
    with pytest.raises(zcd.ShardDamagedError, match="the file is missing"):
        next(iter(load(ds, 2, "raise")))


def test_an_unknown_policy_is_refused(photos: zcd.ShardDataset) -> None:
    with pytest.raises(zcd.ConfigError, match="on_error must be one of raise, skip, substitute, not 'ignore'"):
        zcd.DataLoader(photos, on_error="ignore")


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_a_policy_that_nothing_would_follow_is_refused(photos: zcd.ShardDataset, policy: str) -> None:
    numbers = torch.utils.data.TensorDataset(torch.arange(4))
    for dataset, options in ((numbers, {}), (photos, {"collate_fn": list}), (photos, {"batch_size": None})):
        with pytest.raises(zcd.ConfigError, match="works where threads make the batches"):
            zcd.DataLoader(dataset, on_error=policy, **options)


def test_skipped_batches_are_torch_tensors_of_their_own_size(damaged: Damage) -> None:
    (batch,) = load(damaged(2).subset(range(5)), 2, "skip")
    assert isinstance(batch["image"], torch.Tensor)
    assert batch["image"].shape == (4, 3, 16, 16)
    assert batch["image"].is_contiguous()


def test_the_list_of_skipped_samples_is_bounded_and_the_count_is_not() -> None:
    from zerocopy_data.loader.skipped import Skipped, SkippedSamples

    skipped = SkippedSamples()
    for row in range(SkippedSamples.KEPT + 5):
        skipped.add([Skipped(row, zcd.ZcdError("bad"))])
    assert skipped.total == SkippedSamples.KEPT + 5
    assert len(skipped) == SkippedSamples.KEPT
    assert next(iter(skipped)).row == 5


@WORKERS
@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_numbers_follow_their_samples(damaged: Damage, workers: int, on_error: str) -> None:
    loader = load(damaged(3, 11, 12).numbered("index"), workers, on_error)
    for batch in loader:
        assert batch["index"].tolist() == batch["number"].tolist()
    assert loader.skipped.total == 3

"""decode=: whoever decodes, samples, order, windows and what is done about bad samples are the CPU path's.

With a decoder whose pixels are ours to the bit, so that nothing hides behind a tolerance.
"""

from __future__ import annotations

import gc
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from decode_data import Exact
from loader_data import CROP, ROWS, NoThreadLeft, cloned, copied, encode, flip_byte, mixed_images, picture, write_photos
from same_batches import assert_same
from stateful_data import resumed, stopped

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali, Shared

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def load(ds: Any, decode: Any, workers: int = 2, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds, **{"batch_size": 5, "seed": 3, "num_workers": workers, "decode": decode, **options})


def assert_equal_epochs(ds: Any, decode: Any, workers: int = 2, epochs: int = 2, **options: Any) -> None:
    one, other = load(ds, decode, workers, **options), load(ds, "cpu", workers, **options)
    for _ in range(epochs):
        for got, expected in zip(one, other, strict=True):
            assert_same(got, expected)
    assert [bad.row for bad in one.skipped] == [bad.row for bad in other.skipped]


@WORKERS
@pytest.mark.parametrize("drop_last", [False, True])
def test_epochs_are_those_of_the_cpu(photos: zcd.ShardDataset, workers: int, drop_last: bool) -> None:
    decode = Exact()
    assert_equal_epochs(photos, decode, workers, shuffle=True, drop_last=drop_last)
    (decoder,) = decode.opened  # one for both epochs
    assert sum(one.encoded for one in decoder.given) == 2 * (55 if drop_last else ROWS)


@pytest.mark.parametrize("size", [1, 100])
def test_batches_of_one_sample_and_of_all(photos: zcd.ShardDataset, size: int) -> None:
    assert_equal_epochs(photos, Exact(), batch_size=size)


@pytest.mark.parametrize(
    "chain",
    [
        [zcd.Resize(20), zcd.CenterCrop(16)],
        [zcd.Resize((18, 18), interpolation="bicubic"), zcd.RandomCrop(16), zcd.RandomHorizontalFlip()],
        [zcd.CenterCrop(24)],
        [zcd.RandomCrop(64, padding=20)],  # more than a window: the CPU's
        [
            zcd.MultiCrop(
                [zcd.RandomResizedCrop(16), zcd.Normalize()], [zcd.RandomResizedCrop(16)], [zcd.Resize((9, 7))]
            )
        ],
        [*CROP[:2], zcd.ToDtype("float16", scale=True, memory_format="channels_last")],
    ],
)
def test_every_chain_comes_out_as_on_the_cpu(photos_path: Path, chain: list[Any]) -> None:
    assert_equal_epochs(zcd.open(photos_path, chain).as_tuple("image", "number"), Exact())


def test_other_columns_and_raw_images_go_along(columns_path: Path) -> None:
    ds = zcd.open(columns_path, {"image": CROP, "pixels": [zcd.Normalize()]})
    assert_equal_epochs(ds, Exact(), shuffle=True)


def test_what_decoders_do_not_take_alike_stays_with_the_cpu(tmp_path: Path) -> None:
    ds = zcd.open(write_photos(tmp_path / "mixed", images=mixed_images()), CROP)
    decode = Exact()
    assert_equal_epochs(ds, decode, batch_size=7, epochs=1)
    ((given,),) = [decoder.given for decoder in decode.opened]
    assert given.places.tolist() == [0, 3, 6]
    assert given.pixel_places.tolist() == [1, 2, 4, 5]


def test_a_batch_without_anything_to_decode(tmp_path: Path) -> None:
    ds = zcd.open(write_photos(tmp_path / "png", images=[encode(picture(n), "PNG") for n in range(7)]), CROP)
    assert_equal_epochs(ds, Exact())


@WORKERS
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_bad_samples_are_dealt_with_as_on_the_cpu(photos_path: Path, tmp_path: Path, workers: int, policy: str) -> None:
    path = copied(photos_path, tmp_path / "damaged")
    for row in (0, 7, 8, 30, 31, 32, 33, 34, ROWS - 1):
        flip_byte(zcd.open(path), row)
    assert_equal_epochs(zcd.open(path, CROP), Exact(), workers, on_error=policy)


@WORKERS
def test_a_bad_sample_raises_in_its_turn_and_the_epoch_goes_on(photos_path: Path, tmp_path: Path, workers: int) -> None:
    path = copied(photos_path, tmp_path / "damaged")
    flip_byte(zcd.open(path), 7)
    loader = load(zcd.open(path, CROP), Exact(), workers)
    for _ in range(2):
        iterator, numbers = iter(loader), list[int]()
        numbers += next(iterator)["number"].tolist()
        with pytest.raises(zcd.BadSampleError, match=r"photo/7\.jpg"):
            next(iterator)
        assert numbers == list(range(5))
        assert [n for batch in iterator for n in batch["number"].tolist()] == list(range(10, ROWS))


@WORKERS
def test_what_the_decoder_alone_refuses_the_cpu_decodes_with_a_warning(photos: zcd.ShardDataset, workers: int) -> None:
    with pytest.warns(UserWarning, match="refused a batch in which the CPU finds no fault") as said:
        assert_equal_epochs(photos, Exact(refuse=frozenset({3, 4, 56})), workers)
    assert len([one for one in said if "refused" in str(one.message)]) == 2  # an epoch's first


@WORKERS
def test_a_resumed_run_gets_the_rest_of_the_epoch(photos: zcd.ShardDataset, workers: int) -> None:
    def maker(decode: Any) -> Any:
        return lambda: zcd.StatefulDataLoader(
            photos, batch_size=5, shuffle=True, seed=7, num_workers=workers, decode=decode
        )

    for stop in (0, 1, 6, 11, 12):
        state, left, following, _ = stopped(maker(Exact()), stop, 1)
        assert resumed(maker(Exact()), state) == (left, following)
        assert resumed(maker("cpu"), state) == (left, following)


def test_shared_work_is_split_and_comes_out_the_same(photos: zcd.ShardDataset) -> None:
    decode = Exact()
    assert_equal_epochs(photos, Shared(decode), epochs=6)
    ours = [len(one.pixel_places) for decoder in decode.opened for one in decoder.given]
    theirs = [one.encoded for decoder in decode.opened for one in decoder.given]
    assert sum(ours) > 0
    assert sum(theirs) > 0
    assert {a + b for a, b in zip(ours, theirs, strict=True)} == {5, 2}


def test_batches_that_are_kept_stay_what_they_are(photos: zcd.ShardDataset) -> None:
    kept, copies = [], []
    for batch in load(photos, Exact()):
        kept.append(batch)
        copies.append(cloned(batch))
    for one, other in zip(kept, copies, strict=True):
        assert_same(one, other)


def test_two_iterations_at_once_have_a_decoder_each(photos: zcd.ShardDataset) -> None:
    decode = Exact()
    loader = load(photos, decode)
    ours = [next(iterator) for iterator in (iter(loader), iter(loader)) for _ in range(3)]
    assert len(decode.opened) == 2
    assert [batch["number"][0].item() for batch in ours] == [0, 5, 10] * 2


def test_the_decoder_ends_with_its_loader(photos: zcd.ShardDataset) -> None:
    decode = Exact()
    with NoThreadLeft():
        loader = load(photos, decode)
        for _ in loader:
            break
        iterator = iter(loader)
        next(iterator)
        assert [one.closed for one in decode.opened] == [0]
        del loader
        next(iterator)
        del iterator
        gc.collect()
        assert [one.closed for one in decode.opened] == [1]


def test_a_loader_is_pickled_without_its_decoder(photos: zcd.ShardDataset) -> None:
    loader = load(photos, Dali(device="cpu"))
    assert pickle.loads(pickle.dumps(loader)).decode == Dali(device="cpu")


def test_gpu_without_a_gpu_says_what_to_do(photos: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in (None, "cpu"):
        with pytest.raises(zcd.ConfigError, match=r"finds none on this machine. Use decode='cpu', or 'auto'"):
            load(photos, "gpu", device=device)
    with pytest.raises(zcd.ConfigError, match="torch finds none"):
        load(photos, Dali(device="cuda"))


def test_gpu_that_is_not_the_loaders_device(photos: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(zcd.ConfigError, match=r"in host memory. Give the loader device='cuda'"):
        load(photos, "gpu")


def test_auto_without_a_gpu_is_the_cpu(photos: zcd.ShardDataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal_epochs(photos, "auto", epochs=1)


@pytest.mark.parametrize("decode", ["dali", 3, Dali, None])
def test_what_is_no_decoder_is_refused(photos: zcd.ShardDataset, decode: Any) -> None:
    with pytest.raises(zcd.ConfigError, match=r"'cpu', 'gpu', 'auto', or a decoder such as .*Dali\(\)"):
        load(photos, decode)


def test_where_no_threads_make_the_batches_there_is_nothing_to_decode(photos: zcd.ShardDataset) -> None:
    for dataset, options in (([1, 2, 3], {}), (photos, {"collate_fn": list})):
        with pytest.raises(zcd.ConfigError, match="works where threads make the batches"):
            zcd.DataLoader(dataset, decode=Exact(), **options)
    assert list(zcd.DataLoader([1, 2], decode="auto"))[1].item() == 2


def test_an_interpolation_that_the_decoder_has_not(photos_path: Path) -> None:
    ds = zcd.open(photos_path, [zcd.RandomResizedCrop(16, interpolation="bicubic")])
    with pytest.raises(zcd.ConfigError, match=r"interpolation='bicubic'.*it has bilinear"):
        next(iter(load(ds, Dali(device="cpu"))))


def test_a_dataset_without_encoded_images(photos_path: Path) -> None:
    with pytest.raises(zcd.ConfigError, match="nothing to decode"):
        next(iter(load(zcd.open(photos_path, columns=["number"]), Exact())))


@pytest.mark.parametrize("device", [None, "cpu", zcd.Staging("cpu", cast={torch.float32: torch.float64})])
def test_on_the_cpu_batches_get_their_values_there(photos: zcd.ShardDataset, device: Any) -> None:
    assert_equal_epochs(photos, Exact(), device=device)

"""decode= with DALI, on its CPU backend: the graph, the pixels, and that a bad image costs nothing but itself."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decode_data import assert_near
from loader_data import NoThreadLeft, cloned, encode, mixed_images, picture, wait_until, write_photos

import zerocopy_data as zcd
from zerocopy_data.device.decode import Dali, Shared

pytest.importorskip("nvidia.dali", reason="DALI is not installed: pip install nvidia-dali-cuda130")

DALI = Dali(device="cpu")
CHAIN = [zcd.RandomResizedCrop(112), zcd.RandomHorizontalFlip()]


@pytest.fixture(scope="module")
def real_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """118 of the real photographs in shards."""
    sample = Path(__file__).parents[3] / "shared" / "imagenet-sample"
    files = sorted(sample.rglob("*.JPEG"))[::4][:118]
    if not files:
        pytest.skip(f"{sample} is absent: real ImageNet photographs are needed")
    to = tmp_path_factory.mktemp("dali") / "real"
    return write_photos(to, images=[file.read_bytes() for file in files])


def load(ds: Any, decode: Any = DALI, workers: int = 2, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds, **{"batch_size": 32, "seed": 3, "num_workers": workers, "decode": decode, **options})


def assert_near_epochs(ds: Any, decode: Any = DALI, workers: int = 2, epochs: int = 2, **options: Any) -> None:
    one, other = load(ds, decode, workers, **options), load(ds, "cpu", workers, **options)
    for _ in range(epochs):
        for got, expected in zip(one, other, strict=True):
            assert got["number"].equal(expected["number"])
            assert_near(got["image"], expected["image"])
    assert [bad.row for bad in one.skipped] == [bad.row for bad in other.skipped]


def broken(data: bytes) -> bytes:
    """Without its quantisation tables: the header is sound, and neither decoder can go on behind it."""
    assert data.count(b"\xff\xdb") >= 1
    return data.replace(b"\xff\xdb", b"\xff\xfe")


@pytest.mark.parametrize("workers", [0, 2])
def test_full_epochs_with_a_short_last_batch_are_near_the_cpus(real_path: Path, workers: int) -> None:
    assert_near_epochs(zcd.open(real_path, CHAIN), workers=workers, shuffle=True)


def test_a_window_of_a_resized_picture_is_near_the_cpus(real_path: Path) -> None:
    assert_near_epochs(zcd.open(real_path, [zcd.Resize(120), zcd.CenterCrop(112)]), epochs=1)
    chain = [zcd.Resize((130, 150)), zcd.RandomCrop((112, 96)), zcd.RandomHorizontalFlip()]
    assert_near_epochs(zcd.open(real_path, chain), epochs=1)


def test_whole_pictures_cut_afterwards_are_what_regions_are(real_path: Path) -> None:
    ds = zcd.open(real_path, CHAIN)
    for one, other in zip(load(ds), load(ds, Dali(device="cpu", regions=False)), strict=True):
        assert_near(one["image"], other["image"])


def test_the_tolerance_notices_a_window_that_is_off(real_path: Path) -> None:
    batch = next(iter(load(zcd.open(real_path, CHAIN), "cpu")))["image"]
    with pytest.raises(AssertionError):
        assert_near(batch.roll(1, dims=3), batch)
    with pytest.raises(AssertionError):
        assert_near(batch.flip(3), batch)


def test_values_are_the_cpus_of_those_bytes(real_path: Path) -> None:
    bytes_, floats = zcd.open(real_path, CHAIN), zcd.open(real_path, [*CHAIN, zcd.Normalize()])
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for one, other in zip(load(bytes_), load(floats), strict=True):
        assert other["image"].dtype == torch.float32
        torch.testing.assert_close(other["image"], (one["image"] / 255 - mean) / std, rtol=1e-5, atol=1e-5)


def test_a_run_goes_on_in_the_middle_of_an_epoch_with_the_same_batches(real_path: Path) -> None:
    ds = zcd.open(real_path, CHAIN)

    def make() -> Any:
        return zcd.StatefulDataLoader(ds, batch_size=32, shuffle=True, seed=7, num_workers=2, decode=DALI)

    loader = make()
    iterator = iter(loader)
    next(iterator)
    state, left = loader.state_dict(), [cloned(batch) for batch in iterator]
    again = make()
    again.load_state_dict(state)
    for got, expected in zip(again, left, strict=True):
        assert got["number"].equal(expected["number"])
        assert got["image"].equal(expected["image"])


def test_pictures_of_other_kinds_share_a_batch_with_dalis(tmp_path: Path) -> None:
    for chain in ([zcd.Resize((24, 20))], [zcd.Resize((24, 20)), zcd.RandomHorizontalFlip()]):
        assert_near_epochs(
            zcd.open(write_photos(tmp_path / f"mixed{len(chain)}", images=mixed_images()), chain), batch_size=7
        )


@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("workers", [0, 2])
def test_corrupt_images_are_left_out_or_replaced_and_the_pipeline_lives(
    tmp_path: Path, policy: str, workers: int
) -> None:
    images = [encode(picture(n), quality=95) for n in range(40)]
    for row in (0, 11, 12, 39):
        images[row] = broken(images[row])
    ds = zcd.open(write_photos(tmp_path / "bad", images=images), [zcd.Resize((24, 24))])
    loader = load(ds, workers=workers, on_error=policy, batch_size=8)
    reference = load(ds, "cpu", workers, on_error=policy, batch_size=8)
    for _ in range(3):
        got, expected = list(loader), list(reference)
        assert [batch["number"].tolist() for batch in got] == [batch["number"].tolist() for batch in expected]
        for one, other in zip(got, expected, strict=True):
            assert_near(one["image"], other["image"])
    assert sorted(bad.row for bad in loader.skipped) == sorted(bad.row for bad in reference.skipped)
    assert len(loader.skipped) == 3 * 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_image_raises_in_its_turn_and_the_epoch_goes_on(tmp_path: Path, workers: int) -> None:
    images = [encode(picture(n), quality=95) for n in range(40)]
    images[13] = broken(images[13])
    loader = load(zcd.open(write_photos(tmp_path / "bad", images=images), [zcd.Resize((24, 24))]), workers=workers)
    loader = load(loader.dataset, workers=workers, batch_size=8)
    for _ in range(2):
        iterator = iter(loader)
        assert next(iterator)["number"].tolist() == list(range(8))
        with pytest.raises(zcd.BadSampleError, match=r"photo/13\.jpg"):
            next(iterator)
        assert [n for batch in iterator for n in batch["number"].tolist()] == list(range(16, 40))


def test_the_cpu_takes_its_share_of_the_work(real_path: Path) -> None:
    assert_near_epochs(zcd.open(real_path, CHAIN), Shared(DALI), epochs=3, shuffle=True)


def test_batches_that_are_kept_stay_what_they_are(real_path: Path) -> None:
    kept, copies = [], []
    for batch in load(zcd.open(real_path, CHAIN), batch_size=8):
        kept.append(batch["image"])
        copies.append(batch["image"].clone())
    assert all(map(torch.equal, kept, copies))


def test_two_iterations_at_once_do_not_mix(real_path: Path) -> None:
    loader = load(zcd.open(real_path, CHAIN), batch_size=16)
    expected = [batch["image"].clone() for batch in load(loader.dataset, batch_size=16)]
    loader.set_epoch(0)
    one = iter(loader)
    loader.set_epoch(0)
    other = iter(loader)
    for pair in zip(one, other, expected, strict=True):
        assert pair[0]["image"].equal(pair[2])
        assert pair[1]["image"].equal(pair[2])


def test_dali_reads_our_memory_itself_while_it_is_leased(real_path: Path) -> None:
    """No copy is made of what is fed: bytes changed behind DALI's back before it runs come out changed."""
    from zerocopy_data.device.decode.dali import DaliDecoder
    from zerocopy_data.loader.encoded_plan import EncodedPlan

    plan = EncodedPlan(zcd.open(real_path, [zcd.Resize((32, 32))]), 2, 1, "raise")
    encoded = plan.make([0, 0], (0, 0), pooled=False)[0]["image"]
    streams = encoded.streams()
    base = encoded.block.data_ptr()
    assert [stream.ctypes.data - base for stream in streams] == encoded.offsets[:2].tolist()
    decoder = DaliDecoder(torch.device("cpu"), 1, True)
    running = decoder.submit(encoded)
    arena, leased = plan._blocks["image"], plan._blocks["image"].slots_made
    del encoded, streams
    gc.collect()
    others = [arena.lease() for _ in range(3)]  # the memory that DALI may be reading is not among them
    assert base not in [np.frombuffer(other, np.uint8).ctypes.data for other in others]
    assert running.result()[0].equal(running.out[1])
    decoder.close()
    assert leased == 1


@pytest.mark.parametrize("how", ["end", "break", "error", "close"])
def test_nothing_is_left_behind(real_path: Path, how: str) -> None:
    ds = zcd.open(real_path, CHAIN)
    list(load(ds, batch_size=59))  # DALI's own, which it makes once

    def train(loader: Any) -> None:
        for place, _ in enumerate(loader):
            if how == "break" and place:
                break
            if how == "error" and place:
                raise ArithmeticError

    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with NoThreadLeft():
        for _ in range(2):
            loader = load(ds, batch_size=16)
            with contextlib.suppress(ArithmeticError):
                train(loader)
            if how == "close":
                next(iter(loader))
            del loader
            gc.collect()
    assert wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files)  # noqa: PTH208


def _status_of_child(work: Callable[[], None]) -> int:
    """How a forked child ends after that work: 0, where it did it all in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    ended: list[tuple[int, int]] = []

    def has_ended() -> bool:
        ended.append(os.waitpid(child, os.WNOHANG))
        return ended[-1][0] == child

    try:
        assert wait_until(has_ended, 20)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return ended[-1][1]


@pytest.mark.filterwarnings("ignore:This process .*multi-threaded")
def test_a_forked_child_ends_without_waiting_for_dalis_threads(real_path: Path) -> None:
    held: list[Any] = [load(zcd.open(real_path, CHAIN))]
    held.append(iter(held[0]))
    next(held[1])

    def let_go() -> None:
        held.clear()
        gc.collect()

    assert _status_of_child(let_go) == 0  # nor did it crash
    assert len(list(held[1])) == 3


@pytest.mark.filterwarnings("ignore:This process .*multi-threaded")
def test_a_forked_child_reads_with_a_loader_whose_decoder_is_the_parents(real_path: Path) -> None:
    loader = load(zcd.open(real_path, [zcd.Resize((24, 24))]))
    expected = [batch["image"].numpy().copy() for batch in loader]

    def read() -> None:  # with NumPy: torch's own threads are not in the child either
        for got, image in zip(loader, expected, strict=True):
            assert np.array_equal(got["image"].numpy(), image)

    assert _status_of_child(read) == 0
    read()

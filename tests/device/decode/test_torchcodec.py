"""The light decoder, over a stand-in for torchcodec's decode_jpeg: what is around the call, as a CPU shows it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import encode, picture, write_photos
from PIL import Image
from same_batches import assert_same

import zerocopy_data as zcd
from zerocopy_data.device.decode import TorchCodec


def decode_jpeg(streams: list[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
    """As torchcodec's: a list of uint8 tensors gives a list of [3, H, W]; what it can't decode is a RuntimeError."""
    assert mode == "RGB"
    assert torch.device(device).type == "cpu"
    made = []
    for stream in streams:
        assert stream.dtype == torch.uint8
        try:
            image = Image.open(io.BytesIO(stream.numpy().tobytes())).convert("RGB")
        except OSError as error:
            raise RuntimeError(f"broken\nstack: {error}") from error
        made.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
    return made


@pytest.fixture
def torchcodec(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchcodec", "torchcodec.decoders"):
        module: Any = ModuleType(name)
        module.__path__ = []
        module.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec(name, None, is_package=True)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["torchcodec.decoders"].decode_jpeg = decode_jpeg  # type: ignore[attr-defined]


def load(ds: Any, decode: Any, **options: Any) -> zcd.DataLoader[Any]:
    return zcd.DataLoader(ds, **{"batch_size": 6, "seed": 3, "num_workers": 2, "decode": decode, **options})


@pytest.mark.usefixtures("torchcodec")
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_windows_and_flips_are_the_cpus_and_pixels_near(tmp_path: Path, interpolation: str) -> None:
    ops = [zcd.RandomResizedCrop(24, interpolation=interpolation), zcd.RandomHorizontalFlip()]
    images = [encode(picture(n), "PNG" if n == 3 else "JPEG") for n in range(20)]
    ds = zcd.open(write_photos(tmp_path / "ds", images=images), ops)
    one, other = load(ds, TorchCodec(), shuffle=True), load(ds, "cpu", shuffle=True)
    for _ in range(2):
        for got, expected in zip(one, other, strict=True):
            assert got["number"].equal(expected["number"])
            assert (got["image"].int() - expected["image"].int()).abs().max() <= 1  # floats here, 22 bits there


@pytest.mark.usefixtures("torchcodec")
def test_what_needs_no_resize_is_equal_to_the_bit(tmp_path: Path) -> None:
    ds = zcd.open(write_photos(tmp_path / "ds", rows=20), [zcd.RandomCrop(24), zcd.RandomHorizontalFlip()])
    for got, expected in zip(load(ds, TorchCodec()), load(ds, "cpu"), strict=True):
        assert_same(got, expected)


@pytest.mark.usefixtures("torchcodec")
def test_a_corrupt_image_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    images = [encode(picture(n)) for n in range(20)]
    images[7] = images[7].replace(b"\xff\xdb", b"\xff\xfe")  # no quantisation tables
    ds = zcd.open(write_photos(tmp_path / "ds", images=images), [zcd.RandomCrop(24)])
    loader = load(ds, TorchCodec(), on_error="skip")
    for _ in range(2):
        assert [n for batch in loader for n in batch["number"].tolist()] == [n for n in range(20) if n != 7]
    assert [bad.row for bad in loader.skipped] == [7, 7]


def test_without_torchcodec_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    ds = zcd.open(write_photos(tmp_path / "ds", rows=2), [zcd.RandomCrop(24)])
    with pytest.raises(zcd.ConfigError, match=r"pip install 'torchcodec>=0\.17'"):
        load(ds, TorchCodec())


def test_without_dali_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy_data.device.decode import Dali

    for name in [name for name in sys.modules if name.startswith("nvidia.dali")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nvidia", None)
    ds = zcd.open(write_photos(tmp_path / "ds", rows=2), [zcd.RandomCrop(24)])
    with pytest.raises(zcd.ConfigError, match="pip install nvidia-dali-cuda130"):
        load(ds, Dali(device="cpu"))

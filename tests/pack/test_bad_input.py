"""Files that are no usable image: named, never losing another row; odd ones that are fine are kept."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from image_trees import class_folders, encode, jpeg, picture

from zerocopy_data.errors import BadSampleError
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.verify import verify_dataset
from zerocopy_data.pack.packer import pack


def header_bomb() -> bytes:
    """A JPEG that says it has 65,500 x 65,500 pixels: 12.9 GB, should anybody believe it."""
    data = jpeg(0)
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", 65_500, 65_500) + data[frame + 9 :]


def png_bomb() -> bytes:
    data = encode(picture(0), "PNG")
    import zlib

    header = struct.pack(">II", 65_500, 65_500) + data[24:29]
    return data[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + data[33:]


BAD = {
    "zero.jpg": b"",
    "text.jpg": b"this is no image",
    "truncated.jpg": jpeg(0, 200, 200)[:-400],
    "header-only.jpg": jpeg(0)[:30],
    "bomb.jpg": header_bomb(),
    "bomb.png": png_bomb(),
    "truncated.png": encode(picture(0, 100, 100), "PNG")[:-300],
}

ODD = {
    "a-png.JPEG": encode(picture(1), "PNG"),
    "cmyk.jpg": encode(picture(2).convert("CMYK")),
    "gray.jpg": encode(picture(3).convert("L")),
    "progressive.jpg": encode(picture(4), progressive=True),
    "palette.png": encode(picture(5).convert("P"), "PNG"),
    "alpha.png": encode(picture(6).convert("RGBA"), "PNG"),
    "x.webp": encode(picture(7), "WEBP"),
    "x.bmp": encode(picture(8), "BMP"),
    "x.tif": encode(picture(9), "TIFF"),
    "tail.jpg": jpeg(10) + b"appended by some camera",
}


@pytest.mark.parametrize("name", BAD)
def test_an_unusable_file_stops_the_pack_and_is_named(tmp_path: Path, name: str) -> None:
    source = class_folders(tmp_path / "s")
    (source / "bee" / name).write_bytes(BAD[name])
    with pytest.raises(BadSampleError) as caught:
        pack(source, tmp_path / "out", jobs=1)
    assert caught.value.key == f"bee/{name}"
    assert "--on-error skip" in str(caught.value)
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("options", [{}, {"max_side": 12}, {"raw": 8}], ids=str)
@pytest.mark.parametrize("jobs", [1, 4])
def test_skipped_files_are_listed_and_no_other_row_is_lost(tmp_path: Path, options: dict[str, int], jobs: int) -> None:
    source = class_folders(tmp_path / "s", each=5)
    for name, data in BAD.items():
        (source / "ant" / name).write_bytes(data)
    (source / "bee" / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    os.mkfifo(source / "bee" / "pipe.jpg")
    expected = {f"ant/{name}" for name in BAD} | {"bee/dangling.jpg", "bee/pipe.jpg"}
    summary = pack(  # type: ignore[call-overload, unused-ignore]
        source, tmp_path / "out", jobs=jobs, shard_size=3_000, on_error="skip", **options
    )
    assert {sample.file for sample in summary.skipped} == expected
    listed = json.loads((tmp_path / "out" / "dataset.json").read_text())["skipped"]
    assert {entry["file"] for entry in listed} == expected
    assert all(entry["reason"] for entry in listed)
    reader = DatasetReader(tmp_path / "out")
    keys = [reader.value("key", row) for row in range(reader.num_rows)]
    assert keys == [f"{name}/{number}.jpg" for name in ("ant", "bee") for number in range(5)]
    assert verify_dataset(reader) == []


@pytest.mark.parametrize("name", ["dangling.jpg", "pipe.jpg"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    """Tests may run as root, whom no permission stops: a dangling link and a named pipe stand in."""
    source = class_folders(tmp_path / "s")
    (source / "ant" / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    (source / "ant" / "pipe.jpg").symlink_to(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe")
    (source / "ant" / {"dangling.jpg": "pipe.jpg", "pipe.jpg": "dangling.jpg"}[name]).unlink()
    with pytest.raises(BadSampleError, match=f"'ant/{name}'.*(cannot be read|no regular file)"):
        pack(source, tmp_path / "out", jobs=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    (source / "ant" / "1.jpg").chmod(0)
    with pytest.raises(BadSampleError, match=r"'ant/1\.jpg'.*Permission denied"):
        pack(source, tmp_path / "out", jobs=1)


def test_odd_images_that_are_sound_are_stored_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "s"
    (source / "a").mkdir(parents=True)
    for name, data in ODD.items():
        (source / "a" / name).write_bytes(data)
    assert pack(source, tmp_path / "out", jobs=1).rows == len(ODD)
    reader = DatasetReader(tmp_path / "out")
    for row in range(reader.num_rows):
        assert bytes(reader.value("image", row)) == ODD[reader.value("key", row)[2:]]
        assert reader.shard(0).number("image.width", row) == 24
    assert verify_dataset(reader) == []

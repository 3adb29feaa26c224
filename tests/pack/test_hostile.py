"""What a hostile tester found: sources, options and outputs that must end in words, never in a lost dataset."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from image_trees import class_folders, encode, fill, jpeg
from PIL import Image

from zerocopy_data.errors import BadSampleError, ConfigError, OutputExistsError, PackError, SourceError
from zerocopy_data.format import output
from zerocopy_data.format.output import OutputFolder
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.verify import verify_dataset
from zerocopy_data.pack.packer import pack
from zerocopy_data.pack.plan import parse_size
from zerocopy_data.pack.recipe import Recipe


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".zcd-new" in path.name]


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    folder = OutputFolder(path, overwrite=True)
    folder.claim()
    try:
        yield
    finally:
        folder.release(finished=False)


@pytest.fixture(params=["plain", "splits"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A dataset, or a folder of them."""
    splits = request.param == "splits"
    class_folders(tmp_path / "old" / ("train" if splits else ""), each=4)
    if splits:
        class_folders(tmp_path / "old" / "val", each=2)
    pack(tmp_path / "old", tmp_path / "out", jobs=1)
    return tmp_path / "out"


def test_a_failed_overwrite_leaves_the_old_dataset(old: Path, tmp_path: Path) -> None:
    before = tree(old)
    source = class_folders(tmp_path / "new", each=9)
    (source / "bee" / "8.jpg").write_bytes(b"")
    with pytest.raises(BadSampleError):
        pack(source, old, overwrite=True, jobs=1, shard_size=1_000)
    assert tree(old) == before
    assert left_over(tmp_path) == []
    (source / "bee" / "8.jpg").unlink()
    assert pack(source, old, overwrite=True, jobs=1).splits[0].path == old
    assert DatasetReader(old).num_rows == 17
    assert sorted(tree(old)) == ["dataset.json", "shard-00000.arrow"]
    assert left_over(tmp_path) == []


def test_an_interrupted_overwrite_leaves_the_old_dataset(old: Path, tmp_path: Path) -> None:
    before = tree(old)

    def stop(_: object) -> None:
        assert tree(old).keys() - before.keys() == {".zcd-pack.lock"}
        with pytest.raises(OutputExistsError, match="another pack"):
            pack(tmp_path / "new", old, overwrite=True, jobs=1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1, progress=stop)
    assert tree(old) == before
    assert left_over(tmp_path) == []


def test_what_a_killed_overwrite_left_is_cleared_by_the_next(old: Path, tmp_path: Path) -> None:
    staging = tmp_path / ".out.zcd-new"
    (staging / "train").mkdir(parents=True)
    (staging / ".zcd-pack.lock").touch()
    (staging / "train" / "shard-00007.arrow").write_bytes(b"half")
    pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1)
    assert sorted(tree(old)) == ["dataset.json", "shard-00000.arrow"]
    assert left_over(tmp_path) == []


def test_folders_change_places_without_the_kernels_help_too(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OldLibc:
        def __init__(self, *_: object, **__: object) -> None:
            pass

    monkeypatch.setattr("ctypes.CDLL", OldLibc)
    pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1)
    assert sorted(tree(old)) == ["dataset.json", "shard-00000.arrow"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "out"]


def test_a_refused_exchange_leaves_the_old_dataset(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(output, "_exchange", refuse)
    before = tree(old)
    with pytest.raises(PackError, match="is as it was"):
        pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1)
    assert tree(old) == before
    assert left_over(tmp_path) == []


def test_an_output_that_is_a_link_is_replaced_where_it_points(tmp_path: Path) -> None:
    pack(class_folders(tmp_path / "s"), tmp_path / "disk" / "real", jobs=1)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "real")
    pack(class_folders(tmp_path / "t", each=5), tmp_path / "out", overwrite=True, jobs=1)
    assert (tmp_path / "out").is_symlink()
    assert DatasetReader(tmp_path / "disk" / "real").num_rows == 10


def test_a_mount_point_is_not_replaced(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(old)
    monkeypatch.setattr("os.path.ismount", lambda path: path == old)
    with pytest.raises(OutputExistsError, match="is a mount point"):
        pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1)
    assert tree(old) == before


@pytest.mark.parametrize("name", ["train", "shard-00001.arrow", ".zcd-pack.lock", "train/dataset.json"])
def test_links_inside_the_output_are_nobodys_to_delete(old: Path, tmp_path: Path, name: str) -> None:
    pack(class_folders(tmp_path / "precious-images"), tmp_path / "precious", jobs=1)
    if "/" not in name and (old / name).exists():
        (old / name).rename(tmp_path / "moved")
    (old / name).parent.mkdir(exist_ok=True)
    (old / name).unlink(missing_ok=True)
    (old / name).symlink_to(tmp_path / "precious")
    before, precious = tree(old), tree(tmp_path / "precious")
    with pytest.raises(OutputExistsError, match="which no pack made"):
        pack(class_folders(tmp_path / "new"), old, overwrite=True, jobs=1)
    assert (tree(old), tree(tmp_path / "precious")) == (before, precious)


def test_packs_into_a_folder_and_into_a_split_of_it_exclude_each_other(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    class_folders(tmp_path / "two" / "train")
    pack(tmp_path / "two", tmp_path / "out", jobs=1)
    before = tree(tmp_path / "out")
    with claimed(tmp_path / "out"), pytest.raises(OutputExistsError, match="another pack"):
        pack(source, tmp_path / "out" / "train", overwrite=True, jobs=1)
    pack(tmp_path / "two", tmp_path / "out", jobs=1, overwrite=True)
    assert tree(tmp_path / "out") == before
    with claimed(tmp_path / "out" / "train"), pytest.raises(OutputExistsError, match="another pack"):
        pack(tmp_path / "two", tmp_path / "out", overwrite=True, jobs=1)


@pytest.mark.parametrize("options", [{"raw": 16}, {"max_side": 60_000}], ids=str)
def test_an_image_that_cannot_be_brought_to_the_size_is_that_files_error(
    tmp_path: Path, options: dict[str, int]
) -> None:
    source = class_folders(tmp_path / "s")
    (source / "ant" / "line.jpg").write_bytes(encode(Image.new("RGB", (65_500, 1))))
    summary = pack(source, tmp_path / "out", jobs=1, on_error="skip", **options)  # type: ignore[arg-type]
    assert [sample.file for sample in summary.skipped] == (["ant/line.jpg"] if "raw" in options else [])


def test_a_class_folder_that_is_no_text_is_refused_and_named(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    odd = source / os.fsdecode(b"cl\xff\xfe")
    fill(odd, ["1.jpg"])
    with pytest.raises(SourceError, match=r"cl\\xff\\xfe"):
        pack(source, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_an_unusable_file_that_is_no_text_is_listed(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    (source / "ant" / os.fsdecode(b"bad\xff.jpg")).write_bytes(b"")
    with pytest.raises(BadSampleError) as caught:
        pack(source, tmp_path / "stopped", jobs=1)
    str(caught.value).encode()
    summary = pack(source, tmp_path / "out", jobs=1, on_error="skip")
    assert [sample.file for sample in summary.skipped] == ["ant/bad\\xff.jpg"]
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["skipped"][0]["file"] == "ant/bad\\xff.jpg"


@pytest.mark.parametrize("options", [{}, {"raw": 16}, {"max_side": 16}], ids=str)
def test_a_huge_sparse_file_is_skipped(tmp_path: Path, options: dict[str, int]) -> None:
    source = class_folders(tmp_path / "s")
    with open(source / "bee" / "huge.jpg", "wb") as file:
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("the file system has no files of 1 TB")
    summary = pack(source, tmp_path / "out", jobs=1, on_error="skip", **options)  # type: ignore[arg-type]
    assert [sample.file for sample in summary.skipped] == ["bee/huge.jpg"]
    assert summary.rows == 6
    assert verify_dataset(DatasetReader(tmp_path / "out")) == []


def test_raw_pixels_must_fit_a_row() -> None:
    with pytest.raises(ConfigError, match="between 1 and 26754"):
        Recipe(raw=26_755)
    assert Recipe(raw=26_754).raw == 26_754
    assert 26_754**2 * 3 < 2**31 <= 26_755**2 * 3


@pytest.mark.parametrize("size", ["9" * 400, "9" * 30 + "TB", "9223372036854775808"])
def test_a_size_beyond_all_disks_is_refused(size: str) -> None:
    with pytest.raises(ConfigError, match="too large"):
        parse_size(size)


@pytest.mark.parametrize("place", ["itself", "ant/itself", "train/itself"])
def test_links_that_lead_to_themselves_are_named(tmp_path: Path, place: str) -> None:
    class_folders(tmp_path / "s" / ("train" if place.startswith("train") else ""))
    link = tmp_path / "s" / place
    link.symlink_to(link if "ant" not in place else link.parent)
    with pytest.raises(SourceError, match=r"itself.*(cannot be read|link to a folder above)"):
        pack(tmp_path / "s", tmp_path / "out", jobs=1)


def test_a_source_that_is_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").symlink_to(tmp_path / "s")
    with pytest.raises(SourceError):
        pack(tmp_path / "s", tmp_path / "out")


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "s"
    class_folders(source / "train")
    class_folders(source / "val")
    fill(source / "test", ["1.jpg", "labels.csv"])
    for name in ("train/ant/1.gif", "train/ant/deeper/2.GIF", "train/bee/notes", "val/bee/3.gif"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(jpeg(0))
    summary = pack(source, tmp_path / "out", jobs=1, limit=2)
    assert summary.ignored == {".gif": 3, "": 1, ".csv": 1}
    assert pack(class_folders(tmp_path / "t"), tmp_path / "t.zcd", jobs=1).ignored == {}


@pytest.mark.parametrize("below", ["", "train"])
def test_a_packed_dataset_is_no_source(tmp_path: Path, below: str) -> None:
    class_folders(tmp_path / "s" / below)
    pack(tmp_path / "s", tmp_path / "in.zcd", jobs=1)
    with pytest.raises(SourceError, match="is a packed dataset already"):
        pack(tmp_path / "in.zcd", tmp_path / "out")


def test_raw_pixels_of_a_narrow_image_are_sound(tmp_path: Path) -> None:
    fill(tmp_path / "s", ["a/0.jpg"])
    (tmp_path / "s" / "a" / "1.jpg").write_bytes(encode(Image.new("RGB", (900, 1), (9, 9, 9))))
    pack(tmp_path / "s", tmp_path / "out", raw=16, jobs=1)
    assert np.asarray(DatasetReader(tmp_path / "out").value("image", 1)).shape == (16, 16, 3)

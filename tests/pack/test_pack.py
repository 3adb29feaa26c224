"""Packing keeps bytes, labels and order, and its output depends on nothing but source and options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_trees import class_folders, encode, fill, jpeg, kaggle_tree, picture
from PIL import Image

from zerocopy_data.errors import ConfigError, OutputExistsError, PackError, UnfinishedPackError
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.verify import verify_dataset
from zerocopy_data.pack import PackProgress
from zerocopy_data.pack.packer import pack


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_bytes_labels_keys_and_sizes_are_what_the_folder_holds(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s", each=20)
    summary = pack(source, tmp_path / "out", shard_size=5_000)
    assert (summary.rows, summary.kind, summary.skipped) == (40, "image folder", ())
    assert summary.splits[0].shards > 3
    reader = DatasetReader(tmp_path / "out")
    assert reader.num_rows == 40
    for row in range(40):
        key = reader.value("key", row)
        assert bytes(reader.value("image", row)) == (source / key).read_bytes()
        assert reader.value("label", row) == ("ant", "bee").index(key.split("/")[0])
        shard, local = reader.locate(row)
        assert reader.shard(shard).number("image.width", local) == 24
        assert reader.shard(shard).number("image.height", local) == 16
    assert verify_dataset(reader) == []


@pytest.mark.parametrize("options", [{}, {"max_side": 20}, {"raw": 8}, {"shuffle": 5}], ids=str)
def test_the_output_is_the_same_in_every_byte_whatever_the_jobs(tmp_path: Path, options: dict[str, int]) -> None:
    source = class_folders(tmp_path / "s", each=15)
    (source / "ant" / "bad.jpg").write_bytes(b"")
    (source / "bee" / "a.png").write_bytes(encode(picture(77, 40, 30), "PNG"))
    outputs = []
    for jobs in (1, 2, 3, 4, 8):
        out = tmp_path / f"out{jobs}"
        pack(source, out, jobs=jobs, shard_size=1_500, on_error="skip", **options)  # type: ignore[arg-type]
        outputs.append(contents(out))
    assert len(outputs[0]) > 3
    assert outputs[0] == outputs[1] == outputs[2] == outputs[3]


def test_a_manifest_says_where_the_rows_come_from_without_times_or_paths(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    pack(source, tmp_path / "out", shuffle=3, limit=4, jobs=1)
    text = (tmp_path / "out" / "dataset.json").read_text()
    assert str(tmp_path) not in text
    provenance = json.loads(text)["provenance"]
    assert provenance["source"] == "image folder"
    assert provenance["options"] == {"shard_size": 256_000_000, "shuffle": 3, "limit": 4}


def test_splits_become_datasets_of_their_own(tmp_path: Path) -> None:
    kaggle_tree(tmp_path / "k")
    summary = pack(tmp_path / "k", tmp_path / "out", jobs=1)
    assert [(split.name, split.rows, split.classes) for split in summary.splits] == [
        ("train", 6, 3),
        ("val", 4, 3),
        ("test", 2, None),
    ]
    assert list(DatasetReader(tmp_path / "out" / "test").fields) == ["image", "key"]
    assert DatasetReader(tmp_path / "out" / "val").value("label", 0) == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test", "train", "val"]


def test_limit_and_shuffle_hold_for_each_split(tmp_path: Path) -> None:
    class_folders(tmp_path / "s" / "train", each=10)
    class_folders(tmp_path / "s" / "val", each=10, first=30)
    pack(tmp_path / "s", tmp_path / "out", limit=5, shuffle=1, jobs=1)
    readers = [DatasetReader(tmp_path / "out" / name) for name in ("train", "val")]
    assert [reader.num_rows for reader in readers] == [5, 5]
    keys = [readers[0].value("key", row) for row in range(5)]
    assert keys != sorted(keys)


def test_out_defaults_to_the_sources_name_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = class_folders(tmp_path / "photos")
    assert pack(source, jobs=1).path == tmp_path / "photos.zcd"
    class_folders(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert pack(".", jobs=1).path == tmp_path / "here.zcd"


def test_progress_ends_with_everything_done(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s", each=10)
    (source / "ant" / "bad.jpg").write_bytes(b"")
    for jobs in (1, 4):
        states: list[PackProgress] = []
        options = {"shard_size": 2_000, "on_error": "skip", "overwrite": True}
        pack(source, tmp_path / "out", jobs=jobs, progress=states.append, **options)  # type: ignore[arg-type]
        assert states[-1].rows == states[-1].total_rows == 21
        assert states[-1].bytes == states[-1].total_bytes > 0
        assert states[-1].skipped == 1


@pytest.mark.parametrize(
    "options",
    [
        {"max_side": 100, "raw": 100},
        {"max_side": 0},
        {"raw": 70_000},
        {"quality": 0},
        {"quality": 101},
        {"on_error": "ignore"},
        {"limit": 0},
        {"jobs": 0},
        {"shard_size": "big"},
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused_before_anything_is_made(
    tmp_path: Path, options: dict[str, object]
) -> None:
    source = class_folders(tmp_path / "s")
    with pytest.raises(ConfigError):
        pack(source, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["s", "s/out", "."])
def test_source_and_output_may_not_lie_in_each_other(tmp_path: Path, out: str) -> None:
    source = class_folders(tmp_path / "s")
    with pytest.raises(ConfigError, match="must not lie in each other"):
        pack(source, tmp_path / out, overwrite=True)


def test_an_existing_dataset_is_replaced_only_when_asked(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s", each=9)
    pack(source, tmp_path / "out", shard_size=2_000, jobs=1)
    before = contents(tmp_path / "out")
    with pytest.raises(OutputExistsError, match="--overwrite"):
        pack(source, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    class_folders(tmp_path / "t" / "train", each=2)
    pack(tmp_path / "t", tmp_path / "out", overwrite=True, jobs=1)
    assert sorted(contents(tmp_path / "out")) == ["train/dataset.json", "train/shard-00000.arrow"]
    pack(source, tmp_path / "out", shard_size=2_000, overwrite=True, jobs=1)
    assert contents(tmp_path / "out") == before


def test_a_source_that_turns_out_bad_leaves_an_existing_dataset_alone(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s")
    pack(source, tmp_path / "out", jobs=1)
    before = contents(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="nothing to pack"):
        pack(tmp_path / "empty", tmp_path / "out", overwrite=True)
    assert contents(tmp_path / "out") == before


def test_file_names_that_are_no_unicode_are_packed(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s", each=1)
    (Path(str(source).encode().decode()) / "ant" / "\udcff.jpg").write_bytes(jpeg(9))
    pack(source, tmp_path / "out", jobs=1)
    assert "ant/\\xff.jpg" in [DatasetReader(tmp_path / "out").value("key", row) for row in range(3)]


def test_packing_needs_no_main_guard_and_no_torch(tmp_path: Path) -> None:
    """Straight from a script's top level, with several processes."""
    class_folders(tmp_path / "s", each=10)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from zerocopy_data.pack.packer import pack\n"
        f"print(pack({str(tmp_path / 's')!r}, {str(tmp_path / 'out')!r}, jobs=4, shard_size=2000).rows)\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr) == ("20\n", "")


def test_max_side_shrinks_what_is_larger_and_keeps_the_bytes_of_the_rest(tmp_path: Path) -> None:
    source = tmp_path / "s"
    fill(source, ["a/small.jpg"])
    (source / "a" / "wide.jpg").write_bytes(jpeg(1, 200, 80))
    (source / "a" / "tall.png").write_bytes(encode(picture(2, 60, 300), "PNG"))
    (source / "a" / "exact.jpg").write_bytes(jpeg(3, 100, 90))
    (source / "a" / "cmyk.jpg").write_bytes(encode(picture(4, 150, 150).convert("CMYK")))
    pack(source, tmp_path / "out", max_side=100, quality=85, jobs=1)
    reader = DatasetReader(tmp_path / "out")
    rows = {reader.value("key", row): row for row in range(5)}
    for name in ("small", "exact"):
        assert bytes(reader.value("image", rows[f"a/{name}.jpg"])) == (source / f"a/{name}.jpg").read_bytes()
    for name, size in (("wide.jpg", (100, 40)), ("tall.png", (20, 100)), ("cmyk.jpg", (100, 100))):
        stored = Image.open(__import__("io").BytesIO(reader.value("image", rows[f"a/{name}"])))
        assert (stored.format, stored.size) == ("JPEG", size)
        original = Image.open(source / "a" / name).convert("RGB").resize(size, Image.Resampling.BILINEAR)
        difference = np.asarray(stored, np.int16) - np.asarray(original, np.int16)
        assert np.abs(difference).mean() < 6
    assert verify_dataset(reader) == []


@pytest.mark.parametrize("side", [16, 33, 64])
def test_raw_pixels_equal_torchvisions_resize_and_centre_crop(tmp_path: Path, side: int) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    source = tmp_path / "s"
    sizes = [(64, 64), (120, 77), (77, 121), (33, 90), (200, 33), (16, 400), (7, 9)]
    (source / "a").mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        (source / "a" / f"{number}.jpg").write_bytes(jpeg(number, width, height))
    (source / "a" / "7.png").write_bytes(encode(picture(7, 50, 70).convert("P"), "PNG"))
    exif = Image.Exif()
    exif[0x0112] = 6
    (source / "a" / "8.jpg").write_bytes(encode(picture(8, 90, 60), exif=exif))
    pack(source, tmp_path / "out", raw=side, jobs=2)
    reader = DatasetReader(tmp_path / "out")
    from PIL import ImageOps

    crop = transforms.Compose([transforms.Resize(side), transforms.CenterCrop(side)])
    for row in range(reader.num_rows):
        with Image.open(source / reader.value("key", row)) as image:
            expected = np.asarray(crop(ImageOps.exif_transpose(image).convert("RGB")))
        np.testing.assert_array_equal(reader.value("image", row), expected)
    assert verify_dataset(reader) == []


def test_sizes_are_those_after_exif_rotation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    (tmp_path / "s" / "a").mkdir(parents=True)
    for kind, name in (("JPEG", "x.jpg"), ("PNG", "y.png")):
        (tmp_path / "s" / "a" / name).write_bytes(encode(picture(0, 50, 20), kind, exif=exif))
    pack(tmp_path / "s", tmp_path / "out", jobs=1)
    shard = DatasetReader(tmp_path / "out").shard(0)
    for row in range(2):
        assert [shard.number(f"image.{name}", row) for name in ("width", "height")] == [20, 50]


def test_an_interrupted_pack_is_known_and_replaced_with_overwrite(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "s", each=10)

    def stop(state: PackProgress) -> None:
        if state.rows >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", jobs=1, shard_size=2_000, progress=stop)
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert not [name for name in names if name.endswith(".tmp") or name == "dataset.json"]
    with pytest.raises(UnfinishedPackError):
        DatasetReader(tmp_path / "out")
    with pytest.raises(OutputExistsError, match="unfinished pack"):
        pack(source, tmp_path / "out")
    assert pack(source, tmp_path / "out", overwrite=True, jobs=1).rows == 20


def test_a_pack_of_nothing_but_bad_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "x.jpg").write_bytes(b"")
    with pytest.raises(PackError, match=r"none of the 1 files.*empty"):
        pack(tmp_path / "s", tmp_path / "out", on_error="skip")

"""dataset.json: deterministic, checked when read, from the past and from the future."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zerocopy_data.errors import ManifestError, ManifestVersionError, NotADatasetError, UnfinishedPackError
from zerocopy_data.format.manifest import FORMAT_VERSION, read_manifest
from zerocopy_data.format.reader import DatasetReader


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((folder / "dataset.json").read_text())
    change(value)
    (folder / "dataset.json").write_text(json.dumps(value))


def test_the_same_rows_give_the_same_manifest(make_dataset: Callable[..., Path]) -> None:
    texts = [(make_dataset(12, name) / "dataset.json").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["rows"] == 12


def test_a_manifest_from_the_future_is_refused_naming_both_versions(
    make_dataset: Callable[..., Path],
) -> None:
    folder = make_dataset(3)
    edit(folder, lambda value: value.update(format_version=FORMAT_VERSION + 6))
    with pytest.raises(ManifestVersionError) as caught:
        DatasetReader(folder)
    assert f"version {FORMAT_VERSION + 6}" in str(caught.value)
    assert f"up to version {FORMAT_VERSION}" in str(caught.value)
    assert "pip install" in str(caught.value)


def test_unknown_keys_from_a_later_library_do_no_harm(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(3)
    edit(folder, lambda value: value.update(colour="blue"))
    assert DatasetReader(folder).num_rows == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("fields"),
        lambda v: v.pop("shards"),
        lambda v: v.update(format="other"),
        lambda v: v.update(format_version="1"),
        lambda v: v.update(format_version=True),
        lambda v: v.update(rows=4),
        lambda v: v["fields"].update(label={"kind": "video"}),
        lambda v: v["shards"][0].update(file="../other.arrow"),
        lambda v: v["shards"][0].update(file="/etc/passwd"),
        lambda v: v["shards"][0].update(rows=-3),
        lambda v: v["shards"][0].update(rows="3"),
        lambda v: v["shards"][0].update(xxh3_128="zz"),
        lambda v: v["shards"].append(v["shards"][0]),
        lambda v: v["shards"].append(7),
        lambda v: v.update(skipped={}),
        lambda v: v.update(skipped=[{}]),
        lambda v: v.update(skipped=[{"file": 1, "reason": "x"}]),
        lambda v: v.update(shards={}),
        lambda v: v.update(shards=7),
        lambda v: v.update(fields=[]),
        lambda v: v.update(fields={}),
        lambda v: v.update(rows=10**30),
        lambda v: v.update(rows=-1),
        lambda v: v.update(rows=3.0),
        lambda v: v.update(format_version=10**3000),
        lambda v: v.update(format_version=-1),
        lambda v: v["shards"][0].update(rows=10**30),
        lambda v: v["shards"][0].update(bytes=-1),
        lambda v: v["shards"][0].update(bytes=10**3000),
        lambda v: v["shards"][0].update(bytes=True),
        lambda v: v["shards"][0].update(file=[]),
        lambda v: v["shards"][0].update(xxh3_128=0),
        lambda v: v.update(rows=2**63, shards=[{**v["shards"][0], "file": f"{i}.arrow", "rows": 2**62} for i in "ab"]),
        lambda v: v["fields"].update(image=None),
        lambda v: v["fields"]["image"].update(kind=[]),
        lambda v: v["fields"]["image"].update(kind={}),
        lambda v: v["fields"]["image"].update(encoding=[]),
        lambda v: v["fields"]["image"].update(self=1),
        lambda v: v["fields"]["pixels"].update(shape=[math.inf, 1, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[math.nan, 1, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[1e9, 1e9, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[10**9, 10**9, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[2**31, 1, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[65_535, 65_535, 3]),
        lambda v: v["fields"]["pixels"].update(shape=[None, 1, 3]),
        lambda v: v["fields"]["pixels"].update(shape=5),
        lambda v: v["fields"]["pixels"].update(shape="443"),
        lambda v: v["fields"]["vector"].update(shape=[math.inf]),
        lambda v: v["fields"]["vector"].update(shape=[2**29]),
        lambda v: v["fields"]["vector"].update(shape=[10**9, 10**9, 10**3000]),
        lambda v: v["fields"]["vector"].update(shape=[1] * 100),
        lambda v: v["fields"]["vector"].update(shape=["1"]),
        lambda v: v["fields"]["vector"].update(dtype=["float32"]),
        lambda v: v["fields"]["ragged"].update(shape=[None, -1]),
        lambda v: v["fields"]["ragged"].update(shape=[None, 2**40]),
        lambda v: v["fields"]["label"].update(classes=5),
        lambda v: v["fields"]["blob"].update(media_type=[]),
        lambda v: v["fields"].update({"\ud800": {"kind": "text"}}),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    make_dataset: Callable[..., Path], change: Callable[[dict[str, Any]], object]
) -> None:
    folder = make_dataset(3)
    edit(folder, change)
    with pytest.raises(ManifestError, match=r"dataset\.json"):
        read_manifest(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00\xff", "[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_a_file_that_is_no_manifest_is_refused(make_dataset: Callable[..., Path], text: str) -> None:
    folder = make_dataset(3)
    (folder / "dataset.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ManifestError):
        DatasetReader(folder)


def test_a_manifest_that_cannot_be_read_is_an_error_of_ours(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(3)
    (folder / "dataset.json").unlink()
    (folder / "dataset.json").mkdir()
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(folder)


def test_shards_without_a_manifest_are_an_unfinished_pack(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(3)
    (folder / "dataset.json").unlink()
    with pytest.raises(UnfinishedPackError, match="--overwrite"):
        DatasetReader(folder)


def test_what_is_no_dataset_says_what_it_is(make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError, match="does not exist"):
        DatasetReader(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADatasetError, match="is a file"):
        DatasetReader(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotADatasetError, match=r"holds no dataset\.json") as caught:
        DatasetReader(tmp_path / "empty")
    assert not isinstance(caught.value, UnfinishedPackError)


def test_a_folder_of_splits_names_them(make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    for name in ("train", "val"):
        make_dataset(3, f"both/{name}")
    with pytest.raises(NotADatasetError, match=r"\(train, val\)") as caught:
        DatasetReader(tmp_path / "both")
    assert str(tmp_path / "both" / "train") in str(caught.value)

"""What `zcd.open` says when it cannot open, and what it refuses at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loader_data import CROP, copied, write_photos

import zerocopy_data as zcd


def test_a_missing_path_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(zcd.NotADatasetError, match=r"nowhere does not exist\. Make a dataset with: zcd pack"):
        zcd.open(tmp_path / "nowhere")


def test_a_folder_of_splits_names_them(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_photos(tmp_path / "imagenet.zcd" / split, 2)
    with pytest.raises(zcd.NotADatasetError, match=r"\(train, val\)\. Open one of them, for example .*/train"):
        zcd.open(tmp_path / "imagenet.zcd")


def test_an_unfinished_pack_is_called_so(photos_path: Path, tmp_path: Path) -> None:
    path = copied(photos_path, tmp_path / "ds")
    (path / "dataset.json").unlink()
    with pytest.raises(zcd.UnfinishedPackError, match="unfinished pack"):
        zcd.open(path)


def test_a_manifest_from_the_future_asks_for_a_newer_library(photos_path: Path, tmp_path: Path) -> None:
    path = copied(photos_path, tmp_path / "ds")
    manifest = json.loads((path / "dataset.json").read_text())
    version = next(name for name in manifest if "version" in name)
    manifest[version] = 99
    (path / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(zcd.ManifestVersionError, match="99"):
        zcd.open(path)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"picture": CROP}, "column 'picture'.*has: image, label, number, key"),
        ({"label": CROP}, "'label' is no Image"),
        ({"image": "resize"}, "list of operations or a callable"),
        ({"image": [zcd.Normalize(), zcd.Resize(8)]}, "Resize stands after Normalize"),
        ([zcd.Resize(8), "flip"], "'flip' is no image operation"),
        ([zcd.MultiCrop([zcd.Resize(8)]), zcd.Normalize()], "MultiCrop must be the only operation"),
    ],
)
def test_a_transform_that_cannot_work_is_refused_when_opening(photos_path: Path, transform: Any, message: str) -> None:
    with pytest.raises(zcd.ConfigError, match=message):
        zcd.open(photos_path, transform)


def test_torchvisions_operations_in_a_list_are_explained(photos_path: Path) -> None:
    transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")
    with pytest.raises(zcd.ConfigError, match=r"use zcd\.CenterCrop .*or give a single callable"):
        zcd.open(photos_path, [transforms.CenterCrop(8)])


def test_a_transform_without_a_name_needs_one_image_column(columns_path: Path) -> None:
    with pytest.raises(zcd.ConfigError, match=r"exactly one Image column.*\['image', 'pixels'\]"):
        zcd.open(columns_path, CROP)


def test_importing_and_packing_do_not_import_torch() -> None:
    code = "import sys, zerocopy_data as z; z.pack, z.DatasetWriter, z.Image, z.Resize; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_loading_other_datasets_imports_neither_arrow_nor_pillow() -> None:
    code = (
        "import sys, torch, zerocopy_data as z\n"
        "dataset = torch.utils.data.TensorDataset(torch.arange(8))\n"
        "for kind in (z.DataLoader, z.StatefulDataLoader):\n"
        "    assert len(list(kind(dataset, batch_size=2, num_workers=1))) == 4\n"
        "print(sorted({'pyarrow', 'PIL', 'torchvision'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

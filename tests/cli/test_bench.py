"""`zcd bench images` measures loaders side by side on a folder."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from zerocopy_data.cli import app
from zerocopy_data.errors import ConfigError, SourceError
from zerocopy_data.tuning import array_arms, image_arms, token_arms
from zerocopy_data.tuning.arrays import Request as ArrayRequest
from zerocopy_data.tuning.images import Request, find_tree
from zerocopy_data.tuning.tokens import Request as TokenRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixteen JPEGs of noise in two classes."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 256, (240, 320, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.jpg")
    return tmp_path / "images"


def test_report_holds_every_installed_loader_beside_ours_and_the_temporary_pack_is_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    absent = image_arms.Loader(image_arms.DaliArm, {"no.such.module": "pip install it"}, ("train-uint8",))
    monkeypatch.setitem(image_arms.LOADERS, "dali", absent)
    out = tmp_path / "report.json"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = (
        f"bench images --data {folder} --peers torch,dali --workloads train-uint8 --batch-size 8 "
        f"--threads 1 --repeats 2 --seconds 0 --epoch-items 16 --scratch {scratch} --json {out}"
    )
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    assert "pip install it" in result.output
    report = json.loads(out.read_text())
    assert report["skipped"] == {"dali": "pip install it"}
    assert report["machine"]["cores"] >= 1
    assert report["versions"]["torch"]
    measured = {(one["loader"], one["workload"]): one for one in report["results"]}
    assert set(measured) == {("zcd", "train-uint8"), ("torch", "train-uint8")}
    for one in measured.values():
        assert 0 < one["low"] <= one["items_per_s"] <= one["high"]
        assert len(one["samples"]) == 2
        assert one["cpu_s_per_item"] >= 0
        assert one["peak_pss_mb"] > 10
    assert [(one["workload"], one["over"]) for one in report["ratios"]] == [("train-uint8", "torch")]
    assert list(scratch.iterdir()) == []


def test_unknown_names_are_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no loader 'ffcv'; there are zcd, .*torch"):
        Request(tmp_path, ("ffcv",), ("train-uint8",))
    with pytest.raises(ConfigError, match=r"no workload 'train'; there are train-uint8"):
        Request(tmp_path, ("zcd",), ("train",))


def test_folder_without_class_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loose.jpg").write_bytes(b"")
    with pytest.raises(SourceError, match="no ImageFolder tree"):
        find_tree(tmp_path)


def test_train_below_the_folder_is_found(folder: Path) -> None:
    train = folder.parent / "imagenet" / "train"
    train.parent.mkdir()
    folder.rename(train)
    assert find_tree(train.parent) == train


def test_arrays_are_measured_beside_torch_and_all_loaders_deliver_the_same_rows(tmp_path: Path) -> None:
    out, scratch = tmp_path / "report.json", tmp_path / "scratch"
    scratch.mkdir()
    command = "bench arrays --peers torch --rows 300 --row-bytes 24 --batch-size 32 --repeats 1 --seconds 0"
    command += f" --scratch {scratch} --json {out}"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    assert "rows/s" in result.output
    report = json.loads(out.read_text())
    assert [one["loader"] for one in report["results"]] == ["zcd", "torch"]
    assert [one["over"] for one in report["ratios"]] == ["torch"]
    assert list(scratch.iterdir()) == []
    setting = array_arms.Rows(array_arms.pack_rows(tmp_path / "rows", 300, 24), 300, 24, 32, 0)
    assert array_arms.IndexedArm(setting).epoch() == 288
    arms = [array_arms.ZcdArm(setting, True), array_arms.ZcdArm(setting, False), array_arms.TorchArm(setting)]
    delivered = [
        sorted(
            (bytes(row.numpy()), int(label))
            for rows, labels in arm.loader
            for row, label in zip(rows, labels, strict=True)
        )
        for arm in arms
    ]
    whole = sorted((row.tobytes(), int(label)) for row, label in zip(*array_arms.part_of(300, 24, 0), strict=True))
    assert {len(rows) for rows in delivered} == {288}
    assert all(set(rows) <= set(whole) for rows in delivered)


def test_too_few_rows_for_a_batch_and_unknown_loaders_are_refused() -> None:
    with pytest.raises(ConfigError, match="no whole batch"):
        ArrayRequest(("zcd",), rows=5)
    with pytest.raises(ConfigError, match="there are zcd, "):
        ArrayRequest(("ffcv",))


def test_tokens_are_measured_beside_torch_and_nanogpts_loop(tmp_path: Path) -> None:
    out, scratch = tmp_path / "report.json", tmp_path / "scratch"
    scratch.mkdir()
    command = "bench tokens --peers nanogpt --megabytes 1 --length 16 --batch-size 4 --repeats 1 --seconds 0"
    result = CliRunner().invoke(app, [*command.split(), "--scratch", str(scratch), "--json", str(out)])
    assert result.exit_code == 0, result.output
    assert "tokens/s" in result.output
    assert "Moved" in result.output
    report = json.loads(out.read_text())
    assert [one["loader"] for one in report["results"]] == ["zcd", "nanogpt"]
    assert [one["bytes_moved_per_byte"] for one in report["results"]] == [1.125, 3.25]
    assert list(scratch.iterdir()) == []
    token_arms.write_tokens(tmp_path / "train.bin", 1)
    stream = token_arms.Stream(tmp_path / "train.bin", 16, 4, 0)
    data = np.fromfile(stream.path, np.uint16).astype(np.int64)
    windows = {data[start : start + 17].tobytes() for start in range(0, len(data) - 16, 16)}
    for arm in (token_arms.ZcdArm(stream), token_arms.TorchArm(stream)):
        for x, y in itertools.islice(arm.loader, 50):
            assert all(np.append(a, b[-1:]).tobytes() in windows for a, b in zip(x.numpy(), y.numpy(), strict=True))
            assert (x[:, 1:] == y[:, :-1]).all()
    x, y = token_arms.GetBatch(stream, False).batch()
    assert x.shape == y.shape == (4, 16)
    assert (x[:, 1:] == y[:, :-1]).all()
    with pytest.raises(ConfigError, match="hold no batch"):
        TokenRequest(("zcd",), megabytes=1, length=2**20)

"""The output folder: what may be replaced, what an interrupted write leaves, and what a full disk says."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zerocopy_data.errors import OutputExistsError, PackError, UnfinishedPackError
from zerocopy_data.format.fields import Scalar, Tensor
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.writer import DatasetWriter

FIELDS = {"x": Scalar()}


def test_a_finished_dataset_holds_nothing_but_shards_and_manifest(make_dataset: Callable[..., Path]) -> None:
    names = {path.name for path in make_dataset(40).iterdir()}
    assert {name for name in names if not name.startswith("shard-")} == {"dataset.json"}


def test_an_error_in_the_writing_program_leaves_an_unfinished_pack(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), DatasetWriter(tmp_path / "d", FIELDS, shard_size=1000) as writer:
        _write_and_fail(writer)
    with pytest.raises(UnfinishedPackError):
        DatasetReader(tmp_path / "d")
    with pytest.raises(OutputExistsError, match=r"unfinished pack.*--overwrite"):
        DatasetWriter(tmp_path / "d", FIELDS)
    with DatasetWriter(tmp_path / "d", FIELDS, overwrite=True) as writer:
        writer.write({"x": 5})
    assert DatasetReader(tmp_path / "d").value("x", 0) == 5


def _write_and_fail(writer: DatasetWriter) -> None:
    for number in range(2000):  # some shards are whole by then
        writer.write({"x": number})
    writer.write({"x": 1 // 0})


def test_an_error_before_the_first_shard_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), DatasetWriter(tmp_path / "d", FIELDS) as writer:
        writer.write({"x": 1 // 0})
    assert not (tmp_path / "d").exists()


def test_a_dataset_is_replaced_only_when_asked(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(40)
    with pytest.raises(OutputExistsError, match="holds a dataset already"):
        DatasetWriter(folder, FIELDS)
    assert DatasetReader(folder).num_rows == 40
    with DatasetWriter(folder, FIELDS, overwrite=True) as writer:
        writer.write({"x": 5})
    assert {path.name for path in folder.iterdir()} == {"dataset.json", "shard-00000.arrow"}


@pytest.mark.parametrize("name", ["notes.txt", "shard.arrow", "train/photo.jpg", "other/dataset.json"])
def test_somebody_elses_folder_is_never_replaced(make_dataset: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder = make_dataset(3)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("precious")
    before = sorted(folder.rglob("*"))
    with pytest.raises(OutputExistsError, match="which no pack made"):
        DatasetWriter(folder, FIELDS, overwrite=True)
    assert sorted(folder.rglob("*")) == before


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("x")
    with pytest.raises(OutputExistsError, match="no folder"):
        DatasetWriter(tmp_path / "d", FIELDS, overwrite=True)


def test_a_second_writer_is_refused_while_the_first_works(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", FIELDS) as writer:
        with pytest.raises(OutputExistsError, match="another pack"):
            DatasetWriter(tmp_path / "d", FIELDS, overwrite=True)
        writer.write({"x": 1})
    assert DatasetReader(tmp_path / "d").num_rows == 1


def test_a_full_disk_is_an_error_in_words_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with (
            pytest.raises(PackError, match="largest file allowed"),
            DatasetWriter(tmp_path / "d", {"x": Tensor("uint8", (1000,))}, row_group_size=50_000) as writer,
        ):
            writer.write_columns({"x": np.zeros((1000, 1000), np.uint8)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "d").exists(), "no shard was written, so nothing stays"

"""How shards are mapped: no descriptor kept, alive as long as any view, gone with the last one."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_samples import sample

from zerocopy_data.errors import DatasetChangedError, ShardDamagedError, ZcdError
from zerocopy_data.format.fields import Scalar
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.shard import Shard
from zerocopy_data.format.writer import DatasetWriter

MAP_EVERY_SHARD = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from zerocopy_data.format.reader import DatasetReader
reader = DatasetReader(sys.argv[1])
before = len(os.listdir("/proc/self/fd"))
assert [int(reader.value("x", row)) for row in range(reader.num_rows)] == list(range(reader.num_rows))
assert len(os.listdir("/proc/self/fd")) == before
print(reader.num_shards)
"""


def mapped(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_more_shards_than_open_files_may_be_mapped(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", {"x": Scalar()}, shard_size=1, row_group_size=1) as writer:
        writer.write_columns({"x": np.arange(1200)})
    result = run(MAP_EVERY_SHARD, str(tmp_path / "d"))
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == "1200"


VIEWS: dict[str, Callable[[Shard], Any]] = {
    "memoryview": lambda shard: shard.value("image", 2),
    "array": lambda shard: shard.value("pixels", 2),
    "chunk": lambda shard: shard.chunks("pixels")[0],
    "arrow": lambda shard: shard._batches[0].column(0),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_the_map_lasts_as_long_as_a_view_and_no_longer(make_dataset: Callable[..., Path], kind: str) -> None:
    folder = make_dataset(3)
    path = folder / "shard-00000.arrow"
    reader = DatasetReader(folder)
    view = VIEWS[kind](reader.shard(0))
    del reader
    gc.collect()
    assert mapped(path) == 1
    if kind == "memoryview":
        assert bytes(view) == sample(2)["image"]
    elif kind == "array":
        np.testing.assert_array_equal(view, sample(2)["pixels"])
    elif kind == "arrow":
        assert view[2].as_py()["bytes"] == sample(2)["image"]
    del view
    gc.collect()
    assert mapped(path) == 0


def test_a_view_in_a_garbage_cycle_is_valid_in_del(make_dataset: Callable[..., Path]) -> None:
    """The garbage collector runs weak references' callbacks before it runs `__del__`."""
    folder = make_dataset(3)
    seen: list[bytes] = []

    class Holder:
        def __init__(self) -> None:
            self.shard = DatasetReader(folder).shard(0)
            self.view = self.shard.value("image", 2)
            self.itself = self

        def __del__(self) -> None:
            seen.append(bytes(self.view))

    Holder()
    gc.collect()
    assert seen == [sample(2)["image"]]
    assert mapped(folder / "shard-00000.arrow") == 0


def test_a_shard_larger_than_the_memory_can_be_mapped(tmp_path: Path) -> None:
    """The kernel must not count the map as memory: it is marked `nr` (no reserve)."""
    with DatasetWriter(tmp_path / "d", {"x": Scalar()}) as writer:
        writer.write({"x": 1})
    reader = DatasetReader(tmp_path / "d")
    reader.value("x", 0)
    _, _, after = Path("/proc/self/smaps").read_text().partition(str(tmp_path / "d" / "shard-00000.arrow"))
    flags = next(line for line in after.splitlines() if line.startswith("VmFlags:"))
    assert "nr" in flags.split()


def test_too_many_open_files_are_no_damage(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(3))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(ZcdError, match="ulimit -n") as caught:
            reader.shard(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not isinstance(caught.value, ShardDamagedError)
    assert reader.value("key", 2) == "é2"


NO_ADDRESS_SPACE = """
import os, resource, sys
from pathlib import Path
from zerocopy_data.errors import ShardDamagedError, ZcdError
from zerocopy_data.format.shard import _map_file
path = Path(sys.argv[1])
with open(path, "wb") as file:
    file.truncate(1 << 40)
resource.setrlimit(resource.RLIMIT_AS, (1 << 38, 1 << 38))
try:
    _map_file(path, 1 << 40)
except ShardDamagedError:
    raise
except ZcdError as error:
    print(error)
"""


def test_no_memory_is_no_damage(tmp_path: Path) -> None:
    result = run(NO_ADDRESS_SPACE, str(tmp_path / "large"))
    assert result.returncode == 0, result.stderr[-2000:]
    assert "memory" in result.stdout


@pytest.mark.parametrize("change", ["packed again", "removed", "half-way"])
def test_a_shard_of_another_pack_is_not_mapped(make_dataset: Callable[..., Path], change: str) -> None:
    folder = make_dataset(40)
    reader = DatasetReader(folder)
    first = reader.value("key", 0)
    if change == "packed again":
        make_dataset(40, overwrite=True)
    else:
        (folder / "dataset.json").unlink()
    if change == "half-way":
        reader.path.joinpath("shard-00001.arrow").unlink()
    with pytest.raises(DatasetChangedError, match=r"packed again since it was opened\. Open it again"):
        reader.shard(1)
    assert reader.value("key", 0) == first, "what is mapped stays"

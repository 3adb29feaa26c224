"""Pages of coming batches are asked for while data is cold; nothing else about an epoch changes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from loader_data import CROP, ROWS, NoThreadLeft, cloned, copied, flip_byte, wait_until, write_photos
from token_data import write_documents
from torch.utils.data import BatchSampler, SequentialSampler

import zerocopy_data as zcd
from zerocopy_data.loader import read_ahead
from zerocopy_data.loader.columns import ShardColumn
from zerocopy_data.loader.read_ahead import BATCHES, FIRST, ReadAhead

PAGE = mmap.PAGESIZE
ROW = 5000  # bytes: rows begin anywhere in a page
Ranges = list[tuple[int, int]]


@pytest.fixture(scope="module")
def wide_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 rows of 5,000 bytes and a number, in shards of some 1 MB with row groups of some 200 KB."""
    path = tmp_path_factory.mktemp("ahead") / "wide"
    fields = {"data": zcd.Tensor("uint8", (ROW,)), "number": zcd.Scalar("int64")}
    with zcd.DatasetWriter(path, fields, shard_size=1 << 20, row_group_size=200_000) as writer:
        for number in range(600):
            writer.write({"data": np.full(ROW, number % 251, np.uint8), "number": number})
    return path


@pytest.fixture
def wide(wide_path: Path) -> zcd.ShardDataset:
    return zcd.open(wide_path)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look finds that this process has waited for the disk."""
    faults = iter(range(1, 1 << 40))
    monkeypatch.setattr(read_ahead, "major_faults", lambda: next(faults))


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look does."""
    monkeypatch.setattr(read_ahead, "major_faults", lambda: 0)
    monkeypatch.setattr(read_ahead, "blocks_read", lambda: 0)


def loader_over(ds: Any, **options: Any) -> Any:
    return zcd.DataLoader(ds, **{"batch_size": 4, "shuffle": True, "seed": 3, **options})


def pages_of(column: ShardColumn, rows: list[int]) -> set[int]:
    """Numbers of the pages that values lie in, found one by one."""
    pages: set[int] = set()
    for row in rows:
        index, local = column.reader.locate(row)
        shard = column.reader.shard(index)
        group, inside = shard.locate(local)
        value = np.frombuffer(shard.chunks(column.name)[group].slice(inside), np.uint8)
        if len(value):
            pages.update(range(value.ctypes.data // PAGE, (value.ctypes.data + len(value) - 1) // PAGE + 1))
    return pages


def pages_in(ranges: Ranges) -> list[int]:
    return [page for begin, size in ranges for page in range(begin // PAGE, (begin + size) // PAGE)]


@pytest.mark.parametrize("name", ["data", "number"])
@pytest.mark.parametrize("seed", range(3))
def test_without_a_gap_the_pages_of_the_rows_are_asked_for_and_no_others(
    wide: zcd.ShardDataset, name: str, seed: int
) -> None:
    column = ShardColumn(wide.reader, name, True)
    rows = np.random.default_rng(seed).integers(0, len(wide), 100)
    [extents] = column.extents(rows, 0)
    ranges = extents.pieces()
    assert all(begin % PAGE == 0 and size % PAGE == 0 and size > 0 for begin, size in ranges)
    assert all(begin + size < other for (begin, size), (other, _) in itertools.pairwise(ranges))
    assert pages_in(ranges) == sorted(pages_of(column, rows.tolist()))
    assert extents.bytes == sum(size for _, size in ranges)


def test_values_of_varying_length_too_and_empty_ones_have_no_pages(columns_path: Path) -> None:
    ds = zcd.open(columns_path)
    for name in ("image", "blob", "key", "half"):
        column = ShardColumn(ds.reader, name, True)
        ranges = column.extents(np.arange(len(ds)), 0)[0].pieces()
        assert set(pages_in(ranges)) == pages_of(column, list(range(len(ds))))
    assert ShardColumn(ds.reader, "blob", True).extents(np.array([0]), 0)[0].pieces() == []


def test_neighbours_are_joined_and_gaps_bridged_within_a_row_group_alone(wide: zcd.ShardDataset) -> None:
    column = ShardColumn(wide.reader, "data", True)
    rows = np.arange(0, len(wide), 4)
    apart, bridged = (column.extents(rows, gap)[0].pieces() for gap in (0, 4 * ROW))
    groups = set()
    for row in rows.tolist():
        index, local = wide.reader.locate(row)
        groups.add((index, wide.reader.shard(index).locate(local)[0]))
    assert len(apart) == len(rows)
    assert len(bridged) == len(groups)
    assert set(pages_in(apart)) < set(pages_in(bridged))
    whole = column.extents(np.random.default_rng(0).permutation(len(wide)), 0)[0].pieces()
    assert len(whole) <= len(groups)


def test_rows_that_do_not_exist_are_refused_and_shards_not_mapped_have_no_pages(wide: zcd.ShardDataset) -> None:
    column = ShardColumn(wide.reader, "data", True)
    for row in (-1, len(wide)):
        with pytest.raises(IndexError, match=f"row {row} of"):
            column.native.extents(np.array([row]), 0)
    assert column.native.extents(np.array([0]), 0).pieces() == []


def test_asking_stops_where_there_is_no_room(wide: zcd.ShardDataset) -> None:
    extents = ShardColumn(wide.reader, "data", True).extents(np.arange(0, 600, 50), 0)[0]
    sizes = [size for _, size in extents.pieces()]
    assert extents.ask(extents.bytes) == extents.bytes
    assert extents.ask(sum(sizes[:3]) + 1) == sum(sizes[:3])
    assert extents.ask(0) == 0


def drop(ds: zcd.ShardDataset) -> None:
    for entry in ds.reader.manifest.shards:
        descriptor = os.open(ds.path / entry.file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident(ranges: Ranges) -> list[bool]:
    libc = ctypes.CDLL(None, use_errno=True)
    out: list[bool] = []
    for begin, size in ranges:
        found = (ctypes.c_ubyte * (size // PAGE))()
        assert libc.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size), found) == 0
        out += [bool(state & 1) for state in found]
    return out


def test_what_was_asked_for_comes_into_memory_by_itself(wide_path: Path, tmp_path: Path) -> None:
    ds = zcd.open(copied(wide_path, tmp_path / "copy"))
    column = ShardColumn(ds.reader, "data", True)
    column.map(np.arange(len(ds)))
    column.read_at_random(True)
    drop(zcd.open(ds.path))
    [extents] = column.extents(np.arange(0, 600, 30), 0)
    absent = [piece for piece in extents.pieces() if not any(resident([piece]))]  # what has been touched stays
    if len(absent) < 3:
        pytest.skip(f"the page cache of {tmp_path} can't be dropped: a file system in memory, say")
    extents.ask(extents.bytes)
    assert wait_until(lambda: all(resident(absent)), 10)


def test_windows_of_tokens_have_extents_too(tmp_path: Path) -> None:
    write_documents(tmp_path / "ds", [3000, 500, 2000, 4000])
    ds = zcd.windows(zcd.open(tmp_path / "ds"), length=64)
    column: Any = ds.native_column("input")
    assert isinstance(column, read_ahead.Locatable)
    rows = np.arange(len(ds))
    expected = {
        page
        for row in rows.tolist()
        for piece in [ds.view(row)]
        if piece.base is not None
        for page in range(piece.ctypes.data // PAGE, (piece.ctypes.data + piece.nbytes - 1) // PAGE + 1)
    }
    assert expected
    assert expected <= set(pages_in(column.extents(rows, 0)[0].pieces()))
    with pytest.raises(IndexError, match="leaves the"):
        column._native.extents(np.array([len(ds.source.native) - 10]), 64, 0)
    with pytest.raises(ValueError, match="at least one token"):
        column._native.extents(np.array([0]), 0, 0)


class Counted:
    """Batches of consecutive samples, counting those drawn."""

    def __init__(self, batches: int, size: int = 4) -> None:
        self.left, self.size, self.drawn = batches, size, 0

    def __call__(self) -> npt.NDArray[np.int64] | None:
        if self.drawn == self.left:
            return None
        self.drawn += 1
        return np.arange((self.drawn - 1) * self.size, self.drawn * self.size)


def settled(ahead: ReadAhead) -> None:
    assert wait_until(lambda: not ahead._working)


@pytest.mark.usefixtures("cold")
def test_no_more_is_asked_for_than_the_budget_allows(wide: zcd.ShardDataset) -> None:
    each = ShardColumn(wide.reader, "data", True).extents(np.arange(4), 0)[0].bytes
    budget = 5 * each + each // 2
    draw, ahead = Counted(150), ReadAhead(wide.select(["data"]), budget, 2)
    begun = 0
    while ahead.next(draw) is not None:
        begun += 1
        ahead.look_ahead(draw)
        settled(ahead)
        assert ahead._outstanding <= budget
        assert draw.drawn <= begun + BATCHES
        if begun < 100:
            assert ahead._outstanding > budget // 2
    assert begun == 150
    assert ahead._outstanding == 0
    assert ahead.asked >= 600 * ROW
    ahead.close()


@pytest.mark.usefixtures("cold")
def test_of_a_batch_larger_than_the_budget_as_much_is_asked_for_as_fits(wide: zcd.ShardDataset) -> None:
    draw, ahead = Counted(2, 300), ReadAhead(wide.select(["data"]), 500_000, 1)
    ahead.look_ahead(draw)
    settled(ahead)
    assert 100_000 < ahead._outstanding <= 500_000
    ahead.close()


@pytest.mark.usefixtures("warm")
def test_while_all_is_in_memory_only_an_epochs_first_batches_are_asked_for(wide: zcd.ShardDataset) -> None:
    draw, ahead = Counted(150), ReadAhead(wide, 1 << 30, 2)
    while ahead.next(draw) is not None:
        ahead.look_ahead(draw)
        settled(ahead)
        assert len(ahead) < FIRST
    assert 0 < ahead.asked < (FIRST + 2) * 4 * (ROW + 4 * PAGE)
    assert wait_until(lambda: not ahead._at_random and not ahead_threads())
    ahead.close()


def test_data_that_becomes_cold_again_is_asked_for_again(
    wide: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = 0
    monkeypatch.setattr(read_ahead, "major_faults", lambda: faults)
    monkeypatch.setattr(read_ahead, "blocks_read", lambda: 0)
    draw, ahead = Counted(150), ReadAhead(wide, 1 << 30, 2)
    for begun in range(150):
        if begun == 80:
            assert len(ahead) == 0
            assert wait_until(lambda: not ahead_threads())
            faults += 1
        ahead.next(draw)
        ahead.look_ahead(draw)
        settled(ahead)
        if begun == 80:
            assert draw.drawn == 81 + BATCHES
            assert ahead._at_random
    ahead.close()


def test_blocks_that_asking_brings_keep_it_going(wide: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = iter(range(1, 1 << 40))
    monkeypatch.setattr(read_ahead, "major_faults", lambda: 0)
    monkeypatch.setattr(read_ahead, "blocks_read", lambda: next(blocks))
    draw, ahead = Counted(150), ReadAhead(wide, 1 << 30, 2)
    for _ in range(60):
        ahead.next(draw)
        ahead.look_ahead(draw)
        settled(ahead)
    assert draw.drawn == 60 + BATCHES
    ahead.close()


def values_of(loader: Any) -> list[Any]:
    return [cloned(batch) for batch in loader]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("workers", [0, 2])
def test_order_and_bytes_are_the_same(photos: zcd.ShardDataset, workers: int) -> None:
    ds = photos.subset(list(range(ROWS)) * 6)
    for options in ({}, {"shuffle": None, "sampler": zcd.EpochSampler(len(ds), 5, shuffle="window", window=50)}):
        first, second = (loader_over(ds, num_workers=workers, read_ahead=n, **options) for n in (0, 60_000))
        for _ in range(2):
            one, other = values_of(first), values_of(second)
            assert len(one) == len(other) == -(-len(ds) // 4)
            for mine, theirs in zip(one, other, strict=True):
                assert mine["key"] == theirs["key"]
                assert all(torch.equal(mine[name], theirs[name]) for name in ("image", "label", "number"))


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_what_it_is_without(photos: zcd.ShardDataset, workers: int) -> None:
    def stateful(budget: int) -> Any:
        options = {"shuffle": True, "seed": 3, "num_workers": workers, "read_ahead": budget}
        return zcd.StatefulDataLoader(photos.subset(list(range(ROWS)) * 3), 4, **options)

    plain, ahead = stateful(0), stateful(1 << 20)
    one, other = iter(plain), iter(ahead)
    for _ in range(7):
        assert next(one)["number"].tolist() == next(other)["number"].tolist()
        assert plain.state_dict() == ahead.state_dict()
    resumed = stateful(1 << 20)
    resumed.load_state_dict(ahead.state_dict())
    assert [b["number"].tolist() for b in resumed] == [b["number"].tolist() for b in one]
    list(other)
    assert plain.state_dict() == ahead.state_dict()


class Watched(BatchSampler):
    """Counts what is drawn; no sampler of ours."""

    drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            self.drawn += 1
            yield batch


@pytest.mark.usefixtures("cold")
def test_samplers_of_others_are_asked_no_earlier(wide: zcd.ShardDataset) -> None:
    drawn = []
    for budget in (0, 1 << 30):
        batches = Watched(SequentialSampler(wide), 4, False)
        iterator: Any = iter(zcd.DataLoader(wide, batch_sampler=batches, num_workers=2, read_ahead=budget))
        next(iterator)
        assert iterator._ahead is None
        drawn.append(batches.drawn)
    assert drawn[0] == drawn[1] < 10
    assert iter(zcd.DataLoader(wide, 4, shuffle=True, read_ahead=1 << 30))._ahead is None  # torch's RandomSampler


@pytest.mark.usefixtures("cold")
def test_switched_off_there_is_no_thread(wide: zcd.ShardDataset) -> None:
    iterator = iter(loader_over(wide, read_ahead=0))
    next(iterator)
    assert not ahead_threads()
    iterator = iter(loader_over(wide))
    next(iterator)
    assert len(ahead_threads()) == 1


def ahead_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zcd-ahead")]


def exhausted(iterator: Any) -> None:
    for _ in iterator:
        pass


def dropped(iterator: Any) -> None:
    next(iterator)


def raised(iterator: Any) -> None:
    for _ in iterator:
        raise ArithmeticError


def collected(iterator: Any) -> None:
    next(iterator)
    iterator.itself = iterator
    del iterator
    gc.collect()


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("end", [exhausted, dropped, raised, collected], ids=lambda end: end.__name__)
def test_the_thread_ends(wide: zcd.ShardDataset, end: Callable[[Any], None], workers: int) -> None:
    loader = loader_over(wide, num_workers=workers)
    with NoThreadLeft():
        with contextlib.suppress(ArithmeticError):
            end(iter(loader))
        gc.collect()
        assert not ahead_threads()


@pytest.mark.usefixtures("cold")
def test_an_interrupt_while_drawing_ends_the_thread(wide: zcd.ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    iterator: Any = iter(loader_over(wide))
    next(iterator)
    assert ahead_threads()

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with NoThreadLeft():
        monkeypatch.setattr(iterator, "_next_index", interrupted)
        with pytest.raises(KeyboardInterrupt):
            exhausted(iterator)
        assert not ahead_threads()
        monkeypatch.undo()


@pytest.mark.usefixtures("cold")
@pytest.mark.filterwarnings("ignore:This process .*multi-threaded")
def test_a_forked_child_leaves_the_thread_alone(wide: zcd.ShardDataset) -> None:
    holder = [iter(loader_over(wide))]
    next(holder[0])
    child = os.fork()
    if child == 0:
        holder.clear()
        gc.collect()
        os._exit(0 if sum(len(b["number"]) for b in loader_over(wide, num_workers=1)) == len(wide) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(len(batch["number"]) for batch in holder[0]) == len(wide) - 4


def served_into(rows: list[int], loader: Any) -> None:
    for batch in loader:
        rows += batch["number"].tolist()


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_missing_shard_is_told_when_its_batch_comes(tmp_path: Path, workers: int) -> None:
    path = write_photos(tmp_path / "ds")
    ds = zcd.open(path, CROP)
    assert ds.reader.num_shards > 2
    (path / ds.reader.manifest.shards[-1].file).unlink()
    first = int(ds.reader.shard_starts[-2])
    served = {}
    for budget in (0, 1 << 20):
        sampler = zcd.EpochSampler(len(ds), shuffle="none")
        loader: Any = zcd.DataLoader(zcd.open(path, CROP), 4, sampler=sampler, num_workers=workers, read_ahead=budget)
        rows: list[int] = []
        with NoThreadLeft(), pytest.raises(zcd.ShardDamagedError, match="missing"):
            served_into(rows, loader)
        served[budget] = rows
    assert served[0] == served[1 << 20] == list(range(first - first % 4))


@pytest.mark.usefixtures("cold")
def test_a_bad_sample_is_told_when_its_batch_comes(photos_path: Path, tmp_path: Path) -> None:
    path = copied(photos_path, tmp_path / "ds")
    flip_byte(zcd.open(path), 30)
    loader: Any = zcd.DataLoader(zcd.open(path, CROP), 4, sampler=zcd.EpochSampler(ROWS, shuffle="none"))
    rows: list[int] = []
    with pytest.raises(zcd.BadSampleError) as caught:
        served_into(rows, loader)
    assert caught.value.row == 30
    assert rows == list(range(28))


@pytest.mark.parametrize("budget", [-1, 1.5, "1 GB", None, True])
def test_the_budget_is_a_number_of_bytes(wide: zcd.ShardDataset, budget: Any) -> None:
    with pytest.raises(zcd.ConfigError, match="read_ahead"):
        zcd.DataLoader(wide, read_ahead=budget)


@pytest.mark.usefixtures("cold")
def test_folders_of_files_are_passed_over() -> None:
    class Nothing:
        columns = ("image",)

        def native_column(self, name: str) -> object:
            return object()

    draw, ahead = Counted(50), ReadAhead(Nothing(), 1 << 20, 2)  # type: ignore[arg-type]
    ahead.look_ahead(draw)
    settled(ahead)
    drawn = draw.drawn
    ahead.look_ahead(draw)
    assert (draw.drawn, ahead.asked) == (drawn, 0)
    ahead.close()


SCRIPT = """
import sys
import zerocopy_data as zcd
from zerocopy_data.loader import read_ahead
faults = iter(range(1, 1 << 40))
read_ahead.major_faults = lambda: next(faults)
loader = zcd.DataLoader(zcd.open(sys.argv[1]), 4, shuffle=True, seed=0, num_workers=2)
iterator = iter(loader)
next(iterator)
assert iterator._ahead._executor is not None
"""


def test_the_interpreter_exits_quietly_with_a_live_iterator_that_reads_ahead(wide_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::UserWarning", "-c", SCRIPT, str(wide_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")

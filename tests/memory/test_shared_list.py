"""`zcd.share`: a list whose items lie in shared memory."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections import deque, namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import zerocopy_data as zcd
from zerocopy_data.tuning.processes import memory

Point = namedtuple("Point", "x y")

LISTS: dict[str, list[Any]] = {
    "empty": [],
    "strings": ["", "a", "é/☃", "x" * 10_000, "\udc80broken", "nul\0inside"],
    "bytes": [b"", b"\0\xff", b"z" * 5000],
    "integers": [0, -1, 2**63 - 1, -(2**63)],
    "large integers": [1, 2**63, -(2**200)],
    "floats": [0.0, -0.0, 1e300, float("inf"), 5e-324],
    "bools": [True, False, True],
    "bools and integers": [True, 1, False, 0],
    "mixture": ["a", b"a", 1, 1.5, None, (1, "two"), [3], {"four": 4}],
    "dicts": [{"path": f"{i}.jpg", "label": i, "boxes": [(i, i + 1, 2.5)] * (i % 3)} for i in range(50)],
    "tuples": [("a.jpg", 1), ("b.jpg", 2)],
    "named tuples": [Point(1, 2), Point("x", None)],
    "nested": [[["a", {"b": [1, (2, {3})]}]]],
    "subclasses": [np.str_("a"), np.float64(1.5)],
    "more than a block": [f"item {i}" for i in range(10_000)],
}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("items", LISTS.values(), ids=LISTS.keys())
def test_items_come_back_with_their_types(items: list[Any]) -> None:
    shared = zcd.share(items)
    assert len(shared) == len(items)
    assert list(shared) == items
    assert [type(item) for item in shared] == [type(item) for item in items]
    assert [shared[i] for i in range(-len(items), len(items))] == items * 2


def test_signs_and_nans_of_floats_are_kept() -> None:
    shared = zcd.share([-0.0, float("nan")])
    assert str(shared[0]) == "-0.0"
    assert shared[1] != shared[1]


def test_arrays_and_tensors_inside_items() -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    complex_tensor = torch.tensor([1 + 2j, 3 - 1j]).conj()
    items = [
        {"array": matrix, "column": matrix[:, 1], "tensor": torch.arange(5), "names": np.array(["a", None], object)},
        {"half": torch.ones(2, 3, dtype=torch.bfloat16).T, "conj": complex_tensor, "zero": torch.tensor(7)},
        torch.nn.Parameter(torch.ones(3)),
        torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=True),
    ]
    shared = zcd.share(items)
    first, second = shared[0], shared[1]
    assert np.array_equal(first["array"], matrix)
    assert np.array_equal(first["column"], matrix[:, 1])
    assert first["array"].dtype == np.float64
    assert first["names"].tolist() == ["a", None]
    assert torch.equal(first["tensor"], torch.arange(5))
    assert torch.equal(second["half"], items[1]["half"])
    assert second["half"].dtype == torch.bfloat16
    assert torch.equal(second["conj"].resolve_conj(), complex_tensor.resolve_conj())
    assert second["zero"].item() == 7
    assert isinstance(shared[2], torch.nn.Parameter)
    assert shared[2].requires_grad
    assert torch.equal(shared[3].to_dense(), items[3].to_dense())
    first["array"][:] = 0  # what an item is decoded to belongs to the caller
    first["tensor"].zero_()
    assert np.array_equal(shared[0]["array"], matrix)
    assert torch.equal(shared[0]["tensor"], torch.arange(5))


def test_rows_of_a_large_tensor_do_not_bring_the_tensor_each() -> None:
    table = torch.arange(200_000.0).reshape(1000, 200)
    shared = zcd.share(list(table))
    assert shared._store.size < 3 * table.nbytes
    assert torch.equal(torch.stack(list(shared)), table)


def test_it_is_a_read_only_sequence() -> None:
    items = ["a", "b", "c", "b"]
    shared = zcd.share(items)
    assert isinstance(shared, Sequence)
    assert shared.index("b") == 1
    assert shared.index("b", 2) == 3
    assert shared.count("b") == 2
    assert "c" in shared
    assert "d" not in shared
    assert list(reversed(shared)) == items[::-1]
    assert shared == items
    assert items == shared
    assert shared == zcd.share(items)
    assert shared != items[:3]
    assert shared != [*items[:3], "x"]
    assert shared != tuple(items)
    assert shared[np.int64(1)] == shared[torch.tensor(1)] == "b"
    with pytest.raises(TypeError):
        shared[0] = "x"  # type: ignore[index]
    with pytest.raises(TypeError):
        hash(shared)


@pytest.mark.parametrize("index", [4, -5, 10**30])
def test_an_index_outside_says_which(index: int) -> None:
    with pytest.raises(IndexError, match=rf"item {index} of a SharedList with 4 items"):
        zcd.share(list("abcd"))[index]


def test_an_index_that_is_none() -> None:
    with pytest.raises(TypeError, match="integers or slices, not str"):
        zcd.share(["a"])["a"]  # type: ignore[call-overload]


SLICES = [slice(None), slice(2, 7), slice(None, None, -1), slice(8, 1, -3), slice(5, 5), slice(-3, None)]


@pytest.mark.parametrize("cut", SLICES, ids=str)
def test_slices_are_views(cut: slice) -> None:
    items = [str(i) for i in range(10)]
    shared = zcd.share(items)
    before = descriptors()
    view = shared[cut]
    assert isinstance(view, zcd.SharedList)
    assert descriptors() == before
    assert view == items[cut]
    assert view[1:][::-1] == items[cut][1:][::-1]
    assert pickle.loads(pickle.dumps(view)) == items[cut]


def test_its_repr_is_short() -> None:
    assert repr(zcd.share(["x" * 1000] * 5000)) == "SharedList(5000 items, str, 5.0 MB shared)"
    assert repr(zcd.share([(1, 2)])) == "SharedList(1 items, object, 0.0 MB shared)"


def test_a_generator_a_tuple_and_an_array_are_taken() -> None:
    assert zcd.share(str(i) for i in range(3)) == ["0", "1", "2"]
    assert zcd.share((1, 2)) == [1, 2]
    assert zcd.share(np.arange(3)) == [0, 1, 2]
    assert zcd.share(deque([1, 2])) == [1, 2]
    shared = zcd.share(["a"])
    assert zcd.share(shared) is shared


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}, 5, None], ids=repr)
def test_what_is_no_list_is_refused(wrong: Any) -> None:
    with pytest.raises(zcd.ConfigError, match=rf"takes a list, not {type(wrong).__name__}"):
        zcd.share(wrong)


def test_an_item_that_cannot_be_pickled_is_named() -> None:
    gc.collect()
    before = descriptors()
    with pytest.raises(zcd.ConfigError, match=r"item 5001, of type dict, cannot be pickled: .*lock"):
        zcd.share([*({"i": i} for i in range(5001)), {"lock": threading.Lock()}])
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize("name", ["strings", "integers", "bools", "dicts", "empty"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_plain_pickle_copies_the_items(name: str, protocol: int) -> None:
    shared = zcd.share(LISTS[name])
    copied = pickle.loads(pickle.dumps(shared, protocol))
    assert copied._store is not shared._store
    del shared
    assert copied == LISTS[name]


def test_a_pickled_view_leaves_the_rest_behind() -> None:
    for items in (["x" * 1000] * 1000, list(range(100_000))):
        shared = zcd.share(items)
        assert len(pickle.dumps(shared[10:20])) < len(pickle.dumps(shared)) / 50


def test_a_deep_copy_is_the_same_memory() -> None:
    shared = zcd.share([{"a": 1}])
    assert copy.deepcopy(shared)._store is shared._store
    assert copy.copy(shared) == shared


def test_it_keeps_one_descriptor_and_gives_everything_back() -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("zcd-share")

    gc.collect()
    before, mapped = descriptors(), maps()
    lists = [zcd.share([str(i)] * 1000) for i in range(5)]
    views = [shared[10:] for shared in lists]
    del lists
    assert descriptors() == before + 5
    assert maps() == mapped + 5
    assert views[0][0] == "0"
    del views
    assert descriptors() == before
    assert maps() == mapped


def test_garbage_that_reads_its_items_while_it_is_collected() -> None:
    seen = []

    class Dataset:
        def __init__(self) -> None:
            self.items = zcd.share(["a", "b"])
            self.me = self

        def __del__(self) -> None:
            seen.append(list(self.items))

    Dataset()
    gc.collect()
    assert seen == [["a", "b"]]


def test_the_memory_cannot_be_changed_by_anybody() -> None:
    shared = zcd.share(["abc"])
    descriptor = shared._store.descriptor
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(descriptor, b"x", 0)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(descriptor, 1)


class Names(Dataset[Any]):
    """Items and the memory that they lie in."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.names[index], self.names._store.inode

    def collate(self, batch: list[Any]) -> list[Any]:
        assert self.names._store is not None
        return batch


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_the_same_memory(method: str) -> None:
    items = [f"é{i}" for i in range(12)]
    shared = zcd.share(items)
    dataset = Names(shared[2:])
    loader = zcd.DataLoader(dataset, num_workers=2, multiprocessing_context=method, collate_fn=dataset.collate)
    got = [batch[0] for batch in loader]  # two pickles hold the list: the dataset's and the collation's
    assert [name for name, _ in got] == items[2:]
    assert {inode for _, inode in got} == {shared._store.inode}


def _report(connection: Any, first: Any, second: Any) -> None:
    connection.send((list(first), list(second), first._store is second._store, descriptors()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_opens_a_list_once(method: str) -> None:
    context = multiprocessing.get_context(method)
    shared = zcd.share([1.5, 2.5])
    ours, theirs = context.Pipe()
    process = context.Process(target=_report, args=(theirs, shared, shared[::-1]))
    process.start()
    first, second, same, _ = ours.recv()
    process.join()
    assert (first, second, same) == ([1.5, 2.5], [2.5, 1.5], True)
    assert process.exitcode == 0


def _double(items: Any) -> Any:
    return zcd.share([item * 2 for item in items])


def test_through_a_pool_it_travels_by_value() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_double, (zcd.share(["a", "b"]),)) == ["aa", "bb"]


def _walk(items: Any, connection: Any) -> None:
    gc.disable()  # a collection would touch every object of the process
    items[0]
    before = memory(os.getpid(), ("Private_Dirty",))
    total = sum(map(len, items))
    connection.send((total, memory(os.getpid(), ("Private_Dirty",)) - before))


def test_a_forked_worker_that_walks_it_copies_nothing_where_a_list_is_copied() -> None:
    items = [f"/data/train/class{i % 1000:04d}/image{i:012d}.jpg" for i in range(200_000)]
    fork = multiprocessing.get_context("fork")
    grown = []
    for held in (items, zcd.share(items)):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_walk, args=(held, theirs))
        process.start()
        total, growth = ours.recv()
        process.join()
        assert total == sum(map(len, items))
        grown.append(growth)
    assert grown[0] > 15e6
    assert grown[1] < 2e6


def test_numbers_and_strings_need_no_torch() -> None:
    code = "import sys, zerocopy_data as z; assert z.share(['a']) == ['a']; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

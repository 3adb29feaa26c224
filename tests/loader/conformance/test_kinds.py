"""Every kind of value crosses from a worker unchanged, with what it shares and what it weighs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from conformance_data import Floats, Made, as_is
from conformance_differences import expected
from conformance_kinds import KINDS, QUANTISED, of_kind
from conformance_same import assert_same

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*[Ss]parse.*:UserWarning", "ignore:.*quantize.*", "ignore:.*ComplexHalf.*:UserWarning"
)


@pytest.fixture(scope="module")
def arrived() -> Callable[[Any], dict[str, Any]]:
    """One of each kind, all through one loader of the class, since starting workers is slow; or the error it raised."""

    @cache
    def load(loader_class: Any) -> dict[str, Any]:
        loader = loader_class(
            Made(of_kind), sampler=list(KINDS), batch_size=None, num_workers=2, collate_fn=as_is, timeout=20
        )
        iterator = iter(loader)
        got: dict[str, Any] = {}
        for kind in KINDS:
            try:
                got[kind] = next(iterator)
            except Exception as error:
                got[kind] = error
        return got

    return load


@pytest.mark.parametrize("kind", KINDS)
def test_kind(loader_class: Any, arrived: Any, kind: str) -> None:
    got = arrived(loader_class)[kind]
    if isinstance(got, Exception):
        raise got
    assert_same(got, of_kind(kind))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("array") and kind != "array read-only"])
def test_arrays_arrive_writable_and_owned_by_nobody_else(loader_class: Any, arrived: Any, kind: str) -> None:
    got = arrived(loader_class)[kind]
    assert got.flags.writeable


def one(loader_class: Any, make: Callable[[], Any]) -> Any:
    [got] = loader_class(Made(lambda _: make()), batch_size=None, num_workers=1, collate_fn=as_is)
    return got


def test_views_of_one_tensor_still_share(loader_class: Any) -> None:
    def make() -> Any:
        base = torch.arange(12.0)
        return base, base[3:6], base.view(3, 4).t(), base.as_strided((2,), (5,))

    base, part, turned, picked = one(loader_class, make)
    assert_same((base, part, turned, picked), make())
    base[3:] = 100
    assert part.tolist() == [100] * 3
    assert turned[3].tolist() == [100] * 3
    assert picked.tolist() == [0, 100]
    assert part.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


def test_views_share_even_without_their_base(loader_class: Any) -> None:
    left, right = one(loader_class, lambda: [torch.arange(10)[2:8], torch.arange(10)][:1] * 2)
    left[0] = 77
    assert right[0] == 77


def test_views_of_other_types_share(loader_class: Any) -> None:
    def make() -> Any:
        base = torch.zeros(4, dtype=torch.int32)
        return {"ints": base, "floats": base.view(torch.float32), "bytes": base.view(torch.uint8)}

    got = one(loader_class, make)
    assert_same(got, make())
    got["bytes"].fill_(255)
    assert got["ints"].tolist() == [-1] * 4
    assert got["floats"].isnan().all()


def test_the_same_tensor_twice(loader_class: Any) -> None:
    first, second = one(loader_class, lambda: [torch.ones(5)] * 2)
    first.zero_()
    assert second.tolist() == [0] * 5


def test_tensors_that_do_not_share_still_do_not(loader_class: Any) -> None:
    got = one(loader_class, lambda: [torch.full((7,), i, dtype=torch.uint8) for i in range(20)])
    for k, tensor in enumerate(got):
        assert tensor.tolist() == [k] * 7
        tensor.fill_(200)
    assert all(tensor.tolist() == [200] * 7 for tensor in got)


def test_the_same_list_twice_is_one_list(loader_class: Any) -> None:
    first, second = one(loader_class, lambda: [[torch.ones(1)]] * 2)
    assert first is second


def test_a_slice_keeps_its_offset_in_its_storage(loader_class: Any) -> None:
    got = one(loader_class, lambda: torch.arange(1000, dtype=torch.uint8)[10:12])
    assert got.storage_offset() == 10
    assert got.untyped_storage().nbytes() == expected(loader_class, "slice")
    assert got.as_strided((12,), (1,), 0).tolist() == list(range(12))


def test_each_storage_has_its_own_size(loader_class: Any, tmp_path: Any) -> None:
    # Otherwise torch.save of one small tensor would write the whole batch.
    small, large = one(loader_class, lambda: [torch.ones(3), torch.ones(100_000)])
    assert small.untyped_storage().nbytes() == 12
    assert large.untyped_storage().nbytes() == 400_000
    torch.save(small, tmp_path / "small.pt")
    assert (tmp_path / "small.pt").stat().st_size < 5000


def test_a_leaf_that_requires_grad_trains(loader_class: Any) -> None:
    got = one(loader_class, lambda: torch.ones(3, requires_grad=True))
    (got * 2).sum().backward()
    assert got.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("make", [lambda: torch.ones(3, requires_grad=True) * 2], ids=["product"])
def test_a_non_leaf_that_requires_grad(loader_class: Any, make: Any) -> None:
    error = expected(loader_class, "non-leaf gradient")
    with pytest.raises(error, match="grad"):
        one(loader_class, make)


def test_a_non_leaf_does_not_end_the_epoch(loader_class: Any) -> None:
    error = expected(loader_class, "non-leaf gradient")
    made = Made(lambda i: torch.ones(1, requires_grad=True) * 2 if i == 1 else torch.full((1,), i), 4)
    iterator = iter(loader_class(made, batch_size=None, num_workers=2))
    assert next(iterator) == 0
    with pytest.raises(error):
        next(iterator)
    assert [sample.item() for sample in iterator] == [2, 3]


@pytest.mark.parametrize(
    "make",
    [lambda: lambda: 0, lambda: (i for i in range(3)), lambda: memoryview(b"abc"), lambda: [torch.ones(3), lambda: 0]],
    ids=["function", "generator", "memoryview", "beside a tensor"],
)
def test_what_cannot_be_pickled(loader_class: Any, make: Any) -> None:
    error = expected(loader_class, "unpicklable batch")
    with pytest.raises(error, match=r"(?i)pickle|local"):
        one(loader_class, make)


def test_a_conjugated_tensor(loader_class: Any) -> None:
    got = one(loader_class, lambda: torch.tensor([1 + 2j, 3 - 4j]).conj())
    want = {"kept": [1 - 2j, 3 + 4j], "bit lost": [1 + 2j, 3 - 4j]}[expected(loader_class, "conjugate")]
    assert got.tolist() == want


def test_a_conjugated_tensor_among_others(loader_class: Any) -> None:
    def make() -> Any:
        base = torch.tensor([1 + 2j, 3 - 4j])
        return {"base": base, "conj": base.conj(), "plain": torch.ones(2)}

    got = one(loader_class, make)
    assert got["base"].tolist() == [1 + 2j, 3 - 4j]
    assert got["plain"].tolist() == [1, 1]
    want = {"kept": [1 - 2j, 3 + 4j], "bit lost": [1 + 2j, 3 - 4j]}[expected(loader_class, "conjugate")]
    assert got["conj"].tolist() == want


def test_a_negated_view(loader_class: Any) -> None:
    got = one(loader_class, lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag)
    want = {"kept": [-2, 4], "bit lost": [2, -4]}[expected(loader_class, "negative")]
    assert got.tolist() == want


@pytest.mark.parametrize("make", QUANTISED.values(), ids=QUANTISED)
def test_a_quantised_tensor(loader_class: Any, make: Any) -> None:
    got = one(loader_class, make)
    if expected(loader_class, "quantised") == "kept":
        assert_same(got, make())
    else:
        with pytest.raises(RuntimeError):
            got.qscheme()


def test_conjugated_samples_that_are_stacked(loader_class: Any) -> None:
    made = Made(lambda i: torch.tensor([1 + 2j, i]).conj(), 2)
    error = expected(loader_class, "stacked conjugates")
    if error is not None:
        with pytest.raises(error):
            list(loader_class(made, batch_size=2, num_workers=1))
        return
    [got] = loader_class(made, batch_size=2, num_workers=1)
    assert got.tolist() == [[1 - 2j, 0], [1 - 2j, 1]]


def test_batches_of_changing_size(loader_class: Any) -> None:
    sizes = [1, 100_000, 0, 7, 250_000, 3, 100_000, 1]
    made = Made(lambda i: torch.full((sizes[i],), i, dtype=torch.int32), len(sizes))
    for i, got in enumerate(loader_class(made, batch_size=None, num_workers=2)):
        assert_same(got, torch.full((sizes[i],), i, dtype=torch.int32))


def test_batches_of_changing_structure(loader_class: Any) -> None:
    shapes: list[Any] = [torch.ones(3), None, [torch.zeros(2), "x"], np.arange(4), {"a": torch.arange(5)}, 7, []]
    got = list(loader_class(Made(lambda i: shapes[i], 7), batch_size=None, num_workers=2, collate_fn=as_is))
    assert_same(got, shapes)


@pytest.mark.parametrize("workers", [1, 2])
def test_held_batches_stay_what_they_were(loader_class: Any, workers: int) -> None:
    held = list(loader_class(Floats(200, 500), batch_size=4, num_workers=workers))
    for k, batch in enumerate(held):
        assert batch[:, 0].tolist() == [4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3]
        assert torch.equal(batch, batch[:, :1].expand(4, 500))


def test_what_is_made_of_a_batch_keeps_it(loader_class: Any) -> None:
    # A row, an array and an autograd graph each outlive the batch's own variable.
    loader = loader_class(Floats(60, 500), batch_size=2, num_workers=1)
    weight = torch.ones(500, requires_grad=True)
    held: list[tuple[Any, Any, Any]] = []
    for batch in loader:
        held.append((batch[1], batch.numpy()[0], (batch * weight).sum()))
    del batch
    gc.collect()
    for k, (row, array, loss) in enumerate(held):
        assert row.tolist() == [2 * k + 1] * 500
        assert array.tolist() == [2 * k] * 500
        weight.grad = None
        loss.backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [4 * k + 1] * 500


def test_batches_outlive_loader_and_workers(loader_class: Any) -> None:
    loader = loader_class(Floats(6, 1000), batch_size=2, num_workers=2)
    iterator = iter(loader)
    held = [next(iterator), next(iterator)]
    del iterator, loader
    gc.collect()
    assert [batch[:, -1].tolist() for batch in held] == [[0, 1], [2, 3]]
    held[0] += 1
    assert held[0][0, 0] == 1


def test_writing_into_a_batch_touches_no_other(loader_class: Any) -> None:
    for k, batch in enumerate(loader_class(Floats(40, 100), batch_size=2, num_workers=2)):
        assert batch[:, 0].tolist() == [2 * k, 2 * k + 1]
        batch.fill_(-1)


def test_what_the_worker_writes_later_does_not_show(loader_class: Any) -> None:
    buffer = torch.zeros(1000)

    def refill(index: int) -> torch.Tensor:
        return buffer.fill_(index).clone()

    held = list(loader_class(Made(refill, 30), batch_size=None, num_workers=1))
    assert [int(sample[500]) for sample in held] == list(range(30))


def test_dropped_batches_can_be_dropped_from_another_thread(loader_class: Any) -> None:
    import queue
    import threading

    waiting: queue.Queue[Any] = queue.Queue()
    sums: list[float] = []

    def consume() -> None:
        while (batch := waiting.get()) is not None:
            sums.append(float(batch[:, 0].sum()))
            del batch

    thread = threading.Thread(target=consume)
    thread.start()
    for batch in loader_class(Floats(100, 100), batch_size=5, num_workers=2):
        waiting.put(batch)
    waiting.put(None)
    thread.join()
    assert sums == [float(sum(range(5 * k, 5 * k + 5))) for k in range(20)]

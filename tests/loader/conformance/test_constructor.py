"""Arguments, the order and the words of their checks, attributes, and what may be set later."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import re
import warnings
from copy import copy, deepcopy
from typing import Any

import pytest
import torch
import torch.utils.data
from conformance_data import CountedSampler, Range, SizedStream, Stream
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

BATCHES = [[0, 1], [2]]
EXCLUSIVE = "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
SIZE = "batch_size should be a positive integer value, but got batch_size="

REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "negative workers": (ValueError, "num_workers option should be non-negative", {"num_workers": -1}),
    "negative timeout": (ValueError, "timeout option should be non-negative", {"timeout": -1}),
    "prefetch without workers": (ValueError, "prefetch_factor option could only be specified", {"prefetch_factor": 2}),
    "negative prefetch": (
        ValueError,
        "prefetch_factor option should be non-negative",
        {"num_workers": 1, "prefetch_factor": -1},
    ),
    "persistent without workers": (
        ValueError,
        "persistent_workers option needs num_workers > 0",
        {"persistent_workers": True},
    ),
    "unknown start method": (
        ValueError,
        "multiprocessing_context option should specify a valid start method in",
        {"num_workers": 1, "multiprocessing_context": "teleport"},
    ),
    "no context": (
        TypeError,
        "multiprocessing_context option should be a valid context object or a string",
        {"num_workers": 1, "multiprocessing_context": 7},
    ),
    "context without workers": (
        ValueError,
        "multiprocessing_context can only be used with multi-process loading",
        {"multiprocessing_context": "fork"},
    ),
    "sampler and shuffle": (
        ValueError,
        "sampler option is mutually exclusive with shuffle",
        {"sampler": [0, 1], "shuffle": True},
    ),
    "batch sampler and size": (ValueError, EXCLUSIVE, {"batch_sampler": BATCHES, "batch_size": 2}),
    "batch sampler and no size": (ValueError, EXCLUSIVE, {"batch_sampler": BATCHES, "batch_size": None}),
    "batch sampler and shuffle": (ValueError, EXCLUSIVE, {"batch_sampler": BATCHES, "shuffle": True}),
    "batch sampler and sampler": (ValueError, EXCLUSIVE, {"batch_sampler": BATCHES, "sampler": [0]}),
    "batch sampler and drop_last": (ValueError, EXCLUSIVE, {"batch_sampler": BATCHES, "drop_last": True}),
    "no batches and drop_last": (
        ValueError,
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
        {"batch_size": None, "drop_last": True},
    ),
    "size 0": (ValueError, f"{SIZE}0", {"batch_size": 0}),
    "size -1": (ValueError, f"{SIZE}-1", {"batch_size": -1}),
    "size True": (ValueError, f"{SIZE}True", {"batch_size": True}),
    "size 1.5": (ValueError, f"{SIZE}1.5", {"batch_size": 1.5}),
    "size text": (ValueError, f"{SIZE}2", {"batch_size": "2"}),
    "drop_last text": (
        ValueError,
        "drop_last should be a boolean value, but got drop_last=yes",
        {"batch_size": 2, "drop_last": "yes"},
    ),
    # Of two faults the first in torch's order is named.
    "workers before timeout": (ValueError, "num_workers option", {"num_workers": -1, "timeout": -1}),
    "timeout before prefetch": (ValueError, "timeout option", {"timeout": -1, "prefetch_factor": 2}),
    "prefetch before persistent": (ValueError, "prefetch_factor", {"prefetch_factor": 2, "persistent_workers": True}),
    "persistent before context": (
        ValueError,
        "persistent_workers option",
        {"persistent_workers": True, "multiprocessing_context": "fork"},
    ),
    "context before sampler": (
        ValueError,
        "multiprocessing_context can only",
        {"multiprocessing_context": "fork", "sampler": [0], "shuffle": True},
    ),
    "sampler before batch sampler": (
        ValueError,
        "sampler option is mutually exclusive with shuffle",
        {"sampler": [0], "shuffle": True, "batch_sampler": BATCHES},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_in_torchs_words(loader_class: Any, case: str) -> None:
    error, words, arguments = REFUSED[case]
    with pytest.raises(error, match=re.escape(words)):
        loader_class(Range(4), **arguments)


@pytest.mark.parametrize(
    ("option", "value"), [("shuffle", True), ("sampler", [0, 1]), ("batch_sampler", BATCHES)], ids=lambda v: str(v)
)
def test_a_stream_takes_no_order(loader_class: Any, option: str, value: Any) -> None:
    words = f"DataLoader with IterableDataset: expected unspecified {option} option, but got {option}={value}"
    with pytest.raises(ValueError, match=re.escape(words)):
        loader_class(Stream(4), **{option: value})


def test_a_stream_may_be_told_not_to_shuffle(loader_class: Any) -> None:
    assert [b.item() for b in loader_class(Stream(3), shuffle=False)] == [0, 1, 2]


def test_torchs_arguments_come_first_in_torchs_order_with_torchs_defaults(loader_class: Any) -> None:
    theirs = list(inspect.signature(torch.utils.data.DataLoader.__init__).parameters.values())
    ours = list(inspect.signature(loader_class.__init__).parameters.values())
    assert [(p.name, p.kind, p.default) for p in ours[: len(theirs)]] == [(p.name, p.kind, p.default) for p in theirs]


def test_what_comes_after_torchs_arguments_is_keyword_only_and_optional(loader_class: Any) -> None:
    known = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    for parameter in inspect.signature(loader_class.__init__).parameters.values():
        if parameter.name not in known:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            assert parameter.default is not inspect.Parameter.empty


def test_extra_options_stay_readable_under_their_own_name(loader_class: Any) -> None:
    # Lightning rebuilds a loader from public attributes that bear the constructor's names.
    loader = loader_class(Range(4))
    for name in inspect.signature(loader_class.__init__).parameters:
        if name not in ("self", "shuffle"):
            assert hasattr(loader, name), name


def test_every_argument_can_come_by_position(loader_class: Any) -> None:
    generator = torch.Generator()
    loader = loader_class(Range(6), 3, False, None, None, 1, default_convert, False, True, 5, print, "fork", generator)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.timeout) == (3, 1, True, 5)
    assert loader.collate_fn is default_convert
    assert loader.worker_init_fn is print
    assert loader.generator is generator


def test_keyword_arguments_are_keyword_only(loader_class: Any) -> None:
    with pytest.raises(TypeError):
        loader_class(Range(4), 1, None, None, None, 1, None, False, False, 0, None, None, None, 2)


def test_the_class_can_be_indexed_by_a_type(loader_class: Any) -> None:
    assert loader_class[int](Range(2)).batch_size == 1


def test_it_is_torchs_class(loader_class: Any) -> None:
    assert isinstance(loader_class(Range(2)), torch.utils.data.DataLoader)


def test_defaults(loader_class: Any) -> None:
    dataset = Range(5)
    loader = loader_class(dataset)
    values = {
        "dataset": dataset, "batch_size": 1, "num_workers": 0, "collate_fn": default_collate, "pin_memory": False,
        "drop_last": False, "timeout": 0, "worker_init_fn": None, "multiprocessing_context": None, "generator": None,
        "prefetch_factor": None, "persistent_workers": False, "pin_memory_device": "", "in_order": True,
        "_iterator": None, "_IterableDataset_len_called": None,
    }  # fmt: skip
    assert {name: getattr(loader, name) for name in values} == values


def test_attribute_names_that_frameworks_read_are_there(loader_class: Any) -> None:
    names = set(vars(loader_class(Range(5))))
    assert names >= {
        "batch_sampler", "batch_size", "collate_fn", "dataset", "drop_last", "generator", "in_order", "num_workers",
        "persistent_workers", "pin_memory", "pin_memory_device", "prefetch_factor", "sampler", "timeout",
        "worker_init_fn", "_dataset_kind", "_iterator", "_IterableDataset_len_called", "_DataLoader__initialized",
        "_DataLoader__multiprocessing_context",
    }  # fmt: skip
    assert "multiprocessing_context" not in names


def test_the_plain_class_has_no_state(loader_class: Any) -> None:
    # Frameworks test for it and would call it at every batch.
    assert not hasattr(loader_class(Range(5)), "state_dict")
    assert not hasattr(loader_class(Range(5)), "load_state_dict")


def test_prefetch_defaults_to_two_with_workers(loader_class: Any) -> None:
    assert loader_class(Range(5), num_workers=1).prefetch_factor == 2


def test_a_named_context_becomes_a_context(loader_class: Any) -> None:
    loader = loader_class(Range(5), num_workers=1, multiprocessing_context="spawn")
    assert loader.multiprocessing_context.get_start_method() == "spawn"


def test_a_context_object_is_kept(loader_class: Any) -> None:
    context = multiprocessing.get_context("fork")
    assert loader_class(Range(5), num_workers=1, multiprocessing_context=context).multiprocessing_context is context


@pytest.mark.parametrize(
    ("arguments", "sampler"),
    [({}, SequentialSampler), ({"shuffle": True}, RandomSampler), ({"shuffle": False}, SequentialSampler)],
    ids=["default", "shuffled", "not shuffled"],
)
def test_default_samplers(loader_class: Any, arguments: dict[str, Any], sampler: type) -> None:
    loader = loader_class(Range(5), batch_size=2, **arguments)
    assert type(loader.sampler) is sampler
    assert type(loader.batch_sampler) is BatchSampler
    assert loader.batch_sampler.sampler is loader.sampler


def test_the_generator_reaches_the_random_sampler(loader_class: Any) -> None:
    generator = torch.Generator()
    assert loader_class(Range(5), shuffle=True, generator=generator).sampler.generator is generator


def test_no_batches_means_no_batch_sampler_and_convert(loader_class: Any) -> None:
    loader = loader_class(Range(5), batch_size=None)
    assert (loader.batch_size, loader.batch_sampler, loader.collate_fn) == (None, None, default_convert)


def test_a_batch_sampler_of_the_users_is_kept(loader_class: Any) -> None:
    loader = loader_class(Range(5), batch_sampler=BATCHES)
    assert loader.batch_sampler is BATCHES
    assert (loader.batch_size, loader.drop_last, loader.collate_fn) == (None, False, default_collate)
    assert [b.tolist() for b in loader] == BATCHES


def test_a_sampler_of_the_users_is_kept(loader_class: Any) -> None:
    # DistributedSampler.set_epoch is called by the user on this very object.
    sampler = SubsetRandomSampler([1, 2])
    assert loader_class(Range(5), sampler=sampler).sampler is sampler


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_attributes_that_are_fixed_after_construction(loader_class: Any, name: str) -> None:
    loader = loader_class(Range(5))
    words = f"{name} attribute should not be set after {loader_class.__name__} is initialized"
    with pytest.raises(ValueError, match=words):
        setattr(loader, name, None)


def test_late_settings_count_for_the_next_iterator(loader_class: Any) -> None:
    loader = loader_class(Range(4), batch_size=2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]]
    loader.collate_fn = lambda batch: -sum(batch)
    assert list(loader) == [-1, -5]
    loader.num_workers = 1
    loader.prefetch_factor = 2
    assert list(loader) == [-1, -5]


def test_a_late_context_is_checked(loader_class: Any) -> None:
    loader = loader_class(Range(4), num_workers=1)
    with pytest.raises(ValueError, match="valid start method"):
        loader.multiprocessing_context = "teleport"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's half-made iterator
def test_a_prefetch_of_nothing_is_refused_at_iteration(loader_class: Any) -> None:
    with pytest.raises(AssertionError):
        iter(loader_class(Range(4), num_workers=1, prefetch_factor=0))


def test_a_timeout_without_workers_is_refused_at_iteration(loader_class: Any) -> None:
    loader = loader_class(Range(4), timeout=1)
    with pytest.raises(AssertionError):
        iter(loader)


def test_more_workers_than_cores_warns(loader_class: Any) -> None:
    with pytest.warns(UserWarning, match="This DataLoader will create 5000 worker processes in total"):
        loader_class(Range(4), num_workers=5000)


def test_as_many_workers_as_cores_does_not_warn(loader_class: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader_class(Range(4), num_workers=1)


@pytest.mark.parametrize(
    "again", [copy, deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deep", "pickle"]
)
def test_copies_of_a_loader_load(loader_class: Any, again: Any) -> None:
    loader = again(loader_class(Range(5), batch_size=2, num_workers=1))
    assert type(loader) is loader_class
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]]


def test_a_persistent_loader_can_be_copied_while_its_workers_live(loader_class: Any) -> None:
    loader = loader_class(Range(4), batch_size=2, num_workers=1, persistent_workers=True)
    list(loader)
    with pytest.raises(NotImplementedError):
        pickle.dumps(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_cannot_be_pickled(loader_class: Any, workers: int) -> None:
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader_class(Range(4), num_workers=workers)))


def test_a_loader_over_tensors(loader_class: Any) -> None:
    x, y = torch.randn(5, 3), torch.arange(5)
    batches = list(loader_class(TensorDataset(x, y), batch_size=5, num_workers=1))
    assert torch.equal(batches[0][0], x)
    assert torch.equal(batches[0][1], y)


def test_plain_sequences_are_datasets(loader_class: Any) -> None:
    assert [b.tolist() for b in loader_class([5, 6, 7], batch_size=2, num_workers=1)] == [[5, 6], [7]]
    assert [b.tolist() for b in loader_class({0: 5, 1: 6}, batch_size=2)] == [[5, 6]]


@pytest.mark.parametrize(("drop_last", "length"), [(False, 3), (True, 2)])
@pytest.mark.parametrize("dataset", [Range(5), SizedStream(5)], ids=["map", "stream"])
def test_length_counts_batches(loader_class: Any, dataset: Any, drop_last: bool, length: int) -> None:
    loader = loader_class(dataset, batch_size=2, drop_last=drop_last)
    assert len(loader) == length
    assert sum(1 for _ in loader) == length


@pytest.mark.parametrize("dataset", [Range(5), SizedStream(5)], ids=["map", "stream"])
def test_length_counts_samples_without_batches(loader_class: Any, dataset: Any) -> None:
    assert len(loader_class(dataset, batch_size=None)) == 5


def test_length_follows_a_growing_dataset(loader_class: Any) -> None:
    dataset = Range(2)
    loader = loader_class(dataset)
    assert len(loader) == 2
    dataset.n = 7
    assert len(loader) == 7
    assert sum(1 for _ in loader) == 7


def test_length_of_an_iterator_is_the_samplers(loader_class: Any) -> None:
    loader = loader_class(Range(6), batch_size=2, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    assert len(iterator) == 3


def test_a_stream_without_length_has_none(loader_class: Any) -> None:
    with pytest.raises(TypeError):
        len(loader_class(Stream(4)))


def test_a_sampler_without_length_has_none(loader_class: Any) -> None:
    with pytest.raises(TypeError):
        len(loader_class(Range(4), sampler=(i for i in range(4)), batch_size=None))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_longer_than_it_said_warns_at_every_batch_past(loader_class: Any, workers: int) -> None:
    # With two workers that both serve the whole stream: the usual cause.
    loader = loader_class(SizedStream(4, whole=True, length=3), num_workers=workers)
    len(loader)
    iterator = iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            next(iterator)
    words = r"was reported to be 3\s*\(when accessing len\(dataloader\)\), but 4 samples have been fetched"
    with pytest.warns(UserWarning, match=words) as caught:
        next(iterator)
    assert ("multiprocessing data-loading" in str(caught[0].message)) is (workers > 0)
    if workers:
        with pytest.warns(UserWarning, match="but 5 samples have been fetched"):
            next(iterator)


def test_a_stream_whose_length_nobody_asked_for_does_not_warn(loader_class: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader_class(SizedStream(4, length=2)))) == 4


def test_length_asked_during_an_iteration_counts_for_the_next(loader_class: Any) -> None:
    loader = loader_class(SizedStream(4, length=2))
    iterator = iter(loader)
    len(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(iterator)
    with pytest.warns(UserWarning, match="samples have been fetched") as caught:
        list(loader)
    assert ["but 3 samples" in str(w.message) for w in caught] == [True, False]


def test_construction_touches_no_sampler_and_no_generator(loader_class: Any) -> None:
    sampler = CountedSampler(4)
    state = torch.get_rng_state()
    loader_class(Range(4), sampler=sampler, num_workers=1)
    assert sampler.iters == 0
    assert torch.equal(torch.get_rng_state(), state)

"""Augment.on: whole batches of any form, numbered by a part of theirs or as they come."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from augment_cases import EPOCH, SEED, numbers, pictures
from torch.utils.data import TensorDataset

import zerocopy_data as zcd
from zerocopy_data import ConfigError
from zerocopy_data.device.augment import Augment, BatchAugment, MixUp, Normalize, RandomCrop, RandomHorizontalFlip
from zerocopy_data.device.request import Staging

N = 12
AUGMENT = Augment([RandomCrop(15), RandomHorizontalFlip(), Normalize()], SEED)


class Named(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor
    index: Any


@dataclass(frozen=True)
class Fields:
    image: torch.Tensor
    label: torch.Tensor
    index: Any


FORMS: dict[str, tuple[Any, tuple[Any, Any, Any]]] = {
    "dict": (lambda *parts: dict(zip(("image", "label", "index"), parts, strict=True)), ("image", "label", "index")),
    "ordered": (
        lambda *parts: OrderedDict(zip(("image", "label", "index"), parts, strict=True)),
        ("image", "label", "index"),
    ),
    "tuple": (lambda *parts: parts, (0, 1, 2)),
    "list": (lambda *parts: list(parts), (0, 1, -1)),
    "named": (Named, ("image", 1, "index")),
    "fields": (Fields, ("image", "label", "index")),
}


def of(batch: Any, key: Any) -> Any:
    return batch[key] if isinstance(key, int) or isinstance(batch, dict) else getattr(batch, key)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_batch(form: str) -> None:
    make, (image, label, index) = FORMS[form]
    images, labels = pictures(N), torch.arange(N)
    batch = make(images, labels, torch.tensor(numbers(N)))
    transform = AUGMENT.on(image, label, samples=index)
    transform.set_epoch(EPOCH)
    made = transform(transform.prepare(batch))
    assert type(made) is type(batch)
    assert torch.equal(of(made, image), AUGMENT(images, samples=numbers(N), epoch=EPOCH))
    assert of(made, label) is labels
    assert isinstance(of(made, index), np.ndarray)
    assert of(made, index).tolist() == numbers(N)
    assert of(batch, image) is images  # what came in is not changed
    assert isinstance(of(batch, index), torch.Tensor)


def test_mixed_labels_take_the_labels_place() -> None:
    images, labels = pictures(N, dtype=torch.float32), torch.arange(N)
    augment = Augment([MixUp(num_classes=N)], SEED)
    made = augment.on(0, 1)((images, labels))
    expected = augment(images, labels, samples=range(N), epoch=0)
    assert torch.equal(made[0], expected[0])
    assert torch.equal(made[1], expected[1])


def test_without_numbers_samples_are_counted_through_the_epoch() -> None:
    images = pictures(N)
    transform = AUGMENT.on("x")
    for epoch in (0, 3):
        transform.set_epoch(epoch)
        parts = [transform({"x": images[i : i + 5]})["x"] for i in range(0, N, 5)]
        assert torch.equal(torch.cat(parts), AUGMENT(images, samples=range(N), epoch=epoch))
    transform.set_epoch(3, served=5)
    assert torch.equal(transform({"x": images[5:]})["x"], torch.cat(parts)[5:])


@pytest.mark.parametrize("samples", ["tensor", "int32", "array", "list"])
def test_numbers_may_come_in_any_form_on_the_host(samples: str) -> None:
    given: dict[str, Any] = {
        "tensor": torch.tensor(numbers(N)),
        "int32": torch.tensor(numbers(N), dtype=torch.int32),
        "array": np.array(numbers(N)),
        "list": numbers(N),
    }
    transform = AUGMENT.on("x", samples="i")
    made = transform(transform.prepare({"x": pictures(N), "i": given[samples]}))
    assert torch.equal(made["x"], AUGMENT(pictures(N), samples=numbers(N), epoch=0))


def test_prepared_numbers_do_not_hold_the_memory_that_they_came_in() -> None:
    index = torch.arange(N)
    prepared = AUGMENT.on("x", samples="i").prepare({"x": pictures(N), "i": index})
    index.zero_()
    assert prepared["i"].tolist() == list(range(N))


def test_as_the_transform_of_a_loader_on_the_cpu() -> None:
    images, labels = pictures(N), torch.arange(N)
    dataset = TensorDataset(images, labels, torch.tensor(numbers(N)))
    transform = AUGMENT.on(0, 1, samples=2)
    transform.set_epoch(EPOCH)
    loader = zcd.DataLoader(
        dataset, 5, shuffle=True, device=Staging("cpu", transform=transform), generator=torch.Generator().manual_seed(2)
    )
    whole = AUGMENT(images, samples=numbers(N), epoch=EPOCH)
    places = []
    for made, label, index in loader:
        assert torch.equal(made, whole[label])
        assert index.tolist() == [numbers(N)[i] for i in label.tolist()]
        places += label.tolist()
    assert sorted(places) == list(range(N))
    assert places != sorted(places)


def test_what_is_wrong_is_said() -> None:
    images = pictures(4)
    with pytest.raises(ConfigError, match="no part 'image'; it has 'x'"):
        AUGMENT.on("image")({"x": images})
    with pytest.raises(ConfigError, match="no part 2; it is a tuple of 2"):
        AUGMENT.on(0, samples=2)((images, images))
    with pytest.raises(ConfigError, match="it is a Tensor, and a dict"):
        AUGMENT.on(0)(images)
    with pytest.raises(ConfigError, match="name their part"):
        Augment([MixUp(num_classes=3)]).on("image")
    with pytest.raises(ConfigError, match="4 integers are needed"):
        AUGMENT.on("x", samples="i")({"x": images, "i": torch.rand(4)})
    with pytest.raises(ConfigError, match=r"use augment\.on"):
        AUGMENT({"x": images})  # type: ignore[call-overload]
    transform = AUGMENT.on("x")
    for wrong in ({"epoch": -1}, {"epoch": 1.5}, {"epoch": 1, "served": -2}):
        with pytest.raises(ConfigError, match="integers from 0"):
            transform.set_epoch(**wrong)  # type: ignore[arg-type]
    assert isinstance(transform, BatchAugment)
    assert repr(transform).endswith(".on('x', None, samples=None)")


def test_a_counter_with_images_keeps_its_counts_and_a_tuples_methods_are_no_parts() -> None:
    transform = Augment([RandomHorizontalFlip(1.0)]).on("image")
    batch: Any = Counter({"image": torch.rand(2, 3, 4, 4), "n": 2})
    out = transform(batch)
    assert out["n"] == 2
    assert out["image"].equal(batch["image"].flip(3))
    with pytest.raises(ConfigError, match="no part 'index'"):
        Augment([]).on(0, samples="index")((torch.ones(2, 3, 4, 4), [0, 1]))

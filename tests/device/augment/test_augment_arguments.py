"""Arguments and batches that can't be right are refused with what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from augment_cases import pictures, run

from zerocopy_data import ConfigError
from zerocopy_data.device.augment import (
    Augment,
    ColorJitter,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    TrivialAugmentWide,
)

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: RandomHorizontalFlip(1.1), "a probability lies between 0 and 1"),
    (lambda: RandomErasing(scale=(0.5, 0.2)), "the smaller first"),
    (lambda: RandomErasing(ratio=(0.0, 1.0)), "two positive numbers"),
    (lambda: RandomErasing(value="noise"), "the only word is 'random'"),
    (lambda: RandomErasing(value=(1, 2)), "a number, or three"),
    (lambda: RandomCrop(0), "a positive int"),
    (lambda: RandomCrop((3, 4, 5)), "a positive int"),  # type: ignore[arg-type]
    (lambda: RandomCrop(4, padding=(1, 2, 3)), "left, top, right, bottom"),
    (lambda: RandomCrop(4, padding_mode="reflect"), "only 'constant'"),
    (lambda: Normalize(std=(1, 0, 1)), "no deviation may be zero"),
    (lambda: Normalize(mean=(0.1, 0.2)), "one a channel"),
    (lambda: Normalize(dtype=torch.float64), "use torch.float32"),
    (lambda: ColorJitter(brightness=-1), "not negative"),
    (lambda: ColorJitter(hue=0.6), "from -0.5 to 0.5"),
    (lambda: Augment(None), "a list of operations"),  # type: ignore[arg-type]
    (lambda: Augment(RandomHorizontalFlip()), "a list of operations"),  # type: ignore[arg-type]
    (lambda: Augment([RandomHorizontalFlip]), "no operation on batches"),  # type: ignore[list-item]
    (lambda: Augment([torch.nn.Identity()]), "no operation on batches"),  # type: ignore[list-item]
]
POLICIES: list[tuple[Callable[[], Any], str]] = [
    (lambda: RandAugment(num_ops=-1), "an int from 0"),
    (lambda: RandAugment(magnitude=31), "an int from 0 to 30"),
    (lambda: TrivialAugmentWide(num_magnitude_bins=1), "an int from 2"),
    (lambda: TrivialAugmentWide(interpolation="bicubic"), "use 'nearest' or 'bilinear'"),
]


@pytest.mark.parametrize(("make", "words"), WRONG, ids=[words for _, words in WRONG])
def test_wrong_arguments(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(("make", "words"), POLICIES, ids=[words for _, words in POLICIES])
def test_wrong_arguments_of_policies(make: Callable[[], Any], words: str) -> None:
    pytest.importorskip("torchvision")
    with pytest.raises(ConfigError, match=words):
        make()


def test_wrong_batches() -> None:
    flip, images = RandomHorizontalFlip(), pictures(4)
    with pytest.raises(ConfigError, match=r"permute\(0, 3, 1, 2\)"):
        run(flip, images.permute(0, 2, 3, 1))
    with pytest.raises(ConfigError, match=r"a tensor \[n, C, H, W\]"):
        run(flip, images[0], [0])
    with pytest.raises(ConfigError, match="use uint8, float16"):
        run(flip, images.double())
    with pytest.raises(ConfigError, match="4 integers are needed"):
        run(flip, images, [0, 1])
    with pytest.raises(ConfigError, match="labels are list"):
        Augment([flip])(images, [0, 1, 2, 3], samples=range(4), epoch=0)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="use pad_if_needed=True, or resize first"):
        run(RandomCrop(50), images)
    with pytest.raises(ConfigError, match="whole numbers from 0 to 255"):
        run(RandomErasing(1.0, value=0.5), images)
    with pytest.raises(ConfigError, match="Put Normalize before it"):
        run(RandomErasing(1.0, value="random"), images)
    with pytest.raises(ConfigError, match=r"the images have 1 channel\(s\)"):
        run(Normalize(), images[:, :1])


def test_policies_say_how_to_get_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", None)
    with pytest.raises(ConfigError, match="pip install torchvision"):
        RandAugment()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16], ids=str)
def test_batches_of_none_and_of_one(n: int, dtype: torch.dtype) -> None:
    ops: list[Any] = [
        ColorJitter(0.4, 0.4, 0.4, 0.1),
        RandomErasing(1.0),
        RandomCrop(9),
        RandomHorizontalFlip(),
        Normalize(),
    ]
    if "torchvision" in sys.modules:
        ops.insert(0, RandAugment())
    made = run(ops, pictures(n, dtype=dtype))
    assert made.shape == (n, 3, 9, 9)
    assert made.dtype == (torch.float32 if dtype == torch.uint8 else dtype)


COLOURS = [ColorJitter(0.4), RandAugment, TrivialAugmentWide]


@pytest.mark.parametrize("colours", COLOURS, ids=["jitter", "rand", "trivial"])
def test_colours_are_not_cut_off_normalised_images(colours: Any) -> None:
    """They would clamp to 0 and 1 what Normalize has spread: wrong, and nobody would see it."""
    if isinstance(colours, type):
        pytest.importorskip("torchvision")
        colours = colours()
    name = type(colours).__name__
    with pytest.raises(ConfigError, match=f"Put {name} before Normalize"):
        Augment([Normalize(), RandomHorizontalFlip(), colours])
    normalised = Augment([Normalize()])(pictures(4), samples=range(4), epoch=0)
    with pytest.raises(ConfigError, match=f"Put {name} before Normalize"):
        Augment([RandomHorizontalFlip(), colours])(normalised, samples=range(4), epoch=0)
    levels = pictures(4).to(torch.float32) / 255
    for images in (pictures(4), levels, levels.mul(1.05)):
        assert run([colours, Normalize()], images).shape == images.shape
    # The chain is only told what it doesn't work on: flips and erasing take what comes.
    assert run([RandomHorizontalFlip(), RandomErasing(1.0)], normalised).shape == normalised.shape


def test_a_batch_that_gets_its_values_on_the_device_is_looked_at_too() -> None:
    """On the device nobody waits to look at pixels; the table says it."""
    from zerocopy_data.device.kernels.normalize import normalize_table
    from zerocopy_data.device.levelled import Levelled

    levelled = Levelled(pictures(3), normalize_table((0.5,) * 3, (0.2,) * 3), torch.float32, torch.contiguous_format)
    batch = {"image": levelled, "index": torch.arange(3)}
    with pytest.raises(ConfigError, match="before Normalize"):
        Augment([ColorJitter(0.4)]).on("image", samples="index").prepare(batch)
    plain = Levelled(pictures(3), None, torch.uint8, torch.contiguous_format)
    made = Augment([ColorJitter(0.4)]).on("image", samples="index").prepare({**batch, "image": plain})
    assert made["image"] is plain


def test_numpys_numbers_are_numbers() -> None:
    assert RandomHorizontalFlip(np.float32(0.5)).p == 0.5
    assert ColorJitter(np.float64(0.5), (np.float32(0.5), 2)).contrast == (0.5, 2.0)
    with pytest.raises(ConfigError, match="from 0 to inf"):
        ColorJitter((0.5, float("inf")))


def test_one_operation_without_its_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="in brackets"):
        Augment(RandomHorizontalFlip())  # type: ignore[arg-type]


def test_images_that_autograd_follows_or_that_are_sparse_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"images\.detach\(\)"):
        run(ColorJitter(0.4), torch.rand(2, 3, 4, 4, requires_grad=True))
    with pytest.raises(ConfigError, match=r"images\.to_dense\(\)"):
        run(ColorJitter(0.4), torch.rand(2, 3, 4, 4).to_sparse())


def test_labels_of_every_integer_dtype_are_classes_and_complex_ones_are_refused() -> None:
    mix = Augment([MixUp(num_classes=5)])
    images = torch.rand(2, 3, 4, 4)
    _, expected = mix(images, torch.tensor([3, 1]), samples=range(2), epoch=0)
    for dtype in (torch.uint8, torch.uint16, torch.uint64, torch.int8):
        _, labels = mix(images, torch.tensor([3, 1]).to(dtype), samples=range(2), epoch=0)
        assert labels.equal(expected)
    with pytest.raises(ConfigError, match="complex64"):
        mix(images, torch.ones(2, 5, dtype=torch.complex64), samples=range(2), epoch=0)

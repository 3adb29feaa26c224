"""A sample becomes the same whatever batch it is in; other epochs, seeds and samples draw other numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from augment_cases import EPOCH, SEED, numbers, pictures

from zerocopy_data.device.augment import (
    Augment,
    ColorJitter,
    CutMix,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    TrivialAugmentWide,
)

N = 32
# What each sample becomes depends on nothing but the sample.
CHAINS: dict[str, list[Any]] = {
    "flip": [RandomHorizontalFlip()],
    "crop": [RandomCrop(15, padding=2)],
    "jitter": [ColorJitter(0.4, 0.4, 0.4, 0.2)],
    "erasing": [RandomErasing()],
    "noise": [Normalize(), RandomErasing(value="random")],
    "fused": [RandomCrop(15), RandomHorizontalFlip(), Normalize(dtype=torch.bfloat16)],
    "trivial": [TrivialAugmentWide(interpolation="bilinear")],
    "training": [
        RandomCrop(20),
        RandomHorizontalFlip(),
        RandAugment(),
        ColorJitter(0.2, 0.2, 0.2, 0.1),
        Normalize(),
        RandomErasing(value="random"),
    ],
}
NEEDS_TORCHVISION = ("trivial", "training")


@pytest.fixture(params=CHAINS)
def chain(request: pytest.FixtureRequest) -> list[Any]:
    if request.param in NEEDS_TORCHVISION:
        pytest.importorskip("torchvision")
    return CHAINS[request.param]


def test_batches_of_every_size_and_order_make_the_same_samples(chain: list[Any]) -> None:
    augment, images, samples = Augment(chain, SEED), pictures(N, 33, 35), torch.tensor(numbers(N))
    whole = augment(images, samples=samples, epoch=EPOCH)
    for size in (1, 5):
        parts = [augment(images[i : i + size], samples=samples[i : i + size], epoch=EPOCH) for i in range(0, N, size)]
        assert torch.equal(torch.cat(parts), whole)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    assert torch.equal(augment(images[order], samples=samples[order], epoch=EPOCH), whole[order])
    twice = torch.tensor([3, 3, 0])
    assert torch.equal(augment(images[twice], samples=samples[twice], epoch=EPOCH), whole[twice])
    assert torch.equal(Augment(chain, SEED)(images, samples=samples.numpy(), epoch=EPOCH), whole)


def test_other_epochs_seeds_and_numbers_make_other_samples(chain: list[Any]) -> None:
    images, samples = pictures(N, 33, 35), numbers(N)
    whole = Augment(chain, SEED)(images, samples=samples, epoch=EPOCH)
    others = [
        Augment(chain, SEED)(images, samples=samples, epoch=EPOCH + 1),
        Augment(chain, SEED + 1)(images, samples=samples, epoch=EPOCH),
        # The planted fault: the keys of two neighbours exchanged, everywhere in the batch.
        Augment(chain, SEED)(
            images, samples=[n for i in range(0, N, 2) for n in (samples[i + 1], samples[i])], epoch=EPOCH
        ),
    ]
    for other in others:
        differ = [not torch.equal(a, b) for a, b in zip(other, whole, strict=True)]
        assert sum(differ) > N // 8


def test_the_same_numbers_are_drawn_whatever_the_seeds_sign_and_size() -> None:
    images = pictures(8)
    for seed in (0, 2**63, -1):
        augment = Augment([RandomHorizontalFlip()], seed)
        assert torch.equal(
            augment(images, samples=[2**40 + i for i in range(8)], epoch=2**33),
            augment(images, samples=torch.arange(8) + 2**40, epoch=2**33),
        )


def test_places_in_a_chain_draw_their_own_numbers() -> None:
    images = pictures(64)
    both = Augment([RandomHorizontalFlip(), RandomHorizontalFlip()])(images, samples=range(64), epoch=0)
    stays = sum(torch.equal(a, b) for a, b in zip(both, images, strict=True))
    assert 16 < stays < 56  # flat pictures, a quarter, stay in any case; with one draw for both, all 64 would


def test_the_draws_of_augmentation_are_not_those_of_decoding() -> None:
    from zerocopy_data.device.augment.op import Draws
    from zerocopy_data.order.keyed import uniforms

    seen: list[Draws] = []

    class Spy:
        def plan(self, spec: Any, draws: Draws, parcel: Any) -> Any:
            seen.append(draws)
            return lambda batch: None, spec

    Augment([Spy(), Spy()], 9)(pictures(3), samples=[4, 5, 6], epoch=2)
    for place, draws in enumerate(seen):
        for lane in range(8):  # the first operations of the native core's chain
            assert not (draws.uniform(2) == uniforms(9, 2, [4, 5, 6], lane, 2)).any()
        assert (draws.uniform(2) == uniforms(9, 2, [4, 5, 6], (1 << 31) + place, 2)).all()


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_mixing_depends_on_the_neighbour_and_on_nothing_else_of_the_batch(make: Any) -> None:
    images = pictures(N, dtype=torch.float32)
    labels, samples = torch.arange(N), torch.tensor(numbers(N))
    augment = Augment([make(num_classes=N)], SEED)
    made, soft = augment(images, labels, samples=samples, epoch=EPOCH)
    part = slice(3, 9)
    few, few_soft = augment(images[part], labels[part], samples=samples[part], epoch=EPOCH)
    assert torch.equal(few[1:], made[4:9])
    assert torch.equal(few_soft[1:], soft[4:9])
    assert not torch.equal(few[0], made[3])  # its partner is another now
    turned, turned_soft = augment(images.roll(5, 0), labels.roll(5), samples=samples.roll(5), epoch=EPOCH)
    assert torch.equal(turned, made.roll(5, 0))
    assert torch.equal(turned_soft, soft.roll(5, 0))
    other, _ = augment(images, labels, samples=samples.flip(0), epoch=EPOCH)
    assert not torch.equal(other, made)

"""MixUp and CutMix: torchvision's arithmetic with each sample's own share, and labels that weigh what pixels show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from augment_cases import EPOCH, SEED, draws_of, layouts, numbers, pictures

from zerocopy_data import ConfigError
from zerocopy_data.device.augment import Augment, CutMix, MixUp
from zerocopy_data.device.augment.batch import spec_of
from zerocopy_data.device.augment.mixing import beta

N, CLASSES = 16, 20
FLOATS = [layout for layout in layouts() if layout[0] != torch.uint8]


def mixed(op: Any, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return Augment([op], SEED)(images, labels, samples=numbers(len(images)), epoch=EPOCH)


def one_image_per_class(height: int = 32, width: int = 41) -> tuple[torch.Tensor, torch.Tensor]:
    """Each pixel of image i is 1 in channel 0 if i is even, else 0: with two images, a pixel says whose it is."""
    return torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, height, width).contiguous(), torch.tensor([0, 1])


@pytest.mark.parametrize(("dtype", "channels_last"), FLOATS)
def test_mixup_is_torchvisions_sum(dtype: torch.dtype, channels_last: bool) -> None:
    op = MixUp(0.8, num_classes=CLASSES)
    images, labels = pictures(N, dtype=dtype, channels_last=channels_last), torch.arange(N) + 2
    before = images.clone()
    made, soft = mixed(op, images, labels)
    kept = op.draw(draws_of(numbers(N)))
    assert len(set(kept)) == N
    partners = images.roll(1, 0)
    for i, share in enumerate(kept):  # as torchvision writes it, with one share
        expected = partners[i].clone().mul_(1.0 - share).add_(images[i].mul(share))
        assert torch.equal(made[i], expected)
    assert soft.dtype == torch.float32
    hot = torch.eye(CLASSES)[labels].double()
    weights = torch.from_numpy(kept).unsqueeze(1)
    assert torch.allclose(soft.double(), hot * weights + hot.roll(1, 0) * (1 - weights), rtol=0, atol=1e-7)
    assert made.stride() == images.stride()
    assert torch.equal(images, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_with_one_share_for_all_both_equal_torchvisions_classes(dtype: torch.dtype) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    images, labels = pictures(N, dtype=dtype), torch.arange(N)
    numbers_of_one = [42] * N  # one number for all: one share for all
    for op in (MixUp(0.7, num_classes=CLASSES), CutMix(0.7, num_classes=CLASSES)):
        made = Augment([op], SEED)(images, labels, samples=numbers_of_one, epoch=EPOCH)
        draws = draws_of([42])
        if isinstance(op, MixUp):
            theirs, params = v2.MixUp(num_classes=CLASSES), {"lam": float(op.draw(draws)[0])}
        else:
            boxes, kept = op.draw(spec_of(images[:1]), draws)
            top, left, height, width = boxes[0].tolist()
            params = {"box": (left, top, left + width, top + height), "lam_adjusted": float(kept[0])}
            theirs = v2.CutMix(num_classes=CLASSES)
        params |= {"labels": labels, "batch_size": N}
        assert torch.equal(made[0], theirs.transform(images, params))
        assert torch.allclose(made[1], theirs.transform(labels, params), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
def test_cutmix_takes_the_partners_rectangle(dtype: torch.dtype, channels_last: bool) -> None:
    op = CutMix(num_classes=CLASSES)
    images, labels = pictures(N, dtype=dtype, channels_last=channels_last), torch.arange(N)
    made, _ = mixed(op, images, labels)
    boxes, _ = op.draw(spec_of(images), draws_of(numbers(N)))
    expected = images.clone()
    for i, (top, left, height, width) in enumerate(boxes.tolist()):
        place = (slice(None), slice(top, top + height), slice(left, left + width))
        expected[i][place] = images[i - 1][place]
    assert torch.equal(made, expected)
    assert made.stride() == images.stride()


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_labels_weigh_what_the_pixels_show(name: str) -> None:
    images, labels = one_image_per_class()
    for epoch in range(40):
        op = {"MixUp": MixUp(num_classes=2), "CutMix": CutMix(num_classes=2)}[name]
        made, soft = Augment([op])(images, labels, samples=[3, 9], epoch=epoch)
        ones = made.double().mean((1, 2, 3))  # how much of each image is image 1
        assert torch.allclose(ones, soft[:, 1].double(), atol=1e-6)
        assert torch.allclose(soft.sum(1), torch.ones(2), atol=1e-6)
        # The planted fault: the shares of the two exchanged.
        if abs(float(soft[0, 1]) - float(soft[1, 1])) > 0.01:
            assert not torch.allclose(ones.flip(0), soft[:, 1].double(), atol=1e-3)


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_kinds_of_labels(make: Any) -> None:
    images = pictures(N, dtype=torch.float32)
    labels = torch.arange(N) % CLASSES
    _, soft = mixed(make(num_classes=CLASSES), images, labels)
    hot = torch.nn.functional.one_hot(labels, CLASSES)
    assert torch.equal(mixed(make(num_classes=CLASSES), images, labels.to(torch.int32))[1], soft)
    assert torch.equal(mixed(make(num_classes=CLASSES), images, hot)[1], soft)
    assert torch.equal(mixed(make(), images, hot.float())[1], soft)
    halves = mixed(make(), images, hot.to(torch.bfloat16))[1]
    assert halves.dtype == torch.bfloat16
    assert torch.allclose(halves.float(), soft, atol=2**-8)


@pytest.mark.parametrize("make", [MixUp, CutMix])
@pytest.mark.parametrize("n", [0, 1])
def test_batches_of_one_and_of_none(make: Any, n: int) -> None:
    images, labels = pictures(n, dtype=torch.float32), torch.arange(n)
    made, soft = mixed(make(num_classes=3), images, labels)
    assert torch.allclose(made, images, atol=1e-6)  # one sample is its own partner
    assert soft.shape == (n, 3)
    assert torch.allclose(soft, torch.eye(3)[labels], atol=1e-6)


def test_both_one_after_the_other_mix_soft_labels() -> None:
    images, labels = pictures(N, dtype=torch.float32), torch.arange(N)
    augment = Augment([MixUp(num_classes=CLASSES), CutMix(num_classes=CLASSES)])
    _, soft = augment(images, labels, samples=numbers(N), epoch=0)
    assert torch.allclose(soft.sum(1), torch.ones(N), atol=1e-6)
    assert (soft > 0).sum(1).max() > 2


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 3.0])
def test_shares_are_distributed_as_beta(alpha: float) -> None:
    n = 40_000
    share = beta(draws_of(range(n)).uniform(2), alpha)
    assert ((share >= 0) & (share <= 1)).all()
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(share.mean() - 0.5) < 4 * (variance / n) ** 0.5
    assert share.var() == pytest.approx(variance, rel=0.03)
    drawn = np.random.default_rng(1).beta(alpha, alpha, n)
    for quantile in np.linspace(0.05, 0.95, 19):  # two standard errors of each sample's, and a margin
        assert abs((share <= np.quantile(drawn, quantile)).mean() - quantile) < 0.015


def test_small_and_large_alphas_stay_in_range() -> None:
    for alpha in (1e-6, 1e-3, 1e6):
        share = beta(draws_of(range(1000)).uniform(2), alpha)
        assert ((share >= 0) & (share <= 1)).all()
    assert (np.minimum(share, 1 - share) > 0.49).all()


def test_what_does_not_go_together_is_said() -> None:
    images, labels = pictures(4, dtype=torch.float32), torch.arange(4)
    with pytest.raises(ConfigError, match="num_classes to make soft labels"):
        mixed(MixUp(), images, labels)
    with pytest.raises(ConfigError, match="labels reach from 0 to 3"):
        mixed(CutMix(num_classes=3), images, labels)
    with pytest.raises(ConfigError, match="the soft labels have 5 classes"):
        mixed(CutMix(num_classes=3), images, torch.rand(4, 5))
    with pytest.raises(ConfigError, match=r"class numbers \[4\] or soft labels"):
        mixed(CutMix(num_classes=3), images, torch.rand(4))
    with pytest.raises(ConfigError, match="Put Normalize before it"):
        mixed(MixUp(num_classes=4), pictures(4), labels)
    with pytest.raises(ConfigError, match="call with images and labels"):
        Augment([MixUp(num_classes=4)])(images, samples=range(4), epoch=0)
    for alpha in (0, -1, float("inf"), "1"):
        with pytest.raises(ConfigError, match="a positive number"):
            MixUp(alpha)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num_classes=0"):
        CutMix(num_classes=0)

"""RandomErasing: torchvision's rectangles, each sample by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from augment_cases import draws_of, layouts, numbers, pictures, run, torchvision_functional

from zerocopy_data.device.augment import RandomErasing
from zerocopy_data.device.augment.batch import spec_of

N = 40


@pytest.mark.parametrize(("dtype", "channels_last"), layouts())
@pytest.mark.parametrize("value", [0, 7, (1, 2, 3)])
def test_rectangles_are_overwritten(value: float | tuple[float, ...], dtype: torch.dtype, channels_last: bool) -> None:
    op, functional = RandomErasing(p=0.6, value=value), torchvision_functional()
    images = pictures(N, dtype=dtype, channels_last=channels_last)
    before = images.clone()
    made = run(op, images)
    boxes = op.boxes(spec_of(images), draws_of(numbers(N))).tolist()
    assert 0 < sum(box[2] > 0 for box in boxes) < N
    fill = torch.tensor(op.value).to(dtype).view(-1, 1, 1)
    for i, box in enumerate(boxes):
        assert torch.equal(made[i], functional.erase(images[i], *box, fill) if box[2] else images[i])
    assert made.stride() == images.stride()
    assert torch.equal(images, before)


def test_a_planted_box_shows() -> None:
    images = pictures(N)
    made = run(RandomErasing(1.0), images)
    boxes = RandomErasing(1.0).boxes(spec_of(images), draws_of(numbers(N)))
    shifted = boxes + np.array([0, 0, 1, 0])  # one row more
    wrong = [torchvision_functional().erase(images[i], *box, torch.zeros(1)) for i, box in enumerate(shifted.tolist())]
    assert sum(not torch.equal(made[i], wrong[i]) for i in range(N)) > N // 2


def test_share_and_form_of_the_rectangles_lie_within_the_limits() -> None:
    op = RandomErasing(1.0, scale=(0.05, 0.2), ratio=(0.5, 2.0))
    spec = spec_of(torch.empty((5000, 3, 200, 300), dtype=torch.uint8, device="meta"))
    top, left, height, width = op.boxes(spec, draws_of(range(5000))).T.astype(float)
    share, form = height * width / (200 * 300), height / width
    # Sides are whole pixels: half a pixel on sides of 38 and more is 3 percent.
    assert share.min() > 0.05 * 0.97
    assert share.max() < 0.2 * 1.03
    assert form.min() > 0.5 * 0.97
    assert form.max() < 2.0 * 1.03
    assert abs(share.mean() - 0.125) < 4 * 0.15 / 12**0.5 / 5000**0.5
    assert abs(np.log(form).mean()) < 4 * np.log(4) / 12**0.5 / 5000**0.5
    assert ((top >= 0) & (top + height <= 200) & (left >= 0) & (left + width <= 300)).all()
    # The place is uniform over where the rectangle fits: mean 1/2 of the free way, of which the whole pixel takes half.
    assert abs(((top + 0.5) / (200 - height + 1)).mean() - 0.5) < 4 / 12**0.5 / 5000**0.5
    assert abs(((left + 0.5) / (300 - width + 1)).mean() - 0.5) < 4 / 12**0.5 / 5000**0.5


def test_rectangles_are_distributed_as_torchvisions() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    op, theirs = RandomErasing(1.0, scale=(0.3, 0.9), ratio=(0.2, 5.0)), v2.RandomErasing(1.0, (0.3, 0.9), (0.2, 5.0))
    image = torch.zeros(3, 40, 50)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        params = [theirs.make_params([image]) for _ in range(3000)]
    areas = np.sort([p["h"] * p["w"] for p in params if p["v"] is not None])
    boxes = op.boxes(spec_of(image.expand(3000, -1, -1, -1)), draws_of(range(3000)))
    ours = np.sort((boxes[:, 2] * boxes[:, 3])[boxes[:, 2] > 0])
    assert abs(len(ours) - len(areas)) < 4 * (2 * 3000 * 0.25) ** 0.5
    # Kolmogorov and Smirnov's distance; 1.95 is the limit at 0.1 percent.
    grid = np.union1d(ours, areas)
    distance = np.abs(
        np.searchsorted(ours, grid, "right") / len(ours) - np.searchsorted(areas, grid, "right") / len(areas)
    )
    assert distance.max() < 1.95 * (1 / len(ours) + 1 / len(areas)) ** 0.5


def test_an_image_stays_where_no_rectangle_fits() -> None:
    images = pictures(N, 20, 20)
    assert run(RandomErasing(1.0, scale=(1.0, 1.0)), images) is images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_random_values_are_normal_and_each_samples_own(dtype: torch.dtype) -> None:
    op = RandomErasing(1.0, scale=(0.3, 0.4), value="random")
    images = torch.zeros((64, 3, 40, 40), dtype=dtype)
    made = run(op, images)
    boxes = op.boxes(spec_of(images), draws_of(numbers(64)))
    values = []
    for one, (top, left, height, width) in zip(made, boxes.tolist(), strict=True):
        inside = one[:, top : top + height, left : left + width]
        assert (one != 0).sum() == (inside != 0).sum() > 0.98 * inside.numel()
        values.append(inside.float().flatten())
    drawn = torch.cat(values)
    sigma = len(drawn) ** -0.5
    assert abs(drawn.mean()) < 4 * sigma
    assert abs(drawn.var() - 1) < 4 * 2**0.5 * sigma
    assert abs((drawn.abs() < 0.6745).double().mean() - 0.5) < 4 * 0.5 * sigma + 0.002  # halves round at the quartile
    assert len({round(float(one[:50].sum()), 4) for one in values}) > 60
    assert torch.equal(made[7:9], run(op, images[:2], numbers(64)[7:9]))


def test_random_values_do_not_repeat_between_neighbouring_numbers() -> None:
    from zerocopy_data.device.augment.noise import normals

    noise = normals(torch.arange(50), 1, 30, 30).flatten(1).double()
    correlation = torch.corrcoef(noise) - torch.eye(50)
    assert correlation.abs().max() < 5 / 900**0.5
    # Nor is one a stretch of another's sequence.
    shifted = torch.corrcoef(torch.cat([noise[:, 1:], noise[:, :-1]]))[:50, 50:]
    assert shifted.abs().max() < 5 / 900**0.5

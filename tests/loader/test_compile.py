"""`zcd.compile` gives what torchvision gives: the same pixels, values, dtypes, class indices and batches."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.functional as functional
from file_trees import CLASSES, all_bytes, folder, write_tree
from loader_data import cloned
from PIL import Image as PillowImage
from same_batches import assert_same
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset
from torchvision.datasets import DatasetFolder, ImageFolder, ImageNet
from torchvision.transforms import v2

import zerocopy_data as zcd

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Mode = v1.InterpolationMode
FINAL = [v1.Resize(24), v1.CenterCrop(20)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("compile") / "tree")


EVALUATION: dict[str, Any] = {
    "resize, crop, bytes": v1.Compose([*FINAL, v1.PILToTensor()]),
    "resize, crop, normalise": v1.Compose([*FINAL, v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "v2": v2.Compose([v2.Resize(24), v2.CenterCrop(20), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    "v2, normalise": v2.Compose(
        [v2.Resize(24), v2.CenterCrop(20), v2.PILToTensor(), v2.ConvertImageDtype(), v2.Normalize(MEAN, STD)]
    ),
    "v2, half": v2.Compose([v2.RGB(), v2.Resize([12, 30]), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]),
    "v1, convert": v1.Compose([v1.Resize((9, 33)), v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)]),
    "named": v1.Compose([torch.nn.Sequential(OrderedDict(transforms=FINAL[0], crop=FINAL[1])), v1.PILToTensor()]),
    "nested": v1.Compose([v1.Compose([FINAL[0]]), torch.nn.Sequential(v2.Identity(), FINAL[1]), v1.ToTensor()]),
    "longest side": v1.Compose([v1.Resize(20, max_size=22), v1.CenterCrop(20), v1.PILToTensor()]),
    "bicubic": v1.Compose([v1.Resize((20, 17), Mode.BICUBIC), v1.PILToTensor()]),
    "nearest": v1.Compose([v1.Resize((20, 17), Mode.NEAREST), v1.PILToTensor()]),
    "nearest-exact": v2.Compose([v2.Resize((20, 17), Mode.NEAREST_EXACT), v2.PILToTensor()]),
    "antialias is nothing to Pillow": v1.Compose([v1.Resize((20, 17), antialias=False), v1.PILToTensor()]),
    "padding crop": v1.Compose([v1.CenterCrop((60, 40)), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "crop of a tensor": v1.Compose([v1.Resize(24), v1.ToTensor(), v1.CenterCrop(40)]),
    "flip of a tensor": v1.Compose([*FINAL, v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomHorizontalFlip(1.0)]),
    "one by itself": v2.Compose([v1.Resize((8, 8)), v2.ToTensor()]),
}


@pytest.mark.parametrize("name", EVALUATION)
def test_samples_equal_torchvisions_in_every_byte(tree: Path, name: str) -> None:
    original = folder(tree, EVALUATION[name])
    compiled = zcd.compile(original)
    assert len(compiled) == len(original)
    for index in range(len(original)):
        image, label = original[index]
        assert_same(compiled[index], (torch.as_tensor(image).as_subclass(torch.Tensor), label))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["resize, crop, bytes", "v2, normalise", "padding crop"])
def test_batches_equal_those_of_the_unchanged_script(tree: Path, name: str, workers: int) -> None:
    original = folder(tree, EVALUATION[name])
    loader = zcd.DataLoader(zcd.compile(original), batch_size=7, num_workers=workers)
    assert loader.uses_threads()
    for got, expected in zip(loader, TorchDataLoader(original, batch_size=7), strict=True):
        assert_same(got, [expected[0].as_subclass(torch.Tensor), expected[1]])


@pytest.mark.parametrize(
    "steps",
    [
        [v1.ToTensor()],
        [v1.ToTensor(), v1.Normalize(MEAN, STD)],
        [v1.ToTensor(), v1.Normalize((0.5,), (0.5,), inplace=True)],
        [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32), v1.Normalize(MEAN, STD)],
        [v1.PILToTensor(), v1.ConvertImageDtype(torch.float16)],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToPureTensor()],
        [v2.ToImage(), v2.ToDtype(torch.float16, scale=True), v2.Normalize(MEAN, STD)],
        [v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize((120.0, 110.0, 100.0), (60.0, 61.0, 62.0))],
        [v2.PILToTensor(), v2.ToDtype(torch.uint8, scale=True)],
        [v2.ToDtype(torch.float32, scale=True), v2.PILToTensor()],  # of a Pillow image v2 converts nothing
    ],
)
def test_every_byte_becomes_torchvisions_value_to_the_last_bit(tmp_path: Path, steps: list[Any]) -> None:
    all_bytes(tmp_path / "class" / "levels.png")
    original = folder(tmp_path, v2.Compose(steps))
    image, label = original[0]
    assert_same(zcd.compile(original)[0], (image.as_subclass(torch.Tensor).contiguous(), label))


def rectangles(compiled: zcd.CompiledDataset, row: int, image: PillowImage.Image, seed: int, epoch: int) -> Any:
    [steps] = compiled.program("image").native.steps(image.width, image.height, seed, epoch, row)
    return steps


def open_rgb(path: str) -> PillowImage.Image:
    with PillowImage.open(path) as image:
        return image.convert("RGB")


def resized(image: PillowImage.Image, steps: Any, mode: Any) -> PillowImage.Image:
    """torchvision's own crop, resize and flip, for the parameters that we drew."""
    (_, x, y, width, height), (_, _, _, new_width, new_height), *flip = steps
    made = functional.resized_crop(image, y, x, height, width, [new_height, new_width], mode)
    return functional.hflip(made) if flip else made


@pytest.mark.parametrize("mode", [Mode.BILINEAR, Mode.BICUBIC, Mode.NEAREST])
@pytest.mark.parametrize("family", [v1, v2])
def test_random_crops_equal_torchvisions_for_the_same_rectangles(tree: Path, family: Any, mode: Any) -> None:
    operations = [family.RandomResizedCrop((18, 23), interpolation=mode), family.RandomHorizontalFlip()]
    original = folder(tree, v1.Compose([*operations, v1.ToTensor(), v1.Normalize(MEAN, STD)]))
    compiled = zcd.compile(original)
    loader = zcd.DataLoader(compiled, batch_size=8, num_workers=2, seed=5)
    finish = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
    flips = set()
    for epoch in range(3):
        images = torch.cat([batch[0] for batch in loader])
        for row, (path, _) in enumerate(original.samples):
            image = open_rgb(path)
            steps = rectangles(compiled, row, image, 5, epoch)
            flips.add(len(steps))
            assert_same(images[row], finish(resized(image, steps, mode)))
    assert flips == {2, 3}


@pytest.mark.parametrize("family", [v1, v2])
@pytest.mark.parametrize(
    "options",
    [
        {"size": 20},
        {"size": (20, 28), "padding": 3},
        {"size": 30, "padding": (2, 9), "fill": 77},
        {"size": 28, "padding": (1, 9, 4, 12), "fill": (9, 8, 7)},
        {"size": (60, 44), "pad_if_needed": True, "fill": (5, 5, 5)},
    ],
)
def test_padded_random_crops_equal_torchvisions_for_the_same_rectangles(
    tree: Path, family: Any, options: dict[str, Any]
) -> None:
    original = folder(tree, v1.Compose([family.RandomCrop(**options), v1.PILToTensor()]))
    compiled = zcd.compile(original)
    compiled.set_epoch(0)
    assert compiled.transform[0] == zcd.RandomCrop(**options)
    fill = options.get("fill", 0)
    places = set()
    for row, (path, _) in enumerate(original.samples):
        image = open_rgb(path)
        [(_, x, y, width, height)] = rectangles(compiled, row, image, 0, 0)
        expected = PillowImage.new("RGB", (width, height), fill if isinstance(fill, tuple) else (fill,) * 3)
        expected.paste(image, (-x, -y))
        assert_same(compiled[row][0], v1.PILToTensor()(expected).contiguous())
        places.add((x, y))
    assert len(places) > 10


def test_class_indices_and_names_are_image_folders(tree: Path) -> None:
    original = folder(tree, EVALUATION["nested"])
    compiled = zcd.compile(original)
    assert compiled.classes == list(CLASSES)
    assert compiled.class_to_idx == original.class_to_idx
    assert compiled.targets == original.targets
    assert [compiled.path(index) for index in (0, -1)] == [original.samples[0][0], original.samples[-1][0]]
    labels = torch.cat([labels for _, labels in zcd.DataLoader(compiled, batch_size=10, num_workers=2)])
    assert labels.tolist() == original.targets


def test_labels_of_every_size_and_sign_survive(tree: Path) -> None:
    for extremes in ((0, 255), (0, 256), (-1, 300), (-(2**63), 2**63 - 1), (5, 2**40)):
        original = folder(tree, EVALUATION["nested"])
        original.samples = [(path, extremes[index % 2]) for index, (path, _) in enumerate(original.samples)]
        compiled = zcd.compile(original)
        [(_, labels)] = zcd.DataLoader(compiled, batch_size=len(compiled))
        assert labels.dtype == torch.int64
        assert labels.tolist() == compiled.targets == [target for _, target in original.samples]


@pytest.mark.parametrize("look_up", [{0: 7, 1: 3, 2: 7}.get, {0: 7, 1: 3, 2: 7}.__getitem__, [7, 3, 7].__getitem__])
def test_target_transforms_that_look_up_are_taken(tree: Path, look_up: Callable[[int], int]) -> None:
    original = folder(tree, EVALUATION["nested"], target_transform=look_up)
    assert set(zcd.compile(original).targets) == {7, 3}
    assert_same(zcd.compile(original)[20], original[20])


def test_a_subset_keeps_rows_order_and_random_parameters(tree: Path) -> None:
    original = folder(tree, v1.Compose([v1.RandomResizedCrop(12), v1.PILToTensor()]))
    whole = zcd.compile(original)
    indices = random.Random(0).choices(range(len(original)), k=30)
    nested = zcd.compile(Subset(Subset(original, indices), [3, -1, 4, 4]))
    rows = [indices[3], indices[-1], indices[4], indices[4]]
    assert len(nested) == 4
    assert nested.targets == [original.targets[row] for row in rows]
    assert len(nested.files) == len(set(rows))
    for dataset in (whole, nested):
        dataset.set_epoch(3)
    for position, row in enumerate(rows):
        assert_same(nested[position], whole[row])
    expected = [cloned(batch) for batch in zcd.DataLoader(Subset(whole, rows), batch_size=3, seed=1)]
    for loader in (
        zcd.DataLoader(nested, batch_size=3, num_workers=2, seed=1),
        zcd.DataLoader(whole.subset(rows), batch_size=3, num_workers=2, seed=1),
    ):
        for got, other in zip(loader, expected, strict=True):
            assert_same(got, other)


def test_slices_are_batches(tree: Path) -> None:
    original = folder(tree, EVALUATION["nested"])
    images, labels = zcd.compile(original)[5:40:3]
    assert_same([images, labels], torch.utils.data.default_collate([original[i] for i in range(5, 40, 3)]))


def test_images_of_different_sizes_are_for_other_collations(tree: Path) -> None:
    original = folder(tree, v1.Compose([v1.Resize(16), v1.ToTensor()]))
    compiled = zcd.compile(original)
    assert_same(compiled[4], original[4])
    with pytest.raises(zcd.ConfigError, match="different sizes"):
        zcd.DataLoader(compiled, batch_size=4)
    loader = zcd.DataLoader(compiled, batch_size=4, collate_fn=list)
    assert not loader.uses_threads()
    assert_same(next(iter(loader)), [original[index] for index in range(4)])


def test_image_net_is_taken(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(tree)
    torch.save(({name: (f"a {name}", f"the {name}") for name in CLASSES}, []), tmp_path / "meta.bin")
    original = ImageNet(str(tmp_path), "train", transform=EVALUATION["nested"])
    compiled = zcd.compile(original)
    assert compiled.classes == original.classes
    assert_same(compiled[-1], original[len(original) - 1])


def test_subclasses_that_choose_other_files_are_taken(tree: Path) -> None:
    class Dogs(ImageFolder):
        def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
            return ["dog"], {"dog": 4}

    original = Dogs(tree, EVALUATION["nested"])
    assert set(zcd.compile(original).targets) == {4}
    assert_same(zcd.compile(original)[2], original[2])
    plain = DatasetFolder(tree, original.loader, (".bmp",), EVALUATION["nested"])
    assert_same(zcd.compile(plain)[2], plain[2])


class Listed(torch.utils.data.Dataset[Any]):
    """What people write who know torchvision's folders."""

    def __init__(self, samples: list[tuple[Any, int]], transform: Any) -> None:
        self.imgs = samples
        self.transform = transform

    def __len__(self) -> int:
        return len(self.imgs)

    def __getitem__(self, index: int) -> Any:
        path, target = self.imgs[index]
        return self.transform(PillowImage.open(path).convert("RGB")), target


def test_other_datasets_with_a_list_of_paths_and_targets_are_taken(tree: Path) -> None:
    paths = [(path, number) for number, path in enumerate(sorted(tree.rglob("*.jpg")))]
    original = Listed(paths, EVALUATION["nested"])
    compiled = zcd.compile(original)
    assert Path(compiled.root) == tree
    for index in range(len(paths)):
        assert_same(compiled[index], original[index])
    assert len(zcd.compile(Listed([], EVALUATION["nested"]))) == 0


@pytest.mark.sample
def test_the_evaluation_chain_equals_torchvisions_on_every_photograph(imagenet: Path) -> None:
    chain = v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.PILToTensor()])
    original = ImageFolder(str(imagenet / "train"), chain)
    loader = zcd.DataLoader(zcd.compile(original), batch_size=50, num_workers=2)
    row = 0
    for images, labels in loader:
        for image, label in zip(images, labels.tolist(), strict=True):
            expected, target = original[row]
            assert image.equal(expected), original.samples[row]
            assert label == target
            row += 1
    assert row == 500


@pytest.mark.sample
def test_the_training_chain_equals_torchvisions_on_photographs(imagenet: Path) -> None:
    chain = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.PILToTensor()])
    original = ImageFolder(str(imagenet / "train"), chain)
    compiled = zcd.compile(original)
    row = 0
    for images, _ in zcd.DataLoader(compiled, batch_size=50, num_workers=2, seed=9):
        for got in images:
            image = open_rgb(original.samples[row][0])
            expected = resized(image, rectangles(compiled, row, image, 9, 0), Mode.BILINEAR)
            assert got.equal(v1.PILToTensor()(expected)), original.samples[row]
            row += 1
    assert row == 500

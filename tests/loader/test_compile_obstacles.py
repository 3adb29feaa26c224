"""What `zcd.compile` can't take it names, every reason at once, and never takes by mistake."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
import torchvision.transforms as v1
from file_trees import folder, write_tree
from loader_data import write_photos
from PIL import Image as PillowImage
from PIL import ImageFilter
from torch.utils.data import Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

import zerocopy_data as zcd

SOUND = v1.Compose([v1.Resize((8, 8)), v1.PILToTensor()])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("obstacles") / "tree")


def reasons(dataset: Any) -> list[str]:
    """The obstacles that the error lists."""
    with pytest.raises(zcd.ConfigError) as caught:
        zcd.compile(dataset)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("can't be compiled:")
    return [line.removeprefix("  - ") for line in lines]


class OwnCrop(v1.RandomResizedCrop):
    pass


class MyTransform:
    def __call__(self, image: Any) -> Any:
        return image


BAD_CHAINS: list[tuple[Any, str]] = [
    (v1.Compose([v1.ColorJitter(), *SOUND.transforms]), r"transform\[0\] (ColorJitter) has no native counterpart"),
    (
        v1.Compose([v2.Compose([SOUND, v2.RandomErasing()])]),
        r"transform\[0\]\[1\] (RandomErasing) has no native counterpart",
    ),
    (
        v1.Compose([MyTransform(), SOUND]),
        "transform[0] (MyTransform) has no native counterpart: only transforms of torch",
    ),
    (
        v1.Compose([OwnCrop(8), v1.ToTensor()]),
        "transform[0] (OwnCrop) has no native counterpart: only torchvision's own",
    ),
    (lambda image: image, "transform (function) has no native counterpart"),
    (v1.Lambda(lambda image: image), "transform (Lambda) has no native counterpart"),
    (v1.Resize(8), "the transform ends with a Pillow image"),
    (v1.Compose([]), "the transform ends with a Pillow image"),
    (None, "it has no transform"),
    (
        v2.Compose([v2.ToImage(), v2.RandomResizedCrop(8), v2.ToDtype(torch.float32, scale=True)]),
        "transform[1] (RandomResizedCrop) resizes a tensor, which gives other pixels than Pillow. "
        "Put it before transform[0] (ToImage)",
    ),
    (v1.Compose([v1.ToTensor(), v1.Resize(8)]), "transform[1] (Resize) resizes a tensor"),
    (
        v1.Compose([v1.ToTensor(), v1.Normalize((0.5,), (0.5,)), v1.CenterCrop(8)]),
        "transform[2] (CenterCrop) may pad after values were changed. Put it before transform[0] (ToTensor)",
    ),
    (v1.Compose([v1.ToTensor(), v1.RandomCrop(8, padding=2, fill=1)]), "transform[1] (RandomCrop) may pad after"),
    (v1.Compose([v1.Resize(8, v1.InterpolationMode.LANCZOS), v1.ToTensor()]), "interpolation 'lanczos' is not supp"),
    (v1.Compose([v1.RandomCrop(8, 2, padding_mode="reflect"), v1.ToTensor()]), "only 'constant' is supported"),
    (v1.Compose([v1.RandomCrop(8, 2, fill=0.5), v1.ToTensor()]), "fill=0.5"),
    (v2.Compose([v2.Resize(None, max_size=9), v2.PILToTensor()]), "size=None is not supported"),
    (
        v1.Compose([v1.PILToTensor(), v1.Normalize((0.5,), (0.5,))]),
        "transform[1] (Normalize) fails on what stands before",
    ),
    (v2.Compose([v2.ToImage(), v2.ToDtype(torch.float64, scale=True)]), "the transform ends with float64"),
    (v2.Compose([v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True)]), "the transform ends with bfloat16"),
    (v2.Compose([v2.ToImage(), v2.ToDtype(torch.int64, scale=True)]), "the transform ends with int64"),
]


@pytest.mark.parametrize(("transform", "expected"), BAD_CHAINS, ids=range(len(BAD_CHAINS)))
def test_a_transform_that_is_not_known_is_named_with_its_place(tree: Path, transform: Any, expected: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [reason] = reasons(folder(tree, transform))
    assert expected.replace("\\", "") in reason


def with_hook(transform: Any) -> Any:
    transform.register_forward_hook(lambda module, given, made: 255 - made)
    return transform


def with_method(transform: Any) -> Any:
    transform.forward = lambda image: image
    return transform


@pytest.mark.parametrize("alter", [with_hook, with_method])
@pytest.mark.parametrize("api", [v1, v2])
def test_a_transform_that_was_altered_after_it_was_made_is_refused(tree: Path, api: Any, alter: Any) -> None:
    [reason] = reasons(folder(tree, api.Compose([alter(api.CenterCrop(16)), api.PILToTensor()])))
    assert "transform[0] (CenterCrop) has hooks or methods of its own" in reason


def test_a_container_with_hooks_is_refused(tree: Path) -> None:
    chain = with_hook(torch.nn.Sequential(v2.CenterCrop(16), v2.PILToTensor()))
    [reason] = reasons(folder(tree, chain))
    assert "(Sequential) has hooks" in reason


def test_all_obstacles_are_listed_at_once(tree: Path) -> None:
    class Mixed(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return (*super().__getitem__(index), self.samples[index][0])

    def open_it(path: str) -> Any:
        return pil_loader(path).filter(ImageFilter.BLUR)

    chain = v1.Compose([v1.RandomRotation(3), v1.Resize(8), v1.RandomVerticalFlip()])
    dataset = Mixed(str(tree), chain, target_transform=lambda target: target + 1, loader=open_it)
    got = reasons(Subset(dataset, [1, 2]))
    assert len(got) == 5
    for reason, part in zip(
        got,
        (
            "Mixed has a __getitem__ of its own",
            "its loader is test_all_obstacles_are_listed_at_once.<locals>.open_it",
            "its target_transform test_all_obstacles_are_listed_at_once.<locals>.<lambda> may do anything",
            "transform[0] (RandomRotation)",
            "transform[2] (RandomVerticalFlip)",
        ),
        strict=True,
    ):
        assert part in reason


def test_methods_of_a_subclass_that_torch_calls_are_obstacles(tree: Path) -> None:
    class Longer(ImageFolder):
        def __len__(self) -> int:
            return 3

        def __getitems__(self, indices: list[int]) -> Any:
            return [self[index] for index in indices]

    got = reasons(Longer(str(tree), SOUND))
    assert [reason.split(" has a ")[1].split()[0] for reason in got] == ["__getitems__", "__len__"]


def test_another_image_backend_is_an_obstacle(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision, "_image_backend", "accimage")
    [reason] = reasons(folder(tree, SOUND))
    assert "set_image_backend('PIL')" in reason
    assert len(zcd.compile(folder(tree, SOUND, loader=pil_loader))) > 0


@pytest.mark.parametrize(
    "targets", [[1.0, 2.0], ["a", "b"], [True, False], [torch.tensor(1)] * 2, [2**63, 0], [None] * 2]
)
def test_targets_that_are_no_integers_are_named(tree: Path, targets: list[Any]) -> None:
    dataset = folder(tree, SOUND)
    dataset.samples = [(path, targets[index % 2]) for index, (path, _) in enumerate(dataset.samples)]
    [reason] = reasons(dataset)
    assert "targets are no integers of 64 bits" in reason


def test_samples_that_are_no_pairs_are_named(tree: Path) -> None:
    dataset = folder(tree, SOUND)
    dataset.samples = [*dataset.samples[:3], ("nul\0byte", 1), (7, 1), ("", 0), "ab", 5]
    reason = reasons(dataset)[0]
    assert "5 samples are no pairs of a path and a class index: 3: ('nul" in reason
    assert ", …" in reason


def test_a_target_transform_that_lacks_a_class_is_named(tree: Path) -> None:
    [reason] = reasons(folder(tree, SOUND, target_transform={0: 1}.__getitem__))
    assert "its target_transform fails: KeyError" in reason
    [reason] = reasons(folder(tree, SOUND, target_transform={0: 1}.get))
    assert "targets are no integers" in reason


def test_datasets_without_paths_are_refused(photos_path: Path, tmp_path: Path) -> None:
    for other in (TensorDataset(torch.zeros(3)), 3):
        [reason] = reasons(other)
        assert f"{type(other).__name__} has no list `samples` or `imgs`" in reason
    shards = zcd.open(write_photos(tmp_path / "photos"))
    with pytest.raises(zcd.ConfigError, match="runs natively as it is"):
        zcd.compile(shards)


def test_compiling_twice_is_once(tree: Path) -> None:
    compiled = zcd.compile(folder(tree, SOUND))
    assert zcd.compile(compiled) is compiled


def test_a_compiled_dataset_takes_no_other_transform(tree: Path) -> None:
    compiled = zcd.compile(folder(tree, SOUND))
    with pytest.raises(AttributeError):
        compiled.transform = v1.ToTensor()  # type: ignore[misc]


class Listed(torch.utils.data.Dataset[Any]):
    """A dataset of somebody's own; `load` is what it does for a sample."""

    def __init__(self, tree: Path, load: Callable[[Any, int], Any]) -> None:
        self.samples = [(str(path), number) for number, path in enumerate(sorted(tree.rglob("*.jpg")))]
        self.transform = SOUND
        self.load = load

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.load(self, index)


def load_plainly(dataset: Any, index: int) -> Any:
    path, target = dataset.samples[index]
    return dataset.transform(PillowImage.open(path).convert("RGB")), target


def load_blurred(dataset: Any, index: int) -> Any:
    path, target = dataset.samples[index]
    return dataset.transform(PillowImage.open(path).convert("RGB").filter(ImageFilter.BLUR)), target


def load_gray(dataset: Any, index: int) -> Any:
    path, target = dataset.samples[index]
    return dataset.transform(PillowImage.open(path).convert("L")), target


def load_doubled(dataset: Any, index: int) -> Any:
    return (load_plainly(dataset, index)[0] * 2, dataset.samples[index][1])


def load_twice(dataset: Any, index: int) -> Any:
    return load_plainly(dataset, index), load_plainly(dataset, index)


def load_with_path(dataset: Any, index: int) -> Any:
    return (*load_plainly(dataset, index), dataset.samples[index][0])


def load_as_dict(dataset: Any, index: int) -> Any:
    image, target = load_plainly(dataset, index)
    return {"image": image, "label": target}


def load_next_label(dataset: Any, index: int) -> Any:
    return load_plainly(dataset, index)[0], dataset.samples[index][1] + 1


def load_other_file(dataset: Any, index: int) -> Any:
    return load_plainly(dataset, len(dataset) - 1 - index)[0], dataset.samples[index][1]


def load_past_the_transform(dataset: Any, index: int) -> Any:
    path, target = dataset.samples[index]
    return SOUND(PillowImage.open(path).convert("RGB")), target


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (load_blurred, "something else than the file as Pillow's RGB image"),
        (load_gray, "something else than the file as Pillow's RGB image"),
        (load_other_file, "something else than the file as Pillow's RGB image"),
        (load_doubled, "fails when its transform is watched: TypeError"),
        (load_twice, "does more to the image than self.transform"),
        (load_past_the_transform, "does more to the image than self.transform"),
        (load_with_path, "returns tuple of 3, not (image, class index)"),
        (load_as_dict, "returns dict, not (image, class index)"),
        (load_next_label, "returns 1 for a sample whose class index is 0"),
    ],
)
def test_a_getitem_that_does_more_is_noticed(tree: Path, load: Callable[[Any, int], Any], expected: str) -> None:
    [reason] = reasons(Listed(tree, load))
    assert reason.startswith("Listed.__getitem__(0) ")
    assert expected in reason
    dataset = Listed(tree, load_plainly)
    assert len(zcd.compile(dataset)) == len(dataset)
    assert dataset.transform is SOUND


def test_a_length_that_contradicts_the_list_is_noticed(tree: Path) -> None:
    class Half(Listed):
        def __len__(self) -> int:
            return len(self.samples) // 2

    [reason] = reasons(Half(tree, load_plainly))
    assert "its list" in reason


def test_datasets_that_torch_reads_in_another_way_are_noticed(tree: Path) -> None:
    class Many(Listed):
        def __getitems__(self, indices: list[int]) -> Any:
            return [self[-index] for index in indices]

    class Stream(torch.utils.data.IterableDataset[Any]):
        samples = Listed(tree, load_plainly).samples
        transform = SOUND

        def __iter__(self) -> Any:
            return iter(())

    class Fixed(Listed):
        transform = property(lambda self: SOUND, lambda self, value: None)

    assert "__getitems__ of its own" in reasons(Many(tree, load_plainly))[0]
    assert "no length" in reasons(Stream())[0]
    assert "does more to the image than self.transform" in reasons(Fixed(tree, load_plainly))[0]

"""Image loaders on the same folder of JPEGs, one small class each: ours and what people would otherwise use.

Every arm delivers batches as torch tensors with their labels; nobody touches them further. All arms see the
same files, `copies` times over in an epoch, and leave out a last batch that is not full.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CROP = 224
EVAL_RESIZE = 256

WORKLOADS = {
    "train-uint8": "RandomResizedCrop(224), flip; uint8",
    "train-float32": "RandomResizedCrop(224), flip, normalise; float32 NCHW",
    "eval-uint8": "Resize(256), CenterCrop(224); uint8",
    "raw256-crop": "RandomCrop(224), flip from decoded 256x256 pixels; uint8",
    "raw256-rrc": "RandomResizedCrop(224), flip from decoded 256x256 pixels; uint8",
}
RAW_WORKLOADS = ("raw256-crop", "raw256-rrc")


IMAGE_SUFFIXES = (".jpg", ".jpeg")


def list_images(tree: Path) -> list[Path]:
    """The JPEGs of an ImageFolder tree, sorted."""
    folders = sorted(path for path in tree.iterdir() if path.is_dir())
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix.lower() in IMAGE_SUFFIXES]


@dataclass(frozen=True)
class Setting:
    """What all arms share.

    Attributes:
        workload: A key of WORKLOADS.
        folder: An ImageFolder tree of JPEGs.
        packed: The same packed, bytes unchanged.
        packed_raw: The same packed as decoded 256x256 pixels; None where no workload needs it.
        batch_size: Items in a batch.
        threads: Decoding threads or worker processes.
        copies: How often an epoch passes over the folder, so that the ends of a small folder's epochs do not
            count
            more than they would in training.
    """

    workload: str
    folder: Path
    packed: Path
    packed_raw: Path | None
    batch_size: int
    threads: int
    copies: int


class TensorLoaderArm:
    """An arm that iterates over a loader of (images, labels)."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def epoch(self) -> int:
        """One pass over the loader."""
        items = 0
        for images, _labels in self.loader:
            items += len(images)
        return items


class ZcdArm(TensorLoaderArm):
    """This library over packed shards."""

    requires: ClassVar[dict[str, str]] = {}

    def __init__(self, setting: Setting) -> None:
        import numpy as np

        import zerocopy_data as zcd

        train = [zcd.RandomResizedCrop(CROP), zcd.RandomHorizontalFlip()]
        operations: dict[str, list[Any]] = {
            "train-uint8": train,
            "train-float32": [*train, zcd.Normalize(IMAGENET_MEAN, IMAGENET_STD)],
            "eval-uint8": [zcd.Resize(EVAL_RESIZE), zcd.CenterCrop(CROP)],
            "raw256-crop": [zcd.RandomCrop(CROP), zcd.RandomHorizontalFlip()],
            "raw256-rrc": train,
        }
        path = setting.packed_raw if setting.workload in RAW_WORKLOADS else setting.packed
        assert path is not None
        dataset = zcd.open(path, transform={"image": operations[setting.workload]}).as_tuple("image", "label")
        if setting.copies > 1:
            dataset = dataset.subset(np.tile(np.arange(len(dataset)), setting.copies))
        super().__init__(
            zcd.DataLoader(
                dataset,
                batch_size=setting.batch_size,
                shuffle=setting.workload != "eval-uint8",
                num_workers=setting.threads,
                drop_last=True,
                seed=0,
            )
        )


class NativeArm:
    """The least any loader must do: plain C++ threads that decode and resize the same bytes, nothing else.

    No dataset, no order, no batches: each thread writes into one buffer of its own, over and over.
    """

    requires: ClassVar[dict[str, str]] = {}

    def __init__(self, setting: Setting) -> None:
        import numpy as np

        from .. import _native

        flip = _native.Op.horizontal_flip(0.5)
        crop = _native.Op.random_resized_crop(CROP, CROP, (0.08, 1.0), (3 / 4, 4 / 3), "bilinear")
        levels = np.arange(256, dtype=np.float64) / 255
        normalised = (levels - np.array(IMAGENET_MEAN)[:, None]) / np.array(IMAGENET_STD)[:, None]
        operations, dtype, table = {
            "train-uint8": ([crop, flip], "uint8", None),
            "train-float32": ([crop, flip], "float32", normalised.astype(np.float32).view(np.uint32)),
            "eval-uint8": (
                [
                    _native.Op.resize(EVAL_RESIZE, None, 0, "bilinear"),
                    _native.Op.center_crop(CROP, CROP),
                ],
                "uint8",
                None,
            ),
        }[setting.workload]
        view = _native.View(operations, dtype, "nchw", table, CROP, CROP)
        self._program = _native.Program([view])
        self._blobs = [file.read_bytes() for file in list_images(setting.folder)]
        self._setting = setting

    def epoch(self) -> int:
        """Every image as often as in the other arms."""
        from .. import _native

        _native.bench_decode(self._blobs, self._program, self._setting.threads, self._setting.copies)
        return len(self._blobs) * self._setting.copies


class TorchArm(TensorLoaderArm):
    """torch's DataLoader over torchvision's ImageFolder with the usual transforms on PIL images."""

    requires: ClassVar[dict[str, str]] = {"torchvision": "pip install torchvision"}

    def __init__(self, setting: Setting) -> None:
        from torchvision import datasets, transforms

        train = [transforms.RandomResizedCrop(CROP), transforms.RandomHorizontalFlip()]
        operations = {
            "train-uint8": [*train, transforms.PILToTensor()],
            "train-float32": [
                *train,
                transforms.ToTensor(),
                transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
            ],
            "eval-uint8": [
                transforms.Resize(EVAL_RESIZE),
                transforms.CenterCrop(CROP),
                transforms.PILToTensor(),
            ],
        }[setting.workload]
        folder = datasets.ImageFolder(str(setting.folder), transforms.Compose(operations))
        super().__init__(torch_loader(folder, setting))


class TorchvisionDecodeArm(TensorLoaderArm):
    """torch's DataLoader with torchvision.io.decode_jpeg and the v2 transforms on tensors."""

    requires: ClassVar[dict[str, str]] = {"torchvision": "pip install torchvision"}

    def __init__(self, setting: Setting) -> None:
        import torch
        from torchvision import datasets
        from torchvision.transforms import v2

        train = [v2.RandomResizedCrop(CROP, antialias=True), v2.RandomHorizontalFlip()]
        operations = {
            "train-uint8": train,
            "train-float32": [
                *train,
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
            ],
            "eval-uint8": [v2.Resize(EVAL_RESIZE, antialias=True), v2.CenterCrop(CROP)],
        }[setting.workload]
        folder = datasets.ImageFolder(str(setting.folder), v2.Compose(operations), loader=read_jpeg)
        super().__init__(torch_loader(folder, setting))


def read_jpeg(path: str) -> Any:
    """uint8 [3, height, width], decoded by torchvision."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def torch_loader(folder: Any, setting: Setting) -> Any:
    """torch's DataLoader as the baselines use it."""
    from torch.utils.data import ConcatDataset, DataLoader

    return DataLoader(
        ConcatDataset([folder] * setting.copies),
        batch_size=setting.batch_size,
        shuffle=setting.workload != "eval-uint8",
        num_workers=setting.threads,
        persistent_workers=setting.threads > 0,
        drop_last=True,
    )


class DaliArm:
    """NVIDIA DALI on the CPU: region decoding, resize, flip, and no copy of its output."""

    requires: ClassVar[dict[str, str]] = {"nvidia.dali": "pip install nvidia-dali-cuda130"}

    def __init__(self, setting: Setting) -> None:
        # Not by `import`: DALI's stubs disagree with its documentation (device_id=None is refused there).
        dali: Any = importlib.import_module("nvidia.dali")
        fn, types = importlib.import_module("nvidia.dali.fn"), dali.types

        shuffle = setting.workload != "eval-uint8"

        def graph() -> Any:
            data, labels = fn.readers.file(file_root=str(setting.folder), random_shuffle=shuffle, name="reader", seed=0)
            if setting.workload == "eval-uint8":
                images = fn.decoders.image(data, device="cpu", output_type=types.RGB)
                images = fn.resize(images, resize_shorter=EVAL_RESIZE, antialias=True)
                images = fn.crop(images, crop=(CROP, CROP))
                return fn.transpose(images, perm=[2, 0, 1]), labels
            images = fn.decoders.image_random_crop(
                data,
                device="cpu",
                output_type=types.RGB,
                random_aspect_ratio=[3 / 4, 4 / 3],
                random_area=[0.08, 1.0],
                num_attempts=10,
            )
            images = fn.resize(images, size=(CROP, CROP), antialias=True)
            mirror = fn.random.coin_flip(probability=0.5)
            if setting.workload == "train-uint8":
                # Faster than fn.flip; NHWC, so that a transpose does not count against it.
                uint8 = fn.crop_mirror_normalize(
                    images, dtype=types.UINT8, output_layout="HWC", mean=[0.0], std=[1.0], mirror=mirror
                )
                return uint8, labels
            normalised = fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=[value * 255 for value in IMAGENET_MEAN],
                std=[value * 255 for value in IMAGENET_STD],
                mirror=mirror,
            )
            return normalised, labels

        define = dali.pipeline_def(
            batch_size=setting.batch_size, num_threads=setting.threads, device_id=None, prefetch_queue_depth=2
        )
        self._pipeline = define(graph)()
        self._pipeline.build()
        files = self._pipeline.epoch_size("reader")
        self._batches = files * setting.copies // setting.batch_size

    def epoch(self) -> int:
        """As many batches as the other arms have; DALI's reader wraps around."""
        from torch.utils.dlpack import from_dlpack

        items = 0
        for _ in range(self._batches):
            images, labels = self._pipeline.run()
            # Views that DALI overwrites after the next batch: its best case, loaders that keep batches must
            # copy.
            batch = from_dlpack(images.as_tensor()), from_dlpack(labels.as_tensor())
            items += len(batch[0])
        return items


@dataclass(frozen=True)
class Loader:
    """A loader that `zcd bench images` knows."""

    build: Callable[[Setting], Any]
    requires: dict[str, str]  # module: the command that brings it
    workloads: tuple[str, ...]

    def missing(self) -> str | None:
        """The command that brings what is missing; None when nothing is."""
        for module, command in self.requires.items():
            try:
                found = importlib.util.find_spec(module) is not None
            except ModuleNotFoundError:  # a parent package is missing
                found = False
            if not found:
                return command
        return None


JPEG_WORKLOADS = tuple(name for name in WORKLOADS if name not in RAW_WORKLOADS)
LOADERS = {
    "zcd": Loader(ZcdArm, ZcdArm.requires, tuple(WORKLOADS)),
    "zcd-native": Loader(NativeArm, NativeArm.requires, JPEG_WORKLOADS),
    "torch": Loader(TorchArm, TorchArm.requires, JPEG_WORKLOADS),
    "torchvision-decode": Loader(TorchvisionDecodeArm, TorchvisionDecodeArm.requires, JPEG_WORKLOADS),
    "dali": Loader(DaliArm, DaliArm.requires, JPEG_WORKLOADS),
}

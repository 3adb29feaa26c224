"""zerocopy_data: packs training data into mmap-able shards and feeds PyTorch from them at the decoder's limit.

    import zerocopy_data as zcd

    zcd.pack("imagenet/")                                   # or: zcd pack imagenet/
    ds = zcd.open("imagenet.zcd/train", transform={"image": [zcd.RandomResizedCrop(224), zcd.Normalize()]})
    loader = zcd.DataLoader(ds.as_tuple("image", "label"), batch_size=256, shuffle=True, num_workers=8, seed=0)

Names are imported when they are first used: packing needs no torch, and this import costs a millisecond.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import device
    from .device.request import Staging
    from .errors import (
        BadSampleError,
        ConfigError,
        DatasetChangedError,
        ManifestError,
        ManifestVersionError,
        NotADatasetError,
        OutputExistsError,
        PackError,
        ShardDamagedError,
        SourceError,
        UnfinishedPackError,
        ZcdError,
    )
    from .format.fields import Bytes, Image, Json, Scalar, Tensor, Text, Tokens
    from .format.writer import DatasetWriter
    from .image.ops import (
        CenterCrop,
        MultiCrop,
        Normalize,
        RandomCrop,
        RandomHorizontalFlip,
        RandomResizedCrop,
        Resize,
        ToDtype,
    )
    from .loader.balanced_sampler import ClassBalancedSampler
    from .loader.bucket_sampler import BucketBatchSampler
    from .loader.compile import compile_dataset as compile
    from .loader.compiled import CompiledDataset
    from .loader.dataloader import DataLoader
    from .loader.dataset import ShardDataset
    from .loader.dataset import open_dataset as open
    from .loader.epoch_sampler import EpochSampler
    from .loader.lengths import lengths
    from .loader.mix import MixedDataset, mix
    from .loader.packed import pack_sequences
    from .loader.pad import PadCollate
    from .loader.repeated_sampler import RepeatedSampler
    from .loader.stateful import StatefulDataLoader
    from .loader.weighted_sampler import WeightedSampler
    from .loader.windows import windows
    from .memory.shared_list import SharedList, share
    from .order.packing import pack_rows
    from .pack.packer import pack
    from .patch import patch

__version__ = "0.1.0"

# Public name → (module, name there).
_EXPORTS = {
    **{
        name: ("errors", name)
        for name in (
            "BadSampleError",
            "ConfigError",
            "DatasetChangedError",
            "ManifestError",
            "ManifestVersionError",
            "NotADatasetError",
            "OutputExistsError",
            "PackError",
            "ShardDamagedError",
            "SourceError",
            "UnfinishedPackError",
            "ZcdError",
        )
    },
    **{name: ("format.fields", name) for name in ("Bytes", "Image", "Json", "Scalar", "Tensor", "Text", "Tokens")},
    **{
        name: ("image.ops", name)
        for name in (
            "CenterCrop",
            "MultiCrop",
            "Normalize",
            "RandomCrop",
            "RandomHorizontalFlip",
            "RandomResizedCrop",
            "Resize",
            "ToDtype",
        )
    },
    "BucketBatchSampler": ("loader.bucket_sampler", "BucketBatchSampler"),
    "ClassBalancedSampler": ("loader.balanced_sampler", "ClassBalancedSampler"),
    "CompiledDataset": ("loader.compiled", "CompiledDataset"),
    "DataLoader": ("loader.dataloader", "DataLoader"),
    "EpochSampler": ("loader.epoch_sampler", "EpochSampler"),
    "DatasetWriter": ("format.writer", "DatasetWriter"),
    "RepeatedSampler": ("loader.repeated_sampler", "RepeatedSampler"),
    "ShardDataset": ("loader.dataset", "ShardDataset"),
    "compile": ("loader.compile", "compile_dataset"),
    "SharedList": ("memory.shared_list", "SharedList"),
    "Staging": ("device.request", "Staging"),
    "StatefulDataLoader": ("loader.stateful", "StatefulDataLoader"),
    "lengths": ("loader.lengths", "lengths"),
    "open": ("loader.dataset", "open_dataset"),
    "PadCollate": ("loader.pad", "PadCollate"),
    "MixedDataset": ("loader.mix", "MixedDataset"),
    "mix": ("loader.mix", "mix"),
    "pack": ("pack.packer", "pack"),
    "pack_rows": ("order.packing", "pack_rows"),
    "pack_sequences": ("loader.packed", "pack_sequences"),
    "share": ("memory.shared_list", "share"),
    "WeightedSampler": ("loader.weighted_sampler", "WeightedSampler"),
    "windows": ("loader.windows", "windows"),
    "patch": ("patch", "patch"),
}

__all__ = [
    "BadSampleError",
    "BucketBatchSampler",
    "Bytes",
    "CenterCrop",
    "ClassBalancedSampler",
    "CompiledDataset",
    "ConfigError",
    "DataLoader",
    "DatasetChangedError",
    "DatasetWriter",
    "EpochSampler",
    "Image",
    "Json",
    "ManifestError",
    "ManifestVersionError",
    "MixedDataset",
    "MultiCrop",
    "Normalize",
    "NotADatasetError",
    "OutputExistsError",
    "PackError",
    "PadCollate",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RepeatedSampler",
    "Resize",
    "Scalar",
    "ShardDamagedError",
    "ShardDataset",
    "SharedList",
    "SourceError",
    "Staging",
    "StatefulDataLoader",
    "Tensor",
    "Text",
    "ToDtype",
    "Tokens",
    "UnfinishedPackError",
    "WeightedSampler",
    "ZcdError",
    "compile",
    "device",
    "lengths",
    "mix",
    "open",
    "pack",
    "pack_rows",
    "pack_sequences",
    "patch",
    "share",
    "windows",
]


# Packages under this one that are part of the public face: zcd.device.memory.SwapPool.
_PACKAGES = ("device",)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    try:
        module, attribute = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Augmentation of whole batches, on the device or the CPU, each sample by its own keyed random parameters.

The names, arguments and distributions are those of torchvision.transforms.v2. `Augment` calls operations on tensors,
`Augment.on` makes a transform of whole batches of it, for `Staging(transform=)`.
"""

from .compose import Augment
from .crop import RandomCrop
from .cutmix import CutMix
from .erasing import RandomErasing
from .flip import RandomHorizontalFlip
from .jitter import ColorJitter
from .mixup import MixUp
from .normalize import Normalize
from .policy import RandAugment, TrivialAugmentWide
from .whole import BatchAugment

__all__ = [
    "Augment",
    "BatchAugment",
    "ColorJitter",
    "CutMix",
    "MixUp",
    "Normalize",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "TrivialAugmentWide",
]

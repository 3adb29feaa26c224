"""Augmentation of whole batches, on the device or the CPU, each sample by its own keyed random parameters.

The names, arguments and distributions are those of torchvision.transforms.v2. `Augment` calls operations on tensors,
`Augment.on` makes a transform of whole batches of it, for `Staging(transform=)`. What works on colours (ColorJitter,
RandAugment, TrivialAugmentWide) comes before Normalize, MixUp behind it; leave Normalize out of the dataset's own
transform then.

    augment = Augment([RandAugment(), Normalize(), MixUp(num_classes=1000)], seed=0)
    dataset = zcd.open("imagenet.zcd/train", [zcd.RandomResizedCrop(224)]).numbered("index")
    transform = augment.on("image", "label", samples="index")
    loader = zcd.DataLoader(dataset, 256, shuffle=True, seed=0, device=zcd.Staging("cuda", transform=transform))
"""

from .compose import Augment
from .crop import RandomCrop
from .cutmix import CutMix
from .erasing import RandomErasing
from .flip import RandomHorizontalFlip
from .jitter import ColorJitter
from .mixup import MixUp
from .normalize import Normalize
from .op import BatchOp
from .policy import RandAugment, TrivialAugmentWide
from .whole import BatchAugment

__all__ = [
    "Augment",
    "BatchAugment",
    "BatchOp",
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

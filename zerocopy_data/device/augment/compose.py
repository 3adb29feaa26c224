"""A chain of operations on batches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch

from ...errors import ConfigError
from ...order.seed import seed_number
from .batch import Batch, spec_of
from .cutmix import CutMix
from .fused import fuse
from .jitter import ColorJitter
from .mixup import MixUp
from .normalize import Normalize
from .op import BatchOp, Draws
from .parcel import Parcel
from .parts import Key
from .policy import RandAugment, TrivialAugmentWide
from .whole import BatchAugment

# Lanes of the generator. Those of the operations that decode a sample start with 0: the same sample under the same seed
# must not draw its flip here from the number that placed its crop there.
_LANES = 1 << 31


class Augment:
    """Augments batches on the device where they lie, each sample by its own random parameters.

    Example:
        augment = Augment([RandomCrop(224), RandomHorizontalFlip(), Normalize(dtype=torch.bfloat16)], seed=0)
        images = augment(images, samples=rows, epoch=3)
        loader = DataLoader(dataset, 256, device=Staging("cuda", transform=augment.on("image", samples="index")))

    Parameters depend on (seed, epoch, sample) and the operation's place in the chain, so a sample becomes the same in
    any batch, on any device and after resuming; only MixUp and CutMix also depend on the sample's neighbour. They are
    drawn on the host and travel in one small copy on the current stream; the host never waits for the device.

    A random crop without padding, a flip and Normalize that follow one another are done in one pass
    (`kernels.fused_normalize`) where the images are uint8.

    Attributes:
        ops: The operations, in order.
        seed: Their seed.
        mixes: Whether MixUp or CutMix is among them, which need labels.
    """

    def __init__(self, ops: Sequence[BatchOp], seed: int = 0) -> None:
        """Checks the chain.

        Args:
            ops: Operations of this package.
            seed: Any integer.

        Raises:
            ConfigError: something else stands among them, or the seed is no integer.
        """
        if not isinstance(ops, Sequence):
            raise ConfigError(f"Augment({ops!r}): a list of operations, in brackets even if it is one.")
        for op in ops:
            if not callable(getattr(op, "plan", None)) or isinstance(op, type):
                raise ConfigError(
                    f"{op!r} is no operation on batches. Use those of zerocopy_data.device.augment, made with their "
                    "arguments, such as RandomHorizontalFlip()."
                )
        self.ops = tuple(ops)
        self.seed = seed_number(seed)
        self._fused = fuse(self.ops)
        self.mixes = any(isinstance(op, MixUp | CutMix) for op in ops)
        _refuse_normalized(self.ops, False)
        self._looked = False

    def __repr__(self) -> str:
        return f"Augment({list(self.ops)!r}, seed={self.seed})"

    @overload
    def __call__(self, images: torch.Tensor, labels: None = None, *, samples: Any, epoch: int) -> torch.Tensor: ...
    @overload
    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor, *, samples: Any, epoch: int
    ) -> tuple[torch.Tensor, torch.Tensor]: ...
    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor | None = None, *, samples: Any = None, epoch: Any = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Augments one batch.

        Args:
            images: uint8, float16, bfloat16 or float32 [n, C, H, W], C 1 or 3, contiguous or channels_last, on any
                device. Never written to. Floats reach from 0 to 1 until they are normalised.
            labels: int64 [n] or soft labels [n, num_classes], on the same device. Needed for MixUp and CutMix, which
                make soft labels; other operations leave them alone.
            samples: Integers [n], the samples' numbers in the dataset, on the host.
            epoch: From 0.

        Returns:
            The images, in the memory format that they came in; with the labels if some were given. It is `images`
            itself when there was nothing to do.

        Raises:
            ConfigError: an operation can't work on such a batch, or the arguments don't go together.
        """
        if samples is None or epoch is None:
            raise ConfigError(
                "an Augment needs samples= and epoch=, which key the random parameters. As the transform of whole "
                "batches, such as Staging(transform=), use augment.on(...), which takes them from the batch."
            )
        spec = spec_of(images)
        numbers = sample_numbers(samples, spec.n)
        if labels is not None and not isinstance(labels, torch.Tensor):
            raise ConfigError(f"labels are {type(labels).__name__}: a tensor [n] or [n, num_classes] is needed.")
        if labels is not None and labels.device != images.device:
            raise ConfigError(f"labels lie on {labels.device}, the images on {images.device}: move them there first.")
        if labels is None and self.mixes:
            raise ConfigError("MixUp and CutMix mix labels too: call with images and labels.")
        try:
            number = operator.index(epoch)
        except TypeError:
            raise ConfigError(f"epoch={epoch!r}: an integer.") from None
        self.look(images)
        memory_format = spec.memory_format
        parcel, steps = Parcel(), []
        for place, op in self._fused:
            step, spec = op.plan(spec, Draws(self.seed, number, numbers, _LANES | place), parcel)
            steps.append(step)
        batch = Batch(images, labels)
        if steps:
            parcel.send(images.device)
        for step in steps:
            step(batch)
        made = batch.images
        if made is not images:
            made = made.contiguous(memory_format=memory_format)
        return made if batch.labels is None else (made, batch.labels)

    def look(self, images: Any) -> None:
        """Looks whether the first images come normalised: not at all, for a pass over each batch would cost time.

        Args:
            images: In host memory, a tensor or a `Levelled`; what lies on a device is not waited for.

        Raises:
            ConfigError: they do, and an operation here cuts what lies outside 0 to 1.
        """
        if self._looked:
            return
        table = getattr(images, "table", None)
        values = images if table is None else table
        if not isinstance(values, torch.Tensor) or values.device.type != "cpu" or not values.numel():
            return
        if values.is_floating_point():
            low, high = torch.aminmax(values)
            _refuse_normalized(self.ops, bool(low < -0.1) or bool(high > 1.1))  # resizing overshoots by less
        self._looked = True

    def on(self, images: Key, labels: Key | None = None, *, samples: Key | None = None) -> BatchAugment:
        """These operations as a transform of whole batches, for `Staging(transform=)` and for training loops.

        Args:
            images: Where the images lie in a batch: a key of a dict, a field of a named tuple or dataclass, or a place
                in a list or tuple.
            labels: Likewise; needed for MixUp and CutMix, whose soft labels take their place.
            samples: Likewise, where each batch has its samples' numbers in the dataset, integers [n]. None numbers
                the samples as they come, from each `set_epoch` on: see `BatchAugment`.

        Raises:
            ConfigError: MixUp or CutMix, and no labels.
        """
        return BatchAugment(self, images, labels, samples)


def _refuse_normalized(ops: Sequence[BatchOp], normalized: bool) -> None:
    """Refuses chains that would cut off what lies outside 0 to 1.

    Args:
        ops: The chain.
        normalized: Whether images come normalised.

    Raises:
        ConfigError: an operation on colours would get normalised images.
    """
    for op in ops:
        if normalized and isinstance(op, ColorJitter | RandAugment | TrivialAugmentWide):
            name = type(op).__name__
            raise ConfigError(
                f"{name} works on pixel values, uint8 or floats from 0 to 1, and these images have been normalised: it "
                f"would cut off most of them. Put {name} before Normalize; where the dataset normalises, leave that to "
                "the Augment."
            )
        normalized = normalized or isinstance(op, Normalize)


def sample_numbers(samples: Any, n: int) -> npt.NDArray[np.int64]:
    """The samples' numbers as they key draws.

    Raises:
        ConfigError: they are not n integers on the host.
    """
    if isinstance(samples, torch.Tensor):
        if samples.device.type != "cpu":
            raise ConfigError(
                f"samples lie on {samples.device}. Parameters are drawn on the host: keep the samples' numbers there."
            )
        samples = samples.numpy()
    numbers = np.asarray(samples)
    if numbers.shape != (n,) or (n and numbers.dtype.kind not in "iu"):
        raise ConfigError(f"samples are {numbers.dtype} {list(numbers.shape)}; {n} integers are needed, one an image.")
    return numbers.astype(np.int64)

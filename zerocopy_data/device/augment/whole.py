"""Augmentation as a transform of whole batches."""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...errors import ConfigError
from .parts import Key, part, with_parts

if TYPE_CHECKING:
    from .compose import Augment


class BatchAugment:
    """An `Augment` for batches of several parts; `Augment.on` makes it.

    Example:
        augment = Augment([RandAugment(), Normalize(), MixUp(num_classes=1000)], seed=0)
        augment = augment.on("image", "label", samples="index")
        dataset = zcd.open("imagenet.zcd/train", [zcd.RandomResizedCrop(224)]).numbered("index")
        loader = DataLoader(dataset, 256, shuffle=True, device=Staging("cuda", transform=augment))
        for epoch in range(90):
            for batch in loader:
                ...

    A DataLoader says which epoch its batches belong to. A training loop of one's own, or one that is to count
    otherwise, calls `set_epoch` at each epoch; the loader then leaves it to that.

    With `samples`, a batch's part of that name holds the samples' numbers: a tensor in host memory, an array or a
    list. `Staging` has them kept on the host (`prepare`); in the batch that is delivered they are a numpy array, int64.

    Without, samples are numbered 0, 1, 2, … as they come, from the latest `set_epoch` on. The same order of batches
    then gives the same result. A run that resumes in mid-epoch must say how many came before:
    set_epoch(epoch, served=n). Several processes need seeds of their own, or they draw alike for different samples.

    Attributes:
        augment: What is done.
        images: Where the images lie in a batch.
        labels: Where the labels lie; None for none.
        samples: Where the samples' numbers lie; None to count.
        epoch: Of the batches that come next.
    """

    def __init__(self, augment: Augment, images: Key, labels: Key | None, samples: Key | None) -> None:
        """See `Augment.on`."""
        if labels is None and augment.mixes:
            raise ConfigError("MixUp and CutMix mix labels too: name their part, as in augment.on('image', 'label').")
        self.augment, self.images, self.labels, self.samples = augment, images, labels, samples
        self.epoch = 0
        self._served = 0
        self._told = False

    def __repr__(self) -> str:
        return f"{self.augment!r}.on({self.images!r}, {self.labels!r}, samples={self.samples!r})"

    def set_epoch(self, epoch: int, served: int = 0) -> None:
        """Says which epoch the next batches belong to.

        Args:
            epoch: From 0.
            served: Samples of the epoch that came before, where samples are counted.

        Raises:
            ConfigError: one of them is negative or no integer.
        """
        try:
            numbers = operator.index(epoch), operator.index(served)
        except TypeError:
            numbers = -1, -1
        if min(numbers) < 0:
            raise ConfigError(f"set_epoch({epoch!r}, served={served!r}): integers from 0.")
        self.epoch, self._served = numbers
        self._told = True

    def at_epoch(self, epoch: int | None, resumed: bool) -> BatchAugment:
        """The transform that an iterator of a loader uses, which goes on by itself; this one after `set_epoch`.

        Args:
            epoch: That the iterator serves; None where it is not known.
            resumed: Whether the iterator began in the middle of that.

        Raises:
            ConfigError: random parameters would not be those of a run without a stop.
        """
        if self._told:
            return self
        if epoch is None:
            raise ConfigError(
                "this loader goes on in the middle of an epoch, and nobody knows which one it is, so it would be "
                "augmented as another. Call loader.set_epoch(n) before the loop."
            )
        if resumed and self.samples is None:
            raise ConfigError(
                "this loader goes on in the middle of an epoch, and the augmentation counts samples, so it would take "
                "them for others. Give it their numbers, with zcd.open(path).numbered('index') and "
                "augment.on(..., samples='index'), or call set_epoch(epoch, served=n) of the transform."
            )
        made = copy.copy(self)
        made.epoch, made._served = epoch, 0
        return made

    def prepare(self, batch: Any) -> Any:
        """The batch, in host memory, with the samples' numbers in a form that stays there when it is staged.

        Raises:
            ConfigError: see `Augment.look`.
        """
        self.augment.look(part(batch, self.images))
        if self.samples is None:
            return batch
        samples = part(batch, self.samples)
        if isinstance(samples, torch.Tensor) and samples.device.type == "cpu":
            # A copy: the numbers must not hold the slot that they came in.
            samples = np.array(samples.numpy(), np.int64 if not samples.is_floating_point() else None)
            return with_parts(batch, {self.samples: samples})
        return batch

    def __call__(self, batch: Any) -> Any:
        """The batch with other images, and other labels where they are mixed. The rest stays as it is.

        Raises:
            ConfigError: parts are missing, the samples' numbers lie on a device, or an operation can't work on the
                images.
        """
        images = part(batch, self.images)
        if self.samples is not None:
            samples = part(batch, self.samples)
        elif isinstance(images, torch.Tensor) and images.dim():
            samples = np.arange(self._served, self._served + len(images))
        else:
            samples = ()  # the call says what is wrong with the images
        labels = part(batch, self.labels) if self.labels is not None and self.augment.mixes else None
        made: Any = self.augment(images, labels, samples=samples, epoch=self.epoch)
        if self.samples is None:
            self._served += len(images)
        if labels is None:
            return with_parts(batch, {self.images: made})
        assert self.labels is not None
        return with_parts(batch, dict(zip((self.images, self.labels), made, strict=True)))

"""Which tensors can be moved as bytes, and how one lies in them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ConfigError


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its storage.

    Attributes:
        dtype: Its dtype.
        shape: Its shape.
        stride: In elements; need not be dense.
        offset: In elements.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout of a strided tensor."""
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

    def over(self, contents: torch.Tensor) -> torch.Tensor:
        """The tensor over all bytes of a storage, uint8 [n]; no graph leads to it."""
        whole = contents.numel() - contents.numel() % self.dtype.itemsize
        with torch.no_grad():
            return contents[:whole].view(self.dtype).as_strided(self.shape, self.stride, self.offset)


def plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is nothing but values in a storage."""
    return not (tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())


def check_tensor(tensor: torch.Tensor, name: str, device: torch.device) -> Layout:
    """The layout of a tensor that a pool can look after.

    Raises:
        ConfigError: It is not one.
    """
    where = f"SwapPool.register: {name}"
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"{where} is a {type(tensor).__name__}, not a tensor.")
    if tensor.device != device:
        raise ConfigError(f"{where} is on {tensor.device}, the pool looks after {device}. Move it there first.")
    if tensor.requires_grad:
        raise ConfigError(
            f"{where} needs a gradient, so autograd keeps it where it is. Register what needs none (optimizer state, "
            "frozen weights, buffers); for activations there is SavedActivations."
        )
    if not plain(tensor):
        raise ConfigError(f"{where} is no plain strided tensor. Register a contiguous() copy of its values.")
    return Layout.of(tensor)

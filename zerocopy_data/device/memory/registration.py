"""Which tensors may be given into a pool's care, and how one lies in its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ConfigError


@dataclass(frozen=True)
class Layout:
    """How a tensor lies over bytes.

    Attributes:
        dtype: Its dtype.
        shape: Its shape.
        stride: In elements; dense: every byte belongs to exactly one element.
        bytes: How many there are.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    bytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.numel() * tensor.element_size())

    def over(self, contents: torch.Tensor) -> torch.Tensor:
        """The tensor over uint8 [at least `bytes`]; no graph leads to it."""
        with torch.no_grad():
            return contents[: self.bytes].view(self.dtype).as_strided(self.shape, self.stride)

    def check_alone(self, contents: torch.Tensor, others: int, name: str) -> None:
        """Refuses memory that other tensors lie in.

        Args:
            contents: All bytes of the tensor's storage.
            others: How many tensors share it.
            name: For the message.

        Raises:
            ConfigError: There are others, or the storage is larger than the tensor.
        """
        if contents.numel() != self.bytes:
            raise ConfigError(
                f"SwapPool.register: {name!r} is a view of {self.bytes} bytes in memory of {contents.numel()}, which "
                "can only move as a whole. Register the whole tensor, or a clone() of the part."
            )
        if others > 0:
            raise ConfigError(
                f"SwapPool.register: {others} other tensor(s) share the memory of {name!r} (views, aliases, what a "
                "graph saved, or another handle), which would not move with it. Register one tensor for all, or a "
                "clone()."
            )


def check_tensor(tensor: torch.Tensor, name: str, device: torch.device) -> Layout:
    """The layout of a tensor that can be moved as bytes.

    Raises:
        ConfigError: It is not one.
    """
    where = f"SwapPool.register: {name!r}"
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"{where} is a {type(tensor).__name__}, not a tensor.")
    if tensor.device != device:
        raise ConfigError(f"{where} is on {tensor.device}, the pool looks after {device}. Move it there first.")
    if tensor.requires_grad:
        raise ConfigError(
            f"{where} needs a gradient, so autograd keeps it where it is. Register what needs none (optimizer state, "
            "frozen weights, buffers); for activations there is pool.saved_activations()."
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise ConfigError(f"{where} is no plain dense tensor. Register a contiguous() copy of its values.")
    layout = Layout.of(tensor)
    if tensor.storage_offset() != 0 or not _dense(layout):
        raise ConfigError(f"{where} does not fill its memory without gaps. Register a clone() of it.")
    return layout


def _dense(layout: Layout) -> bool:
    expected = 1
    for stride, size in sorted(zip(layout.stride, layout.shape, strict=True)):
        if size == 1:
            continue
        if size and stride != expected:
            return False
        expected *= size
    return True

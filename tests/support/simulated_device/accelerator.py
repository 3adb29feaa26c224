"""The library's accelerator over the simulated device: what is not torch's generic API is said here."""

from __future__ import annotations

import sys
import weakref

import torch

from zerocopy_data.device.accelerator import Accelerator

from .tensor import SimTensor, machine


class SimulatedAccelerator(Accelerator):
    def pin(self, address: int, size: int) -> bool:
        with self.active():
            return bool(machine().pin(address, size))

    def unpin(self, address: int) -> None:
        with self.active():
            machine().unpin(address)

    def contents(self, tensor: torch.Tensor) -> torch.Tensor:
        assert isinstance(tensor, SimTensor)
        return SimTensor(tensor.block.bytes[: tensor.storage.size], tensor.storage, tensor.device)

    def holders(self, tensor: torch.Tensor) -> int:
        assert isinstance(tensor, SimTensor)
        return sys.getrefcount(tensor.storage) - 1  # each tensor's attribute; the argument of the call is one

    def storage_key(self, tensor: torch.Tensor) -> int:
        assert isinstance(tensor, SimTensor)
        return id(tensor.storage)

    def pinned_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        out = self.pinned_empty(tensor.numel() * tensor.element_size())
        # The view must not outlive the registration: it shares the storage of `out`, whose end ends it.
        made = out[: tensor.numel() * tensor.element_size()].view(tensor.dtype)
        made = torch.as_strided(made, tensor.shape, tensor.stride()) if tensor.numel() else tensor.clone()
        return made.copy_(tensor)

    def pinned_empty(self, size: int) -> torch.Tensor:
        with self.active():
            machine().touch()
        import ctypes

        root = (ctypes.c_ubyte * max(size, 1))()
        address = ctypes.addressof(root)
        pinned = machine().pinned
        pinned[address] = max(size, 1)
        weakref.finalize(root, pinned.pop, address, None).atexit = False
        return torch.frombuffer(root, dtype=torch.uint8, count=size) if size else torch.empty(0, dtype=torch.uint8)

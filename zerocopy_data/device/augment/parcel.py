"""How parameters that the host has drawn reach the device: all of a call's in one copy that nobody waits for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_ALIGNMENT = 8  # bytes; the widest dtype that is sent


class Parameter:
    """A small array, on the host from the start and on the device once its parcel has been sent."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = np.ascontiguousarray(values)
        self._tensor: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """The values on the device, same shape and dtype."""
        assert self._tensor is not None, "the parcel has not been sent"
        return self._tensor

    def arrive(self, tensor: torch.Tensor) -> None:
        """Says where the values lie now."""
        self._tensor = tensor


class Parcel:
    """Collects parameters and sends them together."""

    def __init__(self) -> None:
        self._parameters: list[Parameter] = []

    def add(self, values: npt.NDArray[Any]) -> Parameter:
        """Puts an array in."""
        parameter = Parameter(values)
        self._parameters.append(parameter)
        return parameter

    def send(self, device: torch.device) -> None:
        """Copies everything to the device, on the current stream. The host does not wait for it."""
        starts, size = [], 0
        for parameter in self._parameters:
            starts.append(size)
            size += -(-parameter.values.nbytes // _ALIGNMENT) * _ALIGNMENT
        # From pageable memory a copy to CUDA would first wait for the stream. torch keeps a pinned block that is freed
        # here until the copy has been made.
        host = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        packed = host.numpy()
        for parameter, start in zip(self._parameters, starts, strict=True):
            packed[start : start + parameter.values.nbytes] = parameter.values.reshape(-1).view(np.uint8)
        sent = host.to(device, non_blocking=True)
        for parameter, start in zip(self._parameters, starts, strict=True):
            dtype = torch.from_numpy(parameter.values[:0].reshape(-1)).dtype
            part = sent[start : start + parameter.values.nbytes].view(dtype)
            parameter.arrive(part.view(parameter.values.shape))

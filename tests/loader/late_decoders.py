"""Decoders that read the encoded bytes late and hold nothing themselves: an early end of their lease is found."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from decode_data import shaped

from zerocopy_data.device.accelerator import accelerator_for
from zerocopy_data.device.decode import EncodedImages
from zerocopy_data.device.decode.held import HeldUntilRead
from zerocopy_data.memory.blocks import block_of


def pixels_of(encoded: EncodedImages) -> torch.Tensor:
    """uint8 [encoded, height, width, 3]."""
    made = [shaped(*one, encoded) for one in zip(encoded.streams(), encoded.geometry.tolist(), strict=True)]
    return torch.stack(made)


def without_block(encoded: EncodedImages) -> EncodedImages:
    """The same, but for the bytes and their lease."""
    return replace(encoded, block=torch.empty(0, dtype=torch.uint8))


@dataclass(frozen=True)
class Late:
    """Makes decoders that read in `result`. `torn` lists the batches whose bytes had changed by then."""

    interpolations: ClassVar[tuple[str, ...]] = ("bilinear",)
    depth: int = 2
    torn: list[int] = field(default_factory=list, compare=False)
    read: list[int] = field(default_factory=list, compare=False)

    def check(self, device: torch.device) -> None:
        pass

    def open(self, device: torch.device) -> LateDecoder:
        return LateDecoder(self)


class LateDecoder:
    def __init__(self, factory: Late) -> None:
        self.device = torch.device("cpu")
        self.depth = factory.depth
        self._factory = factory

    def submit(self, encoded: EncodedImages) -> _LateBatch:
        return _LateBatch(self._factory, encoded)

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        return self.submit(encoded).result()

    def close(self) -> None:
        pass


class _LateBatch:
    """Knows where the bytes lie and what they were. The memory is kept mapped, its lease is not."""

    def __init__(self, factory: Late, encoded: EncodedImages) -> None:
        self._factory = factory
        self._expected = encoded.block.clone()
        self._address, size = encoded.block.data_ptr(), len(encoded.block)
        self._mapped = block_of(self._address, size)
        assert self._mapped is not None
        self._encoded = without_block(encoded)

    def result(self) -> torch.Tensor:
        time.sleep(0.005)  # for whoever would write
        memory = (ctypes.c_ubyte * len(self._expected)).from_address(self._address)
        now = torch.frombuffer(memory, dtype=torch.uint8).clone()
        self._factory.read.append(len(self._encoded))
        if not now.equal(self._expected):
            self._factory.torn.append(len(self._encoded))
            now = self._expected  # the epoch goes on
        whole = replace(self._encoded, block=now)
        return whole.merged(pixels_of(whole))


@dataclass(frozen=True)
class OnDevice:
    """Makes decoders on the loader's device, whose copies out of the slots are still queued when `result` returns."""

    interpolations: ClassVar[tuple[str, ...]] = ("bilinear",)
    copies: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list, compare=False)

    def check(self, device: torch.device) -> None:
        pass

    def open(self, device: torch.device) -> OnDeviceDecoder:
        return OnDeviceDecoder(self, device)


class OnDeviceDecoder:
    def __init__(self, factory: OnDevice, device: torch.device) -> None:
        self.device = device
        self.depth = 2
        self._factory = factory
        self._read = HeldUntilRead()
        self._pinned: list[Any] = []  # the pixels stand for what a device makes of the bytes: no concern of the test's

    def submit(self, encoded: EncodedImages) -> _Queued:
        return _Queued(self, encoded)

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        accelerator = accelerator_for(self.device)
        block = block_of(encoded.block.data_ptr(), len(encoded.block))
        assert block is not None
        assert block.lock(accelerator)
        copy = torch.empty(len(encoded.block), dtype=torch.uint8, device=self.device)
        copy.copy_(encoded.block, non_blocking=True)
        self._factory.copies.append((copy, encoded.block.clone()))
        self._pinned.append(accelerator.pinned_copy(pixels_of(encoded)))
        merged = encoded.merged(self._pinned[-1].to(self.device, non_blocking=True))
        self._read.hold(encoded, self.device)
        return merged

    def close(self) -> None:
        self._read.close()


class _Queued:
    def __init__(self, decoder: OnDeviceDecoder, encoded: EncodedImages) -> None:
        self._decoder, self._encoded = decoder, encoded

    def result(self) -> torch.Tensor:
        return self._decoder.decode(self._encoded)

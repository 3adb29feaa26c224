"""Host memory that a device may still be reading."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import torch

from .encoded import EncodedImages


class HeldUntilRead:
    """Keeps batches until the work that reads them is done."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._held: deque[tuple[Any, EncodedImages]] = deque()

    def hold(self, encoded: EncodedImages, device: torch.device) -> None:
        """Holds a batch until the work queued so far on the current stream is done. On the CPU it is done already."""
        if device.type == "cpu":
            return
        module = torch.get_device_module(device)
        event = module.Event()
        event.record(module.current_stream(device))
        self._held.append((event, encoded))
        while self._held and self._held[0][0].query():
            self._held.popleft()

    def close(self) -> None:
        """Waits for all of it. A forked child has no device to wait for."""
        if os.getpid() != self._pid:
            return
        while self._held:
            event, _ = self._held.popleft()
            event.synchronize()

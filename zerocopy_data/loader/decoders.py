"""What a DataLoader keeps for `decode=`: its decoder, from one epoch to the next, and what was measured of it."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from functools import partial

from ..device.decode.protocol import ImageDecoder
from ..device.decode.request import DecodeRequest
from ..device.decode.split import Split
from ..errors import ConfigError
from .batch import BatchPlan
from .decoding import Decoding, DecodingEngine
from .encoded_plan import EncodedPlan
from .native import NativeDataset
from .thread_engine import ThreadEngine


class Decoders:
    """Makes plans and engines that decode as was asked for. The decoder ends with this object.

    Args:
        request: What was asked for.
        to_device: Whether the loader's batches travel to a device.
    """

    def __init__(self, request: DecodeRequest, to_device: bool) -> None:
        self._request = request
        self._to_device = to_device
        self._split = Split() if request.shared else None
        self._free = _Free()
        weakref.finalize(self, self._free.close)

    def plan(self, dataset: NativeDataset, room: int, keep: int, on_error: str) -> BatchPlan:
        """A plan for batches of which the decoder gets its share.

        Raises:
            ConfigError: the dataset's images are none for this decoder, and it was asked for by name.
        """
        share = None if self._split is None else self._split.share
        interpolations = self._request.factory.interpolations
        try:
            return EncodedPlan(dataset, room, keep, on_error, self._to_device, share, interpolations)
        except ConfigError as error:
            if not self._request.optional:
                raise
            warnings.warn(f"decode='auto' leaves decoding to the CPU: {error}", stacklevel=2)
        return BatchPlan(dataset, room, keep, on_error, self._to_device)

    def engine(self, plan: BatchPlan, threads: int, depth: int) -> ThreadEngine | DecodingEngine:
        """An engine over a plan, with a decoder of its own until it is closed."""
        if not isinstance(plan, EncodedPlan):
            return ThreadEngine(plan, threads, depth)
        decoder = self._free.take()
        if decoder is None:
            decoder = self._request.open()
        decoding = Decoding(decoder, self._split, plan.busy)
        closed = partial(self._free.give_back, decoder)
        return DecodingEngine(ThreadEngine(plan, threads, depth), decoding, not self._to_device, closed)


class _Free:
    """The decoder that no engine is using, if there is one. Engines end in any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may end an engine within a call
        self._decoder: ImageDecoder | None = None
        self._closed = False
        self._pid = os.getpid()

    def _in_this_process(self) -> None:
        """Forgets the parent's decoder in a forked child: its threads are not here, and it would never answer."""
        if os.getpid() != self._pid:
            self._pid, self._lock, self._decoder = os.getpid(), threading.RLock(), None

    def take(self) -> ImageDecoder | None:
        self._in_this_process()
        with self._lock:
            decoder, self._decoder = self._decoder, None
            return decoder

    def give_back(self, decoder: ImageDecoder, in_order: bool) -> None:
        self._in_this_process()
        with self._lock:
            keep = in_order and not self._closed and self._decoder is None
            if keep:
                self._decoder = decoder
        if not keep:
            decoder.close()

    def close(self) -> None:
        self._in_this_process()
        with self._lock:
            self._closed = True
            decoder, self._decoder = self._decoder, None
        if decoder is not None:
            decoder.close()

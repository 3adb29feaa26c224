"""Batches on their way from encoded bytes to pixels: between the thread engine and whoever asks for batches."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ..device.decode.encoded import EncodedImages
from ..device.decode.protocol import DecoderRefusedError, ImageDecoder, Pending
from ..device.decode.split import BusyTime, DeviceTime, Split
from ..device.levelled import Levelled
from .copies import Indices
from .skipped import Skipped
from .thread_engine import Made, ThreadEngine


@dataclass(frozen=True, eq=False)
class Started:
    """A host batch whose images are being decoded."""

    batch: Any
    images: tuple[EncodedImages, ...]
    pending: tuple[Pending, ...]


class Decoding:
    """Decodes the EncodedImages of batches. They are finished in the order in which they were started.

    Args:
        decoder: Whose work it is; it stays the caller's.
        split: Is told how long the decoder and the CPU took.
        cpu: The CPU's time.
    """

    def __init__(self, decoder: ImageDecoder, split: Split | None = None, cpu: BusyTime | None = None) -> None:
        self.decoder = decoder
        self._split = split
        self._cpu = cpu
        self._time = BusyTime() if decoder.device.type == "cpu" else DeviceTime(decoder.device)
        self._warned = False

    def start(self, batch: Any) -> Started:
        """Gives a batch's images to the decoder."""
        images: list[EncodedImages] = []
        _replaced(batch, EncodedImages, images.append)
        pending: list[Pending] = []
        for one in images:
            self._time.begin()
            try:
                pending.append(self.decoder.submit(one))
            except DecoderRefusedError as error:
                pending.append(_Refused(error))
        return Started(batch, tuple(images), tuple(pending))

    def finish(self, started: Started) -> Made:
        """The batch with what its images `wrap` to, on the decoder's device.

        A batch that the decoder refuses is made again by the CPU: all its columns, its images on the host.

        Returns:
            The batch, and samples that were found bad only now.

        Raises:
            BadSampleError: a sample is bad and the loader's policy is 'raise'.
        """
        made: list[Any] = []
        refused: DecoderRefusedError | None = None
        failed: Exception | None = None
        for images, pending in zip(started.images, started.pending, strict=True):
            done = 0
            try:
                made.append(images.wrap(pending.result().permute(0, 3, 1, 2)))
                done = images.encoded
            except DecoderRefusedError as error:
                refused = error
            except Exception as error:  # the others leave the decoder all the same
                failed = error
            finally:
                self._time.end(done)
        if self._split is not None and self._cpu is not None:
            self._split.observe(*self._cpu.take(), *self._time.take())
        if failed is not None:
            try:
                raise failed
            finally:  # no cycle from the error over this frame back to it
                del failed
        if refused is not None:
            return self._remade(started, refused)
        leaves = iter(made)
        return _replaced(started.batch, EncodedImages, lambda leaf: next(leaves)), []

    def _remade(self, started: Started, refused: DecoderRefusedError) -> Made:
        batch, bad = started.images[0].remake()
        if not bad and not self._warned:
            self._warned = True
            warnings.warn(
                f"the decoder refused a batch in which the CPU finds no fault ({refused}); the CPU decodes it, and "
                "every further one like it, which is slow. Use decode='cpu' if it stays so.",
                stacklevel=2,
            )
        return batch, bad


class _Refused:
    """A batch that the decoder did not even take."""

    def __init__(self, error: DecoderRefusedError) -> None:
        self._error = error

    def result(self) -> torch.Tensor:
        """Raises what `submit` did."""
        raise self._error


def _replaced(batch: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The batch with its parts of a kind changed."""
    if isinstance(batch, kind):
        return change(batch)
    if isinstance(batch, dict):
        return {name: _replaced(value, kind, change) for name, value in batch.items()}
    if isinstance(batch, list) and not (batch and isinstance(batch[0], str | bytes)):
        return [_replaced(value, kind, change) for value in batch]
    return batch


class DecodingEngine:
    """A ThreadEngine whose batches pass through a decoder; the next ones are started while one is waited for.

    Args:
        engine: Makes the host batches. Closed with this.
        decoding: Decodes them.
        finish: Whether images get their values here. Otherwise they are `Levelled`s, which get them on the device.
        closed: Called once, with whether the decoder is in order: it may serve the next epoch then.
    """

    def __init__(
        self, engine: ThreadEngine, decoding: Decoding, finish: bool, closed: Callable[[bool], None] | None = None
    ) -> None:
        self._engine = engine
        self._decoding = decoding
        self._finish = finish
        self._closed = closed
        self._started: deque[tuple[Started, list[Skipped]] | Exception] = deque()
        self._beside: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        self._pid = os.getpid()

    @property
    def depth(self) -> int:
        """Batches in flight."""
        return self._engine.depth

    def __len__(self) -> int:
        """Batches submitted and not yet taken."""
        return len(self._engine) + len(self._started)

    def work_beside(self, stream: Callable[[], AbstractContextManager[Any]]) -> None:
        """Gives the context in which work for the device is to be queued."""
        if self._decoding.decoder.device.type != "cpu":
            self._beside = stream

    def submit(self, indices: Indices, key: tuple[int, int]) -> None:
        """Starts the next batch."""
        self._engine.submit(indices, key)

    def ready(self) -> bool:
        """Whether the next batch has been started, so that `take` waits for nothing but the decoder."""
        return bool(self._started) or self._engine.ready()

    def take(self, timeout: float | None = None) -> Made:
        """The oldest batch, or its error: see ThreadEngine.take."""
        if not self._started:
            self._start(timeout)
        while len(self._started) < self._decoding.decoder.depth and self._engine.ready():
            self._start(timeout)
        first = self._started.popleft()
        if isinstance(first, Exception):
            try:
                raise first
            finally:  # no cycle from the error over this frame back to it
                del first
        started, skipped = first
        with self._beside():
            batch, found = self._decoding.finish(started)
        if self._finish:
            batch = _replaced(batch, Levelled, _with_values)
        return batch, skipped + found

    def _start(self, timeout: float | None) -> None:
        waiting = len(self._engine)
        try:
            batch, skipped = self._engine.take(timeout)
        except Exception as error:
            if len(self._engine) == waiting:  # it has timed out: the batch can still be taken
                raise
            self._started.append(error.with_traceback(None))
            return
        with self._beside():
            self._started.append((self._decoding.start(batch), skipped))

    def close(self) -> None:
        """Ends all work. May be called again, and from anywhere."""
        if os.getpid() != self._pid:
            return  # a forked child has neither the engine's threads nor the decoder's
        self._engine.close()
        in_order = True
        while self._started:
            first = self._started.popleft()
            if not isinstance(first, Exception):
                for pending in first[0].pending:  # the decoder's queue is in order: nothing of ours may stay in it
                    try:
                        pending.result()
                    except DecoderRefusedError:
                        pass
                    except Exception:
                        in_order = False
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(in_order)


def _with_values(images: Levelled) -> torch.Tensor:
    return images.finish(images.raw(), lambda table: table)

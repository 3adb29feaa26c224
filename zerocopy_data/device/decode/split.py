"""How many images of a batch the GPU decodes and how many the CPU, by what each has been seen to do."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

_SMOOTHING = 0.3  # weight of the newest measurement, on the logarithm of a rate
_SURPRISE = 0.25  # two in a row that are off by this much (of e) in one direction are a change, not noise
_TOLERANCE = 0.02  # a share is kept while the best one would save less of a batch's time than this
_PATIENCE = 64  # a side without work gets one image after so many batches, …
_MOST_PATIENCE = 4096  # … and twice as many each time that it has not paid


class _Rate:
    """A side's images per second; None until it has been seen."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._last = 0.0

    def see(self, images: int, seconds: float) -> None:
        """One measurement."""
        if images <= 0:
            self.value = 0.0 if seconds > 0 else self.value
            return
        rate = images / max(seconds, 1e-9)
        if not self.value:
            self.value, self._last = rate, 0.0
            return
        off = math.log(rate / self.value)
        if abs(off) > _SURPRISE and abs(self._last) > _SURPRISE and off * self._last > 0:
            self.value *= math.exp((off + self._last) / 2)
            self._last = 0.0
            return
        self.value *= math.exp(_SMOOTHING * off)
        self._last = off


class Split:
    """Divides batches so that both sides end at the same time. Any thread may ask.

    A batch takes as long as its slower side. With rates g and c the best share of n images is n·g / (g + c); it is
    changed only for a gain, so that noise does not make it swing. A side whose share is nothing is tried again, ever
    more rarely.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cpu, self._gpu = _Rate(), _Rate()
        self._kept: tuple[int, int] | None = None  # batch size and share
        self._idle = 0
        self._patience = _PATIENCE

    def share(self, batch_size: int) -> int:
        """Images of the next batch of this size that are the GPU's."""
        with self._lock:
            best = self._best(batch_size)
            if best not in (0, batch_size) or batch_size < 2:
                self._idle, self._patience = 0, _PATIENCE
                return best
            self._idle += 1
            if self._idle <= self._patience:
                return best
            self._idle, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)
            return 1 if best == 0 else batch_size - 1

    def observe(self, cpu_images: int, cpu_seconds: float, gpu_images: int, gpu_seconds: float) -> None:
        """What both sides have done, and the time that each was busy with it.

        No images in some time is a side that delivers nothing; none in no time says nothing of it.
        """
        with self._lock:
            self._cpu.see(cpu_images, cpu_seconds)
            self._gpu.see(gpu_images, gpu_seconds)

    def _best(self, size: int) -> int:
        cpu, gpu = self._cpu.value, self._gpu.value
        if cpu is None or gpu is None or cpu + gpu == 0:
            return size - size // 2
        exact = size * gpu / (cpu + gpu)
        best = min((math.floor(exact), math.ceil(exact)), key=lambda share: self._seconds(size, share))
        if self._kept is not None and self._kept[0] == size:
            kept = self._kept[1]
            if self._seconds(size, kept) <= (1 + _TOLERANCE) * self._seconds(size, best):
                return kept
        self._kept = size, best
        return best

    def _seconds(self, size: int, share: int) -> float:
        assert self._cpu.value is not None
        assert self._gpu.value is not None
        sides = ((share, self._gpu.value), (size - share, self._cpu.value))
        return max((images / rate if rate else math.inf) for images, rate in sides if images) if size else 0.0


class BusyTime:
    """The time in which at least one of several overlapping pieces of work was going on, and what they did in it.

    Work that is queued behind other work of the same side is not counted twice. Any thread may work.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._active = 0
        self._since = 0.0
        self._images = 0
        self._seconds = 0.0

    @contextlib.contextmanager
    def of(self, images: int) -> Iterator[None]:
        """Work on so many images; what fails counts as none."""
        self.begin()
        done = 0
        try:
            yield
            done = images
        finally:
            self.end(done)

    def begin(self) -> None:
        """A piece of work begins."""
        with self._lock:
            if not self._active:
                self._since = self._clock()
            self._active += 1

    def end(self, images: int) -> None:
        """One has ended, and has made so many images."""
        with self._lock:
            self._active -= 1
            self._images += images
            now = self._clock()
            self._seconds += now - self._since
            self._since = now

    def take(self) -> tuple[int, float]:
        """Images and seconds since the last call. Unfinished work is counted when it ends."""
        with self._lock:
            taken = self._images, self._seconds
            self._images, self._seconds = 0, 0.0
            return taken


class DeviceTime:
    """What BusyTime is for work that a device does later: pieces that end in the order in which they began.

    Events on the current stream tell the time: of a piece that waited behind the one before it, only what it took after
    that one's end counts.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun: deque[Any] = deque()
        self._queued: deque[tuple[Any, Any, int]] = deque()
        self._before: Any = None

    def _event(self) -> Any:
        module = torch.get_device_module(self._device)
        event = module.Event(enable_timing=True)
        event.record(module.current_stream(self._device))
        return event

    def begin(self) -> None:
        """A piece of work is given to the device."""
        self._begun.append(self._event())

    def end(self, images: int) -> None:
        """The oldest piece's end has been queued; it makes so many images."""
        self._queued.append((self._begun.popleft(), self._event(), images))

    def take(self) -> tuple[int, float]:
        """Images and seconds of the pieces that have ended since the last call."""
        images, seconds = 0, 0.0
        while self._queued and self._queued[0][1].query():
            begun, ended, made = self._queued.popleft()
            took = begun.elapsed_time(ended)
            if self._before is not None:
                took = min(took, self._before.elapsed_time(ended))
            self._before = ended
            images, seconds = images + made, seconds + max(took, 0.0) / 1e3
        return images, seconds

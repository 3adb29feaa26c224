"""Decoding with NVIDIA DALI, on its GPU ('mixed') or CPU backend, of one graph."""

from __future__ import annotations

import ctypes
import importlib
import os
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.dlpack import from_dlpack

from ... import _native
from ...errors import ConfigError
from .encoded import CORNER, CUT, FLIP, RESIZED, EncodedImages
from .held import HeldUntilRead
from .protocol import DecoderRefusedError, is_installed, named

INSTALL = "pip install nvidia-dali-cuda130"
_DEPTH = 2  # one batch in the making, one whose inputs are there: DALI's threads don't wait for us between two

_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: the pipelines' threads are not here, and to end them would crash or take for ever.

    A reference more than there is keeps even the garbage collector from destroying them.
    """
    for pipe in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipe))


os.register_at_fork(after_in_child=_leave_to_the_parent)


@dataclass(frozen=True)
class Dali:
    """DALI as the decoder of a DataLoader: `DataLoader(decode=Dali())`.

    On its CPU backend its pixels are within one level of 255 of the CPU path's. Only where pictures are shrunk their
    outermost rows and columns differ by more, 28 levels at most over 500 ImageNet photographs: DALI's filter repeats
    the edge, Pillow's leaves out what is not there. nvJPEG's own rounding comes on top of that on the GPU.

    DALI fills up what is missing in a damaged image, where the CPU path calls it bad. Checksums find what was damaged
    since it was packed, and files without an end marker stay with the CPU; an image that was packed with a fault in its
    middle goes to the model as DALI decodes it.

    Attributes:
        device: 'cuda', 'cuda:1', … or 'cpu'; None decodes on the loader's device.
        threads: CPU threads of DALI's own; on the GPU they parse and feed.
        regions: Whether only the region that is cut out gets decoded. None does so on the CPU. On the GPU the whole
            image is decoded and cut there, because decoding regions in the nvImageCodec under DALI is reported to crash
            on Hopper; results are the same.

    Raises:
        ConfigError: a number of threads below one.
    """

    # Bilinear is within one step of Pillow's nearly everywhere; DALI's other filters are other filters.
    interpolations: ClassVar[tuple[str, ...]] = ("bilinear",)
    device: str | None = None
    threads: int = 2
    regions: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.threads, int) or self.threads < 1:
            raise ConfigError(f"Dali(threads={self.threads!r}): at least one thread.")

    def check(self, device: torch.device) -> None:
        """See `DecoderFactory`."""
        self._where(device)

    def open(self, device: torch.device) -> DaliDecoder:
        """Makes the decoder: see `DecoderFactory`."""
        where = self._where(device)
        try:
            importlib.import_module("nvidia.dali")
        except ImportError as error:
            raise ConfigError(f"DALI is not installed ({error}). Install it with: {INSTALL}") from None
        regions = where.type == "cpu" if self.regions is None else self.regions
        return DaliDecoder(where, self.threads, regions)

    def _where(self, device: torch.device) -> torch.device:
        where = device if self.device is None else named(self.device, "Dali")
        if where.type not in ("cpu", "cuda"):
            raise ConfigError(f"DALI decodes on CUDA devices and on the CPU, not on {where}. Use decode='cpu'.")
        if where.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("DALI is to decode on a CUDA device, but torch finds none. Use decode='cpu'.")
        if not is_installed("nvidia.dali"):
            raise ConfigError(f"DALI is not installed. Install it with: {INSTALL}")
        return where


class DaliDecoder:
    """The decoder: one pipeline for each size, built at its first batch and used until `close`.

    A pipeline takes batches of up to a number of images; a larger batch gets a new one. After a batch that DALI refuses
    its pipeline is given up, and the next batch gets a new one, which takes some milliseconds.

    DALI 2.4 ends the process with a segmentation fault when its CPU decoder is given bytes whose header it can't read;
    what it fails to decode behind a sound header is an ordinary error. So nothing but JPEGs whose header libjpeg-turbo
    has read may come here: `gather_encoded` of the native core sees to that.
    """

    def __init__(self, device: torch.device, threads: int, regions: bool) -> None:
        self.device = device
        self.depth = _DEPTH
        self._threads = threads
        self._regions = regions
        self._pipelines: dict[tuple[int, int], _Pipeline] = {}
        self._read = HeldUntilRead()

    def submit(self, encoded: EncodedImages) -> _Running:
        """Starts on a batch: see `ImageDecoder`."""
        running = _Running(self, encoded)
        if encoded.encoded:
            self._start(running)
        else:
            shape = (0, encoded.height, encoded.width, 3)
            running.out = torch.empty(shape, dtype=torch.uint8, device=self.device)
        return running

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        """Decodes a batch: see `ImageDecoder`."""
        return self.submit(encoded).result()

    def close(self) -> None:
        """Ends the pipelines and their threads."""
        for pipeline in self._pipelines.values():
            pipeline.close()
        self._read.close()
        self._pipelines.clear()

    def _start(self, running: _Running) -> None:
        encoded = running.encoded
        key = (encoded.height, encoded.width)
        pipeline = self._pipelines.get(key)
        if pipeline is None or not pipeline.takes(encoded):
            # Never fewer images than before: batches that differ share one pipeline.
            room = max(encoded.encoded, pipeline.room if pipeline is not None else 0)
            pipeline = _Pipeline(self.device, self._threads, self._regions, key, room)
            self._pipelines[key] = pipeline
        running.pipeline = pipeline
        pipeline.put(running)


class _Running:
    """A batch that is, or will be, in a pipeline.

    Attributes:
        encoded: The batch. Its host memory is held through this.
        pipeline: Where it is.
        out: What came out of that.
        error: Or why nothing did.
    """

    def __init__(self, decoder: DaliDecoder, encoded: EncodedImages) -> None:
        self.encoded = encoded
        self.pipeline: _Pipeline | None = None
        self.out: torch.Tensor | None = None
        self.error: RuntimeError | None = None
        self._decoder = decoder

    def result(self) -> torch.Tensor:
        """See `Pending`."""
        while self.out is None and self.error is None:
            assert self.pipeline is not None
            if self.pipeline.given_up:  # after another batch: this one has done nothing wrong
                self._decoder._start(self)
            else:
                self.pipeline.advance()
        if self.out is None:
            assert self.error is not None
            raise DecoderRefusedError(_first_line(self.error)) from self.error
        merged = self.encoded.merged(self.out)
        self._decoder._read.hold(self.encoded, self._decoder.device)
        return merged


def _windows(
    geometry: npt.NDArray[np.int32], size: tuple[int, int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Where in its cut each image's final window begins and ends, in pixels of the cut; mirrored ones run backwards.

    DALI resizes such a window without a look at its edges: pixels of the cut beyond them are filtered in, as they are
    when the whole cut is resized first. So its other pixels needn't be made.
    """
    scale = geometry[:, CUT][:, 2:] / np.maximum(geometry[:, RESIZED], 1)  # pixels of the cut for one of the resized
    begin = geometry[:, CORNER] * scale
    end = (geometry[:, CORNER] + np.array(size)) * scale
    flip = geometry[:, FLIP] != 0
    begin[flip, 1], end[flip, 1] = end[flip, 1], begin[flip, 1]
    return begin.astype(np.float32), end.astype(np.float32)


def _first_line(error: Exception) -> str:
    """What DALI says, without its report of where the graph was written."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("Critical error", "File ", "Current pipeline"))]
    return "; ".join(told[:6]) or type(error).__name__


class _Pipeline:
    """One DALI graph: cut and decode, then resize, which keeps a window and mirrors in the same pass."""

    def __init__(
        self,
        device: torch.device,
        threads: int,
        regions: bool,
        size: tuple[int, int],
        room: int,
    ) -> None:
        self.room = room
        self._device = device
        self._size = size
        self._waiting: deque[_Running] = deque()
        self._inside: deque[_Running] = deque()
        self._pipe = self._graph(threads, regions)
        _alive.add(self._pipe)
        self._prime()

    @property
    def given_up(self) -> bool:
        """Whether `close` was called."""
        return self._pipe is None

    def takes(self, encoded: EncodedImages) -> bool:
        """Whether a batch fits this graph."""
        return not self.given_up and encoded.encoded <= self.room

    def _graph(self, threads: int, regions: bool) -> Any:
        # Not by `import`: DALI's stubs disagree with its documentation (device_id=None is refused there).
        dali: Any = importlib.import_module("nvidia.dali")
        fn: Any = importlib.import_module("nvidia.dali.fn")
        types = dali.types
        gpu = self._device.type == "cuda"
        index = None if not gpu else self._device.index if self._device.index is not None else 0
        height, width = self._size
        pipe = dali.Pipeline(
            batch_size=self.room,
            num_threads=threads,
            device_id=index,
            prefetch_queue_depth=_DEPTH,
            exec_dynamic=True,  # outputs are then memory of their own, which is not written again while it is held
        )
        with pipe:
            data = fn.external_source(name="data", device="cpu", no_copy=True, ndim=1, dtype=types.UINT8)
            corner = fn.external_source(name="corner", device="cpu", ndim=1, dtype=types.INT32)
            extent = fn.external_source(name="extent", device="cpu", ndim=1, dtype=types.INT32)
            begin = fn.external_source(name="begin", device="cpu", ndim=1, dtype=types.FLOAT)
            end = fn.external_source(name="end", device="cpu", ndim=1, dtype=types.FLOAT)
            # No turning: images that need it are decoded by us. Upsampling of chroma as in libjpeg, also on the GPU.
            common = {
                "device": "mixed" if gpu else "cpu",
                "output_type": types.RGB,
                "adjust_orientation": False,
                "jpeg_fancy_upsampling": True,
            }
            if regions:
                images = fn.decoders.image_slice(data, start=corner, shape=extent, axes=[0, 1], **common)
            else:
                images = fn.slice(fn.decoders.image(data, **common), start=corner, shape=extent, axes=[0, 1])
            images = fn.resize(
                images,
                size=(height, width),
                interp_type=types.INTERP_LINEAR,
                antialias=True,
                roi_start=begin,
                roi_end=end,
            )
            pipe.set_outputs(images)
        pipe.build()
        return pipe

    def _prime(self) -> None:
        """Runs small batches through: DALI's first run wants as many at once as its queue is deep."""
        tiny = np.frombuffer(_native.jpeg_encode(np.zeros((8, 8, 3), np.uint8)), np.uint8)
        height, width = self._size
        geometry = np.array([[0, 0, 8, 8, height, width, 0, 0, 0]], np.int32)
        for _ in range(_DEPTH):
            self._feed([tiny], geometry)
        self._pipe.schedule_run()
        for _ in range(_DEPTH):
            self._share()

    def put(self, running: _Running) -> None:
        """Gives a batch to DALI, or keeps it until there is room in its queue: views of one size share a pipeline."""
        self._waiting.append(running)
        self._fill()

    def advance(self) -> None:
        """Waits for the oldest batch, and gives it its pixels, ordered on the current stream; or its error."""
        running = self._inside.popleft()
        try:
            running.out = self._share()
        except RuntimeError as error:
            running.error = error
            self.close()
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._inside) < _DEPTH:
            running = self._waiting.popleft()
            try:
                self._feed(running.encoded.streams(), running.encoded.geometry)
                self._pipe.schedule_run()
            except RuntimeError as error:
                running.error = error
                self.close()
            else:
                self._inside.append(running)

    def _feed(self, streams: list[Any], geometry: npt.NDArray[np.int32]) -> None:
        feed = self._pipe.feed_input
        feed("data", streams)
        cut = geometry[:, CUT]
        feed("corner", np.ascontiguousarray(cut[:, :2]))
        feed("extent", np.ascontiguousarray(cut[:, 2:]))
        begin, end = _windows(geometry, self._size)
        feed("begin", begin)
        feed("end", end)

    def _share(self) -> torch.Tensor:
        if self._device.type == "cpu":
            (images,) = self._pipe.share_outputs()
            out = from_dlpack(images.as_tensor())
        else:
            stream = torch.cuda.current_stream(self._device)
            (images,) = self._pipe.share_outputs(cuda_stream=stream.cuda_stream)
            # Torch's own memory: its allocator knows the streams that use a batch, DALI's does not.
            out = from_dlpack(images.as_tensor()).clone()
        self._pipe.release_outputs()
        return out

    def close(self) -> None:
        """Ends the pipeline, and then lets go of the memory that it may have been reading."""
        self._pipe = None
        self._waiting.clear()
        self._inside.clear()

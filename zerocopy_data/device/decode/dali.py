"""Decoding with NVIDIA DALI, on its GPU ('mixed') or CPU backend, of one graph."""

from __future__ import annotations

import importlib
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from ... import _native
from ...errors import ConfigError
from .encoded import CORNER, CUT, FLIP, RESIZED, EncodedImages
from .held import HeldUntilRead
from .protocol import DecoderRefusedError

INSTALL = "pip install nvidia-dali-cuda130"
_DEPTH = 2  # one batch in the making, one whose inputs are there: DALI's threads don't wait for us between two


@dataclass(frozen=True)
class Dali:
    """DALI as the decoder of a DataLoader: `DataLoader(decode=Dali())`.

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
        if self.threads < 1:
            raise ConfigError(f"Dali(threads={self.threads!r}): at least one thread.")

    def open(self, device: torch.device) -> DaliDecoder:
        """Makes the decoder: see `DecoderFactory`."""
        where = torch.device(self.device) if self.device is not None else device
        if where.type not in ("cpu", "cuda"):
            raise ConfigError(f"DALI decodes on CUDA devices and on the CPU, not on {where}. Use decode='cpu'.")
        if where.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("DALI is to decode on a CUDA device, but torch finds none. Use decode='cpu'.")
        try:
            importlib.import_module("nvidia.dali")
        except ImportError as error:
            raise ConfigError(f"DALI is not installed ({error}). Install it with: {INSTALL}") from None
        regions = where.type == "cpu" if self.regions is None else self.regions
        return DaliDecoder(where, self.threads, regions)


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
        self.pipelines_built = 0
        self._threads = threads
        self._regions = regions
        self._pipelines: dict[tuple[int, int], _Pipeline] = {}

    def submit(self, encoded: EncodedImages) -> _Running:
        """Starts on a batch: see `ImageDecoder`."""
        if not encoded.encoded:
            return _Running(self, encoded, None)
        key = (encoded.height, encoded.width)
        pipeline = self._pipelines.get(key)
        if pipeline is None or not pipeline.takes(encoded):
            # Never fewer images than before, and never the plainer graph: batches that differ share one pipeline.
            room = max(encoded.encoded, pipeline.room if pipeline is not None else 0)
            windowed = _windowed(encoded) or (pipeline is not None and pipeline.windowed)
            pipeline = _Pipeline(self.device, self._threads, self._regions, key, room, windowed)
            self.pipelines_built += 1
            self._pipelines[key] = pipeline
        try:
            pipeline.feed(encoded)
        except RuntimeError as error:
            self._give_up(pipeline)
            raise DecoderRefusedError(_first_line(error)) from error
        return _Running(self, encoded, pipeline)

    def decode(self, encoded: EncodedImages) -> torch.Tensor:
        """Decodes a batch: see `ImageDecoder`."""
        return self.submit(encoded).result()

    def close(self) -> None:
        """Ends the pipelines and their threads."""
        for pipeline in self._pipelines.values():
            pipeline.close()
        self._pipelines.clear()

    def _give_up(self, pipeline: _Pipeline) -> None:
        pipeline.close()
        for key, current in list(self._pipelines.items()):
            if current is pipeline:
                del self._pipelines[key]


class _Running:
    """A batch in a pipeline."""

    def __init__(self, decoder: DaliDecoder, encoded: EncodedImages, pipeline: _Pipeline | None) -> None:
        self._decoder = decoder
        self._encoded = encoded
        self._pipeline = pipeline

    def result(self) -> torch.Tensor:
        """See `Pending`."""
        encoded, device = self._encoded, self._decoder.device
        if self._pipeline is None:
            empty = torch.empty((0, encoded.height, encoded.width, 3), dtype=torch.uint8, device=device)
            return encoded.merged(empty)
        if self._pipeline.given_up:  # after another batch: this one has done nothing wrong
            return self._decoder.decode(encoded)
        try:
            decoded = self._pipeline.take()
        except RuntimeError as error:
            self._decoder._give_up(self._pipeline)
            raise DecoderRefusedError(_first_line(error)) from error
        return encoded.merged(decoded)


def _windowed(encoded: EncodedImages) -> bool:
    """Whether an image of the batch is resized to another size than its final one, and a part of that is kept."""
    return bool((encoded.geometry[:, RESIZED] != (encoded.height, encoded.width)).any())


def _first_line(error: Exception) -> str:
    """What DALI says, without its report of where the graph was written."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("Critical error", "File ", "Current pipeline"))]
    return "; ".join(told[:6]) or type(error).__name__


class _Pipeline:
    """One DALI graph: cut and decode, resize, keep a window, mirror."""

    def __init__(
        self,
        device: torch.device,
        threads: int,
        regions: bool,
        size: tuple[int, int],
        room: int,
        windowed: bool,
    ) -> None:
        self.room = room
        self.windowed = windowed
        self._device = device
        self._size = size
        self._held: deque[EncodedImages] = deque()
        self._read = HeldUntilRead()
        self._pipe = self._graph(threads, regions)
        self._prime()

    @property
    def given_up(self) -> bool:
        """Whether `close` was called."""
        return self._pipe is None

    def takes(self, encoded: EncodedImages) -> bool:
        """Whether a batch fits this graph."""
        return not self.given_up and encoded.encoded <= self.room and (self.windowed or not _windowed(encoded))

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
            mirror = fn.external_source(name="mirror", device="cpu", ndim=0, dtype=types.INT32)
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
            filters = {"interp_type": types.INTERP_LINEAR, "antialias": True}
            window: dict[str, Any] = {}
            if self.windowed:
                size = fn.external_source(name="size", device="cpu", ndim=1, dtype=types.FLOAT)
                x = fn.external_source(name="x", device="cpu", ndim=0, dtype=types.FLOAT)
                y = fn.external_source(name="y", device="cpu", ndim=0, dtype=types.FLOAT)
                images = fn.resize(images, size=size, **filters)
                window = {"crop": (height, width), "crop_pos_x": x, "crop_pos_y": y}
            else:
                images = fn.resize(images, size=(height, width), **filters)
            # Faster than fn.flip, and cuts in the same pass. Mean 0 and deviation 1 leave bytes what they are.
            images = fn.crop_mirror_normalize(
                images, dtype=types.UINT8, output_layout="HWC", mean=[0.0], std=[1.0], mirror=mirror, **window
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

    def feed(self, encoded: EncodedImages) -> None:
        """Gives a batch to DALI. Its host memory is held until `take` has returned it."""
        self._held.append(encoded)
        self._feed(encoded.streams(), encoded.geometry)
        self._pipe.schedule_run()

    def _feed(self, streams: list[Any], geometry: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        feed = self._pipe.feed_input
        feed("data", streams)
        cut = geometry[:, CUT]
        feed("corner", np.ascontiguousarray(cut[:, :2]))
        feed("extent", np.ascontiguousarray(cut[:, 2:]))
        feed("mirror", np.ascontiguousarray(geometry[:, FLIP]))
        if not self.windowed:
            return
        resized = geometry[:, RESIZED]
        feed("size", resized.astype(np.float32))
        # Shares of the room there is, as DALI has them: it rounds, and a float32 tells 65,535 places apart.
        room = np.maximum(resized - np.array(self._size, np.int32), 1)
        top_left = (geometry[:, CORNER] / room).astype(np.float32)
        feed("y", np.ascontiguousarray(top_left[:, 0]))
        feed("x", np.ascontiguousarray(top_left[:, 1]))

    def take(self) -> torch.Tensor:
        """The oldest batch's pixels, ordered on the current stream."""
        out = self._share()
        encoded = self._held.popleft()
        self._read.hold(encoded, self._device)
        return out

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
        self._read.close()
        self._held.clear()

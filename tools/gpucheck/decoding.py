"""Images a second of each decoder, on the way to the device."""

from __future__ import annotations

import importlib
import inspect
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from .material import write_photographs
from .report import NotAvailableError, Notes
from .target import Target

# Mean difference of a channel, in levels of 255, between a decoder's batch and the CPU's: other upsampling of chroma
# and another resize stay well below, a wrong crop or flip does not.
_TOLERANCE = 4.0


def decode(target: Target, notes: Notes, decoder: str) -> None:
    """Two epochs of random crops, the second timed; and the first batch against the CPU's.

    Args:
        decoder: 'cpu', or the name of a class in zerocopy_data.device.decode.
    """
    import zerocopy_data as zcd

    chosen: Any = {} if decoder == "cpu" else {"decode": _decoder(target, decoder)}
    different, rows, batch, crop = (4, 24, 8, 32) if target.small else (96, 4096, 256, 224)
    width, height = (64, 48) if target.small else (500, 375)
    workers = 2 if target.small else 8
    with tempfile.TemporaryDirectory() as folder:
        path, size = write_photographs(Path(folder), different, rows, width, height)
        operations = [zcd.RandomResizedCrop(crop), zcd.RandomHorizontalFlip()]
        dataset = zcd.open(path, transform={"image": operations}).as_tuple("image", "label")
        options: dict[str, Any] = {"batch_size": batch, "num_workers": workers, "seed": 0}
        with_decoder = zcd.DataLoader(dataset, **options, **chosen, device=target.device)
        first = None
        seconds = 0.0
        for epoch in range(2):
            with_decoder.set_epoch(epoch)
            target.now()
            start = time.perf_counter()  # decoding takes real time, also where the device is simulated
            count = 0
            for images, _ in with_decoder:
                first = images.cpu() if first is None else first
                count += len(images)
            target.now()
            seconds = time.perf_counter() - start
        on_cpu = zcd.DataLoader(dataset, **options)
        on_cpu.set_epoch(0)
        expected = next(iter(on_cpu))[0]
    assert first is not None
    where = f"{width}x{height}, {size / rows / 1000:.0f} KB each; {workers} threads"
    notes.measure(f"{decoder}: decoded, cropped, on the device", count / seconds, "images/s", where)
    notes.check("every image came", count == rows)
    off = float((first.float() - expected.float()).abs().mean())
    limit = 0.0 if decoder == "cpu" else _TOLERANCE
    notes.check(f"mean difference from the CPU's pixels is {limit:g} levels at most", off <= limit, f"{off:.2f}")


def _decoder(target: Target, name: str) -> Any:
    import zerocopy_data as zcd

    if "decode" not in inspect.signature(zcd.DataLoader.__init__).parameters:
        raise NotAvailableError("this zerocopy_data has no DataLoader(decode=)")
    try:
        factory = getattr(importlib.import_module("zerocopy_data.device.decode"), name)
        made = factory(device="cpu") if target.small else factory()
        made.open(torch.device("cpu" if target.small else target.device)).close()
    except (ImportError, AttributeError, zcd.ConfigError) as error:
        raise NotAvailableError(str(error)) from None
    return made

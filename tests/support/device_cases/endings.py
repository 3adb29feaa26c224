"""However a loop ends, no memory stays page-locked."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import zerocopy_data as zcd

from .handles import Handle
from .rows import CROP, Failing, Numbers, numbers, write_shards


class EndingCases:
    """Cases; a subclass has the fixture `device`."""

    @pytest.mark.parametrize("ending", ["end", "break", "close", "exception"])
    @pytest.mark.parametrize("source", ["shards", "processes", "this process"])
    def test_nothing_stays_page_locked(self, device: Handle, tmp_path: Path, source: str, ending: str) -> None:
        gc.collect()
        before = device.locked()
        _loop(_loader(source, tmp_path, device), device, ending)
        gc.collect()
        left = {address: size for address, size in device.locked().items() if address not in before}
        assert not left

    @pytest.mark.parametrize("workers", [0, 2])
    def test_an_error_of_a_row_leaves_nothing_page_locked(self, device: Handle, workers: int) -> None:
        gc.collect()
        before = device.locked()
        seen = []

        def loop() -> None:
            for values, rows in zcd.DataLoader(Failing(48), batch_size=4, num_workers=workers, device=device.name):
                device.busy((values,))
                seen.append(numbers(rows)[0])

        with pytest.raises(ValueError, match="row 30"):
            loop()
        assert seen == list(range(0, 28, 4)), "every batch before it came"
        gc.collect()
        assert not set(device.locked()) - set(before)


def _loader(source: str, folder: Path, device: Handle) -> Any:
    if source == "shards":
        dataset = zcd.open(write_shards(folder / "shards"), transform={"image": CROP}).as_tuple("image", "label")
        return zcd.DataLoader(dataset, batch_size=4, num_workers=2, device=device.name)
    return zcd.DataLoader(Numbers(48), batch_size=4, num_workers=2 * (source == "processes"), device=device.name)


def _loop(loader: Any, device: Handle, ending: str) -> None:
    """Trains a little, with copies and work under way when it ends."""
    iterator = iter(loader)
    for number, (values, _) in enumerate(iterator):
        device.busy((values,))
        if number == 0:
            assert device.locked(), "otherwise nothing is shown"
        if number == 3 and ending == "break":
            break
        if number == 3 and ending == "close":
            iterator.close()
            assert next(iterator, None) is None
        if number == 3 and ending == "exception":
            try:
                raise RuntimeError("the loss is not a number")
            except RuntimeError:
                return

"""Batches on the device are what the CPU's loader gives, and stay so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import zerocopy_data as zcd

from .handles import Handle, locked_slots
from .rows import CROP, Lengths, Nested, Numbers, all_on, assert_same, numbers, padded, write_shards


class BatchCases:
    """Cases; a subclass has the fixture `device`."""

    @pytest.fixture
    def shards(self, tmp_path: Path) -> Path:
        return write_shards(tmp_path / "shards")

    @pytest.mark.parametrize("static", [False, True])
    @pytest.mark.parametrize("workers", [0, 2])
    def test_shards_give_what_the_cpu_loader_gives(
        self, device: Handle, shards: Path, workers: int, static: bool
    ) -> None:
        dataset = zcd.open(shards, transform={"image": CROP})
        options: dict[str, Any] = {"batch_size": 7, "shuffle": True, "num_workers": workers, "seed": 3}
        on_cpu = zcd.DataLoader(dataset, **options)
        loader = zcd.DataLoader(dataset, **options, device=device.name, static=static)
        for _ in range(2):
            count = 0
            for got, expected in zip(loader, on_cpu, strict=True):
                assert all_on(got, device.name)
                assert_same(got, expected)
                count += 1
            assert count == 7

    @pytest.mark.parametrize("workers", [0, 2])
    def test_nested_batches_keep_their_structure(self, device: Handle, workers: int) -> None:
        options: dict[str, Any] = {"batch_size": 4, "num_workers": workers}
        loader = zcd.DataLoader(Nested(), **options, device=device.name)
        for got, expected in zip(loader, zcd.DataLoader(Nested(), **options), strict=True):
            assert all_on(got, device.name)
            assert_same(got, expected)

    def test_ragged_batches_keep_every_length(self, device: Handle) -> None:
        options: dict[str, Any] = {"batch_size": 5, "num_workers": 2, "collate_fn": padded}
        loader = zcd.DataLoader(Lengths(), **options, device=device.name)
        for got, expected in zip(loader, zcd.DataLoader(Lengths(), **options), strict=True):
            assert all_on(got, device.name)
            assert_same(got, expected)

    @pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
    def test_images_cross_as_bytes_and_get_their_values_there(
        self, device: Handle, shards: Path, memory_format: torch.memory_format
    ) -> None:
        dataset = zcd.open(shards, transform={"image": CROP}).as_tuple("image", "label")
        options: dict[str, Any] = {"batch_size": 16, "seed": 1}
        staging = zcd.Staging(device.name, cast={torch.float32: torch.float16}, memory_format=memory_format)
        loader = zcd.DataLoader(dataset, **options, num_workers=2, device=staging)
        for (images, labels), (expected, rows) in zip(loader, zcd.DataLoader(dataset, **options), strict=True):
            assert images.is_contiguous(memory_format=memory_format)
            assert_same(images, expected.to(torch.float16))
            assert_same(labels, rows)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_kept_batches_stay_what_they_were(self, device: Handle, workers: int) -> None:
        kept = []
        for batch in zcd.DataLoader(Numbers(80), batch_size=4, num_workers=workers, device=device.name):
            device.busy((batch[0],))
            kept.append(batch)
        assert len(kept) == 20
        for number, (values, rows) in enumerate(kept):
            assert numbers(rows) == list(range(4 * number, 4 * number + 4))
            assert_same(values, rows.cpu().float()[:, None].expand(-1, 60_000))

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("static", [False, True])
    def test_no_batch_is_torn_while_the_device_lags_behind(self, device: Handle, workers: int, static: bool) -> None:
        loader = zcd.DataLoader(
            Numbers(120), batch_size=4, shuffle=True, num_workers=workers, device=device.name, static=static
        )
        results = []
        for _ in range(2):
            for values, rows in loader:
                device.busy((values,))  # what follows waits behind this, while the host goes on
                results.append((values.amin(1), values.amax(1), rows + 0))
        assert len(results) == 60
        for low, high, rows in results:
            assert_same(low, rows.cpu().float())
            assert_same(high, rows.cpu().float())

    def test_on_a_stream_of_the_users_own(self, device: Handle) -> None:
        module = device.module
        stream = module.Stream(device=device.name)
        results = []
        with module.stream(stream):
            for values, rows in zcd.DataLoader(Numbers(60), batch_size=4, num_workers=2, device=device.name):
                device.busy((values,))
                results.append((values.amin(1), values.amax(1), rows))
        module.current_stream().wait_stream(stream)
        for low, high, rows in results:
            assert_same(low, rows.cpu().float())
            assert_same(high, rows.cpu().float())

    def test_persistent_workers_serve_every_epoch(self, device: Handle) -> None:
        loader = zcd.DataLoader(Numbers(24), batch_size=4, num_workers=2, persistent_workers=True, device=device.name)
        for _ in range(3):
            assert [numbers(rows)[0] for _, rows in loader] == [0, 4, 8, 12, 16, 20]
        loader._iterator = None  # ends the workers

    @pytest.mark.parametrize("over_shards", [False, True])
    def test_a_stopped_run_goes_on_in_mid_epoch(self, device: Handle, shards: Path, over_shards: bool) -> None:
        dataset: Any = zcd.open(shards, transform={"image": CROP}).as_tuple("image", "label")
        options: dict[str, Any] = {"seed": 5}
        if not over_shards:
            dataset, options = Numbers(46, 100), {"generator": None}

        def loader() -> zcd.StatefulDataLoader[Any]:
            generator = {} if over_shards else {"generator": torch.Generator().manual_seed(5)}
            return zcd.StatefulDataLoader(
                dataset, batch_size=5, shuffle=True, num_workers=2, device=device.name, **{**options, **generator}
            )

        whole = [[part.cpu() for part in batch] for batch in loader()]
        stopped = loader()
        iterator = iter(stopped)
        for _ in range(4):
            next(iterator)
        state = stopped.state_dict()
        del iterator
        resumed = loader()
        resumed.load_state_dict(state)
        rest = [[part.cpu() for part in batch] for batch in resumed]
        assert len(rest) == len(whole) - 4
        assert_same(rest, whole[4:])

    @pytest.mark.parametrize("workers", [0, 2])
    def test_slots_are_really_page_locked(self, device: Handle, shards: Path, workers: int) -> None:
        before = set(locked_slots())
        dataset = zcd.open(shards, transform={"image": CROP})
        iterator = iter(zcd.DataLoader(dataset, batch_size=7, num_workers=workers, device=device.name))
        next(iterator)
        slots = set(locked_slots()) - before
        assert slots
        for address, size in slots:
            assert device.locked()[address] == size
            assert device.is_locked(address, size)
        iterator.close()

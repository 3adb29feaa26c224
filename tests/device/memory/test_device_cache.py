"""Rows on the device: batches are the host's, bit for bit, whatever part of the rows is there."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulated_device import Machine, simulated, why_not
from swap_schedules import FakeDevice, FakeHost
from torch.utils.data import TensorDataset

import zerocopy_data as zcd
from zerocopy_data.device.memory import DeviceCache, Governor
from zerocopy_data.device.memory.moves import Place
from zerocopy_data.errors import ConfigError, DeviceMemoryError, ZcdError

ROWS = 100
WIDTH = 4 * 6 + 8 + 1  # bytes of a row of _columns()


def _columns(rows: int = ROWS) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(rows, 2, 3, generator=generator),
        "label": torch.arange(rows),
        "flag": torch.rand(rows, generator=generator) < 0.5,
    }


def _cache(source: Any, budget: int = 1 << 20, **options: Any) -> DeviceCache:
    return DeviceCache(source, "sim", budget=budget, **{"host": FakeHost(), **options})


def _host(value: Any) -> torch.Tensor:
    torch.get_device_module("sim").synchronize()
    return value.inner.clone()  # type: ignore[no-any-return]


def _same(batch: dict[str, Any], columns: dict[str, torch.Tensor], indices: Any) -> bool:
    return list(batch) == list(columns) and all(
        torch.equal(_host(batch[name]), columns[name][torch.as_tensor(indices, dtype=torch.int64)]) for name in columns
    )


@pytest.mark.parametrize("chunks", [1, 3, 8])
@pytest.mark.parametrize("part", [0.0, 0.4, 2.0])
def test_batches_are_those_of_the_host(machine: Machine, part: float, chunks: int) -> None:
    columns = _columns()
    budget = int(part * ROWS * WIDTH) + (part > 0) * chunks * 48
    with _cache(columns, budget, chunks=chunks) as cache:
        state = cache.state()
        assert state.bytes <= budget
        assert (state.resident == ROWS) == (part == 2.0)
        assert (state.resident > 0) == (part > 0)
        generator = np.random.default_rng(0)
        for count in (1, 7, 40, 0):
            indices = generator.integers(-ROWS, ROWS, count)
            assert _same(cache.batch(indices), columns, indices)
        assert _same(cache.batch([3, 3, 3]), columns, [3, 3, 3])
        assert _same(cache.batch(torch.arange(ROWS)), columns, range(ROWS))
        assert cache.state().hits + cache.state().misses == 1 + 7 + 40 + 3 + ROWS


def test_rows_that_are_there_do_not_touch_the_host(machine: Machine) -> None:
    with _cache(_columns()) as cache:
        torch.get_device_module("sim").synchronize()
        before, waited = len(machine.log), machine.host_waits
        cache.batch(range(50))
        torch.get_device_module("sim").synchronize()
        copies = [entry for entry in machine.log[before:] if entry[0] == "h2d"]
        assert len(copies) == 1  # the index numbers
        seconds = copies[0][3] - copies[0][2]
        assert seconds < machine.latency + 1000 / machine.h2d
        assert cache.state().misses == 0
        assert machine.host_waits >= waited


def test_hot_rows_are_kept_first(machine: Machine) -> None:
    columns = _columns()
    hot = [90, 5, 17, 60, 2, 44, 33, 21]
    with _cache(columns, hot=hot, chunks=2) as cache:
        assert cache.state().resident == 8
        assert _same(cache.batch(hot[::-1]), columns, hot[::-1])
        assert (cache.state().hits, cache.state().misses) == (8, 0)
        assert _same(cache.batch([0, 90]), columns, [0, 90])
        assert (cache.state().hits, cache.state().misses) == (9, 1)


def test_batches_share_no_memory_with_the_cache_or_one_another(machine: Machine) -> None:
    columns = _columns()
    for part in (0, 1 << 20):
        with _cache(columns, part, chunks=1) as cache:
            first, second = cache.batch(range(ROWS)), cache.batch(range(ROWS))
            for value in first.values():
                value.zero_()
            assert _same(second, columns, range(ROWS))
            assert _same(cache.batch(range(ROWS)), columns, range(ROWS))


def test_a_tensor_dataset_gives_tuples_and_a_tensor_tensors(machine: Machine) -> None:
    x, y = torch.randn(10, 3), torch.arange(10)
    with _cache(TensorDataset(x, y)) as cache:
        batch = cache.batch([2, 1])
        assert isinstance(batch, tuple)
        assert torch.equal(_host(batch[0]), x[[2, 1]])
        assert torch.equal(_host(batch[1]), y[[2, 1]])
    with _cache(x.half()) as cache:
        assert torch.equal(_host(cache.batch([9])), x[9:].half())


@pytest.fixture
def dataset(tmp_path: Path) -> zcd.ShardDataset:
    generator = np.random.default_rng(1)
    fields = {
        "x": zcd.Tensor("float32", (4,)),
        "label": zcd.Scalar("int64"),
        "pixels": zcd.Image("raw", (6, 5, 3)),
        "text": zcd.Text(),
    }
    with zcd.DatasetWriter(tmp_path / "d.zcd", fields, shard_size=2000, row_group_size=500) as writer:
        for i in range(50):
            pixels = generator.integers(0, 256, (6, 5, 3), np.uint8)
            writer.write({"x": generator.random(4, np.float32), "label": i, "pixels": pixels, "text": f"row {i}"})
    return zcd.open(tmp_path / "d.zcd")


@pytest.mark.parametrize("budget", [0, 600, 1 << 20])
def test_a_shard_dataset_by_its_columns_of_one_size(machine: Machine, dataset: zcd.ShardDataset, budget: int) -> None:
    kept = dataset.select(["x", "label", "pixels"]).subset(range(5, 45))
    indices = [39, 0, 7, 7, -1]
    expected = kept.subset(indices)[:]
    with _cache(kept, budget, chunks=3) as cache:
        assert len(cache) == 40
        batch = cache.batch(indices)
        assert {name: _host(value).tolist() for name, value in batch.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
    with pytest.raises(ConfigError, match=r"'text' is a list.*select"):
        _cache(dataset)
    random_crops = zcd.open(dataset.path, [zcd.RandomResizedCrop(4)], columns=["pixels"])
    with pytest.raises(ConfigError, match="'pixels' is random"):
        _cache(random_crops)


def test_the_governor_spills_the_coldest_rows_and_refills_them(machine: Machine) -> None:
    columns = _columns()
    device = FakeDevice(100_000)
    with _cache(columns, chunks=4) as cache:
        whole = cache.state().bytes
        governor = Governor(low=1000, high=9000, reliefs=[cache], source=device, dwell=2)
        device.free = 0
        action = governor.step()
        assert action is not None
        assert cache.state().bytes < whole
        assert _same(cache.batch(range(ROWS)), columns, range(ROWS))
        assert cache.state().misses > 0
        device.free = 50_000
        for _ in range(20):
            governor.step()
        assert cache.state().bytes == whole
        assert _same(cache.batch(range(ROWS)), columns, range(ROWS))


def test_a_full_device_or_host_means_that_fewer_rows_are_kept(machine: Machine) -> None:
    columns = {"x": torch.randn(1000, 512)}  # twice the device
    with _cache(columns, 1 << 30) as cache:
        assert 0 < cache.state().resident < 1000
    host = FakeHost(free=0)
    with _cache(_columns(), host=host) as cache:
        assert cache.state().resident == 0
        with pytest.raises(DeviceMemoryError, match="host_margin"):
            cache.batch([0])
        host.free = 1 << 40
        assert _same(cache.batch([0]), _columns(), [0])


def test_closing_frees_both_sides(machine: Machine) -> None:
    cache = _cache(_columns(), 2000)
    cache.batch(range(ROWS))
    cache.close()
    cache.close()
    torch.get_device_module("sim").synchronize()
    gc.collect()
    assert machine.allocators[0].allocated == 0
    assert machine.pinned == {}
    assert cache.restore(1 << 30) == 0
    with pytest.raises(ZcdError, match="closed"):
        cache.batch([0])


def test_what_cannot_be_kept_is_refused(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="different lengths"):
        _cache({"a": torch.ones(2), "b": torch.ones(3)})
    with pytest.raises(ConfigError, match="no rows"):
        _cache(torch.ones(0, 2))
    with pytest.raises(ConfigError, match="no tensor"):
        _cache(5)
    with pytest.raises(ConfigError, match="twice"):
        _cache(torch.ones(3), hot=[1, 1])
    with pytest.raises(ConfigError, match="budget"):
        _cache(torch.ones(3), budget=-1)
    with _cache(torch.ones(3)) as cache:
        for wrong in ([3], [-4]):
            with pytest.raises(IndexError, match="of 3"):
                cache.batch(wrong)
        with pytest.raises(ConfigError, match="integers"):
            cache.batch([0.5])  # type: ignore[list-item]


def _schedule(seed: int) -> list[str]:
    """Batches on two streams while chunks come and go; returns what went wrong."""
    rng = random.Random(seed)
    machine = Machine(h2d=rng.choice([1e5, 1e7]), bandwidth=1e6, latency=1e-4, rng=random.Random(seed))
    columns = _columns(40)
    checks: list[tuple[Any, list[int]]] = []
    with simulated(machine):
        module: Any = torch.get_device_module("sim")
        streams = [module.current_stream(), module.Stream(device="sim:0")]
        with _cache(columns, rng.choice([700, 1 << 20]), chunks=rng.randint(1, 4)) as cache:
            for _ in range(15):
                draw = rng.random()
                if draw < 0.7:
                    with module.stream(rng.choice(streams)):
                        indices = [rng.randrange(40) for _ in range(rng.randint(1, 12))]
                        checks.append((cache.batch(indices), indices))
                elif draw < 0.85:
                    cache.relieve(rng.randint(1, 1000))
                else:
                    cache.restore(1 << 20)
                if rng.random() < 0.2:
                    machine.host(rng.choice([1e-4, 1e-2]))
        problems = [f"batch {indices}" for batch, indices in checks if not _same(batch, columns, indices)]
    return problems + [fault.text for fault in machine.faults]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_no_random_schedule_gives_wrong_rows_and_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        assert _schedule(seed) == [], f"seed {seed}"
    monkeypatch.setattr(Place, "order", lambda self, stream: None)
    assert any(_schedule(seed) for seed in range(20))

"""The governor in a thread of its own."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
from swap_schedules import FakeDevice

from zerocopy_data.device.memory import Governor
from zerocopy_data.errors import ConfigError


class Counting(FakeDevice):
    """Counts readings, and says which thread asks."""

    def __init__(self) -> None:
        super().__init__(150)
        self.readings = 0
        self.threads: set[str] = set()

    def read(self) -> FakeDevice:
        self.readings += 1
        self.threads.add(threading.current_thread().name)
        return self


def _governor(source: Counting) -> Governor:
    return Governor(low=100, high=300, reliefs=[], source=source)


def _threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "zcd memory governor"]


def _until(met: object, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if met():  # type: ignore[operator]
            return True
        time.sleep(0.002)
    return False


def test_it_steps_until_it_is_stopped() -> None:
    source = Counting()
    with _governor(source) as governor:
        governor.start(0.001)
        assert _until(lambda: source.readings >= 3)
        with pytest.raises(ConfigError, match="already"):
            governor.start(0.001)
    assert source.threads == {"zcd memory governor"}
    assert _threads() == []
    seen = source.readings
    time.sleep(0.02)
    assert source.readings == seen
    governor.stop()  # twice is no harm
    governor.start(0.001)  # and it may begin again
    assert _until(lambda: source.readings > seen)
    governor.stop()


def test_no_step_is_taken_while_it_is_paused() -> None:
    source = Counting()
    with _governor(source) as governor:
        governor.start(0.001)
        with governor.paused():
            seen = source.readings
            time.sleep(0.02)
            assert source.readings == seen
        assert _until(lambda: source.readings > seen)


def test_the_thread_ends_with_a_governor_that_nobody_holds() -> None:
    source = Counting()
    governor = _governor(source)
    governor.start(0.001)
    assert _until(lambda: source.readings > 0)
    del governor
    gc.collect()
    assert _until(lambda: _threads() == [])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1"])
def test_seconds_between_steps_must_be_positive(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="positive"):
        _governor(Counting()).start(seconds)
    assert _threads() == []

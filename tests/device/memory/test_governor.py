"""The governor's decisions, on readings that a test sets."""

from __future__ import annotations

import random
from typing import Any

import pytest
from swap_schedules import FakeDevice

from zerocopy_data.device.memory import DeviceReading, Governor, InFlight, SystemMemory
from zerocopy_data.device.memory.marks import Marks
from zerocopy_data.errors import ConfigError


class Store:
    """A relief that holds bytes; what it gives up shows after some readings."""

    def __init__(self, name: str, held: int, piece: int = 1) -> None:
        self.name, self.held, self.most, self.piece = name, held, held, piece
        self.moves = 0

    def relieve(self, bytes_wanted: int) -> int:
        given = min(self.held, -(-bytes_wanted // self.piece) * self.piece)
        self.held -= given
        self.moves += given > 0
        return given

    def restore(self, bytes_allowed: int) -> int:
        taken = min(self.most - self.held, bytes_allowed // self.piece * self.piece)
        self.held += taken
        self.moves += taken > 0
        return taken

    def pending(self) -> int:
        return 0


class Broken:
    name = "broken"

    def relieve(self, bytes_wanted: int) -> int:
        raise RuntimeError("the relief is out of order\nin two lines")

    restore = relieve

    def pending(self) -> int:
        return 0


def test_below_the_low_mark_reliefs_are_asked_in_order_until_the_middle() -> None:
    first, second, third = Store("first", 60), Store("second", 1000), Store("third", 1000)
    governor = Governor(low=100, high=300, reliefs=[first, second, third], source=FakeDevice(90))
    action = governor.step()
    assert action is not None
    assert (action.kind, action.free, action.parts) == ("relieve", 90, (("first", 60), ("second", 50)))
    assert governor.given == {"first": 60, "second": 50, "third": 0}
    assert list(governor.log) == [action]


@pytest.mark.parametrize("free", [100, 200, 300])
def test_between_the_marks_nothing_is_done(free: int) -> None:
    store = Store("store", 1000)
    governor = Governor(low=100, high=300, reliefs=[store], source=FakeDevice(free), dwell=1)
    assert [governor.step() for _ in range(20)] == [None] * 20


def test_memory_is_taken_again_only_after_it_was_plentiful_for_a_while_and_last_given_first() -> None:
    device = FakeDevice(0)
    first, second = Store("first", 100), Store("second", 1000)
    governor = Governor(low=100, high=300, reliefs=[first, second], source=device, dwell=3)
    governor.step()
    assert (first.held, second.held) == (0, 900)
    device.free = 350
    assert [governor.step(), governor.step()] == [None, None]
    device.free = 299
    assert governor.step() is None  # the count begins anew
    device.free = 350
    assert [governor.step(), governor.step()] == [None, None]
    action = governor.step()
    assert action is not None
    assert (action.kind, action.parts) == ("restore", (("second", 100), ("first", 50)))


@pytest.mark.parametrize("seed", range(5))
def test_noise_smaller_than_half_the_marks_distance_never_turns_it_round(seed: int) -> None:
    rng = random.Random(seed)
    device, store = FakeDevice(), Store("store", 1000, piece=30)
    governor = Governor(low=100, high=300, reliefs=[store], source=device, dwell=2)
    for _ in range(2000):
        device.free = 1100 - store.held + rng.randint(-45, 45)  # about the low mark when all is held
        governor.step()
        assert device.free >= 0
    assert {action.kind for action in governor.log} == {"relieve"}
    assert store.moves <= 3


def test_free_memory_stays_above_zero_where_demand_rises_slower_than_the_low_mark() -> None:
    rng = random.Random(0)
    device, store = FakeDevice(), Store("store", 800, piece=7)
    governor = Governor(low=100, high=300, reliefs=[store], source=device, dwell=4)
    demand = 0
    for _ in range(5000):
        demand = max(0, min(900, demand + rng.randint(-90, 90)))
        device.free = 1000 - demand - store.held
        assert device.free >= 0
        governor.step()


def test_what_is_pending_counts_as_free_and_what_may_still_come_as_taken() -> None:
    class Slow(Store):
        def pending(self) -> int:
            return due

    due = 150
    slow = Slow("slow", 1000)
    governor = Governor(low=100, high=300, reliefs=[slow], source=FakeDevice(50), dwell=1)
    assert governor.step() is None
    due = -250
    governor.source = FakeDevice(310)
    action = governor.step()
    assert action is not None
    assert (action.kind, action.free) == ("relieve", 60)


def test_a_relief_that_raises_is_noted_and_the_next_one_is_asked() -> None:
    store = Store("store", 1000)
    governor = Governor(low=100, high=300, reliefs=[Broken(), store], source=FakeDevice(0))
    action = governor.step()
    assert action is not None
    assert action.failures == (("broken", "RuntimeError: the relief is out of order"),)
    assert action.parts == (("store", 200),)


def test_a_source_that_raises_stops_nothing() -> None:
    class Gone:
        def read(self) -> Any:
            raise OSError("no such driver")

    action = Governor(low=1, high=2, reliefs=[], source=Gone()).step()
    assert action is not None
    assert (action.kind, action.failures) == ("failed", (("source", "OSError: no such driver"),))


class Pipeline:
    """Holds memory for batches; obeys its limit when the next one is begun."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = limit

    def next(self) -> None:
        self.in_flight = self.limit


def test_fewer_batches_are_in_flight_down_to_the_least_and_back() -> None:
    pipeline = Pipeline(6)
    relief = InFlight(pipeline, bytes_each=100, least=2)
    assert relief.relieve(150) == 200
    assert (pipeline.limit, relief.pending()) == (4, 200)
    pipeline.next()
    assert relief.pending() == 0
    assert relief.relieve(10_000) == 200
    assert relief.relieve(1) == 0
    pipeline.next()
    assert relief.restore(350) == 300
    assert (pipeline.limit, relief.pending()) == (5, -300)
    assert relief.restore(10_000) == 100
    assert pipeline.limit == 6


def test_marks_and_counts_that_make_no_sense_are_refused() -> None:
    for low, high, dwell in ((2, 1, 1), (-1, 1, 1), (1, 1, 1), (1, 2, 0)):
        with pytest.raises(ConfigError, match=r"low|dwell"):
            Marks(low, high, dwell)
    with pytest.raises(ConfigError, match="least"):
        InFlight(Pipeline(2), bytes_each=1, least=3)


def test_what_can_neither_be_read_nor_asked_is_refused_at_once() -> None:
    wrong: list[dict[str, Any]] = [
        {"source": None, "reliefs": []},
        {"source": SystemMemory(), "reliefs": [None]},
        {"source": SystemMemory(), "reliefs": None},
        {"source": SystemMemory(), "reliefs": [InFlight]},
        {"source": SystemMemory(), "reliefs": InFlight(Pipeline(2), bytes_each=1)},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigError, match=r"source=|reliefs="):
            Governor(low=1, high=2, **arguments)


def test_a_reading_counts_what_the_allocator_has_cached_as_free() -> None:
    assert DeviceReading(driver_free=10, total=100, cached=5).free == 15

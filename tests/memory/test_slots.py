"""Slots of a worker: used again when they come back, made when they do not."""

from __future__ import annotations

import time

import pytest

from zerocopy_data.memory import slots
from zerocopy_data.memory.slots import Slot, SlotPool, capacity_for

LARGE = 64 << 20


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait so long that a busy machine doesn't cut it short."""
    monkeypatch.setattr(slots, "_WAIT_BYTES_PER_SECOND", LARGE / 60)


class Consumer:
    """Answers with releases from the n-th look on."""

    def __init__(self) -> None:
        self.looks = 0
        self.releases: list[tuple[int, list[tuple[int, bool]]]] = []

    def receive(self) -> list[tuple[int, bool]]:
        self.looks += 1
        due = [release for after, release in self.releases if self.looks > after]
        self.releases = [entry for entry in self.releases if self.looks <= entry[0]]
        return [one for some in due for one in some]


def close(made: list[Slot]) -> None:
    for slot in made:
        slot.close()


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def pool(consumer: Consumer) -> SlotPool:
    return SlotPool(consumer.receive, close)


def lend(pool: SlotPool, size: int) -> Slot:
    """A slot that has been sent away."""
    slot, lease = pool.lease(size)
    slot.remote += 1
    del lease
    return slot


@pytest.mark.usefixtures("patience")
def test_a_slot_that_comes_back_in_a_moment_is_waited_for(pool: SlotPool, consumer: Consumer) -> None:
    lent = lend(pool, LARGE)
    consumer.releases.append((consumer.looks + 3, [(lent.number, False)]))
    slot, _ = pool.lease(LARGE)
    assert slot is lent
    assert len(pool) == 1


def test_a_slot_that_stays_away_is_not(pool: SlotPool) -> None:
    lend(pool, LARGE)
    start = time.monotonic()
    pool.lease(LARGE)
    assert time.monotonic() - start < 0.5, "64 MiB take a millisecond's wait"
    assert len(pool) == 2


@pytest.mark.usefixtures("patience")
def test_a_slot_that_must_not_be_written_again_is_not_taken(pool: SlotPool, consumer: Consumer) -> None:
    lent = lend(pool, LARGE)
    consumer.releases.append((consumer.looks + 2, [(lent.number, True)]))
    slot, _ = pool.lease(LARGE)
    assert slot is not lent
    assert len(pool) == 1


@pytest.mark.usefixtures("patience")
def test_nobody_waits_for_slots_of_other_sizes(pool: SlotPool, consumer: Consumer) -> None:
    lend(pool, LARGE)
    before = consumer.looks
    pool.lease(4 * LARGE)
    assert consumer.looks == before + 1


@pytest.mark.usefixtures("patience")
def test_nobody_waits_for_a_small_slot(pool: SlotPool, consumer: Consumer) -> None:
    lend(pool, 1 << 20)
    before = consumer.looks
    pool.lease(1 << 20)
    assert consumer.looks == before + 1


@pytest.mark.parametrize("size", [1, 4096, 4097, 1 << 20, (1 << 27) + 1, 154_140_672])
def test_a_slot_is_whole_pages_and_an_eighth_larger_at_most(size: int) -> None:
    capacity = capacity_for(size)
    assert capacity % 4096 == 0
    assert size <= capacity <= max(size * 9 / 8 + 1, 4096, size + 4096)

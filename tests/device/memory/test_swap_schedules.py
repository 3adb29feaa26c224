"""Random programs over a swap pool: no write is lost, no order is missing, and planted bugs are noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import swap_schedules
import torch
from simulated_device import why_not

from zerocopy_data.device.memory.moves import Link, Place
from zerocopy_data.device.memory.parcel import Mover, Parcel
from zerocopy_data.device.memory.pinned import PinnedBuffers

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("block", range(10))
def test_no_random_program_loses_a_write_or_an_order(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        assert swap_schedules.run(seed) == [], f"seed {seed}"


def _frees_before_the_copy_out_is_done(patch: pytest.MonkeyPatch) -> None:
    def settle(self: Mover, parcel: Parcel) -> None:
        if parcel.leaving and parcel.place is not None:
            parcel.place.copies.clear()
            self._vacate(parcel)

    patch.setattr(Mover, "settle", settle)


def _reads_before_the_copy_home_is_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Place, "order", lambda self, stream: None)


def _copies_out_before_the_writers_are_done(patch: pytest.MonkeyPatch) -> None:
    right = Link.out

    def out(self: Link, place: Place, host: torch.Tensor) -> Any:
        users = set(place.users)
        place.users.clear()
        done = right(self, place, host)
        place.users |= users
        return done

    patch.setattr(Link, "out", out)


def _hands_memory_over_while_it_is_read(patch: pytest.MonkeyPatch) -> None:
    def hand_over(self: Place) -> None:
        self.users.clear()
        self.copies.clear()

    patch.setattr(Place, "hand_over", hand_over)


def _reuses_host_memory_that_is_still_copied(patch: pytest.MonkeyPatch) -> None:
    right = PinnedBuffers.give
    patch.setattr(PinnedBuffers, "give", lambda self, buffer, event=None: right(self, buffer))


def _moves_what_somebody_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Place, "tensors", lambda self: 1)


@pytest.mark.parametrize(
    "plant",
    [
        _frees_before_the_copy_out_is_done,
        _reads_before_the_copy_home_is_done,
        _copies_out_before_the_writers_are_done,
        _hands_memory_over_while_it_is_read,
        _reuses_host_memory_that_is_still_copied,
        _moves_what_somebody_holds,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(swap_schedules.run(seed) for seed in range(60))

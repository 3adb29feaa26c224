"""Random training loops: no batch is torn and no slot used early, and a stager with one wait missing is found out.

More of them: benchmarks/staging.py --schedules 10000
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_device import why_not
from staging_schedules import Schedule, run

from zerocopy_data.device.staging import Stager

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SCHEDULES = st.builds(
    Schedule,
    seed=st.integers(0, 2**32),
    static=st.booleans(),
    buffers=st.integers(1, 4),
    epochs=st.integers(1, 2),
    batches=st.integers(1, 8),
    depth=st.integers(1, 3),
    h2d=st.sampled_from([1e5, 1e6, 1e7, 1e9]),
    latency=st.sampled_from([0.0, 1e-5, 1e-3]),
).map(lambda drawn: replace(drawn, buffers=max(drawn.buffers, 1 + drawn.static)))


@pytest.fixture(autouse=True, scope="module")
def _light_collections() -> Iterator[None]:
    """Every schedule ends with a full garbage collection: what exists before them need not be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


class HoldsNoSlot(Stager):
    """Slots go back to their writer with copies out of them still queued."""

    def put(self, batch: Any) -> None:
        super().put(batch)
        self._copying.clear()


class WritesAtOnce(Stager):
    """The next copy into a place waits for none of its readers."""

    def put(self, batch: Any) -> None:
        for place in self._rings.places():
            place.released = []
        super().put(batch)


class ReadsAtOnce(Stager):
    """The stream that computes does not wait for the copies."""

    def get(self) -> Any:
        self._staged[0].place.ready = self.accelerator.module.Event()
        return super().get()


class ReleasesEarly(Stager):
    """A static batch counts as read when it is handed out."""

    def get(self) -> Any:
        batch = super().get()
        self.release()
        return batch


class LendsThePlace(Stager):
    """Ordinary batches are views of memory that is used again."""

    def _fresh(self, leaf: Any, raw: Any) -> Any:
        return self._finish(leaf, raw)


class DrainsNothing(Stager):
    """An epoch ends without waiting for its copies."""

    def drain(self) -> None:
        self._staged.clear()
        self._copying.clear()


# What each is found by: the simulated device notices what was not in order, the loop that values are wrong.
BUGS = {
    HoldsNoSlot: ("torn", "unpinned", "was torn"),
    WritesAtOnce: ("race", "was torn"),
    ReadsAtOnce: ("race", "was torn"),
    ReleasesEarly: ("race", "was torn"),
    LendsThePlace: ("race", "changed while it was kept", "was torn"),
    DrainsNothing: ("torn", "unpinned", "race", "was torn"),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_early_use_is_noticed(bug: type[Stager]) -> None:
    problems: list[str] = []
    for seed in range(60):
        problems += run(Schedule.draw(seed), bug)
        if problems:
            break
    assert any(word in problem for problem in problems for word in BUGS[bug]), problems


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(SCHEDULES)
def test_no_batch_is_torn_and_no_slot_is_used_early(schedule: Schedule) -> None:
    assert run(schedule) == []

"""Governor and swap pool on traces: no thrash, never above the limit, close to an oracle that knows the future."""

from __future__ import annotations

import memory_traces as traces
import pytest
from simulated_device import why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("seed", range(3))
def test_noise_about_the_low_mark_turns_nothing_round(seed: int) -> None:
    outcome = traces.train(traces.noise(50, seed))
    assert outcome.actions <= 2
    assert len(set(outcome.room[outcome.room.index(min(outcome.room)) :])) == 1
    assert outcome.faults == []


@pytest.mark.parametrize("trace", [traces.ramp(60), traces.jumps(80, 3), traces.jumps(80, 4)])
def test_memory_never_runs_out_though_others_take_it(trace: list[int]) -> None:
    outcome = traces.train(trace)
    assert outcome.steps == len(trace)
    assert outcome.least_free >= 0
    assert outcome.faults == []
    assert traces.train(trace, governed=False).steps < len(trace)  # the trace is one that needs a governor


@pytest.mark.parametrize(("trace", "most"), [(traces.noise(50, 1), 1.01), (traces.ramp(60), 1.2)])
def test_a_recorded_order_comes_close_to_an_oracle_that_knows_the_future(trace: list[int], most: float) -> None:
    outcome = traces.train(trace)
    assert outcome.elapsed <= most * traces.oracle(outcome.room)
    unrecorded = traces.train(trace, recorded=False)
    assert unrecorded.stall > 3 * outcome.stall


def test_no_policy_is_faster_than_the_oracle() -> None:
    for trace in (traces.ramp(40), traces.jumps(40, 2)):
        outcome = traces.train(trace, seconds=2e-4)  # now copies take longer than work
        assert outcome.elapsed >= traces.oracle(outcome.room, 2e-4) * 0.999
        assert outcome.moves > 0


def test_the_layers_come_home_when_memory_is_plentiful_again() -> None:
    outcome = traces.train([*traces.ramp(40), *[0] * 20])
    assert min(outcome.room) < traces.LAYERS
    assert outcome.room[-1] == traces.LAYERS

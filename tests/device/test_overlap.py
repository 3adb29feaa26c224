"""Copies run beside compute: a step takes as long as the longer of the two, where the loop by hand pays for both."""

from __future__ import annotations

import pytest
from simulated_device import why_not
from staging_steps import RATIOS, Step, serial, staged

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("static", [False, True], ids=["ordinary", "static"])
def test_a_step_takes_the_longer_of_copy_and_compute(static: bool, ratio: float) -> None:
    step = Step(copy=ratio * 1e-3, compute=1e-3)
    assert staged(step, static) == pytest.approx(max(step.copy, step.compute), rel=0.02)


@pytest.mark.parametrize("ratio", RATIOS)
def test_the_loop_by_hand_takes_their_sum(ratio: float) -> None:
    step = Step(copy=ratio * 1e-3, compute=1e-3)
    assert serial(step) == pytest.approx(step.copy + step.compute, rel=0.02)


@pytest.mark.parametrize("static", [False, True], ids=["ordinary", "static"])
def test_steps_that_vary_by_a_fifth_cost_a_few_percent(static: bool) -> None:
    step = Step(copy=1e-3, compute=1e-3, jitter=0.2)
    assert staged(step, static, steps=200) < 1.06 * 1e-3


@pytest.mark.parametrize("static", [False, True], ids=["ordinary", "static"])
def test_a_host_that_is_busy_for_most_of_a_step_costs_nothing(static: bool) -> None:
    step = Step(copy=0.9e-3, compute=1e-3, host=0.8e-3)
    assert staged(step, static) == pytest.approx(1e-3, rel=0.02)

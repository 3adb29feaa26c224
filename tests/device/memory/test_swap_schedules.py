"""Random programs over a swap pool: no write is lost, no order is missing, and planted bugs are noticed."""

from __future__ import annotations

from typing import Any

import pytest
import swap_schedules
from simulated_device import why_not

from zerocopy_data.device.memory import SwapPool
from zerocopy_data.device.memory.moves import Link, Place
from zerocopy_data.device.memory.parcel import Mover

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("block", range(10))
def test_no_random_program_loses_a_write_or_an_order(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        assert swap_schedules.run(seed) == [], f"seed {seed}"

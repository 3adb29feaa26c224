"""Batches at fixed addresses, and graphs that read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import zerocopy_data as zcd

from .handles import Handle
from .rows import Numbers, assert_same, numbers


class GraphCases:
    """Cases; a subclass has the fixture `device`."""

    @pytest.mark.parametrize("buffers", [2, 3])
    def test_addresses_repeat(self, device: Handle, buffers: int) -> None:
        staging = zcd.Staging(device.name, static=True, buffers=buffers)
        loader = zcd.DataLoader(Numbers(48), batch_size=4, num_workers=2, device=staging)
        addresses = [[tuple(map(device.address, batch)) for batch in loader] for _ in range(2)]
        first = addresses[0]
        assert len(set(first)) == buffers
        assert all(here == there for here, there in zip(first, first[buffers:], strict=False))
        assert set(addresses[1]) == set(first), "the next epoch lies where this one did"

    def test_graphs_replay_on_every_batch(self, device: Handle) -> None:
        loader = zcd.DataLoader(Numbers(80), batch_size=4, num_workers=2, device=device.name, static=True)
        total = torch.zeros(4, device=device.name)
        graphs: dict[int, Callable[[], None]] = {}
        seen = []
        for values, rows in loader:
            address = device.address(values)
            if address not in graphs:
                before = total.clone()

                def work(values: torch.Tensor = values) -> None:
                    total.add_(values.amax(1) + values.amin(1))

                graphs[address] = device.capture(work)
                total.copy_(before)
            graphs[address]()
            seen.append((total.clone(), rows + 0))
        assert len(graphs) == 2
        expected = torch.zeros(4)
        for number, (got, rows) in enumerate(seen):
            assert numbers(rows) == list(range(4 * number, 4 * number + 4))
            expected = expected + 2 * rows.cpu().float()
            assert_same(got, expected)

    def test_a_batch_asked_for_during_a_capture_is_refused(self, device: Handle) -> None:
        iterator = iter(zcd.DataLoader(Numbers(40), batch_size=4, num_workers=2, device=device.name, static=True))
        first = next(iterator)
        device.module.synchronize()
        with device.capturing(), pytest.raises(zcd.ConfigError, match="captured into a graph"):
            next(iterator)
        assert numbers(first[1]) == [0, 1, 2, 3]
        assert [numbers(rows)[0] for _, rows in iterator] == list(range(4, 40, 4)), "nothing was lost"

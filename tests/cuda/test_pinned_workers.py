"""Worker batches on a real device: pinned in place, and never torn while copies are under way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import zerocopy_data as zcd

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Numbers(Dataset[Any]):
    """Row i is full of i."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((1_000_000,), float(index)), index


def test_batches_are_pinned_and_copies_are_never_torn() -> None:
    loader = zcd.DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True)
    results = []
    for images, labels in loader:
        assert images.is_pinned()
        assert labels.is_pinned()
        torch.cuda._sleep(2_000_000)  # the copy below waits behind this, while the batch is dropped
        on_device = images.to("cuda", non_blocking=True)
        del images
        results.append((on_device.amin(1), on_device.amax(1), labels))
    for low, high, labels in results:
        assert torch.equal(low.cpu(), labels.float())
        assert torch.equal(high.cpu(), labels.float())

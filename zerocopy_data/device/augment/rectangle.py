"""Rectangles as masks."""

from __future__ import annotations

import torch


def inside(box: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Which pixels of an image of that size lie in each rectangle.

    Args:
        box: int64 [m, 4], top, left, height and width.
        height: Of the images.
        width: Likewise.

    Returns:
        bool [m, 1, height, width].
    """
    top, left, tall, wide = (column.view(-1, 1, 1, 1) for column in box.unbind(1))
    y = torch.arange(height, device=box.device).view(1, 1, -1, 1)
    x = torch.arange(width, device=box.device).view(1, 1, 1, -1)
    return ((y >= top) & (y < top + tall)) & ((x >= left) & (x < left + wide))

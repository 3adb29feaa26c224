"""Shear, shift and rotation of a batch, each sample by its own amount: torchvision's affine and rotate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from .op import Floats


def shear_x(amount: Floats, height: int, width: int) -> Floats:
    """Matrices [m, 2, 3] from output to input pixels, (0, 0) the middle, that slant about the upper left corner."""
    return _matrices(amount, b=amount, c=amount * (height / 2))


def shear_y(amount: Floats, height: int, width: int) -> Floats:
    """As `shear_x`, downwards."""
    return _matrices(amount, d=amount, f=amount * (width / 2))


def translate_x(amount: Floats, height: int, width: int) -> Floats:
    """Shifts by the whole part of `amount` pixels to the right."""
    return _matrices(amount, c=-np.trunc(amount))


def translate_y(amount: Floats, height: int, width: int) -> Floats:
    """Shifts by the whole part of `amount` pixels downwards."""
    return _matrices(amount, f=-np.trunc(amount))


def rotate(amount: Floats, height: int, width: int) -> Floats:
    """Turns counter-clockwise by degrees about the middle."""
    angle = np.radians(-(amount % 360))
    cos, sin = np.cos(angle), np.sin(angle)
    return _matrices(amount, a=cos, b=sin, d=-sin, e=cos)


def _matrices(
    amount: Floats,
    a: Floats | float = 1.0,
    b: Floats | float = 0.0,
    c: Floats | float = 0.0,
    d: Floats | float = 0.0,
    e: Floats | float = 1.0,
    f: Floats | float = 0.0,
) -> Floats:
    rows = np.broadcast_arrays(amount, a, b, c, d, e, f)[1:]
    return np.stack(rows, axis=-1).reshape(-1, 2, 3)


def for_grid(matrices: Floats, height: int, width: int) -> npt.NDArray[np.float32]:
    """The matrices transposed, float32 [m, 3, 2], in units in which an image reaches from -1 to 1."""
    half = np.array([0.5 * width, 0.5 * height], np.float32)
    return matrices.astype(np.float32).transpose(0, 2, 1) / half


def sampling_grid(matrices: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Where each pixel of the result comes from, float32 [m, height, width, 2], from float32 [m, 3, 2] of `for_grid`.

    Element by element and not as a product of matrices, whose rounding would depend on how many there are.
    """
    device = matrices.device
    x = torch.linspace((1.0 - width) * 0.5, (width - 1.0) * 0.5, width, device=device).view(1, 1, -1)
    y = torch.linspace((1.0 - height) * 0.5, (height - 1.0) * 0.5, height, device=device).view(1, -1, 1)
    grid = torch.empty((len(matrices), height, width, 2), device=device)
    for axis in range(2):
        of_x, of_y, shift = matrices[:, :, axis].reshape(-1, 3, 1, 1).unbind(1)
        grid[..., axis] = (x * of_x + y * of_y).add_(shift)
    return grid


def warp(images: torch.Tensor, matrices: torch.Tensor, mode: str, fill: torch.Tensor) -> torch.Tensor:
    """Samples every image under its matrix.

    Args:
        images: [m, C, H, W].
        matrices: float32 [m, 3, 2], of `for_grid`.
        mode: 'nearest' or 'bilinear'.
        fill: float32 [C] for what lies outside, or [0] for zeros.

    Returns:
        [m, C, H, W] in the images' dtype, uint8 rounded.
    """
    channels = images.shape[1]
    grid = sampling_grid(matrices, images.shape[2], images.shape[3])
    pixels = images.to(torch.float32)
    if fill.numel():  # one channel more says how much of a result came from inside
        pixels = torch.cat([pixels, torch.ones_like(pixels[:, :1])], 1)
    out = torch.nn.functional.grid_sample(pixels, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill.numel():
        inside, colour = out[:, channels:], fill.view(1, -1, 1, 1)
        out = out[:, :channels]
        out = torch.where(inside < 0.5, colour, out) if mode == "nearest" else (out - colour) * inside + colour
    return out.to(images.dtype) if images.is_floating_point() else out.round_().to(images.dtype)

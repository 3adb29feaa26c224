"""Normal noise that is keyed by sample and made on the device."""

from __future__ import annotations

import torch


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_ROUNDS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))


def normals(keys: torch.Tensor, channels: int, height: int, width: int) -> torch.Tensor:
    """Numbers of mean 0 and deviation 1, a function of each sample's key.

    SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) of a counter from the key, two uniform numbers out of each word, and
    Box and Muller's transform. In int64 arithmetic, which wraps, so that any device can do it.

    Args:
        keys: int64 [m], one of 2^53 for each sample.
        channels: C.
        height: H.
        width: W.

    Returns:
        float32 [m, C, H, W].
    """
    place = torch.arange(1, channels * height * width + 1, device=keys.device).view(1, channels, height, width)
    # A key is itself mixed before the places are counted from it: neighbours must not share a stretch of the sequence.
    z = _mix(keys.view(-1, 1, 1, 1) * _GOLDEN) + place * _GOLDEN
    z = _mix(z)
    first = ((z >> 40) & 0xFFFFFF).to(torch.float32).add_(1).mul_(2.0**-24)  # (0, 1]: a logarithm is taken
    second = ((z >> 16) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24 * 2 * torch.pi)
    return first.log_().mul_(-2).sqrt_().mul_(second.cos_())


def _mix(z: torch.Tensor) -> torch.Tensor:
    for shift, factor in _ROUNDS:
        z = (z ^ _shifted(z, shift)) * factor
    return z ^ _shifted(z, 31)


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """To the right, zeros coming in: torch's own shift of int64 brings copies of the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)

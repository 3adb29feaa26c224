"""What MixUp and CutMix have in common: the partner, the share, and soft labels.

The partner of the sample at place i of a batch is the one at place i - 1; that at place 0 has the last. (torchvision's
rule. No sample of a batch of two or more is its own partner; over epochs the shuffle brings other partners.) So these
two depend on the order of the batch, and only they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import ConfigError
from .checks import NUMBER
from .op import Floats


def checked_alpha(alpha: Any, op: str) -> float:
    """alpha as a float.

    Raises:
        ConfigError: it is not a positive number.
    """
    if not isinstance(alpha, NUMBER) or not 0 < alpha < float("inf"):
        raise ConfigError(f"{op}(alpha={alpha!r}): a positive number.")
    return float(alpha)


def checked_classes(num_classes: Any, op: str) -> int | None:
    """num_classes as it is.

    Raises:
        ConfigError: it is neither a positive int nor None.
    """
    if num_classes is not None and (not isinstance(num_classes, int) or num_classes < 1):
        raise ConfigError(
            f"{op}(num_classes={num_classes!r}): a positive int, or None for labels that are soft already."
        )
    return num_classes


def beta(uniform: Floats, alpha: float) -> Floats:
    """Numbers of the distribution Beta(alpha, alpha) from two uniform ones each.

    Bailey's polar method ("Polar generation of random variates with the t-distribution", Math. Comp. 62, 1994) gives
    Student's t with 2 alpha degrees of freedom, and t / sqrt(2 alpha + t^2) is then 2 Beta(alpha, alpha) - 1. Holds for
    every alpha above 0, and takes a fixed number of draws.

    Args:
        uniform: float64 [n, 2] in [0, 1).
        alpha: Both parameters of the distribution.

    Returns:
        float64 [n] in [0, 1].
    """
    cosine = np.cos(2 * np.pi * uniform[:, 1])
    with np.errstate(over="ignore", divide="ignore"):  # a small alpha: infinity is right, and ends as a share of 0 or 1
        square = ((1.0 - uniform[:, 0]) ** (-1.0 / alpha) - 1.0) * cosine**2
        share: Floats = 0.5 + np.copysign(0.5, cosine) / np.sqrt(1.0 + 1.0 / square)
    return share


def mixed_labels(labels: torch.Tensor | None, share: torch.Tensor, num_classes: int | None, op: str) -> torch.Tensor:
    """Soft labels: each sample's own by its share, its partner's by the rest.

    Args:
        labels: Class numbers, integers [n]; or soft labels, floats [n, num_classes]; or one-hot integers of that shape.
        share: float32 [n, 2].
        num_classes: Needed for class numbers.
        op: For messages.

    Returns:
        float32 [n, num_classes]; soft labels of floats keep their dtype.

    Raises:
        ConfigError: labels are missing, of another shape, or, where they lie on a CPU, out of range.
    """
    if labels is None:
        raise ConfigError(f"{op} mixes labels too: call the Augment with images and labels.")
    n = len(share)
    if labels.is_complex():
        raise ConfigError(f"{op}: labels are {labels.dtype}; class numbers or soft labels of floats are needed.")
    if labels.dim() == 2 and len(labels) == n:
        if num_classes not in (None, labels.shape[1]):
            raise ConfigError(f"{op}(num_classes={num_classes}): the soft labels have {labels.shape[1]} classes.")
        soft = labels if labels.is_floating_point() else labels.to(torch.float32)
    elif labels.shape == (n,) and not labels.is_floating_point():
        if num_classes is None:
            raise ConfigError(f"{op} needs num_classes to make soft labels from class numbers.")
        _in_range(labels, num_classes, op)
        soft = torch.zeros((n, num_classes), device=labels.device).scatter_(1, labels.long().unsqueeze(1), 1.0)
    else:
        raise ConfigError(
            f"{op}: labels are {labels.dtype} {list(labels.shape)}; class numbers [{n}] or soft labels "
            f"[{n}, num_classes] are needed."
        )
    own, rest = (column.unsqueeze(1).to(soft.dtype) for column in share.unbind(1))
    return soft.roll(1, 0).mul_(rest).add_(soft * own)


def _in_range(labels: torch.Tensor, num_classes: int, op: str) -> None:
    # On a device the host would have to wait for an answer; there scatter_ itself refuses.
    if labels.device.type == "cpu" and len(labels):
        low, high = (int(limit) for limit in torch.aminmax(labels.long()))
        if low < 0 or high >= num_classes:
            raise ConfigError(f"{op}(num_classes={num_classes}): labels reach from {low} to {high}.")

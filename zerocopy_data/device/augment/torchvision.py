"""torchvision, for the operations that need it, when they need it."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError


def functional() -> Any:
    """torchvision.transforms.v2.functional.

    Raises:
        ConfigError: torchvision is not installed.
    """
    try:
        from torchvision.transforms.v2 import functional as module
    except ImportError:
        raise ConfigError(
            "RandAugment and TrivialAugmentWide equalise images with torchvision, which is not installed: "
            "pip install torchvision"
        ) from None
    return module

"""Fewer batches in flight."""

from __future__ import annotations

from typing import Protocol

from ...errors import ConfigError


class Throttled(Protocol):
    """What holds memory for batches that are on their way: `DataLoader.staged`, or a loader of one's own.

    Attributes:
        limit: How many batches there may be at a time; set by `InFlight`, and obeyed when the next is begun.
    """

    limit: int

    @property
    def in_flight(self) -> int:
        """For how many batches memory is held now."""


class InFlight:
    """Fewer batches in flight, as a relief: `InFlight(loader.staged, bytes_each=…)` for a DataLoader with device=.

    Args:
        target: Whose limit is set. As it is now, it is the most there will be.
        bytes_each: What a batch in flight takes.
        least: How few there may be.

    Raises:
        ConfigError: The counts make no sense.
    """

    name = "batches in flight"

    def __init__(self, target: Throttled, *, bytes_each: int, least: int = 1) -> None:
        if not isinstance(getattr(target, "limit", None), int) or not hasattr(target, "in_flight"):
            raise ConfigError(
                f"InFlight({target!r}): no limit can be set there. Give it loader.staged, of a DataLoader with "
                "device=, or an object with limit and in_flight as `Throttled` describes them."
            )
        if not 1 <= least <= target.limit or bytes_each < 1:
            raise ConfigError(
                f"InFlight: 1 <= least <= the target's limit and bytes_each >= 1, not least={least}, "
                f"limit={target.limit}, bytes_each={bytes_each}."
            )
        self.target = target
        self.most = target.limit
        self.least = least
        self.bytes_each = bytes_each

    def relieve(self, bytes_wanted: int) -> int:
        """Takes as many batches out of flight as make the bytes, down to `least`."""
        return self._to(max(self.least, self.target.limit + (-bytes_wanted // self.bytes_each)))

    def restore(self, bytes_allowed: int) -> int:
        """Lets as many fly again as the bytes hold."""
        return -self._to(min(self.most, self.target.limit + bytes_allowed // self.bytes_each))

    def pending(self) -> int:
        """Bytes of batches beyond the limit that still are in flight, less those of batches that may still come."""
        return (self.target.in_flight - self.target.limit) * self.bytes_each

    def _to(self, count: int) -> int:
        before, self.target.limit = self.target.limit, count
        return (before - count) * self.bytes_each

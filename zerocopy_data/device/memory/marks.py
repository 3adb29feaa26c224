"""Two marks and what lies between: so that what hovers about one of them turns nothing round."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import ConfigError


@dataclass
class Marks:
    """The hysteresis of a governor.

    Below `low` memory is given up until the middle is reached; only above `high`, for `dwell` readings in a row, may it
    be taken again, down to the middle. So between giving up and taking again, free memory must move by half the
    distance of the marks without our doing.

    Attributes:
        low: Bytes of free memory.
        high: Bytes of free memory.
        dwell: Readings.
    """

    low: int
    high: int
    dwell: int = 8
    above: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise ConfigError(f"low={self.low} and high={self.high}: the marks must be 0 <= low < high, in bytes.")
        if self.dwell < 1:
            raise ConfigError(f"dwell={self.dwell}: at least one reading.")

    @property
    def middle(self) -> int:
        """Where giving up and taking end."""
        return (self.low + self.high) // 2

    def wanted(self, free: int) -> int:
        """Bytes to give up (positive), or that may be taken (negative); 0 leaves all as it is."""
        if free <= self.high:
            self.above = 0
            return self.middle - free if free < self.low else 0
        self.above += 1
        if self.above < self.dwell:
            return 0
        self.above = 0
        return self.middle - free

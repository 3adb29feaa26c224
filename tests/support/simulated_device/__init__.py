"""A device that exists only in this process: torch device "sim", with streams that execute later.

Ordinary torch code runs on it. Every operation is queued on the current stream and takes effect when simulated time
has come: copies by the bandwidth and latency of a link that the test sets, kernels by the memory that they touch,
`work()` by what the test says. Two kinds of fault are noticed:

- host memory that is written while a queued copy out of it has not run yet (its bytes are compared when it runs);
- accesses to device memory that no stream order, event or wait of the host puts in order (vector clocks), also through
  the allocator: a freed block is given out again as CUDA's caching allocator would do it.

    with simulated(Machine(h2d=10e9)) as machine:
        x = torch.ones(4, device="sim")
        ...
    assert not machine.faults
"""

from .backend import register, simulated, why_not
from .machine import Fault, Machine, Operation, WallClock

if why_not() is None:
    register()

__all__ = ["Fault", "Machine", "Operation", "WallClock", "simulated", "why_not"]

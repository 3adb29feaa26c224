"""What must hold of `DataLoader(device=)` on every device: bodies of tests, run on CUDA and on the simulated device.

class TestBatches(BatchCases):
    @pytest.fixture
    def device(self): ...
"""

from .batches import BatchCases
from .endings import EndingCases
from .graphs import GraphCases
from .handles import CudaHandle, Handle, SimulatedHandle, open_handle

__all__ = ["BatchCases", "CudaHandle", "EndingCases", "GraphCases", "Handle", "SimulatedHandle", "open_handle"]

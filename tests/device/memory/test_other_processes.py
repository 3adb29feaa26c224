"""Who else has device memory: through NVML, which need not be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from zerocopy_data.device.memory import TorchMemory, other_processes
from zerocopy_data.errors import ConfigError


class NVMLError(Exception):
    """As pynvml has it."""


def _nvml(**changes: Any) -> SimpleNamespace:
    processes = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=5),
        SimpleNamespace(pid=7, usedGpuMemory=3 << 30),
        SimpleNamespace(pid=8, usedGpuMemory=None),
    ]
    made = SimpleNamespace(
        NVMLError=NVMLError,
        open=0,
        nvmlDeviceGetHandleByIndex=lambda index: f"device {index}",
        nvmlDeviceGetComputeRunningProcesses=lambda handle: processes if handle == "device 1" else [],
    )

    def count(by: int) -> None:
        made.open += by

    made.nvmlInit, made.nvmlShutdown = lambda: count(1), lambda: count(-1)
    made.__dict__.update(changes)
    return made


def test_without_it_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ConfigError, match=r"pip install nvidia-ml-py"):
        other_processes()


def test_other_processes_are_listed_and_nvml_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    nvml = _nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert [(p.pid, p.bytes) for p in other_processes(1)] == [(7, 3 << 30), (8, None)]
    assert other_processes(0) == []
    assert nvml.open == 0


def test_where_nvml_does_not_work_the_error_says_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def fail(*_: Any) -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=fail))
    with pytest.raises(ConfigError, match=r"Driver Not Loaded.*comes with NVIDIA's driver"):
        other_processes()
    nvml = _nvml(nvmlDeviceGetComputeRunningProcesses=fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(ConfigError, match="device 0"):
        other_processes()
    assert nvml.open == 0


def test_the_cpu_has_no_device_memory_to_watch() -> None:
    with pytest.raises(ConfigError, match="SystemMemory"):
        TorchMemory("cpu")


def test_importing_the_package_imports_neither_nvml_nor_its_modules() -> None:
    code = (
        "import sys, zerocopy_data.device.memory as m; "
        "bad = [n for n in sys.modules if n == 'pynvml' or n.startswith('zerocopy_data.device.memory.')]; "
        "assert not bad, bad; assert all(getattr(m, n) is not None for n in m.__all__); "
        "assert set(m.__all__) <= set(dir(m)); assert 'pynvml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

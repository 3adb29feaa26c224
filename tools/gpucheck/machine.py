"""What machine this is."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from typing import Any

import torch

from .report import Notes


def describe(kind: str, notes: Notes) -> None:
    """Notes the machine, and whether there is a device to check."""
    machine: dict[str, Any] = {
        "name": platform.node(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "driver": None,
        "gpus": [],
        "checked": kind,
    }
    if kind == "cuda":
        machine["driver"] = _driver()
        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            properties = torch.cuda.get_device_properties(index)
            memory = round(properties.total_memory / 2**30)
            machine["gpus"].append(f"{properties.name}, {memory} GiB, sm_{properties.major}{properties.minor}")
    notes.line({"machine": machine})


def headline(machine: dict[str, Any]) -> str:
    """The machine in a line."""
    gpu = f"{len(machine['gpus'])} x {machine['gpus'][0]}" if machine["gpus"] else "the simulated device"
    versions = f"torch {machine['torch']}, CUDA {machine['cuda']}, driver {machine['driver']}"
    return f"{machine['name']}, {machine['date']}: {gpu}; {machine['cpus']} CPUs ({machine['cpu']}); {versions}"


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.strip().splitlines() or [None])[0]

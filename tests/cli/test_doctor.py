"""`zcd doctor` says what is there and what is missing."""

import builtins
import json
import platform
from typing import Any

import pytest
from typer.testing import CliRunner

from zerocopy_data.cli import app
from zerocopy_data.tuning import machine


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    return result.exit_code, {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_json_names_the_core_the_packages_and_the_limits() -> None:
    status, found = findings("--path", "/proc")
    assert status == 0
    assert found["native core"]["ok"]
    assert "libjpeg-turbo" in found["native core"]["value"]
    assert platform.python_version() in found["python"]["value"]
    assert found["file system of /proc"]["value"].startswith("proc, /proc")
    assert {"torch", "CUDA", "DALI", "cores", "memory", "/dev/shm", "open files"} <= set(found)


def test_missing_package_comes_with_its_command_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "dali_version", lambda: None)
    status, found = findings()
    assert status == 0
    assert not found["DALI"]["ok"]
    assert found["DALI"]["command"] == "pip install 'zerocopy-data[dali]'"
    shown = CliRunner().invoke(app, ["doctor"])
    assert "pip install 'zerocopy-data[dali]'" in shown.stdout


def test_missing_native_core_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, glob: Any = None, loc: Any = None, names: Any = (), level: int = 0) -> Any:
        if names and "_native" in names:
            raise ImportError("libjpeg.so.62: cannot open shared object file")
        return real(name, glob, loc, names, level)

    monkeypatch.setattr(builtins, "__import__", refuse)
    status, found = findings()
    assert status == 1
    assert "libjpeg.so.62: cannot open" in found["native core"]["value"]
    assert found["native core"]["command"]


def test_small_limit_of_open_files_names_ulimit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "open_files_limit", lambda: (256, 4096))
    _, found = findings()
    assert found["open files"]["command"] == "ulimit -n 4096"

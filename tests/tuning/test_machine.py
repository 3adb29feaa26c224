"""What the machine says about itself, also inside a container's limits."""

from pathlib import Path

import pytest

from zerocopy_data.tuning import machine


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup tree in which this process is in the root, as in a container."""
    monkeypatch.setattr(machine, "own_cgroups", lambda controller: [tmp_path / "inner", tmp_path])
    (tmp_path / "inner").mkdir()
    return tmp_path


def test_limits_of_the_second_version_are_the_least_on_the_way_up(cgroup: Path) -> None:
    (cgroup / "inner" / "memory.max").write_text("max\n")
    (cgroup / "memory.max").write_text(f"{8 << 30}\n")
    (cgroup / "inner" / "cpu.max").write_text("150000 100000\n")
    (cgroup / "cpu.max").write_text("max 100000\n")
    assert machine.memory_limit() == 8 << 30
    assert machine.cpu_quota() == 1.5


def test_limits_of_the_first_version(cgroup: Path) -> None:
    (cgroup / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (cgroup / "cpu.cfs_quota_us").write_text("-1\n")
    (cgroup / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.memory_limit() is None
    assert machine.cpu_quota() is None
    (cgroup / "memory.limit_in_bytes").write_text(f"{1 << 30}\n")
    (cgroup / "cpu.cfs_quota_us").write_text("200000\n")
    assert machine.memory_limit() == 1 << 30
    assert machine.cpu_quota() == 2


def test_file_system_of_a_path_that_does_not_exist_yet_is_its_parents(tmp_path: Path) -> None:
    assert machine.file_system(tmp_path / "not" / "yet") == machine.file_system(tmp_path)
    assert machine.file_system(Path("/proc")).kind == "proc"


def test_commit_outside_git_is_none(tmp_path: Path) -> None:
    assert machine.commit(tmp_path) is None


def test_every_version_is_known_where_the_tests_run() -> None:
    found = machine.versions()
    assert all(found[name] for name in ("python", "numpy", "pyarrow", "pillow", "torch", "jpeg", "simd"))

"""`tools/dev` on a small project of its own, with a Python that records what pip and venv are asked for."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEV = Path(__file__).parents[2] / "tools" / "dev"

# Stands in for python3: real for every question, but `-m venv` copies this very script and `-m pip` writes a
# line.
FAKE_PYTHON = """#!/usr/bin/env bash
if [[ "${1:-} ${2:-}" == "-m venv" ]]; then
  mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python"
elif [[ "${1:-} ${2:-} ${3:-}" == "-m pip install" ]]; then
  sleep "${PIP_TAKES:-0}"
  echo "$*" >>"$PIP_CALLS"
  if [[ -n "${PIP_FAILS:-}" ]]; then echo "the reason why"; exit 3; fi
elif [[ "${1:-} ${2:-}" == "-m pip" ]]; then
  exit 0
else
  exec REAL_PYTHON "$@"
fi
"""


class Project:
    """A clone with `tools/dev` in it, and the record of what was installed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls_file = root.parent / "pip-calls"
        self.python = root.parent / "python"
        self.python.write_text(FAKE_PYTHON.replace("REAL_PYTHON", sys.executable))
        self.python.chmod(0o755)
        (root / "tools").mkdir(parents=True)
        shutil.copy(DEV, root / "tools" / "dev")
        (root / "pyproject.toml").write_text("[project]\n")
        (root / "CMakeLists.txt").write_text("\n")
        (root / "zerocopy_data/_native/src/core").mkdir(parents=True)
        self.native_source.write_text("// one\n")

    @property
    def native_source(self) -> Path:
        return self.root / "zerocopy_data/_native/src/core/a.cpp"

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHON": str(self.python), "PIP_CALLS": str(self.calls_file), **extra}

    def dev(
        self, *arguments: str, dev: Path | None = None, cwd: Path | None = None, **extra: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [str(dev or self.root / "tools" / "dev"), *arguments]
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def pip_calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "clone")


def test_first_call_installs_with_extras_and_the_second_does_nothing(project: Project) -> None:
    first = project.dev("run", "echo", "hello")
    assert (first.returncode, first.stdout) == (0, "hello\n"), first.stderr
    assert project.pip_calls() == [f"-m pip install --no-input -e {project.root}[test,lint]"]

    start = time.monotonic()
    second = project.dev("run", "echo", "again")
    assert time.monotonic() - start < 2
    assert (second.stdout, second.stderr) == ("again\n", "")
    assert len(project.pip_calls()) == 1


def test_changed_native_source_only_compiles_again(project: Project) -> None:
    project.dev("set-up")
    project.native_source.write_text("// two\n")
    project.dev("set-up")
    assert project.pip_calls()[1:] == [f"-m pip install --no-input --no-deps -e {project.root}"]


def test_changed_pyproject_installs_everything_again(project: Project) -> None:
    project.dev("set-up")
    (project.root / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    project.dev("set-up")
    assert project.pip_calls()[1:] == [f"-m pip install --no-input -e {project.root}[test,lint]"]


def test_moved_clone_installs_again_because_an_editable_install_points_at_the_old_place(
    project: Project,
) -> None:
    project.dev("set-up")
    project.root = project.root.rename(project.root.with_name("moved"))
    project.dev("set-up")
    assert project.pip_calls()[1:] == [f"-m pip install --no-input -e {project.root}[test,lint]"]


def test_failed_installation_shows_its_log_and_is_tried_again(project: Project) -> None:
    failed = project.dev("run", "echo", "never", PIP_FAILS="1")
    assert failed.returncode == 1
    assert "the reason why" in failed.stderr
    assert failed.stdout == ""
    assert project.dev("run", "true").returncode == 0
    assert len(project.pip_calls()) == 2


def test_failed_compilation_after_a_good_set_up_is_tried_again(project: Project) -> None:
    project.dev("set-up")
    project.native_source.write_text("// broken\n")
    assert project.dev("set-up", PIP_FAILS="1").returncode == 1
    assert project.dev("set-up").returncode == 0
    assert len(project.pip_calls()) == 3


def test_two_calls_at_once_install_once(project: Project) -> None:
    command = [str(project.root / "tools" / "dev"), "run", "true"]
    both = [
        subprocess.Popen(command, env=project.environment(PIP_TAKES="1"), stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert len(project.pip_calls()) == 1


def test_works_through_a_symlink_and_from_any_folder(project: Project, tmp_path: Path) -> None:
    link = tmp_path / "link-to-dev"
    link.symlink_to(project.root / "tools" / "dev")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = project.dev("run", "pwd", dev=link, cwd=elsewhere)
    assert result.stdout.strip() == str(elsewhere)
    assert (project.root / ".venv" / "bin" / "python").exists()


def test_exit_status_and_arguments_pass_through(project: Project) -> None:
    result = project.dev("run", "bash", "-c", 'printf "%s|" "$@"; exit 7', "name", "a b", "*")
    assert (result.returncode, result.stdout) == (7, "a b|*|")


def test_old_python_is_refused_in_words(project: Project, tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    result = project.dev("set-up", PYTHON=str(old))
    assert result.returncode == 1
    assert "is not Python 3.11 or newer: Python 3.9.2" in result.stderr


def test_missing_compiler_is_installed_with_apt_when_root(project: Project, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root installs packages")
    compiler = shutil.which("c++")
    assert compiler is not None
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/apt-calls\nln -sf {compiler} {tmp_path}/bin/new-c++\n')
    apt.chmod(0o755)
    result = project.dev("set-up", PATH=f"{apt.parent}:{os.environ['PATH']}", CXX=f"{tmp_path}/bin/new-c++")
    assert result.returncode == 0, result.stderr
    update, install = (tmp_path / "apt-calls").read_text().splitlines()
    assert update == "update -q"
    assert "install -y" in install
    assert "g++" in install.split()


def test_missing_compiler_names_the_packages_where_apt_is_not(project: Project, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for program in (p for folder in ("/usr/bin", "/bin") for p in Path(folder).iterdir()):
        if program.name != "apt-get" and not (tools / program.name).exists():
            (tools / program.name).symlink_to(program)
    result = project.dev("set-up", PATH=str(tools), CXX="/nonexistent/c++")
    assert result.returncode == 1
    assert "sudo apt-get install g++" in result.stderr
    assert project.pip_calls() == []


def test_unknown_command_prints_the_usage_and_installs_nothing(project: Project) -> None:
    result = project.dev("frobnicate")
    assert result.returncode == 1
    assert "usage: tools/dev" in result.stderr
    assert project.pip_calls() == []

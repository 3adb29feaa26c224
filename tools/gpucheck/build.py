"""Makes the native core importable on a machine without a network, in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .report import NotAvailableError, Notes
from .target import ROOT

# Beside CMake's own output, which git ignores.
SITE = ROOT / "build" / "gpu_check" / "site"
# What the loader can't be imported without.
NEEDED = ("numpy", "PIL", "pyarrow", "xxhash")
_PACKAGE = {"PIL": "pillow"}


def prepare(notes: Notes, again: bool = False) -> None:
    """Finds the core, or builds it into `SITE`.

    Raises:
        NotAvailableError: something is missing that no build here can bring.
        RuntimeError: the build failed.
    """
    missing = [_PACKAGE.get(name, name) for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NotAvailableError(f"these Python packages are missing: {', '.join(missing)}. pip install them.")
    if not again and (where := _importable()) is not None:
        notes.check("the native core is there", True, where)
        return
    shutil.rmtree(SITE, ignore_errors=True)
    if importlib.util.find_spec("nanobind") is None:
        raise NotAvailableError(
            "the native core is not installed, and can't be built without nanobind. Where there is a network: "
            "pip install nanobind scikit-build-core; then call again."
        )
    if importlib.util.find_spec("scikit_build_core") is not None:
        how = "built by pip"
        _run("pip", [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"]
             + ["--quiet", "--target", str(SITE), str(ROOT)])  # fmt: skip
    else:
        how = "built by cmake"
        _by_cmake()
    where = _importable()
    if where is None:
        raise RuntimeError(f"the core was {how}, and yet can't be imported from {SITE}")
    notes.check("the native core is there", True, f"{how}: {where}")


def _by_cmake() -> None:
    if shutil.which("cmake") is None:
        raise NotAvailableError("the native core is not installed, and can't be built without cmake. Install cmake.")
    work = SITE.with_name("cmake")
    nanobind = _run("nanobind", [sys.executable, "-m", "nanobind", "--cmake_dir"]).strip()
    _run("cmake", ["cmake", "-S", str(ROOT), "-B", str(work), "-DCMAKE_BUILD_TYPE=Release"]
         + [f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"])  # fmt: skip
    _run("cmake --build", ["cmake", "--build", str(work), "--parallel", str(len(os.sched_getaffinity(0)))])
    ignored = shutil.ignore_patterns("src", "__pycache__", "*.so")
    shutil.copytree(ROOT / "zerocopy_data", SITE / "zerocopy_data", ignore=ignored, dirs_exist_ok=True)
    _run("cmake --install", ["cmake", "--install", str(work), "--prefix", str(SITE)])


def _run(name: str, command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).strip().splitlines() if line.strip()]
        print("\n".join(lines[-60:]), file=sys.stderr)
        telling = [line for line in lines if "error" in line.lower() or "needs" in line] or lines[-1:]
        raise RuntimeError(f"{name} failed: {' / '.join(line.strip() for line in telling[:3])}")
    return done.stdout


def _importable() -> str | None:
    """Where the rows will find the core, asked of a process of its own that starts as they do."""
    script = "import zerocopy_data._native._core as core; print(core.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(python_path())}
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def python_path() -> list[str]:
    """What must be on sys.path, beside what is installed: our own build, or the built package in the source tree."""
    before = os.environ.get("PYTHONPATH", "")
    return [*([str(SITE)] if SITE.exists() else []), *(before.split(os.pathsep) if before else [])]


def use_build() -> None:
    """Lets this process and those that it starts find the core."""
    found = python_path()
    os.environ["PYTHONPATH"] = os.pathsep.join(found)
    sys.path[:0] = [path for path in found if path not in sys.path]

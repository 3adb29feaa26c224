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
    if not again and (where := _importable(SITE.parent / "nothing")) is not None:
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
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        _run("pip", [*pip, "--target", str(SITE), str(ROOT)])
    else:
        how = "built by cmake"
        _by_cmake()
    where = _importable(SITE)
    if where is None:
        raise RuntimeError(f"the core was {how}, and yet can't be imported from {SITE}")
    if not where.startswith(str(SITE)):
        raise RuntimeError(f"the core was {how} in {SITE}, but an installed one comes first: {where}. Uninstall that.")
    notes.check("the native core is there", True, f"{how}: {where}")
    notes.line({"built": True})


def _by_cmake() -> None:
    if shutil.which("cmake") is None:
        raise NotAvailableError("the native core is not installed, and can't be built without cmake. Install cmake.")
    work = SITE.with_name("cmake")
    nanobind = _run("nanobind", [sys.executable, "-m", "nanobind", "--cmake_dir"]).strip()
    settings = ["-DCMAKE_BUILD_TYPE=Release", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    _run("cmake", ["cmake", "-S", str(ROOT), "-B", str(work), *settings])
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


def _importable(site: Path) -> str | None:
    """Where the core is found with this folder before what is installed, by a process that starts as the rows do."""
    script = "from zerocopy_data._native import simd; import zerocopy_data._native._core as core; print(core.__file__)"
    command = [sys.executable, "-P", "-c", script]
    environment = {**os.environ, "PYTHONPATH": _before_the_rest(site)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _before_the_rest(site: Path) -> str:
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


def use_build() -> None:
    """Lets this process and those that it starts find what was built."""
    os.environ["PYTHONPATH"] = _before_the_rest(SITE)
    sys.path.insert(0, str(SITE))

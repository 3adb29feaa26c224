"""tests/cuda, with pytest where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from .report import NotAvailableError, Notes
from .target import ROOT


def run_suite(notes: Notes, selected: str, needed: bool) -> None:
    """Runs the tests and notes how many passed, and each that failed; some must run where they are `needed`."""
    if importlib.util.find_spec("pytest") is None:
        raise NotAvailableError("pytest is not installed: pip install pytest")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-P", "-m", "pytest", str(ROOT / "tests" / "cuda"), "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", "--rootdir", str(ROOT), *(["-k", selected] if selected else [])]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
        if not report.exists():
            raise RuntimeError(f"pytest ended with exit status {done.returncode} and no report")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    notes.measure("passed", len(cases) - len(failed) - len(skipped), "tests")
    for reason in sorted({str(case.find("skipped").get("message")) for case in skipped}):  # type: ignore[union-attr]
        count = sum(case.find("skipped").get("message") == reason for case in skipped)  # type: ignore[union-attr]
        notes.measure("skipped", count, "tests", reason)
    for case in failed:
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        message = str(trouble.get("message")).splitlines()  # type: ignore[union-attr]
        notes.check(str(case.get("name")), False, message[0][:160] if message else "")
    ran = len(cases) - len(skipped)
    if needed:
        notes.check("tests ran", ran > 0)
    notes.check("no test failed", not failed, "" if ran else "none ran: they need a CUDA device")

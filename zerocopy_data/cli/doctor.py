"""`zcd doctor`: what this machine offers, and what is missing with the command that brings it."""

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..tuning import machine

SMALL_OPEN_FILES = 4096
SLOW_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "cifs", "smb3", "fuse", "9p", "beegfs", "gpfs", "ceph")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    value: str
    command: str | None = None  # what brings or repairs it; None when nothing is missing
    note: str | None = None  # what follows from it

    @property
    def ok(self) -> bool:
        """Whether nothing is missing."""
        return self.command is None


def gigabytes(count: int | None) -> str:
    """Bytes in GB, or 'none'."""
    return "none" if count is None else f"{count / 1e9:.1f} GB"


def native_finding() -> Finding:
    """The compiled core, without which nothing works."""
    try:
        from .. import _native
    except ImportError as error:
        return Finding(
            "native core",
            f"cannot be loaded: {error}",
            "pip install --force-reinstall --no-deps zerocopy-data",
        )
    simd = _native.simd()
    note = "the kernels run without SIMD: several times slower" if simd == "scalar" else None
    return Finding("native core", f"{_native.jpeg_library()}, SIMD {simd}", note=note)


def package_findings() -> list[Finding]:
    """The packages, core ones and those that only some features need."""
    findings = []
    for name, purpose in (
        ("numpy", ""),
        ("pyarrow", ""),
        ("pillow", ""),
        ("torch", ""),
        ("torchvision", "only for comparing with it"),
    ):
        version = machine.package_version(name)
        command = None if version else f"pip install {name}"
        findings.append(Finding(name, version or "not installed", command, purpose if not version else None))
    dali = machine.dali_version()
    command = None if dali else "pip install 'zerocopy-data[dali]'"
    note = None if dali else "only for decoding on the GPU and as a peer in `zcd bench`"
    findings.append(Finding("DALI", dali or "not installed", command, note))
    return findings


def cuda_finding() -> Finding:
    """CUDA as torch sees it."""
    try:
        import torch
    except ImportError:
        return Finding("CUDA", "unknown: torch is not installed")
    if torch.version.cuda is None:
        return Finding("CUDA", "this torch was built without it")
    if not torch.cuda.is_available():
        return Finding("CUDA", f"torch was built for {torch.version.cuda}, but no device is usable")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("CUDA", f"{torch.version.cuda}: {', '.join(names)}")


def machine_findings(path: Path) -> list[Finding]:
    """Cores, memory, files."""
    quota = machine.cpu_quota()
    cores = machine.cores_allowed()
    limit = machine.memory_limit()
    shared = machine.shared_memory_size()
    soft, hard = machine.open_files_limit()
    disk = machine.file_system(path)
    few_files = soft < SMALL_OPEN_FILES
    return [
        Finding("python", f"{platform.python_version()} ({platform.python_implementation()})"),
        Finding("platform", platform.platform()),
        Finding("cpu", machine.cpu_model()),
        Finding(
            "cores",
            f"{cores} by affinity" + ("" if quota is None else f", {quota:g} by the cgroup's quota"),
            note="give num_workers no more than the quota" if quota is not None and quota < cores else None,
        ),
        Finding("memory", f"{gigabytes(machine.memory_total())}, cgroup limit {gigabytes(limit)}"),
        Finding(
            "/dev/shm",
            gigabytes(shared),
            # Slots live in memfd files, so only torch's own worker processes care.
            note="too small for torch's worker processes; batches of zerocopy_data do not use it"
            if shared is not None and shared < 1 << 30
            else None,
        ),
        Finding(
            "open files",
            f"{soft} (hard limit {hard})",
            f"ulimit -n {hard}" if few_files and hard > soft else None,
        ),
        Finding(
            f"file system of {path}",
            f"{disk.kind}, {disk.mount}: {gigabytes(disk.free_bytes)} free of {gigabytes(disk.total_bytes)}",
            note="a network file system: mapped files are read slowly at first"
            if disk.kind.split(".")[0] in SLOW_FILE_SYSTEMS
            else None,
        ),
    ]


def examine(path: Path) -> list[Finding]:
    """Everything `zcd doctor` looks at."""
    return [native_finding(), *package_findings(), cuda_finding(), *machine_findings(path)]


def doctor(
    path: Annotated[Path, typer.Option(help="Say what kind of file system holds this path.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report what this machine offers, and what is missing with the command that brings it."""
    findings = examine(path)
    if as_json:
        print(json.dumps({"findings": [{**asdict(finding), "ok": finding.ok} for finding in findings]}, indent=2))
    else:
        _print(findings)
    if not findings[0].ok:
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        sign = "[green]ok[/]" if finding.ok else "[yellow]--[/]"
        note = f"\n[dim]{escape(finding.note)}[/]" if finding.note else ""
        table.add_row(sign, escape(finding.name), escape(finding.value) + note)
    console = Console(emoji=False)
    console.print(table)
    missing = [finding for finding in findings if not finding.ok]
    if missing:
        console.print("\nMissing, and what brings it:")
        for finding in missing:
            console.print(f"  {escape(finding.name)}: [bold]{escape(finding.command or '')}[/]", highlight=False)

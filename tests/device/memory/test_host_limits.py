"""Host memory as cgroups of both versions limit it, on trees made for the test."""

from __future__ import annotations

from pathlib import Path

from zerocopy_data.device.memory import SystemMemory

KIB = 1024


def _write(root: Path, files: dict[str, str]) -> SystemMemory:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SystemMemory(proc=root / "proc", cgroups=root / "cgroup")


MEMINFO = {"proc/meminfo": f"MemTotal:  {1000} kB\nMemFree: 10 kB\nMemAvailable:  {800} kB\n"}


def test_without_cgroups_the_machine_bounds(tmp_path: Path) -> None:
    reading = _write(tmp_path, MEMINFO).read()
    assert (reading.free, reading.total) == (800 * KIB, 1000 * KIB)
    assert reading.bound.endswith("proc/meminfo")


def test_version_2_the_tightest_of_all_groups_up_to_the_root_counts(tmp_path: Path) -> None:
    memory = _write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "cgroup/outer/inner/memory.max": "max\n",
            "cgroup/outer/inner/memory.current": "5000\n",
            "cgroup/outer/memory.max": "400000\n",
            "cgroup/outer/memory.current": "300000\n",
            "cgroup/outer/memory.stat": "anon 200000\ninactive_file 50000\n",
        },
    )
    reading = memory.read()
    assert (reading.free, reading.total) == (150000, 400000)
    assert reading.bound.endswith("cgroup/outer")


def test_version_2_beyond_high_a_process_is_held_up_so_it_is_a_limit_too(tmp_path: Path) -> None:
    memory = _write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/a\n",
            "cgroup/a/memory.max": "400000\n",
            "cgroup/a/memory.high": "200000\n",
            "cgroup/a/memory.current": "250000\n",
        },
    )
    assert (memory.read().free, memory.read().total) == (0, 200000)


def test_version_1_and_its_way_to_write_no_limit(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/box\n0::/ignored\n",
        "cgroup/memory/box/memory.limit_in_bytes": "500000\n",
        "cgroup/memory/box/memory.usage_in_bytes": "450000\n",
        "cgroup/memory/box/memory.stat": "inactive_file 1\ntotal_inactive_file 100000\n",
    }
    assert _write(tmp_path, files).read().free == 150000
    files["cgroup/memory/box/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert _write(tmp_path, files).read().free == 800 * KIB


def test_in_a_container_whose_path_is_the_hosts_the_visible_root_counts(tmp_path: Path) -> None:
    memory = _write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/docker/0123456789\n",
            "cgroup/memory.max": "300000\n",
            "cgroup/memory.current": "100000\n",
        },
    )
    assert memory.read().free == 200000


def test_this_machine_can_be_read() -> None:
    reading = SystemMemory().read()
    assert 0 <= reading.free <= reading.total

"""Facts about machines that are folders of files, and about this one."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from penstock.doctor.facts import Cores, Driver, Facts, Gpu, HugePages, Limit, Memory, Torch
from penstock.doctor.machine import Roots, facts_of
from tests.workers.machines import machine, version_1, version_2

GB = 1 << 30
MEMINFO = {"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n"}
PAGES = "sys/kernel/mm/transparent_hugepage"


def facts(proc: Path, ranks: int | None = None) -> Facts:
    """What is read from folders beside this one."""
    return facts_of(Torch(), ranks, Roots(proc, proc.parent / "sys", proc.parent / "dev"))


# --- cores and memory ---


def test_version_2_limits_cores_and_memory(tmp_path: Path) -> None:
    files = {
        "cgroup/user/job/cpu.max": "250000 100000\n",
        "cgroup/user/job/memory.max": f"{8 * GB}\n",
        "cgroup/user/job/memory.current": f"{2 * GB}\n",
        **MEMINFO,
    }
    found = facts(version_2(tmp_path, files))
    allowed = len(os.sched_getaffinity(0))
    assert found.cores == Cores(os.cpu_count() or 1, allowed, 2.5)
    assert found.memory == Memory(64 * GB, 32 * GB, 8 * GB, 6 * GB)


def test_version_1_limits_cores_and_memory(tmp_path: Path) -> None:
    files = {
        "cpu/job/cpu.cfs_quota_us": "150000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "memory/job/memory.limit_in_bytes": f"{4 * GB}\n",
        "memory/job/memory.usage_in_bytes": f"{1 * GB}\n",
        **MEMINFO,
    }
    found = facts(version_1(tmp_path, files))
    assert found.cores.quota == 1.5
    assert found.cores.usable == min(1.5, found.cores.allowed)
    assert found.memory == Memory(64 * GB, 32 * GB, 4 * GB, 3 * GB)


def test_a_group_without_limits_leaves_what_the_machine_has(tmp_path: Path) -> None:
    files = {"cgroup/user/job/memory.max": "max\n", "cgroup/user/job/cpu.max": "max 100000\n"}
    found = facts(version_2(tmp_path, files | MEMINFO))
    assert (found.cores.quota, found.memory) == (None, Memory(64 * GB, 32 * GB))


def test_what_the_system_does_not_show_is_not_known(tmp_path: Path) -> None:
    found = facts(tmp_path / "proc")
    assert (found.memory, found.huge_pages.shared, found.driver.files) == (Memory(), None, ())


def test_a_group_may_limit_processes(tmp_path: Path) -> None:
    files = {"cgroup/user/job/pids.max": "100\n", "cgroup/user/job/pids.current": "40\n"}
    assert facts(version_2(tmp_path, files)).limits.processes_left == 60


# --- huge pages ---


def test_the_settings_for_huge_pages_are_the_words_in_brackets(tmp_path: Path) -> None:
    files = {
        f"{PAGES}/enabled": "always [madvise] never\n",
        f"{PAGES}/shmem_enabled": "always within_size [advise] never deny force\n",
    }
    proc = machine(tmp_path, "", "", files)
    file = str(tmp_path / PAGES / "shmem_enabled")
    assert facts(proc).huge_pages == HugePages("madvise", "advise", file)


@pytest.mark.parametrize(("word", "shared"), [("inherit", "never"), ("advise", "advise")])
def test_a_size_of_pages_may_have_a_setting_of_its_own(
    tmp_path: Path, word: str, shared: str
) -> None:
    files = {
        f"{PAGES}/shmem_enabled": "always advise [never]\n",
        f"{PAGES}/hugepages-2048kB/shmem_enabled": f"always [{word}] other\n",
    }
    assert facts(machine(tmp_path, "", "", files)).huge_pages.shared == shared


# --- GPUs ---


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build",
    ],
)
def test_gpus_and_their_driver_are_seen_without_torch(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    files = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""}
    found = facts(machine(tmp_path, "", "", {"proc/driver/nvidia/version": line, **files}))
    devices = tuple(str(tmp_path / "dev" / name) for name in ("nvidia0", "nvidia1"))
    assert found.driver == Driver(devices, "550.54.14", "1")


# --- this process ---


def test_limits_are_those_of_this_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert facts_of(Torch()).limits.open_files == Limit(soft, hard)


def test_this_machine_has_memfd_and_a_native_module() -> None:
    found = facts_of(Torch())
    assert (found.shared_memory.has_memfd, found.shared_memory.trouble) == (True, "")
    assert Path(found.native.file or "").is_file()


def test_named_memory_is_looked_for_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "named")
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY_DIR", str(tmp_path))
    shared = facts_of(Torch()).shared_memory
    assert (shared.folder, shared.is_named) == (str(tmp_path), True)
    assert 0 < (shared.free or 0) <= (shared.size or 0)


def test_ranks_are_as_many_as_gpus_unless_told() -> None:
    two_gpus = Torch("2.9.0", gpus=(Gpu("NVIDIA H200", 141 * 10**9),) * 2)
    assert [facts_of(two_gpus).ranks, facts_of(two_gpus, 8).ranks, facts_of(Torch()).ranks] == [
        2,
        8,
        1,
    ]

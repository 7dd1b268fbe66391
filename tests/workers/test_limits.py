"""How many workers a machine has room for; control groups of both versions, played by folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.workers import cgroups
from penstock.workers.limits import Readings, auto_workers
from tests.workers.machines import machine, version_1, version_2

GB = 1 << 30


# --- what follows from the readings ---


def test_one_processor_is_left_to_the_training() -> None:
    assert auto_workers(Readings(processors=8)) == 7


@pytest.mark.parametrize(("quota", "workers"), [(4.0, 3), (2.9, 1), (64.0, 7)])
def test_a_quota_of_processor_time_counts_as_so_many_processors(quota: float, workers: int) -> None:
    assert auto_workers(Readings(processors=8, cpu_quota=quota)) == workers


@pytest.mark.parametrize("readings", [Readings(1), Readings(8, cpu_quota=0.5)])
def test_there_is_always_one_worker(readings: Readings) -> None:
    assert auto_workers(readings) == 1


def test_workers_take_at_most_half_of_the_memory_that_is_free() -> None:
    readings = Readings(processors=64, memory_free=8 * GB)
    assert auto_workers(readings, per_worker_bytes=GB) == 4


def test_the_tighter_of_two_memory_limits_decides() -> None:
    readings = Readings(processors=64, memory_free=8 * GB, memory_room=4 * GB)
    assert auto_workers(readings, per_worker_bytes=GB) == 2


def test_a_machine_without_memory_still_gets_one_worker() -> None:
    assert auto_workers(Readings(processors=8, memory_free=0)) == 1


def test_a_worker_without_memory_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="per_worker_bytes is 0"):
        auto_workers(Readings(processors=8), per_worker_bytes=0)


def test_this_very_machine_has_an_answer() -> None:
    assert 1 <= auto_workers() <= len(os.sched_getaffinity(0))


# --- version 2 ---


def test_limits_of_the_groups_around_hold_too(tmp_path: Path) -> None:
    proc = version_2(
        tmp_path,
        {
            "cgroup/user/job/cpu.max": "max 100000\n",
            "cgroup/user/cpu.max": "250000 100000\n",
            "cgroup/user/job/memory.max": f"{8 * GB}\n",
            "cgroup/user/job/memory.current": f"{1 * GB}\n",
            "cgroup/user/memory.max": f"{4 * GB}\n",
            "cgroup/user/memory.current": f"{2 * GB}\n",
        },
    )
    readings = Readings.now(proc)
    assert (readings.cpu_quota, readings.memory_room) == (2.5, 2 * GB)


def test_idle_pages_of_files_are_room(tmp_path: Path) -> None:
    proc = version_2(
        tmp_path,
        {
            "cgroup/user/job/memory.max": f"{4 * GB}\n",
            "cgroup/user/job/memory.current": f"{3 * GB}\n",
            "cgroup/user/job/memory.stat": f"anon 5\ninactive_file {2 * GB}\n",
        },
    )
    assert Readings.now(proc).memory_room == 3 * GB


def test_memory_high_is_a_limit_as_well(tmp_path: Path) -> None:
    files = {"memory.max": f"{4 * GB}", "memory.high": f"{GB}", "memory.current": "0"}
    proc = version_2(tmp_path, {f"cgroup/user/job/{name}": text for name, text in files.items()})
    assert Readings.now(proc).memory_room == GB


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    proc = version_2(
        tmp_path,
        {"cgroup/user/job/memory.max": "max\n", "cgroup/user/job/cpu.max": "max 100000\n"},
    )
    readings = Readings.now(proc)
    assert (readings.cpu_quota, readings.memory_room) == (None, None)


def test_a_container_that_shows_only_its_own_group_is_read_at_the_mount(tmp_path: Path) -> None:
    files = {"cgroup/memory.max": f"{GB}\n", "cgroup/memory.current": "0\n"}
    proc = version_2(tmp_path, files, root="/user/job")
    assert Readings.now(proc).memory_room == GB


def test_a_path_outside_the_mount_leads_to_the_mount(tmp_path: Path) -> None:
    files = {"cgroup/memory.max": f"{GB}\n", "cgroup/memory.current": "0\n"}
    proc = version_2(tmp_path, files, root="/somewhere/else")
    assert Readings.now(proc).memory_room == GB


def test_a_mount_point_may_have_a_blank_in_its_name(tmp_path: Path) -> None:
    mounts = "30 23 0:26 / @/my\\040groups rw - cgroup2 cgroup2 rw\n"
    files = {"my groups/job/memory.max": f"{GB}", "my groups/job/memory.current": "0"}
    proc = machine(tmp_path, "0::/job\n", mounts, files)
    assert Readings.now(proc).memory_room == GB


# --- version 1, beside version 2 as many machines have it ---


def test_version_1_has_its_own_files(tmp_path: Path) -> None:
    proc = version_1(
        tmp_path,
        {
            "cpu/job/cpu.cfs_quota_us": "300000\n",
            "cpu/job/cpu.cfs_period_us": "100000\n",
            "memory/job/memory.limit_in_bytes": f"{4 * GB}\n",
            "memory/job/memory.usage_in_bytes": f"{2 * GB}\n",
            "memory/job/memory.stat": f"total_inactive_file {GB}\n",
        },
    )
    readings = Readings.now(proc)
    assert (readings.cpu_quota, readings.memory_room) == (3.0, 3 * GB)


def test_version_1_says_no_limit_by_minus_one_and_by_a_huge_number(tmp_path: Path) -> None:
    proc = version_1(
        tmp_path,
        {
            "cpu/job/cpu.cfs_quota_us": "-1\n",
            "cpu/job/cpu.cfs_period_us": "100000\n",
            "memory/job/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    readings = Readings.now(proc)
    assert (readings.cpu_quota, readings.memory_room) == (None, None)


def test_where_a_controller_is_in_version_1_version_2_is_not_asked(tmp_path: Path) -> None:
    proc = version_1(tmp_path, {"memory/job/x": "", "unified/memory.max": "1\n"})
    group = cgroups.find("memory", proc)
    assert group is not None
    assert (group.version, group.folder) == (1, tmp_path / "memory/job")


# --- what is not asked for a number of workers ---


def test_the_tightest_limit_of_memory_is_that_of_any_group_around(tmp_path: Path) -> None:
    files = {"cgroup/user/job/memory.max": f"{8 * GB}\n", "cgroup/user/memory.max": f"{4 * GB}\n"}
    group = cgroups.find("memory", version_2(tmp_path, files))
    assert group is not None
    assert cgroups.memory_limit(group) == 4 * GB


def test_processes_left_are_those_up_to_the_limit(tmp_path: Path) -> None:
    files = {"cgroup/user/job/pids.max": "100\n", "cgroup/user/job/pids.current": "30\n"}
    group = cgroups.find("pids", version_2(tmp_path, files))
    assert group is not None
    assert cgroups.processes_left(group) == 70


def test_version_1_may_have_no_limit_of_processes(tmp_path: Path) -> None:
    mounts = "31 23 0:27 / @/pids rw - cgroup cgroup rw,pids\n"
    files = {"pids/job/pids.max": "max\n", "pids/job/pids.current": "30\n"}
    group = cgroups.find("pids", machine(tmp_path, "4:pids:/job\n", mounts, files))
    assert group is not None
    assert cgroups.processes_left(group) is None


# --- little to go by ---


def test_a_system_without_any_of_it_is_no_error(tmp_path: Path) -> None:
    readings = Readings.now(tmp_path)
    assert (readings.cpu_quota, readings.memory_free, readings.memory_room) == (None, None, None)


def test_free_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    text = "MemTotal: 4096 kB\nMemFree: 5 kB\nMemAvailable: 1024 kB\n"
    proc = machine(tmp_path, "", "", {"proc/meminfo": text})
    assert Readings.now(proc).memory_free == 1024 * 1024

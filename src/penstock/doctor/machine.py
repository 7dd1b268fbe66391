"""Reads facts from the system: files of the kernel, limits of this process, what is installed.

It never fails: what a system does not show stays unknown. The folders of the kernel are arguments,
so that tests can make up any machine. Torch is asked by `torch_facts`, not here.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

from penstock import __version__
from penstock.doctor.facts import (
    Cores,
    Driver,
    Facts,
    HugePages,
    Limit,
    Limits,
    Memory,
    Native,
    SharedMemory,
    Torch,
    Versions,
)
from penstock.doctor.numbers import in_one_line
from penstock.workers import cgroups
from penstock.workers.limits import Readings

if sys.platform != "win32":
    import resource

_HUGE_PAGES: Final = "kernel/mm/transparent_hugepage"
# Newer kernels have settings for each size of pages, which may refer to the one for all of them.
_OF_A_SIZE: Final = "hugepages-2048kB/shmem_enabled"
_INHERIT: Final = "inherit"
_CHOSEN: Final = re.compile(r"\[(\w+)\]")
_DRIVER: Final = re.compile(r"Kernel Module\D*?(?:for \S+)?\s+(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders in which the kernel shows itself."""

    proc: Path = cgroups.PROC
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")


def facts_of(torch: Torch, ranks: int | None = None, roots: Roots | None = None) -> Facts:
    """Return what is known about this machine and this process.

    Args:
        torch: What torch says.
        ranks: How many ranks would train here. None: one for each GPU, at least one.
        roots: Where to read.
    """
    roots, native = roots or Roots(), native_facts()
    readings = Readings.now(roots.proc)
    return Facts(
        ranks=ranks or max(1, len(torch.gpus)),
        versions=Versions(__version__, platform.python_version(), version_of("numpy") or "?"),
        native=native,
        cores=Cores(os.cpu_count() or 1, readings.processors, readings.cpu_quota),
        memory=_memory(readings, roots.proc),
        huge_pages=_huge_pages(roots.sys),
        shared_memory=SharedMemory() if native.file is None else _shared_memory(),
        limits=_limits(roots.proc),
        driver=_driver(roots),
        torch=torch,
    )


def version_of(name: str) -> str | None:
    """Return a distribution's version, without importing it; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def native_facts() -> Native:
    """Return what is known about the native module, which this imports if it is there."""
    try:
        from penstock.kernels import _native, simd
    except (ImportError, OSError, ValueError) as error:  # ValueError: PENSTOCK_SIMD is wrong
        return Native(trouble=_missing_module() or in_one_line(error))
    ways = simd()
    return Native(_native.__file__ or "built in", "", ways.in_use, ways.available[0])


def _missing_module() -> str:
    """Return what is missing where there is no file: Python speaks of a circular import then."""
    folder = Path(__file__).parents[1] / "kernels"
    if PathFinder.find_spec("_native", [str(folder)]) is not None:
        return ""
    others = ", ".join(sorted(file.name for file in folder.glob("_native.*.so")))
    return f"there is no _native{EXTENSION_SUFFIXES[0]} in {folder}{others and f', only {others}'}"


def _memory(readings: Readings, proc: Path) -> Memory:
    group = cgroups.find("memory", proc)
    total = re.search(r"^MemTotal:\s*(\d+) kB", _text(proc / "meminfo"), re.MULTILINE)
    return Memory(
        total=None if total is None else int(total[1]) * 1024,
        free=readings.memory_free,
        limit=None if group is None else cgroups.memory_limit(group),
        room=readings.memory_room,
    )


def _huge_pages(sys_folder: Path) -> HugePages:
    folder = sys_folder / _HUGE_PAGES
    file = folder / _OF_A_SIZE
    if (shared := _chosen(file)) in (None, _INHERIT):
        file = folder / "shmem_enabled"
        shared = _chosen(file)
    return HugePages(_chosen(folder / "enabled"), shared, str(file))


def _chosen(file: Path) -> str | None:
    """Return the word in brackets: "always [madvise] never"."""
    found = _CHOSEN.search(_text(file))
    return None if found is None else found[1]


def _shared_memory() -> SharedMemory:
    # Their package imports the native module.
    from penstock.graph.memfd import memfd_works
    from penstock.graph.named import memory_folder
    from penstock.graph.segment import KIND_VARIABLE

    folder, asked = memory_folder(), os.environ.get(KIND_VARIABLE) or "auto"
    try:
        there = os.statvfs(folder)
    except (AttributeError, OSError):
        return SharedMemory(asked, memfd_works(), folder)
    size, free = there.f_blocks * there.f_frsize, there.f_bavail * there.f_frsize
    return SharedMemory(asked, memfd_works(), folder, size, free)


def _limits(proc: Path) -> Limits:
    if sys.platform == "win32":
        return Limits()
    processes = _limit(resource.RLIMIT_NPROC)
    return Limits(
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_memory=_limit(resource.RLIMIT_MEMLOCK),
        address_space=_limit(resource.RLIMIT_AS),
        processes=processes,
        processes_left=_processes_left(processes.soft, proc),
    )


def _limit(number: int) -> Limit:
    soft, hard = (
        None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number)
    )
    return Limit(soft, hard)


def _processes_left(most: int | None, proc: Path) -> int | None:
    """Return how many more processes and threads the user's limit and the group's allow."""
    group = cgroups.find("pids", proc)
    left = [None if group is None else cgroups.processes_left(group)]
    if most is not None and os.geteuid() != 0:  # root is not limited
        left.append(max(0, most - _threads_of(os.getuid())))
    return min((count for count in left if count is not None), default=None)


def _threads_of(user: int) -> int:
    """Return how many threads all processes of a user have."""
    processes = psutil.process_iter(["uids", "num_threads"])
    return sum(
        each.info["num_threads"] or 0
        for each in processes
        if each.info["uids"] and each.info["uids"].real == user
    )


def _driver(roots: Roots) -> Driver:
    found = _DRIVER.search(_text(roots.proc / "driver/nvidia/version"))
    files = sorted(roots.dev.glob("nvidia[0-9]*"))
    return Driver(
        files=tuple(map(str, files)),
        version=None if found is None else found[1],
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""

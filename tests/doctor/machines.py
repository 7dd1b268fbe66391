"""Made-up facts: a machine on which all is fine, to be changed by each test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.doctor.facts import (
    Cores,
    Facts,
    Gpu,
    HugePages,
    Limit,
    Limits,
    Memory,
    Native,
    SharedMemory,
    Torch,
    Versions,
)

GB = 1 << 30
H200 = Gpu("NVIDIA H200", 141 * 10**9)
CUDA = Torch("2.9.0", "2.7.0", built_for="CUDA 12.8", gpus=(H200,))
FINE = Facts(
    ranks=1,
    versions=Versions("1.0", "3.12.1", "2.4.0"),
    native=Native("/site/_native.so", "", "avx512", "avx512"),
    cores=Cores(8, 8),
    memory=Memory(total=64 * GB, free=48 * GB),
    huge_pages=HugePages("madvise", "advise", "/sys/shmem_enabled"),
    shared_memory=SharedMemory("auto", True, "/dev/shm", 32 * GB, 32 * GB),
    limits=Limits(open_files=Limit(1024, 1 << 20), processes_left=50_000),
    torch=Torch("2.9.0", "2.7.0"),
)


def machine(**changes: Any) -> Facts:
    """The fine machine, with other facts."""
    return replace(FINE, **changes)

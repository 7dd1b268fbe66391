"""How many workers this machine has room for: `num_workers="auto"`.

`Readings` has what the machine grants this process; `auto_workers` is a pure function of it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.workers import cgroups

# A larger number of workers is a mistake on any machine.
MOST_WORKERS: Final = 4096
# Generous estimate of a worker's own memory: an interpreter with NumPy and our kernels, and what it
# holds while it samples. The graph and the slots are shared and not counted.
PER_WORKER_BYTES: Final = 256 << 20
# Workers take at most this share of the free memory: slots and the training need some, too.
MEMORY_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Readings:
    """What this process may use. None: no such limit, or the machine does not say."""

    processors: int  # those this process may run on
    cpu_quota: float | None = None  # processor time granted to its group, in processors
    memory_free: int | None = None  # of the machine
    memory_room: int | None = None  # of the tightest group

    @classmethod
    def now(cls, proc: Path = cgroups.PROC) -> Readings:
        """Read the limits of this machine."""
        cpu, memory = cgroups.find("cpu", proc), cgroups.find("memory", proc)
        return cls(
            processors=_processors(),
            cpu_quota=None if cpu is None else cgroups.cpu_quota(cpu),
            memory_free=_memory_free(proc),
            memory_room=None if memory is None else cgroups.memory_room(memory),
        )


def auto_workers(
    readings: Readings | None = None, *, per_worker_bytes: int = PER_WORKER_BYTES
) -> int:
    """Return the number of processors, less one for the training; fewer if memory is short.

    At least one: a pool needs a worker, and users who want none ask for 0.
    """
    readings = readings or Readings.now()
    return max(1, min(_by_processors(readings), _by_memory(readings, per_worker_bytes)))


def _by_processors(readings: Readings) -> int:
    granted = float(readings.processors)
    if readings.cpu_quota is not None:
        granted = min(granted, readings.cpu_quota)
    return math.floor(granted) - 1


def _by_memory(readings: Readings, per_worker_bytes: int) -> int:
    if per_worker_bytes < 1:
        raise ValueError(f"per_worker_bytes is {per_worker_bytes}: a worker needs some memory")
    rooms = [room for room in (readings.memory_free, readings.memory_room) if room is not None]
    if not rooms:
        return readings.processors
    return int(min(rooms) * MEMORY_SHARE) // per_worker_bytes


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_free(proc: Path) -> int | None:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None

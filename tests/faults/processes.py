"""Hubs, workers and ranks seen from outside: who there is, what they hold, what they count."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import HubProcess, SharedDistSamplingBackend
from tests.processes import until

_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Processes below this one whose parent dies become its own children, and are reaped here.

    As in a container whose first process started the job: to the kernel their process groups have
    not lost all ties, so it does not hang up on those that are stopped.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def reap(pids: Iterable[int]) -> None:
    """Waits for adopted children."""
    for pid in pids:
        os.waitpid(pid, 0)


def hub_pid(backend: SharedDistSamplingBackend) -> int:
    """The process of the hub that is up now."""
    hub = backend.hub
    assert isinstance(hub, HubProcess)
    until(lambda: hub.pid is not None, "a hub is up")
    assert hub.pid is not None
    return hub.pid


def is_listening(address: str) -> bool:
    """Whether anybody in this network namespace has a socket of this name."""
    name = address.removeprefix("unix://")
    lines = Path("/proc/net/unix").read_text().splitlines()
    return any(line.endswith(f" {name}") for line in lines)


# --- what they hold ----------------------------------------------------------------------------


def private_bytes(pid: int | str = "self") -> int:
    """Memory that a process shares with nobody."""
    return _status(pid, "RssAnon")


def shared_bytes(pid: int | str = "self") -> int:
    """Pages of shared memory that a process has touched through its mappings."""
    return _status(pid, "RssShmem")


def descriptors(pid: int | str = "self") -> int:
    """How many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def shared_mappings(pid: int | str = "self") -> int:
    """How many pieces of anonymous shared memory a process has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return len(set(re.findall(r" (\d+) +/memfd:", maps)))


def _status(pid: int | str, field: str) -> int:
    match = re.search(rf"^{field}:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert match is not None, f"process {pid} is dead"
    return int(match[1]) * 1024


# --- what a hub counts -------------------------------------------------------------------------


def numbers(backend: SharedDistSamplingBackend) -> dict[str, Any]:
    """All of the hub's numbers."""
    return backend.statistics().hub


def group(backend: SharedDistSamplingBackend, name: str = "") -> dict[str, Any]:
    """What the scheduler counts of one group."""
    [found] = [c for c in numbers(backend)["scheduler"]["groups"] if c["group"] == name]
    return dict(found)


def worker_pids(backend: SharedDistSamplingBackend) -> list[int]:
    """The processes of all workers."""
    return [worker["pid"] for worker in numbers(backend)["pool"]["workers"]]

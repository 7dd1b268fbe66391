"""Processes seen from outside: who there is, what they hold, and when they are gone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from penstock import HubProcess, SharedDistSamplingBackend

PATIENCE_S = 60.0
# Nothing tells of another process's state but a look at it.
LOOK_EVERY_S = 0.02


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE_S) -> None:
    """Waits for something to become true in another process."""
    deadline = time.monotonic() + patience
    moment = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"still not after {patience:g} s: {what}"
        moment.wait(LOOK_EVERY_S)


def wait_until_gone(pids: Iterable[int], patience: float = PATIENCE_S) -> None:
    """Until none of the processes is left, not even as a zombie."""
    left = list(pids)
    until(lambda: not any(map(is_there, left)), f"{left} are gone", patience)


def is_there(pid: int) -> bool:
    """Whether there is such a process, dead or alive."""
    return Path(f"/proc/{pid}").exists()


def hub_pid(backend: SharedDistSamplingBackend) -> int:
    """The process of the hub that is up now."""
    hub = backend.hub
    assert isinstance(hub, HubProcess)
    until(lambda: hub.pid is not None, "a hub is up")
    assert hub.pid is not None
    return hub.pid


def workers_of(hub: int) -> list[psutil.Process]:
    """A hub's children that live; none if the hub is no more."""
    try:
        children = psutil.Process(hub).children()
        return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


def is_listening(address: str) -> bool:
    """Whether anybody in this network namespace has a socket of this abstract name."""
    name = address.removeprefix("unix://")
    assert name.startswith("@")
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


def crew(backend: SharedDistSamplingBackend, name: str = "") -> dict[str, Any]:
    """What the scheduler counts of one crew."""
    [found] = [c for c in numbers(backend)["scheduler"]["crews"] if c["crew"] == name]
    return dict(found)


def worker_pids(backend: SharedDistSamplingBackend) -> list[int]:
    """The processes of all workers."""
    return [worker["pid"] for worker in numbers(backend)["pool"]["workers"]]

"""Processes seen from outside: who there is, what they hold, and when they are gone."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import HubProcess, SharedDistSamplingBackend

PATIENCE_S = 60.0
# Nothing tells of another process's state but a look at it.
LOOK_EVERY_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE_S) -> None:
    """Waits for something to become true in another process."""
    deadline = time.monotonic() + patience
    moment = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"still not after {patience:g} s: {what}"
        moment.wait(LOOK_EVERY_S)


def wait_until_gone(pids: Iterable[int], patience: float = PATIENCE_S) -> None:
    """Until none of the processes lives. Who reaps an orphan, and when, is not our affair."""
    left = list(pids)
    until(lambda: not any(map(is_alive, left)), f"{left} are gone", patience)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and not just what the kernel remembers of it."""
    return _state(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether a process is under SIGSTOP; one that is gone is not."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """The kernel's letter for what it is doing; "" if it is gone."""
    try:
        # The name of the program stands in parentheses, and may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def stop(pid: int) -> None:
    """SIGSTOP; returns when it has taken effect, which is when each thread has seen it."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid), f"{pid} is stopped")


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

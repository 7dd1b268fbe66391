"""Processes seen from outside: what becomes of them, and signals to those that may be gone.

What a test knows of a process by hearsay (statistics, a keeper's state) was so a moment ago.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# A bound for liveness, never a measure: a test that is well does not come near it.
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


def strike(pid: int | None, number: signal.Signals = signal.SIGKILL) -> bool:
    """Sends a signal; whether anybody was there to get it.

    Whoever is known by hearsay may have died and been reaped meanwhile. Nobody (None) is gone too,
    and must not become 0, which is this test with all that belongs to it.
    """
    if pid is None:
        return False
    assert pid > 0
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stop(pid: int) -> None:
    """SIGSTOP; returns when it has taken effect, which is when each thread has seen it."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid), f"{pid} is stopped")


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """A process that hears and says nothing while this lasts."""
    assert pid is not None
    stop(pid)
    try:
        yield
    finally:
        strike(pid, signal.SIGCONT)


def written_to(file: IO[bytes]) -> bytes:
    """All that a process has written so far to a file which it was given as its output.

    The two share the place in the file, too: to seek would make the next word go there.
    """
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)

"""One child process: started as a fresh interpreter, signalled, inspected, reaped. Never waits.

A child leads a process group of its own. So Ctrl-C in the terminal, which goes to the foreground
group, does not reach it (only the hub decides when workers end), and whatever it has started can be
killed with it. It is not a session of its own: terminals, batch systems and `ps` still see it as
ours, and if it is stopped when the hub dies, the kernel wakes it and sends it SIGHUP.

There is no `preexec_fn`: the child goes straight from vfork to exec, so that starting one takes the
hub a millisecond, however much memory the hub has mapped.

This module knows nothing of batches, messages or reasons.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError

# A worker samples in one thread; thread pools would only compete for processors.
_ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
# -P: the current folder is not searched, so that a user's queue.py hides no standard module.
# -u: what was printed before a death is not lost in a buffer.
# faulthandler from the first instruction: a crash while importing shows a stack, too.
_OPTIONS: Final = ("-P", "-u", "-X", "faulthandler")
_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel, cannot be interrupted",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}
_LIBRARY: Final = re.compile(r"\.so(\.[\w.]+)?$")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended. Both None: somebody else reaped it, so it is unknown.

    `cpu` is in seconds, `peak` its largest resident memory in bytes, shared memory included.
    """

    code: int | None
    signal: int | None
    cpu: float = 0.0
    peak: int = 0

    @property
    def words(self) -> str:
        """Return the exit code, or the signal's name, in words."""
        if self.signal is not None:
            return signal_name(self.signal)
        return "exit status unknown" if self.code is None else f"exit code {self.code}"


class _Life(Enum):
    RUNNING = "running"
    ENDED = "ended"  # and waits to be reaped
    UNKNOWN = "unknown"  # not our child any more, or the system cannot say without reaping


class Process:
    """A child that was started and not reaped yet; `output` is the pipe with what it prints.

    `pidfd` becomes readable when it ends; -1 where the system has none.
    """

    def __init__(self, popen: subprocess.Popen[bytes], output: int, *, pidfds: bool = True) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.output = output
        self.pidfd = _open_pidfd(popen.pid) if pidfds else -1
        self.exit: Exit | None = None

    @classmethod
    def spawn(
        cls,
        module: str,
        *arguments: str,
        pass_fds: Iterable[int] = (),
        environment: Mapping[str, str] | None = None,
        pidfds: bool = True,
    ) -> Process:
        """Run a module in a fresh interpreter that gets no descriptors but these and 0 to 2."""
        if not sys.executable:
            raise PenstockError("sys.executable is empty: there is no interpreter to start")
        reader, writer = os.pipe()
        try:
            popen = subprocess.Popen(
                [sys.executable, *inherited_flags(), *_OPTIONS, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                close_fds=True,
                pass_fds=tuple(pass_fds),
                env={**os.environ, **_ONE_THREAD, **(environment or {})},
                process_group=0,
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        _keep_cores_small(popen.pid)
        return cls(popen, reader, pidfds=pidfds)

    # --- signals ---

    def signal(self, number: int) -> None:
        """Send a signal to the process alone; do nothing if it has ended."""
        if self.exit is not None:
            return
        with suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL to it, and to those processes it has started that stayed in its group."""
        self.signal(signal.SIGKILL)
        if self._life() is not _Life.UNKNOWN:
            self._kill_group()

    # --- inspecting ---

    @property
    def state(self) -> str:
        """Return the kernel's letter for its state; "" where the system does not say."""
        # The name of the program is in parentheses, and may contain anything.
        return self._read("stat").rpartition(")")[2].strip()[:1]

    @property
    def stopped(self) -> bool:
        """Return whether it is stopped (SIGSTOP, a debugger), and so cannot answer."""
        return self.state in ("T", "t")

    @property
    def dead(self) -> bool:
        """Return whether it has ended, reaped or not."""
        return self.exit is not None or self._life() is _Life.ENDED

    def catches(self, number: int) -> bool:
        """Return whether it has a handler for this signal."""
        match = re.search(r"^SigCgt:\s*([0-9a-f]+)$", self._read("status"), re.MULTILINE)
        return match is not None and bool(int(match[1], 16) >> (number - 1) & 1)

    def libraries(self) -> tuple[str, ...]:
        """Return the shared libraries it has mapped; none if it is dead already."""
        paths = (line.split(maxsplit=5)[5:] for line in self._read("maps").splitlines())
        return tuple(dict.fromkeys(path[0] for path in paths if path and _LIBRARY.search(path[0])))

    # --- the end ---

    def reap(self) -> Exit | None:
        """Return how it ended, or None if it has not; kills the rest of its group."""
        if self.exit is not None or (life := self._life()) is _Life.RUNNING:
            return self.exit
        if life is _Life.ENDED:
            # A process keeps its id until it is reaped, and so does its group. So this is the last
            # moment at which its group can be killed without the risk of hitting another process.
            self._kill_group()
        self.exit = self._wait()
        if self.exit is not None:
            self._popen.returncode = self.exit.code or -(self.exit.signal or 0)
        return self.exit

    def close(self) -> None:
        """Close the pidfd."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _life(self) -> _Life:
        if self.exit is not None or not hasattr(os, "waitid"):
            return _Life.UNKNOWN
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return _Life.UNKNOWN
        return _Life.RUNNING if ended is None else _Life.ENDED

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _wait(self) -> Exit | None:
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return Exit(None, None)  # SIGCHLD is ignored in this process, so the kernel reaped it
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        return Exit(code, None, cpu, peak) if code >= 0 else Exit(None, -code, cpu, peak)

    def _read(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{name}").read_text(errors="replace")
        except OSError:
            return ""


def signal_name(number: int) -> str:
    """Return the signal's usual name; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def state_in_words(letter: str) -> str:
    """Return what the kernel's letter for a process's state means."""
    return _STATES.get(letter[:1], "in an unknown state")


def inherited_flags() -> list[str]:
    """Return the options of this interpreter that decide which modules a fresh one finds."""
    flags = sys.flags
    return [
        *(["-I"] if flags.isolated else []),
        *(["-E"] if flags.ignore_environment and not flags.isolated else []),
        *(["-s"] if flags.no_user_site and not flags.isolated else []),
        *(["-B"] if flags.dont_write_bytecode else []),
    ]


def _keep_cores_small(pid: int) -> None:
    # A core file should have the worker's own memory only. The graph and the slots are shared, and
    # writing them to disk would delay the worker's end by minutes.
    with suppress(OSError):
        Path(f"/proc/{pid}/coredump_filter").write_text("0x11")


def _open_pidfd(pid: int) -> int:
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1  # an old kernel, a sandbox

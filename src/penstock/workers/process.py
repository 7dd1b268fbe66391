"""One child process: started as a fresh interpreter, signalled, looked at, reaped. Never waits.

A child leads a process group of its own. So a Ctrl-C in the terminal, which goes to the group in
the foreground, does not reach it (the hub alone decides when workers end), and whatever it has
started itself can be killed along with it. It is not a session of its own: it stays among the
processes that terminals, batch systems and `ps` know as ours, and a stopped one is woken and hung
up by the kernel when the hub dies.

No `preexec_fn`: the child goes straight from vfork to exec, so that starting one takes the hub a
millisecond however much memory it has mapped.

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

# A worker is one thread that samples; pools of threads would only fight each other for processors.
_ONE_THREAD: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
# -P: the current folder is not searched, so that a user's queue.py stays the user's.
# -u: what was printed before a death is not lost with a buffer.
# faulthandler from the first instruction: a crash while importing has a stack too.
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
    """How a process ended. Both None: somebody else reaped it, and nobody knows.

    `cpu` is in seconds, `peak` its largest resident memory in bytes, shared memory included.
    """

    code: int | None
    signal: int | None
    cpu: float = 0.0
    peak: int = 0

    @property
    def words(self) -> str:
        """In words: the exit code, or the signal by name."""
        if self.signal is not None:
            return signal_name(self.signal)
        return "exit status unknown" if self.code is None else f"exit code {self.code}"


class _Life(Enum):
    RUNNING = "running"
    ENDED = "ended"  # and waits to be reaped
    UNKNOWN = "unknown"  # no child of ours any more, or the system cannot say without reaping


class Process:
    """A child that was started and has not been reaped; what it prints comes out of `output`.

    `pidfd` becomes readable when it ends; -1 where the system has no such thing.
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
        """Runs a module in a fresh interpreter, which gets no descriptor but these and 0 to 2."""
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
        """Sends a signal to the process alone; to one that has ended, nothing."""
        if self.exit is not None:
            return
        with suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the process and to all that it has started and that kept to its group."""
        self.signal(signal.SIGKILL)
        if self._life() is not _Life.UNKNOWN:
            self._kill_group()

    # --- looking ---

    @property
    def state(self) -> str:
        """The kernel's letter for what it is doing; "" where the system does not say."""
        # The name of the program stands in parentheses, and may contain anything.
        return self._read("stat").rpartition(")")[2].strip()[:1]

    @property
    def stopped(self) -> bool:
        """Whether it was stopped (SIGSTOP, a debugger), and so cannot answer anything."""
        return self.state in ("T", "t")

    @property
    def dead(self) -> bool:
        """Whether it has ended, be it reaped or not."""
        return self.exit is not None or self._life() is _Life.ENDED

    def catches(self, number: int) -> bool:
        """Whether it has a handler for this signal."""
        match = re.search(r"^SigCgt:\s*([0-9a-f]+)$", self._read("status"), re.MULTILINE)
        return match is not None and bool(int(match[1], 16) >> (number - 1) & 1)

    def libraries(self) -> tuple[str, ...]:
        """The shared libraries it has mapped; none for one that is dead already."""
        paths = (line.split(maxsplit=5)[5:] for line in self._read("maps").splitlines())
        return tuple(dict.fromkeys(path[0] for path in paths if path and _LIBRARY.search(path[0])))

    # --- the end ---

    def reap(self) -> Exit | None:
        """How it ended, once it has; until then None. Its group goes with it."""
        if self.exit is not None or (life := self._life()) is _Life.RUNNING:
            return self.exit
        if life is _Life.ENDED:
            # A process keeps its number until it is reaped, and so does its group: now is the
            # last time that what it left behind can be killed without hitting a stranger.
            self._kill_group()
        self.exit = self._wait()
        if self.exit is not None:
            self._popen.returncode = self.exit.code or -(self.exit.signal or 0)
        return self.exit

    def close(self) -> None:
        """Lets go of the descriptor that told of its end."""
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
    """As everybody calls it; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def state_in_words(letter: str) -> str:
    """What the kernel's letter for a process's state means."""
    return _STATES.get(letter[:1], "in an unknown state")


def inherited_flags() -> list[str]:
    """Options of this interpreter that decide which modules a fresh one finds."""
    flags = sys.flags
    return [
        *(["-I"] if flags.isolated else []),
        *(["-E"] if flags.ignore_environment and not flags.isolated else []),
        *(["-s"] if flags.no_user_site and not flags.isolated else []),
        *(["-B"] if flags.dont_write_bytecode else []),
    ]


def _keep_cores_small(pid: int) -> None:
    # Should it leave a core file: its own memory and no more. The graph and the slots are shared,
    # and writing them all to disk would hold up its end for minutes.
    with suppress(OSError):
        Path(f"/proc/{pid}/coredump_filter").write_text("0x11")


def _open_pidfd(pid: int) -> int:
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1  # an old kernel, a sandbox

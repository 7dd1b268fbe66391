"""One hub process, from its start to its end: spoken to over a control socket, and reaped.

The hub ends when that socket does. Its standard error is the rank's own: what it logs is meant for
whoever reads the rank's. Waiting is done on descriptors, never by looking again.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.deadline import Deadline
from penstock.client.hub.connection import HubConnection
from penstock.errors import HubGone, PenstockError, ProtocolError
from penstock.wire.messages import HubConfig, Stop, Welcome, WorkerGone
from penstock.workers.process import inherited_flags

_MODULE: Final = "penstock.hub.process"
# Seconds it may take to end when asked, when told (SIGTERM) and when killed.
_ASKED_S: Final = 10.0
_TOLD_S: Final = 2.0
_KILLED_S: Final = 10.0


class Child:
    """A hub that this thread started: the kernel ends it with the thread."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        try:
            self._process = _spawn(its.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        self.pid = self._process.pid
        self._pidfd = _pidfd_of(self.pid)
        self._control = HubConnection(ours)

    def configure(self, config: HubConfig, fds: Sequence[int], deadline: Deadline) -> Welcome:
        """Tells the hub what it is to be; returns when it can be joined.

        `HubGone` with the reason if it cannot; `ConnectionError` if it died.
        """
        self._control.say(config, fds, deadline)
        try:
            return self._control.greet(deadline)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # whatever the hub says that it is
            raise HubGone(f"it could not be started: {error}") from error

    def watch(self, wake: int, learn: Callable[[WorkerGone], None]) -> bool:
        """Until the hub ends (True) or `wake` is readable (False). `learn` hears of its workers."""
        poll, control = select.poll(), self._control.fileno()
        for fd in (wake, control, self._pidfd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            # Also at its end: what it said last is there to be read.
            speaks = control in ready and self._hear(learn)
            if wake in ready:
                return False
            if self._pidfd in ready or (self._pidfd < 0 and not speaks):
                return True
            if not speaks and control in ready:
                poll.unregister(control)  # it has hung up, and is about to end

    def _hear(self, learn: Callable[[WorkerGone], None]) -> bool:
        """Passes on what the hub has to say; False if it will say no more."""
        try:
            said = self._control.receive()
        except (ConnectionError, ProtocolError):
            return False
        for message, fds in said:
            for fd in fds:
                os.close(fd)  # none is expected
            if isinstance(message, WorkerGone):
                learn(message)
        return True

    def stop(self) -> None:
        """Ends the hub: asks, tells, kills; returns when it has gone."""
        self._control.post(Stop())
        self._control.hang_up()
        for patience, then in ((_ASKED_S, signal.SIGTERM), (_TOLD_S, signal.SIGKILL)):
            if self._has_ended_within(patience):
                return
            self._process.send_signal(then)
        self._has_ended_within(_KILLED_S)

    def bury(self) -> str:
        """Makes sure that it is gone and nothing of it is left; how it ended, in words."""
        try:
            if not self._has_ended_within(0):
                self._process.kill()
            code = self._process.wait()
        finally:
            self._control.close()
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
        return f"by {_signal_name(-code)}" if code < 0 else f"with exit code {code}"

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, rather than its own mistake."""
        return (self._process.returncode or 0) < 0

    def _has_ended_within(self, seconds: float) -> bool:
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _spawn(control: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise PenstockError("sys.executable is empty: there is no interpreter to start")
    # -P: the current folder is not searched, so that a user's queue.py stays the user's. A process
    # group of its own: a Ctrl-C in the terminal is for the rank, which decides what it means.
    return subprocess.Popen(
        [sys.executable, *inherited_flags(), "-P", "-m", _MODULE, "--control", str(control)],
        stdin=subprocess.DEVNULL,
        pass_fds=(control,),
        process_group=0,
    )


def _pidfd_of(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, a sandbox
        return -1


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""One hub process, from its start to its end: it is talked to over a control socket, and reaped.

The hub ends when that socket closes. It inherits the rank's standard error, because its log is
meant for whoever reads the rank's. All waiting is done on descriptors, without polling at
intervals.
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

from penstock.client.hub.connection import HubConnection
from penstock.errors import HubGone, PenstockError, ProtocolError
from penstock.rpc.deadline import Deadline
from penstock.wire.messages import HubConfig, Notice, Stop, Welcome, WorkerGone
from penstock.workers.process import inherited_flags

_MODULE: Final = "penstock.hub.process"
# Seconds in which the hub must end after `Stop`, after SIGTERM and after SIGKILL.
_ASKED_S: Final = 10.0
_TOLD_S: Final = 2.0
_KILLED_S: Final = 10.0


class Child:
    """A hub process that this thread started. The kernel ends the hub when this thread ends."""

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
        """Send the hub its configuration, and return when other processes can join it.

        Raises:
            HubGone: The hub refused, with the reason.
            ConnectionError: The hub died.
            TimeoutError: The hub did not answer in time.
        """
        self._control.say(config, fds, deadline)
        try:
            return self._control.greet(deadline)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # any error that the hub has reported
            raise HubGone(f"it could not be started: {error}") from error

    def watch(self, wake: int, learn: Callable[[WorkerGone | Notice], None]) -> bool:
        """Wait until the hub ends (True) or `wake` is readable (False); report its workers' deaths.

        Args:
            wake: A descriptor that interrupts the wait.
            learn: Called with each worker that the hub says it has lost, and each notice.
        """
        poll, control = select.poll(), self._control.fileno()
        for fd in (wake, control, self._pidfd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            # This comes before the checks for its end, so that its last messages are read.
            speaks = control in ready and self._hear(learn)
            if wake in ready:
                return False
            if self._pidfd in ready or (self._pidfd < 0 and not speaks):
                return True
            if not speaks and control in ready:
                poll.unregister(control)  # it has closed the socket, and is about to end

    def _hear(self, learn: Callable[[WorkerGone | Notice], None]) -> bool:
        """Pass on the hub's messages; return False if no more will come."""
        try:
            said = self._control.receive()
        except (ConnectionError, ProtocolError):
            return False
        for message, fds in said:
            for fd in fds:
                os.close(fd)  # none is expected
            if isinstance(message, WorkerGone | Notice):
                learn(message)
        return True

    def stop(self) -> None:
        """End the hub with `Stop`, then SIGTERM, then SIGKILL; return when it has ended."""
        self._control.post(Stop())
        self._control.hang_up()
        for patience, then in ((_ASKED_S, signal.SIGTERM), (_TOLD_S, signal.SIGKILL)):
            if self._has_ended_within(patience):
                return
            self._process.send_signal(then)
        self._has_ended_within(_KILLED_S)

    def reap(self) -> str:
        """Kill the hub if it still runs, reap it, close all descriptors; return how it ended."""
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
        """Whether a signal ended the hub, rather than an error of its own."""
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
    # -P keeps the current folder off the module path, where a user's queue.py would hide Python's.
    # The hub has its own process group, so that Ctrl-C in a terminal reaches only the rank, which
    # decides what it means.
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

"""One worker as the hub sees it: its process, connection, output and last messages.

It does what it is told and records what it sees; it never waits. The pool decides which descriptors
are watched and when it is called.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.core.events import KillReason
from penstock.errors import ProtocolError
from penstock.wire.messages import FromWorkerToHub, Heartbeat, OutOfMemory, Ready
from penstock.wire.stream import Stream
from penstock.workers.ended import Breach, Ended
from penstock.workers.oom import OomWatch
from penstock.workers.process import Process
from penstock.workers.stderr import Tail

# How long a worker may take to print its stacks before it is killed, and how long its output must
# have been quiet for them to be complete.
STACKS_WITHIN: Final = 1.0
STACKS_QUIET: Final = 0.2
# How long a worker that has closed its connection may take to end.
DEAF_FOR: Final = 2.0
# Without pidfds: how often to check whether a worker that is about to end has ended.
_ASK_EVERY: Final = 0.01
# Enough pieces to read a pipe empty after its writer's death, whatever the pipe's size.
_LAST_PIECES: Final = 64

Heard = Sequence[tuple[FromWorkerToHub, list[int]]]


class ChildState(Enum):
    """How far a worker has come. Each state follows only on those above it."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"  # asked to finish and go
    SHOWING = "showing"  # asked for its stacks, to be killed after that
    DYING = "dying"  # SIGKILL is sent
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """One worker, by its last messages. Times in seconds, memory in bytes."""

    worker: int
    group: str
    pid: int
    state: str
    age: float
    silent: float
    batches: int
    cpu: float
    private: int


class WorkerHandle:
    """A worker process. The pool watches `stream`, `output.fd` and `process.pidfd`."""

    def __init__(
        self, number: int, group: str, process: Process, stream: Stream[FromWorkerToHub], now: float
    ) -> None:
        self.id = number
        self.group = group
        self.pid = process.pid
        self.stream = stream
        self.process = process
        self.output = Tail(process.output)
        self.started = now
        self.state = ChildState.STARTING
        self.was_ready = False
        self.asked_to_leave = False
        self.last_beat: Heartbeat | None = None
        self.heard = now  # when the last heartbeat came, or it was started
        self.kill_at: float | None = None  # when its time to show its stacks, or to go, is over
        self.watched = 0  # events of its stream that the pool's selector waits for
        self.ask_at: float | None = None  # when to check whether it has ended; never, with a pidfd
        self._kill_by = now
        self._beats = 0
        self._struck: OutOfMemory | None = None
        self._garbled = ""
        self._libraries: tuple[str, ...] = ()
        self._killed: KillReason | Breach | None = None
        self._state_when_killed = ""

    @classmethod
    def spawn(
        cls,
        number: int,
        group: str,
        now: float,
        *,
        module: str,
        environment: Mapping[str, str],
        pidfds: bool,
    ) -> WorkerHandle:
        """Start a process at the other end of a new connection; `OSError` if the system refuses."""
        ours, theirs = socket.socketpair()
        try:
            process = Process.spawn(
                module,
                "--socket",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                environment=environment,
                pidfds=pidfds,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(number, group, process, Stream(ours, FromWorkerToHub), now)

    @property
    def alive(self) -> bool:
        """Return whether it may still be told to go: it has not ended, and was not killed yet."""
        return self.state in (ChildState.STARTING, ChildState.READY, ChildState.LEAVING)

    # --- listening ---

    def hear(self, now: float) -> Heard:
        """Return its messages, in order. A worker that sends invalid data is killed."""
        heard = self._receive(now)
        if self._garbled:
            self.kill(Breach.GARBLED, now)
        elif self.stream.ended:
            self._expect_end(now)
        return heard

    def disbelieve(self, why: str, now: float) -> None:
        """Kill a worker that sent a valid message with impossible content."""
        self._garbled = why
        self.kill(Breach.GARBLED, now)

    def _receive(self, now: float) -> Heard:
        try:
            heard = self.stream.receive()
        except ProtocolError as error:
            self._garbled = str(error)
            return ()
        for message, _ in heard:
            self._note(message, now)
        return heard

    def _note(self, message: FromWorkerToHub, now: float) -> None:
        match message:
            case Heartbeat():
                self.last_beat, self.heard = message, now
                self._beats += 1
                # Libraries are loaded when something is done for the first time, so mostly early.
                # Looking at the 1st, 2nd, 4th, 8th … heartbeat finds them, at no cost for an idle
                # pool.
                if self._beats & (self._beats - 1) == 0:
                    self._look_at_libraries()
            case Ready():
                self.was_ready = True
                if self.state is ChildState.STARTING:
                    self.state = ChildState.READY
                self._look_at_libraries()
            case OutOfMemory():
                self._struck = message
            case _:
                pass

    def drain_output(self, now: float) -> None:
        """Read what it has printed. Its stacks are complete when nothing more comes."""
        if self.output.drain() and self.state is ChildState.SHOWING:
            self.kill_at = min(self._kill_by, now + STACKS_QUIET)

    # --- ending it ---

    def leave(self) -> None:
        """Record that it was asked to go."""
        self.asked_to_leave = True
        self.state = ChildState.LEAVING

    def show_and_die(self, why: KillReason | Breach, now: float) -> None:
        """Ask for its stacks and kill it when they have come; at once if it cannot show any."""
        self._look_once_more(why)
        if self.process.stopped or not self.process.catches(signal.SIGUSR1):
            self.kill(why, now)
            return
        self.output.drain()  # what it printed before is no answer
        self.state = ChildState.SHOWING
        self.kill_at = self._kill_by = now + STACKS_WITHIN
        self.process.signal(signal.SIGUSR1)

    def terminate(self, why: Breach, now: float) -> None:
        """Send SIGTERM; SIGKILL if it is stopped, since it would not handle SIGTERM."""
        if self.process.stopped:
            self.kill(why, now)
        else:
            self._look_once_more(why)
            self.process.signal(signal.SIGTERM)

    def kill(self, why: KillReason | Breach, now: float) -> None:
        """Send SIGKILL, once."""
        if self.state not in (ChildState.DYING, ChildState.ENDED):
            self._look_once_more(why)
            self.state = ChildState.DYING
            self.process.kill()
            self._expect_end(now)

    def time_is_up(self, now: float) -> None:
        """Kill it: its time to show its stacks, or to end after closing its connection, is over."""
        self.kill(self._killed or Breach.DEAF, now)

    def _look_once_more(self, why: KillReason | Breach) -> None:
        if self._killed is not None or self.process.dead:
            return  # it died before our kill, so that is not the cause
        self._killed = why
        self._state_when_killed = self.process.state
        # The kernel blocks this look at a process in state D until that state is over.
        if self._state_when_killed != "D":
            self._look_at_libraries()

    def _look_at_libraries(self) -> None:
        # A dead process shows none; then the result of the last look is kept.
        self._libraries = self.process.libraries() or self._libraries

    def _expect_end(self, now: float) -> None:
        if self.process.pidfd < 0:
            self.ask_at = now
        if self.state is ChildState.DYING:
            self.kill_at = None
        elif self.kill_at is None:
            self.kill_at = now + DEAF_FOR

    # --- its end ---

    def reap(self, now: float) -> bool:
        """Return whether it has ended; then it can write nothing more, and all it sent is here."""
        if self.process.reap() is None:
            if self.ask_at is not None:
                self.ask_at = now + _ASK_EVERY
            return False
        return True

    def last_words(self, now: float) -> Heard:
        """Return all that is left in the socket of a reaped worker, and drain its output."""
        heard = list(self._receive(now))
        while not (self.stream.ended or self.stream.exhausted):
            heard += self._receive(now)  # the stream gives a part at a time
        self.output.drain(_LAST_PIECES)
        return heard

    def ended(self, oom: OomWatch, now: float) -> Ended:
        """Return the facts about its end."""
        status = self.process.exit
        assert status is not None
        unexplained = status.signal == signal.SIGKILL and self._killed is None
        return Ended(
            worker=self.id,
            group=self.group,
            pid=self.pid,
            exit=status,
            was_ready=self.was_ready,
            asked_to_leave=self.asked_to_leave,
            lived=now - self.started,
            kills=oom.kills(now, self.started, claim=unexplained),
            killed=self._killed,
            state=self._state_when_killed,
            last_beat=self.last_beat,
            beat_age=now - self.heard,
            struck=self._struck,
            garbled=self._garbled,
            libraries=self._libraries,
            printed=self.output.text(),
            dropped=self.output.dropped,
        )

    def close(self) -> None:
        """Close all descriptors."""
        self.state = ChildState.ENDED
        self.kill_at = self.ask_at = None
        self.stream.close()
        self.output.close()
        self.process.close()

    def statistics(self, now: float) -> WorkerStatistics:
        """Return what is known of it now."""
        beat = self.last_beat
        return WorkerStatistics(
            worker=self.id,
            group=self.group,
            pid=self.pid,
            state=self.state.value,
            age=now - self.started,
            silent=now - self.heard,
            batches=0 if beat is None else beat.batches,
            cpu=0.0 if beat is None else beat.cpu,
            private=0 if beat is None else beat.private,
        )

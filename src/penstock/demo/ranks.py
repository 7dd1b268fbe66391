"""The ranks' processes as their parent sees them: started, heard, and ended for certain.

They are fresh interpreters in process groups of their own: a Ctrl-C in the terminal reaches only
the parent, which decides what it means. This module does not know what ranks do.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from penstock.demo.plan import Plan
from penstock.demo.telling import Brief, Entered, FromRank, GoOn, RankFailed, Stage, ToRank
from penstock.errors import PenstockError
from penstock.wire.stream import Stream

_MODULE: Final = "penstock.demo.rank"
# Seconds a rank may take to end: by itself when it is done, and when killed.
_DONE_S: Final = 60.0
_KILLED_S: Final = 10.0
# A rank that loses another one fails as well, a moment later: wait, to find the first one.
_AFTERMATH_S: Final = 0.3
# Each rank uses at most one core; and all are on this host.
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


class RankDied(PenstockError):
    """A rank has ended before it was done."""


@dataclass(eq=False)
class RankProcess:
    """One rank. Its output goes to a file, for the report if it dies."""

    number: int
    process: subprocess.Popen[bytes]
    stream: Stream[FromRank]
    printed: Path
    done: bool = False
    failed: RankFailed | None = None

    @classmethod
    def start(cls, number: int, scratch: Path) -> Self:
        """Start a fresh interpreter, which waits for its `Brief`."""
        printed = scratch / f"rank-{number}.txt"
        ours, its = socket.socketpair()
        with its, printed.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(its.fileno(),),
                process_group=0,
                env=_environment(),
            )
        return cls(number, process, Stream(ours, FromRank), printed)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def say(self, message: ToRank) -> None:
        """Send it a message."""
        self.stream.send(message)

    def hear(self) -> list[FromRank]:
        """Return the messages it has sent since the last call."""
        heard = [message for message, _ in self.stream.receive()]
        for message in heard:
            match message:
                case Entered(stage=Stage.DONE):
                    self.done = True
                case RankFailed():
                    self.failed = message
        return heard

    @property
    def is_lost(self) -> bool:
        """Return whether it failed, or ended without being done."""
        return not self.done and (self.failed is not None or self.stream.ended)

    def epitaph(self) -> str:
        """Return why it ended, in words."""
        who = f"rank {self.number} (pid {self.pid})"
        if self.failed is not None:
            return f"{who} failed: {self.failed.what}"
        code = self._ended()
        if code < 0:
            return f"{who} was killed by {_signal_name(-code)}"
        last = self.printed.read_text(errors="replace").strip().splitlines()[-1:]
        return f"{who} ended with exit code {code}" + "".join(f": {line}" for line in last)

    def _ended(self) -> int:
        """Return its exit status. If it closed the socket and lives on, it is killed first."""
        try:
            return self.process.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(_KILLED_S)


class RankProcesses:
    """All ranks. Leaving the `with` ends them, whatever they are doing."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        self._plan = plan
        self._scratch = scratch
        self._selector = selectors.DefaultSelector()
        self._ranks: list[RankProcess] = []

    def start(self, address: str, whole: Path | None = None) -> None:
        """Start them, to train from the hub at this address.

        `whole` is the folder of the whole graph, if the hub's graph is in parts.
        """
        rendezvous = str(self._scratch / "rendezvous")
        for number in range(self._plan.ranks):
            rank = RankProcess.start(number, self._scratch)
            self._ranks.append(rank)
            self._selector.register(rank.stream, selectors.EVENT_READ, rank)
            rank.say(
                Brief(
                    plan=self._plan,
                    rank=number,
                    address=address,
                    rendezvous=rendezvous,
                    whole=None if whole is None else str(whole),
                )
            )

    def listen(self, timeout: float) -> Iterator[tuple[int, FromRank]]:
        """Yield messages of ranks, waiting up to `timeout` seconds; `RankDied` if one is lost."""
        for key, _ in self._selector.select(timeout):
            rank: RankProcess = key.data
            yield from ((rank.number, message) for message in rank.hear())
            if rank.stream.ended:
                self._selector.unregister(key.fileobj)
        if any(rank.is_lost for rank in self._ranks):
            raise RankDied(self._first_lost().epitaph())

    def go_on(self, rank: int) -> None:
        """End a rank's pause."""
        self._ranks[rank].say(GoOn())

    @property
    def pids(self) -> list[int]:
        """The process ids, by rank."""
        return [rank.pid for rank in self._ranks]

    @property
    def done(self) -> bool:
        """Return whether all ranks are done."""
        return all(rank.done for rank in self._ranks)

    def join(self) -> None:
        """Wait until they end; `RankDied` for one with a non-zero exit status."""
        deadline = time.monotonic() + _DONE_S
        for rank in self._ranks:
            try:
                code = rank.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue  # it has sent everything, and is killed on leaving
            if code:
                raise RankDied(rank.epitaph())

    def _first_lost(self) -> RankProcess:
        """Return the rank that ended first: the others fail because of it."""
        deadline = time.monotonic() + _AFTERMATH_S
        while (left := deadline - time.monotonic()) > 0 and self._selector.get_map():
            for key, _ in self._selector.select(left):
                key.data.hear()
                if key.data.stream.ended:
                    self._selector.unregister(key.fileobj)
        lost = [rank for rank in self._ranks if rank.is_lost]
        # A rank that could not even send a message was killed from outside: it was the first.
        return min(lost, key=lambda rank: 0.0 if rank.failed is None else rank.failed.at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left: they hold nothing that needs cleaning up."""
        for rank in self._ranks:
            if rank.process.poll() is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.wait(_KILLED_S)
            rank.stream.close()
        self._selector.close()


def _environment() -> dict[str, str]:
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {**loopback, **os.environ, **_ENVIRONMENT}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

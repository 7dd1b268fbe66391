"""The faults that a demonstration injects: a worker or a server is killed, a rank's pause is ended.

It acts when called, and never waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import psutil

from penstock.demo.chronicle import Chronicle, KillStory
from penstock.demo.plan import Plan
from penstock.demo.ranks import RankProcesses
from penstock.demo.servers import StoreProcesses
from penstock.demo.telling import Stage

# How long to look for a worker that is making a batch at that moment. Such a kill shows more, but
# the outcome is the same.
_CHOOSY_S: Final = 2.0
_LOOKS: Final = 50  # per call


class Mischief:
    """Reads the chronicle, injects the faults, and records what it did."""

    def __init__(self, plan: Plan, ranks: RankProcesses, chronicle: Chronicle) -> None:
        self._plan = plan
        self._ranks = ranks
        self._story = chronicle
        self._due_since: float | None = None
        self._went_on = False

    @property
    def is_choosing(self) -> bool:
        """Return whether it must be called as often as possible."""
        return self._due_since is not None and not self._has_killed

    @property
    def is_over(self) -> bool:
        """Return whether all faults have happened, and the killed worker was replaced."""
        killed = self._story.killed
        return killed is not None and bool(killed.verdict) and killed.successor is not None

    def act(self) -> Iterator[str]:
        """Do what is due; yield what was done, in words."""
        now = time.monotonic()
        if self._has_killed:
            yield from self._follow()
        elif self._kill_is_due():
            self._due_since = now if self._due_since is None else self._due_since
            yield from self._kill(choosy=now - self._due_since < _CHOOSY_S)
        yield from self._end_pause(now)

    def _kill_is_due(self) -> bool:
        pausing = self._story.ranks[self._plan.pausing_rank].stage is Stage.PAUSED
        return self._story.batches >= self._plan.kill_after or pausing

    # --- a worker is killed ------------------------------------------------------------------

    @property
    def _has_killed(self) -> bool:
        return self._story.killed is not None

    def _kill(self, choosy: bool) -> Iterator[str]:
        there = self._story.numbers.get("pool", {}).get("workers", ())
        ready = [worker for worker in there if worker["state"] == "ready"]
        victim = _at_work(ready) if choosy else next(iter(ready), None)
        if victim is None:
            return
        at = time.monotonic()
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(victim["pid"], signal.SIGKILL)
            youngest = max(worker["worker"] for worker in there)
            self._story.killed = KillStory(victim["worker"], victim["pid"], at, youngest)
            yield f"worker {victim['worker']} (pid {victim['pid']}) is killed by SIGKILL"

    def _follow(self) -> Iterator[str]:
        """Look for the hub's verdict, then for the successor."""
        numbers, killed = self._story.numbers, self._story.killed
        assert killed is not None
        if not killed.verdict:
            for loss in numbers.get("losses", ()):
                if loss["pid"] == killed.pid:
                    killed.verdict, killed.batch = loss["verdict"], loss["batch"]
                    killed.lost_at = loss["at"]
                    yield f"the hub: worker {killed.worker} is lost: {killed.verdict}"
        elif killed.successor is None:
            yield from self._greet(killed, numbers)

    def _greet(self, killed: KillStory, numbers: dict[str, Any]) -> Iterator[str]:
        for worker in numbers["pool"]["workers"]:
            if worker["worker"] > killed.youngest and worker["state"] == "ready":
                killed.successor = worker["worker"]
                killed.replaced = time.monotonic()
                yield (
                    f"worker {worker['worker']} (pid {worker['pid']}) has taken its place, "
                    f"{killed.replaced - killed.at:.1f} s later"
                )
                return

    # --- a rank pauses -----------------------------------------------------------------------

    def _end_pause(self, now: float) -> Iterator[str]:
        """Let the rank go on when its time is up and the worker, or server, has been killed."""
        rank = self._story.ranks[self._plan.pausing_rank]
        if self._went_on or rank.stage is not Stage.PAUSED or not self._has_killed:
            return
        if now - rank.since >= self._plan.pause_s:
            self._went_on = True
            self._ranks.go_on(self._plan.pausing_rank)
            yield f"rank {self._plan.pausing_rank} goes on after {now - rank.since:.1f} s"


class ServerMischief(Mischief):
    """Kills a server of the store instead of a worker. Another server has the same part."""

    def __init__(
        self, plan: Plan, ranks: RankProcesses, chronicle: Chronicle, store: StoreProcesses
    ) -> None:
        super().__init__(plan, ranks, chronicle)
        self._store = store
        self._batches = 0  # that had been read when it was killed

    @property
    def is_over(self) -> bool:
        """Return whether all faults have happened, and a batch was read after them."""
        return self._has_killed and self._story.batches > self._batches

    @property
    def _has_killed(self) -> bool:
        return self._story.killed_server is not None

    def _kill(self, choosy: bool) -> Iterator[str]:
        victim = self._store.victim  # it answers calls of all workers: there is no better moment
        story = next(each for each in self._story.servers if each.pid == victim.pid)
        story.killed_at, self._batches = time.monotonic(), self._story.batches
        victim.kill()
        yield f"the server of part {story.part} at {story.address} is killed by SIGKILL"

    def _follow(self) -> Iterator[str]:
        return iter(())


def _at_work(workers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a worker that is running at this moment; try for a short while."""
    for _ in range(_LOOKS):
        for worker in workers:
            with suppress(psutil.Error):
                if psutil.Process(worker["pid"]).status() == psutil.STATUS_RUNNING:
                    return worker
    return None

"""Finds out whether the kernel killed a worker for lack of memory, from the kernel's counters.

The counters say how many processes were killed, not which. So each kill explains at most one death,
and only a death that was noticed soon after: a worker that somebody kills by hand tomorrow did not
run out of memory because another one did today.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.workers import cgroups

# Longest time from the kernel's kill to our noticing: freeing many gigabytes on a machine short of
# memory takes seconds.
WINDOW: Final = 10.0
# Reading the counters is cheap, but a pool has many heartbeats.
_APART: Final = 1.0


@dataclass(frozen=True, slots=True)
class Counters:
    """Kills for lack of memory so far: in our control group, and on the whole machine."""

    taken: float
    group: int | None
    machine: int | None


@dataclass(frozen=True, slots=True)
class Kills:
    """The counters before and after a death.

    `moved`: the kernel killed a process in between, and that kill explains no other death.
    """

    before: Counters
    after: Counters
    moved: bool

    @property
    def source(self) -> str:
        """Return which counter decides."""
        if self.after.group is not None:
            return "the oom_kill counter of its control group"
        return "the machine's oom_kill counter (/proc/vmstat)"

    def describe(self) -> str:
        """Return both counters in one line."""
        group = f"its control group {_change(self.before.group, self.after.group)}"
        return f"{group}, machine {_change(self.before.machine, self.after.machine)}"


class OomWatch:
    """Keeps the readings of the last seconds, and the deaths that they explained.

    `group` is the folder of the workers' memory control group; None: there is none.
    """

    def __init__(self, group: Path | None, proc: Path = cgroups.PROC) -> None:
        self._group = group
        self._proc = proc
        self._looks: deque[Counters] = deque()
        self._claims: deque[float] = deque()

    @classmethod
    def own(cls) -> OomWatch:
        """Return a watch on the group of this process, in which its children are, too."""
        memory = cgroups.find("memory")
        return cls(None if memory is None else memory.folder)

    def look(self, now: float) -> None:
        """Read the counters, unless they were read a moment ago."""
        if not self._looks or now - self._looks[-1].taken >= _APART:
            self._read(now)

    def kills(self, now: float, since: float, *, claim: bool) -> Kills:
        """Return what the counters say about a process that started at `since` and is dead.

        With `claim`, a kill that is found explains this death, and no other one.
        """
        after = self._read(now)
        before = self._before(since)
        claimed = sum(claim > before.taken for claim in self._claims)
        moved = _count(after) - _count(before) > claimed
        if moved and claim:
            self._claims.append(now)
        return Kills(before, after, moved)

    def _read(self, now: float) -> Counters:
        group = None if self._group is None else cgroups.oom_kills(self._group)
        counters = Counters(now, group, cgroups.machine_oom_kills(self._proc))
        self._looks.append(counters)
        self._forget(now - WINDOW)
        return counters

    def _before(self, moment: float) -> Counters:
        """Return the last reading at or before `moment`, or else the oldest that is kept."""
        earlier = [look for look in self._looks if look.taken <= moment]
        return earlier[-1] if earlier else self._looks[0]

    def _forget(self, horizon: float) -> None:
        """Forget readings before the last one before `horizon`, and claims that they cover."""
        while len(self._looks) > 1 and self._looks[1].taken <= horizon:
            self._looks.popleft()
        while self._claims and self._claims[0] <= self._looks[0].taken:
            self._claims.popleft()


def _count(counters: Counters) -> int:
    # A kill anywhere on the machine counts for the victim's group as well. So where the group's own
    # counter can be read, the machine's would only add deaths of other processes.
    return counters.machine or 0 if counters.group is None else counters.group


def _change(before: int | None, after: int | None) -> str:
    if after is None:
        return "unknown"
    return f"{after} (unchanged)" if before == after else f"{before} → {after}"

"""Those who wait for workers: answered when all wanted are ready, or when one cannot start.

It asks the scheduler how its groups stand, and only when something about workers has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.statistics import GroupStatistics
from penstock.hub.connection import RankConnection
from penstock.hub.reports import breaker_report
from penstock.wire.messages import Refused, Resized


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One request that is to be answered when a group is complete."""

    connection: RankConnection
    request: int
    group: str


class ReadyWaiters:
    """Requests that wait for workers."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: RankConnection, request: int, group: str) -> None:
        """Answer this request when the group is complete."""
        self._waiting.append(Waiting(connection, request, group))

    def waiting(self, connection: RankConnection) -> int:
        """How many requests of a connection wait."""
        return sum(waiting.connection is connection for waiting in self._waiting)

    def drop(self, connection: RankConnection) -> None:
        """Whoever asked is gone."""
        self._waiting = [w for w in self._waiting if w.connection is not connection]

    def look(self, groups: Iterable[GroupStatistics], stories: Mapping[str, str]) -> None:
        """Answers whoever can be answered now. `stories`: of the last death at start, by group."""
        standing = {group.group: group for group in groups}
        self._waiting = [w for w in self._waiting if not _answer(w, standing.get(w.group), stories)]


def _answer(waiting: Waiting, group: GroupStatistics | None, stories: Mapping[str, str]) -> bool:
    if group is None:  # nobody wants it any more
        waiting.connection.send(Resized(request=waiting.request, workers=0))
        return True
    if group.ready >= group.wanted:
        waiting.connection.send(Resized(request=waiting.request, workers=group.ready))
        return True
    if group.breaker_open:
        report = breaker_report(group.group, group.cause, stories.get(group.group, ""))
        waiting.connection.send(Refused(request=waiting.request, report=report))
        return True
    return False

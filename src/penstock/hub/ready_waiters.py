"""Requests that wait for workers: answered when all wanted ones are ready, or none can start.

The scheduler's groups are looked at only when something about workers has changed.
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
    """One request that is answered when all workers of a group are ready."""

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
        """Answer this request when all workers of the group are ready."""
        self._waiting.append(Waiting(connection, request, group))

    def waiting(self, connection: RankConnection) -> int:
        """Return how many requests of a connection are waiting."""
        return sum(waiting.connection is connection for waiting in self._waiting)

    def drop(self, connection: RankConnection) -> None:
        """Remove the requests of a connection that is gone."""
        self._waiting = [w for w in self._waiting if w.connection is not connection]

    def look(self, groups: Iterable[GroupStatistics], stories: Mapping[str, str]) -> None:
        """Answer the requests that can be answered now.

        Args:
            groups: The statistics of all groups.
            stories: By group, the autopsy of the last worker that died before it was ready.
        """
        standing = {group.group: group for group in groups}
        self._waiting = [w for w in self._waiting if not _answer(w, standing.get(w.group), stories)]


def _answer(waiting: Waiting, group: GroupStatistics | None, stories: Mapping[str, str]) -> bool:
    if group is None:  # the group was removed
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

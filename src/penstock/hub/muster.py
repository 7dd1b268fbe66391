"""Those who wait for workers: answered when all wanted are ready, or when one cannot start.

It asks the scheduler how its crews stand, and only when something about workers has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.statistics import CrewStatistics
from penstock.hub.connection import Connection
from penstock.hub.reports import breaker_report
from penstock.wire.messages import Refused, Resized


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One request that is to be answered when a crew is complete."""

    connection: Connection
    request: int
    crew: str


class Muster:
    """Requests that wait for workers."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Connection, request: int, crew: str) -> None:
        """Answer this request when the crew is complete."""
        self._waiting.append(Waiting(connection, request, crew))

    def waiting(self, connection: Connection) -> int:
        """How many requests of a connection wait."""
        return sum(waiting.connection is connection for waiting in self._waiting)

    def drop(self, connection: Connection) -> None:
        """Whoever asked is gone."""
        self._waiting = [w for w in self._waiting if w.connection is not connection]

    def look(self, crews: Iterable[CrewStatistics], stories: Mapping[str, str]) -> None:
        """Answers whoever can be answered now. `stories`: of the last death at start, by crew."""
        standing = {crew.crew: crew for crew in crews}
        self._waiting = [w for w in self._waiting if not _answer(w, standing.get(w.crew), stories)]


def _answer(waiting: Waiting, crew: CrewStatistics | None, stories: Mapping[str, str]) -> bool:
    if crew is None:  # nobody wants it any more
        waiting.connection.send(Resized(request=waiting.request, workers=0))
        return True
    if crew.ready >= crew.wanted:
        waiting.connection.send(Resized(request=waiting.request, workers=crew.ready))
        return True
    if crew.breaker_open:
        report = breaker_report(crew.crew, crew.cause, stories.get(crew.crew, ""))
        waiting.connection.send(Refused(request=waiting.request, report=report))
        return True
    return False

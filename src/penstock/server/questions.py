"""Who answers what ranks ask: one visit for each session that asks. The door has two verbs too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy.typing as npt

from penstock.server import verbs
from penstock.server.dist_server import DistServer
from penstock.wire.messages import Call
from penstock.wire.payload import Arrays

Answered: TypeAlias = tuple[Any, Mapping[str, npt.NDArray[Any]]]

PING: Final = "ping"  # answered at once: whether anybody listens
STATISTICS: Final = "server_statistics"
# Why a session is over that its rank has ended; any other reason is a loss.
GOODBYE: Final = "goodbye"

_numbers: Final = itertools.count(1)  # of visits


class Visit(Protocol):
    """One session's questions; several threads may ask at once."""

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """Plain data and arrays; or raises what the rank is to raise."""

    def end(self, reason: str) -> None:
        """The session is over: whatever it has made is let go of."""


Visits: TypeAlias = Callable[[], Visit]


class StoreVisit:
    """A visit to a `DistServer`."""

    def __init__(self, store: DistServer) -> None:
        self._store = store
        self._number = next(_numbers)

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """What the verb of this name comes to."""
        return verbs.answer(self._store, call, arrays, self._number)

    def end(self, reason: str) -> None:
        """What it made goes."""
        verbs.farewell(self._store, self._number)

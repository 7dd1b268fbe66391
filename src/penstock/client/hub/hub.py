"""A hub as its users see it: an address, a graph, and connections to whichever boot of it is up.

Channels need only what a `Provider` has. A server on another host is a `Provider`, too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.hub.connection import Answer, HubConnection, Request
from penstock.client.hub.hub_config import checked_workers
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.graph.view import GraphView
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import PATIENCE_S
from penstock.wire.messages import AskStatistics, Resize, Resized, Statistics

if TYPE_CHECKING:
    from penstock.client.channel.registration import Registration
    from penstock.client.channel.session import AnySession

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5


_Reached = TypeVar("_Reached")


class Provider(ABC):
    """Something that provides batches: a hub, or a server on another host.

    Attributes:
        address: Where it is reached.
        graph: The graph that it serves.
        patience: Seconds to wait for it to come back after it was lost.
    """

    address: str
    graph: GraphView
    patience: float = PATIENCE_S

    @abstractmethod
    def open_session(
        self, registration: Registration, deadline: Deadline, patience: Deadline
    ) -> AnySession:
        """Register a channel with whichever boot answers, and return the session."""

    def known_as(self, name: str) -> tuple[str, int]:
        """Return the job and process by which the hub knows a channel of this process.

        Args:
            name: The channel's name in this process.
        """
        return name, os.getpid()

    def persist(
        self,
        attempt: Callable[[Deadline], _Reached],
        deadline: Deadline,
        patience: Deadline | None = None,
    ) -> _Reached:
        """Try until an attempt succeeds, and return its result.

        Args:
            attempt: Called with the deadline of one attempt.
            deadline: When this call must end.
            patience: When to give up for good. It runs since the provider was lost; if None, from
                now.

        Raises:
            HubGone: Patience has ended, or it is known that the provider will not come back.
            TimeoutError: The deadline has passed.
        """
        patience = patience or Deadline(self.patience)
        self.check_hope()
        for pause in _pauses():
            try:
                return attempt(Deadline(self.patience).or_sooner(deadline))
            except (ConnectionError, TimeoutError) as error:
                self.check(deadline, patience, error)
            self.pause(pause, deadline)
        raise AssertionError("pauses never end")

    def check(self, deadline: Deadline, patience: Deadline, error: Exception) -> None:
        """Raise if it is time to stop trying: `HubGone` for good, `TimeoutError` for this call."""
        self.check_hope()
        if patience.passed and not self.coming:
            raise self.gone(error) from error
        if deadline.passed:
            raise TimeoutError(f"no hub answers at {self.address} yet: {error}") from error

    @abstractmethod
    def gone(self, error: Exception) -> HubGone:
        """Return the error to raise when patience has ended; `error` is the last failure."""

    @abstractmethod
    def check_hope(self) -> None:
        """Raise `HubGone` if it is known that the provider will not come back."""

    @property
    def coming(self) -> bool:
        """Whether another boot is known to be starting; then patience need not end."""
        return False

    @abstractmethod
    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Wait for that many seconds, or until something has changed."""

    def note_progress(self) -> None:  # noqa: B027 - only owners count failures
        """Note that a batch came: earlier failures no longer count."""

    @abstractmethod
    def close(self) -> None:
        """Release the provider; end it if this process owns it. Idempotent."""

    @abstractmethod
    def statistics(self, timeout: float | None = 30.0) -> dict[str, Any]:
        """Return the hub's statistics."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: send its address, "
            "and call penstock.connect(address) over there"
        )


class Hub(Provider):
    """A hub on this host, whose graph is mapped into this process."""

    graph: Graph

    def reach(self, deadline: Deadline, patience: Deadline | None = None) -> HubConnection:
        """Return a connection once a boot of the hub answers; see `persist`."""
        return self.persist(self._open, deadline, patience)

    def _open(self, deadline: Deadline) -> HubConnection:
        return HubConnection.open(self.address, deadline)

    def open_session(
        self, registration: Registration, deadline: Deadline, patience: Deadline
    ) -> AnySession:
        """Register a channel with whichever boot of the hub answers, and return the session."""
        return registration.open_session(self, deadline, patience)

    def gone(self, error: Exception) -> HubGone:
        """Return the error to raise when patience has ended."""
        return HubGone(f"no hub answers at {self.address}: {error}")

    def statistics(self, timeout: float | None = 30.0) -> dict[str, Any]:
        """Return the hub's statistics.

        Args:
            timeout: Seconds to wait. None: no limit.
        """
        return self._ask(AskStatistics(request=0), Statistics, Deadline(timeout)).numbers

    def resize(self, num_workers: int, timeout: float | None = 60.0) -> int:
        """Change the size of the pool; return the number of workers when all of them are ready.

        Args:
            num_workers: The number of workers.
            timeout: Seconds to wait. None: no limit.
        """
        workers = checked_workers(num_workers, 0, "a number of workers")
        request = Resize(request=0, workers=workers)
        return self._ask(request, Resized, Deadline(timeout)).workers

    def _ask(self, request: Request, answer: type[Answer], deadline: Deadline) -> Answer:
        """Ask whichever boot of the hub is up; if it dies before it answers, ask the next one."""
        patience = Deadline(self.patience)
        while True:
            connection = self.reach(deadline, patience)
            try:
                return connection.ask(request, answer, deadline)[0]
            except ConnectionError as error:
                self.check(deadline, patience, error)
            finally:
                connection.close()


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)

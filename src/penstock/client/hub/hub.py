"""A hub as its users see it: an address, a graph, a way to reach it that outlives its deaths.

What a channel needs of it is what a `Provider` has: a server on another host is one, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.deadline import Deadline
from penstock.client.hub.connection import Answer, HubConnection, Request
from penstock.client.hub.hub_config import checked_workers
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.graph.view import GraphView
from penstock.wire.messages import AskStatistics, Resize, Resized, Statistics

if TYPE_CHECKING:
    from penstock.client.channel.registration import Registration
    from penstock.client.channel.session import AnySession

# How long a rank waits for a hub that has died to come back.
PATIENCE_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5


_Reached = TypeVar("_Reached")


class Provider(ABC):
    """Something that batches come from. `graph` is the one it serves."""

    address: str
    graph: GraphView
    patience: float = PATIENCE_S

    @abstractmethod
    def enroll(
        self, registration: Registration, deadline: Deadline, patience: Deadline
    ) -> AnySession:
        """A session for a channel, with whichever boot of it answers."""

    def persist(
        self,
        attempt: Callable[[Deadline], _Reached],
        deadline: Deadline,
        patience: Deadline | None = None,
    ) -> _Reached:
        """What an attempt comes to, once somebody answers. `HubGone` when patience ends, or hope.

        `patience` runs since it was lost; without it, it begins now.
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
        """Raises if it is time to give up trying: for good, or for this call."""
        self.check_hope()
        if patience.passed and not self.coming:
            raise self.gone(error) from error
        if deadline.passed:
            raise TimeoutError(f"nobody answers at {self.address} yet: {error}") from error

    @abstractmethod
    def gone(self, error: Exception) -> HubGone:
        """What to say when patience has ended; `error` is what went wrong last."""

    @abstractmethod
    def check_hope(self) -> None:
        """`HubGone` if it is known that it will not come back."""

    @property
    def coming(self) -> bool:
        """Whether it is known that another one is being started: then patience need not end."""
        return False

    @abstractmethod
    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Waits so long, or until there is news."""

    def note_progress(self) -> None:  # noqa: B027 - of no interest to those who do not own it
        """A batch came: whatever went wrong before is behind us."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of it; ends it if it is ours. Idempotent."""

    @abstractmethod
    def statistics(self, timeout: float | None = 30.0) -> dict[str, Any]:
        """The hub's numbers."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: send its address, "
            "and call penstock.connect(address) over there"
        )


class Hub(Provider):
    """A hub on this host, whose graph is mapped here."""

    graph: Graph

    def reach(self, deadline: Deadline, patience: Deadline | None = None) -> HubConnection:
        """A connection, once somebody answers; see `persist`."""
        return self.persist(self._open, deadline, patience)

    def _open(self, deadline: Deadline) -> HubConnection:
        return HubConnection.open(self.address, deadline)

    def enroll(
        self, registration: Registration, deadline: Deadline, patience: Deadline
    ) -> AnySession:
        """A session for a channel, with whichever boot of the hub answers."""
        return registration.enroll(self, deadline, patience)

    def gone(self, error: Exception) -> HubGone:
        """What to say when patience has ended."""
        return HubGone(f"no hub answers at {self.address}: {error}")

    def statistics(self, timeout: float | None = 30.0) -> dict[str, Any]:
        """The hub's numbers."""
        return self._ask(AskStatistics(request=0), Statistics, Deadline(timeout)).numbers

    def resize(self, num_workers: int, timeout: float | None = 60.0) -> int:
        """Gives the pool another size; returns when so many workers are ready."""
        workers = checked_workers(num_workers, 0, "a number of workers")
        request = Resize(request=0, workers=workers)
        return self._ask(request, Resized, Deadline(timeout)).workers

    def _ask(self, request: Request, answer: type[Answer], deadline: Deadline) -> Answer:
        """Asks whichever boot of the hub is there; another one, if it dies over it."""
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

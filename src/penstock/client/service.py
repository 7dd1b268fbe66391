"""A connection that holds a backend open at a hub, from before its first channel to its last."""

from __future__ import annotations

from penstock.client.connection import Connection
from penstock.client.deadline import Deadline
from penstock.client.hub import Hub
from penstock.client.registration import create_backend
from penstock.sampling.spec import Spec
from penstock.wire.messages import AskWorkers, Resized


class Service:
    """Asks for a way of sampling, and for the workers it needs."""

    def __init__(self, hub: Hub, spec: Spec, workers: int | None) -> None:
        self._hub = hub
        self._spec = spec
        self._workers = workers
        self._connection: Connection | None = None

    def wait_for_workers(self, timeout: float) -> int:
        """Returns when all are ready, with their number; or raises why they are not."""
        deadline = Deadline(timeout)
        while True:
            self.close()
            self._connection = connection = self._hub.reach(deadline)
            try:
                return self._ask(connection, deadline)
            except ConnectionError as error:  # the hub died meanwhile; another will come
                self._hub.check(deadline, deadline, error)
            except TimeoutError:
                raise TimeoutError(
                    f"not all workers were ready within {timeout:g} s (setting: start_timeout)"
                ) from None

    def close(self) -> None:
        """Lets go of the backend. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, connection: Connection, deadline: Deadline) -> int:
        graph = self._hub.graph
        backend = create_backend(connection, self._spec, graph, self._workers, deadline)
        request = AskWorkers(request=0, backend=backend)
        return connection.ask(request, Resized, deadline)[0].workers

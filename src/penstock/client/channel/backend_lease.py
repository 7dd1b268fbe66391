"""A connection that keeps a backend open at a hub, from before its first channel to its last."""

from __future__ import annotations

from typing import Final

from penstock.client.channel.registration import create_backend
from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import Hub
from penstock.errors import PenstockError
from penstock.rpc.deadline import Deadline
from penstock.sampling.spec import Spec
from penstock.wire.messages import AskWorkers, Resized

# Seconds to wait for the hub's statistics, for an error that names the workers that are late.
_LAST_WORD_S: Final = 1.0


class BackendLease:
    """Creates a backend at a hub, and waits for the workers that it needs."""

    def __init__(self, hub: Hub, spec: Spec, workers: int | None) -> None:
        self._hub = hub
        self._spec = spec
        self._workers = workers
        self._connection: HubConnection | None = None

    def wait_for_workers(self, deadline: Deadline) -> int:
        """Wait until all workers are ready, and return their number; raise why they are not."""
        while True:
            self.close()
            self._connection = connection = self._hub.reach(deadline)
            try:
                return self._ask(connection, deadline)
            except ConnectionError as error:  # the hub died meanwhile; another will follow
                self._hub.check(deadline, deadline, error)
            except TimeoutError:
                message = "not all workers were ready in time (setting: start_timeout)"
                raise TimeoutError("; ".join([message, *self._late()])) from None

    def close(self) -> None:
        """Release the backend. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _late(self) -> list[str]:
        """Describe the workers that are not ready, if the hub still answers."""
        try:
            workers = self._hub.statistics(_LAST_WORD_S)["pool"]["workers"]
        except (PenstockError, OSError):
            return []
        late = (worker for worker in workers if worker["state"] == "starting")
        return [
            f"worker {worker['worker']} (pid {worker['pid']}) has been starting for "
            f"{worker['age']:.1f} s"
            for worker in late
        ]

    def _ask(self, connection: HubConnection, deadline: Deadline) -> int:
        graph = self._hub.graph
        backend = create_backend(connection, self._spec, graph, self._workers, deadline)
        request = AskWorkers(request=0, backend=backend)
        return connection.ask(request, Resized, deadline)[0].workers

"""A hub that this process owns: a child process that ends with it, and is replaced when it dies."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from typing import Final, Literal, Self, Unpack

from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_config import HubConfigSource
from penstock.client.hub.supervisor import HubPhase, Supervisor
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.option_types import PoolKeywords
from penstock.rpc.deadline import Deadline, positive_seconds
from penstock.rpc.server import PATIENCE_S
from penstock.wire.transport.unix import socket_address
from penstock.workers.restraints import is_worker

# How often in a row a hub may die, without a batch in between, before the supervisor gives up.
RESTARTS: Final = 5
START_TIMEOUT_S: Final = 60.0


class HubProcess(Hub):
    """A hub for `graph`, with a pool of workers. Nothing runs before `start()`.

    Beside these arguments it takes the settings of a pool, such as `worker_concurrency`
    (`penstock.option_types.PoolKeywords`, docs/options.md).

    Args:
        graph: The graph to serve.
        num_workers: A number, or "auto" for as many as the machine has room for.
        address: Where other processes can join the hub (`penstock.connect`). By default it is a
            unique name without a file. If an earlier hub was killed and left its socket file, the
            new one takes the file over.
        restarts: How often in a row a hub may die, without a batch in between.
        start_timeout: Seconds in which each hub must come up.
        patience: Seconds that channels wait for a hub to come back.

    Raises:
        ValueError: An argument is not valid; the error names it.
        TypeError: There is no such option.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.HubProcess(graph, num_workers=1) as hub:
        ...     loader = ps.NeighborLoader(hub, [2], "train", batch_size=2, seed=0)
        ...     with loader, ps.connect(hub.address) as joined:  # as another process would
        ...         print([batch.n_id.tolist() for batch in loader], joined.graph.num_nodes())
        [[0, 2, 1]] 3
    """

    def __init__(
        self,
        graph: Graph,
        num_workers: int | Literal["auto"] = "auto",
        *,
        address: str | None = None,
        restarts: int = RESTARTS,
        start_timeout: float = START_TIMEOUT_S,
        patience: float = PATIENCE_S,
        **options: Unpack[PoolKeywords],
    ) -> None:
        self.graph = graph
        self.address = address or f"unix://@penstock-{uuid.uuid4().hex}"
        socket_address(self.address)  # raises if it is not a valid address
        self.patience = positive_seconds(patience, "patience")
        self._config_source = HubConfigSource(graph, self.address, num_workers, options)
        self._restarts = restarts
        self._start_timeout = positive_seconds(start_timeout, "start_timeout")
        self._owner = os.getpid()
        self._starting = threading.RLock()  # reentrant: a signal handler may close during start
        self._supervisor: Supervisor | None = None
        self._closed = False

    def start(self) -> None:
        """Start the hub, and return when it can be joined. Idempotent.

        Raises:
            HubGone: The hub could not be started, with the cause.
        """
        self._check_process()
        if is_worker():
            # Each worker imports the script that defines a sampler. If that started another pool,
            # there would be no end of pools.
            raise RuntimeError(
                "a worker cannot start a pool: put what your script does when it is run "
                "under `if __name__ == '__main__':`"
            )
        with self._starting:
            self._check_open()
            supervisor = self._supervisor = self._supervisor or self._kept()
            if self._closed:  # close() was called meanwhile
                supervisor.stop()
        supervisor.wait_for(lambda now: now.phase is not HubPhase.STARTING, Deadline(None))
        self.check_hope()

    def _kept(self) -> Supervisor:
        supervisor = Supervisor(
            self._config_source, restarts=self._restarts, start_timeout=self._start_timeout
        )
        # At exit, supervisors stop their hubs themselves, and wait for it. The garbage collector
        # may run this anywhere, where waiting could be for ever: so it only asks.
        weakref.finalize(self, supervisor.ask_to_stop).atexit = False
        return supervisor

    def check_hope(self) -> None:
        """Raise `HubGone` if the supervisor has given up, was asked to stop, or was not started."""
        self._check_process()
        supervisor = self._supervisor
        if supervisor is None:
            raise HubGone("the hub was closed" if self._closed else "the hub was not started")
        state = supervisor.state
        if state.phase is HubPhase.GONE:
            raise HubGone(f"the hub is gone: {state.cause}")
        if state.phase is HubPhase.STOPPED:
            raise HubGone("the hub was closed")

    @property
    def coming(self) -> bool:
        """Whether the supervisor is starting another hub."""
        return self._supervisor is not None and self._supervisor.state.phase is HubPhase.STARTING

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Wait until another hub is up.

        If the supervisor believes that the current one is up, wait for news of it, at most
        `seconds`.
        """
        if (supervisor := self._supervisor) is None:
            return
        before = supervisor.state
        if before.phase is not HubPhase.STARTING:
            supervisor.wait_for(
                lambda now: now is not before, Deadline(seconds).or_sooner(deadline)
            )
        supervisor.wait_for(lambda now: now.phase is not HubPhase.STARTING, deadline)

    def note_progress(self) -> None:
        """Note that a batch came: deaths are counted from zero again."""
        if (supervisor := self._supervisor) is not None:
            supervisor.served = True

    @property
    def num_workers(self) -> int:
        """How many workers the pool is to have."""
        return self._config_source.workers

    def resize(self, num_workers: int, timeout: float | None = 60.0) -> int:
        """Change the size of the pool, also for later hubs; return when all workers are ready.

        Args:
            num_workers: The number of workers.
            timeout: Seconds to wait. None: no limit.
        """
        resized = super().resize(num_workers, timeout)
        self._config_source.workers = int(num_workers)
        return resized

    @property
    def pid(self) -> int | None:
        """The process id of the hub that is up; None if none is."""
        return None if self._supervisor is None else self._supervisor.state.pid

    def close(self) -> None:
        """End the hub and its workers: ask first, then kill. Idempotent, in bounded time."""
        if os.getpid() != self._owner:
            return  # in a fork: the hub belongs to the parent
        with self._starting:
            self._closed = True
            supervisor = self._supervisor
        if supervisor is not None:
            supervisor.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        phase = "not started" if self._supervisor is None else self._supervisor.state.phase.value
        return f"<HubProcess at {self.address}, {self.num_workers} workers, {phase}>"

    def _check_open(self) -> None:
        if self._closed:
            raise HubGone("the hub was closed")

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this hub belongs to process {self._owner}, and does not survive a fork: "
                "call penstock.connect(hub.address) here, or start processes by 'spawn'"
            )

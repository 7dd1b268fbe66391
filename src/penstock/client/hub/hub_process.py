"""A hub of one's own: a child process that ends with this one, and is replaced when it dies."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from typing import Final, Literal, Self, Unpack

from penstock.client.deadline import Deadline, positive_seconds
from penstock.client.hub.hub import PATIENCE_S, Hub
from penstock.client.hub.hub_config import HubConfigSource
from penstock.client.hub.supervisor import HubPhase, Supervisor
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.option_types import PoolKeywords
from penstock.wire.transport.unix import socket_address
from penstock.workers.restraints import is_worker

# How often in a row a hub may die, without a batch in between, before it is given up.
RESTARTS: Final = 5
START_TIMEOUT_S: Final = 60.0


class HubProcess(Hub):
    """A hub for `graph`, with a pool of workers. Nothing runs before `start()`.

    `address` is where other processes can join it (`penstock.connect`); without one it gets a name
    that nobody else has, and no file. The file of one that was killed is taken over by the next.
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
        socket_address(self.address)  # complains of one that is none
        self.patience = positive_seconds(patience, "patience")
        self._config_source = HubConfigSource(graph, self.address, num_workers, options)
        self._restarts = restarts
        self._start_timeout = positive_seconds(start_timeout, "start_timeout")
        self._owner = os.getpid()
        self._starting = threading.RLock()  # a signal's handler may close what is starting
        self._supervisor: Supervisor | None = None
        self._closed = False

    def start(self) -> None:
        """Starts the hub; returns when it can be joined. Idempotent. `HubGone` with the cause."""
        self._check_process()
        if is_worker():
            # A script that holds a sampler is imported by each worker: without end, if that
            # started another pool.
            raise RuntimeError(
                "a worker cannot start a pool: put what your script does when it is run "
                "under `if __name__ == '__main__':`"
            )
        with self._starting:
            self._check_open()
            supervisor = self._supervisor = self._supervisor or self._kept()
            if self._closed:  # meanwhile
                supervisor.stop()
        supervisor.wait_for(lambda now: now.phase is not HubPhase.STARTING, Deadline(None))
        self.check_hope()

    def _kept(self) -> Supervisor:
        supervisor = Supervisor(
            self._config_source, restarts=self._restarts, start_timeout=self._start_timeout
        )
        # At exit keepers see to it themselves, and wait. From the garbage collector, which may be
        # called anywhere, waiting could be for ever.
        weakref.finalize(self, supervisor.ask_to_stop).atexit = False
        return supervisor

    def check_hope(self) -> None:
        """`HubGone` once the keeper has given up, or was asked to end."""
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
        """Whether the keeper is starting another one."""
        return self._supervisor is not None and self._supervisor.state.phase is HubPhase.STARTING

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Until another hub is up; so many seconds, if the keeper thinks that this one is."""
        if (supervisor := self._supervisor) is None:
            return
        before = supervisor.state
        if before.phase is not HubPhase.STARTING:
            supervisor.wait_for(
                lambda now: now is not before, Deadline(seconds).or_sooner(deadline)
            )
        supervisor.wait_for(lambda now: now.phase is not HubPhase.STARTING, deadline)

    def note_progress(self) -> None:
        """Deaths from now on count anew."""
        if (supervisor := self._supervisor) is not None:
            supervisor.served = True

    @property
    def num_workers(self) -> int:
        """How many workers the pool is to have."""
        return self._config_source.workers

    def resize(self, num_workers: int, timeout: float | None = 60.0) -> int:
        """Gives the pool another size, also for hubs to come; returns when it has it."""
        resized = super().resize(num_workers, timeout)
        self._config_source.workers = int(num_workers)
        return resized

    @property
    def pid(self) -> int | None:
        """The process id of the hub that is up now, if one is."""
        return None if self._supervisor is None else self._supervisor.state.pid

    def close(self) -> None:
        """Ends the hub and its workers: asks, then kills. Idempotent, within a bound."""
        if os.getpid() != self._owner:
            return  # it is the parent's
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

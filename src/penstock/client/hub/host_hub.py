"""One hub for all ranks of a job on this host: the first of them starts it, the others join.

A store is read through a hub, which has workers, connections to all servers, and a cache of rows.
Ranks that torchrun started on one host share these, and need not be told where: the hub's address
follows from the job and the store. The rank that started it keeps it. If it ends before others have
read all, these start hubs of their own, and go on: batches are pure.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_process import HubProcess
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import PATIENCE_S

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.05
_ATTEMPT_S: Final = 5.0
# Seconds after which a hub that does not answer counts as gone: a new one starts sooner.
_MISSED_S: Final = 3.0
# What torchrun says about a job; all of it must be there.
_JOB: Final = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")


@dataclass(frozen=True, slots=True)
class HostJob:
    """The ranks of a job on this host: a name for them, and whether this is the first."""

    name: str
    is_first: bool

    @classmethod
    def found(cls, environment: Mapping[str, str] = os.environ) -> HostJob | None:
        """Return the job that torchrun started here; None unless it has several ranks here."""
        if not environment.get("LOCAL_WORLD_SIZE", "").isdecimal():
            return None
        if int(environment["LOCAL_WORLD_SIZE"]) < 2 or any(
            name not in environment for name in _JOB
        ):
            return None
        name = " ".join(environment[word] for word in _JOB[:3])
        restart = environment.get("TORCHELASTIC_RESTART_COUNT", "")
        return cls(f"{name} {restart}", environment["LOCAL_RANK"] == "0")

    def address(self, store: str) -> str:
        """Return where the hub of a store listens for the ranks of this job.

        Args:
            store: Identifies the store, and how it is read.
        """
        words = f"{os.getuid()} {self.name} {store}"
        return f"unix://@penstock-{hashlib.blake2b(words.encode(), digest_size=16).hexdigest()}"


class HostHub(Hub):
    """The hub that another rank of this job and host has started; if it has gone, one of our own.

    Args:
        graph: The graph in parts, as this rank has it.
        address: Where the hub of the job listens.
        num_workers: Workers of a hub of our own.
        patience: Seconds that channels wait for a hub to come back.
    """

    def __init__(self, graph: Graph, address: str, num_workers: int, patience: float) -> None:
        self.graph = graph
        self.address = address
        self.patience = patience
        self._num_workers = num_workers
        self._own: HubProcess | None = None
        self._missed_since: float | None = None
        self._taking_over = threading.Lock()

    def check_hope(self) -> None:
        """Raise `HubGone` if a hub of our own will not come back; another rank's may."""
        if self._own is not None:
            self._own.check_hope()

    @property
    def coming(self) -> bool:
        """Whether a hub is known to be starting; one of our own will be, if the other is gone."""
        return self._own is None or self._own.coming

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Wait for a moment; start a hub of our own if the other has been missed for long."""
        if self._own is not None:
            self._own.pause(seconds, deadline)
            return
        now = time.monotonic()
        self._missed_since = self._missed_since or now
        if now - self._missed_since < _MISSED_S:
            time.sleep(Deadline(seconds).or_sooner(deadline).remaining or 0.0)
        else:
            self.take_over()

    def take_over(self) -> None:
        """Start a hub of our own, and read from it from now on."""
        with self._taking_over:
            if self._own is None:
                log.warning("the hub of this job and host has gone: this rank starts its own")
                own = HubProcess(self.graph, self._num_workers, patience=self.patience)
                own.start()
                self.address, self._own = own.address, own

    def note_progress(self) -> None:
        """Note that a batch came: the hub is there."""
        self._missed_since = None
        if self._own is not None:
            self._own.note_progress()

    @property
    def num_workers(self) -> int:
        """How many workers the pool is to have."""
        return self._num_workers

    def close(self) -> None:
        """End a hub of our own; that of another rank belongs to it. Idempotent."""
        if self._own is not None:
            self._own.close()


def hub_of_host(
    graph: Graph,
    num_workers: int,
    store: str,
    *,
    patience: float = PATIENCE_S,
    timeout: float | None = None,
) -> Hub:
    """Return the hub that this rank reads a store by: its own, or that of its job on this host.

    Args:
        graph: The graph in parts.
        num_workers: Workers of the hub, if it is started here.
        store: Identifies the store, and how it is read.
        patience: Seconds that channels wait for a hub to come back.
        timeout: Seconds to wait for the rank that is to start it; then this one starts its own.
    """
    job = HostJob.found()
    if job is None:
        return HubProcess(graph, num_workers, patience=patience)
    address = job.address(store)
    if job.is_first:
        hub = HubProcess(graph, num_workers, address=address, patience=patience)
        hub.start()
        return hub
    joined, deadline = HostHub(graph, address, num_workers, patience), Deadline(timeout)
    while True:
        try:
            HubConnection.open(address, Deadline(_ATTEMPT_S).or_sooner(deadline)).close()
            return joined
        except (ConnectionError, TimeoutError):
            if deadline.passed:
                joined.take_over()
                return joined
        time.sleep(_PAUSE_S)

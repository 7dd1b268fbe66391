"""One hub for all ranks of a job on this host: the first of them starts it, the others join.

A store is read through a hub, which has workers, connections to all servers, and a cache of rows.
Ranks that torchrun started on one host share these, and need not be told where: the hub's address
follows from the job and the store. The rank that started it keeps it; torchrun ends all ranks of a
host when one is lost.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import PATIENCE_S

_PAUSE_S: Final = 0.05
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
        timeout: Seconds to wait until the first rank has started it.

    Raises:
        HubGone: The first rank has not started it in time.
    """
    job = HostJob.found()
    if job is None:
        return HubProcess(graph, num_workers, patience=patience)
    address = job.address(store)
    if job.is_first:
        hub = HubProcess(graph, num_workers, address=address, patience=patience)
        hub.start()
        return hub
    deadline = Deadline(timeout)
    while True:
        try:
            return connect(address, timeout=deadline.remaining)
        except HubGone:
            if deadline.passed:
                raise
        time.sleep(_PAUSE_S)

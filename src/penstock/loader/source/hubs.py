"""Hubs that loaders share: one per graph and process, for as long as a loader has a lease on it.

Nothing runs before a loader reads. The pool has as many workers as the most demanding loader asked
for. The last loader to be closed, or dropped, takes the hub along; at exit it goes anyway. A fork
starts from nothing: what its parent has is not its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Literal

from penstock.client.hub.hub import Provider
from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.client.remote.endpoint import SCHEMES
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.loader.source import remote_dataset
from penstock.workers.limits import auto_workers


class Lease:
    """A claim to the hub of a graph, with at least so many workers. Dropping it gives it back."""

    def __init__(self, graph: Graph, num_workers: int | Literal["auto"]) -> None:
        workers = auto_workers() if num_workers == "auto" else num_workers
        self._tenancy = _tenancy_of(graph)
        self._tenancy.enter(self, workers)

    def hub(self) -> HubProcess:
        """The hub, started; another one, if the last was given up. `HubGone` with the cause."""
        return self._tenancy.hub()

    @property
    def num_workers(self) -> int:
        """How many workers the pool has, or will have."""
        return self._tenancy.workers

    def close(self) -> None:
        """Gives it back; the last one ends the hub, and waits for that. Idempotent."""
        self._tenancy.leave(self)


class _Tenancy:
    """One graph's hub, and those who have a lease."""

    def __init__(self, graph: Graph) -> None:
        self.workers = 0
        self._graph = graph
        self._hub: HubProcess | None = None
        # What is dropped without a word vanishes from it by itself.
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal's handler may close what is starting
        self._owner = os.getpid()

    def enter(self, lease: Lease, workers: int) -> None:
        with self._lock:
            self._leases.add(lease)
            self.workers = max(self.workers, workers)

    def leave(self, lease: Lease) -> None:
        if os.getpid() != self._owner:
            return  # a fork's copy; the parent goes on
        with self._lock:
            self._leases.discard(lease)
            if self._leases:
                return
            hub, self._hub, self.workers = self._hub, None, 0
        if hub is not None:
            hub.close()

    def hub(self) -> HubProcess:
        with self._lock:
            hub = self._hub
            if hub is None or _is_gone(hub):
                hub = self._hub = HubProcess(self._graph, self.workers)
        hub.start()
        if hub.num_workers < self.workers:
            hub.resize(self.workers)
        return hub


def _is_gone(hub: HubProcess) -> bool:
    try:
        hub.start()  # one that is there already is left as it is
    except HubGone:
        hub.close()
        return True
    return False


_LOCK: Final = threading.RLock()
_tenancies: weakref.WeakValueDictionary[tuple[int, int], _Tenancy] = weakref.WeakValueDictionary()
_joined: weakref.WeakValueDictionary[tuple[int, str], Provider] = weakref.WeakValueDictionary()


def _tenancy_of(graph: Graph) -> _Tenancy:
    key = os.getpid(), id(graph)  # which the tenancy keeps alive, so nobody else has its id
    with _LOCK:
        tenancy = _tenancies.get(key)
        if tenancy is None:
            tenancy = _tenancies[key] = _Tenancy(graph)
        return tenancy


def joined(address: str) -> Provider:
    """The hub or server at an address, joined once however many loaders read from it."""
    key = os.getpid(), address
    with _LOCK:
        hub = _joined.get(key)
        if hub is None:
            hub = _joined[key] = _join(address)
        return hub


def _join(address: str) -> Provider:
    if address.startswith(SCHEMES):
        return remote_dataset.connect(address).provider
    return connect(address)

"""Hubs that loaders share: one per graph and process, as long as a loader has a lease on it.

Nothing runs before a loader reads. The pool has as many workers as the most demanding loader asked
for. When the last loader is closed or dropped, the hub ends; at exit it ends anyway. A forked
process starts with no hubs: its parent's are not its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Literal

from penstock.client.hub.hub import Provider
from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.loader.source import remote_dataset
from penstock.rpc.endpoint import SCHEMES
from penstock.workers.limits import auto_workers


class Lease:
    """A claim to a graph's hub, with at least this many workers. Dropping it returns it."""

    def __init__(self, graph: Graph, num_workers: int | Literal["auto"]) -> None:
        workers = auto_workers() if num_workers == "auto" else num_workers
        self._tenancy = _tenancy_of(graph)
        self._tenancy.enter(self, workers)

    def hub(self) -> HubProcess:
        """Return the hub, started; a new one if the last was given up. Raises `HubGone`."""
        return self._tenancy.hub()

    @property
    def num_workers(self) -> int:
        """The number of workers that the pool has, or will have."""
        return self._tenancy.workers

    def close(self) -> None:
        """Return the lease; the last one ends the hub and waits for that. Idempotent."""
        self._tenancy.leave(self)


class _Tenancy:
    """One graph's hub, and its leases."""

    def __init__(self, graph: Graph) -> None:
        self.workers = 0
        self._graph = graph
        self._hub: HubProcess | None = None
        # A lease that is dropped without `close` disappears from it by itself.
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal handler may close what is starting
        self._owner = os.getpid()

    def enter(self, lease: Lease, workers: int) -> None:
        with self._lock:
            self._leases.add(lease)
            self.workers = max(self.workers, workers)

    def leave(self, lease: Lease) -> None:
        if os.getpid() != self._owner:
            return  # a copy in a forked process; the parent goes on
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
        hub.start()  # no effect if it runs already
    except HubGone:
        hub.close()
        return True
    return False


_LOCK: Final = threading.RLock()
_tenancies: weakref.WeakValueDictionary[tuple[int, int], _Tenancy] = weakref.WeakValueDictionary()
_joined: weakref.WeakValueDictionary[tuple[int, str, bool], Provider] = (
    weakref.WeakValueDictionary()
)


def _tenancy_of(graph: Graph) -> _Tenancy:
    key = os.getpid(), id(graph)  # the tenancy keeps the graph alive, so its id is unique
    with _LOCK:
        tenancy = _tenancies.get(key)
        if tenancy is None:
            tenancy = _tenancies[key] = _Tenancy(graph)
        return tenancy


def joined(address: str, *, part_only: bool = False) -> Provider:
    """Return the hub or server at an address, joined once for all loaders that read from it.

    Args:
        address: Where it is.
        part_only: Whether a server's own part of a graph is wanted, and not the store of all parts.
    """
    key = os.getpid(), address, part_only
    with _LOCK:
        hub = _joined.get(key)
        if hub is None:
            hub = _joined[key] = _join(address, part_only)
        return hub


def _join(address: str, part_only: bool) -> Provider:
    if address.startswith(SCHEMES):
        provider = remote_dataset.connect(address, part_only=part_only).provider
        assert provider is not None  # since workers were not asked for
        return provider
    return connect(address)

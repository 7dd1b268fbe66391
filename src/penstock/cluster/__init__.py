"""Penstock on Ray: a store that places its servers, starts them again, and is found by its name.

    penstock.cluster.up("products", "parts/", replicas=2)
    data = penstock.connect("ray:products")
    penstock.cluster.down("products")

Ray places actors, restarts them, and finds them by name; it moves no batch. `store` brings a store
up and down, `server_actor` is the parent of a `penstock serve` process, `directory` knows where
the servers are, `name` resolves "ray:NAME" for readers. Ray is imported when it is used: this
package can be imported without it.
"""

from __future__ import annotations

from penstock.cluster.plan import StorePlan
from penstock.cluster.states import ServerStatus, StoreStatus
from penstock.cluster.store import down, names, status, up

__all__ = ["ServerStatus", "StorePlan", "StoreStatus", "down", "names", "status", "up"]

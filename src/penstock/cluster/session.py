"""This process's connection to Ray, and what a store is called there.

Ray is imported here, and nowhere else in this package at import time. A process that is connected
already, such as a Ray task, is left as it is. One that is not is connected for as long as somebody
here needs it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from penstock.errors import PenstockError, suggestion

# All actors of all stores are in this namespace of Ray's: NAME, and NAME/part-0/replica-0, ….
NAMESPACE: Final = "penstock"
_HEAD: Final = "node:__internal_head__"
_REACH_S: Final = 5.0
# Ray's setting, and about as many seconds as it can take: decades.
_RECONNECT: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
_EVER_S: Final = 1_000_000_000

_lock = threading.Lock()
_users = 0
_ours = ""  # the id of the connection that `begin` has made; empty if there is none


def import_ray() -> Any:
    """Return the module `ray`; `PenstockError` that says how to install it."""
    try:
        import ray
    except ImportError:
        raise PenstockError("Ray is not installed: pip install 'penstock-gnn[ray]'") from None
    return ray


def begin(address: str | None = None) -> Any:
    """Connect this process to Ray, unless it is, and return the module `ray`; `end` follows.

    Args:
        address: The cluster; None: the one that RAY_ADDRESS names, or this host's.

    Raises:
        PenstockError: No Ray cluster can be reached.
    """
    global _users, _ours
    ray = import_ray()
    with _lock:
        if not ray.is_initialized():
            _check_reachable(address)
            try:
                with _outliving_ray():
                    ray.init(
                        address=address or "auto",
                        namespace=NAMESPACE,
                        log_to_driver=False,
                        configure_logging=False,
                    )
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise PenstockError(f"Ray cannot be connected to: {error}") from error
            _ours = _connection(ray)
        _users += 1
    return ray


def end() -> None:
    """Disconnect from Ray if `begin` has connected, and nobody else here needs it.

    The user may have disconnected meanwhile, and connected anew: that connection is theirs.
    """
    global _users, _ours
    ray = import_ray()
    with _lock:
        _users -= 1
        if _users == 0 and _ours:
            is_ours, _ours = _connection(ray) == _ours, ""
            if is_ours:
                ray.shutdown()


def _connection(ray: Any) -> str:
    """Return what tells this connection to Ray from others; empty if there is none."""
    if not ray.is_initialized():
        return ""
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"


@contextmanager
def session() -> Iterator[Any]:
    """Yield the module `ray`, connected."""
    ray = begin()
    try:
        yield ray
    finally:
        end()


@contextmanager
def _outliving_ray() -> Iterator[None]:
    """Have Ray leave this process alone if its control plane is lost: ranks read on without it.

    Ray would end every process that is connected, after a minute. It reads the setting when it is
    first connected, from an environment that nobody else is to see.
    """
    if _RECONNECT in os.environ:
        yield
        return
    os.environ[_RECONNECT] = str(_EVER_S)
    try:
        yield
    finally:
        del os.environ[_RECONNECT]


def _check_reachable(named: str | None) -> None:
    """Raise unless a cluster answers: Ray itself tries for minutes, and then ends the process."""
    from ray._private import services

    setting = "RAY_ADDRESS" if named is None else "ray"
    given, named = named or "auto", named or os.environ.get("RAY_ADDRESS", "")
    if "://" in named:
        raise PenstockError(
            f"{setting} is {named!r}, which is for Ray's client: name the cluster by HOST:6379, "
            "on one of its hosts"
        )
    try:
        address = services.canonicalize_bootstrap_address(given)
    except ConnectionError:
        address = None
    if not address:
        raise PenstockError(
            "no Ray cluster runs here: start one (ray start --head), join this host to one (ray "
            "start --address=HOST:6379), or name one in RAY_ADDRESS"
        )
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, ValueError) as error:
        raise PenstockError(f"no Ray cluster answers at {address}: {error}") from None


# --- names -----------------------------------------------------------------------------------


def server_name(store: str, part: int, replica: int) -> str:
    """Return the name of the actor that is the parent of a server."""
    return f"{store}/part-{part}/replica-{replica}"


def group_name(store: str, part: int) -> str:
    """Return the name of the placement group that has a place for each replica of a part."""
    return f"{NAMESPACE}/{store}/part-{part}"


def actor_names(ray: Any) -> list[str]:
    """Return the names of all actors of all stores, those that Ray is restarting included."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in named if each["namespace"] == NAMESPACE)


def store_names(ray: Any) -> list[str]:
    """Return the names of all stores."""
    return sorted({name.partition("/")[0] for name in actor_names(ray)})


def groups_of(ray: Any, store: str) -> dict[str, Mapping[str, Any]]:
    """Return the placement groups of a store that have not been removed, by their names."""
    table = ray.util.placement_group_table()
    return {
        each["name"]: each
        for each in table.values()
        if each["name"].startswith(f"{NAMESPACE}/{store}/") and each["state"] != "REMOVED"
    }


def directory_of(ray: Any, store: str) -> Any:
    """Return the directory of a store; ValueError, which names those that exist, if it is none."""
    try:
        return ray.get_actor(store, namespace=NAMESPACE)
    except ValueError:
        there = store_names(ray)
        if store in there:
            raise ValueError(
                f"name is {store!r}: that store is being taken down, or whoever did it was "
                f"interrupted: penstock down {store}"
            ) from None
        told = f"; there are {', '.join(there)}" if there else ", nor any other"
        near = suggestion(store, there)
        raise ValueError(f"name is {store!r}: Ray has no store of that name{told}{near}") from None


def at_head(ray: Any) -> dict[str, float]:
    """Return what an actor needs that is to be where Ray's control plane is, whatever is free."""
    return {_HEAD: 0.001} if _HEAD in ray.cluster_resources() else {}

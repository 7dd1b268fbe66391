"""What commands that connect to a server share: its address, and options for access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.hub.hub import Provider
    from penstock.client.remote.store_observer import StoreObserver
    from penstock.rpc.server import RemoteServer

_Command = TypeVar("_Command", bound=Callable[..., Any])


def access_options(command: _Command) -> _Command:
    """Add the options for a connection to a command."""
    for option in (
        click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for it."),
        click.option("--token", envvar="PENSTOCK_TOKEN", help="Where it wants one."),
        click.option("--server-name", help="The name in its certificate, if it has another."),
        click.option("--key", type=click.Path(path_type=Path), help="Its private key."),
        click.option(
            "--certificate", type=click.Path(path_type=Path), help="Your own, if it wants one."
        ),
        click.option(
            "--ca",
            type=click.Path(path_type=Path),
            envvar="PENSTOCK_CA",
            help="Who has signed its certificate: ca.pem.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def asked(address: str, access: dict[str, Any]) -> Iterator[RemoteServer]:
    """Connect to a server, for calls."""
    from penstock.rpc.deadline import Deadline
    from penstock.rpc.endpoint import Endpoint
    from penstock.rpc.server import RemoteServer

    endpoint = Endpoint.at(address, **_credentials(access))
    store = RemoteServer(endpoint, access["timeout"])
    try:
        store.connect(Deadline(access["timeout"]))
        yield store
    finally:
        store.close()


@contextmanager
def observed(addresses: Sequence[str], access: dict[str, Any]) -> Iterator[StoreObserver]:
    """Connect to all servers of a store that answer, to look at them."""
    from penstock.client.remote.store_observer import StoreObserver

    with StoreObserver(addresses, access["timeout"], **_credentials(access)) as observer:
        yield observer


def _credentials(access: dict[str, Any]) -> dict[str, Any]:
    names = ("ca", "certificate", "key", "server_name", "token")
    return {"name": "penstock", **{name: access[name] for name in names}}


@contextmanager
def reached(address: str, access: dict[str, Any]) -> Iterator[Provider]:
    """Connect to a server, a store of several, or a hub on this host, for batches."""
    from penstock.client.hub.joined import connect
    from penstock.client.remote.hub import RemoteHub
    from penstock.store.names import is_name, resolve

    if address.startswith("unix://"):
        with connect(address, timeout=access["timeout"]) as hub:
            yield hub
        return
    if is_name(address):
        with resolve(address, access["timeout"]) as name:
            given = {**access, **name.access}
            with _read_here(name.addresses, given, name.address_file) as hub_here:
                yield hub_here
        return
    addresses = [each.strip() for each in address.split(",") if each.strip()]
    if len(addresses) == 1:
        with asked(addresses[0], access) as server:
            outline = server.welcome.outline
            if outline is None or not outline.is_one_of_several:
                hub_there = RemoteHub(server)
                try:
                    yield hub_there
                finally:
                    hub_there.close()
                return
    with _read_here(addresses, access) as hub_here:
        yield hub_here


@contextmanager
def _read_here(
    addresses: Sequence[str], access: dict[str, Any], address_file: str = ""
) -> Iterator[Provider]:
    """Put batches of a store together in a hub of this process, with one worker."""
    from penstock.client.hub.hub_process import HubProcess
    from penstock.store.remote import graph_at
    from penstock.store.servers import StoreServers

    timeout = access["timeout"]
    servers = StoreServers.find(
        addresses,
        timeout=timeout,
        patience=timeout,
        address_file=address_file,
        **_credentials(access),
    )
    try:
        with graph_at(servers) as graph, HubProcess(graph, num_workers=1) as hub:
            yield hub
    finally:
        servers.close()

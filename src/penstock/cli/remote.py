"""What commands that speak to a server have in common: where it is, and how to get in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.hub import Provider
    from penstock.client.remote.store import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])


def access_options(command: _Command) -> _Command:
    """Adds the options of whoever connects."""
    for option in (
        click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for it."),
        click.option("--token", envvar="PENSTOCK_TOKEN", help="Where it wants one."),
        click.option(
            "--identity", type=click.Path(path_type=Path), help="Your own secret key, if needed."
        ),
        click.option("--key", help="Its public key: the file, or the 40 letters."),
    ):
        command = option(command)
    return command


@contextmanager
def asked(address: str, access: dict[str, Any]) -> Iterator[Store]:
    """A server, to ask questions of."""
    from penstock.client.deadline import Deadline
    from penstock.client.remote.door import Door
    from penstock.client.remote.store import Store

    door = Door.at(address, access["key"], access["identity"], access["token"], "penstock")
    store = Store(door, access["timeout"])
    try:
        store.connect(Deadline(access["timeout"]))
        yield store
    finally:
        store.close()


@contextmanager
def reached(address: str, access: dict[str, Any]) -> Iterator[Provider]:
    """A server, or a hub on this host, to have batches from."""
    from penstock.client.joined import connect
    from penstock.client.remote.hub import RemoteHub

    if address.startswith("unix://"):
        with connect(address, timeout=access["timeout"]) as hub:
            yield hub
        return
    with asked(address, access) as store:
        hub_there = RemoteHub(store)
        try:
            yield hub_there
        finally:
            hub_there.close()

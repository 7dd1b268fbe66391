"""Who may come in: what stands between the network and the door.

Here is the shape of it, and the plainest one there is: everybody on this host, and nobody else.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Protocol

import zmq

from penstock.wire.remote import Knock


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as far as the network knows. `user_id`: whom a key belongs to."""

    address: str = ""
    user_id: str | None = None


class Admission(Protocol):
    """Decides who may speak to a server."""

    @property
    def open_beyond_loopback(self) -> bool:
        """Whether strangers are kept out well enough for a server that others can reach."""

    def configure(self, context: zmq.Context[Any], router: zmq.Socket[Any]) -> None:
        """Sets the socket up, before it is bound."""

    def check(self, knock: Knock, peer: Peer) -> None:
        """Raises if this one may not come in; its words go to the rank."""

    def close(self) -> None:
        """Lets go of whatever this took. Idempotent."""


class LoopbackOnly:
    """Everybody who can reach the loopback address."""

    open_beyond_loopback = False

    def configure(self, context: zmq.Context[Any], router: zmq.Socket[Any]) -> None:
        """Nothing to set."""

    def check(self, knock: Knock, peer: Peer) -> None:
        """Nobody else gets here."""

    def close(self) -> None:
        """Nothing was taken."""


def check_reach(address: str, admission: Admission) -> None:
    """ValueError for an address that this admission is too weak for, or that is none."""
    host = host_of(address)
    if not admission.open_beyond_loopback and not is_loopback(host):
        raise ValueError(
            f"address is {address!r}, which other hosts can reach: give the server keys (curve=…), "
            "or allow plaintext by name (allow_plaintext=True); or bind to tcp://127.0.0.1"
        )


def host_of(address: str) -> str:
    """The host in tcp://host:port."""
    scheme, found, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not found or not colon or not host or not (port.isdigit() or port == "*"):
        raise ValueError(f"address is {address!r}; expected tcp://host:port (port 0: any)")
    return host.strip("[]")


def is_loopback(host: str) -> bool:
    """Whether only this host can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or *
        return False

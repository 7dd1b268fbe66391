"""Where a server is found, and how one gets in: an address, keys, a token."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

from penstock.wire.keys import KeyPair, new_pair, read_pair, read_public

SCHEME: Final = "tcp://"
_ADDRESS: Final = re.compile(r"tcp://(\[[^\]]+\]|[^:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Door:
    """`key` is the server's public key, with which all that is said is encrypted; without one
    nothing is. `identity` is our own pair; where none is given, one is made for each connection.
    `name` is for people."""

    address: str
    key: bytes | None = None
    identity: KeyPair | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    name: str = ""

    @classmethod
    def at(cls, address: str, key: Any, identity: Any, token: str | None, name: str = "") -> Door:
        """Of what users give: keys as text, or files that have them."""
        if identity is not None and key is None:
            raise ValueError("identity is given, but key, the server's own, is not")
        return cls(
            address,
            None if key is None else read_public(key),
            None if identity is None else read_pair(identity),
            token,
            name,
        )

    def __post_init__(self) -> None:
        parted(self.address)

    def lock(self, dealer: zmq.Socket[bytes]) -> None:
        """Has all that goes through a socket encrypted, if there is a key to do so."""
        if self.key is None:
            return
        pair = self.identity or new_pair()
        dealer.curve_serverkey = self.key
        dealer.curve_publickey, dealer.curve_secretkey = pair.public, pair.secret

    def check_name(self) -> None:
        """`ConnectionError` for a host that nobody knows; ZeroMQ would not say so."""
        host, port = parted(self.address)
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectionError(f"the host {host!r} is not known: {error}") from None

    def why_not(self, seconds: float) -> str:
        """Why nobody answers there, as far as the system can tell: asked after a failure."""
        try:
            socket.create_connection(parted(self.address), seconds).close()
        except TimeoutError:
            return f"nothing answered within {seconds:g} s"
        except OSError as error:
            return error.strerror or str(error)
        secured = "encrypted, with another key" if self.key else "encrypted: give its key"
        return f"somebody listens there, but ended the connection (perhaps it is {secured})"


def parted(address: str) -> tuple[str, int]:
    """Host and port; ValueError for what is no address."""
    match = _ADDRESS.fullmatch(str(address))
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise ValueError(f"address is {address!r}; expected 'tcp://host:port'")
    return match[1].strip("[]"), int(match[2])

"""Where a server is and how to connect to it: its address, the CA to trust, the token to send."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from penstock.rpc.deadline import Deadline
from penstock.wire.framing import poll
from penstock.wire.tcp_stream import ByteSocket
from penstock.wire.transport import tcp
from penstock.wire.transport.tls import (
    MOST_AT_ONCE,
    StrPath,
    TlsSocket,
    client_context,
    explained,
)

SCHEMES: Final = ("tcp://", "tls://")
# The environment variable that names the CA file, for users who give only an address.
CA_VARIABLE: Final = "PENSTOCK_CA"
# A server of which nothing is heard for so many seconds is gone: its process, or its host.
SILENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, and the credentials for it.

    Attributes:
        address: Where the server listens.
        tls: Which CA we trust, and our own certificate; if None, nothing is encrypted.
        server_name: The name in the server's certificate, if it is not the address's host.
        token: Sent to the server in `Hello`.
        name: Our name, for people to read.
    """

    address: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None
    token: str | None = field(default=None, repr=False)
    name: str = ""

    @classmethod
    def at(
        cls,
        address: str,
        *,
        ca: StrPath | None = None,
        certificate: StrPath | None = None,
        key: StrPath | None = None,
        server_name: str | None = None,
        token: str | None = None,
        name: str = "",
    ) -> Endpoint:
        """Make an endpoint from what users give.

        TLS is used for tls://… addresses, or if a CA or a certificate is given. `ca` is the file of
        the CA to trust; `certificate` and `key` are our own.
        """
        parsed = tcp.Address.parse(address)
        if key is not None and certificate is None:
            raise ValueError(
                "key is given, but certificate is not: key is the private key of your own "
                "certificate. (Keys of ZeroMQ's have gone: see 'Coming from CURVE keys' in "
                "docs/guides/serving.md)"
            )
        if parsed.is_encrypted and ca is None:
            ca = os.environ.get(CA_VARIABLE)
        wants_tls = parsed.is_encrypted or ca is not None or certificate is not None
        if server_name is not None and not wants_tls:
            raise ValueError(f"server_name is given, but {address} is not encrypted: use tls://")
        context = client_context(ca, certificate, key) if wants_tls else None
        scheme = tcp.ENCRYPTED if wants_tls else tcp.PLAIN
        return cls(
            str(tcp.Address(scheme, parsed.host, parsed.port)), context, server_name, token, name
        )

    def moved_to(self, address: str) -> Endpoint:
        """Return the endpoint of another server, with the same credentials and encryption."""
        parsed = tcp.Address.parse(address)
        scheme = tcp.PLAIN if self.tls is None else tcp.ENCRYPTED
        return replace(self, address=str(tcp.Address(scheme, parsed.host, parsed.port)))

    def __post_init__(self) -> None:
        tcp.Address.parse(self.address)

    def connect(self, deadline: Deadline) -> ByteSocket:
        """Return a connected socket, which does not block.

        Raises:
            ConnectionError: The connection failed, with the reason.
            TimeoutError: There was no answer in time; no reason is known.
            AccessDenied: One side does not trust the other's certificate.
        """
        address = tcp.Address.parse(self.address)
        connected = tcp.connect(address, deadline.remaining)
        try:
            tcp.notice_death(connected, SILENCE_S)
            return self._encrypted(connected, address, deadline) if self.tls else connected
        except BaseException:
            connected.close()
            raise

    def _encrypted(
        self, connected: socket.socket, address: tcp.Address, deadline: Deadline
    ) -> ByteSocket:
        assert self.tls is not None
        name = self.server_name or address.host
        try:
            encrypted = TlsSocket(self.tls, connected, server_name=name, at_once=MOST_AT_ONCE)
            while (event := encrypted.handshake()) is not None:
                poll(encrypted, event, deadline.remaining)
                if deadline.passed:
                    raise TimeoutError(f"no TLS with {self.address} in time")
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise
            raise explained(error, self.address) from None
        return encrypted


class EndpointSpec(msgspec.Struct, frozen=True):
    """Where a server is and how to connect to it, as plain data that can be sent to a process.

    Attributes:
        address: Where the server listens.
        ca: The file of the CA to trust.
        certificate: The file of our own certificate.
        key: The file of its private key.
        server_name: The name in the server's certificate, if it is not the address's host.
        token: Sent to the server.
        name: Our name, for people to read.
    """

    address: str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    token: str | None = None
    name: str = ""

    def endpoint(self) -> Endpoint:
        """Return the endpoint; certificates are read now."""
        return Endpoint.at(
            self.address,
            ca=self.ca,
            certificate=self.certificate,
            key=self.key,
            server_name=self.server_name,
            token=self.token,
            name=self.name,
        )

    def __repr__(self) -> str:
        return f"EndpointSpec({self.address!r})"  # without the token

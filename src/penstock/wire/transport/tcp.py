"""TCP between hosts: addresses, listening, connecting, and detecting a dead peer.

A connection ends with its process. The kernel detects that a host has vanished: it probes an idle
peer (keep-alive), and gives up on data that is not acknowledged (`TCP_USER_TIMEOUT`). Only the
heartbeats of the protocol detect a process that is stopped while its kernel still answers.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import re
import socket
import sys
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.wire.transport.delay import slowed
from penstock.wire.transport.spare import SpareDescriptor

PLAIN: Final = "tcp"
ENCRYPTED: Final = "tls"
BACKLOG: Final = 4096
# Hosts that mean all addresses of this host; nobody can be told to connect to one.
ANYWHERE: Final = ("*", "0.0.0.0", "::")
# The send buffer over loopback. A larger one would only take cache from the samplers: with this
# size, sending beside two workers costs an eighth less CPU time. Over a network the kernel knows
# better how much may be under way.
NEAR_UNSENT: Final = 512 << 10

_ADDRESS: Final = re.compile(r"(tcp|tls)://(\[[^\]]+\]|[^:/\[\]]+):(\d{1,9}|\*)")
# The kernel's longest time between two keep-alive probes.
_LONGEST_S: Final = 32767
# Linux: bytes that are not acknowledged yet, and those of them that are not sent yet.
_SIOCOUTQ: Final = 0x5411
_SIOCOUTQNSD: Final = 0x894B
_MOST_PORT: Final = (1 << 16) - 1
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
# Errors of `accept` that mean: no connection is waiting.
_NOBODY: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EBADF, errno.EINVAL)
# Errors of `accept` that mean: the client was gone before it was accepted.
_GONE: Final = (
    errno.ECONNABORTED,
    errno.EINTR,
    errno.EPERM,
    errno.EPROTO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
)


@dataclass(frozen=True, slots=True)
class Address:
    """`tcp://host:port`, or `tls://host:port` if the connection is encrypted."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, listening: bool = False) -> Address:
        """Return the address in `text`; raise ValueError if it is not valid.

        Port 0 (or "*"), which means any free port, is valid only for `listening`.
        """
        match = _ADDRESS.fullmatch(str(text))
        port = 0 if match is None or match[3] == "*" else int(match[3])
        if match is None or port > _MOST_PORT or (port == 0 and not listening):
            ports = "0, for any that is free, to 65535" if listening else "1 to 65535"
            raise ValueError(
                f"address is {text!r}; expected 'tcp://host:port' or 'tls://host:port', with a "
                f"port of {ports}"
            )
        return cls(match[1], match[2].strip("[]"), port)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections to it use TLS."""
        return self.scheme == ENCRYPTED

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return whether a host name or number is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:  # a name, or *
        return False


class HasOptions(Protocol):
    """A socket, plain or encrypted."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


class TcpListener:
    """A listening socket. `accept` never blocks.

    Args:
        address: Where to listen.
        listening: A socket that listens there already, which this takes over.
    """

    def __init__(self, address: Address, listening: socket.socket | None = None) -> None:
        self._socket = listen(address) if listening is None else listening
        self._socket.setblocking(False)
        self._spare = SpareDescriptor()
        host, port = self._socket.getsockname()[:2]
        self.address = str(Address(address.scheme, host, port))
        self._near = is_loopback(host)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a client wants to connect."""
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, str] | None:
        """Return the next connection and the host it comes from; None if there is none.

        Raises:
            BlockingIOError: A client waits, but the system has no memory or descriptor now.
        """
        while True:
            try:
                connected, peer = self._socket.accept()
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._hang_up_on_one()
                    return None
                if error.errno in _NOBODY:
                    return None
                if error.errno in _GONE:
                    continue
                raise BlockingIOError(error.errno, error.strerror) from None
            connected.setblocking(False)
            if self._near:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_UNSENT)
            return slowed(connected), _without_mapping(str(peer[0]))

    def close(self) -> None:
        """Accept no more connections. Idempotent."""
        if self._socket.fileno() >= 0:
            self._socket.close()
            self._spare.close()

    def _hang_up_on_one(self) -> None:
        with self._spare.given_up():
            try:
                self._socket.accept()[0].close()
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:  # another thread has taken the descriptor
                    raise BlockingIOError(error.errno, "no descriptor is left") from None


def _without_mapping(host: str) -> str:
    """Return 127.0.0.1 for ::ffff:127.0.0.1, as a dual-stack socket reports it."""
    found = ipaddress.ip_address(host.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return host if mapped is None else str(mapped)


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at `address`; OSError, which names it, if that cannot be."""
    host = "" if address.host == "*" else address.host
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
    return listening


def connect(address: Address, timeout: float | None) -> socket.socket:
    """Return a connection to `address`, which does not block.

    Raises:
        ConnectionError: It failed; the message has the reason.
        TimeoutError: There was no answer in time.
    """
    try:
        connected = socket.create_connection((address.host, address.port), timeout)
    except socket.gaierror as error:
        words = f"the host {address.host!r} is not known: {error.strerror}"
        raise ConnectionError(words) from None
    except (TimeoutError, BlockingIOError):
        raise TimeoutError(f"nothing answered at {address} in time") from None
    except OSError as error:
        raise ConnectionRefusedError(f"{address}: {error.strerror or error}") from None
    connected.setblocking(False)
    return slowed(connected)


def notice_death(connected: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose other host has vanished for `seconds`."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # The first probe is after half of the time, then up to ten in the other half, within the
    # kernel's bounds.
    half = max(1, min(int(seconds / 2), _LONGEST_S))
    asked = min(10, half)
    for name, value in (
        ("TCP_KEEPIDLE", half),
        ("TCP_KEEPINTVL", half // asked),
        ("TCP_KEEPCNT", asked),
    ):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
    give_up_after(connected, seconds)


def give_up_after(connected: HasOptions, seconds: float) -> None:
    """Let the kernel end a connection if nothing is acknowledged for `seconds`; 0: never.

    The kernel also does so if the other end acknowledges, but reads nothing: see `awaits_reader`.
    """
    if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        value = max(1, int(min(seconds, 2 * _LONGEST_S) * 1000)) if seconds else 0
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


def awaits_reader(descriptor: int) -> bool:
    """Return whether all sent data is acknowledged, so that the rest waits for the reader.

    That is so if the other end is alive and does not read. If the system cannot tell: True.
    """
    try:
        unacknowledged, unsent = (
            int.from_bytes(fcntl.ioctl(descriptor, request, bytes(4)), sys.byteorder)
            for request in (_SIOCOUTQ, _SIOCOUTQNSD)
        )
    except OSError:
        return True
    return unacknowledged == unsent

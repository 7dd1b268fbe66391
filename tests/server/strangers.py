"""Strangers at a server's door: sockets that speak as much of ZeroMQ's protocol as they care to."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from typing import Final, Self
from urllib.parse import urlsplit

PATIENCE_S = 60.0

# ZMTP 3.0: a signature, a version, the name of a mechanism, and zeros up to 64 bytes.
GREETING: Final = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def place_of(address: str) -> tuple[str, int]:
    """Host and port of tcp://host:port."""
    found = urlsplit(address)
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


def frame(body: bytes, flags: int = 0, size: int | None = None) -> bytes:
    """A frame; `size` is what it says of itself, which may be a lie."""
    size = len(body) if size is None else size
    if size < 256:
        return bytes((flags, size)) + body
    return bytes((flags | LONG,)) + struct.pack(">Q", size) + body


def ready(identity: bytes = b"", kind: bytes = b"DEALER") -> bytes:
    """The command that ends the handshake."""
    properties = {b"Socket-Type": kind, b"Identity": identity}
    told = b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
        for name, value in properties.items()
    )
    return frame(b"\x05READY" + told, COMMAND)


class Stranger:
    """A TCP connection; what goes over it is the test's affair."""

    def __init__(self, address: str, *said: bytes) -> None:
        try:
            self.socket = socket.create_connection(place_of(address), PATIENCE_S)
        except BrokenPipeError:  # hung up on before we have noticed that we are through
            self.socket, other = socket.socketpair()
            other.close()
        for words in said:
            self.send(words)
            if words == GREETING:  # what comes too early is not taken for a handshake
                with suppress(ConnectionError):  # nor by those who do not want us
                    self._read(len(GREETING))

    @classmethod
    def greeted(cls, address: str, identity: bytes = b"", kind: bytes = b"DEALER") -> Self:
        """One that has come as far as any DEALER."""
        found = cls(address, GREETING, ready(identity, kind))
        found._read_frame()  # the server is ready, too
        return found

    def send(self, data: bytes) -> bool:
        """Whether anybody still takes it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    @property
    def is_closed(self) -> bool:
        """Whether the server has hung up; what it says meanwhile is not kept."""
        with suppress(BlockingIOError):
            try:
                while select.select([self.socket], [], [], 0)[0]:
                    if not self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                        return True
            except ConnectionError:
                return True
        return False

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise ConnectionResetError("the server hung up")
            found += more
        return found

    def _read_frame(self) -> bytes:
        flags, size = self._read(2)
        assert not flags & LONG
        return self._read(size)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

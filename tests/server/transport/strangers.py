"""Strangers at a server's socket: they say as much of the protocol as they care to."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from penstock.wire.framing import HEADER, poll

PATIENCE_S = 60.0


def place_of(address: str) -> tuple[str, int]:
    """Host and port of tcp://host:port."""
    found = urlsplit(address)
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


def frame(
    body: bytes, lane: int = 0, payload: int = 0, size: int | None = None, descriptors: int = 0
) -> bytes:
    """A frame; `size` is what it says of itself, which may be a lie."""
    return HEADER.pack(len(body) if size is None else size, descriptors, lane, payload) + body


class Stranger:
    """A TCP connection; what goes over it is the test's affair."""

    def __init__(self, address: str, *said: bytes) -> None:
        try:
            self.socket = socket.create_connection(place_of(address), PATIENCE_S)
        except (BrokenPipeError, ConnectionResetError):  # hung up on before we have noticed
            self.socket, other = socket.socketpair()
            other.close()
        for words in said:
            self.send(words)

    def send(self, data: bytes | bytearray) -> bool:
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
                while poll(self.socket, select.POLLIN, 0):
                    if not self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                        return True
            except ConnectionError:
                return True
        return False

    def hear_some(self) -> bytes:
        """What the server says next; nothing if it has hung up."""
        with suppress(ConnectionError):
            return self.socket.recv(1 << 16)
        return b""

    def hear_all(self) -> bytes:
        """All that the server says before it hangs up."""
        heard = b""
        while more := self.hear_some():
            heard += more
        return heard

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

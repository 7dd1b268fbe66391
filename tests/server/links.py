"""A slow network: a link between ranks and a server that lets so many bytes through each second."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.server.strangers import place_of

_AT_ONCE = 16 << 10
# What kernels keep on the way to it: little, or the network would only seem slow later.
_KEPT = 64 << 10


class Link:
    """Carries connections to a server; what the server sends is held back."""

    def __init__(self, server: str, bytes_a_second: float) -> None:
        self._server = place_of(server)
        self._speed = bytes_a_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def _start(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                rank, _ = self._listener.accept()
                server = socket.socket()
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT)
                self._ends += [rank, server]
                server.connect(self._server)
                self._start(self._carry, rank, server, None)
                self._start(self._carry, server, rank, self._speed)

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket, speed: float | None) -> None:
        free_at = time.monotonic()
        with suppress(OSError):
            while data := source.recv(_AT_ONCE):
                target.sendall(data)
                if speed is not None:
                    free_at = max(free_at, time.monotonic()) + len(data) / speed
                    time.sleep(max(0.0, free_at - time.monotonic()))
        _shut(source)
        _shut(target)

    def close(self) -> None:
        for end in self._ends:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def slow_link(server: str, bytes_a_second: float) -> Iterator[str]:
    """The address at which a server is reached over it."""
    link = Link(server, bytes_a_second)
    try:
        yield link.address
    finally:
        link.close()

"""Networks that are slow, or let nothing through: a link between ranks and a server."""

from __future__ import annotations

import ctypes
import math
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from tests.processes import PATIENCE_S
from tests.server.transport.strangers import place_of

_SO_ATTACH_FILTER = 26
_AT_ONCE = 64 << 10
# What kernels keep on the way to it: little, or the network would only seem slow later.
_KEPT = 64 << 10


def cut(connected: socket.socket) -> None:
    """Has the kernel drop whatever comes for a connection: the other host's packets are lost.

    What is sent over it still goes out, but nothing is acknowledged, and no acknowledgement heard.
    """
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: drop
    attached = struct.pack("HL", 1, ctypes.addressof(program))
    connected.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)


class Link:
    """Carries connections to a server; what the server sends is held back. Open at first."""

    def __init__(self, server: str, bytes_a_second: float = math.inf) -> None:
        self._server = place_of(server)
        self._speed = bytes_a_second
        self._allowed = math.inf  # bytes that may still go through
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    # --- the valve ---

    def shut(self) -> None:
        """Lets nothing through any more, but that a connection was reset."""
        self._allow(0)

    def open(self) -> None:
        """Lets everything through."""
        self._allow(math.inf)

    def let_through(self, nbytes: int) -> None:
        """Lets so much through, and a little more; returns when it has gone to the ranks."""
        self._allow(nbytes)
        with self._changed:
            gone = self._changed.wait_for(lambda: self._allowed == 0, PATIENCE_S)
        assert gone, "the server does not send as much"

    def _allow(self, nbytes: float) -> None:
        with self._changed:
            self._allowed = nbytes
            self._changed.notify_all()

    # --- what it carries ---

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                rank, _ = self._listener.accept()
                server = socket.socket()
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT)
                self._ends += [rank, server]
                server.connect(self._server)
                self._start(_carry, rank, server)
                self._start(self._hold_back, server, rank)
                self._start(_pass_on_a_reset, server, rank)

    def _start(self, target: Callable[..., None], *ends: socket.socket) -> None:
        thread = threading.Thread(target=target, args=ends, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _hold_back(self, server: socket.socket, rank: socket.socket) -> None:
        free_at = time.monotonic()
        with _ending_together(server, rank):
            while data := server.recv(_AT_ONCE):
                with self._changed:
                    self._changed.wait_for(lambda: self._allowed > 0)
                rank.sendall(data)
                self._note_gone(len(data))
                free_at = max(free_at, time.monotonic()) + len(data) / self._speed
                time.sleep(max(0.0, free_at - time.monotonic()))

    def _note_gone(self, nbytes: int) -> None:
        with self._changed:
            self._allowed = max(0, self._allowed - nbytes)
            self._changed.notify_all()

    # --- the end ---

    def close(self) -> None:
        _shut(self._listener)
        self._acceptor.join()
        for end in self._ends:
            _shut(end)
        self.open()
        for thread in self._threads:
            thread.join()
        for end in [self._listener, *self._ends]:
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with _ending_together(source, target):
        while data := source.recv(_AT_ONCE):
            target.sendall(data)


def _pass_on_a_reset(server: socket.socket, rank: socket.socket) -> None:
    """Waits for one, which overtakes all that is held back; an orderly end comes in its turn.

    Whoever does not read hears of neither, so that the kernel is asked: for no event but those that
    it tells of always, an error and the end of both directions.
    """
    with _ending_together(server, rank):
        watch = select.poll()
        watch.register(server, 0)
        watch.poll()


@contextmanager
def _ending_together(*ends: socket.socket) -> Iterator[None]:
    try:
        with suppress(OSError):  # one of them has ended
            yield
    finally:
        for end in ends:
            _shut(end)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

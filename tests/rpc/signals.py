"""Real signals, at moments that a test chooses: SIGUSR1, which is nobody else's."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.rpc.connection import RemoteConnection


@contextmanager
def on_signal(do: Callable[[], Any]) -> Iterator[None]:
    """What the main thread does when it is struck."""
    before = signal.signal(signal.SIGUSR1, lambda *_: do())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def interrupts() -> Iterator[None]:
    """The signal does what Ctrl-C does."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with on_signal(interrupt):
        yield


class StruckSocket:
    """A socket; a signal strikes in the middle of one call to it, once.

    Of what was to be sent, the kernel has taken `gone` bytes by then; of what came, all.
    """

    def __init__(self, socket: Any, call: str, gone: int = 0) -> None:
        self._socket = socket
        self._call: str | None = call
        self._gone = gone

    @property
    def has_struck(self) -> bool:
        return self._call is None

    def send(self, data: bytes) -> int:
        if self._call == "send":
            self._send_some(data)
        return int(self._socket.send(data))

    def sendmsg(self, buffers: list[Any]) -> int:
        if self._call == "sendmsg":
            self._send_some(b"".join(buffers))
        return int(self._socket.sendmsg(buffers))

    def recvmsg_into(self, buffers: list[Any]) -> Any:
        received = self._socket.recvmsg_into(buffers)
        if self._call == "recvmsg_into":
            self._strike()
        return received

    def _send_some(self, data: bytes) -> None:
        gone = min(self._gone, len(data))
        if gone:
            assert self._socket.send(data[:gone]) == gone
        self._strike()

    def _strike(self) -> None:
        self._call = None
        signal.raise_signal(signal.SIGUSR1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def strike_in(connection: RemoteConnection, call: str, gone: int = 0) -> StruckSocket:
    """Has the signal strike whoever makes this call next over a connection, which must be the main
    thread."""
    stream = connection._link._stream
    stream._socket = struck = StruckSocket(stream._socket, call, gone)
    return struck

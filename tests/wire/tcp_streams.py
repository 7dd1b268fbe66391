"""What tests of TCP streams have in common: both sides of a connection, plain or encrypted."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.server.transport.authority import Authority
from penstock.wire.frames import private_memory
from penstock.wire.framing import PREAMBLE, head, poll
from penstock.wire.tcp_stream import TcpStream
from penstock.wire.transport.tls import TlsSocket, client_context
from tests.wire.streams import BOUND_S, Note

Received = list[tuple[Note, Any]]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection over loopback, set not to block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    for end in (one, other):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def stream_of(end: Any, **options: Any) -> TcpStream[Note]:
    options.setdefault("reserve", lambda _, nbytes: private_memory(nbytes))
    return TcpStream(end, Note, **options)


@contextmanager
def connected(**options: Any) -> Iterator[tuple[TcpStream[Note], TcpStream[Note]]]:
    """Both sides of a plain connection."""
    left, right = (stream_of(end, **options) for end in tcp_pair())
    try:
        yield left, right
    finally:
        left.close()
        right.close()


@contextmanager
def raw_to_stream(**options: Any) -> Iterator[tuple[socket.socket, TcpStream[Note]]]:
    """A bare socket, for saying things no stream would, and the stream that hears them."""
    raw, other = tcp_pair()
    raw.setblocking(True)
    stream = stream_of(other, **options)
    raw.sendall(PREAMBLE)
    try:
        yield raw, stream
    finally:
        raw.close()
        stream.close()


def frame(body: bytes, lane: int = 0, payload: int = 0) -> bytes:
    return head(body, 0, lane, payload)


def heard(stream: TcpStream[Note], count: int = 1) -> Received:
    """The next messages, however they come."""
    received: Received = []
    while len(received) < count and not stream.ended:
        assert stream.wait(BOUND_S)
        received += stream.receive()
    return received


def exchanged(sender: TcpStream[Note], receiver: TcpStream[Note], count: int = 1) -> Received:
    """The next messages, while the sender sends what it keeps."""
    received: Received = []
    while len(received) < count:
        sender.flush()
        assert receiver.wait(BOUND_S)
        received += receiver.receive()
    return received


def numbers(received: Received) -> list[int]:
    return [note.number for note, _ in received]


# --- TLS -----------------------------------------------------------------------------------------


def shaken(tls: TlsSocket) -> TlsSocket:
    """One whose handshake is done; the other side's must be done by another thread."""
    while (event := tls.handshake()) is not None:
        assert poll(tls, event, BOUND_S)
    return tls


@contextmanager
def encrypted(keys: Path, **options: Any) -> Iterator[tuple[TcpStream[Note], TcpStream[Note]]]:
    """Both sides of an encrypted connection: the client's, then the server's."""
    one, other = tcp_pair()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(keys / "server.pem", keys / "server.key")
    client = TlsSocket(client_context(keys / "ca.pem"), one, server_name="localhost")
    server = TlsSocket(server_context, other, server_side=True)
    thread = threading.Thread(target=shaken, args=(server,))
    thread.start()
    shaken(client)
    thread.join()
    left, right = stream_of(client, **options), stream_of(server, **options)
    try:
        yield left, right
    finally:
        left.close()
        right.close()


def make_keys(folder: Path) -> Path:
    """An authority, a server's certificate, and one of a client."""
    authority = Authority(folder)
    authority.issue_server()
    authority.issue_client("rank-0")
    return folder

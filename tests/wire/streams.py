"""What tests of streams have in common: a message of any size, connections, fresh interpreters."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.wire.messages import Message
from penstock.wire.stream import Stream

# Long enough for the slowest machine: these are bounds on being stuck, not on being slow.
BOUND_S = 60.0


class Note(Message):
    """A message of any size, by number."""

    number: int
    text: bytes = b""


@contextmanager
def connected() -> Iterator[tuple[Stream[Note], Stream[Note]]]:
    """Both sides of a connection."""
    one, other = socket.socketpair()
    left: Stream[Note] = Stream(one, Note)
    right: Stream[Note] = Stream(other, Note)
    try:
        yield left, right
    finally:
        left.close()
        right.close()


@contextmanager
def raw_to_stream(max_message: int = 1 << 20) -> Iterator[tuple[socket.socket, Stream[Note]]]:
    """A bare socket, for saying things no stream would, and the stream that hears them."""
    one, other = socket.socketpair()
    stream: Stream[Note] = Stream(other, Note, max_message=max_message)
    try:
        yield one, stream
    finally:
        one.close()
        stream.close()


def numbers(received: list[tuple[Note, list[int]]]) -> list[int]:
    """The numbers of notes."""
    return [note.number for note, _ in received]


def received_until_end(stream: Stream[Note]) -> list[tuple[Note, list[int]]]:
    """Everything the other side says before it goes."""
    received: list[tuple[Note, list[int]]] = []
    while not stream.ended:
        assert stream.wait(BOUND_S)
        received += stream.receive()
    return received


# What a child knows from the start: `stream`, its side of a connection.
PREAMBLE = """
import gc, os, signal, socket, sys, threading
from penstock.wire import framing
from penstock.wire.stream import Stream
from tests.wire.streams import BOUND_S, Note
stream = Stream(socket.socket(fileno=int(sys.argv[1])), Note)
"""


@contextmanager
def child_with_stream(program: str) -> Iterator[tuple[subprocess.Popen[str], Stream[Note]]]:
    """A fresh interpreter on `program`, and our side of the connection to it."""
    ours, theirs = socket.socketpair()
    stream: Stream[Note] = Stream(ours, Note)
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PREAMBLE + program, str(theirs.fileno())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[theirs.fileno()],
        cwd=Path(__file__).parents[2],
        env=os.environ,
    )
    theirs.close()
    try:
        yield child, stream
    finally:
        stream.close()
        child.kill()
        child.communicate()

"""What a transport is, and those there are.

A transport is listen, connect, send, receive and end. Above it are messages and the order in which
they may come; below it are bytes. `unix` is for processes of one host, and carries descriptors;
`tcp`, plain or with TLS, is for hosts, and carries payloads. Whoever adds another one (RDMA, a
network that a test slows down) implements these classes, and nothing above notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from penstock.wire.messages import Message

Received_co = TypeVar("Received_co", covariant=True)


class Link(Protocol[Received_co]):
    """One end of a connection that carries messages. See `wire.stream` and `wire.tcp_stream`.

    `send` is safe from any thread and never waits; all else belongs to one thread.
    """

    def send(self, message: Message) -> None:
        """Sends a message, or keeps it until there is room."""

    def receive(self) -> Sequence[tuple[Received_co, Any]]:
        """The messages that are complete, each with what came beside it."""

    def flush(self, timeout: float = 0.0) -> bool:
        """Sends what is kept; true if nothing is left."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until there is something to receive, or the end."""

    @property
    def pending(self) -> bool:
        """Whether something waits for room: flush when `fileno` is writable."""

    @property
    def ended(self) -> bool:
        """Whether all has been received, and nothing more will come."""

    def fileno(self) -> int:
        """For a selector."""

    def close(self) -> None:
        """Ends the connection. Idempotent."""


Accepted_co = TypeVar("Accepted_co", covariant=True)


class Listener(Protocol[Accepted_co]):
    """Where connections come in."""

    address: str  # with the real port or name

    def fileno(self) -> int:
        """For a selector: readable when somebody wants to connect."""

    def accept(self) -> Accepted_co | None:
        """The next one who wants to; None if nobody does."""

    def close(self) -> None:
        """Takes no more connections. Idempotent."""

"""Transports: listen, connect, send, receive and end.

`unix` is for processes of one host, and sends descriptors; `tcp`, plain or with `tls`, is for
hosts, and sends payloads. Another transport (RDMA, a slow network for tests) implements these
protocols; messages and their order, which are above, do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from penstock.wire.messages import Message

Received_co = TypeVar("Received_co", covariant=True)


class Link(Protocol[Received_co]):
    """One end of a connection for messages. See `wire.stream` and `wire.tcp_stream`.

    `send` is safe from any thread and never blocks; all other methods belong to one thread.
    """

    def send(self, message: Message) -> None:
        """Send a message, or queue it until there is room."""

    def receive(self) -> Sequence[tuple[Received_co, Any]]:
        """Return the messages that are complete, each with its descriptors or payload."""

    def flush(self, timeout: float = 0.0) -> bool:
        """Send what is queued; return whether nothing is left."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is something to receive, or the end."""

    @property
    def pending(self) -> bool:
        """Whether data waits for room: call `flush` when `fileno` is writable."""

    @property
    def ended(self) -> bool:
        """Whether all has been received, and nothing more will arrive."""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""

    def close(self) -> None:
        """End the connection. Idempotent."""


Accepted_co = TypeVar("Accepted_co", covariant=True)


class Listener(Protocol[Accepted_co]):
    """A listening socket."""

    address: str  # with the real port or name

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a client wants to connect."""

    def accept(self) -> Accepted_co | None:
        """Return the next connection; None if there is none."""

    def close(self) -> None:
        """Accept no more connections. Idempotent."""

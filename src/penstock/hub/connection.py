"""The hub's end of one rank's connection, and what belongs to it.

When the connection ends, for any reason, its channels are unregistered.

What a rank leaves unread is bounded. Slots bound the batches. Above `ENOUGH` unread messages the
hub reads nothing from the rank, which bounds the answers, and shortens errors, which nothing else
bounds. Above `TOO_MANY` the connection is closed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.wire.conversation import Conversation, Medium, State
from penstock.wire.messages import FromHubToRank, FromRankToHub
from penstock.wire.stream import Stream

ENOUGH: Final = 256
TOO_MANY: Final = 16384
# How many messages of one connection are answered in one turn of the loop.
AT_ONCE: Final = 256


class RankConnection:
    """One rank's connection; `number` is never reused."""

    def __init__(
        self,
        number: int,
        stream: Stream[FromRankToHub],
        touched: set[RankConnection],
        *,
        founder: bool = False,
    ) -> None:
        self.number = number
        self._touched = touched
        self.stream = stream
        self.founder = founder
        self.conversation = Conversation(Medium.UNIX)
        self.pid = 0
        self.channels: set[int] = set()
        self.backends: set[int] = set()
        self.watched = 0  # events of its stream that the loop waits for
        # Messages that were received and not yet answered.
        self.backlog: deque[tuple[FromRankToHub, list[int]]] = deque()
        # Why it is to be closed; None while it is in use.
        self.ending: str | None = None

    def send(self, message: FromHubToRank, fds: Sequence[int] = ()) -> None:
        """Send a message without blocking. If the connection is ending, do nothing."""
        if self.ending is not None:
            return
        self._touched.add(self)
        self.conversation.hub_says(message)
        try:
            self.stream.send(message, fds)
        except (OSError, ValueError) as error:  # no descriptors left, or the message is too large
            self.end(f"{type(message).__name__} could not be sent: {error}")
            return
        if self.stream.queued > TOO_MANY:
            self.end(f"it has left {self.stream.queued} messages unread")

    @property
    def greeted(self) -> bool:
        """Whether `Hello` and `Welcome` have been exchanged."""
        return self.conversation.state is State.OPEN

    def receive(self) -> None:
        """Receive messages, unless earlier ones are still to be answered."""
        if not self.backlog:
            self.backlog.extend(self.stream.receive())

    def next_messages(self) -> Iterator[tuple[FromRankToHub, list[int]]]:
        """Yield the messages to answer in this turn, until the connection is ending."""
        for _ in range(min(AT_ONCE, len(self.backlog))):
            if self.ending is not None:
                return
            yield self.backlog.popleft()

    def end(self, reason: str) -> None:
        """Mark the connection to be closed; the first reason is kept."""
        if self.ending is None:
            self.ending = reason

    @property
    def overfull(self) -> bool:
        """Whether the rank has so many unread messages that the hub should not read from it."""
        return self.stream.queued > ENOUGH

    def close(self) -> None:
        """Send what can be sent without blocking, and close. Idempotent."""
        self.end("it was closed")
        for _, fds in self.backlog:
            for fd in fds:
                os.close(fd)
        self.backlog.clear()
        self.stream.flush()
        self.stream.close()

    def __repr__(self) -> str:
        return f"connection {self.number} (pid {self.pid})"

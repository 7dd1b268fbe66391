"""A connection: one rank's line to the hub, and what hangs on it.

The connection is the lease. When it ends, however it ends, its channels are let go of.

What a rank leaves unread is bounded. Batches are, by its credits. Past `ENOUGH` messages the hub
does not hear it until it has read, so that answers are; and errors, which nothing holds back, are
cut short then, and past `TOO_MANY` the connection is let go of.
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
# Messages of one connection that are answered in one turn of the loop; the others wait their turn.
AT_ONCE: Final = 256


class RankConnection:
    """One rank's connection; `number` is never used again."""

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
        # Heard, and not yet answered.
        self.backlog: deque[tuple[FromRankToHub, list[int]]] = deque()
        # Why it is to be closed; None while it is well.
        self.ending: str | None = None

    def send(self, message: FromHubToRank, fds: Sequence[int] = ()) -> None:
        """Says something, without waiting. To one that is gone it is said in vain."""
        if self.ending is not None:
            return
        self._touched.add(self)
        self.conversation.hub_says(message)
        try:
            self.stream.send(message, fds)
        except (OSError, ValueError) as error:  # no descriptors left; more than a message may have
            self.end(f"{type(message).__name__} could not be sent: {error}")
            return
        if self.stream.queued > TOO_MANY:
            self.end(f"it has left {self.stream.queued} messages unread")

    @property
    def greeted(self) -> bool:
        """Whether both sides have said hello."""
        return self.conversation.state is State.OPEN

    def receive(self) -> None:
        """Takes what has come, unless there is still something to answer."""
        if not self.backlog:
            self.backlog.extend(self.stream.receive())

    def next_messages(self) -> Iterator[tuple[FromRankToHub, list[int]]]:
        """What is to be answered in this turn, while the connection is well."""
        for _ in range(min(AT_ONCE, len(self.backlog))):
            if self.ending is not None:
                return
            yield self.backlog.popleft()

    def end(self, reason: str) -> None:
        """Marks it as one to be closed; the first reason stands."""
        if self.ending is None:
            self.ending = reason

    @property
    def overfull(self) -> bool:
        """Whether it has so much to read that it should not say more."""
        return self.stream.queued > ENOUGH

    def close(self) -> None:
        """Lets go of it, sending what can be sent without waiting. Idempotent."""
        self.end("it was closed")
        for _, fds in self.backlog:
            for fd in fds:
                os.close(fd)
        self.backlog.clear()
        self.stream.flush()
        self.stream.close()

    def __repr__(self) -> str:
        return f"connection {self.number} (pid {self.pid})"

"""What the event loop waits for: descriptors, each with a handler."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.wire.framing import LONGEST_POLL

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
_AT_ONCE: Final = 1024
# What the system waits for at most, in whole seconds: it counts in milliseconds.
_LONGEST_S: Final = LONGEST_POLL // 1000

# Called with the events that have come.
Handler: TypeAlias = Callable[[int], None]


class Poller:
    """Calls a handler for each descriptor that can be read or written, or has ended."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[int, Handler]] = {}

    def watch(self, descriptor: int, events: int, handler: Handler) -> None:
        """Waits for these events, on behalf of `handler`."""
        before = self._handlers.get(descriptor)
        if before is None:
            self._epoll.register(descriptor, events)
        elif before[0] != events:
            self._epoll.modify(descriptor, events)
        self._handlers[descriptor] = events, handler

    def forget(self, descriptor: int) -> None:
        """Waits for nothing of a descriptor, which is still open. Idempotent."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def poll(self, timeout: float) -> list[tuple[Handler, int]]:
        """The handlers that something has happened to, and what; none after `timeout` seconds."""
        handlers = self._handlers
        return [
            (handlers[descriptor][1], events)
            for descriptor, events in self._epoll.poll(min(timeout, _LONGEST_S), _AT_ONCE)
            if descriptor in handlers
        ]

    def close(self) -> None:
        """Lets go of what the system keeps for it. Idempotent."""
        self._handlers.clear()
        self._epoll.close()

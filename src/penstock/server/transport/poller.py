"""The event loop's poller: descriptors, each with a handler."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.wire.framing import LONGEST_POLL

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
_AT_ONCE: Final = 1024
# The longest wait the system can do, in whole seconds; it counts milliseconds.
_LONGEST_S: Final = LONGEST_POLL // 1000

# Called with the events that have come.
Handler: TypeAlias = Callable[[int], None]


class Poller:
    """Watches descriptors with epoll, and returns the handlers of those with events."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[int, Handler]] = {}

    def watch(self, descriptor: int, events: int, handler: Handler) -> None:
        """Watch a descriptor for these events on behalf of `handler`."""
        before = self._handlers.get(descriptor)
        if before is None:
            self._epoll.register(descriptor, events)
        elif before[0] != events:
            self._epoll.modify(descriptor, events)
        self._handlers[descriptor] = events, handler

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, which must still be open. Idempotent."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def poll(self, timeout: float) -> list[tuple[Handler, int]]:
        """Return handlers and their events; none if nothing happens for `timeout` seconds."""
        handlers = self._handlers
        return [
            (handlers[descriptor][1], events)
            for descriptor, events in self._epoll.poll(min(timeout, _LONGEST_S), _AT_ONCE)
            if descriptor in handlers
        ]

    def close(self) -> None:
        """Close the epoll descriptor. Idempotent."""
        self._handlers.clear()
        self._epoll.close()

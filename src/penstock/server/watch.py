"""Which relays are listened to, and which also wait for room on the way to the hub."""

from __future__ import annotations

import selectors
from typing import Any

from penstock.server.relay import Relay

_READ = selectors.EVENT_READ
_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class Watch:
    """A selector and what is registered there."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._interests: dict[Relay, int] = {}

    def add(self, relay: Relay, data: Any) -> None:
        """Listens to a relay; `data` is what the selector then gives."""
        self.selector.register(relay, _READ, data)
        self._interests[relay] = _READ

    def heed(self, relay: Relay) -> None:
        """Sees to it that what could not be sent will be."""
        wanted = _BOTH if relay.pending else _READ
        if self._interests[relay] != wanted:
            key = self.selector.get_key(relay)
            self.selector.modify(relay, wanted, key.data)
            self._interests[relay] = wanted

    def remove(self, relay: Relay) -> None:
        """Listens no more. Idempotent."""
        if self._interests.pop(relay, None) is not None:
            self.selector.unregister(relay)

    def close(self) -> None:
        """Lets go of the selector."""
        self._interests.clear()
        self.selector.close()

"""The channels of a backend, by the ids that users gave them. Any thread may use it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from penstock.client.channel.channel import Channel
from penstock.client.channel.description import ChannelId
from penstock.client.channel.inline import InlineChannel
from penstock.errors import ChannelClosed

AnyChannel: TypeAlias = Channel | InlineChannel

# How many ids of closed channels are remembered: to start an epoch of one of them is no error.
REMEMBERED: Final = 1 << 16


class ChannelRegistry:
    """Channels by id.

    Opening a channel takes time. Meanwhile its id is reserved, but no lock is held.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant, for signal handlers
        self._there: dict[ChannelId, AnyChannel] = {}
        self._opening: set[ChannelId] = set()
        self._gone: dict[ChannelId, None] = {}  # those closed last, in the order of closing
        self._closed = False

    @contextmanager
    def opening(self, channel_id: ChannelId) -> Iterator[None]:
        """Reserve an id for a channel while it is being opened; ValueError if the id is taken."""
        if not _is_name(channel_id):
            raise ValueError(f"channel_id is {channel_id!r}; expected a number or text")
        with self._lock:
            if channel_id in self._there or channel_id in self._opening:
                raise ValueError(f"channel_id is {channel_id!r}, which is registered already")
            self._opening.add(channel_id)
        try:
            yield
        finally:
            with self._lock:
                self._opening.discard(channel_id)

    def add(self, channel_id: ChannelId, channel: AnyChannel) -> None:
        """Add a channel that has been opened; `ChannelClosed` if the backend was shut down."""
        with self._lock:
            if not self._closed:
                self._there[channel_id] = channel
                self._gone.pop(channel_id, None)
                return
        channel.close()
        raise ChannelClosed("the backend was shut down")

    def get(self, channel_id: ChannelId) -> AnyChannel | None:
        """Return the channel, or None if it was closed; `KeyError` if it was never registered."""
        with self._lock:
            if not (
                _is_name(channel_id) and (channel_id in self._there or channel_id in self._gone)
            ):
                there = ", ".join(map(repr, self._there)) or "none"
                raise KeyError(f"no channel {channel_id!r} was registered; there are: {there}")
            return self._there.get(channel_id)

    def __getitem__(self, channel_id: ChannelId) -> AnyChannel:
        """Return the channel; `ChannelClosed` if it was closed, `KeyError` if it never existed."""
        channel = self.get(channel_id)
        if channel is None:
            raise ChannelClosed(f"channel {channel_id!r} was unregistered")
        return channel

    def find(self, channel_id: ChannelId) -> AnyChannel | None:
        """Return the channel, or None if there is none."""
        return self._there.get(channel_id) if _is_name(channel_id) else None

    def items(self) -> list[tuple[ChannelId, AnyChannel]]:
        """Return all open channels."""
        with self._lock:
            return list(self._there.items())

    def remove(self, channel_id: ChannelId) -> None:
        """Close a channel and remember its id. Does nothing for an unknown channel."""
        with self._lock:
            channel = self.find(channel_id)
            if channel is not None:
                del self._there[channel_id]
                self._gone[channel_id] = None
                if len(self._gone) > REMEMBERED:
                    del self._gone[next(iter(self._gone))]
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all channels; those still being opened are closed by `add`. Idempotent."""
        with self._lock:
            self._closed = True
        for channel_id, _ in self.items():
            self.remove(channel_id)


def _is_name(channel_id: object) -> bool:
    """Return whether a channel could have this id: it must be hashable."""
    try:
        hash(channel_id)
    except TypeError:
        return False
    return True

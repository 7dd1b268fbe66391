"""Which channels a backend has, under the ids their users gave them; asked by any thread."""

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

# Ids of channels that have gone: to start one of these again is no mistake.
REMEMBERED: Final = 1 << 16


class ChannelRegistry:
    """Channels by id. Opening one takes time, during which the id is taken but nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may come in between
        self._there: dict[ChannelId, AnyChannel] = {}
        self._opening: set[ChannelId] = set()
        self._gone: dict[ChannelId, None] = {}  # the last of them, in the order of their leaving
        self._closed = False

    @contextmanager
    def opening(self, channel_id: ChannelId) -> Iterator[None]:
        """Keeps an id for a channel that is being opened; ValueError if it is taken."""
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
        """A channel has been opened."""
        with self._lock:
            if not self._closed:
                self._there[channel_id] = channel
                self._gone.pop(channel_id, None)
                return
        channel.close()
        raise ChannelClosed("the backend was shut down")

    def get(self, channel_id: ChannelId) -> AnyChannel | None:
        """The channel, if there is one now; `KeyError` that names it if there never was."""
        with self._lock:
            if not (
                _is_name(channel_id) and (channel_id in self._there or channel_id in self._gone)
            ):
                there = ", ".join(map(repr, self._there)) or "none"
                raise KeyError(f"no channel {channel_id!r} was registered; there are: {there}")
            return self._there.get(channel_id)

    def __getitem__(self, channel_id: ChannelId) -> AnyChannel:
        """The channel; `ChannelClosed` if it has gone, `KeyError` if it never was."""
        channel = self.get(channel_id)
        if channel is None:
            raise ChannelClosed(f"channel {channel_id!r} was unregistered")
        return channel

    def find(self, channel_id: ChannelId) -> AnyChannel | None:
        """The channel, if there is one."""
        return self._there.get(channel_id) if _is_name(channel_id) else None

    def items(self) -> list[tuple[ChannelId, AnyChannel]]:
        """All that are there now."""
        with self._lock:
            return list(self._there.items())

    def remove(self, channel_id: ChannelId) -> None:
        """Closes a channel and remembers that it was; one that is not there, not."""
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
        """Closes all, also those that are being opened. Idempotent."""
        with self._lock:
            self._closed = True
        for channel_id, _ in self.items():
            self.remove(channel_id)


def _is_name(channel_id: object) -> bool:
    """Whether a channel could have this id; of a list, none could."""
    try:
        hash(channel_id)
    except TypeError:
        return False
    return True

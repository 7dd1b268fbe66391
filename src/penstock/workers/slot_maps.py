"""The memory for batches of a worker's channels: slots, and one-offs for larger batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from penstock.errors import ProtocolError
from penstock.graph.handles import MemfdHandle
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.inputs import ChannelInputs, attached, segment_of
from penstock.wire.messages import OpenChannel
from penstock.workers.arena import Arena, Bytes
from penstock.workers.failures import too_large


class SlotMaps:
    """The arenas of all open channels."""

    def __init__(self) -> None:
        self._arenas: dict[int, Arena] = {}

    def open(self, message: OpenChannel, fds: Sequence[int]) -> ChannelInputs:
        """Map a channel's slots, and its inputs, if any. Takes over `fds`, even if it fails."""
        left = list(fds)
        try:
            inputs = segment_of(message.feed)
            anonymous = [message.arena.memory] + ([] if inputs is None else [inputs])
            if len(left) != sum(isinstance(segment, MemfdHandle) for segment in anonymous):
                raise ProtocolError(f"{len(left)} descriptors came for channel {message.channel}")
            taken = [
                left.pop(0) if isinstance(segment, MemfdHandle) else None for segment in anonymous
            ]
        except BaseException:
            _close_all(left)
            raise
        try:
            self._arenas[message.channel] = Arena.attach(message.arena, taken[0])
        except BaseException:
            _close_all([fd for fd in taken[1:] if fd is not None])
            raise
        return attached(message.feed, taken[1] if inputs is not None else None)

    def close(self, channel: int) -> None:
        """Release a channel's memory; unknown channels are ignored."""
        if (arena := self._arenas.pop(channel, None)) is not None:
            arena.close()

    def slot(self, channel: int, number: int) -> Bytes:
        """Return the memory of a slot."""
        if channel not in self._arenas:
            raise ValueError(f"channel {channel} is not open here")
        return self._arenas[channel].memory(number)

    def one_off(self, channel: int, small: SlotTooSmall) -> Arena:
        """Make memory to replace a slot that is too small; `BatchTooLarge` past the limit."""
        most_bytes = self._arenas[channel].plan.most_bytes
        if small.needed > most_bytes:
            raise too_large(small, most_bytes)
        return Arena.one_off(small.needed)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)

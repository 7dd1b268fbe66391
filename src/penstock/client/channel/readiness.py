"""Waits for whichever of many channels has something to read, without trying each in turn."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from penstock.client.channel.reader import Reader
from penstock.errors import PenstockError
from penstock.rpc.deadline import Deadline
from penstock.wire.stream import LONGEST_POLL

Key = TypeVar("Key")


def wait_any(channels: Mapping[Key, Reader], deadline: Deadline) -> list[Key]:
    """Return the channels whose `next` would answer at once; none if the deadline passed first.

    One system call tells which channels have received something; the others are not touched.
    """
    heard = _poll(channels.values(), Deadline(0))
    while True:
        ready = [key for key, channel in channels.items() if _is_ready(channel, heard, deadline)]
        if ready or not channels or deadline.passed:
            return ready
        heard = _poll(channels.values(), deadline)


def _is_ready(channel: Reader, heard: Set[int], deadline: Deadline) -> bool:
    try:
        # A channel without a session (-1) needs a new one; one without an epoch raises its error.
        if not channel.ready and (channel.epoch < 0 or channel.fileno() in heard):
            channel.refresh(deadline)
    except TimeoutError:
        return False
    except PenstockError:
        return True  # `next` will raise what is wrong
    return channel.ready


def _poll(channels: Iterable[Reader], deadline: Deadline) -> set[int]:
    """Return the descriptors that are ready, and always -1, which stands for none."""
    poll = select.poll()
    for channel in channels:
        if (descriptor := channel.fileno()) >= 0:
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if channel.pending else 0))
    left = deadline.remaining
    bound = None if left is None else min(left * 1000, LONGEST_POLL)
    return {-1, *(fd for fd, _ in poll.poll(bound))}

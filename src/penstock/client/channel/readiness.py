"""Waiting for whichever of many channels has something to read, without looking at them in turn."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from penstock.client.channel.reader import Reader
from penstock.client.deadline import Deadline
from penstock.errors import PenstockError
from penstock.wire.stream import LONGEST_POLL

Key = TypeVar("Key")


def wait_any(channels: Mapping[Key, Reader], deadline: Deadline) -> list[Key]:
    """The channels whose `next` would answer at once; none if the deadline passed without any.

    One call to the system tells which of them have something to hear; the others are left alone.
    """
    heard = _poll(channels.values(), Deadline(0))
    while True:
        ready = [key for key, channel in channels.items() if _is_ready(channel, heard, deadline)]
        if ready or not channels or deadline.passed:
            return ready
        heard = _poll(channels.values(), deadline)


def _is_ready(channel: Reader, heard: Set[int], deadline: Deadline) -> bool:
    try:
        # One without a session needs another, and one without an epoch has a complaint.
        if not channel.ready and (channel.epoch < 0 or channel.fileno() in heard):
            channel.refresh(deadline)
    except TimeoutError:
        return False
    except PenstockError:
        return True  # `next` will say what is wrong
    return channel.ready


def _poll(channels: Iterable[Reader], deadline: Deadline) -> set[int]:
    """The descriptors with news; -1, which stands for none, is always among them."""
    poll = select.poll()
    for channel in channels:
        if (descriptor := channel.fileno()) >= 0:
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if channel.pending else 0))
    left = deadline.remaining
    bound = None if left is None else min(left * 1000, LONGEST_POLL)
    return {-1, *(fd for fd, _ in poll.poll(bound))}

"""Waiting for whichever of many channels has something to read, without looking at them in turn."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping
from typing import TypeVar

from penstock.client.deadline import Deadline
from penstock.client.reader import Reader
from penstock.errors import PenstockError

Key = TypeVar("Key")


def wait_any(channels: Mapping[Key, Reader], deadline: Deadline) -> list[Key]:
    """The channels whose `next` would answer at once; none if the deadline passed without any."""
    while True:
        ready = [key for key, channel in channels.items() if _is_ready(channel, deadline)]
        if ready or not channels or deadline.passed:
            return ready
        _poll(channels.values(), deadline)


def _is_ready(channel: Reader, deadline: Deadline) -> bool:
    try:
        if not channel.ready:
            channel.refresh(deadline)
    except TimeoutError:
        return False
    except PenstockError:
        return True  # `next` will say what is wrong
    return channel.ready


def _poll(channels: Iterable[Reader], deadline: Deadline) -> None:
    poll = select.poll()
    for channel in channels:
        if (descriptor := channel.fileno()) >= 0:
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if channel.pending else 0))
    left = deadline.remaining
    poll.poll(None if left is None else left * 1000)

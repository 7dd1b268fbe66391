"""Faults at every call by which a saver changes the disk: death, an error, the loss of power."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

# All of a saver's calls that change the disk, and those that could fail besides.
CHANGES = ("mkdir", "open", "fsync", "replace", "unlink", "rmdir")
OTHERS = ("close", "listdir")

Wrapped = dict[str, Callable[..., Any]]


def at_every_call(fault: Callable[[int], None], calls: tuple[str, ...] = CHANGES) -> Wrapped:
    """Functions of `os` that call `fault(k)` at the k-th call, and in the midst of writes.

    That is before the call, except that what is closed is closed even if that fails.
    """
    count = 0

    def point() -> None:
        nonlocal count
        count += 1
        fault(count)

    def preceded(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            point()
            return call(*args, **kwargs)

        return wrapped

    def close_and_point(fd: int) -> None:
        close(fd)
        point()

    def in_two_parts(fd: int, data: memoryview) -> int:
        point()
        written = write(fd, data[: len(data) // 2])
        point()
        return written + write(fd, data[len(data) // 2 :])

    write, close = os.write, os.close
    wrapped = {name: preceded(getattr(os, name)) for name in calls}
    if "close" in calls:
        wrapped["close"] = close_and_point
    return {**wrapped, "write": in_two_parts}


def die_at(position: int) -> None:
    """Lets this process be killed at that call."""

    def fault(count: int) -> None:
        if count == position:
            os.kill(os.getpid(), signal.SIGKILL)

    for name, wrapped in at_every_call(fault).items():
        setattr(os, name, wrapped)


class FailAt:
    """A fault: the call at that position fails, and all after it if the disk stays broken."""

    def __init__(self, position: int, *, for_good: bool) -> None:
        self.position = position
        self.for_good = for_good
        self.struck = False

    def __call__(self, count: int) -> None:
        if count == self.position or (self.for_good and count > self.position):
            self.struck = True
            raise OSError(errno.EIO, "the disk fails")

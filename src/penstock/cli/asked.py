"""Signals that ask a server in the foreground to end, or to read its certificate again."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Asked:
    """Whether the server is to end, and why.

    Not a `threading.Event`: a signal may come while the main thread holds its lock, and the
    handler, in the same thread, would wait for that lock.
    """

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._had_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._hangups = 0
        self.signals = 0  # how many signals have asked
        self.why = ""
        self.reloads: Callable[[], None] = lambda: None  # on SIGHUP

    def ask(self, why: str) -> None:
        self.why = why
        os.eventfd_write(self._event, 1)

    def wait(self, seconds: float | None) -> bool:
        """Wait until somebody asks, each time anew; return False if nobody did in `seconds`."""
        heard, _, _ = select.select([self._event], [], [], seconds)
        if heard:
            os.eventfd_read(self._event)
        if self._hangups:
            self._hangups = 0
            self.reloads()
            return False
        return bool(heard)

    def signalled(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not (self._had_terminal and _has_hung_up()):
            self._hangups += 1
            os.eventfd_write(self._event, 1)
        else:
            self.signals += 1
            self.ask(signal.Signals(number).name)


def _has_hung_up() -> bool:
    """Return whether the terminal this was started from is gone: then SIGHUP means the end."""
    try:
        termios.tcgetattr(sys.stdin)
    except (OSError, termios.error, ValueError):
        return True
    return False


@contextmanager
def signals() -> Iterator[Asked]:
    """Let signals ask the server to end, instead of interrupting it."""
    asked = Asked()
    before = {number: signal.signal(number, asked.signalled) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Ctrl-C for a command that has processes to end: the first one counts, and the end is in order.

People press it several times. What comes after the first would strike the putting in order, and
leave behind what that was about to take away.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# Longer than putting things in order may take. After that, another one counts again.
_PATIENCE_S: Final = 20.0


@contextmanager
def interruptible_once() -> Iterator[None]:
    """Has Ctrl-C raise KeyboardInterrupt once; what follows at its heels is not heard.

    A process that ends by it hears none to its end. Where Ctrl-C means something else already, or
    nothing, this changes nothing.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _Once())
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
    except BaseException:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Once:
    """A handler that raises, and is deaf for a while."""

    def __init__(self) -> None:
        self._deaf_until = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now >= self._deaf_until:
            self._deaf_until = now + _PATIENCE_S
            raise KeyboardInterrupt

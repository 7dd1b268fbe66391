"""Ctrl-C for a command that has processes to end: the first one counts, then it cleans up.

People press Ctrl-C several times. Further ones would interrupt the cleanup, and leave behind what
it was about to remove.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# Longer than a cleanup may take. After that, another Ctrl-C counts again.
_PATIENCE_S: Final = 20.0


@contextmanager
def interruptible_once() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt once; those that follow closely are ignored.

    When the process ends because of it, all further ones are ignored. Where Ctrl-C has another
    handler already, or is ignored, this changes nothing.
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
    """A signal handler that raises, and then ignores the signal for a while."""

    def __init__(self) -> None:
        self._deaf_until = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now >= self._deaf_until:
            self._deaf_until = now + _PATIENCE_S
            raise KeyboardInterrupt

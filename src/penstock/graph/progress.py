"""Shows on standard error how far long work has come.

A thread writes one line, again and again, so that work that cannot report in between is seen to go
on. By default that happens in a terminal only, and only for work that takes longer than a second:
nothing is ever written to logs and pipes unasked.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO, TypeAlias

# Called with what is done and the total.
Report: TypeAlias = Callable[[int, int], object]
# None: shown in a terminal, after a second. True: shown. False: not shown. Or called by the work.
Progress: TypeAlias = bool | Report | None

# Seconds of work before anything is shown unasked.
AFTER_S: Final = 1.0
_PAUSE_S: Final = 0.2  # in a terminal, where the line is written over
_PAUSE_OF_LINES_S: Final = 1.0
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


@contextmanager
def shown(what: str, progress: Progress, unit: str = "B") -> Iterator[Report | None]:
    """Yield what the work is to call with bytes done and in all; None if nobody wants to know.

    Args:
        what: What is done, in words.
        progress: What the user asked for.
        unit: What is counted, if not bytes.

    Raises:
        ValueError: That is neither a boolean, nor a function, nor None.
    """
    if callable(progress):
        yield progress
        return
    if progress is not None and not isinstance(progress, bool):
        raise ValueError(
            f"progress is {progress!r}; expected True, False, None, or a function of bytes done "
            "and in all"
        )
    stream = sys.stderr
    if stream is None or progress is False or (progress is None and not stream.isatty()):
        yield None
        return
    with _Line(what, stream, 0.0 if progress else AFTER_S, unit) as line:
        yield line.report


class _Line:
    """A line about work, written by a thread of its own until the work ends."""

    def __init__(self, what: str, stream: TextIO, after: float, unit: str) -> None:
        self._what = what
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._after = after
        self._unit = unit
        self._state = (0, 0)
        self._began = time.monotonic()
        self._over = threading.Event()
        self._is_shown = False
        self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)

    def report(self, done: int, total: int) -> None:
        self._state = (done, total)

    def __enter__(self) -> _Line:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError, ValueError):  # the terminal has been closed
            if self._is_shown and self._is_terminal:
                self._stream.write("\r\x1b[K")
            elif self._is_shown:
                self._write()
            self._stream.flush()

    def _run(self) -> None:
        pause = self._after
        while not self._over.wait(pause):
            try:
                self._write()
            except (OSError, ValueError):
                return
            pause = _PAUSE_S if self._is_terminal else _PAUSE_OF_LINES_S

    def _write(self) -> None:
        done, total = self._state
        seconds = time.monotonic() - self._began
        share = f"{done / total:.0%} of {_size(total, self._unit)}, " if total else ""
        text = f"{self._what}: {share}{seconds:.0f} s{_left(done, total, seconds, self._unit)}"
        self._stream.write(f"\r{text}\x1b[K" if self._is_terminal else f"{text}\n")
        self._stream.flush()
        self._is_shown = True


def _left(done: int, total: int, seconds: float, unit: str) -> str:
    """Return the rate and the time that is left, in words, once there is something to go by."""
    if not 0 < done < total or seconds < AFTER_S:
        return ""
    return f", {_size(done / seconds, unit)}/s, {(total - done) * seconds / done:.0f} s left"


def _size(count: float, unit: str) -> str:
    if unit != "B":
        return f"{count:,.0f} {unit}"
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.3g} {unit}"

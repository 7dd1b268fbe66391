"""Handles: numbers of backends and channels that also say which start of the server gave them.

62       32        1   0
 ┌────────┬────────┬────┐
 │  boot  │  count │kind│        63 bits: a plain integer everywhere
 └────────┴────────┴────┘
"""

from __future__ import annotations

import itertools
import secrets
import threading
from enum import IntEnum
from numbers import Integral
from typing import Any, Final

_BOOT_BITS: Final = 31
_COUNT_BITS: Final = 31


class HandleKind(IntEnum):
    """What a handle refers to."""

    BACKEND = 0
    CHANNEL = 1


class Handles:
    """The handles of one start of a server. None is used twice, not even after a failure."""

    def __init__(self, boot: int | None = None) -> None:
        self.boot = boot if boot is not None else 1 + secrets.randbelow(2**_BOOT_BITS - 1)
        self._lock = threading.Lock()
        self._counts = {kind: itertools.count(1) for kind in HandleKind}
        self._last = dict.fromkeys(HandleKind, 0)

    def take(self, kind: HandleKind) -> int:
        """Return the next handle."""
        with self._lock:
            count = self._last[kind] = next(self._counts[kind])
        return (self.boot << _COUNT_BITS | count) << 1 | kind

    def check(self, number: Any, kind: HandleKind) -> None:
        """Raise `KeyError`, with the reason, for a handle that this server never gave out."""
        what = kind.name.lower()
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise KeyError(
                f"{number!r} is not a {what}; expected a number that this server returned"
            )
        number = int(number)
        boot, count = number >> 1 + _COUNT_BITS, (number >> 1) % 2**_COUNT_BITS
        if boot not in (0, self.boot):
            raise KeyError(
                f"{what} {number} is from before the server was started again "
                f"(its boot was {boot:08x}, this is {self.boot:08x}): make it again"
            )
        if boot == 0 or number % 2 != kind or not 1 <= count <= self._last[kind]:
            raise KeyError(f"no {what} {number} was ever made here")

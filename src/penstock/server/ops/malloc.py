"""Returns unused memory to the system.

Requests and answers are allocated in pieces of all sizes by many threads. The C library keeps, for
each thread, the free memory between pieces that are in use. So a server would keep the most memory
that it ever needed.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

# Parameter of mallopt in the GNU C library, and the value to set.
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


def share_arenas() -> None:
    """Make all threads allocate from two heaps rather than each from its own, process-wide.

    Measured: after 75,000 conversations a server had grown by 33 MB and went on growing; with two
    heaps by 9 MB after 9,000 conversations and by 10 MB after 37,000.
    """
    with suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return all free pages to the system; do nothing where that is not supported."""
    with suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)

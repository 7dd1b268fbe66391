"""Has msgspec learn about a type in one thread at a time.

What msgspec knows of a type is put together when the type is first decoded or converted to, partly
in Python, and kept with the type before it is complete. A second thread that comes meanwhile reads
what is not there yet, and the process crashes (msgspec 0.22). So whoever decodes in several threads
asks for the type here first.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

_T = TypeVar("_T")

_known: set[object] = set()
# Reentrant, because a signal handler may decode meanwhile.
_learning = threading.RLock()


def known(kind: _T) -> _T:
    """Return a type, of which msgspec knows all from now on.

    Args:
        kind: Anything that msgspec can decode.
    """
    if kind not in _known:
        with _learning:
            msgspec.msgpack.Decoder(kind)
            _known.add(kind)
    return kind

"""Other users of this machine, for tests that run as root."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable

import pytest

NOBODY = 65534
# The kernel keeps user ids by thread; only the C library makes them the process's.
_SETRESUID = {"x86_64": 117, "aarch64": 147}.get(platform.machine())

only_root = pytest.mark.skipif(
    os.geteuid() != 0 or _SETRESUID is None, reason="only root can be others"
)


def as_nobody(work: Callable[[], object]) -> None:
    """Does something as another user, in a thread of its own."""

    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.syscall(_SETRESUID, -1, NOBODY, -1) == 0, os.strerror(ctypes.get_errno())
        work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

"""A server's process: `python -m penstock.demo.server PARENT OPTIONS`, started by the parent.

It becomes `penstock serve OPTIONS`, and the kernel ends it with the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final, NoReturn

EXIT_ALONE: Final = 2  # the parent is gone
_PR_SET_PDEATHSIG: Final = 1


def main(parent: int, options: list[str]) -> NoReturn:
    """Replace this process by a server; exit if the parent is gone already."""
    if sys.platform == "linux":  # the setting outlives the change of program
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(EXIT_ALONE)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "penstock", "serve", *options])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

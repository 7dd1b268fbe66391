"""Which machine this is: two processes that say the same can share memory and unix sockets."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Processes in different containers run on one kernel, and reach each other's sockets and processes
# only where these are the same.
_NAMESPACES = ("net", "pid", "mnt")


@cache
def this_host() -> str:
    """The same for all who can reach each other here; differs after every boot."""
    try:
        boot = _BOOT.read_text().strip()
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES]
    except OSError:  # a system without such files: then by its name
        return f"{socket.gethostname()}/{os.getuid()}"
    return "/".join([boot, *spaces])

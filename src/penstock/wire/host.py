"""The identity of this host: processes with the same one can share memory and unix sockets."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Processes in different containers may run on one kernel. They can reach each other's sockets and
# processes only if these namespaces are the same.
_NAMESPACES = ("net", "pid", "mnt")


@cache
def this_host() -> str:
    """Return a text that is equal in all processes that can reach each other on this host.

    It changes with every boot of the system.
    """
    try:
        boot = _BOOT.read_text().strip()
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES]
    except OSError:  # a system without these files: use its name
        return f"{socket.gethostname()}/{os.getuid()}"
    return "/".join([boot, *spaces])
